"""PairRank: explore only the pairs of documents whose order is uncertain (Jia et al., WWW 2021, Algorithm 1).

The ranker is a single-layer RankNet, P(i ≻ j) = σ(x_ijᵀθ) with x_ij = x_i − x_j. A pair is certain if
σ(x_ijᵀθ̂) − α·‖x_ij‖ > 1/2, in the norm of M⁻¹ (line 3 misprints M), where M = λI + Σ x_ij x_ijᵀ over all pairs so far.

Blocks (lines 5–6, Definition 2) need no graph search. A certain pair agrees with the order of the scores, and a
document whose score is between those of two members of a block belongs to the block. So blocks are runs of the
documents sorted by score, with a boundary after place p if and only if every pair of places i ≤ p < j is certain. With
G = X M⁻¹ Xᵀ, all widths are computed at once: ‖x_ij‖² = G_ii + G_jj − 2G_ij.

Where the paper leaves a choice:

- Feedback: users are taken to examine positions down to one below the last click. The pairs are those of the disjoint
  neighbouring positions (1, 2), (3, 4), … of which exactly one was clicked; padding forms no pairs.
- α is a constant by default. Lemma 1's α_t has the factor k_μ/c_μ, which for features in [0, 1]^d is of the order of
  exp(√d): with it no pair ever becomes certain in practice.
- The defaults are eq. 1's sum of losses, λ = 10 and α = 0.1: of 30 settings of loss, λ and α the one of the highest
  score, half of it NDCG@10 on validation queries and half cumulative NDCG@10 online, on the mean over three datasets;
  three datasets tell it from none of the others (benchmarks/results/pairrank-default.md).
- θ̂ is the minimiser of eq. 1 over all pairs so far, up to the approximations that ``_pairwise_estimate`` explains.

The released code (yilingjia/PairRank) differs from print; ``PairRank.released()`` is what it does by default:

- θ̂ minimises the mean of the losses plus λ‖θ‖², so that the weight of λ grows with the number of pairs, and M starts
  from the same λI. λ is 0.5, and 0.1 in the example of its README.
- α is the constant 0.01, and 0.1 in that example.
- Independent pairs are not those of neighbouring positions: the clicked and the examined but unclicked documents of a
  list are each put in random order and matched one with one. An option of it takes all such pairs instead.
- Its users may stop at every document that they view, clicked or not: ``graded_user(…, stop="view")``.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import open_probability, positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.policies._blocks import (
    blocks,
    by_size,
    certain_orders,
    explored_list,
    independent_pairs,
    matched_pairs,
    random_words,
    widths,
)
from jaxrank.policies._online import documents
from jaxrank.policies._pairwise_estimate import PairwiseEstimate, add_pairs, initial_estimate, projected, ridge_of


class PairRankState(NamedTuple):
    estimate: PairwiseEstimate  # θ̂, a root of M⁻¹ and log det M, from all pairs so far


@pytree
class PairRank:
    """PairRank: divide and conquer; documents are in random order within blocks of uncertain order.

    Args:
      exploration: "random" shuffles every block (PairRank_R); "conservative" also keeps the certain orders within
        blocks (PairRank_C): each position gets, uniformly chosen, a document with no certain predecessor left.
      confidence: "constant" for ``alpha``, "lemma1" for α_t of Lemma 1; its √λ·Q is λ/√λ_M·Q if M has another λ_M.
      alpha: the constant α.
      regularization: λ.
      confidence_regularization: λ of M, which is ``regularization`` by default.
      loss: "sum" minimises Σ log(1 + exp(−x_ijᵀθ)) + λ/2·‖θ‖² over all pairs so far (eq. 1), "mean" their mean loss
        plus λ·‖θ‖², as released, which is eq. 1 with 2λ times the number of pairs in the place of λ.
      pairs: "neighbours" at disjoint positions, or "matched" at random, as released.
      delta: δ₁ of Lemma 1; 1/T by default (Theorem 1).
      norm_bound: Q of Lemma 1, an upper bound on ‖θ‖. Its R is 1/2, and ‖x_ij‖ ≤ √d.
      projection: move θ̂ to ‖θ‖ ≤ Q by eq. 4, which Lemma 1 assumes; in one linearisation around θ̂.
      window: the number of steps whose pairs are stored, K/2·d numbers for each step; rounded up to a multiple of 64.
        The estimate approximates older pairs.
      horizon: T of the default δ₁, at least the number of steps of the run, which it is by default.

    Reference: Jia, Wang, Guo, Wang: PairRank: online pairwise learning to rank by divide-and-conquer. WWW 2021.
    """

    exploration: str = static(default="conservative", choices=("random", "conservative"))
    confidence: str = static(default="constant", choices=("constant", "lemma1"))
    alpha: Any = array(ndim=0, check=positive, default=0.1)
    regularization: Any = array(ndim=0, check=positive, default=10.0)
    confidence_regularization: Any = array(ndim=0, check=positive, default=None)
    loss: str = static(default="sum", choices=("sum", "mean"))
    pairs: str = static(default="neighbours", choices=("neighbours", "matched"))
    delta: Any = array(ndim=0, check=open_probability, default=None)
    norm_bound: Any = array(ndim=0, check=positive, default=1.0)
    projection: bool = static(default=False)
    window: int = static(default=2048, minimum=1)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    @classmethod
    def released(cls, **options: Any) -> "PairRank":
        """PairRank as in the released code with its default hyper-parameters, unless ``options`` say otherwise."""
        own: dict[str, Any] = {"loss": "mean", "pairs": "matched", "alpha": 0.01, "regularization": 0.5}
        return cls(**own | options)

    def init(self, key: Key, query: Query) -> PairRankState:
        d = documents(query, self)[0].shape[1]
        if query.list_size < 2:
            raise ValueError(f"PairRank needs lists of at least 2 positions, for pairs; got {query.list_size}")
        return PairRankState(initial_estimate(d, query.list_size // 2, self.window, self._m_regularization()))  # line 1

    def rank(self, key: Key, state: PairRankState, query: Query) -> Array:
        K, exploration = query.list_size, self.exploration
        features, mask = documents(query, self)  # line 2

        def choose(mask: Array, features: Array, words: Array, theta: Array, root: Array, alpha: Array) -> Array:
            scores = features @ theta
            certain = certain_orders(scores, widths(features, root), alpha, mask)  # line 3; line 4 is the rest
            return explored_list(words, scores, certain, mask, K, exploration)  # lines 5–6

        words = random_words(key, exploration, K, mask.shape[0])
        alpha = self._alpha(state, features.shape[1])
        return by_size(choose, K, mask, features, words, self.weights(state), state.estimate.root, alpha)

    def update(self, key: Key, state: PairRankState, query: Query, ranking: Array, clicks: Array) -> PairRankState:
        features, mask = documents(query, self)
        if self.pairs == "neighbours":
            pairs = independent_pairs(features[ranking], clicks, mask[ranking])  # lines 7–8
        else:
            words = jax.random.bits(key, ranking.shape, jnp.uint32)
            pairs = matched_pairs(words, features[ranking], clicks, mask[ranking])
        return PairRankState(
            add_pairs(state.estimate, pairs, query.step, self.regularization, self.loss)  # lines 9–10
        )

    def score(self, state: PairRankState, features: Array) -> Array:
        """float[...]: scores of documents [..., d], for probes."""
        return features @ self.weights(state)

    def weights(self, state: PairRankState) -> Array:
        """float[d]: θ̂, for probes."""
        if self.projection:
            return projected(state.estimate, self.regularization, self.loss, self.norm_bound)
        return state.estimate.theta

    def block_numbers(self, state: PairRankState, query: Query) -> Array:
        """int32[L]: the number of each document's block, 0 for the top one, for probes."""
        features, mask = documents(query, self)
        scores, alpha = self.score(state, features), self._alpha(state, features.shape[1])
        certain = certain_orders(scores, widths(features, state.estimate.root), alpha, mask)
        return blocks(scores, certain, mask)

    def _alpha(self, state: PairRankState, num_features: int) -> Array:
        """float[]: α, or α_t of Lemma 1."""
        if self.confidence == "constant":
            return self.alpha
        steepest = 1 / 4  # k_μ
        z = self.norm_bound * jnp.sqrt(float(num_features))
        flattest = jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)  # c_μ
        if self.delta is None and self.horizon is None:
            raise ValueError("PairRank.horizon must be given outside of simulate, which knows it; got None")
        delta = 1 / self.horizon if self.delta is None else self.delta
        noise = jnp.sqrt(0.25 * (state.estimate.log_det - 2 * jnp.log(delta)))
        ridge = ridge_of(state.estimate, self.regularization, self.loss)
        bias = ridge / jnp.sqrt(self._m_regularization()) * self.norm_bound  # ‖λθ*‖ in the norm of M⁻¹, at most
        return 2 * steepest / flattest * (noise + bias)

    def _m_regularization(self) -> Array:
        return self.regularization if self.confidence_regularization is None else self.confidence_regularization
