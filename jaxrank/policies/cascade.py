"""Cascading bandits: an index for every item, learnt from the part of the list that the user has read.

CascadeKL-UCB and CascadeUCB1 are Algorithm 1 of Kveton et al. (ICML 2015), CascadeTS is Thompson sampling on
the same feedback, and dcmKL-UCB is Algorithm 1 of Katariya et al. (ICML 2016). All of them count T_e, the steps in
which item e was observed, and its clicks in these steps, and show the K items of the highest index, best first.

Where the papers leave a choice:

- The index at step t uses log t. By default there are no initial steps that show every item once. Instead, items that
  were never observed have an infinite index. Ties are always broken at random.
- CascadeKL-UCB's level log t + 3·log log t is negative at t = 1 and 2, and clipped to 0 there.
- The cascade model has at most one click. With several clicks, ``feedback`` says how far the user has read.
- The program that drew BatchRank's figures (PyClickLambdas) has the level log t, L initial steps and, in that
  benchmark, feedback down to the last click: ``CascadeKLUCB(level="log", initial="each", feedback="last")``. It counts
  t from 0, so that its level is log(t − 1) in our steps; here it is log t.
- CascadeTS starts from Beta(1, 1) and needs no special treatment of items that were never observed.
- dcmKL-UCB knows the order of the positions by termination probability; here that is their order in the list.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.numerics import any_above, kl_upper
from jaxrank.core.pytrees import pytree, static
from jaxrank.core.ranking import by_item, top_items
from jaxrank.core.samplers import beta
from jaxrank.core.types import Array, Key, Query


class CascadeState(NamedTuple):
    observed: Array  # int32[L], T_e
    clicks: Array  # int32[L], T_e·ŵ(e)


class _CascadingBandit:
    """The common part: the counts of what was observed, and the list of the highest indices."""

    per_item: ClassVar[bool] = True

    feedback: str

    def _index(self, state: CascadeState, step: Array) -> Array:
        """float[L]: U_t(e)."""
        raise NotImplementedError

    def init(self, key: Key, query: Query) -> CascadeState:
        zeros = jnp.zeros(query.num_items, jnp.int32)
        return CascadeState(observed=zeros, clicks=zeros)

    def rank(self, key: Key, state: CascadeState, query: Query) -> Array:
        words = jax.random.bits(key, (query.num_items,), jnp.uint32)
        return top_items(self._index(state, query.step), query.list_size, words)

    def update(self, key: Key, state: CascadeState, query: Query, ranking: Array, clicks: Array) -> CascadeState:
        seen = self._seen(query, ranking, clicks)
        return CascadeState(observed=state.observed + (seen > 0), clicks=state.clicks + (seen == 2))

    def _seen(self, query: Query, ranking: Array, clicks: Array) -> Array:
        """int32[L]: 0 for an item that was not observed, 1 if it was observed, 2 if it was clicked too."""
        seen = jnp.where(_observed(clicks, self.feedback), 1 + clicks.astype(jnp.int32), 0)
        return by_item(ranking, seen, query.num_items)

    def statistics(self, state: CascadeState) -> dict[str, Array]:
        """T_e and the clicks in these observations, for probes and tests."""
        return {"observed": state.observed, "clicks": state.clicks}


@pytree
class _Cascade(_CascadingBandit):
    """The option that the policies for the cascade model share."""

    feedback: str = static(default="first", choices=("first", "last", "full"))


@pytree
class CascadeKLUCB(_Cascade):
    """CascadeKL-UCB: upper confidence bounds, by KL divergence, on the attraction of the items.

    U_t(e) = max{q ≥ ŵ : T_e·KL(ŵ ‖ q) ≤ log t + 3·log log t}, where ŵ is the fraction of clicks in the T_e steps in
    which e was observed: at the click or above it, or anywhere if there was none.

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed; "full" observes the whole
        list always.
      level: "loglog" for log t + 3·log log t, or "log" for log t, as in released code.
      initial: "unseen" shows items that were never observed first; "each" shows item t at the top of the list of
        step t ≤ L, the others below in random order, as in released code.

    Reference: Kveton, Szepesvári, Wen, Ashkan: Cascading bandits: learning to rank in the cascade model. ICML 2015.
    """

    level: str = static(default="loglog", choices=("loglog", "log"))
    initial: str = static(default="unseen", choices=("unseen", "each"))

    def _index(self, state: CascadeState, step: Array) -> Array:
        index = kl_ucb(state.clicks, state.observed, step, self.level)
        if self.initial == "unseen":
            return index
        items = jnp.arange(1, index.shape[0] + 1)
        return jnp.where(step > index.shape[0], index, jnp.equal(items, step).astype(index.dtype))


@pytree
class CascadeUCB1(_Cascade):
    """CascadeUCB1: as CascadeKL-UCB, with U_t(e) = ŵ + sqrt(1.5·log t / T_e).

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed; "full" observes the whole
        list always.

    Reference: Kveton, Szepesvári, Wen, Ashkan: Cascading bandits: learning to rank in the cascade model. ICML 2015.
    """

    def _index(self, state: CascadeState, step: Array) -> Array:
        return ucb1(state.clicks, state.observed, step, width=1.5)


@pytree
class CascadeTS(_Cascade):
    """CascadeTS: Thompson sampling, θ_e ~ Beta(1 + clicks, 1 + T_e − clicks), with CascadeKL-UCB's observations.

    Args:
      feedback: with several clicks, items down to the "first" or to the "last" are observed; "full" observes the whole
        list always.

    Reference: Zhong, Cheung, Tan: Thompson sampling algorithms for cascading bandits. JMLR 22, 2021 (CTS there).
    """

    def rank(self, key: Key, state: CascadeState, query: Query) -> Array:
        return top_items(beta_posterior(key, state), query.list_size)


@pytree
class DCMKLUCB(_CascadingBandit):
    """dcmKL-UCB: KL-UCB for the dependent click model, in which users may continue after a click.

    U_t(e) is as in CascadeKL-UCB. The items down to the last click are observed, and all items if there is no click. An
    item's reward is 1 if it was clicked.

    Reference: Katariya, Kveton, Szepesvári, Wen: DCM bandits: learning to rank with multiple clicks. ICML 2016.
    """

    feedback: ClassVar[str] = "last"  # type: ignore[misc]

    def _index(self, state: CascadeState, step: Array) -> Array:
        return kl_ucb(state.clicks, state.observed, step)


def _observed(clicks: Array, feedback: str) -> Array:
    """bool[K]: positions down to and including the first or the last click; all if there is none, or always."""
    if feedback == "full":
        return jnp.ones_like(clicks)
    if feedback == "first":
        return ~any_above(clicks)
    clicked_from_here = clicks[::-1] | any_above(clicks[::-1])
    return clicked_from_here[::-1] | ~jnp.any(clicks)


def beta_posterior(key: Key, state: CascadeState) -> Array:
    """float[L]: a sample of every item's attraction from its posterior."""
    return beta(key, 1.0 + state.clicks, 1.0 + state.observed - state.clicks)


def kl_ucb(successes: Array, trials: Array, step: Array, level: str = "loglog") -> Array:
    """max{q ≥ ŵ : trials·KL(ŵ ‖ q) ≤ log t + 3·log log t}, ŵ = successes / trials; infinite without trials.

    With the level "log" instead of "loglog", log t is the limit.
    """
    log_t = jnp.log(step.astype(float))
    limit = jnp.maximum(log_t + 3 * jnp.log(log_t), 0) if level == "loglog" else log_t
    n = jnp.maximum(trials, 1)
    return jnp.where(trials > 0, kl_upper(successes / n, limit / n), jnp.inf)


def ucb1(successes: Array, trials: Array, step: Array, width: float) -> Array:
    """ŵ + sqrt(width·log t / trials), ŵ = successes / trials; infinite without trials."""
    n = jnp.maximum(trials, 1)
    return jnp.where(trials > 0, successes / n + jnp.sqrt(width * jnp.log(step.astype(float)) / n), jnp.inf)
