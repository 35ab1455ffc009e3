"""What the policies of a query stream share: lists by score, preferences from clicks, gradient steps.

Documents that are not there (``query.mask``) score −∞: they come last, in document order.
"""

from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import optax

from jaxrank.core.ranking import best_documents
from jaxrank.core.types import Array, Key, Query
from jaxrank.learning.rankers import Params, Ranker


class RankerState(NamedTuple):
    params: Params  # of the ranker
    optimizer: Any  # optax's state


def documents(query: Query, policy: Any) -> tuple[Array, Array]:
    """float[L, d] and bool[L]: the query's features and which documents there are."""
    if query.features is None:
        raise ValueError(f"{type(policy).__name__} needs an environment with features, as QueryStream")
    mask = jnp.ones(query.num_items, bool) if query.mask is None else query.mask
    return query.features, mask


def shuffle(key: Key, mask: Array) -> Array:
    """int32[L]: the documents that are there in uniformly random order, then the others."""
    words = jax.random.bits(key, mask.shape, jnp.uint32) >> 1
    return jnp.argsort(jnp.where(mask, words, jnp.uint32(2**32 - 1)), stable=True).astype(jnp.int32)


def best_of_shuffled(order: Array, scores: Array, mask: Array, list_size: int) -> Array:
    """``best_documents``, equal scores in the order of the shuffle ``order`` [L]: ties are broken at random."""
    return order[best_documents(scores[order], mask[order], list_size)]


def merge(choices: Array, lists: Array) -> Array:
    """int32[K]: at position p the first document of lists[choices[p]] [n, K] that is not above p."""
    K = choices.shape[0]
    taken = jnp.zeros(lists.shape, bool)
    merged = []
    for p in range(K):
        source = lists[choices[p]]
        first = jnp.argmax(~taken[choices[p]])
        merged.append(source[first])
        taken |= lists == source[first]
    return jnp.stack(merged)


def examined(clicks: Array, shown: Array) -> Array:
    """bool[K]: positions down to one past the last click, where there is a document; none without a click."""
    positions = jnp.arange(clicks.shape[0])
    last = jnp.max(jnp.where(clicks, positions, -2))
    return (positions <= last + 1) & shown


def preferences(clicks: Array, shown: Array, pairs: str) -> Array:
    """bool[K, K]: where the document at position k was clicked and the examined one at l was not.

    ``pairs``: "all" such pairs, or "independent" ones, at the disjoint positions (1, 2), (3, 4), … (PairRank, G_ind).
    """
    read = examined(clicks, shown)
    preferred = (clicks & read)[:, None] & (~clicks & read)[None, :]
    if pairs == "all":
        return preferred
    K = clicks.shape[0]
    half = jnp.arange(K) // 2
    whole = half < K // 2
    return preferred & (half[:, None] == half[None, :]) & (whole[:, None] & whole[None, :])


class GradientRanker:
    """A ranker that takes one optax step for each list."""

    ranker: Ranker
    optimizer: Any
    learning_rate: Any

    def init(self, key: Key, query: Query) -> RankerState:
        params = self.ranker.init(key, documents(query, self)[0].shape[1])
        return RankerState(params, self._optimizer().init(params))

    def score(self, state: RankerState, features: Array) -> Array:
        """float[...]: the learnt ranker's scores of documents [..., d]: for probes."""
        return self.ranker.apply(state.params, features)

    def weights(self, state: RankerState) -> Array:
        """float[n]: all parameters of the learnt ranker: for probes."""
        return jax.flatten_util.ravel_pytree(state.params)[0]

    def _optimizer(self) -> Any:
        return optax.sgd(self.learning_rate) if self.optimizer is None else self.optimizer

    def _ascend(self, state: RankerState, features: Array, weights: Array) -> RankerState:
        """A step up Σ weight·score over the shown documents' ``features`` [K, d], with constant ``weights`` [K]."""
        down = jax.grad(lambda params: -jnp.dot(weights, self.ranker.apply(params, features)))(state.params)
        updates, optimizer = self._optimizer().update(down, state.optimizer, state.params)
        return RankerState(optax.apply_updates(state.params, updates), optimizer)
