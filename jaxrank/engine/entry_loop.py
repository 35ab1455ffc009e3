"""A call as an XLA loop over entries: what accelerators run where a lane is small and is not taken through a kernel.

The loop of ``lanes.py`` maps one-lane code over arrays [lanes, …], of which XLA makes a kernel for every layout,
look-up and reduction. Here every entry of a lane's arrays is a vector of its own (``entrywise.py``), so that a step is
elementwise, and XLA fuses it into a few kernels. A rare branch is computed for all lanes in the steps in which any lane
takes it: nothing is gathered, and no lane waits for another.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrank.core import random
from jaxrank.core.types import Array
from jaxrank.engine.entries import Entries, is_entries
from jaxrank.engine.entrywise import entry_by_entry
from jaxrank.engine.lanes import Lanes, lane_axes, may_settle, one_step


def run_entries(
    lanes: Lanes, intervals: Array, *, metrics: tuple[str, ...], prng: str
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances the lanes of one device through ``intervals``; returns what ``run_intervals`` does without probes."""
    size = lanes.key.shape[0]
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    taken_apart = [
        Entries.shared(leaf) if axis is None else Entries.of_lanes(leaf)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    lane = jax.tree.unflatten(structure, taken_apart)
    of_entries = partial(entry_by_entry, num_lanes=size, in_place=True)

    def step(t: Array, carry: Any) -> Any:
        state, sums = carry
        return vectors(of_entries(partial(advance_lane, metrics, prng))(lane._replace(state=state, sums=sums), t), size)

    def interval(carry: Any, bounds: Array) -> tuple[Any, Any]:
        start, stop, whole = bounds
        state, sums = lax.fori_loop(start, stop, step, carry)
        totals = {name: sums[name].total.lanes(size) for name in metrics}
        sums, settled = of_entries(end_interval)(lane._replace(state=state, sums=sums), whole)
        return (state, vectors(sums, size)), (totals, settled.lanes(size))

    progress, (totals, settled) = lax.scan(interval, vectors((lane.state, lane.sums), size), intervals)
    return jax.tree.map(lambda x: x.lanes(size), progress, is_leaf=is_entries), totals, settled, {}


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


def vectors(tree: Any, num_lanes: int) -> Any:
    """A pytree of entries, all of them vectors."""
    return jax.tree.map(lambda x: x.vectors(num_lanes), tree, is_leaf=is_entries)
