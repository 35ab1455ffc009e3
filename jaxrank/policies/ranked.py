"""Ranked bandits: one multi-armed bandit per position (Radlinski, Kleinberg, Joachims, ICML 2008, Algorithm 2).

The bandit of position k proposes an item. If it is already shown above k, a random item that is not takes its place,
and the bandit gets reward 0 for its proposal; else its reward is the click at k. Bandits know nothing of each other.

Where the paper leaves a choice:

- Its "arbitrary document" that replaces a proposal is drawn uniformly from those not shown above k.
- Exp3 is that of Auer et al. (SIAM Journal on Computing, 2002), with γ from Corollary 3.2 for a reward of at most T.
  Weights are kept as logarithms, relative to the largest of the position, so that they neither overflow nor stall.
- UCB1 is that of Auer, Cesa-Bianchi and Fischer (Machine Learning, 2002), ŵ + sqrt(2·log t / n). KL-UCB has the level
  of CascadeKL-UCB, log t + 3·log log t. Both propose every item once first, and break ties at random.
- What a bandit proposed cannot be read off a list in which it was replaced, so the proposals of step t + 1 are drawn at
  the end of step t and kept. A position's item was replaced if and only if it differs from the proposal.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.batching import lane_vector
from jaxrank.policies.cascade import kl_ucb, ucb1
from jaxrank.pytrees import array, open_probability, positive, pytree
from jaxrank.ranking import top_items
from jaxrank.types import Array, Key, Query


def _fill_in(key: Key, proposals: Array, num_items: int) -> Array:
    """int32[K]: the proposals [K], from the top; a random item not shown yet instead of one that is.

    One random order of the items serves all positions: whatever was shown, those left are in random order.
    """
    items = jnp.arange(num_items, dtype=jnp.int32)
    left = lane_vector(jax.random.bits(key, (num_items,), jnp.uint32) | 1)  # 0 once the item is shown

    def place(left: Array, proposal: Array) -> tuple[Array, Array]:
        shown_above = jnp.any((items == proposal) & (left == 0))
        item = jnp.where(shown_above, jnp.argmax(left).astype(jnp.int32), proposal)
        return jnp.where(items == item, 0, left), item

    return lane_vector(jax.lax.scan(place, left, proposals)[1])


def _rewards(proposals: Array, ranking: Array, clicks: Array) -> Array:
    """bool[K]: the click, if the position's item is the one its bandit proposed."""
    return clicks & (ranking == proposals)


def _chosen(proposals: Array, num_items: int) -> Array:
    """bool[K, L]: the arm that each bandit pulled."""
    return lane_vector(proposals)[:, None] == jnp.arange(num_items)[None, :]


class _RankedBandits:
    """Shows what the bandits have proposed."""

    def rank(self, key: Key, state: "Exp3State | RankedState", query: Query) -> Array:
        return _fill_in(key, state.proposals, query.num_items)


class Exp3State(NamedTuple):
    log_weights: Array  # float32[K, L], log w of each position's bandit, the largest at 0
    proposals: Array  # int32[K], what the bandits propose at the next step
    probability: Array  # float32[K], with which they proposed it


