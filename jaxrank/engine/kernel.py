"""A whole call as one Pallas kernel: a block of lanes goes through all steps of the call without leaving the registers.

The XLA loop of ``lanes.py`` launches several kernels a step and moves the lanes' state through memory in each. Here the
policy's own one-lane code is evaluated entry by entry (``entrywise.py``) inside a kernel: every program of its grid
loads a block of lanes, runs the intervals, writes what is recorded at their ends, and stores the state. On GPUs, Pallas
compiles it by Triton; elsewhere it runs in interpret mode, as plain JAX, for tests. ``ways.py`` says which runs are
kernels.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import Mesh

from jaxrank.core.types import Array
from jaxrank.engine.entries import Entries, KeptEntries, TouchedError, is_entries
from jaxrank.engine.entry_loop import advance_lane, end_interval, vectors
from jaxrank.engine.entrywise import entry_by_entry
from jaxrank.engine.lanes import BY_INTERVAL, SHARED, Lanes, lane_axes, on_mesh

BLOCK = 128  # lanes of one program: a vector of Triton's must have a power of two of them
_LARGE = 32  # entries of an array that is kept in memory if only rare branches change it
_WARPS = 4  # so each of the 128 threads has one lane


def run_kernels(lanes: Lanes, intervals: Array, *, metrics: tuple[str, ...], mesh: Mesh, prng: str) -> Any:
    """``run_kernel`` on every device with its share of lanes; in interpret mode where the devices are no GPUs."""
    interpret = mesh.devices.flat[0].platform != "gpu"
    run = partial(run_kernel, metrics=metrics, prng=prng, interpret=interpret)
    return on_mesh(run, mesh, lanes, SHARED, out_specs=BY_INTERVAL)(lanes, intervals)


def kept_in_memory(lanes: Lanes, *, metrics: tuple[str, ...], prng: str) -> list[bool]:
    """For every leaf of ``lanes``: does it stay in memory, because it is large and only rare branches change it?

    Raises:
      NotEntrywiseError: the policy or the environment has an operation that cannot be evaluated entry by entry.
    """
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    shapes = [leaf.shape if axis is None else leaf.shape[1:] for leaf, axis in zip(leaves, axes, strict=True)]
    state = _state_of(lanes)
    kept = [i in state and math.prod(shape) >= _LARGE for i, shape in enumerate(shapes)]
    of_entries = partial(entry_by_entry, num_lanes=BLOCK)

    def step() -> None:
        entries = []
        for shape, leaf, stays in zip(shapes, leaves, kept, strict=True):
            same = [jnp.zeros(BLOCK, leaf.dtype)] * math.prod(shape)  # one and the same: quick to evaluate
            in_memory = KeptEntries(shape, leaf.dtype, lambda same=same: same, lambda i, entry: None)  # type: ignore[misc]
            entries.append(in_memory if stays else Entries(shape, leaf.dtype, same))
        lane = jax.tree.unflatten(structure, entries)
        try:
            after, sums = of_entries(partial(advance_lane, metrics, prng))(lane, jnp.int32(1))
            of_entries(end_interval)(lane._replace(state=after, sums=sums), jnp.int32(1))
        except TouchedError as error:
            kept[next(i for i, x in enumerate(entries) if x is error.entries)] = False
            return
        for i, x in zip(state, jax.tree.leaves(after, is_leaf=is_entries), strict=True):
            kept[i] = kept[i] and x is entries[i]

    before: list[bool] = []
    while before != kept:
        before = list(kept)
        jax.eval_shape(step)
    return kept


def _state_of(lanes: Lanes) -> range:
    """The numbers of the leaves of ``lanes`` that are its state."""
    end = len(jax.tree.leaves(lanes)) - len(jax.tree.leaves(lanes.sums))
    return range(end - len(jax.tree.leaves(lanes.state)), end)


def run_kernel(
    lanes: Lanes,
    intervals: Array,
    *,
    metrics: tuple[str, ...],
    prng: str,
    block: int = BLOCK,
    interpret: bool = False,
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances the lanes of one device through ``intervals`` [n, (start, stop, whole)], as ``run_intervals`` does.

    Args:
      lanes: what to advance.
      intervals: the first step, one past the last step, and whether the interval ends there.
      metrics: the names of those to sum.
      prng: the generator of random numbers.
      block: the lanes of one program, a power of two. The last block is filled up with copies of the last lane.
      interpret: run the kernel as plain JAX, for tests.

    Returns:
      What ``run_intervals`` returns without probes.

    Raises:
      NotEntrywiseError: the policy or the environment has an operation that cannot be evaluated entry by entry.
    """
    num_lanes, num_intervals = lanes.key.shape[0], intervals.shape[0]
    padded = -(-num_lanes // block) * block
    leaves, structure = jax.tree.flatten(lanes)
    inputs = [
        _Rows(leaf.shape, leaf.dtype) if axis is None else _Rows(leaf.shape[1:], leaf.dtype, block)
        for leaf, axis in zip(leaves, lane_axes(lanes), strict=True)
    ]
    progress, progress_structure = jax.tree.flatten((lanes.state, lanes.sums))
    outputs = [_Rows(leaf.shape[1:], leaf.dtype, block) for leaf in progress]
    records = {
        name: _Rows((num_intervals, *lanes.sums[name].total.shape[1:]), lanes.sums[name].total.dtype, block)
        for name in metrics
    }
    settled = _Rows((num_intervals,), np.dtype(bool), block)
    stays = kept_in_memory(lanes, metrics=metrics, prng=prng)

    def kernel(*refs: Any) -> None:
        given = iter(refs)
        intervals_ref = next(given)
        input_refs = [rows.ref(given) for rows in inputs]
        progress_refs = [rows.ref(given) for rows in outputs]
        record_refs = {name: rows.ref(given) for name, rows in records.items()}
        settled_ref = settled.ref(given)
        of_entries = partial(entry_by_entry, num_lanes=block)
        lane = jax.tree.unflatten(
            structure,
            [
                rows.keep(ref, progress_refs[i - _state_of(lanes).start]) if stays[i] else rows.load(ref)
                for i, (rows, ref) in enumerate(zip(inputs, input_refs, strict=True))
            ],
        )

        def step(t: Array, carry: Any) -> Any:
            state, sums = carry
            return vectors(
                of_entries(partial(advance_lane, metrics, prng))(lane._replace(state=state, sums=sums), t), block
            )

        def interval(i: Array, carry: Any) -> Any:
            start, stop, whole = (intervals_ref[i, column] for column in range(3))
            state, sums = lax.fori_loop(start, stop, step, carry)
            for name in metrics:
                records[name].store_row(record_refs[name], i, sums[name].total)
            sums, is_settled = of_entries(end_interval)(lane._replace(state=state, sums=sums), whole)
            settled.store_row(settled_ref, i, is_settled)
            return state, vectors(sums, block)

        carry = lax.fori_loop(0, num_intervals, interval, vectors((lane.state, lane.sums), block))
        for rows, ref, entries in zip(outputs, progress_refs, jax.tree.leaves(carry, is_leaf=is_entries), strict=True):
            if not isinstance(entries, KeptEntries):
                rows.store(ref, entries)

    results = [*outputs, *records.values(), settled]
    stored = [rows for rows in results if rows.size]
    call = pl.pallas_call(
        kernel,
        grid=(padded // block,),
        in_specs=[pl.BlockSpec(intervals.shape, lambda i: (0, 0)), *(rows.spec for rows in inputs if rows.size)],
        out_specs=[rows.spec for rows in stored],
        out_shape=[jax.ShapeDtypeStruct((rows.size, padded), rows.stored) for rows in stored],
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=_WARPS, num_stages=1),
    )
    arrays = [rows.rows(leaf, padded) for rows, leaf in zip(inputs, leaves, strict=True) if rows.size]
    made = iter(call(intervals, *arrays))
    whole = [rows.array(made, num_lanes) for rows in results]
    state, sums = jax.tree.unflatten(progress_structure, whole[: len(outputs)])
    totals = [jnp.moveaxis(x, 0, 1) for x in whole[len(outputs) :]]  # [n, lanes, …]
    return (state, sums), dict(zip(metrics, totals, strict=False)), totals[-1], {}


class _Rows:
    """How an array of a lane lies in memory: as rows, one for every entry, of all lanes [entries, lanes].

    What is the same in all lanes is one column. An array without entries is not there at all.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, block: int | None = None) -> None:
        self.shape, self.dtype, self.block = tuple(shape), dtype, block
        self.size = math.prod(shape)
        self.stored = np.dtype(np.int32) if dtype == np.bool_ else dtype  # there are no booleans in memory

    @property
    def spec(self) -> pl.BlockSpec:
        if self.block is None:
            return pl.BlockSpec((self.size, 1), lambda i: (0, 0))
        return pl.BlockSpec((self.size, self.block), lambda i: (0, i))

    def rows(self, leaf: Array, padded: int) -> Array:
        """The array [lanes, …] as rows, with copies of the last lane up to ``padded`` lanes."""
        leaf = leaf.astype(self.stored)
        if self.block is None:
            return leaf.reshape(self.size, 1)
        rows = leaf.reshape(leaf.shape[0], self.size).T
        return jnp.pad(rows, ((0, 0), (0, padded - leaf.shape[0])), mode="edge")

    def array(self, made: Any, num_lanes: int) -> Array:
        """The next rows that the kernel has made as an array [lanes, …]."""
        if not self.size:
            return jnp.zeros((num_lanes, *self.shape), self.dtype)
        return next(made)[:, :num_lanes].T.reshape(num_lanes, *self.shape).astype(self.dtype)

    def ref(self, given: Any) -> Any:
        return next(given) if self.size else None

    def load(self, ref: Any) -> Entries:
        return Entries(self.shape, self.dtype, self._entries(ref))

    def keep(self, source: Any, ref: Any) -> KeptEntries:
        """Entries that stay in memory, at ``ref``, and come from ``source``."""

        def store(i: int, entry: Any) -> None:
            ref[i, :] = entry.astype(self.stored)

        for i in range(self.size):
            ref[i, :] = source[i, :]
        return KeptEntries(self.shape, self.dtype, partial(self._entries, ref), store)

    def _entries(self, ref: Any) -> list[Any]:
        at: Any = 0 if self.block is None else slice(None)
        return [ref[i, at].astype(self.dtype) for i in range(self.size)]

    def store(self, ref: Any, entries: Entries) -> None:
        for i, entry in enumerate(entries.vectors(self.block or 0).flat):
            ref[i, :] = entry.astype(self.stored)

    def store_row(self, ref: Any, row: Array, entries: Entries) -> None:
        """Writes what lies at ``row`` of the first axis."""
        for i, entry in enumerate(entries.vectors(self.block or 0).flat):
            ref[row * len(entries.flat) + i, :] = entry.astype(self.stored)
