"""Measures of one displayed list against the truth."""

import jax.numpy as jnp
import numpy as np

from jaxrank.core.ranking import inversions, lookup
from jaxrank.core.types import Array


def dcg(gains: Array) -> Array:
    """float[K]: DCG@1, …, DCG@K of gains in list order, Σ gain_k / log₂(k + 1) (BubbleRank, App. B)."""
    discounts = np.log2(np.arange(2.0, gains.shape[0] + 2))  # constants, which a step need not compute
    return jnp.cumsum(gains / discounts.astype(jnp.result_type(gains, float)))


def ndcg(ranking: Array, gains: Array, where: Array | None = None) -> Array:
    """float[]: NDCG at K of a ranking, hard [K] or soft [K, L], from the items' gains [L]; 0 if no item has a gain.

    For a soft ranking, DCG sums the expected gain of every position.

    Args:
      ranking: int32[K], or float[K, L].
      gains: float[L].
      where: bool[L], false for padding, whose gain counts as 0; all items are there by default.
    """
    gains = gains if where is None else jnp.where(where, gains, 0)
    ideal = dcg(jnp.sort(gains, descending=True)[: ranking.shape[0]])[-1]
    return jnp.where(ideal > 0, dcg(lookup(gains, ranking))[-1] / jnp.where(ideal > 0, ideal, 1), 0)


def relevance_gain(grades: Array, gain: str = "exponential") -> Array:
    """The gain of a grade in DCG: 2^grade − 1 ("exponential"), or the grade itself ("linear"); 0 below grade 0.

    The online-LTR papers and LETOR tools use the exponential gain, trec_eval and pytrec_eval the linear one.
    """
    grades = jnp.maximum(grades, 0).astype(float)
    return jnp.exp2(grades) - 1 if gain == "exponential" else grades


def violation(attraction: Array, base_inversions: Array) -> Array:
    """int32[]: 1 if a list is unsafe, |V(R)| > |V(R₀)| + K/2 (BubbleRank, eq. 7), from α in list order."""
    return (2 * inversions(attraction) > 2 * base_inversions + attraction.shape[0]).astype(jnp.int32)
