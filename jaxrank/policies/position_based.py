"""PBM-UCB, PBM-TS and PBM-PIE: bandits for the position-based model with known examination (Lagrée et al., NIPS 2016).

Item k was shown N_{k,l} times at position l and clicked S_{k,l} times there; S_k and N_k are the sums over l, and
Ñ_k = Σ_l χ_l·N_{k,l} is the expected number of times it was examined. Then S_k/Ñ_k estimates its attraction θ_k.

All three are TOLD χ, which users of a real system do not reveal: by the environment, or by their field ``examination``.
PBMHB, GRAB and UniRank learn without it; ``jaxrank reproduce unknown-examination`` compares them, also with a wrong χ.

Where the paper leaves a choice:

- The paper numbers positions by examination, highest first. Fitted χ need not decrease with the position, so here the
  l-th best item goes to the l-th most examined position, and "the last position" is the least examined one.
- δ_t = (1 + ε)·log t for PBM-UCB and for PBM-PIE. The paper's PBM-PIE has log T of the horizon instead of log t.
- The paper starts PBM-PIE by showing every item at every position. Here PBM-UCB and PBM-PIE put items that were never
  examined (Ñ_k = 0) first, with ties broken at random, so that ⌈L/K⌉ steps show them all. PBM-TS starts from a uniform
  prior.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import rel_entr

from jaxrank.core.checks import non_negative, probability
from jaxrank.core.numerics import ordered_sum
from jaxrank.core.pytrees import array, pytree
from jaxrank.core.ranking import lookup, top_items
from jaxrank.core.samplers import position_based_posterior
from jaxrank.core.types import Array, Key, Query


class PositionBasedState(NamedTuple):
    shown: Array  # int32[K, L], N_{k,l} of item k at position l in row l
    clicks: Array  # int32[K, L], S_{k,l} likewise; of PBM-UCB int32[L], S_k


@pytree
class _PositionBased:
    """The common part: the counts by position and item, and χ."""

    per_item: ClassVar[bool] = True

    examination: Any = array(ndim=1, check=probability, default=None)

    def _best(self, key: Key, state: PositionBasedState, chi: Array, step: Array) -> Array:
        """int32[K]: the items to show, the first at the most examined position."""
        raise NotImplementedError

    def init(self, key: Key, query: Query) -> PositionBasedState:
        zeros = jnp.zeros((query.list_size, query.num_items), jnp.int32)
        return PositionBasedState(shown=zeros, clicks=zeros)

    def rank(self, key: Key, state: PositionBasedState, query: Query) -> Array:
        chi = self._chi(query)
        return lookup(self._best(key, state, chi, query.step), _examination_rank(chi))

    def update(
        self, key: Key, state: PositionBasedState, query: Query, ranking: Array, clicks: Array
    ) -> PositionBasedState:
        shown = ranking[:, None] == jnp.arange(query.num_items)[None, :]
        clicked = shown & clicks[:, None]
        if state.clicks.ndim == 1:
            clicked = jnp.any(clicked, axis=0)
        return PositionBasedState(state.shown + shown, state.clicks + clicked)

    def statistics(self, state: PositionBasedState) -> dict[str, Array]:
        """The paper's N_{k,l} and S_{k,l}, by position and item, for probes and tests; of PBM-UCB, S_k."""
        return {"N": state.shown, "S": state.clicks}

    def _chi(self, query: Query) -> Array:
        """float[K]: χ, the policy's own or that of the query."""
        name, K = f"{type(self).__name__}.examination", query.list_size
        chi = query.examination if self.examination is None else self.examination
        if chi is None:
            raise ValueError(f"{name} must be given where the query has no examination by position; got None")
        if chi.shape[0] < K:
            raise ValueError(f"{name} must hold the {K} positions of the list; got {chi.shape[0]}")
        return chi[:K]


@pytree
class _Optimistic(_PositionBased):
    """What PBM-UCB and PBM-PIE share: δ_t."""

    epsilon: Any = array(ndim=0, check=non_negative, default=0.01)

    def _delta(self, step: Array) -> Array:
        return (1 + self.epsilon) * jnp.log(step.astype(float))


@pytree
class PBMUCB(_Optimistic):
    """PBM-UCB: an upper confidence bound on the attraction, around S_k/Ñ_k; it knows the examination χ.

    U_k(t) = S_k/Ñ_k + sqrt(N_k/Ñ_k)·sqrt(δ_t / (2·Ñ_k)) with δ_t = (1 + ε)·log t.

    Args:
      examination: χ [K]. By default that of the environment's users.
      epsilon: ε ≥ 0. The regret bound requires ε > 0 and is proportional to 1 + ε: 0.01 costs 1 %.

    Reference: Lagrée, Vernade, Cappé: Multiple-play bandits in the position-based model. NIPS 2016.
    """

    def init(self, key: Key, query: Query) -> PositionBasedState:
        state = super().init(key, query)
        return state._replace(clicks=state.clicks[0])  # it needs no more than their sums over positions

    def _best(self, key: Key, state: PositionBasedState, chi: Array, step: Array) -> Array:
        K, L = state.shown.shape
        words = jax.random.bits(key, (L,), jnp.uint32)
        return top_items(self._index(state, chi, step), K, words)

    def _index(self, state: PositionBasedState, chi: Array, step: Array) -> Array:
        """float[L]: U_k(t)."""
        N, examined = jnp.sum(state.shown, axis=0), _examined(state, chi)
        some = jnp.where(examined > 0, examined, 1)
        return _estimate(state.clicks, examined) + jnp.sqrt(N / some) * jnp.sqrt(self._delta(step) / (2 * some))


