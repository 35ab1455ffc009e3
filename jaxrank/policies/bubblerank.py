"""BubbleRank: safe re-ranking by random exchanges of neighbours (Li et al., UAI 2019, Algorithm 1).

Where the paper leaves a choice:

- The text of Sec. 3.1 and line 5 disagree on the parity. We follow the text: at odd t positions 1-2, 3-4, … may be
  exchanged (h = 0), at even t positions 2-3, 4-5, … (h = 1).
- Lines 13–19 update every pair of this step's parity, whether it was subject to exchange or not.
- Lines 20–24 are one sequential pass from the top: an item may sink several places in a step.
- L > K (Sec. 4.3): whenever position K is not paired with K − 1, it is paired with a random challenger from below,
  which is what the section's parities say under line 5's numbering. The pass of lines 20–24 ends with position K: its
  item changes places with the highest item below K that was found more attractive.
- A list whose pairs are all certain is not settled: lines 13–19 continue to count, and a pair may become uncertain
  again. Lemma 7 needs the statistics of a certain pair to stand still; ``freeze_certain`` stops counting there.
- Doubling trick (Sec. 4.3): after step n the base list becomes R₀ again and n doubles; the statistics are kept.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.checks import open_probability, positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.random import coin_flips
from jaxrank.core.ranking import lookup
from jaxrank.core.types import Array, Key, Query


class Beliefs(NamedTuple):
    """The base list and the statistics s and n of pairs of items.

    A step changes only the statistics of neighbours, so these are kept in list order. The matrices over items hold the
    statistics of the pairs that were neighbours before; they are read and written only when the base list changes.
    """

    base: Array  # int32[L], R̄_t; the first K are shown
    s: Array  # int32[K−1], s(R̄(k), R̄(k+1))
    n: Array  # int32[K−1], n(R̄(k), R̄(k+1))
    s_below: Array  # int32[L−K], s(R̄(K), R̄(K+1)), s(R̄(K), R̄(K+2)), …
    n_below: Array  # int32[L−K], n likewise
    s_items: Array  # int32[L, L], s(i, j) of the pairs that are not neighbours now
    n_items: Array  # int32[L, L], n(i, j) likewise


class BubbleRankState(NamedTuple):
    beliefs: Beliefs
    challenger: Array  # int32[], for L > K the next challenger of position K, as an index into base[K:]; −1 if none
    horizon: Any  # int32[], n of the doubling trick; None without it


@pytree
class BubbleRank:
    """Exchanges neighbours at random until one item of a pair is found more attractive, which then stays above.

    A pair (i, j) is certain once s(i, j) > 2·sqrt(n(i, j)·log(1/δ)), where s counts the clicks on i minus those on j
    in the n steps in which exactly one of them was clicked.

    Args:
      delta: δ, in (0, 1). By default n⁻⁴ for the horizon n, as in the paper's experiments.
      horizon: n, at least the number of steps of the run, which it is by default.
      doubling: the doubling trick for an unknown horizon; ``horizon`` is then the first guess, and must be given.
      freeze_certain: do not count further clicks on a pair once one of its items was found more attractive, as Lemma 7
        assumes. By default lines 13–19 count on, as printed.
    """

    per_item: ClassVar[bool] = True
    of_list: ClassVar[tuple[str, ...]] = ("challenger", "step")

    delta: Any = array(ndim=0, check=open_probability, default=None)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)
    doubling: bool = static(default=False)
    freeze_certain: bool = static(default=False)

    def _validate(self) -> None:
        if self.doubling and self.horizon is None:
            raise ValueError("BubbleRank.horizon must be given, as the first guess, when doubling=True; got None")

    def init(self, key: Key, query: Query) -> BubbleRankState:
        L, K = query.num_items, query.list_size
        counts = (K - 1, K - 1, L - K, L - K, (L, L), (L, L))
        beliefs = Beliefs(query.base_ranking, *(jnp.zeros(shape, jnp.int32) for shape in counts))
        horizon = self.horizon if self.doubling else None
        return BubbleRankState(beliefs, self._challenger(key, beliefs, self._log_inverse_delta(horizon)), horizon)

    def rank(self, key: Key, state: BubbleRankState, query: Query) -> Array:
        K = query.list_size
        base, s, n = state.beliefs.base, state.beliefs.s, state.beliefs.n
        coins = coin_flips(key, K)
        uncertain = ~_certain(s, n, self._log_inverse_delta(state.horizon))
        exchange = _paired(query) & uncertain & coins[:-1]  # lines 7–10: k with k + 1
        down, up = jnp.pad(exchange, (0, 1)), jnp.pad(exchange, (1, 0))
        shown = base[:K]
        ranking = jnp.where(down, jnp.roll(shown, -1), jnp.where(up, jnp.roll(shown, 1), shown))
        if query.num_items > K:
            swap = _last_is_free(query) & (state.challenger >= 0) & coins[-1]
            challenger = lookup(base[K:], state.challenger)
            ranking = ranking.at[-1].set(jnp.where(swap, challenger, ranking[-1]))
        return ranking

    def update(self, key: Key, state: BubbleRankState, query: Query, ranking: Array, clicks: Array) -> BubbleRankState:
        K = query.list_size
        beliefs, challenger, horizon = state
        log_inverse_delta = self._log_inverse_delta(horizon)
        exchanged = ranking != beliefs.base[:K]
        c = clicks.astype(jnp.int32)

        # Lines 12–19, for the pairs of this step, in the order of the base list.
        z = jnp.where(exchanged[:-1], c[1:] - c[:-1], c[:-1] - c[1:]) * _paired(query)
        if self.freeze_certain:
            z = jnp.where(_certain(jnp.abs(beliefs.s), beliefs.n, log_inverse_delta), 0, z)
        beliefs = beliefs._replace(s=beliefs.s + z, n=beliefs.n + jnp.abs(z))
        if query.num_items > K:  # Sec. 4.3: the item that is not displayed gets feedback 0
            z_last = jnp.where(exchanged[-1], -c[-1], c[-1]) * _last_is_free(query)
            z_below = jnp.where(jnp.arange(query.num_items - K) == challenger, z_last, 0)
            beliefs = beliefs._replace(s_below=beliefs.s_below + z_below, n_below=beliefs.n_below + jnp.abs(z_below))

        # Lines 20–24: nothing to do unless a lower neighbour has been found more attractive.
        wrong = jnp.any(_certain(-beliefs.s, beliefs.n, log_inverse_delta))
        wrong |= jnp.any(_certain(-beliefs.s_below, beliefs.n_below, log_inverse_delta))
        if self.doubling:
            over = query.step >= horizon
            beliefs = rarely(wrong & ~over, _exchange, beliefs, log_inverse_delta)
            beliefs = rarely(over, _reset, beliefs, query.base_ranking)
            horizon = jnp.where(over, 2 * jnp.minimum(horizon, 2**30 - 1), horizon)
            log_inverse_delta = self._log_inverse_delta(horizon)
        else:
            beliefs = rarely(wrong, _exchange, beliefs, log_inverse_delta)
        return BubbleRankState(beliefs, self._challenger(key, beliefs, log_inverse_delta), horizon)

    def statistics(self, state: BubbleRankState) -> dict[str, Array]:
        """The paper's R̄, s and n over items, for probes and tests."""
        beliefs = _to_items(state.beliefs)
        return {"base": beliefs.base, "s": beliefs.s_items, "n": beliefs.n_items}

    def _log_inverse_delta(self, horizon: Array | None) -> Array:
        if self.delta is not None:
            return -jnp.log(self.delta)
        horizon = self.horizon if horizon is None else horizon
        if horizon is None:
            raise ValueError("BubbleRank.horizon must be given outside of simulate, which fills it in; got None")
        return 4 * jnp.log(horizon.astype(float))

    def _challenger(self, key: Key, beliefs: Beliefs, log_inverse_delta: Array) -> Array:
        """A random item below K that has not been found less attractive than the item at K."""
        if beliefs.s_below.shape[0] == 0:
            return jnp.int32(-1)
        candidate = ~_certain(beliefs.s_below, beliefs.n_below, log_inverse_delta)
        number = jnp.cumsum(candidate, dtype=jnp.int32)
        draw = (jax.random.uniform(key) * number[-1]).astype(jnp.int32)
        chosen = candidate & (number - 1 == jnp.minimum(draw, number[-1] - 1))
        return jnp.where(number[-1] > 0, jnp.argmax(chosen).astype(jnp.int32), -1)


