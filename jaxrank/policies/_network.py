"""What OLRankNet and P2NeurRank share: the lists of the last steps, and networks that are trained on their pairs.

The papers train the network anew at every step, from its initial parameters θ₀ and on all pairs so far: J steps of
gradient descent on Σ loss(f_i − f_j) + λ/2·‖θ − θ₀‖². The time of a step and the memory of a run would then grow with
the number of steps. Here both are constant:

- The lists of the last ``window`` steps are stored, and older ones are forgotten.
- Training continues from the last θ, by J gradient steps. Each takes the mean loss of the pairs of ``batch_size``
  lists, drawn with replacement from the stored ones, plus λ/2·‖θ − θ₀‖² over the number of pairs so far: the papers'
  loss divided by that number.

A pair of positions (i, j), i preferred, is the row e_i − e_j. So rows times scores are the differences f_i − f_j, and
rows times gradients those of the gradients. A row of 0 is no pair.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrank.core.checks import positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query, State
from jaxrank.core.window import put_rows
from jaxrank.learning.rankers import Params, Ranker, mlp
from jaxrank.policies._blocks import (
    blocks,
    by_size,
    explored_list,
    independent_pairs,
    matched_pairs,
    random_words,
)
from jaxrank.policies._online import documents, examined


class Network(NamedTuple):
    """A ranker's parameters, and what training needs besides."""

    params: Params  # θ
    initial: Params  # θ₀
    optimizer: Any  # optax's state


class Lists(NamedTuple):
    """Lists and the clicks on them: those of the last steps, that of step t in row t mod window, or some of them."""

    documents: Array  # float[window, K, d], in list order
    labels: Array  # float[window, K], 1 for a click, 0 for an examined document without one, −1 for all others
    pairs: Array  # float[window, n, K], the rows e_i − e_j
    noise: Array | None = None  # float[window, N, n], that of P2NeurRank's labels


class History(NamedTuple):
    """What the networks are trained on."""

    lists: Lists  # of the last steps
    num_pairs: Array  # int32[], the number of pairs so far, forgotten ones too


