"""What the engine knows about lanes, so that policies need not.

Policies are written for one lane; ``simulate`` maps them over a leading axis of lanes. Two things make that fast.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.layout import Layout, with_layout_constraint

from jaxrank.core.types import Array

T = TypeVar("T")

RARELY = "jaxrank_rarely"  # the name of a rare branch in a jaxpr
_AT_ONCE = 64  # lanes that take a rare branch together
_MATRIX = 4096  # floats a lane, from which on an array is taken for an operand of matrix products
_SQUARE = 33  # rows of a square matrix, from which on it is taken for a table that is read by row


def lanes_minor(x: Array) -> Array:
    """Lays [lanes, …] out with the lanes next to each other in memory.

    Logically the lane axis comes first, as vmap wants it; physically it is last. So one-lane code over short axes
    becomes vector code over lanes: 5 times faster on a CPU for a step like BubbleRank's. Large arrays of floats and
    square matrices are laid out lane by lane instead: products of matrices want that, and would transpose them in every
    step; and of a table over pairs of items a step reads some rows, which then lie in one piece.
    """
    if x.ndim < 2:
        return x
    large = x.size // x.shape[0] >= _MATRIX and jnp.issubdtype(x.dtype, jnp.floating)
    square = x.ndim == 3 and x.shape[1] == x.shape[2] >= _SQUARE
    if large or square:
        return lanes_major(x)
    return _laid_out(x, (*range(1, x.ndim), 0))


def lanes_major(x: Array) -> Array:
    """Lays [lanes, …] out lane by lane, as one would expect; but XLA may think otherwise unless told."""
    return _laid_out(x, tuple(range(x.ndim)))


def _laid_out(x: Array, major_to_minor: tuple[int, ...]) -> Array:
    if not isinstance(x, jax.core.Tracer):  # outside of jit there is no layout to choose, and NumPy's arrays have none
        return x
    # JAX (0.10) takes a constraint on a result of jit for the result's own layout, and then misreads it elsewhere:
    # the barrier keeps the constraint inside.
    return jax.lax.optimization_barrier(with_layout_constraint(x, Layout(major_to_minor)))


@jax.custom_jvp
def lane_vector(x: Array) -> Array:
    """The identity for one lane; under vmap, ``lanes_minor``.

    For intermediate results that end in a scalar: XLA gives those a layout of its own choice unless told.
    """

    @custom_vmap
    def identity(x):
        return x

    @identity.def_vmap
    def batched(axis_size, in_batched, x):
        return (lanes_minor(x) if in_batched[0] else x), in_batched[0]

    return identity(x)


@lane_vector.defjvp
def _lane_vector_jvp(primals, tangents):
    return lane_vector(*primals), tangents[0]


def rarely(predicate: Array, branch: Callable[..., T], operand: T, *args: Any, at_once: int = _AT_ONCE) -> T:
    """``branch(operand, *args)`` where ``predicate``, else ``operand``: a cond that stays cheap under vmap.

    vmap turns ``lax.cond`` into "both branches, everywhere". This function gathers the lanes that need the branch, some
    of them at a time, and puts the results back, so that its cost follows the number of such lanes.

    Args:
      predicate: bool[], does this lane take the branch?
      branch: a function of ``operand`` and ``args`` that returns a new operand. It must not close over traced values.
      operand: what the branch changes.
      args: what the branch reads.
      at_once: the number of lanes that take the branch at a time.
    """

    def choose(predicate, operand, args):
        return jax.lax.cond(predicate, lambda: branch(operand, *args), lambda: operand)

    choose.__name__ = RARELY  # of the jit equation by which the engine knows a rare branch, where there is no vmap
    conditional = custom_vmap(jax.jit(choose))

    @conditional.def_vmap
    def batched(axis_size, in_batched, predicate, operand, args):
        predicate_batched, operand_batched, args_batched = in_batched
        all_batched = jax.tree.map(lambda _: True, operand)
        operand = _broadcast(axis_size, operand_batched, operand)
        if not predicate_batched:  # the same answer in every lane: a plain cond
            mapped = jax.vmap(branch, in_axes=(0, *_in_axes(args_batched)), axis_size=axis_size)
            return jax.lax.cond(predicate, lambda: mapped(operand, *args), lambda: operand), all_batched
        args = _broadcast(axis_size, args_batched, args)
        return _some_at_a_time(predicate, branch, operand, args, at_once), all_batched

    return conditional(predicate, operand, args)


def _some_at_a_time(predicate: Array, branch: Callable[..., T], operand: T, args: Any, at_once: int) -> T:
    at_once = min(at_once, predicate.shape[0])

    def some_left(carry):
        return carry[0].any()

    def take_some(carry):
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
