"""Policies that do not learn: the base list, a random list, the optimal list."""

import jax
import jax.numpy as jnp

from jaxrank.core.pytrees import pytree
from jaxrank.core.ranking import top_items
from jaxrank.core.types import Array, Key, Query


class _Stateless:
    """A policy without state, which learns nothing."""

    def init(self, key: Key, query: Query) -> tuple[()]:
        return ()

    def update(self, key: Key, state: tuple[()], query: Query, ranking: Array, clicks: Array) -> tuple[()]:
        return state


@pytree
class StaticRanking(_Stateless):
    """The base list at every step: "Baseline" of BubbleRank, Sec. 5.1."""

    def rank(self, key: Key, state: tuple[()], query: Query) -> Array:
        return query.base_ranking[: query.list_size]

    def settled(self, state: tuple[()]) -> Array:
        """bool[]: true from the start, as the list never changes."""
        return jnp.bool_(True)


@pytree
class RandomRanking(_Stateless):
    """K of the L items in uniformly random order, anew at every step."""

    def rank(self, key: Key, state: tuple[()], query: Query) -> Array:
        return top_items(jax.random.bits(key, (query.num_items,), jnp.uint32), query.list_size)


@pytree
class OracleRanking(_Stateless):
    """The optimal list: regret 0, the reference line."""

    def rank(self, key: Key, state: tuple[()], query: Query) -> Array:
        return query.optimal_ranking

    def settled(self, state: tuple[()]) -> Array:
        """bool[]: true from the start, as the list never changes."""
        return jnp.bool_(True)
