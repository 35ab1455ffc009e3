"""The three nouns of jaxrank as protocols, and the Query that passes between them.

Everything here is written for ONE lane: one instance (query, user) under one seed. ``simulate`` maps it over lanes.
K is the number of positions (``list_size``), L the number of items.
"""

from typing import Any, ClassVar, Protocol, runtime_checkable

import jax

from jaxrank.core.pytrees import pytree, static

Array = jax.Array
Key = jax.Array  # a typed key, jax.random.key(...)
State = Any  # a NamedTuple of arrays, each field's shape and dtype in a comment


@pytree
class Query:
    """What one step offers: all that a policy may see."""

    step: Array  # int32[], t = 1, 2, … as in the papers; the same in every lane
    base_ranking: Array  # int32[L], the production ranker's order of all items; its first K are the base list R₀
    optimal_ranking: Array  # int32[K], the answer: for OracleRanking and for tests, not for learners
    examination: Array | None = None  # float[K], χ_k where the click model has them by position
    features: Array | None = None  # float[L, m], what is known of the items
    topics: Array | None = None  # float[L, d], which topics they cover
    mask: Array | None = None  # bool[L], which items there are, where queries have different numbers of them
    index: Array | None = None  # int32[], which query of the stream's dataset this is
    num_items: int = static(default=0)  # L
    list_size: int = static(default=0)  # K


@runtime_checkable
class ClickModel(Protocol):
    """How a user reads a list.

    Probabilities and rewards are also defined for a soft ranking, float[K, L] (``jaxrank.relax``): those of a list
    whose positions draw their items independently, position k from row k. That is the multilinear extension of the
    values at hard rankings, and equal to them at one-hot rows. In the position-based model, whose reward is a sum over
    positions, it is the exact expectation under any distribution over rankings with these marginals; in the others it
    ignores that a list shows an item once.
    """

    def sample(self, key: Key, ranking: Array) -> Array:
        """bool[K]: clicks on ``ranking``."""

    def click_probability(self, ranking: Array) -> Array:
        """float[K]: the marginal probability of a click on each position."""

    def examination_probability(self, ranking: Array) -> Array:
        """float[K]: the marginal probability χ(R, k) that each position is looked at."""

    def reward(self, ranking: Array, top: int | None = None) -> Array:
        """float[]: the expected reward of the first ``top`` positions (all by default)."""

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """int32[list_size]: a ranking of the highest reward."""

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        """float[]: log P(clicks | ranking), with finite gradients also at probabilities 0 and 1."""


@runtime_checkable
class Policy(Protocol):
    """How a list is chosen and learnt."""

    def init(self, key: Key, query: Query) -> State: ...

    def rank(self, key: Key, state: State, query: Query) -> Array:
        """int32[K], best first."""

    def update(self, key: Key, state: State, query: Query, ranking: Array, clicks: Array) -> State: ...

    # settled(self, state) -> bool[], optional: will the same list be shown to the same query for ever?


@runtime_checkable
class Environment(Protocol):
    """What one step offers, answers, and measures."""

    instance_dim: ClassVar[str]  # what the instance axis is called in results: "query", "user"
    # stationary: ClassVar[bool], optional: True if every step offers the same query

    def query(self, key: Key, step: Array) -> Query: ...

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        """bool[K]."""

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        """Per-step expected values; simulate sums those that were asked for."""
