"""RankNet online, without exploration and with ε-greedy exploration (PairRank, Sec. 4.1).

RankNet's loss of a preference of d_k over d_l is −log σ(f_k − f_l); both policies take one gradient step on the sum
over the preferences of each list. Where PairRank's paper leaves a choice:

- "The same click preference inference method in PairRank" is taken to mean its independent pairs, at disjoint
  neighbouring positions. ``pairs="all"`` prefers every clicked document over every examined one without a click.
- Ties of scores are broken at random. Before the first click, all scores of a linear ranker are equal.
- ε-greedy explores as in the released code: with probability ε a position takes the next document of a random
  permutation, otherwise the next best document; documents already in the list are skipped.
"""

from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrank.core.checks import positive, probability
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ranking import best_documents
from jaxrank.core.types import Array, Key, Query
from jaxrank.learning.losses import pairwise_logistic
from jaxrank.learning.rankers import Ranker, linear
from jaxrank.policies._online import (
    GradientRanker,
    RankerState,
    best_of_shuffled,
    documents,
    merge,
    preferences,
    shuffle,
)


class _RankNet(GradientRanker):
    """The common part: the gradient step."""

    pairs: str

    def update(self, key: Key, state: RankerState, query: Query, ranking: Array, clicks: Array) -> RankerState:
        features, mask = documents(query, self)
        listed = features[ranking]
        preferred = preferences(clicks, mask[ranking], self.pairs)
        slope = jax.grad(pairwise_logistic)(self.ranker.apply(state.params, listed), preferred)
        return self._ascend(state, listed, -slope)


@pytree
class SGDRankNet(_RankNet):
    """SGD RankNet: always shows the documents by the current ranker's scores, without exploration.

    Args:
      learning_rate: of the gradient step.
      pairs: "independent" or "all" preferences of a list.
      ranker: what scores documents, any ``(init, apply)``.
      optimizer: an optax ``GradientTransformation`` instead of plain steps of ``learning_rate``.
    """

    learning_rate: Any = array(ndim=0, check=positive, default=0.1)
    pairs: str = static(default="independent", choices=("all", "independent"))
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
    pairs: str = static(default="independent", choices=("all", "independent"))
    ranker: Ranker = static(default=linear)
    optimizer: Any = static(default=None)

    def rank(self, key: Key, state: RankerState, query: Query) -> Array:
        features, mask = documents(query, self)
        order_key, coin_key = jax.random.split(key)
        order, coins = shuffle(order_key, mask), jax.random.uniform(coin_key, (query.list_size,))
        best = best_of_shuffled(order, self.score(state, features), mask, query.list_size)
        # The permutations that break ties and that explore must differ: otherwise, if many scores are equal, exploring
        # would often take the best document again.
        explore = shuffle(jax.random.fold_in(order_key, 1), mask)[: query.list_size]
        return merge(jnp.where(coins < self.epsilon, 1, 0), jnp.stack([best, explore]))


@pytree
class FixedRanker:
    """A ranker that does not learn, for comparing online policies with a ranker trained offline.

    Args:
      params: the ranker's parameters.
      ranker: what scores documents, any ``(init, apply)``.
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
