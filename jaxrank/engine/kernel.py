"""A whole call as one Pallas kernel: a block of lanes goes through all steps of the call without leaving its core.

The XLA loop of ``array_loop.py`` launches several kernels a step and moves the lanes' state through memory in each.
Here the policy's own one-lane code is evaluated entry by entry (``entrywise.py``) inside a kernel: every program of its
grid loads a block of lanes, runs the intervals, writes what is recorded at their ends, and stores the state. How lanes
lie in memory, and what else its compiler wants, is said in ``gpu_kernel.py`` and ``tpu_kernel.py``. Kernels for GPUs
and TPUs also run elsewhere in interpret mode, as plain JAX, for tests. ``ways.py`` says which runs are kernels.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh

from jaxrank.core.types import Array
from jaxrank.engine.entries import Entries, KeptEntries, Write, is_entries
from jaxrank.engine.entry_loop import advance_lane, end_interval, kept_in_memory, state_of, vectors
from jaxrank.engine.entrywise import entry_by_entry
from jaxrank.engine.jaxprs import by_demand
from jaxrank.engine.lanes import BY_INTERVAL, SHARED, Lanes, lane_axes, on_mesh, platform_of


class Words(Protocol):
    """Some arrays of the lanes in memory: as which arrays, and what a program has of them."""

    @property
    def specs(self) -> list[pl.BlockSpec]: ...
    def shapes(self, padded: int) -> list[jax.ShapeDtypeStruct]: ...
    def pack(self, leaves: Sequence[Array], padded: int) -> list[Array]: ...  # with copies of the last lane
    def unpack(self, arrays: Sequence[Array], num_lanes: int) -> list[Array]: ...
    def load(self, refs: Sequence[Any]) -> list[Entries]: ...
    def store(self, refs: Sequence[Any], leaves: Sequence[Entries]) -> None: ...
    def read(self, refs: Sequence[Any], place: Array) -> Array: ...  # of one array: in every lane, this entry
    def write(self, refs: Sequence[Any], writes: list[Write]) -> None: ...


class Blocks(Protocol):
    """What a kernel is made of on a kind of device."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # of a vector over a block of lanes
    @property
    def scratch(self) -> Sequence[Any]: ...  # memory that a program needs besides
    @property
    def compiler_params(self) -> Any: ...
    def words(self, leaves: Sequence[Any]) -> Words: ...
    def scalars(self, shape: tuple[int, ...]) -> pl.BlockSpec: ...  # an array that all lanes share
    def begin_with(self, given: Any, result: Any) -> None: ...  # of an argument and a result that are one array
    def compilable(self, function: Callable[[Any], Any], scratch: Sequence[Any]) -> Callable[[Any], Any]: ...


def blocks_of(platform: str) -> Blocks:
    if platform == "tpu":
        from jaxrank.engine.tpu_kernel import TpuBlocks

        return TpuBlocks()
    from jaxrank.engine.gpu_kernel import GpuBlocks

    return GpuBlocks()


def run_kernels(lanes: Lanes, intervals: Array, *, metrics: tuple[str, ...], mesh: Mesh, prng: str) -> Any:
    """``run_kernel`` on every device with its share of lanes; on a CPU in interpret mode, as a GPU would run it."""
    platform = platform_of(mesh)
    options: dict[str, Any] = {"blocks": blocks_of(platform), "interpret": platform == "cpu"}
    run = partial(run_kernel, metrics=metrics, prng=prng, **options)
    return on_mesh(run, mesh, lanes, SHARED, out_specs=BY_INTERVAL)(lanes, intervals)


