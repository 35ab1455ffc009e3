"""RecurRank: ranking with features by recursive elimination (Li, Lattimore, Szepesvári, ICML 2019, Algorithm 1).

"Online learning to rank with features", arXiv:1810.02567. Written from the abstract, the introduction and the released
code (shuaili8/OnlineLearningToRank), read for what it does, and from what is known of Algorithm 1: the paper's
pseudo-code was not to be had. Where these leave a choice, or differ:

- As described, a part is split wherever two consecutive estimates are at least 2·Δ_ℓ apart, Δ_ℓ = 2^−ℓ. The released
  code compares them with the opposite sign, and so never splits a part; it only eliminates items.
- An instance of phase ℓ shows item a at its first position T(a) = ⌈d·π(a)/(2·Δ_ℓ²)·log(|A|/δ_ℓ)⌉ times, one item after
  the other, where π is a G-optimal design on its items A and δ_ℓ = δ/(K·ℓ·(ℓ + 1)). The released code draws items at
  random from a spanner of A, 4^ℓ·d·log(2·|A|·K·ℓ·(ℓ + 1)·sqrt(n)) times in all.
- The design is found by 64 steps of Frank and Wolfe's method (Fedorov 1972), from d items chosen by pivoting; weights
  below 1/(10·d²) are dropped. A ridge of 1e-4 takes the place of the pseudo-inverse.
- A part of a single item is never estimated again.
- Without features, items have the unit vectors: the orthogonal case of the paper, whose design is uniform.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.checks import open_probability, positive
from jaxrank.core.numerics import solve_positive
from jaxrank.core.pytrees import array, pytree
from jaxrank.core.ranking import by_item, lookup, top_items
from jaxrank.core.types import Array, Key, Query

_FRANK_WOLFE = 64  # steps
_RIDGE = 1e-4


class RecurRankState(NamedTuple):
    first: Array  # int32[L], the first position of the item's part; K for an eliminated item
    phase: Array  # int32[L], ℓ of the part
    order: Array  # int32[L], the place of the item in its part's order
    left: Array  # int32[L], how often the item must still be shown at the first position in this phase
    shown: Array  # int32[L], how often it was in this phase
    clicks: Array  # int32[L], how often it was clicked there


@pytree
class RecurRank:
    """RecurRank: parts of the list explore their items at their first positions, split, and refine; with features.

    The items' attraction is a linear function of their features, θᵀa, under any click model in which a list is best in
    the order of attraction. An instance has some items A and some positions. In phase ℓ it shows item a of a G-optimal
    design T(a) times at its first position, with the others in order below it, estimates

      θ̂ = (Σ_a T(a)·a·aᵀ)⁻¹·Σ_a (clicks on a)·a,

    orders its items by θ̂ᵀa, and splits them wherever two neighbours are at least 2·2^−ℓ apart. Each part goes on alone
    in phase ℓ + 1; items whose part begins below the last position are eliminated.

    A step takes O(K·L) operations, the end of a phase O(L² + K·(64·L·d² + d³)), or O(L²) without features; the state
    is 6 integers for each item.

    Args:
      delta: δ, in (0, 1). By default 1/sqrt(n) for the horizon n, as in the released code.
      horizon: n, at least the number of steps of the run, which it is by default.

    Reference: Li, Lattimore, Szepesvári: Online learning to rank with features. ICML 2019.
    """

    per_item: ClassVar[bool] = True

    delta: Any = array(ndim=0, check=open_probability, default=None)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def init(self, key: Key, query: Query) -> RecurRankState:
        L = query.num_items
        zeros = jnp.zeros(L, jnp.int32)
        words = jax.random.bits(key, (L,), jnp.uint32)
        order = jnp.argsort(jnp.argsort(words)).astype(jnp.int32)
        state = RecurRankState(zeros, zeros + 1, order, zeros, zeros, zeros)
        return _design(query.list_size, state, query.features, self._log_inverse_delta())

    def rank(self, key: Key, state: RecurRankState, query: Query) -> Array:
        L = query.num_items
        turn = _first_of_part(state, state.left > 0, query.list_size)
        place = jnp.where(turn, 0, state.order + 1)
        return top_items(-(state.first * (L + 1) + place), query.list_size)

    def update(self, key: Key, state: RecurRankState, query: Query, ranking: Array, clicks: Array) -> RecurRankState:
        K, L = query.list_size, query.num_items
        position = by_item(ranking, jnp.arange(1, K + 1, dtype=jnp.int32), L) - 1  # of each item; −1: not shown
        learns = (position >= 0) & (state.first == position) & (state.left > 0)
        state = state._replace(
            left=state.left - learns,
            shown=state.shown + learns,
            clicks=state.clicks + (learns & by_item(ranking, clicks, L)),
        )
        ended = jnp.any(_ended(state, K))
        return rarely(ended, partial(_next_phase, K), state, query.features, self._log_inverse_delta())

    def statistics(self, state: RecurRankState) -> dict[str, Array]:
        """The parts, their phases and what they have seen, for probes and tests."""
        return state._asdict()

    def _log_inverse_delta(self) -> Array:
        if self.delta is not None:
            return -jnp.log(self.delta)
        if self.horizon is None:
            raise ValueError("RecurRank.horizon must be given outside of simulate, which fills it in; got None")
        return jnp.log(self.horizon.astype(float)) / 2


def _members(state: RecurRankState, list_size: int) -> Array:
    """bool[K, L]: the items of the part that begins at each position."""
    return state.first[None, :] == jnp.arange(list_size)[:, None]


def _first_of_part(state: RecurRankState, eligible: Array, list_size: int) -> Array:
    """bool[L]: the first eligible item of each part, in its order."""
    L = state.first.shape[0]
    order = jnp.where(eligible, state.order, L)
    lowest = jnp.min(jnp.where(_members(state, list_size), order[None, :], L), axis=1)  # of the part at each position
    return eligible & (state.first < list_size) & (order == lookup(lowest, state.first))


def _ended(state: RecurRankState, list_size: int) -> Array:
    """bool[K]: does a part of several items begin here whose phase has ended?"""
    members = _members(state, list_size)
    size, left = jnp.sum(members, axis=1), jnp.sum(jnp.where(members, state.left[None, :], 0), axis=1)
    return (size > 1) & (left == 0)


def _next_phase(
    list_size: int, state: RecurRankState, features: Array | None, log_inverse_delta: Array
) -> RecurRankState:
    """Estimates, orders, splits and eliminates in the parts whose phase has ended, and designs the next phases."""
    L, K = state.first.shape[0], list_size
    starts = jnp.any(_members(state, K), axis=1)  # [K]: does a part begin here?
    ends = jnp.flip(jax.lax.cummin(jnp.flip(jnp.where(starts, jnp.arange(K), K))))  # the next start, from here on
    end_of = jnp.append(ends[1:], K).astype(jnp.int32)  # one past the last position of the part that begins here
    mine = (state.first < K) & lookup(_ended(state, K), state.first)  # the items that are regrouped
    value = _estimates(state, features, K)
    together = state.first[:, None] == state.first[None, :]  # [i, j]: in one part
    above = (value[None, :] > value[:, None]) | (
        (value[None, :] == value[:, None]) & (jnp.arange(L)[None, :] < jnp.arange(L)[:, None])
    )
    place = jnp.sum(together & above, axis=1, dtype=jnp.int32)  # of each item in its part's new order
    before = together & (place[None, :] == place[:, None] - 1)  # the item just above
    gap = 2.0 ** (1 - state.phase.astype(value.dtype))  # 2·Δ_ℓ
    cut = jnp.any(before & (value[None, :] - value[:, None] >= gap[:, None]), axis=1)  # a new part begins with it
    cut_above = together & cut[None, :] & (place[None, :] <= place[:, None])
    begins = jnp.max(jnp.where(cut_above, place[None, :], 0), axis=1)  # the place at which its new part begins
    first = state.first + begins
    state = state._replace(
        first=jnp.where(mine, jnp.where(first < lookup(end_of, state.first), first, K), state.first),
        phase=state.phase + mine,
        order=jnp.where(mine, place - begins, state.order),
        shown=jnp.where(mine, 0, state.shown),
        clicks=jnp.where(mine, 0, state.clicks),
    )
    return _design(K, state, features, log_inverse_delta)


def _estimates(state: RecurRankState, features: Array | None, list_size: int) -> Array:
    """float[L]: θ̂ᵀa of each item, by what its part has seen."""
    if features is None:  # of unit vectors, each item by itself
        return state.clicks / (state.shown + _RIDGE)

    def estimate(k: Array, found: Array) -> Array:
        mine = state.first == k
        shown = jnp.where(mine, state.shown, 0).astype(features.dtype)
        clicks = jnp.where(mine, state.clicks, 0).astype(features.dtype)
        V = (features * shown[:, None]).T @ features + _RIDGE * jnp.eye(features.shape[1])
        return jnp.where(mine, features @ solve_positive(V, (features.T @ clicks)[:, None])[:, 0], found)

    return jax.lax.fori_loop(0, list_size, estimate, jnp.zeros(state.first.shape, features.dtype))


def _design(list_size: int, state: RecurRankState, features: Array | None, log_inverse_delta: Array) -> RecurRankState:
    """T(a) for the parts of several items that have nothing left to show."""
    K, L = list_size, state.first.shape[0]
    mine = (state.first < K) & lookup(_ended(state, K), state.first)
    size = jnp.sum(state.first[:, None] == state.first[None, :], axis=1).astype(float)
    if features is None:  # the design on unit vectors is uniform
        d, pi = L, 1 / size
    else:
        d, pi = features.shape[1], _designs(state, mine, features, K)
    phase = state.phase.astype(float)
    log_delta = log_inverse_delta + jnp.log(K * phase * (phase + 1))  # log 1/δ_ℓ
    times = d * pi * 4.0**phase / 2 * (jnp.log(size) + log_delta)
    return state._replace(left=jnp.where(mine, jnp.ceil(times - 1e-3).astype(jnp.int32), state.left))


def _designs(state: RecurRankState, new: Array, features: Array, list_size: int) -> Array:
    """float[L]: π of each item, by the design on its part."""

    def design(k: Array, found: Array) -> Array:
        mine = new & (state.first == k)
        return jnp.where(mine, g_optimal_design(features, mine), found)

    return jax.lax.fori_loop(0, list_size, design, jnp.zeros(state.first.shape, features.dtype))


def g_optimal_design(features: Array, allowed: Array) -> Array:
    """float[L]: weights π on the ``allowed`` items, of sum 1, that make max aᵀ(Σ π·a·aᵀ)⁻¹a nearly as small as can be.

    Its optimum is d (Kiefer and Wolfowitz 1960). 0 everywhere if no item is allowed.
    """
    L, d = features.shape
    x = jnp.where(allowed[:, None], features, 0)

    def pivot(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Chooses the item with the longest part that the chosen ones do not span."""
        rest, weight = carry
        length = jnp.sum(rest**2, axis=1)
        longest = jnp.argmax(length)
        direction = rest[longest] / jnp.sqrt(jnp.maximum(length[longest], 1e-12))
        found = length[longest] > 1e-6
        weight = jnp.where((jnp.arange(L) == longest) & found, 1, weight)
        return rest - jnp.outer(rest @ direction, direction), weight

    _, weight = jax.lax.fori_loop(0, d, pivot, (x, jnp.zeros(L, features.dtype)))
    rank = jnp.maximum(jnp.sum(weight), 1)
    weight = weight / rank
    inverse = solve_positive((x * weight[:, None]).T @ x + 1e-6 * jnp.eye(d), jnp.eye(d))

    def improve(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Moves weight to the item whose attraction is known least."""
        weight, inverse = carry
        product = x @ inverse
        widths = jnp.sum(product * x, axis=1)
        worst = jnp.argmax(widths)
        g = widths[worst]
        step = jnp.where(g > rank * (1 + 1e-3), (g / rank - 1) / jnp.maximum(g - 1, 1e-6), 0)
        weight = (1 - step) * weight + step * (jnp.arange(L) == worst)
        # (1 − step)·V + step·a·aᵀ, inverted by Sherman and Morrison's formula
        scaled = inverse / (1 - step)
        a = scaled @ x[worst]
        return weight, scaled - step * jnp.outer(a, a) / (1 + step * (x[worst] @ a))

    weight, _ = jax.lax.fori_loop(0, _FRANK_WOLFE, improve, (weight, inverse))
    weight = jnp.where(weight >= 1 / (10.0 * d**2), weight, 0)
    return weight / jnp.maximum(jnp.sum(weight), 1e-6)
