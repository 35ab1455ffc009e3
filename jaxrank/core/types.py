"""The three nouns of jaxrank as protocols, and the Query that passes between them.

Everything here is written for ONE lane: one instance (query, user) under one seed. ``simulate`` maps it over lanes.
K is the number of positions (``list_size``), L the number of items.

The members that a protocol's class body declares are required. Its docstring lists the optional members and their
defaults, which the functions at the end of this file apply.
"""

import dataclasses
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np

from jaxrank.core.pytrees import pytree, static

Array = jax.Array
Key = jax.Array  # a typed key, jax.random.key(...)
State = Any  # a NamedTuple of arrays, each field's shape and dtype in a comment
T = TypeVar("T")


@pytree
class Query:
    """The query of one step: everything that a policy may see."""

    step: Array  # int32[], t = 1, 2, … as in the papers; the same in every lane
    base_ranking: Array  # int32[L], the production ranker's order of all items; its first K are the base list R₀
    optimal_ranking: Array  # int32[K], the best list: for OracleRanking and for tests, not for learners
    examination: Array | None = None  # float[K], χ_k, if the click model has one for each position
    features: Array | None = None  # float[L, m], the items' features
    topics: Array | None = None  # float[L, d], the items' topics
    mask: Array | None = None  # bool[L], false for padding, where queries have different numbers of items
    index: Array | None = None  # int32[], the number of the query in the stream's dataset
    num_items: int = static(default=0)  # L
    list_size: int = static(default=0)  # K


@runtime_checkable
class ClickModel(Protocol):
    """How a user reads a list.

    Probabilities and rewards are also defined for a soft ranking, float[K, L] (``jr.relax``): they are those of a list
    whose positions draw their items independently, position k from row k. This is the multilinear extension of the
    values at hard rankings, and equal to them at one-hot rows. In the position-based model, whose reward is a sum over
    positions, it is the exact expectation under any distribution over rankings with these marginals. In the other
    models it ignores that a list shows an item only once.

    Optional:

    - ``reward_gap(better, worse, top=None) -> float[]``: reward(better) − reward(worse), to more digits than the
      difference of two float32 rewards has. By default this difference is used.
    - ``examination``, float[K]: χ by position, for the policies that may know it. Without it, they are not told χ.
    - ``examination`` and ``termination``, float[K]: their length is the largest number of positions of a list. Without
      them, a list may have any number.
    """

    attraction: Any  # float[L], higher for better items: for the metrics that compare items; its last axis is L

    def sample(self, key: Key, ranking: Array) -> Array:
        """bool[K]: clicks on ``ranking``."""

    def click_probability(self, ranking: Array) -> Array:
        """float[K]: the marginal probability of a click on each position."""

    def examination_probability(self, ranking: Array) -> Array:
        """float[K]: the marginal probability χ(R, k) that each position is examined."""

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

    - ``settled(state) -> bool[]``: is the list settled, that is, will it stay the same for the same query forever? By
      default no list is ever settled. The answer depends on ``init``, ``rank`` and ``update``: if a subclass
      overrides one of these and not ``settled``, the inherited ``settled`` does not count.
    - ``horizon``: a field, in which None means the number of steps of the run, and less than that is refused. A policy
      without it needs no horizon.
    - ``doubling``: True if ``horizon`` is only a first guess, which may be below the number of steps.
    - ``with_horizon(num_steps) -> Policy``: a policy that wraps another one hands the number of steps on to it.
    - ``of_list``: the names of the state's fields that belong to the list which ``rank`` makes of it, such as what the
      bandits of its positions propose: ``update`` is given them as they were then, however late the clicks are. None by
      default. With "step" among them, ``query.step`` of a late ``update`` is the step of the list; otherwise the number
      of the update, which counts 1, 2, … without gaps.
    - ``per_item``: True if the policy keeps statistics of items. Environments whose items change from query to query
      refuse such a policy. False by default.
    - ``score(state, features) -> float[...]``: the learnt ranker's scores of documents [..., d]. A policy that has it
      learns a ranker and runs in a stream of queries. A policy without it learns about items that stay the same.
    - ``weights(state) -> float[n]``: the learnt ranker's parameters. For the probe ``Cosine``.
    - ``block_numbers(state, query) -> int32[L]``: which block each document is in. For the probe ``BlockSizes``.
    - ``statistics(state) -> dict[str, Array]``: what the policy has learnt, by the paper's names. For probes and tests.
    """

    def init(self, key: Key, query: Query) -> State: ...

    def rank(self, key: Key, state: State, query: Query) -> Array:
        """int32[K], best first."""

    def update(self, key: Key, state: State, query: Query, ranking: Array, clicks: Array) -> State: ...


@runtime_checkable
class Environment(Protocol):
    """What happens in one step: the query, the clicks on its list, and the metrics of the list.

    Optional:

    - ``stationary``: True if every step has the same query and the same metrics of a list, so that the curves of
      settled lanes are known in advance. False by default. It is not inherited, because a subclass may change the
      queries or metrics of its base class: a class that is stationary has ``stationary: ClassVar[bool] = True`` in its
      own body.
    - ``queries``, a ``QuerySet``, and ``offer(index, step) -> Query``: any query of a stream. For ``BlockSizes``.
    """

    instance_dim: ClassVar[str]  # the name of the instance axis in results: "query", "user"

    def query(self, key: Key, step: Array) -> Query: ...

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        """bool[K]."""

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        """Expected values of one step; ``simulate`` sums up the requested ones."""


REQUIRED = {  # the members that a class of each kind must have
    "policy": ("init", "rank", "update"),
    "click_model": (
        *("sample", "click_probability", "examination_probability", "reward"),
        *("optimal_ranking", "log_likelihood", "attraction"),
    ),
    "environment": ("query", "clicks", "metrics", "instance_dim"),
}


def require(kind: str, given: Any, name: str | None = None) -> None:
    """Refuses what is not an object of this kind: a pytree with the members of the protocol.

    Args:
      kind: "policy", "click_model" or "environment".
      given: what the caller was given.
      name: what it is called in the message; the kind by default.
    """
    cls, name = type(given).__name__, name or kind
    if isinstance(given, type):
        raise ValueError(f"{name} must be an instance; got the class {given.__name__}: write {given.__name__}(…)")
    if isinstance(given, str):
        raise ValueError(f"{name} must be an object; got the name {given!r}: write jr.make({given!r}) for a policy")
    missing = [member for member in REQUIRED[kind] if not hasattr(given, member)]
    if missing:
        other = {"policy": "environment", "environment": "policy"}.get(kind)
        if other and all(hasattr(given, member) for member in REQUIRED[other]):
            raise ValueError(f"{name} must be one; got {cls}, which is the {other}: are the two swapped?")
        if kind == "environment" and all(hasattr(given, member) for member in REQUIRED["click_model"]):
            raise ValueError(f"{name} must be one; got {cls}, which is a click model: write jr.ClickBandit({cls}(…))")
        needed, lacking = ", ".join(REQUIRED[kind]), ", ".join(missing)
        raise ValueError(f"{name} must have the members {needed}; {cls} has no {lacking}")
    if jax.tree_util.all_leaves([given]):
        raise ValueError(f"{name} must be a pytree; got a {cls}, which is not one: put @jr.pytree above its class")


def reward_gap(model: ClickModel, better: Array, worse: Array, top: int | None = None) -> Array:
    """reward(better) − reward(worse): by the model's own ``reward_gap``, or else as the difference of its rewards."""
    if hasattr(model, "reward_gap"):
        return model.reward_gap(better, worse, top)
    return model.reward(better, top) - model.reward(worse, top)


