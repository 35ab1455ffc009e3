"""Distributions over lists: what a stochastic ranker shows, and how probable it is.

A distribution is a pytree that says which item comes next: ``next_item(ranking, position)`` has the probability of each
item at ``position``, given the items above it. All else follows: samples, the probability of a list and of its first
positions, and the probability of each item at each position. All of it can be differentiated with respect to the
distribution's parameters. A leading axis on these is a query axis, as in a click model.

- ``PlackettLuce``: items are drawn one after the other with odds exp(score);
- ``EpsilonGreedy``: at each position the best item left or, with probability ε, a random one of those left;
- ``Uniform``: a random list;
- ``Lists``: given lists with given probabilities; ``Lists.of_policy`` takes them from a jaxrank policy by sampling.
"""

import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import probability
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Policy, Query, State

_SUBSETS = 14  # items up to which marginals are computed exactly, over all 2^L sets of items above a position
MOST_LISTS = 200_000  # lists that ``all_lists`` returns at most


class ListDistribution(Protocol):
    """What the functions of this module need. ``_ListDistribution`` has all but ``next_item`` and the two sizes."""

    @property
    def num_items(self) -> int: ...

    @property
    def size(self) -> int: ...

    def next_item(self, ranking: Array, position: Array) -> Array:
        """float[L]: the probability of each item at ``position``, given ``ranking[:position]``."""
        ...

    def sample(self, key: Key) -> Array: ...

    def conditionals(self, ranking: Array) -> Array: ...

    def marginals(self) -> Array: ...


class _ListDistribution:
    """What follows from ``next_item``."""

    @property
    def num_items(self) -> int:
        raise NotImplementedError

    @property
    def size(self) -> int:
        """K, the length of the lists."""
        raise NotImplementedError

    def next_item(self, ranking: Array, position: Array) -> Array:
        raise NotImplementedError

    def sample(self, key: Key) -> Array:
        """int32[K]: a list."""

        def draw(ranking: Array, at: tuple[Array, Key]) -> tuple[Array, None]:
            position, key = at
            item = jax.random.categorical(key, jnp.log(self.next_item(ranking, position)))
            return ranking.at[position].set(item.astype(jnp.int32)), None

        steps = jnp.arange(self.size, dtype=jnp.int32), jax.random.split(key, self.size)
        return jax.lax.scan(draw, jnp.full(self.size, -1, jnp.int32), steps)[0]

    def conditionals(self, ranking: Array) -> Array:
        """float[K, L]: row k is the distribution of the item at k, given the items of ``ranking`` above k."""
        return jax.vmap(self.next_item, in_axes=(None, 0))(ranking, jnp.arange(self.size, dtype=jnp.int32))

    def marginals(self) -> Array:
        """float[K, L]: the probability of each item at each position."""
        raise NotImplementedError


class _DrawnFromTheRest(_ListDistribution):
    """Distributions in which the next item depends on the set of items above, not on their order."""

    scores: Any
    list_size: int | None

    def _validate(self) -> None:
        K, L = self.list_size, self.num_items
        if K is not None and not 1 <= K <= L:
            raise ValueError(f"{type(self).__name__}.list_size must be from 1 to the {L} items; got {K}")

    def _given(self, taken: Array) -> Array:
        """float[L]: the probability of each item, where those ``taken`` bool[L] are above."""
        raise NotImplementedError

    @property
    def num_items(self) -> int:
        return self.scores.shape[-1]

    @property
    def size(self) -> int:
        return self.num_items if self.list_size is None else self.list_size

    def next_item(self, ranking: Array, position: Array) -> Array:
        above = jnp.arange(ranking.shape[0]) < position
        return self._given(jnp.zeros(self.num_items, bool).at[ranking].max(above, mode="drop"))

    def marginals(self) -> Array:
        """float[K, L]: the probability of each item at each position, by a sum over the sets of items above it.

        There are 2^L sets, so L is at most 14: of more items, ``Lists.sampled`` has estimates.
        """
        L = self.num_items
        if L > _SUBSETS:
            raise ValueError(
                f"marginals are exact for at most {_SUBSETS} items; got {L}: use Lists.sampled(key, distribution, …)"
            )
        sets, items = np.arange(2**L)[:, None], np.arange(L)[None, :]
        contains = (sets >> items) & 1 == 1
        given = jnp.where(contains, 0, jax.vmap(self._given)(jnp.asarray(contains)))  # [sets, L]
        before = jnp.asarray(np.where(contains, sets ^ (1 << items), 0))  # the set without the item
        arrives = jnp.where(contains, given[before, items], 0)

        def place(reached: Array, _: None) -> tuple[Array, Array]:
            at_position = jnp.einsum("s,sa->a", reached, given, precision=jax.lax.Precision.HIGHEST)
            return jnp.sum(reached[before] * arrives, axis=1), at_position

        nothing = jnp.zeros(2**L, given.dtype).at[0].set(1)
        return jax.lax.scan(place, nothing, length=self.size)[1]


@pytree
class PlackettLuce(_DrawnFromTheRest):
    """Items are drawn one after the other from those left, with odds exp(score).

    Args:
      scores: [L], or [queries, L].
      list_size: K; all L by default.
    """

    scores: Any = array(ndim=1)
    list_size: int | None = static(default=None)

    def _given(self, taken: Array) -> Array:
        lowest = jnp.finfo(self.scores.dtype).min / 2
        return jnp.where(taken, 0, jax.nn.softmax(jnp.where(taken, lowest, self.scores)))