def _certain(s: Array, n: Array, log_inverse_delta: Array) -> Array:
    """Lines 9 and 23: is the first of the pair more attractive?"""
    return s > 2 * jnp.sqrt(n * log_inverse_delta)


def _paired(query: Query) -> Array:
    """bool[K−1]: is position k paired with k + 1 at this step? h = 0 at odd t, 1 at even t."""
    h = (query.step + 1) % 2
    return jnp.arange(query.list_size - 1) % 2 == h


def _last_is_free(query: Query) -> Array:
    """bool[]: is position K without a partner above it at this step?"""
    return jnp.equal((query.list_size - 1) % 2, (query.step + 1) % 2)


def _exchange(beliefs: Beliefs, log_inverse_delta: Array) -> Beliefs:
    """Lines 20–24: one pass of bubble sort from the top."""
    beliefs = _to_items(beliefs)
    s, n, K = beliefs.s_items, beliefs.n_items, beliefs.s.shape[0] + 1

    def visit(k: Array, base: Array) -> Array:
        i, j = base[k], base[k + 1]
        exchange = _certain(s[j, i], n[j, i], log_inverse_delta)
        return base.at[k].set(jnp.where(exchange, j, i)).at[k + 1].set(jnp.where(exchange, i, j))

    base = jax.lax.fori_loop(0, K - 1, visit, beliefs.base)
    if base.shape[0] > K:
        last, below = base[K - 1], base[K:]
        better = _certain(s[below, last], n[below, last], log_inverse_delta)
        place = jnp.where(jnp.any(better), K + jnp.argmax(better), K - 1)
        base = base.at[K - 1].set(base[place]).at[place].set(last)
    return _from_items(beliefs._replace(base=base))