BY_POSITION = ("examination", "termination", "examination_after", "relative_rate")  # whose last axis is of positions


def by_position(model: ClickModel, name: str) -> Array | None:
    """float[…, K]: one of the model's ``BY_POSITION``; None if it has none."""
    return getattr(model, name, None)


def can_settle(policy: Policy) -> bool:
    """Does the policy have a ``settled`` as current as its ``init``, ``rank`` and ``update``?

    It does not if a subclass of the class that defines ``settled`` overrides one of the three.
    """
    classes = type(policy).__mro__

    def depth(name: str) -> int:
        return next((i for i, cls in enumerate(classes) if name in vars(cls)), len(classes))

    return hasattr(policy, "settled") and all(depth("settled") <= depth(name) for name in ("init", "rank", "update"))


def is_stationary(environment: Environment) -> bool:
    """Does the environment's own class, and not only a base class, say that it is stationary?"""
    return bool(vars(type(environment)).get("stationary", False))


def keeps_items(policy: Policy) -> bool:
    """Does the policy keep statistics of items, which must then be the same in every step?"""
    return bool(getattr(policy, "per_item", False))


def learns_ranker(policy: Policy) -> bool:
    """Does the policy learn a function that scores documents?"""
    return hasattr(policy, "score")


def with_horizon(policy: T, num_steps: int) -> T:
    """The policy, with ``num_steps`` as its horizon if it has this field and its value is None.

    A horizon below ``num_steps`` is refused, unless it is the first guess of the doubling trick: what an algorithm
    guarantees, it guarantees up to its horizon.
    """
    if hasattr(policy, "with_horizon"):
        return policy.with_horizon(num_steps)
    horizon = getattr(policy, "horizon", num_steps)
    if horizon is None:
        return dataclasses.replace(policy, horizon=num_steps)  # type: ignore[type-var]
    shortest = np.min(horizon)  # of a sweep
    if shortest < num_steps and not getattr(policy, "doubling", False):
        raise ValueError(
            f"{type(policy).__name__}.horizon must be at least num_steps = {num_steps}; got {shortest}: leave it out, "
            f"for the number of steps, or write horizon={num_steps}"
            + (", or doubling=True if it is a first guess" if hasattr(policy, "doubling") else "")
        )
    return policy
