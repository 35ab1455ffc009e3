"""Delayed clicks: any policy, told of its clicks some steps later.

Delay needs memory, and the memory of a lane is its policy's state: environments have none. So delay is a wrapper of a
policy. To the engine it is a policy like any other: checkpoints and devices need no word about it.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import integer, non_negative
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Policy, Query, State, keeps_items, require, with_horizon

_SLOT = 0xDE  # makes the key of the delay from that of the update
_STEP = "step"  # in ``of_list``
_OF_STATE = ("statistics", "score", "weights", "block_numbers")  # optional methods of the wrapped policy


class Feedback(NamedTuple):
    """What is learnt from a step. In a buffer each field has a leading axis of slots."""

    step: Array  # int32[], 0 for none
    ranking: Array  # int32[K]
    clicks: Array  # bool[K]
    query: Any  # the query where it differs from step to step, otherwise None
    of_list: dict[str, Any]  # the fields of the policy's state that belong to the list


class DelayedState(NamedTuple):
    policy: State  # of the wrapped policy
    learnt: Array  # int32[], the number of its updates
    buffer: Feedback  # [capacity + 1, …]; the last slot is for what does not wait
    slot: Array  # int32[], whose feedback is delivered in the next step; d for that of the next step itself
    due: Feedback  # what is in this slot


@pytree
class Delayed:
    """A policy whose clicks arrive late, after a fixed or a random number of steps.

    The feedback of a step with delay d is learnt at the end of the step d steps later: d = 0 is the usual feedback, bit
    for bit. Feedback waits in a buffer of fixed size, and every step delivers at most one:

    - fixed: step t takes the slot of step t − d, whose feedback is delivered;
    - geometric: the new feedback and those of d slots are equally likely to be delivered, and what is new takes the
      slot that this leaves. So everything waits with a probability of d/(d + 1) in every step: its delay is geometric,
      P(delay = k) = (1/(d + 1))·(d/(d + 1))^k, and d is its mean. Feedback overtakes, and the buffer of d slots is
      enough, however long the longest delay is.

    The policy learns with its present state, in which only what belongs to the late list is as it was (``of_list`` of
    ``Policy``): the proposals of ranked bandits, the candidates of DBGD. BubbleRank and BatchRank take a list that was
    under way while they changed their order as one of their present order. The step of an update is its number, as in
    the reduction of Joulani, György and Szepesvári (ICML 2013): windows and schedules of the policy go on without gaps
    while feedback overtakes.

    Feedback that has not arrived at the end of the run is lost. Lanes are never settled. The buffer takes 4 + 5·K bytes
    a slot, and what belongs to a list; in a stream of queries, where the documents of the query are kept too, that many
    more.

    Args:
      policy: any policy.
      delay: d, the delay or its mean, in steps.
      kind: "fixed" or "geometric".
      capacity: the number of slots, at least d. By default d, or the largest one if several delays run side by side.

    Example:
      >>> import jaxrank as jr
      >>> jr.Delayed(jr.TopRank(), delay=100, kind="geometric")
      Delayed(policy=TopRank(), delay=100, kind='geometric', capacity=100)
    """

    policy: Any
    delay: Any = array(ndim=0, dtype=jnp.int32, check=non_negative, default=0)
    kind: str = static(default="fixed", choices=("fixed", "geometric"))
    capacity: int = static(default=None, minimum=1)

    def _validate(self) -> None:
        require("policy", self.policy, "Delayed.policy")
        if isinstance(self.delay, jax.core.Tracer):
            return
        largest = max(int(jnp.max(self.delay)), 1)
        capacity = largest if self.capacity is None else self.capacity
        object.__setattr__(self, "capacity", integer("Delayed.capacity", capacity, largest))

    def __getattr__(self, name: str) -> Any:
        """Optional members of the wrapped policy."""
        policy: Any = self.__dict__.get("policy")
        if name == "per_item":
            return keeps_items(policy)
        if name in _OF_STATE and hasattr(policy, name):
            return lambda state, *rest: getattr(policy, name)(state.policy, *rest)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def with_horizon(self, num_steps: int) -> "Delayed":
        return dataclasses.replace(self, policy=with_horizon(self.policy, num_steps))

    def init(self, key: Key, query: Query) -> DelayedState:
        K, slots = query.list_size, self.capacity + 1
        policy = self.policy.init(key, query)
        none = Feedback(
            jnp.int32(0), jnp.zeros(K, jnp.int32), jnp.zeros(K, bool), _kept(query), _of_list(self.policy, policy)
        )
        buffer = jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype), none)
        slot = self._slot(key, query.step + 1)
        return DelayedState(policy, jnp.int32(0), buffer, slot, due=none)

    def rank(self, key: Key, state: DelayedState, query: Query) -> Array:
        return self.policy.rank(key, state.policy, query)

    def update(self, key: Key, state: DelayedState, query: Query, ranking: Array, clicks: Array) -> DelayedState:
        new = Feedback(query.step, ranking, clicks, _kept(query), _of_list(self.policy, state.policy))
        at_once = state.slot == self.delay
        due = jax.tree.map(partial(jnp.where, at_once), new, state.due)
        then = state.policy._replace(**due.of_list) if due.of_list else state.policy
        step = due.step if _STEP in _names(self.policy) else state.learnt + 1
        updated = self.policy.update(key, then, _restored(query, step, due), due.ranking, due.clicks)
        some = due.step > 0
        policy = jax.tree.map(partial(jnp.where, some), updated, state.policy)
        # The next step's slot is read from the new buffer: what is read before it is written, XLA copies whole.
        buffer = jax.tree.map(
            lambda slots, value: jax.lax.dynamic_update_index_in_dim(slots, value, self._index(state.slot), axis=0),
            state.buffer,
            new,
        )
        slot = self._slot(key, query.step + 1)
        due = jax.tree.map(lambda slots: jax.lax.dynamic_index_in_dim(slots, self._index(slot), keepdims=False), buffer)
        return DelayedState(policy, state.learnt + some, buffer, slot, due)

    def _slot(self, key: Key, step: Array) -> Array:
        """int32[]: the slot whose feedback is delivered in this step; d for that of the step itself."""
        if self.kind == "fixed":
            return jnp.where(self.delay > 0, step % jnp.maximum(self.delay, 1), self.delay)
        word = jax.random.bits(jax.random.fold_in(key, _SLOT), (), jnp.uint32)
        return (word % (self.delay + 1).astype(jnp.uint32)).astype(jnp.int32)

    def _index(self, slot: Array) -> Array:
        """int32[]: where the buffer has this slot."""
        return jnp.where(slot == self.delay, self.capacity, slot)


def _names(policy: Policy) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(policy, "of_list", ())
    return names


def _of_list(policy: Policy, state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in _names(policy) if name != _STEP}


def _kept(query: Query) -> Any:
    """What must be kept of a query: nothing but its step where all steps have the same items."""
    if query.index is None:
        return None
    return (query.base_ranking, query.optimal_ranking, query.features, query.mask, query.index)


def _restored(query: Query, step: Array, feedback: Feedback) -> Query:
    """The query of an earlier step, with this number."""
    names = ("base_ranking", "optimal_ranking", "features", "mask", "index")
    kept = dict(zip(names, feedback.query, strict=True)) if feedback.query else {}
    return dataclasses.replace(query, step=step, **kept)