@pytree
class PBMPIE(_Optimistic):
    """PBM-PIE: shows the leaders, and explores others at the last position; it knows the examination χ.

    Explored are items that may be better than the last leader.

    The leaders are the K items of the highest S_k/Ñ_k, and c is the S_k/Ñ_k of the last of them. The candidates are the
    other items with U_k(t) ≥ c. If there are any, a random one takes the last position with probability 1/2. Here

      U_k(t) = sup{q in [θ_k, 1] : Φ_k(q) ≤ δ_t},   Φ_k(q) = Σ_l N_{k,l}·d(S_{k,l}/N_{k,l}, χ_l·q)

    for the Bernoulli divergence d, with θ_k the minimum of Φ_k, and U_k(t) = θ_k if Φ_k exceeds δ_t everywhere. As Φ_k
    is convex, U_k(t) ≥ c if and only if c ≤ θ_k or Φ_k(c) ≤ δ_t, so that U_k(t) need not be computed.

    Args:
      examination: χ [K]. By default that of the environment's users.
      epsilon: ε ≥ 0 of δ_t = (1 + ε)·log t, as in PBM-UCB.

    Reference: Lagrée, Vernade, Cappé: Multiple-play bandits in the position-based model. NIPS 2016.
    """

    def _best(self, key: Key, state: PositionBasedState, chi: Array, step: Array) -> Array:
        K, L = state.shown.shape
        words = jax.random.bits(key, (L + 1,), jnp.uint32)  # for ties, and one for the explorer
        estimate = _estimate(jnp.sum(state.clicks, axis=0), _examined(state, chi))
        leaders = top_items(estimate, K, words[:L])
        if K == L:  # every item is a leader
            return leaders
        leads = jnp.any(leaders[:, None] == jnp.arange(L)[None, :], axis=0)
        candidate = ~leads & self._may_reach(lookup(estimate, leaders[-1]), state, chi, step)
        explore = (words[L] & 1).astype(bool) & jnp.any(candidate)
        explorer = _random_candidate(words[L] >> 1, candidate)
        return jnp.where(explore & (jnp.arange(K) == K - 1), explorer, leaders)

    def _may_reach(self, c: Array, state: PositionBasedState, chi: Array, step: Array) -> Array:
        """bool[L]: is U_k(t) ≥ c? Never for c > 1, as an attraction is at most 1."""
        clicks, skips = state.clicks.astype(float), (state.shown - state.clicks).astype(float)
        p = (jnp.minimum(c, 1) * chi)[:, None]  # χ_l·c
        rising = ordered_sum(clicks) - ordered_sum(skips * p / jnp.maximum(1 - p, 1e-30))  # −c·Φ'(c)
        divergence = ordered_sum(rel_entr(clicks, state.shown * p) + rel_entr(skips, state.shown * (1 - p)))
        return (c <= 1) & ((rising >= 0) | (divergence <= self._delta(step)))


@pytree
class PBMTS(_PositionBased):
    """PBM-TS: Thompson sampling from the posterior under a uniform prior; it knows the examination χ.

    p(θ_k) ∝ Π_l θ_k^S_{k,l}·(1 − χ_l·θ_k)^(N_{k,l} − S_{k,l}) on [0, 1], by inverse CDF (``core/samplers.py``).

    Args:
      examination: χ [K]. By default that of the environment's users.

    Reference: Lagrée, Vernade, Cappé: Multiple-play bandits in the position-based model. NIPS 2016
    (who sample by rejection).
    """

    def _best(self, key: Key, state: PositionBasedState, chi: Array, step: Array) -> Array:
        K, L = state.shown.shape
        clicks, skips = jnp.sum(state.clicks, axis=0), state.shown - state.clicks
        return top_items(position_based_posterior(jax.random.uniform(key, (L,)), clicks, skips, chi), K)


def _examined(state: PositionBasedState, chi: Array) -> Array:
    """float[L]: Ñ_k."""
    return ordered_sum(state.shown * chi[:, None])


def _estimate(clicks: Array, examined: Array) -> Array:
    """float[L]: S_k/Ñ_k; infinite if the item was never examined."""
    return jnp.where(examined > 0, clicks / jnp.where(examined > 0, examined, 1), jnp.inf)


def _examination_rank(chi: Array) -> Array:
    """int32[K]: each position's rank by examination, 0 for the most examined; of equal ones, the upper comes first."""
    position = jnp.arange(chi.shape[0])
    more, equal = chi[:, None] > chi[None, :], chi[:, None] == chi[None, :]
    return jnp.sum(more | (equal & (position[:, None] < position[None, :])), axis=0, dtype=jnp.int32)


def _random_candidate(word: Array, candidate: Array) -> Array:
    """int32[]: one of the candidates bool[L], by a random word."""
    number = jnp.cumsum(candidate, dtype=jnp.int32)
    draw = (word % jnp.maximum(number[-1], 1).astype(jnp.uint32)).astype(jnp.int32)
    return jnp.argmax(candidate & (number - 1 == draw)).astype(jnp.int32)
