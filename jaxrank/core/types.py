"""The three nouns of jaxrank as protocols, and the Query that passes between them.

Everything here is written for ONE lane: one instance (query, user) under one seed. ``simulate`` maps it over lanes.
K is the number of positions (``list_size``), L the number of items.

What a protocol's class body declares is required. Its docstring lists what is optional, with what counts where it is
missing; the functions at the end of this file read the optional members, and nothing else does.
"""

import dataclasses
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import jax

from jaxrank.core.pytrees import pytree, static

Array = jax.Array
Key = jax.Array  # a typed key, jax.random.key(...)
State = Any  # a NamedTuple of arrays, each field's shape and dtype in a comment
T = TypeVar("T")


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

    Probabilities and rewards are also defined for a soft ranking, float[K, L] (``jr.relax``): those of a list whose
    positions draw their items independently, position k from row k. That is the multilinear extension of the values at
    hard rankings, and equal to them at one-hot rows. In the position-based model, whose reward is a sum over positions,
    it is the exact expectation under any distribution over rankings with these marginals; in the others it ignores that
    a list shows an item once.

    Optional:

    - ``reward_gap(better, worse, top=None) -> float[]``: reward(better) − reward(worse), to more digits than the
      difference of two float32 rewards has. That difference by default.
    - ``examination``, float[K]: χ by position, for the policies that are told it. They are not told by default.
    - ``examination`` and ``termination``, float[K]: a list has at most as many positions as these. Any by default.
    """

    attraction: Any  # float[L]: which item is better, for the metrics that compare items; its last axis is L

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
    """How a list is chosen and learnt.

    Optional:

    - ``settled(state) -> bool[]``: will the same list be shown to the same query for ever? Never by default. The claim
      is about ``init``, ``rank`` and ``update``: a subclass that defines one of these anew must make it anew.
    - ``horizon``: a field; None there means the number of steps of the run. Policies without it need none.
    - ``score(state, features) -> float[...]``: the learnt ranker's scores of documents [..., d]. A policy that has it
      learns a ranker and runs in a stream of queries; without it, it learns about items that stay the same.
    - ``weights(state) -> float[n]``: the learnt ranker's parameters. For the probe ``Cosine``.
    - ``block_numbers(state, query) -> int32[L]``: which block each document is in. For the probe ``BlockSizes``.
    - ``statistics(state) -> dict[str, Array]``: what it knows, by the paper's names. For probes and tests.
    """

    def init(self, key: Key, query: Query) -> State: ...

    def rank(self, key: Key, state: State, query: Query) -> Array:
        """int32[K], best first."""

    def update(self, key: Key, state: State, query: Query, ranking: Array, clicks: Array) -> State: ...


@runtime_checkable
class Environment(Protocol):
    """What one step offers, answers, and measures.

    Optional:

    - ``stationary``: True if every step offers the same query and measures a list alike, so that the curves of settled
      lanes are known in advance. False by default. Every class claims it for itself, ``stationary: ClassVar[bool] =
      True`` in its own body: a subclass may change what its base class said.
    - ``queries``, a ``QuerySet``, and ``offer(index, step) -> Query``: any query of a stream. For ``BlockSizes``.
    """

    instance_dim: ClassVar[str]  # what the instance axis is called in results: "query", "user"

    def query(self, key: Key, step: Array) -> Query: ...

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        """bool[K]."""

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        """Per-step expected values; simulate sums those that were asked for."""


def reward_gap(model: ClickModel, better: Array, worse: Array, top: int | None = None) -> Array:
    """reward(better) − reward(worse): the model's own, or the difference of its rewards."""
    if hasattr(model, "reward_gap"):
        return model.reward_gap(better, worse, top)
    return model.reward(better, top) - model.reward(worse, top)


def by_position(model: ClickModel, name: str) -> Array | None:
    """float[K]: the model's ``examination`` or ``termination`` by position, if it has one."""
    return getattr(model, name, None)


def can_settle(policy: Policy) -> bool:
    """Does the policy claim to know when its list stays the same, for the methods that it has now?"""
    classes = type(policy).__mro__

    def depth(name: str) -> int:
        return next((i for i, cls in enumerate(classes) if name in vars(cls)), len(classes))

    return hasattr(policy, "settled") and all(depth("settled") <= depth(name) for name in ("init", "rank", "update"))


def is_stationary(environment: Environment) -> bool:
    """Does the environment's own class claim that every step is alike?"""
    return bool(vars(type(environment)).get("stationary", False))


def learns_ranker(policy: Policy) -> bool:
    """Does the policy learn a function that scores documents?"""
    return hasattr(policy, "score")


def with_horizon(policy: T, num_steps: int) -> T:
    """The policy, with ``num_steps`` as its horizon if it has a horizon and was given none."""
    if getattr(policy, "horizon", num_steps) is None:
        return dataclasses.replace(policy, horizon=num_steps)  # type: ignore[type-var]
    return policy
