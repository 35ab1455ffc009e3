"""A call as an XLA loop over entries: what accelerators run where a lane is small and is not taken through a kernel.

The loop of ``array_loop.py`` maps one-lane code over arrays [lanes, …], of which XLA makes a kernel for every layout,
look-up and reduction. Here every entry of a lane's arrays is a vector of its own (``entrywise.py``), so that a step is
elementwise, and XLA fuses it into a few kernels. A rare branch is computed for all lanes in the steps in which any lane
takes it: nothing is gathered, and no lane waits for another.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrank.core import random
from jaxrank.core.types import Array
from jaxrank.engine.entries import (
    MOST_ENTRIES,
    Entries,
    KeptEntries,
    NumLanes,
    TouchedError,
    Write,
    is_entries,
    unstacked,
)
from jaxrank.engine.entrywise import NotEntrywiseError, entry_by_entry
from jaxrank.engine.jaxprs import most_at_once
from jaxrank.engine.lanes import Lanes, for_each_step, lane_axes, may_settle, one_step

_LARGE = 32  # entries of an array that is kept in memory if only rare branches change it
_FEW = 128  # lanes to find out which


def run_entries(
    lanes: Lanes, intervals: Array, *, metrics: tuple[str, ...], prng: str, gathers: bool = True
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances the lanes of one device through ``intervals``; returns what ``run_arrays`` does without probes.

    With ``gathers``, rare branches look numbers up in arrays, and write them there. On a TPU, where that is slow, all
    arrays are taken apart.
    """
    size = lanes.key.shape[0]
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    kept = kept_in_memory(lanes, metrics=metrics, prng=prng) if gathers else []
    memories = {i: _Rows(leaves[i]) for i, stays in enumerate(kept) if stays}
    taken_apart = [
        memories[i].entries() if i in memories else Entries.shared(leaf) if axis is None else Entries.of_lanes(leaf)
        for i, (leaf, axis) in enumerate(zip(leaves, axes, strict=True))
    ]
    lane = jax.tree.unflatten(structure, taken_apart)
    of_entries = partial(entry_by_entry, num_lanes=size, in_place=True)

    def step(t: Array, carry: Any) -> Any:
        arrays, state, sums = carry
        for memory, array in zip(memories.values(), arrays, strict=True):
            memory.array = array
        after = of_entries(partial(advance_lane, metrics, prng))(lane._replace(state=state, sums=sums), t)
        return [memory.array for memory in memories.values()], *vectors(after, size)

    def interval(carry: Any, bounds: Array) -> tuple[Any, Any]:
        start, stop, whole = bounds
        arrays, state, sums = for_each_step(start, stop, step, carry)
        totals = {name: sums[name].total.lanes(size) for name in metrics}
        sums, settled = of_entries(end_interval)(lane._replace(state=state, sums=sums), whole)
        return (arrays, state, vectors(sums, size)), (totals, settled.lanes(size))

    first = ([memory.array for memory in memories.values()], *vectors((lane.state, lane.sums), size))
    (arrays, *progress), (totals, settled) = lax.scan(interval, first, intervals)
    for memory, array in zip(memories.values(), arrays, strict=True):
        memory.array = array
    whole = jax.tree.map(lambda x: _whole(x, size), tuple(progress), is_leaf=is_entries)
    return whole, totals, settled, {}


def _whole(x: Entries, num_lanes: int) -> Array:
    if isinstance(x, KeptEntries):
        assert isinstance(x.memory, _Rows)
        return x.memory.lanes()
    return x.lanes(num_lanes)


class _Rows:
    """The memory of an array that only rare branches change: one array [entries, lanes], which the loop carries."""

    def __init__(self, leaf: Array) -> None:
        self.shape, self.dtype, self.num_lanes = leaf.shape[1:], leaf.dtype, leaf.shape[0]
        self.array = leaf.reshape(self.num_lanes, -1).T

    def entries(self) -> KeptEntries:
        return KeptEntries(self.shape, self.dtype, self)

    def lanes(self) -> Array:
        return self.array.T.reshape(self.num_lanes, *self.shape)

    def load(self) -> Entries:
        return Entries(self.shape, self.dtype, unstacked(self.array))

    def store(self, entries: Entries) -> None:
        self.array = jnp.stack(entries.vectors(self.num_lanes).flat)

    def read(self, place: Array) -> Array:
        return self.array.at[place, jnp.arange(self.num_lanes)].get(mode="promise_in_bounds")

    def write(self, writes: list[Write]) -> None:
        outside = self.array.shape[0]  # a write there is dropped
        places = jnp.stack([jnp.where(where, place, outside) for place, _, where in writes])
        values = jnp.stack([value for _, value, _ in writes])
        self.array = self.array.at[places, jnp.arange(self.num_lanes)].set(values, mode="drop")


def advance_lane(metrics: tuple[str, ...], prng: str, lane: Lanes, t: Array) -> Any:
    """One lane's state and sums after step ``t``."""
    state, _, _, measured = one_step(lane, random.step_words(lane.key, t), t, metrics=metrics, prng=prng)
    return state, {name: lane.sums[name].add(measured[name]) for name in metrics}


