"""P2NeurRank: explore the pairs on which an ensemble disagrees (Jia and Wang, SIGIR 2022).

N networks are trained on the same pairs, each with Gaussian noise of its own added to the labels. A pair is certain if
all N put its documents in the same order: f_n(x_i) > f_n(x_j) for every n. This takes the place of OLRankNet's
confidence: no matrix over the parameters, no gradient of any document. Blocks, lists and pairs are those of PairRank.

With the label y = 1 of a clicked document above an unclicked one and the noise γ ~ N(0, ν²), the cross-entropy loss is

    −(y + γ)·log σ(z) − (1 − y − γ)·log(1 − σ(z)) = log(1 + exp(−z)) − γ·z,    z = f_i − f_j.

Blocks need no graph search here either. What all networks agree on is an order, so that its uncertain pairs fall into
components of which each is certainly above or below all of each other one; the order of any of the networks shows
them.

The full text of the paper was not at hand: this is written from its abstract and introduction, from PairRank's paper
and from OLRankNet's released code; that of P2NeurRank was not found. What is chosen here:

- The noise of a pair is drawn once, when the pair is observed, and stays with it. If it were drawn anew in every
  gradient step, the steps would average it away.
- The networks differ in their initial parameters, and share the mini-batches.
- N is 4 and ν is 0.1 by default. The learnt ranker, which probes look at, is the mean of the networks' scores.
- When and on what the networks are trained is explained in ``_network``. By default they have 32 units with tanh.
"""

from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrank.core.checks import positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.learning.rankers import Params
from jaxrank.policies._network import History, Lists, Network, NeuralPairwise


class P2NeurRankState(NamedTuple):
    networks: Network  # N of them: every leaf has a leading axis
    history: History


@pytree
class P2NeurRank(NeuralPairwise):
    """P2NeurRank: an ensemble trained with perturbed feedback; only what it disagrees on is explored.

    Args:
      num_rankers: N, the number of networks.
      noise: ν, the standard deviation of the noise.

    The other arguments are those of ``OLRankNet``, without ``confidence`` and ``alpha``.

    Reference: Jia, Wang: Scalable exploration for neural online learning to rank with perturbed feedback. SIGIR 2022.
    """

    num_rankers: int = static(default=4, minimum=1)
    noise: Any = array(ndim=0, check=positive, default=0.1)

    def init(self, key: Key, query: Query) -> P2NeurRankState:
        history = self._no_history(query)
        keys = jax.random.split(key, self.num_rankers)
        networks = jax.vmap(lambda key: self._new_network(key, history.lists.documents.shape[-1]))(keys)
        noise = jnp.zeros((self.window, self.num_rankers, history.lists.pairs.shape[1]))
        return P2NeurRankState(networks, history._replace(lists=history.lists._replace(noise=noise)))

    def update(self, key: Key, state: P2NeurRankState, query: Query, ranking: Array, clicks: Array) -> P2NeurRankState:
        pair_key, batch_key, noise_key = jax.random.split(key, 3)
        new = self._new_list(pair_key, query, ranking, clicks)
        noise = self.noise * jax.random.normal(noise_key, (1, self.num_rankers, new.pairs.shape[1]))
        new = new._replace(noise=noise)
        return P2NeurRankState(*self._learn(batch_key, state.networks, state.history, new, query.step))

    def score(self, state: P2NeurRankState, features: Array) -> Array:
        """float[...]: the mean of the networks' scores of documents [..., d], for probes."""
        return jnp.mean(self._scores(state.networks.params, features), axis=0)

    def weights(self, state: P2NeurRankState) -> Array:
        """float[n]: the parameters of all networks, for probes."""
        return jax.flatten_util.ravel_pytree(state.networks.params)[0]

    def _belief(self, state: P2NeurRankState) -> tuple[Any, ...]:
        return (state.networks.params,)

    def _orders(self, mask: Array, features: Array, *belief: Any) -> tuple[Array, Array]:
        (params,) = belief
        scores = self._scores(params, features)
        agreed = jnp.all(scores[:, :, None] > scores[:, None, :], axis=0)
        return scores[0], agreed & mask[:, None] & mask[None, :]

    def _scores(self, params: Params, features: Array) -> Array:
        """float[N, ...]: the scores of documents [..., d] by every network."""
        return jax.vmap(self.ranker.apply, in_axes=(0, None))(params, features)

    def _trained(self, networks: Network, lists: Lists, num_pairs: Array) -> Network:
        train = super()._trained
        noise = lists.noise  # [J, b, N, n]
        return jax.vmap(lambda network, own: train(network, lists._replace(noise=own), num_pairs), in_axes=(0, 2))(
            networks, noise
        )

    def _pair_loss(self, differences: Array, scores: Array, lists: Lists) -> Array:
        assert lists.noise is not None
        return jax.nn.softplus(-differences) - lists.noise * differences
