"""Losses to train a ranker with: functions of one query's scores, from labels or from expected clicks.

All are ``loss(scores, labels, where, key)``: scores [L] and labels [L] of a query's documents, the higher the better;
``where`` bool[L], False for padding (all are documents by default); and a key, which only losses that sample need.
Labels are grades or any estimates of relevance, such as those from clicks (``jr.counterfactual``).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.click_models.graded import GradedUser
from jaxrank.core.metrics import dcg, ndcg, relevance_gain
from jaxrank.core.types import Array, Key
from jaxrank.learning.relax import expected_reward, sinkhorn_sort

Loss = Callable[[Array, Array, Array | None, Key | None], Array]


def pairwise_logistic_matrix(scores: Array, preferred: Array) -> Array:
    """float[n, n]: −log σ(f_k − f_l) at the ``preferred`` pairs (k, l), bool[n, n], and 0 at the others."""
    return jnp.where(preferred, jax.nn.softplus(scores[None, :] - scores[:, None]), 0)


def pairwise_logistic(scores: Array, preferred: Array) -> Array:
    """float[]: Σ −log σ(f_k − f_l) over the ``preferred`` pairs (k, l), bool[n, n]."""
    return jnp.sum(pairwise_logistic_matrix(scores, preferred))


def ranknet(scores: Array, labels: Array, where: Array | None = None, key: Key | None = None) -> Array:
    """RankNet: the mean of −log σ(f_i − f_j) over the pairs of labels y_i > y_j.

    Reference: Burges et al.: Learning to rank using gradient descent. ICML 2005.
    """
    better = _better(labels, where)
    return pairwise_logistic(scores, better) / jnp.maximum(jnp.sum(better), 1)


def softmax(scores: Array, labels: Array, where: Array | None = None, key: Key | None = None) -> Array:
    """Σ −y_i·log softmax(f)_i: linear in the labels, so that unbiased labels give an unbiased loss.

    Reference: Cao, Qin, Liu, Tsai, Li: Learning to rank: from pairwise approach to listwise approach. ICML 2007.
    """
    there = jnp.ones(scores.shape, bool) if where is None else where
    shown = jnp.where(there, scores, jnp.finfo(scores.dtype).min / 2)
    return jnp.sum(jnp.where(there, labels * (jax.nn.logsumexp(shown) - shown), 0))


def approx_ndcg(
    scores: Array,
    labels: Array,
    where: Array | None = None,
    key: Key | None = None,
    *,
    temperature: float = 0.1,
    gain: str = "exponential",
) -> Array:
    """−NDCG with ranks 1 + Σ_{j ≠ i} σ((f_j − f_i)/τ).

    Reference: Qin, Liu, Li: A general approximation framework for direct optimization of information retrieval
    measures. Information Retrieval 13, 2010.
    """
    gains, there = _gains(labels, where, gain)
    beaten = jax.nn.sigmoid((scores[None, :] - scores[:, None]) / temperature)
    others = there[None, :] & ~jnp.eye(scores.shape[0], dtype=bool)
    ranks = 1 + jnp.sum(jnp.where(others, beaten, 0), axis=1)
    return -jnp.sum(gains / jnp.log2(1 + ranks)) / _ideal(gains)


def lambda_loss(
    scores: Array,
    labels: Array,
    where: Array | None = None,
    key: Key | None = None,
    *,
    mu: float = 10.0,
    gain: str = "exponential",
) -> Array:
    """NDCG-Loss2++: Σ (ρ_ij + μ·δ_ij)·|G_i − G_j|·−log σ(f_i − f_j) over the pairs of labels y_i > y_j.

    With μ = 0 it is LambdaRank. G is the gain over the ideal DCG, D the discount at a rank; ρ_ij = |1/D_i − 1/D_j| at
    the current ranks of the two, δ_ij = |1/D_{|i−j|} − 1/D_{|i−j|+1}| at their distance. The gradient treats the
    weights as constants, as in the paper.

    Reference: Wang, Li, Golbandi, Bendersky, Najork: The LambdaLoss framework for ranking metric optimization. CIKM
    2018.
    """
    gains, there = _gains(labels, where, gain)
    order = jnp.argsort(jnp.where(there, scores, -jnp.inf), descending=True, stable=True)
    rank = jnp.zeros(scores.shape, jnp.int32).at[order].set(jnp.arange(1, scores.shape[0] + 1, dtype=jnp.int32))
    inverse = 1 / jnp.log2(1 + rank.astype(scores.dtype))
    distance = jnp.abs(rank[:, None] - rank[None, :]).astype(scores.dtype)
    apart = jnp.maximum(distance, 1)
    rho = jnp.abs(inverse[:, None] - inverse[None, :])
    delta = 1 / jnp.log2(1 + apart) - 1 / jnp.log2(2 + apart)
    weights = (rho + mu * delta) * jnp.abs(gains[:, None] - gains[None, :]) / _ideal(gains)
    losses = jax.nn.softplus(scores[None, :] - scores[:, None])
    return jnp.sum(jnp.where(_better(labels, where), jax.lax.stop_gradient(weights) * losses, 0))


def expected_clicks(click_model: Any, *, list_size: int = 10, relaxation: Any = sinkhorn_sort, **options: Any) -> Loss:
    """−reward of the soft ranking ``relaxation(scores, …, **options)`` under a click model.

    The labels replace the model's attraction (a ``GradedUser``'s grades); its other parameters are kept.
    ``relaxation=None`` samples hard rankings instead (``jr.relax.expected_reward``): unbiased, but noisier.

    ``sinkhorn_sort`` is the default because its columns sum to 1: under the others a soft ranking may show a good item
    at several positions at once, and gradient ascent ends in scores whose order is not good
    (``scripts/examples/gradients.py``).
    """

    def reward(labels: Array, where: Array | None) -> Callable[[Array], Array]:
        model = with_labels(click_model, labels, where)
        return lambda ranking: model.reward(ranking)

    return _of_ranking(reward, list_size, relaxation, options)


def expected_ndcg(
    *, list_size: int = 10, relaxation: Any = sinkhorn_sort, gain: str = "exponential", **options: Any
) -> Loss:
    """−NDCG at ``list_size`` of the soft ranking, or, if ``relaxation`` is None, of sampled ones."""

    def reward(labels: Array, where: Array | None) -> Callable[[Array], Array]:
        gains, _ = _gains(labels, where, gain)
        return lambda ranking: ndcg(ranking, gains)

    return _of_ranking(reward, list_size, relaxation, options)


def with_labels(click_model: Any, labels: Array, where: Array | None = None) -> Any:
    """The click model of these documents: ``labels`` are its attraction, 0 for padding, or its grades."""
    if isinstance(click_model, GradedUser):
        return dataclasses.replace(click_model, grades=labels)
    return dataclasses.replace(click_model, attraction=labels if where is None else jnp.where(where, labels, 0))


def _of_ranking(reward: Any, list_size: int, relaxation: Any, options: dict[str, Any]) -> Loss:
    def loss(scores: Array, labels: Array, where: Array | None = None, key: Key | None = None) -> Array:
        size = min(list_size, scores.shape[0])
        of = reward(labels, where)
        if relaxation is None:
            if key is None:
                raise ValueError("key must be given to a loss that samples rankings; got None")
            return -expected_reward(key, of, scores, list_size=size, where=where, **options)
        return -of(relaxation(scores, list_size=size, where=where, **options))

    return loss


def _better(labels: Array, where: Array | None) -> Array:
    """bool[L, L]: where i has a higher label than j."""
    better = labels[:, None] > labels[None, :]
    return better if where is None else better & where[:, None] & where[None, :]


def _gains(labels: Array, where: Array | None, gain: str) -> tuple[Array, Array]:
    there = jnp.ones(labels.shape, bool) if where is None else where
    return jnp.where(there, relevance_gain(labels, gain), 0), there


def _ideal(gains: Array) -> Array:
    """The highest DCG; 1 if nothing has a gain."""
    ideal = dcg(jnp.sort(gains, descending=True))[-1]
    return jnp.where(ideal > 0, ideal, 1)
