"""The topic bandit: a user who wants relevant items of different topics (CascadeHybrid, Sec. 3.1 and 5.1)."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models.cascade import first_click
from jaxrank.core.bounds import cascadehybrid_eta
from jaxrank.core.checks import integer, non_negative, probability
from jaxrank.core.numerics import product_gap
from jaxrank.core.pytrees import (
    array,
    derived,
    num_instances,
    over_instances,
    pytree,
    static,
    take_instances,
)
from jaxrank.core.topics import coverage, coverage_gains, intra_list_similarity
from jaxrank.core.types import Array, Key, Query

_MAX_LISTS = 200_000  # the largest number of lists that are enumerated


@pytree
class TopicBandit:
    """A cascade in which an item attracts by its relevance and by the topics that the items above do not cover.

    α(R(k)) = (1 − λ)·Δ(x_a | R(1), …, R(k − 1))ᵀθ* + λ·z_aᵀβ*, where a = R(k), clipped to [0, 1] because z_aᵀβ* may be
    negative (eq. 20 with the gains of eq. 7). The user clicks the first attractive item and leaves. The reward is the
    probability of a click, 1 − Π(1 − α).

    Regret is against the greedy benchmark of eq. 10 or, if there are few items, against the best list, found by
    enumeration. A list may be better than the greedy benchmark; its regret is then negative.

    Metrics, all expected values of the displayed list:

    - ``regret``: the benchmark's reward minus the list's;
    - ``reward``: the probability of a click;
    - ``coverage``: the mean over topics of the probability g_j(R) that the list covers topic j (eq. 4);
    - ``similarity``: the mean cosine between the topics of two items of the list.

    ``num_topics`` and ``num_features`` are d and m. A leading user axis is allowed for all arrays; the items are the
    same for all users unless given with one.

    Args:
      topics: x [L, d], the topic coverage of the items as the policy sees it.
      features: z [L, m], their relevance features.
      preference: θ* [d], or [users, d]: how much each topic matters to the user, none less than 0.
      relevance: β* [m], or [users, m].
      trade_off: λ, or one for each user: 0 is diversity only, 1 relevance only.
      true_topics: x as the user sees it; the same as ``topics`` by default.
      list_size: K, the number of positions; 10, or all items if there are fewer, by default.
      benchmark: the list that regret compares with, "greedy" or "optimum".
    """

    instance_dim: ClassVar[str] = "user"
    stationary: ClassVar[bool] = True  # the same items at every step

    topics: Any = array(ndim=2, check=probability)
    features: Any = array(ndim=2)
    preference: Any = array(ndim=1, check=non_negative)
    relevance: Any = array(ndim=1)
    trade_off: Any = array(ndim=0, check=probability, default=0.5)
    true_topics: Any = array(ndim=2, check=probability, default=None)
    list_size: int = static(default=None)
    benchmark: str = static(default="greedy", choices=("greedy", "optimum"))
    optimal_ranking: Array = derived(ndim=1)  # int32[K], the benchmark
    optimal_attraction: Array = derived(ndim=1)  # float[K], α of the benchmark

    @property
    def num_items(self) -> int:
        return self.topics.shape[-2]

    @property
    def num_topics(self) -> int:
        return self.topics.shape[-1]

    @property
    def num_features(self) -> int:
        return self.features.shape[-1]

    @property
    def num_users(self) -> int | None:
        return num_instances(self)

    def _validate(self) -> None:
        if self.true_topics is None:
            object.__setattr__(self, "true_topics", self.topics)
        L, d, m = self.num_items, self.num_topics, self.num_features
        for name, shape in (
            ("features", (L, m)),
            ("true_topics", (L, d)),
            ("preference", (d,)),
            ("relevance", (m,)),
        ):
            got = getattr(self, name).shape
            if got[-len(shape) :] != shape:
                raise ValueError(
                    f"TopicBandit.{name} must have the shape {list(shape)} of {L} items, {d} topics and {m} features; "
                    f"got {list(got)}"
                )
        list_size = min(10, L) if self.list_size is None else self.list_size
        object.__setattr__(self, "list_size", integer("TopicBandit.list_size", list_size, 1, L, " items"))
        if self.benchmark == "optimum" and math.perm(L, self.list_size) > _MAX_LISTS:
            raise ValueError(
                f"TopicBandit.benchmark must be 'greedy' for {self.list_size} of {L} items, which have more than "
                f"{_MAX_LISTS:,} lists to enumerate; got 'optimum'"
            )

    def _derive(self) -> dict[str, Array]:
        def truth(env: "TopicBandit") -> dict[str, Array]:
            best = env._best_of_all() if env.benchmark == "optimum" else env._greedy()
            return {"optimal_ranking": best, "optimal_attraction": env.attraction(best)}

        return over_instances(truth, self)

    def attraction(self, ranking: Array) -> Array:
        """float[K]: α of every position, given the items above."""
        novelty = _dot(coverage_gains(self.true_topics[ranking]), self.preference)
        relevance = _dot(self.features[ranking], self.relevance)
        return jnp.clip((1 - self.trade_off) * novelty + self.trade_off * relevance, 0, 1)

    def _greedy(self) -> Array:
        """int32[K]: eq. 10, at each position the most attractive item given those above; ties in item order."""
        relevance = self.trade_off * _dot(self.features, self.relevance)

        def place(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            uncovered, free = carry
            novelty = _dot(self.true_topics, uncovered * self.preference)
            chosen = jnp.argmax(jnp.where(free, (1 - self.trade_off) * novelty + relevance, -jnp.inf))
            return (uncovered * (1 - self.true_topics[chosen]), free.at[chosen].set(False)), chosen.astype(jnp.int32)

        start = (jnp.ones(self.num_topics), jnp.ones(self.num_items, bool))
        return jax.lax.scan(place, start, length=self.list_size)[1]

    def _best_of_all(self) -> Array:
        """int32[K]: eq. 9, by enumeration of all lists."""
        lists = np.array(list(itertools.permutations(range(self.num_items), self.list_size)), np.int32)
        rewards = jax.lax.map(lambda ranking: _reward(self.attraction(ranking)), lists, batch_size=1_000)
        return jnp.asarray(lists)[jnp.argmax(rewards)]

    def eta(self) -> np.ndarray:
        """η of Sec. 4, for each user: the greedy benchmark has at least η times the best reward."""

        def highest(env: "TopicBandit") -> Array:
            first = jax.vmap(lambda item: env.attraction(item[None])[0])
            return jnp.max(first(jnp.arange(env.num_items)))

        return cascadehybrid_eta(np.asarray(over_instances(highest, self), np.float64), self.list_size)

    def query(self, key: Key, step: Array) -> Query:
        return Query(
            step=step,
            base_ranking=jnp.arange(self.num_items, dtype=jnp.int32),
            optimal_ranking=self.optimal_ranking,
            features=self.features,
            topics=self.topics,
            num_items=self.num_items,
            list_size=self.list_size,
        )

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        return first_click(key, self.attraction(ranking))

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        attraction = self.attraction(ranking)
        shown = self.true_topics[ranking]
        best = self.optimal_attraction
        return {
            "regret": product_gap(best, attraction, best - attraction),
            "reward": _reward(attraction),
            "coverage": jnp.mean(coverage(shown)),
            "similarity": intra_list_similarity(shown),
        }


def sweep_trade_off(environment: TopicBandit, trade_offs: Sequence[float]) -> TopicBandit:
    """The same users under several λ, along one user axis, so that a sweep is one run.

    With U users, instance i·U + u is user u under ``trade_offs[i]``. In results,
    ``curve.values.reshape(len(trade_offs), U, …)`` separates the two axes again.
    """
    if not isinstance(environment, TopicBandit):
        got = (
            f"the class {environment.__name__}" if isinstance(environment, type) else f"a {type(environment).__name__}"
        )
        raise ValueError(f"environment must be a TopicBandit, which has a trade_off; got {got}")
    try:
        values = np.asarray(trade_offs, float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"trade_offs must be a list of at least one number; got {trade_offs!r:.60}")
    users = environment.num_users or 1
    one_axis = environment if environment.num_users else dataclasses.replace(environment, preference=_row(environment))
    repeated = take_instances(one_axis, np.tile(np.arange(users), values.size))
    return dataclasses.replace(repeated, trade_off=np.repeat(values, users))


def _row(environment: TopicBandit) -> np.ndarray:
    return np.asarray(environment.preference)[None, :]


def _dot(matrix: Array, vector: Array) -> Array:
    """matrix·vector. Never ``jnp.sum(matrix * vector)``, whose CPU fusion (jaxlib 0.10) is wrong from lane 33 on."""
    return jnp.dot(matrix, vector, precision=jax.lax.Precision.HIGHEST)


def _reward(attraction: Array) -> Array:
    return 1 - jnp.prod(1 - attraction)