@pytree
class RankedExp3(_RankedBandits):
    """Ranked bandits with Exp3: for rewards that change as the bandits above learn.

    p = (1 − γ)·w / Σw + γ/L, and after reward r of the proposal i: w_i ← w_i·exp(γ·(r / p_i) / L).

    Args:
      gamma: γ, in (0, 1). By default min(1, sqrt(L·log L / ((e − 1)·T))) for the horizon T.
      horizon: T. By default the number of steps of the run.

    Reference: Radlinski, Kleinberg, Joachims: Learning diverse rankings with multi-armed bandits. ICML 2008.
    """

    gamma: Any = array(ndim=0, check=open_probability, default=None)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def init(self, key: Key, query: Query) -> Exp3State:
        return self._propose(key, jnp.zeros((query.list_size, query.num_items)))

    def update(self, key: Key, state: Exp3State, query: Query, ranking: Array, clicks: Array) -> Exp3State:
        L = query.num_items
        rewards = _rewards(state.proposals, ranking, clicks)
        gain = self._gamma(L) * (rewards / state.probability) / L
        return self._propose(key, state.log_weights + jnp.where(_chosen(state.proposals, L), gain[:, None], 0))

    def statistics(self, state: Exp3State) -> dict[str, Array]:
        """log w of every position and item, the largest of a position at 0, and the proposals of the next step."""
        return {"log_weights": state.log_weights, "proposals": state.proposals}

    def _propose(self, key: Key, log_weights: Array) -> Exp3State:
        K, L = log_weights.shape
        gamma = self._gamma(L)
        log_weights = log_weights - jnp.max(log_weights, axis=1, keepdims=True)
        weights = jnp.exp(log_weights)
        cumulative = jnp.cumsum(weights, axis=1)
        total = cumulative[:, -1:]
        p = (1 - gamma) * weights / total + gamma / L
        p_up_to = (1 - gamma) * cumulative / total + gamma * jnp.arange(1, L + 1)[None, :] / L
        below = p_up_to[:, :-1] <= jax.random.uniform(key, (K, 1))
        proposals = jnp.sum(below, axis=1, dtype=jnp.int32)
        return Exp3State(log_weights, proposals, jnp.sum(jnp.where(_chosen(proposals, L), p, 0), axis=1))

    def _gamma(self, num_items: int) -> Array:
        if self.gamma is not None:
            return self.gamma
        if self.horizon is None:
            raise ValueError("RankedExp3.horizon must be given outside of simulate, which knows it; got None")
        L = jnp.asarray(num_items, float)
        return jnp.minimum(1, jnp.sqrt(L * jnp.log(L) / ((jnp.e - 1) * self.horizon)))


class RankedState(NamedTuple):
    pulls: Array  # int32[K, L], how often each position's bandit proposed each item
    rewards: Array  # int32[K, L], and was rewarded for it
    proposals: Array  # int32[K], what the bandits propose at the next step


class _RankedIndex(_RankedBandits):
    """Ranked bandits whose bandits pull the arm of the highest index."""

    def _index(self, rewards: Array, pulls: Array, step: Array) -> Array:
        """float[K, L]."""
        raise NotImplementedError

    def init(self, key: Key, query: Query) -> RankedState:
        zeros = jnp.zeros((query.list_size, query.num_items), jnp.int32)
        return self._propose(key, zeros, zeros, query.step + 1)

    def update(self, key: Key, state: RankedState, query: Query, ranking: Array, clicks: Array) -> RankedState:
        chosen = _chosen(state.proposals, query.num_items)
        rewarded = chosen & _rewards(state.proposals, ranking, clicks)[:, None]
        return self._propose(key, state.pulls + chosen, state.rewards + rewarded, query.step + 1)

    def statistics(self, state: RankedState) -> dict[str, Array]:
        """Pulls and rewards of every position and item, and the proposals of the next step."""
        return state._asdict()

    def _propose(self, key: Key, pulls: Array, rewards: Array, step: Array) -> RankedState:
        index = lane_vector(self._index(rewards, pulls, step))
        words = lane_vector(jax.random.bits(key, pulls.shape, jnp.uint32))
        best = jax.vmap(lambda index, words: top_items(index, 1, words)[0])
        return RankedState(pulls, rewards, lane_vector(best(index, words)))


@pytree
class RankedUCB1(_RankedIndex):
    """Ranked bandits with UCB1: ŵ + sqrt(2·log t / n) for the item that a position's bandit proposed n times.

    Reference: Radlinski, Kleinberg, Joachims: Learning diverse rankings with multi-armed bandits. ICML 2008.
    """

    def _index(self, rewards: Array, pulls: Array, step: Array) -> Array:
        return ucb1(rewards, pulls, step, width=2.0)


@pytree
class RankedKLUCB(_RankedIndex):
    """Ranked bandits with KL-UCB: max{q ≥ ŵ : n·KL(ŵ ‖ q) ≤ log t + 3·log log t}.

    Reference: Kveton, Szepesvári, Wen, Ashkan: Cascading bandits. ICML 2015, where it is the baseline.
    """

    def _index(self, rewards: Array, pulls: Array, step: Array) -> Array:
        return kl_ucb(rewards, pulls, step)