def _reset(beliefs: Beliefs, base_ranking: Array) -> Beliefs:
    return _from_items(_to_items(beliefs)._replace(base=base_ranking))


def _neighbours(beliefs: Beliefs) -> tuple[Array, Array]:
    """int32[L−1] twice: the upper and the lower items of the pairs of s, then of those of s_below."""
    K = beliefs.s.shape[0] + 1
    lower = beliefs.base[1:]
    upper = beliefs.base[jnp.minimum(jnp.arange(lower.shape[0]), K - 1)]
    return upper, lower


def _to_items(beliefs: Beliefs) -> Beliefs:
    """Writes the neighbours' statistics into the matrices."""
    upper, lower = _neighbours(beliefs)
    s, n = jnp.append(beliefs.s, beliefs.s_below), jnp.append(beliefs.n, beliefs.n_below)
    return beliefs._replace(
        s_items=beliefs.s_items.at[upper, lower].set(s).at[lower, upper].set(-s),
        n_items=beliefs.n_items.at[upper, lower].set(n).at[lower, upper].set(n),
    )


def _from_items(beliefs: Beliefs) -> Beliefs:
    """Reads the neighbours' statistics out of the matrices."""
    upper, lower = _neighbours(beliefs)
    s, n = beliefs.s_items[upper, lower], beliefs.n_items[upper, lower]
    cut = beliefs.s.shape[0]
    return beliefs._replace(s=s[:cut], n=n[:cut], s_below=s[cut:], n_below=n[cut:])
