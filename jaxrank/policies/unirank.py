"""UniRank: unimodal ranking of ordered partitions (Gauthier, Gaudel, Fromont, ICML 2022, PMLR 162).

"UniRank: unimodal bandit algorithms for online ranking". Written from the abstract and from the development code of its
authors' circle (a public copy of bandits-to-rank), which has many variants; the paper's text was not to be had. What is
taken: statistics of pairs in the same part, the leader partition, merges of neighbouring parts from the top down, at
most one item that is not shown. Where that leaves a choice:

- A part of the leader is the smallest set of the remaining items each of which has a higher s than every other
  remaining item. The development code takes the items that no other beats, and stops at a cycle.
- The level of the bounds, log t + 3·log log t, has the step t in the place of the number of steps in which the
  partition has been the leader: that would be a count for each of any number of partitions. The bounds are wider so.
- All pairs of two neighbouring parts are looked at for a merge.
- The item that joins the last displayed part is a random one of the promising items that are not displayed. The
  development code takes the one of the highest bound, for which all bounds have to be computed in every step.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import entr

from jaxrank.core.pytrees import pytree
from jaxrank.core.ranking import by_item, lookup, shuffle, top_items
from jaxrank.core.types import Array, Key, Query


class UniRankState(NamedTuple):
    wins: Array  # int32[L, L], steps in which i was clicked and j was not, while both were in one displayed part
    part: Array  # int32[L], the part of each item in the next step's partition; K for those that are not displayed


@pytree
class UniRank:
    """UniRank: ranks items in parts that it cannot tell apart, and merges neighbouring parts that may be misordered.

    ŝ_{i,j} is the mean of C_i − C_j over the T_{i,j} steps in which both items were in the same part and just one of
    them was clicked; s̄_{i,j} is its upper confidence bound, 2·max{q : T·KL((1 + ŝ)/2 ‖ q) ≤ log t + 3·log log t} − 1.

    A part of the leader partition is the smallest set of remaining items with ŝ_{i,j} > 0 for each i in it and each
    other remaining j. From the top down, two neighbouring parts are merged if s̄_{j,i} > 0 for an i of the upper and a j
    of the lower one. If the last displayed part was not merged, a random item joins it of those that are not displayed
    and may be better than one of its items. The list has part after part, each in random order.

    A step takes O(L²) operations; the state is L² + L integers.

    The parts follow from the scores Σ_j sign(ŝ_{i,j}) alone: the sum of the p highest is p·(L − p) if and only if these
    p items beat all others, as for the scores of a tournament (Landau 1953). So there is no search in a graph.

    Reference: Gauthier, Gaudel, Fromont: UniRank: unimodal bandit algorithms for online ranking. ICML 2022.
    """

    per_item: ClassVar[bool] = True
    of_list: ClassVar[tuple[str, ...]] = ("part",)

    def init(self, key: Key, query: Query) -> UniRankState:
        L = query.num_items
        return UniRankState(jnp.zeros((L, L), jnp.int32), part=jnp.zeros(L, jnp.int32))  # all in one part

    def rank(self, key: Key, state: UniRankState, query: Query) -> Array:
        K, words = query.list_size, jax.random.bits(key, (query.num_items,), jnp.uint32)
        return shuffle(words, state.part, num_groups=K, list_size=K)

    def update(self, key: Key, state: UniRankState, query: Query, ranking: Array, clicks: Array) -> UniRankState:
        K, L, part = query.list_size, query.num_items, state.part
        C = by_item(ranking, clicks, L)
        together = (part[:, None] == part[None, :]) & (part < K)[:, None]
        wins = state.wins + (together & C[:, None] & ~C[None, :])
        words = jax.random.bits(key, (L,), jnp.uint32)
        return UniRankState(wins, _partition(wins, query.step + 1, K, words))

    def statistics(self, state: UniRankState) -> dict[str, Array]:
        """T·ŝ, T and the next partition, for probes and tests."""
        return {"S": state.wins - state.wins.T, "T": state.wins + state.wins.T, "part": state.part}


def leader_partition(wins: Array) -> Array:
    """int32[L]: the number of each item's part in the leader partition."""
    L = wins.shape[0]
    score = jnp.sum(jnp.sign(wins - wins.T), axis=1)
    order = top_items(score, L)  # the scores of two parts differ, so that ties do not matter
    ahead = jnp.cumsum(lookup(score, order))  # the sum of the p highest scores
    p = jnp.arange(1, L + 1)
    ends = ahead == p * (L - p)  # a part ends after place p
    part = jnp.cumsum(ends) - ends  # of each place
    place = jnp.sum(jnp.where(order[:, None] == jnp.arange(L)[None, :], jnp.arange(L)[:, None], 0), axis=0)
    return lookup(part.astype(jnp.int32), place)


def _partition(wins: Array, step: Array, list_size: int, words: Array) -> Array:
    """int32[L]: the partition of this step; K for items that are not displayed."""
    L, K = wins.shape[0], list_size
    leader = leader_partition(wins)
    sizes = jnp.sum(leader[None, :] == jnp.arange(L)[:, None], axis=1)
    starts = jnp.cumsum(sizes) - sizes
    last = jnp.max(jnp.where((starts < K) & (sizes > 0), jnp.arange(L), 0))  # the last displayed part
    hopeful = _hopeful(wins, _level(step))  # [i, j]: may j be better than i?
    below = leader[None, :] == leader[:, None] + 1
    promising = jnp.any(hopeful & below, axis=1)  # of each item: may one of the next part be better?
    mergeable = jnp.any(promising[None, :] & (leader[None, :] == jnp.arange(L)[:, None]), axis=1)  # of each part
    merged, into_upper = [jnp.bool_(False)], jnp.bool_(False)
    for c in range(L - 1):
        into_upper = mergeable[c] & ~into_upper & (c + 1 <= last)  # part c + 1 into part c
        merged.append(into_upper)
    shift = jnp.cumsum(jnp.stack(merged), dtype=jnp.int32)
    part = jnp.where(leader <= last, leader - lookup(shift, leader), K)
    if L == K:
        return part
    candidate = (leader > last) & jnp.any(hopeful & (leader == last)[:, None], axis=0)
    joined = jnp.where(candidate, words, 0) == jnp.max(jnp.where(candidate, words, 0))
    of_last = last - lookup(shift, last)
    alone = ~lookup(jnp.stack(merged), last)
    return jnp.where(alone & candidate & joined, of_last, part)


def _level(step: Array) -> Array:
    log_t = jnp.log(step.astype(float))
    return jnp.maximum(log_t + 3 * jnp.log(log_t), 0)


def _hopeful(wins: Array, level: Array) -> Array:
    """bool[L, L]: is s̄_{j,i} > 0, that is, T·KL((1 + ŝ_{j,i})/2 ‖ 1/2) < level, or ŝ_{j,i} > 0, or T = 0?"""
    T = wins + wins.T
    entropy = entr(wins / jnp.maximum(T, 1))  # of the clicks on i; transposed, of those on j
    divergence = jnp.log(2.0) - entropy - entropy.T
    return (T == 0) | (wins < wins.T) | (T * divergence < level)
