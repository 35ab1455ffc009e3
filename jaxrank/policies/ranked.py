"""Ranked bandits: one multi-armed bandit per position (Radlinski, Kleinberg, Joachims, ICML 2008, Algorithm 2).

The bandit of position k proposes an item. If the item is already shown above k, it is replaced by a random item that is
not, and the bandit gets reward 0 for its proposal. Otherwise the reward is the click at k. Bandits know nothing of each
other.

Where the paper leaves a choice:

- Its "arbitrary document" that replaces a proposal is drawn uniformly from those not shown above k.
- Exp3 is that of Auer et al. (SIAM Journal on Computing, 2002), with γ from Corollary 3.2 for a reward of at most T.
  Weights are kept as logarithms relative to the largest weight of the position, so that they neither overflow nor stop
  changing for lack of precision. The program that drew BatchRank's figures (PyClickLambdas) learns from losses
  1 − r instead, and mixes no uniform distribution into p: ``RankedExp3(estimates="losses")``.
- UCB1 is that of Auer, Cesa-Bianchi and Fischer (Machine Learning, 2002), ŵ + sqrt(2·log t / n). KL-UCB has the level
  of CascadeKL-UCB, log t + 3·log log t. Both first propose every item once, and break ties at random.
- A list does not show a proposal that was replaced. So the proposals for step t + 1 are drawn at the end of step t and
  kept in the state. A proposal was replaced if and only if it differs from the item at its position.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import open_probability, positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ranking import best_item
from jaxrank.core.types import Array, Key, Query
from jaxrank.policies.cascade import kl_ucb, ucb1


def _fill_in(key: Key, proposals: Array, num_items: int) -> Array:
    """int32[K]: the list of the proposals [K], in which a random item replaces a proposal that is shown above.

    One random order of the items serves all positions: whichever items are shown, the remaining ones are in random
    order.
    """
    items = jnp.arange(num_items, dtype=jnp.int32)
    words = (jax.random.bits(key, (num_items,), jnp.uint32) >> 1).astype(jnp.int32)
    low_bits = (1 << num_items.bit_length()) - 1
    order = (words & ~low_bits) | items  # the items' random order, no two alike; −1 for an item shown

    def place(order: Array, proposal: Array) -> tuple[Array, Array]:
        shown_above = jnp.any((items == proposal) & (order < 0))
        item = jnp.where(shown_above, jnp.max(order) & low_bits, proposal)
        return jnp.where(items == item, -1, order), item

    return jax.lax.scan(place, order, proposals)[1]


def _rewards(proposals: Array, ranking: Array, clicks: Array) -> Array:
    """bool[K]: the click, if the position shows the item that its bandit proposed; otherwise false."""
    return clicks & (ranking == proposals)


def _chosen(proposals: Array, num_items: int) -> Array:
    """bool[K, L]: is this the arm that the position's bandit pulled?"""
    return proposals[:, None] == jnp.arange(num_items)[None, :]


class _RankedBandits:
    """The common part: the list of what the bandits have proposed."""

    per_item: ClassVar[bool] = True
    of_list: ClassVar[tuple[str, ...]] = ("proposals",)

    def rank(self, key: Key, state: "Exp3State | RankedState", query: Query) -> Array:
        return _fill_in(key, state.proposals, query.num_items)


class Exp3State(NamedTuple):
    log_weights: Array  # float32[K, L], log w of each position's bandit, the largest at 0
    proposals: Array  # int32[K], what the bandits propose at the next step
    probability: Array  # float32[K], the probability with which they proposed it


