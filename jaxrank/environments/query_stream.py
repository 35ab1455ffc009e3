"""The query stream: a random query at every step, one ranker for all queries, and clicks from relevance labels."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrank.core import random
from jaxrank.core.checks import open_probability
from jaxrank.core.metrics import dcg, relevance_gain
from jaxrank.core.pytrees import array, derived, pytree, static
from jaxrank.core.types import Array, Key, Query


@pytree
class QueryStream:
    """Online learning to rank with features (PairRank, Sec. 4.1): each step samples a query uniformly.

    A policy sees the features of the query's documents, padded with zeros to L rows, and a mask that is false for the
    padding. It shows K documents. If a query has fewer than K, padding fills the rest and is never clicked.
    The dataset is shared by all lanes; a lane copies only the rows of its query.

    Metrics of the displayed list:

    - ``ndcg``: NDCG at K (0 for a query without relevant documents);
    - ``cndcg``: the same times γ^(t − 1), γ being the discount; its sum over steps is the papers' online performance;
    - ``regret``: Kendall's tau distance, the number of pairs of different grades in the wrong order: a displayed
      document with a better one displayed below it or not at all. Pairs of documents that are not displayed do not
      count;
    - ``clicks``: the expected number of clicks.

    Args:
      queries: a ``QuerySet``.
      user: a ``GradedUser``; with an instance axis, several users side by side.
      list_size: K, 10 in the papers; reduced to the number of documents of the largest query if that is smaller.
      discount: γ of cNDCG.
      gain: "exponential", 2^grade − 1, or "linear", the grade.
    """

    instance_dim: ClassVar[str] = "user"

    queries: Any
    user: Any
    list_size: int = static(default=10, minimum=1)
    discount: Any = array(ndim=0, check=open_probability, default=0.9995)
    gain: str = static(default="exponential", choices=("exponential", "linear"))
    ideal_dcg: Array = derived(ndim=1)  # float[queries]
    num_better: Array = derived(ndim=2)  # int32[queries, grades], the number of documents of a higher grade

    def _validate(self) -> None:
        if not hasattr(self.queries, "max_documents"):
            got = type(self.queries).__name__
            raise ValueError(f"QueryStream.queries must be a QuerySet, as jr.datasets.letor(…).train; got a {got}")
        if not hasattr(self.user, "num_grades"):
            got = type(self.user).__name__
            raise ValueError(f"QueryStream.user must be a GradedUser, as jr.click_models.graded_user(…); got a {got}")
        object.__setattr__(self, "list_size", min(self.list_size, self.queries.max_documents))
        if self.queries.num_grades > self.user.num_grades:
            raise ValueError(
                f"QueryStream.user must have a probability for each of the {self.queries.num_grades} grades; "
                f"got {self.user.num_grades}"
            )

    def _derive(self) -> dict[str, Array]:
        def truth(index: Array) -> tuple[Array, Array]:
            rows, mask = self.queries.rows(index)
            grades = jnp.where(mask, self.queries.grades[rows], -1)
            best = jnp.sort(grades, descending=True)[: self.list_size]
            better = grades[:, None] > jnp.arange(self.user.num_grades)[None, :]
            return dcg(relevance_gain(best, self.gain))[-1], jnp.sum(better, axis=0, dtype=jnp.int32)

        ideal, better = jax.lax.map(truth, jnp.arange(self.queries.num_queries))
        return {"ideal_dcg": ideal, "num_better": better}

    def query(self, key: Key, step: Array) -> Query:
        return self.offer(random.number_below(key, self.queries.num_queries), step)

    def offer(self, index: Array, step: Array) -> Query:
        """The dataset's query number ``index``, as a policy sees it."""
        features, mask = self.queries.documents(index)
        rows, _ = self.queries.rows(index)
        grades = jnp.where(mask, self.queries.grades[rows], -1)
        best = jnp.argsort(grades, descending=True, stable=True)  # costs nothing if not used: XLA removes it
        return Query(
            step=step,
            base_ranking=jnp.arange(self.queries.max_documents, dtype=jnp.int32),
            optimal_ranking=best[: self.list_size].astype(jnp.int32),
            features=features,
            mask=mask,
            index=index,
            num_items=self.queries.max_documents,
            list_size=self.list_size,
        )

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        grades, shown = self._shown(query, ranking)
        return self._reader(grades).sample(key, jnp.arange(self.list_size)) & shown

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        grades, shown = self._shown(query, ranking)
        assert query.index is not None
        ideal = self.ideal_dcg[query.index]
        gains = jnp.where(shown, relevance_gain(grades, self.gain), 0)
        ndcg = jnp.where(ideal > 0, dcg(gains)[-1] / jnp.where(ideal > 0, ideal, 1), 0)
        # Of all documents better than a displayed one, those displayed above it are in the right order.
        better_above = jnp.tril((grades[None, :] > grades[:, None]) & shown[None, :], -1)
        wrong = self.num_better[query.index][grades] - jnp.sum(better_above, axis=1, dtype=jnp.int32)
        clicks = self._reader(grades).click_probability(jnp.arange(self.list_size))
        return {
            "ndcg": ndcg,
            "cndcg": ndcg * self.discount ** (query.step - 1),
            "regret": jnp.sum(jnp.where(shown, wrong, 0)),
            "clicks": jnp.sum(jnp.where(shown, clicks, 0)),
        }

    def _shown(self, query: Query, ranking: Array) -> tuple[Array, Array]:
        """int32[K] and bool[K]: the grades in list order, and which positions have a document."""
        assert query.index is not None
        first, end = self.queries.starts[query.index], self.queries.starts[query.index + 1]
        shown = ranking < end - first
        return self.queries.grades[jnp.where(shown, first + ranking, first)], shown

    def _reader(self, grades: Array) -> Any:
        return dataclasses.replace(self.user, grades=grades)
