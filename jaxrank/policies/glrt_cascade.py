"""GLRT-CascadeUCB and GLRT-CascadeKL-UCB: cascading bandits that start anew when they detect a change (Wang et al.).

Lingda Wang, Huozhi Zhou, Bingcong Li, Lav Varshney, Zhizhen Zhao: Nearly optimal algorithms for piecewise-stationary
cascading bandits. AAAI 2021 (arXiv:1909.05886). The abstract and the introduction were at hand, Algorithm 1 was not:
what is here follows the structure that they describe, CascadeUCB1 or CascadeKL-UCB with a generalised likelihood ratio
test on every item, global restarts and forced exploration, and takes the details of the test from GLR-klUCB with global
restarts (Besson, Kaufmann, Maillard, Seznec; the released code of Kaufmann), on which the paper builds.

Where that leaves a choice:

- The threshold is log(3·n^(3/2)/δ), which GLR-klUCB is run with; the one that the theorems need is larger.
- The released GLR-klUCB tests after every 10th step, at every 5th split. Here all items are tested after every 10th
  step, at a bounded set of splits: of the tests whose numbers are odd multiples of 2^j, the last 4, for j = 0, …, 13.
  So there is a split near every step of the past, at a distance of about an eighth of its age, as long as that is below
  600,000 steps. This bounds time and memory, and costs some delay, which ``tests/policies/test_changing_cascades.py``
  measures: less than a tenth on average.
- Forced exploration: ⌊L/p⌋ steps have one in which each item comes first, with others below it at random.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.checks import open_probability, positive, probability
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ranking import top_items
from jaxrank.core.types import Array, Key, Query
from jaxrank.policies.cascade import CascadeState, _Cascade, kl_ucb, ucb1

LEVELS, PER_LEVEL = 14, 4  # of splits


class GLRTState(NamedTuple):
    counts: CascadeState  # of all steps
    base: CascadeState  # the counts at the restart: what has been counted since is counts − base
    past: CascadeState  # int32[57, L], the counts after earlier tests, as ``_row`` says; the last row is not used
    restart: Array  # int32[], τ, the step of the restart
    restarts: Array  # int32[], their number

    @property
    def since(self) -> CascadeState:
        """T_e and the clicks since the restart."""
        return CascadeState(*(now - then for now, then in zip(self.counts, self.base, strict=True)))


@pytree
class _GLRTCascade(_Cascade):
    """What the two share: the test, the restarts and the forced exploration."""

    delta: Any = array(ndim=0, check=open_probability, default=None)
    exploration: Any = array(ndim=0, check=probability, default=None)
    every: int = static(default=10, minimum=1)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def init(self, key: Key, query: Query) -> GLRTState:  # type: ignore[override]
        counts = _Cascade.init(self, key, query)
        past = jax.tree.map(lambda x: jnp.zeros((LEVELS * PER_LEVEL + 1, *x.shape), x.dtype), counts)
        return GLRTState(counts, counts, past, restart=jnp.int32(0), restarts=jnp.int32(0))

    def rank(self, key: Key, state: GLRTState, query: Query) -> Array:  # type: ignore[override]
        L, since = query.num_items, query.step - state.restart
        words = jax.random.bits(key, (L,), jnp.uint32)
        turn = since % jnp.maximum(jnp.floor(L / self._exploration()), L + 1).astype(jnp.int32)
        explored = jnp.where(jnp.arange(L) == turn - 1, 1.0, 0.0)  # first; the others at random
        index = jnp.where((turn >= 1) & (turn <= L), explored, self._index(state.since, since))
        return top_items(index, query.list_size, words)

    def update(  # type: ignore[override]
        self, key: Key, state: GLRTState, query: Query, ranking: Array, clicks: Array
    ) -> GLRTState:
        counts = _Cascade.update(self, key, state.counts, query, ranking, clicks)
        row = _row(query.step, self.every)
        past = CascadeState(
            *(jax.lax.dynamic_update_index_in_dim(*pair, row, axis=0) for pair in zip(state.past, counts, strict=True))
        )
        state = state._replace(counts=counts, past=past)
        tested = query.step % self.every == 0
        changed = rarely(tested, _changed, jnp.bool_(False), state, self._log_inverse_delta())
        return state._replace(
            base=CascadeState(*(jnp.where(changed, now, then) for now, then in zip(counts, state.base, strict=True))),
            restart=jnp.where(changed, query.step, state.restart),
            restarts=state.restarts + changed,
        )

    def statistics(self, state: GLRTState) -> dict[str, Array]:  # type: ignore[override]
        """T_e and the clicks since the restart, its step, and the number of restarts, for probes and tests."""
        counts = _Cascade.statistics(self, state.since)
        return {**counts, "restart": state.restart, "restarts": state.restarts}

    def _log_inverse_delta(self) -> Array:
        return self._log_horizon() if self.delta is None else -jnp.log(self.delta)

    def _exploration(self) -> Array:
        """p, and at least 1e-6, which is never in any run."""
        if self.exploration is None:
            log_n = self._log_horizon()
            return jnp.minimum(jnp.sqrt(log_n * jnp.exp(-log_n)), 1)
        return jnp.maximum(self.exploration, 1e-6)

    def _log_horizon(self) -> Array:
        if self.horizon is None:
            name = type(self).__name__
            raise ValueError(f"{name}.horizon must be given outside of simulate, which fills it in; got None")
        return jnp.log(self.horizon.astype(float))


@pytree
class GLRTCascadeUCB(_GLRTCascade):
    """GLRT-CascadeUCB: CascadeUCB1 that starts anew when a likelihood ratio test detects a change of an item.

    U_t(e) = ŵ + sqrt(1.5·log(t − τ) / T_e), where all counts are those since the last restart, after step τ. A change
    is detected if, for some item and some split of its T_e = n observations into the first s and the others,

      s·KL(ŵ_{1:s} ‖ ŵ_{1:n}) + (n − s)·KL(ŵ_{s+1:n} ‖ ŵ_{1:n}) ≥ log(3·n^(3/2) / δ).

    A step takes O(L) operations and every 10th another O(56·L) for the test, at 56 splits; the state is 118 counts for
    each item.

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed.
      delta: δ, in (0, 1), the probability of a false alarm. By default 1/n for the horizon n.
      exploration: p, the fraction of steps that explore. By default sqrt(log n / n), the paper's rate without the
        number of changes, which a policy does not know. 0 for none.
      every: the number of steps between two tests.
      horizon: n, at least the number of steps of the run, which it is by default.

    Reference: Wang, Zhou, Li, Varshney, Zhao: Nearly optimal algorithms for piecewise-stationary cascading bandits.
    AAAI 2021.
    """

    def _index(self, state: CascadeState, step: Array) -> Array:
        return ucb1(state.clicks, state.observed, step, width=1.5)


@pytree
class GLRTCascadeKLUCB(_GLRTCascade):
    """GLRT-CascadeKL-UCB: CascadeKL-UCB that starts anew when a likelihood ratio test detects a change of an item.

    U_t(e) = max{q ≥ ŵ : T_e·KL(ŵ ‖ q) ≤ log(t − τ) + 3·log log(t − τ)}, and otherwise as GLRT-CascadeUCB, which see for
    the test and its cost.

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed.
      delta: δ, in (0, 1), the probability of a false alarm. By default 1/n for the horizon n.
      exploration: p, the fraction of steps that explore. By default sqrt(log n / n), the paper's rate without the
        number of changes, which a policy does not know. 0 for none.
      every: the number of steps between two tests.
      horizon: n, at least the number of steps of the run, which it is by default.

    Reference: Wang, Zhou, Li, Varshney, Zhao: Nearly optimal algorithms for piecewise-stationary cascading bandits.
    AAAI 2021.
    """

    def _index(self, state: CascadeState, step: Array) -> Array:
        return kl_ucb(state.clicks, state.observed, step)


def _row(step: Array, every: int) -> Array:
    """int32[]: where the counts after this step are kept.

    Those after test number q, the largest power of two in which is 2^j, are kept until the fourth next of this j. So
    the tests that are kept lie closer together the younger they are. The last row is for steps without a test.
    """
    q = step // every
    level = jnp.minimum(jax.lax.population_count((q & -q) - 1), LEVELS - 1)
    slot = jnp.where(level == LEVELS - 1, q >> level, q >> (level + 1)) % PER_LEVEL
    return jnp.where(step % every == 0, level * PER_LEVEL + slot, LEVELS * PER_LEVEL).astype(jnp.int32)


def _changed(_: Array, state: GLRTState, log_inverse_delta: Array) -> Array:
    """bool[]: does the test of an item at a split detect a change?"""
    (n, c), base, splits = state.since, state.base, LEVELS * PER_LEVEL
    n1 = state.past.observed[:splits] - base.observed[None]
    c1 = state.past.clicks[:splits] - base.clicks[None]
    n2, c2 = n[None] - n1, c[None] - c1
    ratio = _log_likelihood(c1, n1) + _log_likelihood(c2, n2) - _log_likelihood(c, n)[None]
    split = (n1 > 0) & (n2 > 0)  # n1 ≤ 0: before the restart
    return jnp.any(split & (ratio >= _threshold(n, log_inverse_delta)[None]))


def _log_likelihood(c: Array, n: Array) -> Array:
    """max over p of log P(c clicks in n observations | p); 0 without observations."""
    c, n = jnp.maximum(c, 0).astype(float), jnp.maximum(n, 1).astype(float)
    clicked = c * jnp.log(jnp.maximum(c, 1) / n)
    return clicked + (n - c) * jnp.log(jnp.maximum(n - c, 1) / n)


def _threshold(n: Array, log_inverse_delta: Array) -> Array:
    """log(3·n^(3/2) / δ)."""
    return jnp.log(3.0) + 1.5 * jnp.log(jnp.maximum(n, 1).astype(float)) + log_inverse_delta