def run_kernel(
    lanes: Lanes, intervals: Array, *, metrics: tuple[str, ...], prng: str, blocks: Blocks, interpret: bool = False
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances the lanes of one device through ``intervals`` [n, (start, stop, whole)], as ``run_arrays`` does.

    Args:
      lanes: what to advance. The last block is filled up with copies of the last lane.
      intervals: the first step, one past the last step, and whether the interval ends there.
      metrics: the names of those to sum.
      prng: the generator of random numbers.
      blocks: those of the device.
      interpret: run the kernel as plain JAX, for tests.

    Returns:
      What ``run_arrays`` returns without probes.

    Raises:
      NotEntrywiseError: the policy or the environment has an operation that cannot be evaluated entry by entry.
    """
    num_lanes, num_intervals, block = lanes.key.shape[0], intervals.shape[0], blocks.shape
    num_blocks = -(-num_lanes // math.prod(block))
    padded = num_blocks * math.prod(block)
    leaves, structure = jax.tree.flatten(lanes)
    progress_structure = jax.tree.structure((lanes.state, lanes.sums))
    first = state_of(lanes).start  # of the leaves that change
    shared = [i for i, axis in enumerate(lane_axes(lanes)) if axis is None]
    kept = [i for i, stays in enumerate(kept_in_memory(lanes, metrics=metrics, prng=prng)) if stays]
    loaded = [i for i in range(len(leaves)) if i not in shared and i not in kept]
    stored = [i for i in range(first, len(leaves)) if i not in kept]
    words_in, words_out = (blocks.words([leaves[i] for i in some]) for some in (loaded, stored))
    words_kept = {i: blocks.words([leaves[i]]) for i in kept}
    records = [
        Rows((num_intervals, *lanes.sums[name].total.shape[1:]), lanes.sums[name].total.dtype, block)
        for name in metrics
    ]
    settled = Rows((num_intervals,), np.dtype(bool), block)
    recorded = [*records, settled]
    num_given = len(shared), len(words_in.specs), len(kept)
    num_results = len(words_out.specs), len(kept), len(recorded)

    def kernel(intervals_ref: Any, *refs: Any) -> None:
        of_scalars, of_loaded, given_kept, results = _parts(refs, *num_given)
        of_stored, of_kept, of_records, scratch = _parts(results, *num_results)
        for given, result in zip(given_kept, of_kept, strict=True):
            blocks.begin_with(given, result)
        of_lane = dict(zip(loaded, words_in.load(of_loaded), strict=True))
        of_lane |= {i: _scalars(leaves[i], ref) for i, ref in zip(shared, of_scalars, strict=True)}
        of_lane |= {
            i: KeptEntries(leaves[i].shape[1:], leaves[i].dtype, _Kept(words, ref))
            for (i, words), ref in zip(words_kept.items(), of_kept, strict=True)
        }
        lane = jax.tree.unflatten(structure, [of_lane[i] for i in range(len(leaves))])
        of_entries = partial(entry_by_entry, num_lanes=block)

        def step(t: Array, carry: Any) -> Any:
            state, sums = carry
            advance = of_entries(partial(advance_lane, metrics, prng))

            def flat(t: Array, state: Any, sums: Any) -> Any:
                return vectors(advance(lane._replace(state=state, sums=sums), t), block)

            code, result = jax.make_jaxpr(flat, return_shape=True)(t, state, sums)
            results = jaxpr_as_fun(by_demand(code))(*jax.tree.leaves((t, state, sums)))
            return jax.tree.unflatten(jax.tree.structure(result), results)

        def interval(i: Array, carry: Any) -> Any:
            start, stop, whole = (intervals_ref[i, column] for column in range(3))
            state, sums = lax.fori_loop(start, stop, step, carry)
            for rows, ref, name in zip(records, of_records, metrics, strict=False):
                rows.store_row(ref, i, sums[name].total)
            sums, is_settled = of_entries(end_interval)(lane._replace(state=state, sums=sums), whole)
            settled.store_row(of_records[-1], i, is_settled)
            return state, vectors(sums, block)

        def run(carry: Any) -> Any:
            return lax.fori_loop(0, num_intervals, interval, carry)

        carry = blocks.compilable(run, scratch)(vectors((lane.state, lane.sums), block))
        words_out.store(of_stored, [x for x in jax.tree.leaves(carry, is_leaf=is_entries) if _changes(x)])

    flat_shared = [jnp.pad(_as_number(leaves[i]).reshape(-1), (0, leaves[i].size == 0)) for i in shared]
    before = 1 + num_given[0] + num_given[1]  # arguments before those that are kept
    specs_kept = [words.specs[0] for words in words_kept.values()]
    call = pl.pallas_call(
        kernel,
        grid=(num_blocks,),
        in_specs=[
            blocks.scalars(intervals.shape),
            *(blocks.scalars(leaf.shape) for leaf in flat_shared),
            *words_in.specs,
            *specs_kept,
        ],
        out_specs=[*words_out.specs, *specs_kept, *(rows.spec for rows in recorded)],
        out_shape=[
            *words_out.shapes(padded),
            *(words.shapes(padded)[0] for words in words_kept.values()),
            *(rows.stored_shape(padded) for rows in recorded),
        ],
        scratch_shapes=blocks.scratch,
        input_output_aliases={before + n: len(words_out.specs) + n for n in range(len(kept))},
        interpret=interpret,
        compiler_params=None if interpret else blocks.compiler_params,
    )
    results = call(
        intervals,
        *flat_shared,
        *words_in.pack([leaves[i] for i in loaded], padded),
        *(words.pack([leaves[i]], padded)[0] for i, words in words_kept.items()),
    )
    made, made_kept, made_records, _ = _parts(results, *num_results)
    changed = dict(zip(stored, words_out.unpack(made, num_lanes), strict=True))
    for (i, words), array in zip(words_kept.items(), made_kept, strict=True):
        (changed[i],) = words.unpack([array], num_lanes)
    state, sums = jax.tree.unflatten(progress_structure, [changed[i] for i in range(first, len(leaves))])
    seen = zip(recorded, made_records, strict=True)
    *totals, ended = [jnp.moveaxis(rows.array(array, num_lanes), 0, 1) for rows, array in seen]  # [intervals, lanes, …]
    return (state, sums), dict(zip(metrics, totals, strict=True)), ended, {}


def _parts(values: Sequence[Any], *sizes: int) -> list[Sequence[Any]]:
    """The values in parts of these sizes, and what is left of them."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [*(values[start:end] for start, end in itertools.pairwise(ends)), values[ends[-1] :]]


def _changes(entries: Entries) -> bool:
    return not isinstance(entries, KeptEntries)


def _as_number(leaf: Array) -> Array:
    return leaf.astype(jnp.int32) if leaf.dtype == jnp.bool_ else leaf  # there are no booleans in memory


def _scalars(leaf: Array, ref: Any) -> Entries:
    """What is the same in all lanes."""
    return Entries(leaf.shape, leaf.dtype, [ref[i].astype(leaf.dtype) for i in range(leaf.size)])


class _Kept:
    """The memory of one array: its words, at ``ref``."""

    def __init__(self, words: Words, ref: Any) -> None:
        self.words, self.refs = words, [ref]

    def load(self) -> Entries:
        return self.words.load(self.refs)[0]

    def store(self, entries: Entries) -> None:
        self.words.store(self.refs, [entries])

    def read(self, place: Array) -> Array:
        return self.words.read(self.refs, place)

    def write(self, writes: list[Write]) -> None:
        self.words.write(self.refs, writes)


class Rows:
    """An array of the lanes in memory, as one row for each of its entries: [entries, lanes]."""

    def __init__(self, shape: Sequence[int], dtype: Any, block: tuple[int, ...]) -> None:
        self.shape, self.dtype, self.block = tuple(shape), dtype, block
        self.size = math.prod(shape)
        self.stored = np.dtype(np.int32) if dtype == np.bool_ else dtype

    @property
    def spec(self) -> pl.BlockSpec:
        return pl.BlockSpec((self.size, *self.block), lambda i: (0, i, *(0 for _ in self.block[1:])))

    def stored_shape(self, padded: int) -> jax.ShapeDtypeStruct:
        others = self.block[1:]
        return jax.ShapeDtypeStruct((self.size, padded // math.prod(others), *others), self.stored)

    def rows(self, leaf: Array, padded: int) -> Array:
        """[lanes, …] as rows, with copies of the last lane."""
        rows = jnp.moveaxis(_as_number(leaf), 0, -1).reshape(self.size, leaf.shape[0])
        rows = jnp.pad(rows, ((0, 0), (0, padded - leaf.shape[0])), mode="edge")
        return rows.reshape(self.stored_shape(padded).shape)

    def array(self, rows: Array, num_lanes: int) -> Array:
        """[lanes, …] from rows."""
        whole = rows.reshape(self.size, -1)[:, :num_lanes].reshape(*self.shape, num_lanes)
        return jnp.moveaxis(whole, -1, 0).astype(self.dtype)

    def store_row(self, ref: Any, number: Array, entries: Entries) -> None:
        """Stores the entries of ``number`` on the first axis."""
        for i, entry in enumerate(entries.vectors(self.block).flat):
            ref[number * len(entries.flat) + i] = entry.astype(self.stored)
