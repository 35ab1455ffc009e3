"""Dueling bandit gradient descent: random changes of the current ranker, compared by clicks on interleaved lists.

DBGD (Yue and Joachims, ICML 2009) has one candidate w + δu, where u is a random unit vector. Its list and that of w are
interleaved by team draft (Radlinski et al., CIKM 2008). If the candidate's team gets more clicks, w ← w + γu. MGD
(Schuth et al., WSDM 2016) has n candidates and multileaves all n + 1 lists by team draft. It takes a step in the mean
direction of the winners, which are all candidates that got more clicks than w.

Where the papers leave a choice:

- In a draft, rankers pick in rounds, each round in a new random order. The released code (of Oosterhuis and de Rijke,
  and of PairRank) assigns the common prefix of all lists to no ranker, and begins the draft below it:
  ``interleaving="released"``. By default the prefix is drafted like the rest.
- Ties of scores are broken at random, in the same way for all rankers of a step.
- A ranker's parameters are taken as one flat vector, so any ``(init, apply)`` works.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrank.core.checks import positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.learning.rankers import Ranker, linear
from jaxrank.policies._online import best_of_shuffled, documents, merge, shuffle, shuffled


class DuelingState(NamedTuple):
    weights: Array  # float[parameters], w
    directions: Array  # float[n, parameters], u of the next list's candidates
    turns: Array  # int32[K], the ranker that fills each position of the next list, or of what is drafted; 0 is w
    ties: Array  # uint32[L], the random order of documents with equal scores; uint32[0] if the prefix is drafted too


@pytree
class MGD:
    """MGD: a step towards the mean of the candidates that won a multileaved comparison.

    Args:
      num_candidates: n.
      distance: δ, the distance of the candidates from w.
      learning_rate: γ, the length of the step.
      ranker: what scores documents, any ``(init, apply)``.
      interleaving: "draft" for all positions, or "released" to credit the common prefix of all lists to nobody.

    Reference: Schuth, Oosterhuis, Whiteson, de Rijke: Multileave gradient descent for fast online learning to rank.
    WSDM 2016.
    """

    of_list: ClassVar[tuple[str, ...]] = ("directions", "turns", "ties")

    num_candidates: int = static(default=9, minimum=1)
    distance: Any = array(ndim=0, check=positive, default=1.0)
    learning_rate: Any = array(ndim=0, check=positive, default=0.01)
    ranker: Ranker = static(default=linear)
    interleaving: str = static(default="draft", choices=("draft", "released"))

    def init(self, key: Key, query: Query) -> DuelingState:
        params_key, next_key = jax.random.split(key)
        params = self.ranker.init(params_key, documents(query, self)[0].shape[1])
        return self._next(next_key, jax.flatten_util.ravel_pytree(params)[0], query)

    def rank(self, key: Key, state: DuelingState, query: Query) -> Array:
        _, mask = documents(query, self)
        if self.interleaving == "draft":
            return merge(state.turns, self._lists(state, query, shuffle(key, mask)))
        lists, teams = self._drafted(state, query)
        return merge(jnp.maximum(teams, 0), lists)

    def _drafted(self, state: DuelingState, query: Query) -> tuple[Array, Array]:
        """int32[n + 1, K], the lists of all rankers, and int32[K], who fills a position: −1 in their common prefix."""
        _, mask = documents(query, self)
        lists = self._lists(state, query, shuffled(state.ties, mask))
        positions = jnp.arange(query.list_size)
        prefix = jnp.min(jnp.where(jnp.any(lists != lists[:1], axis=0), positions, query.list_size))
        return lists, jnp.where(positions < prefix, -1, state.turns[positions - prefix])

    def _lists(self, state: DuelingState, query: Query, order: Array) -> Array:
        """int32[n + 1, K]: the lists of w and of all candidates; equal scores come in the order of ``order``."""
        features, mask = documents(query, self)
        candidates = state.weights[None, :] + self.distance * state.directions
        rankers = jnp.concatenate([state.weights[None, :], candidates])
        scores = jax.vmap(lambda weights: self._apply(weights, features))(rankers)
        return jax.vmap(lambda s: best_of_shuffled(order, s, mask, query.list_size))(scores)

    def update(self, key: Key, state: DuelingState, query: Query, ranking: Array, clicks: Array) -> DuelingState:
        teams = state.turns if self.interleaving == "draft" else self._drafted(state, query)[1]
        credit = jnp.sum(clicks[None, :] & (teams[None, :] == jnp.arange(self.num_candidates + 1)[:, None]), axis=1)
        winners = (credit[1:] > credit[0]).astype(state.weights.dtype)
        mean = winners @ state.directions / jnp.maximum(jnp.sum(winners), 1)
        return self._next(key, state.weights + self.learning_rate * mean, query)

    def score(self, state: DuelingState, features: Array) -> Array:
        """float[...]: the current ranker's scores of documents [..., d], for probes."""
        return self._apply(state.weights, features)

    def weights(self, state: DuelingState) -> Array:
        """float[n]: all parameters of the current ranker, for probes."""
        return state.weights

    def _next(self, key: Key, weights: Array, query: Query) -> DuelingState:
        """Draws the directions of the candidates and the turns of the draft, for the next list."""
        direction_key, turn_key = jax.random.split(key)
        directions = jax.random.normal(direction_key, (self.num_candidates, weights.shape[0]))
        directions /= jnp.linalg.norm(directions, axis=1, keepdims=True)
        turns = draft_turns(turn_key, self.num_candidates + 1, query.list_size)
        num_ties = 0 if self.interleaving == "draft" else query.num_items
        ties = jax.random.bits(jax.random.fold_in(turn_key, 1), (num_ties,), jnp.uint32)
        return DuelingState(weights, directions, turns, ties)

    def _apply(self, weights: Array, features: Array) -> Array:
        # The structure of the parameters, without computing any.
        shape = jax.eval_shape(lambda: self.ranker.init(jax.random.key(0), features.shape[-1]))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        return self.ranker.apply(jax.flatten_util.ravel_pytree(zeros)[1](weights), features)


@pytree
class DBGD(MGD):
    """DBGD: a step towards the candidate if it won an interleaved comparison. MGD with one candidate.

    Args:
      distance: δ, the distance of the candidate from w.
      learning_rate: γ, the length of the step.
      ranker: what scores documents, any ``(init, apply)``.
      interleaving: "draft" for all positions, or "released" to credit the common prefix of both lists to nobody.

    Reference: Yue, Joachims: Interactively optimizing information retrieval systems as a dueling bandits problem.
    ICML 2009.
    """

    num_candidates: ClassVar[int] = 1  # type: ignore[misc]


def draft_turns(key: Key, num_rankers: int, list_size: int) -> Array:
    """int32[K]: the ranker that picks at each position: rounds of all rankers, each in a new random order."""
    rounds = -(-list_size // num_rankers)
    words = jax.random.bits(key, (rounds, num_rankers), jnp.uint32)
    return jnp.argsort(words, axis=1).reshape(-1)[:list_size].astype(jnp.int32)