def end_interval(lane: Lanes, whole: Array) -> Any:
    """One lane's sums to continue with, and whether it is settled; of an interval that is cut short, as they are."""
    sums = jax.tree.map(lambda value: jnp.where(whole == 1, jnp.zeros_like(value), value), lane.sums)
    if not may_settle(lane.policy, lane.environment):
        return sums, jnp.bool_(False)
    return sums, lane.policy.settled(lane.state) & (whole == 1)  # type: ignore[attr-defined]


def vectors(tree: Any, num_lanes: NumLanes) -> Any:
    """A pytree of entries, all of them vectors."""
    return jax.tree.map(lambda x: x.vectors(num_lanes), tree, is_leaf=is_entries)


def kept_in_memory(lanes: Lanes, *, metrics: tuple[str, ...], prng: str) -> list[bool]:
    """For every leaf of ``lanes``: does it stay in memory, because it is large and only rare branches change it?

    Raises:
      NotEntrywiseError: the policy or the environment has an operation that cannot be evaluated entry by entry, or too
        many entries are used in every step.
    """
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    shapes = [leaf.shape if axis is None else leaf.shape[1:] for leaf, axis in zip(leaves, axes, strict=True)]
    state = state_of(lanes)
    kept = [i in state and math.prod(shape) >= _LARGE for i, shape in enumerate(shapes)]
    of_entries = partial(entry_by_entry, num_lanes=_FEW)

    def step(t: Array) -> None:
        entries = []
        for shape, leaf, stays in zip(shapes, leaves, kept, strict=True):
            same = [jnp.zeros(_FEW, leaf.dtype)] * math.prod(shape)  # one and the same: quick to evaluate
            plain = Entries(shape, leaf.dtype, same)
            entries.append(KeptEntries(shape, leaf.dtype, _Imagined(plain)) if stays else plain)
        lane = jax.tree.unflatten(structure, entries)
        try:
            after, sums = of_entries(partial(advance_lane, metrics, prng))(lane, t)
            of_entries(end_interval)(lane._replace(state=after, sums=sums), t)
        except TouchedError as error:
            kept[next(i for i, x in enumerate(entries) if x is error.entries)] = False
            return
        for i, x in zip(state, jax.tree.leaves(after, is_leaf=is_entries), strict=True):
            kept[i] = kept[i] and x is entries[i]

    before: list[bool] = []
    while before != kept:
        before = list(kept)
        entries = sum(math.prod(shape) for shape, stays in zip(shapes, kept, strict=True) if not stays)
        if entries > MOST_ENTRIES:
            raise NotEntrywiseError(f"a lane has {entries:,} numbers, and at most {MOST_ENTRIES:,} are taken apart")
        # A new function, since JAX remembers what ``step`` returned; and a step that is not known, since a known one
        # would leave branches out.
        jax.eval_shape(lambda t: step(t), jax.ShapeDtypeStruct((), jnp.int32))
    return kept


def numbers_at_once(lanes: Lanes, *, metrics: tuple[str, ...], prng: str) -> int:
    """The most numbers of a lane that wait at any time in a step, in the order of its code."""
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    shapes = [leaf.shape if axis is None else leaf.shape[1:] for leaf, axis in zip(leaves, axes, strict=True)]
    kept = kept_in_memory(lanes, metrics=metrics, prng=prng)

    def step(t: Array, numbers: list[Any]) -> Any:
        entries = []
        for shape, leaf, stays, flat in zip(shapes, leaves, kept, numbers, strict=True):
            plain = Entries(shape, leaf.dtype, flat * math.prod(shape) if stays else flat)
            entries.append(KeptEntries(shape, leaf.dtype, _Imagined(plain)) if stays else plain)
        lane = jax.tree.unflatten(structure, entries)
        return vectors(entry_by_entry(partial(advance_lane, metrics, prng), _FEW)(lane, t), _FEW)

    numbers = [
        [jax.ShapeDtypeStruct((_FEW,), leaf.dtype)] * (1 if stays else math.prod(shape))
        for shape, leaf, stays in zip(shapes, leaves, kept, strict=True)
    ]
    return most_at_once(jax.make_jaxpr(step)(jax.ShapeDtypeStruct((), jnp.int32), numbers))


class _Imagined:
    """A memory of entries that are all the same."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def load(self) -> Entries:
        return self.entries

    def store(self, entries: Entries) -> None:
        pass

    def read(self, place: Array) -> Array:
        return self.entries.flat[0]

    def write(self, writes: list[Write]) -> None:
        pass


def state_of(lanes: Lanes) -> range:
    """The numbers of the leaves of ``lanes`` that are its state."""
    end = len(jax.tree.leaves(lanes)) - len(jax.tree.leaves(lanes.sums))
    return range(end - len(jax.tree.leaves(lanes.state)), end)
