"""RankNet online, without any exploration and with a blind one, and offline as the bound (PairRank, Sec. 4.1).

RankNet's loss of a preference of d_k over d_l is −log σ(f_k − f_l); both policies take one gradient step on the sum
over the preferences of each list. Where PairRank's paper leaves a choice:

- "The same click preference inference method in PairRank" are its independent pairs, at disjoint neighbouring
  positions; ``pairs="all"`` takes every clicked document over every examined one without a click.
- Ties of scores, all of them before the first click, are broken at random.
- ε-greedy explores as the released code: each position takes, with probability ε, the next of a random permutation,
  otherwise the next best; documents already in the list are passed over.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from jaxrank.policies._online import (
    GradientRanker,
    RankerState,
    best_documents,
    best_of_shuffled,
    check_pairs,
    documents,
    merge,
    preferences,
    shuffle,
)
from jaxrank.pytrees import array, positive, probability, pytree, static
from jaxrank.rankers import Params, Ranker, linear
from jaxrank.types import Array, Key, Query

if TYPE_CHECKING:
    from jaxrank.datasets.queries import QuerySet


class _RankNet(GradientRanker):
    """The gradient step."""

    pairs: str

    def _validate(self) -> None:
        check_pairs(self)

    def update(self, key: Key, state: RankerState, query: Query, ranking: Array, clicks: Array) -> RankerState:
        features, mask = documents(query, self)
        listed = features[ranking]
        preferred = preferences(clicks, mask[ranking], self.pairs)
        weights = ranknet_weights(self.ranker.apply(state.params, listed), preferred)
        return self._ascend(state, listed, weights)


def ranknet_weights(scores: Array, preferred: Array) -> Array:
    """float[n]: −∂/∂f of Σ −log σ(f_k − f_l) over the ``preferred`` pairs (k, l), bool[n, n]."""
    pull = jnp.where(preferred, jax.nn.sigmoid(scores[None, :] - scores[:, None]), 0)
    return jnp.sum(pull, axis=1) - jnp.sum(pull, axis=0)


@pytree
class SGDRankNet(_RankNet):
    """SGD RankNet: always the best list that it knows.

    Args:
      learning_rate: of the gradient step.
      pairs: "independent" or "all" preferences of a list.
      ranker: what scores documents, any ``(init, apply)``.
      optimizer: an optax ``GradientTransformation`` instead of plain steps of ``learning_rate``.
    """

    learning_rate: Any = array(ndim=0, check=positive, default=0.1)
    pairs: str = static(default="independent")
    ranker: Ranker = static(default=linear)
    optimizer: Any = static(default=None)

    def rank(self, key: Key, state: RankerState, query: Query) -> Array:
        features, mask = documents(query, self)
        return best_of_shuffled(shuffle(key, mask), self.score(state, features), mask, query.list_size)


@pytree
class EpsilonGreedy(_RankNet):
    """ε-greedy: RankNet whose list has a random document at each position with probability ε.

    Args:
      epsilon: ε.
      learning_rate: of the gradient step.
      pairs: "independent" or "all" preferences of a list.
      ranker: what scores documents, any ``(init, apply)``.
      optimizer: an optax ``GradientTransformation`` instead of plain steps of ``learning_rate``.

    Reference: Hofmann, Whiteson, de Rijke: Balancing exploration and exploitation in listwise and pairwise online
    learning to rank for information retrieval. Information Retrieval 16, 2013.
    """

    epsilon: Any = array(ndim=0, check=probability, default=0.1)
    learning_rate: Any = array(ndim=0, check=positive, default=0.1)
    pairs: str = static(default="independent")
    ranker: Ranker = static(default=linear)
    optimizer: Any = static(default=None)

    def rank(self, key: Key, state: RankerState, query: Query) -> Array:
        features, mask = documents(query, self)
        order_key, coin_key = jax.random.split(key)
        order, coins = shuffle(order_key, mask), jax.random.uniform(coin_key, (query.list_size,))
        best = best_of_shuffled(order, self.score(state, features), mask, query.list_size)
        # The permutation that breaks ties is not the one that explores: else exploring would often repeat the best.
        explore = shuffle(jax.random.fold_in(order_key, 1), mask)[: query.list_size]
        return merge(jnp.where(coins < self.epsilon, 1, 0), jnp.stack([best, explore]))


def offline_ranknet(
    queries: "QuerySet",
    ranker: Ranker = linear,
    *,
    num_epochs: int = 100,
    learning_rate: float = 0.01,
    batch_size: int = 8,
    regularization: float = 1e-3,
    seed: int = 0,
) -> Params:
    """The upper bound: RankNet trained on the labels, by Adam on all pairs of different grade of each query.

    A query's loss is the mean over its pairs, so that queries count alike. Batches of ``batch_size`` queries are drawn
    anew in every epoch; steps shrink to 0 as a cosine; ``regularization`` is λ of λ/2·‖θ‖². Returns the parameters.
    """
    import optax

    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_epochs * _num_batches(queries, batch_size)))

    def loss(params: Params, index: Array) -> Array:
        features, mask = queries.documents(index)
        rows, _ = queries.rows(index)
        grades = queries.grades[rows]
        scores = ranker.apply(params, features)
        better = (grades[:, None] > grades[None, :]) & mask[:, None] & mask[None, :]
        losses = jnp.where(better, jax.nn.softplus(scores[None, :] - scores[:, None]), 0)
        return jnp.sum(losses) / jnp.maximum(jnp.sum(better), 1)

    def total(params: Params, batch: Array) -> Array:
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(params, batch)) + regularization / 2 * square

    @jax.jit
    def epoch(carry, order):
        def step(carry, batch):
            params, state = carry
            updates, state = optimizer.update(jax.grad(total)(params, batch), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, carry, order)[0]

    params = ranker.init(jax.random.key(seed), queries.num_features)
    carry = (params, optimizer.init(params))
    rng = np.random.default_rng(seed)
    for _ in range(num_epochs):
        count = _num_batches(queries, batch_size) * batch_size
        order = np.resize(rng.permutation(queries.num_queries), count)  # the last batch starts the round anew
        carry = epoch(carry, jnp.asarray(order.reshape(-1, batch_size), jnp.int32))
    return carry[0]


def _num_batches(queries: "QuerySet", batch_size: int) -> int:
    return -(-queries.num_queries // batch_size)


@pytree
class FixedRanker:
    """A ranker that does not learn: for the offline bound among online policies.

    Args:
      params: its parameters.
      ranker: what scores documents.
    """

    params: Any
    ranker: Ranker = static(default=linear)

    def init(self, key: Key, query: Query) -> tuple[()]:
        return ()

    def rank(self, key: Key, state: tuple[()], query: Query) -> Array:
        features, mask = documents(query, self)
        return best_documents(self.score(state, features), mask, query.list_size)

    def update(self, key: Key, state: tuple[()], query: Query, ranking: Array, clicks: Array) -> tuple[()]:
        return state

    def score(self, state: tuple[()], features: Array) -> Array:
        return self.ranker.apply(self.params, features)

    def weights(self, state: tuple[()]) -> Array:
        return jax.flatten_util.ravel_pytree(self.params)[0]