@pytree
class NeuralPairwise:
    """A policy that shows certain orders and explores uncertain ones, by networks trained on the pairs of its lists.

    Subclasses say which orders are certain, and the loss of a pair.
    """

    exploration: str = static(default="conservative", choices=("random", "conservative"))
    pairs: str = static(default="neighbours", choices=("neighbours", "matched"))
    regularization: Any = array(ndim=0, check=positive, default=0.1)
    learning_rate: Any = array(ndim=0, check=positive, default=0.03)
    gradient_steps: int = static(default=1, minimum=1)
    train_every: int = static(default=1, minimum=1)
    batch_size: int = static(default=32, minimum=1)
    window: int = static(default=1024, minimum=1)
    ranker: Ranker = static(default=mlp(32))
    optimizer: Any = static(default=None)

    def rank(self, key: Key, state: State, query: Query) -> Array:
        K, exploration, orders = query.list_size, self.exploration, self._orders
        features, mask = documents(query, self)

        def choose(mask: Array, features: Array, words: Array, *belief: Any) -> Array:
            scores, certain = orders(mask, features, *belief)
            return explored_list(words, scores, certain, mask, K, exploration)

        words = random_words(key, exploration, K, mask.shape[0])
        return by_size(choose, K, mask, features, words, *self._belief(state))

    def block_numbers(self, state: State, query: Query) -> Array:
        """int32[L]: the number of each document's block, 0 for the top one, for probes."""
        features, mask = documents(query, self)
        scores, certain = self._orders(mask, features, *self._belief(state))
        return blocks(scores, certain, mask)

    def _belief(self, state: State) -> tuple[Any, ...]:
        """What ``_orders`` needs."""
        raise NotImplementedError

    def _orders(self, mask: Array, features: Array, *belief: Any) -> tuple[Array, Array]:
        """float[L] and bool[L, L]: scores whose order agrees with the certain orders, and which are certain."""
        raise NotImplementedError

    def _pair_loss(self, differences: Array, scores: Array, lists: Lists) -> Array:
        """float[b, n]: the losses of the pairs of b lists, from f_i − f_j [b, n] and all scores [b, K]."""
        raise NotImplementedError

    def _new_network(self, key: Key, num_features: int) -> Network:
        params = self.ranker.init(key, num_features)
        return Network(params, params, self._optimizer().init(params))

    def _no_history(self, query: Query) -> History:
        d, K, W = documents(query, self)[0].shape[1], query.list_size, self.window
        if K < 2:
            raise ValueError(f"{type(self).__name__} needs lists of at least 2 positions, for pairs; got {K}")
        return History(Lists(jnp.zeros((W, K, d)), jnp.full((W, K), -1.0), jnp.zeros((W, K // 2, K))), jnp.int32(0))

    def _new_list(self, key: Key, query: Query, ranking: Array, clicks: Array) -> Lists:
        """The list of this step, as the only row."""
        features, mask = documents(query, self)
        shown, one_hot = mask[ranking], jnp.eye(ranking.shape[0])
        labels = jnp.where(examined(clicks, shown), clicks.astype(one_hot.dtype), -1)
        if self.pairs == "neighbours":
            pairs = independent_pairs(one_hot, clicks, shown)
        else:
            pairs = matched_pairs(jax.random.bits(key, ranking.shape, jnp.uint32), one_hot, clicks, shown)
        return Lists(features[ranking][None], labels[None], pairs[None])

    def _learn(self, key: Key, network: Network, history: History, new: Lists, step: Array) -> tuple[Network, History]:
        """The history with a new list, and the network trained on it if this step is due."""
        # The new list is written before any is read: otherwise XLA copies the whole window.
        lists = jax.tree.map(lambda rows, row: put_rows(rows, row, step % self.window), history.lists, new)
        num_pairs = history.num_pairs + jnp.sum(_is_pair(new.pairs), dtype=jnp.int32)
        chosen = self.batches(key, step)

        def trained() -> Network:
            return self._trained(network, jax.tree.map(lambda rows: rows[chosen], lists), num_pairs)

        if self.train_every > 1:
            network = jax.lax.cond(step % self.train_every == 0, trained, lambda: network)
        else:
            network = trained()
        return network, History(lists, num_pairs)

    def batches(self, key: Key, step: Array) -> Array:
        """int32[J, b]: the rows of the lists that each gradient step takes, of those stored up to ``step``."""
        filled = jnp.minimum(step, self.window)
        uniform = jax.random.uniform(key, (self.gradient_steps, self.batch_size))
        number = jnp.minimum((uniform * filled).astype(jnp.int32), filled - 1)
        return (step - number) % self.window

    def _trained(self, network: Network, lists: Lists, num_pairs: Array) -> Network:
        """The network after a gradient step for each of the batches of lists [J, b, …]."""
        ridge = self.regularization / jnp.maximum(num_pairs, 1)

        def descend(carry: tuple[Params, Any], batch: Lists) -> tuple[tuple[Params, Any], None]:
            params, state = carry
            there = _is_pair(batch.pairs)

            def mean_loss(params: Params) -> Array:
                scores = self.ranker.apply(params, batch.documents)
                losses = self._pair_loss(differences(batch.pairs, scores), scores, batch)
                return jnp.sum(jnp.where(there, losses, 0)) / jnp.maximum(jnp.sum(there), 1)

            def to_first(slope: Array, theta: Array, first: Array) -> Array:
                return slope + ridge * (theta - first)

            slope = jax.tree.map(to_first, jax.grad(mean_loss)(params), params, network.initial)
            updates, state = self._optimizer().update(slope, state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(descend, (network.params, network.optimizer), lists)
        return Network(params, network.initial, state)

    def _optimizer(self) -> Any:
        return optax.sgd(self.learning_rate) if self.optimizer is None else self.optimizer


def differences(pairs: Array, values: Array) -> Array:
    """float[b, n]: v_i − v_j of every pair, from rows [b, n, K] and the values [b, K] of the lists' documents."""
    return jnp.einsum("bnk,bk->bn", pairs, values)


def _is_pair(pairs: Array) -> Array:
    """bool[…, n]: which of the rows [..., n, K] are pairs."""
    return jnp.any(pairs != 0, axis=-1)
