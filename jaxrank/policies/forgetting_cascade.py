"""CascadeDUCB and CascadeSWUCB: cascading bandits that forget (Li and de Rijke, IJCAI 2019, arXiv:1905.12370).

Both are CascadeUCB1 with statistics of the recent past: old observations count less and less, or not at all.

The abstract and the introduction of the paper were at hand, its algorithms were not. What is here is the paper's idea,
CascadeUCB1's list and feedback with the indices of D-UCB and SW-UCB (Garivier and Moulines, ALT 2011), whose constants
it keeps: ε = 1/2, γ = 1 − 1/(4·sqrt(n)), τ = 2·sqrt(n·log n). Where that leaves a choice:

- The discounted and the windowed number of steps count all steps, whether an item was observed or not.
- Items without an observation (in the window) have an infinite index. Ties are broken at random.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import non_negative, open_probability, positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.policies.cascade import CascadeState, _Cascade


class DiscountedState(NamedTuple):
    observed: Array  # float[L], N_t(γ, e) = Σ_s γ^(t−1−s)·1{e observed at s}
    clicks: Array  # float[L], the same sum over the steps with a click on e


@pytree
class CascadeDUCB(_Cascade):
    """CascadeDUCB: cascading bandits with discounted upper confidence bounds, for attractions that change.

    An observation counts γ^d after d steps, so that the policy follows changes within about 1/(1 − γ) steps:

      U_t(e) = X̄_t(γ, e) + 2·sqrt(ε·log N_t(γ) / N_t(γ, e)),   N_t(γ) = (1 − γ^t) / (1 − γ),

    where N_t(γ, e) is the discounted number of observations of e, and X̄_t(γ, e) the discounted fraction of clicks in
    them. A step takes O(L) operations; the state is two numbers for each item.

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed.
      discount: γ, in (0, 1). By default 1 − 1/(4·sqrt(n)) for the horizon n.
      epsilon: ε, the width of the bounds.
      horizon: n, at least the number of steps of the run, which it is by default.

    Reference: Li, de Rijke: Cascading non-stationary bandits: online learning to rank in the non-stationary cascade
    model. IJCAI 2019.
    """

    discount: Any = array(ndim=0, check=open_probability, default=None)
    epsilon: Any = array(ndim=0, check=non_negative, default=0.5)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def init(self, key: Key, query: Query) -> DiscountedState:  # type: ignore[override]
        zeros = jnp.zeros(query.num_items)
        return DiscountedState(zeros, zeros)

    def update(  # type: ignore[override]
        self, key: Key, state: DiscountedState, query: Query, ranking: Array, clicks: Array
    ) -> DiscountedState:
        gamma, seen = 1 - self._one_minus_gamma(), self._seen(query, ranking, clicks)
        return DiscountedState(gamma * state.observed + (seen > 0), gamma * state.clicks + (seen == 2))

    def _index(self, state: DiscountedState, step: Array) -> Array:  # type: ignore[override]
        one_minus_gamma, t = self._one_minus_gamma(), step.astype(float)
        steps = -jnp.expm1(t * jnp.log1p(-one_minus_gamma)) / one_minus_gamma  # N_t(γ)
        return _ucb(state.clicks, state.observed, 4 * self.epsilon * jnp.log(jnp.maximum(steps, 1)))

    def _one_minus_gamma(self) -> Array:
        if self.discount is not None:
            return 1 - self.discount
        if self.horizon is None:
            raise ValueError("CascadeDUCB.horizon must be given outside of simulate, which fills it in; got None")
        return 0.25 / jnp.sqrt(self.horizon.astype(float))


class WindowState(NamedTuple):
    counts: CascadeState  # of the steps in the window
    window: Array  # int8[τ, L], of each of the last τ steps, in row t mod τ: 0 not observed, 1 observed, 2 clicked
    oldest: Array  # int8[L], the row of the step that leaves the window next


@pytree
class CascadeSWUCB(_Cascade):
    """CascadeSWUCB: cascading bandits with the upper confidence bounds of a sliding window.

    Only the observations of the last τ steps count, so that a change is forgotten after τ steps:

      U_t(e) = X̄_t(τ, e) + sqrt(ε·log min(t, τ) / N_t(τ, e)).

    The window is exact: a ring buffer has the observations of its τ steps, one byte for each item. A step takes O(L)
    operations, the state τ·L bytes: 21 kB a lane for L = 10 and n = 100,000, 175 kB for n = 5,000,000.

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed.
      window: τ. By default 2·sqrt(n·log n) for the horizon n, rounded. A shape: another τ is compiled anew.
      epsilon: ε, the width of the bounds.
      horizon: n, at least the number of steps of the run, which it is by default. It has no effect if τ is given.

    Reference: Li, de Rijke: Cascading non-stationary bandits: online learning to rank in the non-stationary cascade
    model. IJCAI 2019.
    """

    window: int = static(default=None, minimum=1)
    epsilon: Any = array(ndim=0, check=non_negative, default=0.5)
    horizon: int = static(default=None, minimum=1)

    def init(self, key: Key, query: Query) -> WindowState:  # type: ignore[override]
        counts = _Cascade.init(self, key, query)
        window = jnp.zeros((self._length(), query.num_items), jnp.int8)
        return WindowState(counts, window, oldest=window[0])

    def update(  # type: ignore[override]
        self, key: Key, state: WindowState, query: Query, ranking: Array, clicks: Array
    ) -> WindowState:
        new, old = self._seen(query, ranking, clicks), state.oldest
        counts = CascadeState(
            observed=state.counts.observed + (new > 0) - (old > 0),
            clicks=state.counts.clicks + (new == 2) - (old == 2),
        )
        # The row that leaves next is read from the new window: what is read before it is written, XLA copies whole.
        row, length = query.step % self._length(), self._length()
        window = jax.lax.dynamic_update_index_in_dim(state.window, new.astype(jnp.int8), row, axis=0)
        oldest = jax.lax.dynamic_index_in_dim(window, (query.step + 1) % length, keepdims=False)
        return WindowState(counts, window, oldest)

    def _index(self, state: WindowState, step: Array) -> Array:  # type: ignore[override]
        steps = jnp.minimum(step, self._length()).astype(float)
        return _ucb(state.counts.clicks, state.counts.observed, self.epsilon * jnp.log(steps))

    def _length(self) -> int:
        """τ."""
        if self.window is not None:
            return self.window
        if self.horizon is None:
            raise ValueError("CascadeSWUCB.horizon must be given outside of simulate, which fills it in; got None")
        return max(1, round(2 * math.sqrt(self.horizon * math.log(self.horizon))))

    def statistics(self, state: WindowState) -> dict[str, Array]:  # type: ignore[override]
        return _Cascade.statistics(self, state.counts)


def _ucb(clicks: Array, observed: Array, level: Array) -> Array:
    """clicks / observed + sqrt(level / observed); infinite without observations."""
    some = jnp.where(observed > 0, observed, 1)
    return jnp.where(observed > 0, clicks / some + jnp.sqrt(level / some), jnp.inf)
