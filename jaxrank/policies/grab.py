"""GRAB: unimodal ranking in a graph that is learnt on the way (Gauthier, Gaudel, Fromont, Lompo, ICML 2021).

"Parametric graph for unimodal ranking bandit", PMLR 139. Written from the abstract and the authors' released code
(gaudel/ranking_bandits), read for what it does. Where the two, or what the code needs, leave a choice:

- The bounds use log n of the horizon n, as the code does.
- The code counts, for every list that has ever been the leader, how many steps it has been so: any number of lists. It
  uses this only to show the leader itself in one of γ steps. Here the steps are counted since the leader last became
  it, in a single number. γ is L − 1, the number of neighbours of a list, and at least 2.
- Of equally promising lists the leader comes first, then exchanges of positions, from the most clicked one down, then
  items that are not shown, in item order. The first leader is random; where nothing is known, assignments are in item
  order.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import positive
from jaxrank.core.numerics import kl_upper
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ranking import complete, lookup, top_items
from jaxrank.core.types import Array, Key, Query


class GRABState(NamedTuple):
    shown: Array  # int32[K, L], how often item i was shown at position k
    clicks: Array  # int32[K, L], how often it was clicked there
    bounds: Array  # float[K, L], b; it changes only where a list was shown
    leader: Array  # int32[L], the leader's K items, then the others
    led: Array  # int32[], the number of steps since it became the leader


@pytree
class GRAB:
    """GRAB: shows the leader, or a neighbour of it that may be better; for unknown χ, in any order of the positions.

    ρ̂_{i,k} is the fraction of clicks on item i at position k, and b_{i,k} its upper confidence bound by KL divergence
    at level log n. The leader is the list of the highest Σ_k ρ̂. Its neighbours exchange the items of two positions that
    follow each other in the order of the leader's ρ̂, or put another item at the last of these. In one of γ steps the
    leader is shown, otherwise the list of the highest Σ_k b among the leader and its neighbours.

    A step solves an assignment of K positions to L items, by K shortest augmenting paths, O(K²·L) at most, and computes
    K bounds; the state is 2·K·L + L + 1 integers and K·L floats.

    Args:
      period: γ. By default L − 1, and at least 2.
      horizon: n, at least the number of steps of the run, which it is by default.

    Reference: Gauthier, Gaudel, Fromont, Lompo: Parametric graph for unimodal ranking bandit. ICML 2021.
    """

    per_item: ClassVar[bool] = True

    period: int = static(default=None, minimum=1)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def init(self, key: Key, query: Query) -> GRABState:
        L, zeros = query.num_items, jnp.zeros((query.list_size, query.num_items), jnp.int32)
        words = jax.random.bits(key, (L,), jnp.uint32)
        return GRABState(zeros, zeros, zeros + 1.0, leader=top_items(words, L), led=jnp.int32(0))

    def rank(self, key: Key, state: GRABState, query: Query) -> Array:
        K, L = state.shown.shape
        leader, bound = state.leader, state.bounds
        positions = top_items(_at(_means(state), leader[:K]), K)  # π: the leader's positions, the most clicked first
        own = _at(bound, leader[:K])  # b of the leader, by position
        best, gain = jnp.arange(K, dtype=jnp.int32), jnp.zeros((), bound.dtype)  # the list, as places of the leader
        if self._period(L) > 1:
            for a in range(K - 1):
                k, m = positions[a], positions[a + 1]
                exchanged = _cell(bound, m, leader[k]) + _cell(bound, k, leader[m])
                value = exchanged - lookup(own, k) - lookup(own, m)
                places = jnp.arange(K, dtype=jnp.int32)
                places = jnp.where(places == k, m, jnp.where(places == m, k, places))
                best, gain = _better(best, gain, places, value)
            last = positions[K - 1]
            for place in range(K, L):
                value = _cell(bound, last, leader[place]) - lookup(own, last)
                places = jnp.where(jnp.arange(K) == last, place, jnp.arange(K)).astype(jnp.int32)
                best, gain = _better(best, gain, places, value)
        explore = state.led % self._period(L) > 0
        return lookup(leader, jnp.where(explore, best, jnp.arange(K, dtype=jnp.int32)))

    def update(self, key: Key, state: GRABState, query: Query, ranking: Array, clicks: Array) -> GRABState:
        shown = ranking[:, None] == jnp.arange(query.num_items)[None, :]
        state = state._replace(shown=state.shown + shown, clicks=state.clicks + (shown & clicks[:, None]))
        level = self._log_horizon() / _at(state.shown, ranking)
        bounds = jnp.where(shown, kl_upper(_at(_means(state), ranking), level)[:, None], state.bounds)
        state = state._replace(bounds=bounds)
        leader = complete(best_assignment(_means(state)), query.num_items)
        same = jnp.all(leader[: query.list_size] == state.leader[: query.list_size])
        return state._replace(leader=leader, led=jnp.where(same, state.led + 1, 0))

    def statistics(self, state: GRABState) -> dict[str, Array]:
        """The counts by position and item, the leader and its age, for probes and tests."""
        return state._asdict()

    def _period(self, num_items: int) -> int:
        return max(num_items - 1, 2) if self.period is None else self.period

    def _log_horizon(self) -> Array:
        if self.horizon is None:
            raise ValueError("GRAB.horizon must be given outside of simulate, which fills it in; got None")
        return jnp.log(self.horizon.astype(float))


def _better(best: Array, gain: Array, places: Array, value: Array) -> tuple[Array, Array]:
    """The list of the higher value; the first one if they differ by less than the rounding of float32."""
    better = value > gain + 1e-6
    return jnp.where(better, places, best), jnp.where(better, value, gain)


def best_assignment(value: Array) -> Array:
    """int32[K]: an item for each position, all different, with the highest sum of ``value`` [K, L], K ≤ L.

    The Hungarian method with shortest augmenting paths (Kuhn 1955, Jonker and Volgenant 1987): positions are assigned
    one after the other. Each looks for the cheapest path to a free item on which assigned positions change theirs.
    """
    K, L = value.shape
    cost, far = -value, jnp.finfo(value.dtype).max
    items = jnp.arange(L, dtype=jnp.int32)

    def assign(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        def not_free(search: Any) -> Array:
            return search[0] >= 0

        def extend(search: Any) -> Any:
            """Adds the item that is cheapest to reach to the tree, and lowers its duals by the price."""
            position, item, u, v, price, before, reached, member = search
            reached |= items == item
            here = jnp.arange(K) == position
            member |= here
            row = jnp.sum(jnp.where(here[:, None], cost, 0), axis=0)
            reduced = row - jnp.sum(jnp.where(here, u, 0)) - v
            cheaper = ~reached & (reduced < price)
            price, before = jnp.where(cheaper, reduced, price), jnp.where(cheaper, item, before)
            open_price = jnp.where(reached, far, price)
            step = jnp.min(open_price)
            nearest = jnp.argmin(open_price).astype(jnp.int32)
            u = jnp.where(member, u + step, u)
            v = jnp.where(reached, v - step, v)
            price = jnp.where(reached, price, price - step)
            return lookup(holder, nearest), nearest, u, v, price, before, reached, member

        u, v, holder = carry
        search = (
            number.astype(jnp.int32),
            jnp.int32(-1),
            u,
            v,
            jnp.full(L, far, value.dtype),
            jnp.full(L, -1, jnp.int32),
            jnp.zeros(L, bool),
            jnp.zeros(K, bool),
        )
        _, item, u, v, _, before, _, _ = jax.lax.while_loop(not_free, extend, search)

        def more(path: tuple[Array, Array]) -> Array:
            return path[0] >= 0

        def shift(path: tuple[Array, Array]) -> tuple[Array, Array]:
            """Hands the item to the position that held the one before it on the path."""
            item, holder = path
            previous = lookup(before, item)
            owner = jnp.where(previous < 0, number.astype(jnp.int32), lookup(holder, previous))
            return previous, jnp.where(items == item, owner, holder)

        _, holder = jax.lax.while_loop(more, shift, (item, holder))
        return u, v, holder

    start = (jnp.zeros(K, value.dtype), jnp.zeros(L, value.dtype), jnp.full(L, -1, jnp.int32))
    _, _, holder = jax.lax.fori_loop(0, K, assign, start)  # the position that holds each item; −1 for none
    return jnp.sum(jnp.where(holder[None, :] == jnp.arange(K)[:, None], items[None, :], 0), axis=1, dtype=jnp.int32)


def _means(state: GRABState) -> Array:
    """float[K, L]: ρ̂, which is 0 for an item that was never shown at a position."""
    return state.clicks / jnp.maximum(state.shown, 1)


def _at(table: Array, ranking: Array) -> Array:
    """[K]: the entries of a table [K, L] that belong to the items of a list."""
    mine = ranking[:, None] == jnp.arange(table.shape[1])[None, :]
    return jnp.sum(jnp.where(mine, table, 0), axis=1)


def _cell(table: Array, position: Array, item: Array) -> Array:
    """float[]: the entry of a table [K, L] at a position and an item."""
    mine = (jnp.arange(table.shape[0]) == position)[:, None] & (jnp.arange(table.shape[1]) == item)[None, :]
    return jnp.sum(jnp.where(mine, table, 0))
