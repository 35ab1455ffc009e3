"""PDGD: pairwise differentiable gradient descent (Oosterhuis and de Rijke, CIKM 2018, Algorithm 1).

Lists are drawn from the Plackett–Luce model of the scores, document by document. A clicked document d_k is preferred
over every unclicked one d_l that was examined, and the ranker takes the step

    θ ← θ + η·Σ ρ(k, l)·∇P(d_k ≻ d_l),    P(d_k ≻ d_l) = exp f_k / (exp f_k + exp f_l),
    ρ(k, l) = P(R*) / (P(R) + P(R*)),

where R* is R with d_k and d_l exchanged. The weight ρ is low for preferences that the documents' positions in R made
likely.

Where the paper leaves a choice: documents down to one below the last click count as examined, as in PairRank and in the
released code. The released code's decay of the learning rate (0.9999977 a step) is left to ``optimizer``.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.core.checks import positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.learning.rankers import Ranker, linear, mlp
from jaxrank.learning.relax import plackett_luce
from jaxrank.policies._online import GradientRanker, RankerState, documents, preferences


@pytree
class PDGD(GradientRanker):
    """PDGD: lists from the Plackett–Luce model, and a gradient from debiased pairs.

    Args:
      learning_rate: η.
      ranker: what scores documents, any ``(init, apply)``.
      optimizer: an optax ``GradientTransformation`` instead of plain steps of ``learning_rate``.

    Reference: Oosterhuis, de Rijke: Differentiable unbiased online learning to rank. CIKM 2018.
    """

    learning_rate: Any = array(ndim=0, check=positive, default=0.1)
    ranker: Ranker = static(default=linear)
    optimizer: Any = static(default=None)

    def rank(self, key: Key, state: RankerState, query: Query) -> Array:
        features, mask = documents(query, self)
        return plackett_luce(key, self.score(state, features), list_size=query.list_size, where=mask)

    def update(self, key: Key, state: RankerState, query: Query, ranking: Array, clicks: Array) -> RankerState:
        features, mask = documents(query, self)
        scores = jnp.where(mask, self.score(state, features), -jnp.inf)
        shown = mask[ranking]
        preferred = preferences(clicks, shown, "all")
        signs = preferred.astype(int) - preferred.T  # pair_weights are symmetric
        return self._ascend(state, features[ranking], jnp.sum(pair_weights(scores, ranking) * signs, axis=1))


@pytree
class NeuralPDGD(PDGD):
    """PDGD with a multi-layer perceptron: PDGD with other defaults, 64 hidden units and η = 0.1.

    Args and reference: those of ``PDGD``.
    """

    ranker: Ranker = static(default=mlp(64))


def pair_weights(scores: Array, ranking: Array) -> Array:
    """float[K, K]: the weights ρ(k, l)·P(d_k ≻ d_l)·P(d_l ≻ d_k) of ∇(f_k − f_l), from all scores [L] and a list [K].

    P(R) is a product over positions of exp f(R_i) / D_i, where D_i is the sum over all documents that are not above i.
    The exchange of positions a < b does not change the numerators, and turns D_i, a < i ≤ b, into
    D_i + exp f_a − exp f_b.
    """
    K, listed, highest = ranking.shape[0], scores[ranking], jnp.max(scores)
    worth = jnp.exp(listed - highest)  # exp f of the listed documents, up to a factor; 0 for padding
    others = jnp.all(ranking[:, None] != jnp.arange(scores.shape[0])[None, :], axis=0)
    rest = jnp.sum(jnp.where(others, jnp.exp(scores - highest), 0))
    remaining = jnp.cumsum(worth[::-1])[::-1] + rest  # D_i
    k, m = jnp.arange(K)[:, None], jnp.arange(K)[None, :]
    a, b = jnp.minimum(k, m), jnp.maximum(k, m)  # an exchange is symmetric
    upper, lower = jnp.where(k < m, worth[:, None], worth[None, :]), jnp.where(k < m, worth[None, :], worth[:, None])
    odds = jnp.ones((K, K), worth.dtype)  # P(R*) / P(R); either all its factors are above 1 or all are below
    for i in range(1, K):
        exchanged = jnp.maximum(remaining[i] + upper - lower, jnp.maximum(upper, 1e-37))  # ≥ upper but for rounding
        odds = jnp.where((a < i) & (i <= b), odds * (remaining[i] / exchanged), odds)
    difference = listed[:, None] - listed[None, :]
    known = jnp.isfinite(difference)
    slope = jax.nn.sigmoid(jnp.where(known, difference, 0)) * jax.nn.sigmoid(jnp.where(known, -difference, 0))
    return jnp.where(known, slope / (1 + 1 / jnp.maximum(odds, 1e-37)), 0)