@pytree
class RankedExp3(_RankedBandits):
    """Ranked bandits with Exp3, which allows for rewards that change as the bandits above learn.

    p = (1 − γ)·w / Σw + γ/L, and after reward r of the proposal i: w_i ← w_i·exp(γ·(r / p_i) / L). With losses,
    p = w / Σw, and w_i ← w_i·exp(−γ·(1 − r) / p_i).

    Args:
      gamma: γ, in (0, 1). By default min(1, sqrt(L·log L / ((e − 1)·T))) for the horizon T; with losses
        sqrt(2·log L / (L·T)).
      horizon: T, at least the number of steps of the run, which it is by default.
      estimates: of "rewards", or of "losses" as in released code.

    Reference: Radlinski, Kleinberg, Joachims: Learning diverse rankings with multi-armed bandits. ICML 2008.
    """

    of_list: ClassVar[tuple[str, ...]] = ("proposals", "probability")

    gamma: Any = array(ndim=0, check=open_probability, default=None)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)
    estimates: str = static(default="rewards", choices=("rewards", "losses"))

    def init(self, key: Key, query: Query) -> Exp3State:
        return self._propose(key, jnp.zeros((query.list_size, query.num_items)))

    def update(self, key: Key, state: Exp3State, query: Query, ranking: Array, clicks: Array) -> Exp3State:
        L = query.num_items
        rewards = _rewards(state.proposals, ranking, clicks)
        if self.estimates == "rewards":
            gain = self._gamma(L) * (rewards / state.probability) / L
        else:
            gain = -self._gamma(L) * (~rewards / state.probability)
        return self._propose(key, state.log_weights + jnp.where(_chosen(state.proposals, L), gain[:, None], 0))

    def statistics(self, state: Exp3State) -> dict[str, Array]:
        """log w of every position and item, where the largest of a position is 0, and the next step's proposals."""
        return {"log_weights": state.log_weights, "proposals": state.proposals}

    def _propose(self, key: Key, log_weights: Array) -> Exp3State:
        K, L = log_weights.shape
        gamma = self._gamma(L) if self.estimates == "rewards" else jnp.zeros(())  # of the uniform distribution in p
        log_weights = log_weights - jnp.max(log_weights, axis=1, keepdims=True)
        weights = jnp.exp(log_weights)
        up_to = jnp.cumsum(weights, axis=1)
        total = up_to[:, -1]

        # The proposal is the number of items i with Σ_{j ≤ i} p_j ≤ u, for a uniform u; both sides are taken times Σw.
        target = jax.random.uniform(key, (K,)) * total
        mixed = (1 - gamma) * up_to + gamma * (jnp.arange(1, L + 1) / L)[None, :] * total[:, None]
        proposals = jnp.sum(mixed[:, :-1] <= target[:, None], axis=1, dtype=jnp.int32)
        weight = jnp.sum(jnp.where(_chosen(proposals, L), weights, 0), axis=1)
        return Exp3State(log_weights, proposals, (1 - gamma) * weight / total + gamma / L)

    def _gamma(self, num_items: int) -> Array:
        if self.gamma is not None:
            return self.gamma
        if self.horizon is None:
            raise ValueError("RankedExp3.horizon must be given outside of simulate, which fills it in; got None")
        L = jnp.asarray(num_items, float)
        if self.estimates == "losses":
            return jnp.sqrt(2 * jnp.log(L) / (L * self.horizon))
        return jnp.minimum(1, jnp.sqrt(L * jnp.log(L) / ((jnp.e - 1) * self.horizon)))


class RankedState(NamedTuple):
    pulls: Array  # int32[K, L], how often each position's bandit proposed each item
    rewards: Array  # int32[K, L], how often it was rewarded for that
    proposals: Array  # int32[K], what the bandits propose at the next step


class _RankedIndex(_RankedBandits):
    """Ranked bandits in which each bandit pulls the arm of the highest index."""

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
        """Pulls and rewards of every position and item, and the next step's proposals."""
        return state._asdict()

    def _propose(self, key: Key, pulls: Array, rewards: Array, step: Array) -> RankedState:
        words = jax.random.bits(key, pulls.shape, jnp.uint32)
        return RankedState(pulls, rewards, best_item(self._index(rewards, pulls, step), words))


@pytree
class RankedUCB1(_RankedIndex):
    """Ranked bandits with UCB1: ŵ + sqrt(2·log t / n) for an item that the position's bandit has proposed n times.

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
