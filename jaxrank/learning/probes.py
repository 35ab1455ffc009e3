"""Probes: functions that look at what a policy has learnt, at the recorded steps only.

``simulate(…, probes={"ndcg@10": OfflineNDCG(test), …})`` calls each with (policy, state, environment) of every lane at
every recorded step. A probe is any such function of arrays; those here are pytrees, so that their data are arguments
of the compiled program and not constants in it.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.core.metrics import dcg, relevance_gain
from jaxrank.core.pytrees import array, derived, pytree, static
from jaxrank.core.ranking import best_documents
from jaxrank.core.types import Array

_QUERIES = 32  # that a probe looks at together


@pytree
class OfflineNDCG:
    """Mean NDCG of the learnt ranker on held-out queries; those without a relevant document are left out.

    Or, ``by_query``, that of every query, with NaN for those.

    Works for policies with ``score(state, features)``. Equal scores are in document order.

    Args:
      queries: a ``QuerySet``, e.g. the test split.
      top: the cutoff.
      gain: "exponential", 2^grade − 1, or "linear", the grade.
      by_query: float[queries] instead of their mean.
    """

    queries: Any
    top: int = static(default=10, minimum=1)
    gain: str = static(default="exponential", choices=("exponential", "linear"))
    by_query: bool = static(default=False)
    ideal_dcg: Array = derived(ndim=1)  # float[queries]

    def _derive(self) -> dict[str, Array]:
        return {"ideal_dcg": self._each_query(lambda index: self._dcg(index, self._grades(index).astype(float)))}

    def __call__(self, policy: Any, state: Any, environment: Any) -> Array:
        ndcg = self.of_scores(policy.score(state, self.queries.features))  # all documents in one product
        if self.by_query:
            return ndcg
        relevant = ~jnp.isnan(ndcg)
        return jnp.sum(jnp.where(relevant, ndcg, 0)) / jnp.maximum(jnp.sum(relevant), 1)

    def of_scores(self, scores: Array) -> Array:
        """float[queries]: NDCG of the scores [documents]; NaN for a query without a relevant document."""
        found = self._each_query(lambda index: self._dcg(index, scores[self.queries.rows(index)[0]]))
        relevant = self.ideal_dcg > 0
        return jnp.where(relevant, found / jnp.where(relevant, self.ideal_dcg, 1), jnp.nan)

    def _each_query(self, function: Any) -> Array:
        # A few queries at a time: all of them, padded to the largest one, may not fit into memory.
        return jax.lax.map(function, jnp.arange(self.queries.num_queries), batch_size=_QUERIES)

    def _grades(self, index: Array) -> Array:
        return self.queries.grades[self.queries.rows(index)[0]]

    def _dcg(self, index: Array, scores: Array) -> Array:
        mask = self.queries.rows(index)[1]
        ranking = best_documents(scores, mask, min(self.top, self.queries.max_documents))
        gains = jnp.where(mask[ranking], relevance_gain(self._grades(index)[ranking], self.gain), 0)
        return dcg(gains)[-1]


@pytree
class Cosine:
    """The cosine between the learnt parameters and ``reference`` [n], e.g. those of the offline ranker; 0 at θ = 0."""

    reference: Any = array(ndim=1)

    def __call__(self, policy: Any, state: Any, environment: Any) -> Array:
        learnt = policy.weights(state)
        norms = jnp.linalg.norm(learnt) * jnp.linalg.norm(self.reference)
        return jnp.where(norms > 0, jnp.dot(learnt, self.reference) / jnp.where(norms > 0, norms, 1), 0)


@pytree
class BlockSizes:
    """float[1 + top]: PairRank's number of blocks, then the size of the block at ranks 1 to ``top``.

    Means over the first ``num_queries`` queries of the stream, for each rank over those that have as many documents; 0
    if none has.
    """

    num_queries: int = static(default=10, minimum=1)
    top: int = static(default=10, minimum=1)

    def __call__(self, policy: Any, state: Any, environment: Any) -> Array:
        def of_query(index: Array) -> Array:
            query = environment.offer(index, jnp.int32(1))
            block = policy.block_numbers(state, query)
            L = block.shape[0]
            sizes = jnp.zeros(L, jnp.int32).at[jnp.where(query.mask, block, L)].add(1, mode="drop")
            by_rank = jnp.sort(jnp.where(query.mask, block, L))[: self.top]
            size = jnp.where(by_rank < L, sizes[jnp.minimum(by_rank, L - 1)], 0)
            return jnp.concatenate([jnp.sum(sizes > 0)[None], size]).astype(float)

        count = min(self.num_queries, environment.queries.num_queries)
        found = jax.lax.map(of_query, jnp.arange(count))
        return jnp.sum(found, axis=0) / jnp.maximum(jnp.sum(found > 0, axis=0), 1)
