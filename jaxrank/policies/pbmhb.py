"""PB-MHB: Thompson sampling in the position-based model with unknown examination (Gauthier, Gaudel, Fromont, IDA 2021).

"Bandit algorithm for both unknown best position and best item display on web pages". Written from the abstract and the
authors' released code (gaudel/ranking_bandits), read for what it does: the posterior of all attractions θ and
examinations κ is sampled by the Metropolis–Hastings algorithm, one parameter after the other, from the particle of the
step before. As in the code:

- θ_i and κ_2, …, κ_K in [0, 1] are uniform a priori, and κ_1 = 1, which sets the scale: the first position must be the
  most examined one. Every pair of an item and a position has half a click and half a skip before the first step.
- A proposal is a Gaussian step of width c/sqrt(t), truncated to [0, 1], with c = 1,000: until step 1,000,000 it is
  nearly uniform on [0, 1].
- One sweep over all parameters for each list, whose m-th best item goes to the m-th most examined position of the
  sample.

Where this file differs: given κ, the θ_i are independent of each other, and so are the κ_k given θ. So all θ_i are
proposed at once, and then all κ_k, which is the same as one after the other. Truncated Gaussians are drawn by their
inverse distribution function instead of by rejection: a step always takes the same time.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, erfinv

from jaxrank.core.checks import positive
from jaxrank.core.numerics import ordered_sum
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ranking import lookup, top_items
from jaxrank.core.types import Array, Key, Query

_EDGE = 1e-6  # θ and κ stay this far from 0 and 1, where the posterior is 0


class PBMHBState(NamedTuple):
    shown: Array  # int32[K, L], how often item i was shown at position k
    clicks: Array  # int32[K, L], how often it was clicked there
    theta: Array  # float[L], the particle: attractions
    kappa: Array  # float[K], the particle: examinations


@pytree
class PBMHB:
    """PB-MHB: Thompson sampling of attraction and examination by Metropolis–Hastings, for unknown χ.

    The first position must be the most examined one; the others may have any order.

    A list is drawn from the posterior p(θ, κ) ∝ Π_{i,k} (θ_i·κ_k)^(S_{i,k} + ½)·(1 − θ_i·κ_k)^(F_{i,k} + ½), where S
    and F count the clicks and skips of item i at position k: the particle (θ, κ) makes a fixed number of sweeps in
    every step, and so follows the posterior as that changes.

    A step takes O(sweeps·K·L) operations, whatever the step; the state is 2·K·L integers and K + L floats.

    Args:
      width: c; the proposals of step t have the standard deviation c/sqrt(t).
      sweeps: the number of Metropolis–Hastings sweeps over all parameters in a step.

    Reference: Gauthier, Gaudel, Fromont: Bandit algorithm for both unknown best position and best item display on web
    pages. IDA 2021.
    """

    per_item: ClassVar[bool] = True

    width: Any = array(ndim=0, check=positive, default=1_000.0)
    sweeps: int = static(default=1, minimum=1)

    def init(self, key: Key, query: Query) -> PBMHBState:
        K, L = query.list_size, query.num_items
        zeros, uniforms = (
            jnp.zeros((K, L), jnp.int32),
            jax.random.uniform(key, (L + K,), minval=_EDGE, maxval=1 - _EDGE),
        )
        return PBMHBState(zeros, zeros, theta=uniforms[:L], kappa=uniforms[L:].at[0].set(1))

    def rank(self, key: Key, state: PBMHBState, query: Query) -> Array:
        K = query.list_size
        items, positions = top_items(state.theta, K), top_items(state.kappa, K)
        place = jnp.sum(jnp.where(positions[:, None] == jnp.arange(K)[None, :], jnp.arange(K)[:, None], 0), axis=0)
        return lookup(items, place)

    def update(self, key: Key, state: PBMHBState, query: Query, ranking: Array, clicks: Array) -> PBMHBState:
        shown = ranking[:, None] == jnp.arange(query.num_items)[None, :]
        state = state._replace(shown=state.shown + shown, clicks=state.clicks + (shown & clicks[:, None]))
        sigma = self.width / jnp.sqrt((query.step + 1).astype(float))  # of the next step's list
        uniforms = jax.random.uniform(key, (self.sweeps, 2, query.num_items + query.list_size))
        for number in range(self.sweeps):
            state = sweep(state, sigma, uniforms[number])
        return state

    def statistics(self, state: PBMHBState) -> dict[str, Array]:
        """The counts by position and item, and the particle, for probes and tests."""
        return state._asdict()


def sweep(state: PBMHBState, sigma: Array, uniforms: Array) -> PBMHBState:
    """One Metropolis–Hastings sweep; ``uniforms`` [2, L + K] are for the proposals and for their acceptance."""
    clicks = state.clicks + 0.5
    skips = (state.shown - state.clicks) + 0.5
    L = state.theta.shape[0]
    theta = _accepted(state.theta, sigma, uniforms[:, :L], clicks, skips, state.kappa)
    kappa = _accepted(state.kappa, sigma, uniforms[:, L:], clicks.T, skips.T, theta)
    return state._replace(theta=theta, kappa=kappa.at[0].set(1))


def _accepted(values: Array, sigma: Array, uniforms: Array, clicks: Array, skips: Array, others: Array) -> Array:
    """float[n]: each of the values [n] or a proposal for it; clicks and skips [m, n], the other factors [m]."""
    proposed = _truncated_normal(values, sigma, uniforms[0])
    move = proposed - values
    # log of the posterior ratio, by differences, which keep their digits when there are many clicks
    clicked = ordered_sum(clicks) * jnp.log1p(move / values)
    skipped = ordered_sum(skips * jnp.log1p(-others[:, None] * move[None, :] / (1 - others[:, None] * values[None, :])))
    correction = jnp.log(_mass(values, sigma)) - jnp.log(_mass(proposed, sigma))
    accept = jnp.log(uniforms[1]) < clicked + skipped + correction
    return jnp.where(accept, proposed, values)


def _truncated_normal(mean: Array, sigma: Array, uniform: Array) -> Array:
    """A Gaussian around ``mean``, truncated to [0, 1], by its inverse distribution function."""
    scale = sigma * jnp.sqrt(2.0)
    low, high = erf(-mean / scale), erf((1 - mean) / scale)
    inverse = erfinv(jnp.clip(low + uniform * (high - low), -1 + 1e-7, 1 - 1e-7))
    return jnp.clip(mean + scale * inverse, _EDGE, 1 - _EDGE)


def _mass(mean: Array, sigma: Array) -> Array:
    """Twice the probability of [0, 1] under a Gaussian around ``mean``."""
    scale = sigma * jnp.sqrt(2.0)
    return erf((1 - mean) / scale) + erf(mean / scale)
