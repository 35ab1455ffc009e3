"""What the policies for a query stream share: lists by score, preferences from clicks, gradient steps.

Padding, where ``query.mask`` is false, scores −∞: it comes after all documents, in the order of its rows.
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
    """float[L, d] and bool[L]: the query's features, and its mask, which is false for padding."""
    if query.features is None:
        raise ValueError(
            f"{type(policy).__name__} needs an environment with features, as QueryStream has; the query has none"
        )
    mask = jnp.ones(query.num_items, bool) if query.mask is None else query.mask
    return query.features, mask


def shuffle(key: Key, mask: Array) -> Array:
    """int32[L]: the documents in uniformly random order, then the padding."""
    return shuffled(jax.random.bits(key, mask.shape, jnp.uint32), mask)


def shuffled(words: Array, mask: Array) -> Array:
    """int32[L]: the documents in the order of random ``words`` uint32[L], then the padding."""
    return jnp.argsort(jnp.where(mask, words >> 1, jnp.uint32(2**32 - 1)), stable=True).astype(jnp.int32)


def best_of_shuffled(order: Array, scores: Array, mask: Array, list_size: int) -> Array:
    """``best_documents`` with ties broken at random: equal scores come in the order of the shuffle ``order`` [L]."""
    return order[best_documents(scores[order], mask[order], list_size)]


def merge(choices: Array, lists: Array) -> Array:
    """int32[K]: at position p the first document of the list lists[choices[p]] that is not above p; lists [n, K]."""
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
    """bool[K]: the positions with a document, down to one below the last click; none if there is no click."""
    positions = jnp.arange(clicks.shape[0])
    last = jnp.max(jnp.where(clicks, positions, -2))
    return (positions <= last + 1) & shown


def preferences(clicks: Array, shown: Array, pairs: str) -> Array:
    """bool[K, K]: was the document at position k clicked, and the one at l examined but not clicked?

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
    """A policy whose ranker takes one optax step for each list."""

    ranker: Ranker
    optimizer: Any
    learning_rate: Any

    def init(self, key: Key, query: Query) -> RankerState:
        params = self.ranker.init(key, documents(query, self)[0].shape[1])
        return RankerState(params, self._optimizer().init(params))

    def score(self, state: RankerState, features: Array) -> Array:
        """float[...]: the learnt ranker's scores of documents [..., d], for probes."""
        return self.ranker.apply(state.params, features)

    def weights(self, state: RankerState) -> Array:
        """float[n]: all parameters of the learnt ranker, for probes."""
        return jax.flatten_util.ravel_pytree(state.params)[0]

    def _optimizer(self) -> Any:
        return optax.sgd(self.learning_rate) if self.optimizer is None else self.optimizer

    def _ascend(self, state: RankerState, features: Array, weights: Array) -> RankerState:
        """One step of gradient ascent on Σ weight·score of the shown documents.

        ``features`` [K, d] are theirs, and ``weights`` [K] are constants.
        """
        down = jax.grad(lambda params: -jnp.dot(weights, self.ranker.apply(params, features)))(state.params)
        updates, optimizer = self._optimizer().update(down, state.optimizer, state.params)
        return RankerState(optax.apply_updates(state.params, updates), optimizer)
