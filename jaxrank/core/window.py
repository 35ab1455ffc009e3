"""Reads and writes rows of a buffer at an index that is the same in every lane.

vmap may turn dynamic slices into gathers and scatters, even where their index has no lane axis. These two functions
remain slices, which a loop can do in place. That alone is not enough: if a step reads the buffer before writing to it,
XLA copies all of it (PairRank's window of 2,048 steps: 1.5 ms a lane-step, and 16 µs if it writes first and reads
after).
"""

import jax
from jax.custom_batching import custom_vmap

from jaxrank.core.batching import lanes_major
from jaxrank.core.types import Array


def take_rows(buffer: Array, first: Array, count: int) -> Array:
    """buffer[first : first + count]."""

    @custom_vmap
    def take(buffer: Array, first: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(buffer, first, count)

    @take.def_vmap
    def batched(axis_size: int, in_batched: list[bool], buffer: Array, first: Array) -> tuple[Array, bool]:
        if in_batched[0] and not in_batched[1]:
            return lanes_major(jax.lax.dynamic_slice_in_dim(lanes_major(buffer), first, count, axis=1)), True
        axes = tuple(0 if b else None for b in in_batched)
        return jax.vmap(lambda b, f: jax.lax.dynamic_slice_in_dim(b, f, count), in_axes=axes)(buffer, first), True

    return take(buffer, first)


@custom_vmap
def put_rows(buffer: Array, rows: Array, first: Array) -> Array:
    """``buffer`` with ``rows`` in place of its rows from ``first`` on."""
    return jax.lax.dynamic_update_slice_in_dim(buffer, rows, first, axis=0)


@put_rows.def_vmap
def _put_rows_batched(
    axis_size: int, in_batched: list[bool], buffer: Array, rows: Array, first: Array
) -> tuple[Array, bool]:
    if in_batched[0] and in_batched[1] and not in_batched[2]:
        buffer, rows = lanes_major(buffer), lanes_major(rows)
        return lanes_major(jax.lax.dynamic_update_slice_in_dim(buffer, rows, first, axis=1)), True
    axes = tuple(0 if b else None for b in in_batched)
    put = jax.vmap(lambda b, r, f: jax.lax.dynamic_update_slice_in_dim(b, r, f, axis=0), in_axes=axes)
    return put(buffer, rows, first), True
