"""How one-lane code runs over many lanes: the layout of lanes in memory, and rare branches.

Policies are written for one lane; ``simulate`` maps them over a leading axis of lanes. A branch that few lanes take is
computed for these only (``rarely``). On a CPU, the engine lays arrays out with the lanes next to each other in memory
(``lanes_minor``); on other devices, XLA knows better (``layouts``).
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.layout import Layout, with_layout_constraint

from jaxrank.core.types import Array

T = TypeVar("T")

RARELY = "jaxrank_rarely"  # the name by which the engine knows a rare branch in the jaxpr of one lane
_AT_ONCE = 64  # lanes that take a rare branch together, at most on a CPU
_FEWEST = 8  # of them, if there are as many
_MATRIX = 4096  # an array of at least this many floats a lane is taken for an operand of matrix products
_SQUARE = 33  # a square matrix of at least this many rows is taken for a table that is read by row
_ROUNDS = 8  # in which all lanes can take a rare branch; of few lanes on a CPU, in fewer
_CHOSEN = ContextVar("layouts", default=False)  # are layouts chosen here, or by XLA?


@contextlib.contextmanager
def layouts(chosen: bool) -> Iterator[None]:
    """While this is traced, are ``lanes_minor`` and ``lanes_major`` more than the identity?"""
    token = _CHOSEN.set(chosen)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def lanes_minor(x: Array) -> Array:
    """Lays [lanes, …] out with the lanes next to each other in memory.

    The lane axis stays the first axis of the array, as vmap expects, but is the last one in memory. So one-lane code
    over short axes becomes vector code over lanes: 5 times faster on a CPU for a step like BubbleRank's. Large arrays
    of floats and large square matrices are laid out lane by lane instead. Matrix products need that layout, and would
    otherwise transpose their operands in every step. Of a table over pairs of items, a step reads a few rows, each of
    which is then contiguous in memory.
    """
    if x.ndim < 2:
        return x
    large = x.size // x.shape[0] >= _MATRIX and jnp.issubdtype(x.dtype, jnp.floating)
    square = x.ndim == 3 and x.shape[1] == x.shape[2] >= _SQUARE
    if large or square:
        return lanes_major(x)
    return _laid_out(x, (*range(1, x.ndim), 0))


def lanes_major(x: Array) -> Array:
    """Lays [lanes, …] out lane by lane. Without this constraint, XLA may choose another layout."""
    return _laid_out(x, tuple(range(x.ndim)))


def _laid_out(x: Array, major_to_minor: tuple[int, ...]) -> Array:
    if not _CHOSEN.get():
        return x
    # JAX (0.10) mistakes a layout constraint on a result of jit for the layout of the result outside of it, and then
    # misreads the result. The barrier keeps the constraint inside.
    return jax.lax.optimization_barrier(with_layout_constraint(x, Layout(major_to_minor)))


def rarely(predicate: Array, branch: Callable[..., T], operand: T, *args: Any, at_once: int = _AT_ONCE) -> T:
    """``branch(operand, *args)`` where ``predicate``, else ``operand``: a cond that stays cheap under vmap.

    Under vmap, ``lax.cond`` computes both branches in every lane. This function gathers the lanes that need the branch,
    some of them at a time, and puts the results back, so that its cost grows with the number of such lanes.

    Args:
      predicate: bool[], does this lane take the branch?
      branch: a function of ``operand`` and ``args`` that returns a new operand. It must not close over traced values.
      operand: the pytree that the branch changes.
      args: the pytrees that the branch reads.
      at_once: the number of lanes that take the branch at a time on a CPU; an eighth of all lanes if that is less. On
        other devices, it is at least an eighth of them, so that the number of kernels does not grow with the lanes.
    """

    def choose(predicate: Array, operand: T, args: Any) -> T:
        return jax.lax.cond(predicate, lambda: branch(operand, *args), lambda: operand)

    choose.__name__ = RARELY  # so is the jit equation named that it leaves in the jaxpr of one lane
    conditional = custom_vmap(jax.jit(choose))

    @conditional.def_vmap
    def batched(axis_size: int, in_batched: list[Any], predicate: Array, operand: T, args: Any) -> tuple[T, Any]:
        predicate_batched, operand_batched, args_batched = in_batched
        all_batched = jax.tree.map(lambda _: True, operand)
        operand = _broadcast(axis_size, operand_batched, operand)
        if not predicate_batched:  # the predicate is the same in every lane: a plain cond
            mapped = jax.vmap(branch, in_axes=(0, *_in_axes(args_batched)), axis_size=axis_size)
            return jax.lax.cond(predicate, lambda: mapped(operand, *args), lambda: operand), all_batched
        args = _broadcast(axis_size, args_batched, args)
        some = -(-axis_size // _ROUNDS)
        together = min(at_once, max(some, _FEWEST)) if _CHOSEN.get() else max(at_once, some)
        return _some_at_a_time(predicate, branch, operand, args, together), all_batched

    return conditional(predicate, operand, args)


def _some_at_a_time(predicate: Array, branch: Callable[..., T], operand: T, args: Any, at_once: int) -> T:
    """``rarely`` over [lanes, …]: a loop in which ``at_once`` of the lanes still waiting take the branch."""
    at_once = min(at_once, predicate.shape[0])

    def some_left(carry: tuple[Array, T]) -> Array:
        return carry[0].any()

    def take_some(carry: tuple[Array, T]) -> tuple[Array, T]:
        waiting, operand = carry
        operand = jax.tree.map(lanes_minor, operand)
        (lanes,) = jnp.nonzero(waiting, size=at_once, fill_value=predicate.shape[0])
        gather = partial(jax.tree.map, lambda x: x.at[lanes].get(mode="clip"))
        done = jax.vmap(branch)(gather(operand), *gather(args))
        operand = jax.tree.map(lambda x, y: x.at[lanes].set(y, mode="drop"), operand, done)
        return waiting.at[lanes].set(False, mode="drop"), jax.tree.map(lanes_minor, operand)

    operand = jax.tree.map(lanes_minor, operand)
    return jax.tree.map(lanes_minor, jax.lax.while_loop(some_left, take_some, (predicate, operand))[1])


def _in_axes(batched: Any) -> Any:
    return jax.tree.map(lambda b: 0 if b else None, batched)


def _broadcast(axis_size: int, batched: Any, tree: Any) -> Any:
    return jax.tree.map(lambda b, x: x if b else jnp.broadcast_to(x, (axis_size, *x.shape)), batched, tree)
