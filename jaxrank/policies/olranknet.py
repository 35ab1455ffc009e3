"""OLRankNet and OLLambdaRank: PairRank's exploration with a neural ranker (Jia and Wang, WWW 2022, Algorithm 1).

The network f is trained on the pairs that clicks reveal, by the loss of RankNet or of LambdaRank. Near its initial
parameters, a wide network is linear in them (the neural tangent kernel). So the gradient g(x) = ∇f(x; θ) takes the
place of the features in PairRank: with g_ij = g(x_i) − g(x_j), a pair is certain if

    σ(f_i − f_j) − α·‖g_ij‖ > 1/2,

in the norm of A⁻¹, where A = λI + Σ g_ij g_ijᵀ over all pairs so far, each at the θ that chose its list. Blocks, lists
and pairs are those of PairRank.

The full text of the paper was not at hand: this is written from its abstract, from PairRank's paper and from the
released code (HCDM/OnlineLearningToRank). Where they leave a choice, or time and memory have to stay constant:

- A as printed has as many rows as the network has parameters. ``confidence="diagonal"``, the default, keeps only its
  diagonal, as the released code does for large networks ("gd_diag"); "full" keeps a root of A⁻¹,
  updated as PairRank does ("gd").
- The paper scales gradients by 1/√m and λ by the width m. As in the released code, m is 1 here. The theorem's α_t and
  its approximation error ε(m) are replaced by the constant α, again as released.
- When and on what the network is trained is explained in ``_network``: every ``train_every`` steps, by
  ``gradient_steps`` gradient steps from the last θ. The released code resets the network in every step with a pair, and
  then takes 20 epochs of Adam over all pairs; its regulariser pulls θ to 0 instead of θ₀.
- OLLambdaRank weights the loss of a pair by |ΔNDCG|: the change of NDCG if the two documents changed places in the
  order of the current scores. As released, NDCG is that of the examined documents of the list, clicks being the grades.
- The released network has one layer of 100 units with ReLU; here it is any ranker, by default 32 units with tanh.
- ``exploration`` and ``pairs`` are PairRank's options, with its defaults.
"""

from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrank.core.checks import positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.learning.rankers import Params
from jaxrank.policies._blocks import certain_orders, widths
from jaxrank.policies._network import History, Lists, Network, NeuralPairwise, differences
from jaxrank.policies._pairwise_estimate import root_change


class OLRankNetState(NamedTuple):
    network: Network
    confidence: Array  # float[p], the diagonal of A, or float[p, p], S with SSᵀ = A⁻¹
    history: History


@pytree
class OLRankNet(NeuralPairwise):
    """OLRankNet: a neural RankNet that explores only the pairs of documents whose order is uncertain.

    Args:
      exploration: "random" shuffles every block of uncertain order; "conservative" also keeps the certain orders within
        blocks.
      pairs: "neighbours" at disjoint positions, or "matched" at random, as released.
      regularization: λ, of the loss and of A.
      learning_rate: η of the gradient steps.
      gradient_steps: J, the number of gradient steps of a training.
      train_every: the number of steps from one training to the next.
      batch_size: the number of lists whose pairs a gradient step takes.
      window: the number of steps whose lists are stored, K·d numbers for each step.
      ranker: what scores documents, any ``(init, apply)``.
      optimizer: an optax ``GradientTransformation`` instead of plain steps of ``learning_rate``.
      confidence: of A, its "diagonal" only, or "full": as many numbers as the square of the ranker's parameters.
      alpha: the constant α.

    Reference: Jia, Wang: Learning neural ranking models online from implicit user feedback. WWW 2022.
    """

    confidence: str = static(default="diagonal", choices=("diagonal", "full"))
    alpha: Any = array(ndim=0, check=positive, default=0.1)

    def init(self, key: Key, query: Query) -> OLRankNetState:
        history = self._no_history(query)
        network = self._new_network(key, history.lists.documents.shape[-1])
        size = _raveled(network.params).shape[0]
        diagonal = self.confidence == "diagonal"
        first = self.regularization * jnp.ones(size) if diagonal else jnp.eye(size) / jnp.sqrt(self.regularization)
        return OLRankNetState(network, first, history)

    def update(self, key: Key, state: OLRankNetState, query: Query, ranking: Array, clicks: Array) -> OLRankNetState:
        pair_key, batch_key = jax.random.split(key)
        new = self._new_list(pair_key, query, ranking, clicks)
        slopes = new.pairs[0] @ self._tangents(state.network.params, new.documents[0])  # g_ij, [n, p]
        if self.confidence == "diagonal":
            confidence = state.confidence + jnp.sum(slopes**2, axis=0)
        else:
            confidence = state.confidence + root_change(state.confidence, slopes)[0]
        network, history = self._learn(batch_key, state.network, state.history, new, query.step)
        return OLRankNetState(network, confidence, history)

    def score(self, state: OLRankNetState, features: Array) -> Array:
        """float[...]: scores of documents [..., d], for probes."""
        return self.ranker.apply(state.network.params, features)

    def weights(self, state: OLRankNetState) -> Array:
        """float[p]: θ, for probes."""
        return _raveled(state.network.params)

    def _belief(self, state: OLRankNetState) -> tuple[Any, ...]:
        root = jax.lax.rsqrt(state.confidence) if self.confidence == "diagonal" else state.confidence
        return state.network.params, root, self.alpha

    def _orders(self, mask: Array, features: Array, *belief: Any) -> tuple[Array, Array]:
        params, root, alpha = belief
        scores = self.ranker.apply(params, features)
        return scores, certain_orders(scores, widths(self._tangents(params, features), root), alpha, mask)

    def _tangents(self, params: Params, features: Array) -> Array:
        """float[L, p]: the gradients g(x) of documents [L, d]."""
        return jax.vmap(lambda x: _raveled(jax.grad(self.ranker.apply)(params, x)))(features)

    def _pair_loss(self, differences: Array, scores: Array, lists: Lists) -> Array:
        return jax.nn.softplus(-differences)


@pytree
class OLLambdaRank(OLRankNet):
    """OLLambdaRank: OLRankNet with the loss of LambdaRank, which weights a pair by what it changes in NDCG.

    Args and reference: those of ``OLRankNet``.
    """

    def _pair_loss(self, differences: Array, scores: Array, lists: Lists) -> Array:
        return ndcg_changes(jax.lax.stop_gradient(scores), lists) * jax.nn.softplus(-differences)


def ndcg_changes(scores: Array, lists: Lists) -> Array:
    """float[b, n]: |ΔNDCG| of every pair, if its documents changed places in the order of the scores [b, K].

    Only examined documents have a place. Equal scores are in list order.
    """
    b, K = scores.shape
    order = jnp.argsort(jnp.where(lists.labels >= 0, scores, -jnp.inf), axis=1, descending=True, stable=True)
    discount = 1 / jnp.log2(2.0 + jnp.arange(K))
    of_document = jnp.zeros_like(scores).at[jnp.arange(b)[:, None], order].set(jnp.broadcast_to(discount, (b, K)))
    clicks = jnp.sum(lists.labels > 0, axis=1)
    ideal = jnp.cumsum(discount)[jnp.maximum(clicks, 1) - 1]  # of the clicked documents on top
    return jnp.abs(differences(lists.pairs, of_document)) / ideal[:, None]


def _raveled(params: Params) -> Array:
    return jax.flatten_util.ravel_pytree(params)[0]
