"""A whole call as one Pallas kernel: a block of lanes goes through all steps of the call without leaving the registers.

The XLA loop of ``array_loop.py`` launches several kernels a step and moves the lanes' state through memory in each.
Here the policy's own one-lane code is evaluated entry by entry (``entrywise.py``) inside a kernel: every program of its
grid loads a block of lanes, runs the intervals, writes what is recorded at their ends, and stores the state. On GPUs,
Pallas compiles it by Triton; elsewhere it runs in interpret mode, as plain JAX, for tests. ``ways.py`` says which runs
are kernels.
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
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh

from jaxrank.core.types import Array
from jaxrank.engine.entries import Entries, KeptEntries, Write, is_entries
from jaxrank.engine.entry_loop import advance_lane, end_interval, kept_in_memory, state_of, vectors
from jaxrank.engine.entrywise import entry_by_entry
from jaxrank.engine.jaxprs import by_demand
from jaxrank.engine.lanes import BY_INTERVAL, SHARED, Lanes, lane_axes, on_mesh, platform_of

BLOCK = 128  # lanes of one program: a vector of Triton's must have a power of two of them
_SMALLEST_TILE, _TILE = 16, 64  # words that are loaded and stored together
_WARPS = 4  # so each of the 128 threads has one lane


def run_kernels(lanes: Lanes, intervals: Array, *, metrics: tuple[str, ...], mesh: Mesh, prng: str) -> Any:
    """``run_kernel`` on every device with its share of lanes; in interpret mode where the devices are no GPUs."""
    interpret = platform_of(mesh) != "gpu"
    run = partial(run_kernel, metrics=metrics, prng=prng, interpret=interpret)
    return on_mesh(run, mesh, lanes, SHARED, out_specs=BY_INTERVAL)(lanes, intervals)


def run_kernel(
    lanes: Lanes,
    intervals: Array,
    *,
    metrics: tuple[str, ...],
    prng: str,
    block: int = BLOCK,
    interpret: bool = False,
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances the lanes of one device through ``intervals`` [n, (start, stop, whole)], as ``run_arrays`` does.

    Args:
      lanes: what to advance.
      intervals: the first step, one past the last step, and whether the interval ends there.
      metrics: the names of those to sum.
      prng: the generator of random numbers.
      block: the lanes of one program, a power of two. The last block is filled up with copies of the last lane.
      interpret: run the kernel as plain JAX, for tests.

    Returns:
      What ``run_arrays`` returns without probes.

    Raises:
      NotEntrywiseError: the policy or the environment has an operation that cannot be evaluated entry by entry.
    """
    num_lanes, num_intervals = lanes.key.shape[0], intervals.shape[0]
    padded = -(-num_lanes // block) * block
    leaves, structure = jax.tree.flatten(lanes)
    progress_structure = jax.tree.structure((lanes.state, lanes.sums))
    first = state_of(lanes).start  # of the leaves that change
    shared = [i for i, axis in enumerate(lane_axes(lanes)) if axis is None]
    kept = [i for i, stays in enumerate(kept_in_memory(lanes, metrics=metrics, prng=prng)) if stays]
    loaded = [i for i in range(len(leaves)) if i not in shared and i not in kept]
    stored = [i for i in range(first, len(leaves)) if i not in kept]
    words_in, words_out = (_Words([leaves[i] for i in some], block) for some in (loaded, stored))
    words_kept = {i: _Words([leaves[i]], block) for i in kept}
    records = {
        name: _Rows((num_intervals, *lanes.sums[name].total.shape[1:]), lanes.sums[name].total.dtype, block)
        for name in metrics
    }
    settled = _Rows((num_intervals,), np.dtype(bool), block)
    recorded = [*records.values(), settled]

    def kernel(intervals_ref: Any, in_ref: Any, *refs: Any) -> None:
        shared_refs, rest = refs[: len(shared)], refs[len(shared) + len(kept) :]  # what is kept is in the results too
        out_ref, rest = rest[0], rest[1:]
        kept_refs, record_refs = dict(zip(kept, rest, strict=False)), rest[len(kept) :]
        of_lane = dict(zip(loaded, words_in.load(in_ref), strict=True))
        of_lane |= {i: _scalars(leaves[i], ref) for i, ref in zip(shared, shared_refs, strict=True)}
        of_lane |= {
            i: KeptEntries(leaves[i].shape[1:], leaves[i].dtype, _Kept(words, kept_refs[i]))
            for i, words in words_kept.items()
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
            for name, ref in zip(metrics, record_refs, strict=False):
                records[name].store(ref, i, sums[name].total)
            sums, is_settled = of_entries(end_interval)(lane._replace(state=state, sums=sums), whole)
            settled.store(record_refs[-1], i, is_settled)
            return state, vectors(sums, block)

        carry = lax.fori_loop(0, num_intervals, interval, vectors((lane.state, lane.sums), block))
        words_out.store(out_ref, [x for x in jax.tree.leaves(carry, is_leaf=is_entries) if _changes(x)])

    call = pl.pallas_call(
        kernel,
        grid=(padded // block,),
        in_specs=[
            pl.BlockSpec(intervals.shape, lambda i: (0, 0)),
            words_in.spec,
            *(pl.BlockSpec((max(leaves[i].size, 1),), lambda i: (0,)) for i in shared),
            *(words.spec for words in words_kept.values()),
        ],
        out_specs=[words_out.spec, *(words.spec for words in words_kept.values()), *(rows.spec for rows in recorded)],
        out_shape=[
            words_out.shape(padded),
            *(words.shape(padded) for words in words_kept.values()),
            *(jax.ShapeDtypeStruct((rows.size, padded), rows.stored) for rows in recorded),
        ],
        input_output_aliases={2 + len(shared) + n: 1 + n for n in range(len(kept))},
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=_WARPS, num_stages=1),
    )
    out, *made = call(
        intervals,
        words_in.pack([leaves[i] for i in loaded], padded),
        *(jnp.pad(leaves[i].reshape(-1), (0, leaves[i].size == 0)) for i in shared),
        *(words.pack([leaves[i]], padded) for i, words in words_kept.items()),
    )
    changed = dict(zip(stored, words_out.unpack(out, num_lanes), strict=True))
    for i, array in zip(kept, made, strict=False):
        (changed[i],) = words_kept[i].unpack(array, num_lanes)
    state, sums = jax.tree.unflatten(progress_structure, [changed[i] for i in range(first, len(leaves))])
    totals = [rows.array(array, num_lanes) for rows, array in zip(recorded, made[len(kept) :], strict=True)]
    return (state, sums), dict(zip(metrics, totals, strict=False)), totals[-1], {}


def _changes(entries: Entries) -> bool:
    return not isinstance(entries, KeptEntries)


def _scalars(leaf: Array, ref: Any) -> Entries:
    """What is the same in all lanes."""
    return Entries(leaf.shape, leaf.dtype, [ref[i] for i in range(leaf.size)])


def _tiles(num_words: int) -> list[int]:
    """The words of every tile, powers of two."""
    full, rest = divmod(max(num_words, 1), _TILE)
    return [_TILE] * full + [max(1 << (rest - 1).bit_length(), _SMALLEST_TILE)] * (rest > 0)


class _Words:
    """Some arrays of a lane as one row of 32-bit words: [lanes, words].

    A kernel loads and stores them in tiles of many words, which it splits and joins. For every load and store, Triton's
    pass "coalesce" compares all pairs of operations that they are connected with: in tiles of 16 words, a kernel of
    TopRank with 13 items was not compiled in 500 s, and in tiles of 64 words it is in 22 s.
    """

    def __init__(self, leaves: Sequence[Any], block: int) -> None:
        self.leaves = [(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        self.sizes = [math.prod(shape) for shape, _ in self.leaves]
        self.tiles = _tiles(sum(self.sizes))
        self.width = sum(self.tiles)
        self.block = block

    @property
    def spec(self) -> pl.BlockSpec:
        return pl.BlockSpec((self.block, self.width), lambda i: (i, 0))

    def shape(self, padded: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((padded, self.width), jnp.int32)

    def pack(self, leaves: Sequence[Array], padded: int) -> Array:
        """The arrays [lanes, …] as words, with copies of the last lane up to ``padded`` lanes."""
        rows = [_as_word(leaf).reshape(leaf.shape[0], -1) for leaf in leaves]
        words = jnp.concatenate(rows, axis=1)
        words = jnp.pad(words, ((0, 0), (0, self.width - words.shape[1])))
        return jnp.pad(words, ((0, padded - words.shape[0]), (0, 0)), mode="edge")

    def unpack(self, words: Array, num_lanes: int) -> list[Array]:
        ends = np.cumsum(self.sizes)
        return [
            _from_word(words[:num_lanes, end - size : end], dtype).reshape(num_lanes, *shape)
            for end, size, (shape, dtype) in zip(ends, self.sizes, self.leaves, strict=True)
        ]

    def load(self, ref: Any) -> list[Entries]:
        words: list[Array] = []
        for size in self.tiles:
            parts = lax.split(ref[:, pl.ds(len(words), size)], [1] * size, axis=1)
            words += [part.reshape(self.block) for part in parts]
        return [
            Entries(shape, dtype, [_from_word(word, dtype) for word in words[end - size : end]])
            for end, size, (shape, dtype) in zip(np.cumsum(self.sizes), self.sizes, self.leaves, strict=True)
        ]

    def store(self, ref: Any, leaves: Sequence[Entries]) -> None:
        words = [_as_word(entry) for leaf in leaves for entry in leaf.vectors(self.block).flat]
        words += [jnp.zeros(self.block, jnp.int32)] * (self.width - len(words))
        start = 0
        for size in self.tiles:
            ref[:, pl.ds(start, size)] = _joined(words[start : start + size])
            start += size


class _Kept:
    """The memory of one array: its words, at ``ref``."""

    def __init__(self, words: _Words, ref: Any) -> None:
        self.words, self.ref, self.dtype = words, ref, words.leaves[0][1]

    def load(self) -> Entries:
        return self.words.load(self.ref)[0]

    def store(self, entries: Entries) -> None:
        self.words.store(self.ref, [entries])

    def read(self, place: Array) -> Array:
        return _from_word(triton.load(self._at(place)), self.dtype)

    def write(self, writes: list[Write]) -> None:
        for place, value, where in writes:
            triton.store(self._at(place), _as_word(value), mask=where)

    def _at(self, place: Array) -> Any:
        return self.ref.at[jnp.arange(self.words.block), place]


def _as_word(x: Array) -> Array:
    return x.astype(jnp.int32) if x.dtype == jnp.bool_ else lax.bitcast_convert_type(x, jnp.int32)


def _from_word(x: Array, dtype: Any) -> Array:
    return x.astype(dtype) if dtype == jnp.bool_ else lax.bitcast_convert_type(x, dtype)


def _joined(words: Sequence[Array]) -> Array:
    """[lanes, n] of n vectors [lanes], n a power of two, by joining pairs, which is all that Triton has."""
    bits = len(words).bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(len(words))] if bits else [0]
    parts = [words[i] for i in order]
    while len(parts) > 1:
        parts = [jnp.stack(pair, axis=-1) for pair in zip(parts[0::2], parts[1::2], strict=True)]
    return parts[0].reshape(-1, len(words))


class _Rows:
    """What a lane records at the end of every interval, as rows [intervals · entries, lanes]."""

    def __init__(self, shape: Sequence[int], dtype: Any, block: int) -> None:
        self.shape, self.dtype, self.block = tuple(shape), dtype, block
        self.size = math.prod(shape)
        self.stored = np.dtype(np.int32) if dtype == np.bool_ else dtype  # there are no booleans in memory

    @property
    def spec(self) -> pl.BlockSpec:
        return pl.BlockSpec((self.size, self.block), lambda i: (0, i))

    def array(self, made: Array, num_lanes: int) -> Array:
        """What the kernel has made as an array [intervals, lanes, …]."""
        whole = made[:, :num_lanes].reshape(*self.shape, num_lanes)
        return jnp.moveaxis(whole, -1, 1).astype(self.dtype)

    def store(self, ref: Any, row: Array, entries: Entries) -> None:
        """Writes what belongs to interval ``row``."""
        for i, entry in enumerate(entries.vectors(self.block).flat):
            ref[row * len(entries.flat) + i, :] = entry.astype(self.stored)
