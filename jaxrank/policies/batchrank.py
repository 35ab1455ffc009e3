"""BatchRank: batches of items, split and thinned out by KL bounds (Zoghi et al., ICML 2017, Algorithms 1–4).

Where the paper leaves a choice, is misprinted, or this file reads differently:

- Δ̃_ℓ = 2^−ℓ, so n_ℓ = ⌈16·4^ℓ·log T⌉. In float32 this is exact in the first stages and within 10⁻⁷ of it later.
- As printed, a batch with |B| = len(b) that cannot be split (s = 0) never leaves its stage, because line 16 of
  Algorithm 4 requires |B| > len(b). Here a batch that cannot be split enters its next stage, which is the intent. Line
  18 then keeps all items, as U(d) ≥ L(d) ≥ L(d_len(b)).
- A batch of one item is done: it has no next stage. Its counts continue to grow, as printed, which changes nothing.
- Line 7 of Algorithm 4 allows any permutation: here items with equal lower bounds are in item order.
- δ_T = log T + 3·log log T is negative for T < 3, and clipped to 0 there; the paper assumes T ≥ 5.
- The tables c_{b,ℓ}(d) and n_{b,ℓ}(d) are needed only for the one batch that an item is in, and its current stage. So
  they, ℓ_b and I_b are arrays over items. A batch is identified by the first position of its interval.
- Every batch but the one over position K has as many items as positions, so that all are shown, and observed, in every
  step. In the batch over position K the items' counts differ by at most one: no item is observed a second time before
  all have been observed.

The paper's figures were drawn with a program of the authors' circle, which differs from print (``RealMergeRank`` of
PyClickLambdas, with KL bounds, full feedback and cleared counters). ``variant="released"`` is that algorithm:

- Every batch is shuffled whole and the first K items of all are shown. So the items of the batch over position K take
  turns by chance, and not the least observed first. Every displayed item is observed.
- The stage of a batch with Δ̃ (1/2 at first) ends once each of its items has at least log(L·T)/Δ̃² observations, which is
  16·4^ℓ·log T in print. The level of the bounds is log(L·T) instead of δ_T, and divided by the item's own observations.
- Items below position K are eliminated whether there is a split or not. Then the batch is split at every place
  at which it can be, not only at the last one.
- If nothing was split or eliminated, Δ̃ is halved and the counts are kept. Otherwise they are cleared, and Δ̃ is 1/2.

A noise-free calculation on 60 Yandex queries (K = L = 10, T = 5 million) gives a regret of 8,807 as printed and 4,215
as released in CM, and of 36,720 and 17,220 in PBM; BubbleRank's is 5,569 and 32,969.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.checks import positive
from jaxrank.core.numerics import kl_lower, kl_upper
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ranking import by_item, lookup, shuffle
from jaxrank.core.types import Array, Key, Query

_NEVER = 2.0**31 - 128  # the largest float32 that is an int32


class BatchRankState(NamedTuple):
    first: Array  # int32[L], I_b(1) − 1 of the item's batch b; L if the item is eliminated
    last: Array  # int32[L], I_b(2) − 1, likewise
    stage: Array  # int32[L], ℓ_b; if released, Δ̃ = 2^−(ℓ_b + 1)
    n: Array  # int32[L], n_{b,ℓ}(d)
    c: Array  # int32[L], c_{b,ℓ}(d)
    n_min: Array  # int32[], the lowest n in the batch over position K; not kept if L = K, where all items are shown
    settled: Array  # bool[], is every batch a single item?


@pytree
class BatchRank:
    """Explores batches of items over intervals of positions, each in stages, and splits them into better and worse.

    At the end of a stage, KL bounds on the click probabilities of a batch's items decide where to split it. If it
    cannot be split, they decide which of its items to eliminate.

    Args:
      horizon: T, at least the number of steps of the run, which it is by default.
      variant: "printed" as in the paper, or "released" as in the program that drew the paper's figures: see the top of
        this file.
    """

    per_item: ClassVar[bool] = True

    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)
    variant: str = static(default="printed", choices=("printed", "released"))

    def init(self, key: Key, query: Query) -> BatchRankState:
        zeros = jnp.zeros(query.num_items, jnp.int32)
        last, settled = zeros + query.list_size - 1, jnp.bool_(query.num_items == 1)
        return BatchRankState(zeros, last, zeros, n=zeros, c=zeros, n_min=jnp.int32(0), settled=settled)  # lines 1–7

    def rank(self, key: Key, state: BatchRankState, query: Query) -> Array:
        """Algorithm 2, DisplayBatch, for all batches at once: d and π have length K, each batch in its interval."""
        L, K = query.num_items, query.list_size
        if L == K or self.variant == "released":  # one random permutation of each batch is enough
            return shuffle(jax.random.bits(key, (L,), jnp.uint32), jnp.minimum(state.first, K), K, K)
        words = jax.random.bits(key, (L + K,), jnp.uint32)
        d = shuffle(words[:L], jnp.minimum(2 * state.first + _ahead(state, K), 2 * K), 2 * K, K)  # line 3
        pi = shuffle(words[L:], lookup(state.first, d), K, K)  # line 4
        return lookup(d, pi)  # line 6

    def update(self, key: Key, state: BatchRankState, query: Query, ranking: Array, clicks: Array) -> BatchRankState:
        """Algorithm 3, CollectClicks, and Algorithm 4, UpdateBatch, for all batches at once."""
        L, K = query.num_items, query.list_size
        released, log_horizon = self.variant == "released", self._log_horizon()
        shown = by_item(ranking, 1 + clicks.astype(jnp.int32), L)  # 0 if not shown, 1 if shown, 2 if clicked
        collects = shown > 0
        if not released:
            collects &= ~_ahead(state, K)  # Algorithm 3, line 4
        state = state._replace(c=state.c + (collects & (shown == 2)), n=state.n + collects)
        state = _with_n_min(state, K)
        # Algorithm 4, if the least observed items of some batch have n_ℓ observations.
        n_stage = _stage_length(state.stage, log_horizon, L, self.variant)
        waits = (L > K) & (state.last == K - 1) & (state.n_min < n_stage) if released else _ahead(state, K)
        ends = jnp.any((state.n == n_stage) & ~waits)
        return rarely(ends, partial(_update_batches, K, self.variant), state, log_horizon)

    def statistics(self, state: BatchRankState) -> dict[str, Array]:
        """The paper's I_b (from 0), ℓ_b, n_{b,ℓ} and c_{b,ℓ} of each item's batch, for probes and tests."""
        return {name: leaf for name, leaf in state._asdict().items() if name not in ("n_min", "settled")}

    def settled(self, state: BatchRankState) -> Array:
        """bool[]: will the displayed list stay the same forever?

        Yes, if and only if every batch has one item: such a batch is done. A batch of more items is shown in random
        order, and may still be split or lose an item.
        """
        return state.settled

    def _log_horizon(self) -> Array:
        if self.horizon is None:
            raise ValueError("BatchRank.horizon must be given outside of simulate, which fills it in; got None")
        return jnp.log(self.horizon.astype(float))


def _stage_length(stage: Array, log_horizon: Array, num_items: int, variant: str) -> Array:
    """n_ℓ, elementwise."""
    shortest = 4 * (log_horizon + jnp.log(float(num_items))) if variant == "released" else 16 * log_horizon
    return jnp.minimum(jnp.ceil(shortest * (1 << 2 * stage)), _NEVER).astype(jnp.int32)


def _with_n_min(state: BatchRankState, list_size: int) -> BatchRankState:
    if state.n.shape[0] == list_size:
        return state
    n = jnp.where(state.last == list_size - 1, state.n, jnp.iinfo(jnp.int32).max)
    return state._replace(n_min=jnp.min(n))


def _ahead(state: BatchRankState, list_size: int) -> Array:
    """bool[L]: was the item observed once more than n_min, that is, than the least observed item of its batch?"""
    if state.n.shape[0] == list_size:
        return jnp.zeros(list_size, bool)
    return (state.last == list_size - 1) & (state.n > state.n_min)


def _update_batches(list_size: int, variant: str, state: BatchRankState, log_horizon: Array) -> BatchRankState:
    """Algorithm 4, UpdateBatch, for all batches at once: row d of each array is about the batch of item d."""
    first, last, stage, n, c, *_ = state
    released, L, length = variant == "released", first.shape[0], last - first + 1
    n_stage = _stage_length(stage, log_horizon, L, variant)
    d, e = jnp.arange(L)[:, None], jnp.arange(L)[None, :]  # two items
    batch = first[d] == first[e]  # is e in the batch of d? Eliminated items form a batch whose stage never ends: n = 0
    enough = n >= n_stage if released else n == n_stage
    ended = jnp.all(~batch | enough[e], axis=1) & (jnp.sum(batch, axis=1) > 1)  # line 4

    # Lines 5–6: the bounds U and L.
    delta_T = log_horizon + (jnp.log(float(L)) if released else 3 * jnp.log(log_horizon))
    level, observed = jnp.maximum(delta_T, 0), jnp.maximum(n, 1)
    upper = kl_upper(c / observed, level / observed)
    lower = kl_lower(c / observed, level / observed)

    # Line 7: item d is d_k, by L. As printed, L rises with the clicks, for a batch has one n_ℓ. Clicks and places are
    # integers: unlike floats that XLA may compute twice and round otherwise, they are equal to themselves.
    order = jnp.argsort(jnp.argsort(lower, descending=True), stable=True) if released else -c
    above = (order[e] < order[d]) | ((order[e] == order[d]) & (e < d))
    k = 1 + jnp.sum(batch & above, axis=1, dtype=jnp.int32)

    # Lines 16–19: the items that cannot be at I_b(2) or higher, which are eliminated; as printed, if there is no split.
    hopeless = (k > length) & (upper < jnp.max(jnp.where(batch & (k == length)[e], lower[e], 0), axis=1))

    # Lines 8–15: the k < len(b) at which L(d_k) is above all U of B⁻_k, the items after d_k; as printed, the last one.
    after = batch & (k[e] > k[d]) & ~(hopeless[e] & released)
    divides = (k < length) & (lower > jnp.max(jnp.where(after, upper[e], 0), axis=1))
    s = jnp.max(jnp.where(batch & divides[e], k[e], 0), axis=1)
    if not released:
        divides, hopeless = divides & (k == s), hopeless & (s == 0)

    # Lines 20–27: an item's new batch is from behind the last split above it to the next one.
    start = jnp.max(jnp.where(batch & divides[e] & (k[e] < k[d]), k[e], 0), axis=1)
    end = jnp.min(jnp.where(batch & divides[e] & (k[e] >= k[d]), k[e], length[d]), axis=1)
    changed = (s > 0) | (jnp.any(batch & hopeless[e], axis=1) if released else hopeless)
    keeps = released & ~changed  # the counts
    updated = {
        "first": jnp.where(hopeless, L, first + start),
        "last": jnp.where(hopeless, L, first + end - 1),
        "stage": jnp.where(changed, 0, stage + 1),
        "n": jnp.where(keeps, n, 0),
        "c": jnp.where(keeps, c, 0),
    }
    state = state._replace(**{name: jnp.where(ended, leaf, getattr(state, name)) for name, leaf in updated.items()})
    alone = jnp.sum(state.first[d] == state.first[e], axis=1) == 1
    return _with_n_min(state._replace(settled=jnp.all(alone | (state.first == L))), list_size)