@pytree
class EpsilonGreedy(_DrawnFromTheRest):
    """At each position the item of the highest score left or, with probability ε, a random one of those left.

    Args:
      scores: [L], or [queries, L]; of equal ones, the first item counts as higher.
      epsilon: ε, in [0, 1].
      list_size: K; all L by default.
    """

    scores: Any = array(ndim=1)
    epsilon: Any = array(ndim=0, check=probability, default=0.1)
    list_size: int | None = static(default=None)

    def _given(self, taken: Array) -> Array:
        best = jnp.argmax(jnp.where(taken, -jnp.inf, self.scores))
        left = ~taken / jnp.maximum(jnp.sum(~taken), 1)
        return self.epsilon * left + (1 - self.epsilon) * (~taken & (jnp.arange(self.num_items) == best))


def Uniform(num_items: int, list_size: int | None = None) -> PlackettLuce:  # noqa: N802 (it stands among the classes)
    """Every list with the same probability: Plackett–Luce with equal scores."""
    return PlackettLuce(np.zeros(num_items), list_size)


@pytree
class Lists(_ListDistribution):
    """Given lists with given probabilities.

    Args:
      rankings: int [lists, K], or [queries, lists, K].
      probabilities: [lists], or [queries, lists], with sum 1.
      items: L, their number.
    """

    rankings: Any = array(ndim=2, dtype=jnp.int32)
    probabilities: Any = array(ndim=1, check=probability)
    items: int = static(minimum=1)

    def _validate(self) -> None:
        total = np.asarray(self.probabilities, np.float64).sum(axis=-1)
        if np.abs(total - 1).max() > 1e-4:
            raise ValueError(
                f"Lists.probabilities must sum to 1; got {total.ravel()[np.abs(total.ravel() - 1).argmax()]}"
            )
        check_rankings("Lists.rankings", np.asarray(self.rankings).reshape(-1, self.rankings.shape[-1]), self.items)

    @classmethod
    def of_policy(cls, key: Key, policy: Policy, state: State, query: Query, *, num_samples: int = 10_000) -> "Lists":
        """The lists that ``policy`` shows in this state, with their frequencies among ``num_samples`` samples.

        Exact for a policy whose list is certain in a state. For others, take the exact distribution where there is one:
        ``PlackettLuce(policy.score(state, features), K)`` is that of ``PDGD``, ``Uniform(L, K)`` of ``RandomRanking``.
        """
        rankings = jax.vmap(lambda key: policy.rank(key, state, query))(jax.random.split(key, num_samples))
        return cls._counted(np.asarray(rankings), query.num_items)

    @classmethod
    def sampled(cls, key: Key, distribution: ListDistribution, *, num_samples: int = 10_000) -> "Lists":
        """An approximation of ``distribution`` by the frequencies of samples."""
        rankings = jax.vmap(distribution.sample)(jax.random.split(key, num_samples))
        return cls._counted(np.asarray(rankings), distribution.num_items)

    @classmethod
    def _counted(cls, rankings: np.ndarray, num_items: int) -> "Lists":
        lists, counts = np.unique(rankings, axis=0, return_counts=True)
        return cls(lists, counts / counts.sum(), num_items)

    @property
    def num_items(self) -> int:
        return self.items

    @property
    def size(self) -> int:
        return self.rankings.shape[-1]

    def next_item(self, ranking: Array, position: Array) -> Array:
        below = jnp.arange(self.size) >= position
        mass = jnp.where(jnp.all((self.rankings == ranking[None, :]) | below[None, :], axis=1), self.probabilities, 0)
        total = jnp.sum(mass)
        placed = jnp.zeros(self.num_items, mass.dtype).at[self.rankings[:, position]].add(mass)
        return placed / jnp.where(total > 0, total, 1)

    def marginals(self) -> Array:
        """float[K, L]: the probability of each item at each position."""
        placed = jnp.zeros((self.size, self.num_items), self.probabilities.dtype)
        return placed.at[jnp.arange(self.size)[None, :], self.rankings].add(self.probabilities[:, None])


def prefix_probabilities(distribution: ListDistribution, ranking: Array) -> Array:
    """float[K]: the probability that the first k + 1 positions are those of ``ranking``; the last is the list's."""
    chosen = jnp.take_along_axis(distribution.conditionals(ranking), ranking[:, None], axis=1)[:, 0]
    return jnp.cumprod(chosen)


def all_lists(num_items: int, list_size: int) -> np.ndarray:
    """int32[lists, K]: all lists of ``list_size`` of the items."""
    number = math.perm(num_items, list_size)
    if number > MOST_LISTS:
        raise ValueError(
            f"{list_size} of {num_items} items make {number:,} lists, more than {MOST_LISTS:,}: "
            "sample them, by Lists.sampled(key, distribution, …)"
        )
    lists = np.zeros((1, 0), np.int32)
    for _ in range(list_size):
        left = np.ones((len(lists), num_items), bool)
        np.put_along_axis(left, lists.astype(np.int64), False, axis=1)
        above, item = np.nonzero(left)
        lists = np.concatenate([lists[above], item[:, None].astype(np.int32)], axis=1)
    return lists


def check_rankings(name: str, rankings: np.ndarray, num_items: int | None) -> None:
    """Rows [n, K] of different items from 0 on, and below ``num_items`` if that is known."""
    wrong = (rankings < 0) | (rankings >= (np.inf if num_items is None else num_items))
    if wrong.any():
        row, k = np.argwhere(wrong)[0]
        allowed = "from 0 on" if num_items is None else f"from 0 to {num_items - 1}"
        raise ValueError(f"{name} must hold items {allowed}; got {rankings[row, k]} in row {row}")
    ordered = np.sort(rankings, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if twice.any():
        row = int(np.argmax(twice))
        raise ValueError(
            f"{name} must hold an item at most once in each row; got {rankings[row].tolist()} in row {row}"
        )
