"""How much memory a run takes and how much there is: more lanes than fit run in shares, one after the other.

What the compiled loop needs is XLA's own count (its arguments, results and scratch space); the curves are in float64 on
the host, three times over while the result is put together. Both grow with the lanes, neither with the steps.
"""

import math
import os
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from jaxrank.engine.lanes import AXIS, lane_axes, seen_by
from jaxrank.engine.run import interval_ends, intervals_of_a_call
from jaxrank.engine.task import Task
from jaxrank.engine.ways import call_bytes, lower
from jaxrank.output.tables import counted

_SHARE = 0.8  # of the free memory that a run may fill
_SURELY = 30  # a loop takes less than this many times its arguments: if that fits, the compiler is not asked
_COPIES = 3  # of the curves


class Memory(NamedTuple):
    """Bytes that a run of all lanes at once takes."""

    loop: int  # on the devices
    curves: int  # on the host


def needed(task: Task) -> Memory:
    """What a run takes, as the compiler counts it; nothing of that size is allocated."""
    each = call_bytes(lower_call(task).compile())
    if each is None:  # the backend does not say
        return guessed(task)
    return Memory(each * task.mesh.size, curve_bytes(task))


def lower_call(task: Task, way: str | None = None) -> Any:
    """A call of all lanes at once, lowered from shapes, and its memory not allocated."""
    lanes = _placed(task, task.lane_shapes(task.num_lanes))
    ends = interval_ends(task.steps)
    num_intervals = task.request.call_intervals or intervals_of_a_call(task.num_lanes, ends, task.mesh)
    intervals = jax.ShapeDtypeStruct((num_intervals, 3), jnp.int32, sharding=NamedSharding(task.mesh, PartitionSpec()))
    options: Any = {"metrics": tuple(task.metrics), "mesh": task.mesh, "prng": task.request.prng}
    probes = task.everywhere(task.probes) if task.probes else {}
    return lower(lanes, intervals, probes, **options, way=way or task.way.name)


def guessed(task: Task) -> Memory:
    """What a run takes, by the size of its lanes, without compiling it."""
    return Memory(_SURELY // 5 * size(task.lane_shapes(task.num_lanes)), curve_bytes(task))


def num_shares(task: Task) -> int:
    """The number of shares in which this process's lanes fit in memory; prints a line if there is more than one."""
    lanes = -(-task.num_lanes // jax.process_count())
    limit = usable(task)
    if fits_surely(task, limit):
        return 1
    memory = needed(task)
    shares = shares_that_fit(task, memory, limit)
    if shares > 1:
        print(
            f"jaxrank: {lanes:,} lanes need {gigabytes(sum(memory))} and {gigabytes(limit)} may be used: they run in "
            f"{shares} shares, one after the other",
            file=sys.stderr,
        )
    return shares


def fits_surely(task: Task, limit: float) -> bool:
    """Whether all lanes fit ``limit`` bytes, however the compiler counts. What cannot fit in any shares is refused.

    Nothing that grows with the number of lanes is made for it, so 10⁹ seeds are refused at once.
    """
    if task.num_lanes >= 2**31:
        raise ValueError(f"there must be fewer than 2**31 lanes (settings × instances × seeds); got {task.num_lanes:,}")
    curves = curve_bytes(task)
    room = limit if _on_host(task) else _SHARE * _free_on_host()
    if curves >= room:
        raise ValueError(
            f"the curves must fit in memory; {counted(task.num_lanes, 'lane')} of {counted(len(task.steps), 'record')} "
            f"need {gigabytes(curves)} and {gigabytes(room)} may be used: take fewer records, metrics, seeds or "
            "instances"
        )
    if (lane := size(task.lane_shapes(1))) > limit:
        raise ValueError(
            f"a lane must fit in memory; one of {type(task.policy).__name__} needs {gigabytes(lane)} and "
            f"{gigabytes(limit)} may be used: take fewer items, or allow more by max_memory"
        )
    return _SURELY * size(task.lane_shapes(task.num_lanes)) + curves <= limit


def shares_that_fit(task: Task, memory: Memory, limit: float) -> int:
    """The number of shares that fit ``limit`` bytes, with the curves of all lanes kept on the host."""
    left = limit - (memory.curves if _on_host(task) else 0)
    return min(task.num_lanes, math.ceil(memory.loop / jax.process_count() / left))


def _on_host(task: Task) -> bool:
    return task.mesh.devices.flat[0].platform == "cpu"


def usable(task: Task) -> float:
    """Bytes that a run may fill on its devices: what the request allows, or most of what is free."""
    if task.request.max_memory is not None:
        return task.request.max_memory
    devices = list(task.mesh.devices.flat)
    statistics = [device.memory_stats() for device in devices] if devices[0].platform != "cpu" else []
    if statistics and all(stats and "bytes_limit" in stats for stats in statistics):
        return _SHARE * min(s["bytes_limit"] - s["bytes_in_use"] for s in statistics) * len(devices)
    return _SHARE * _free_on_host()


def _free_on_host() -> float:
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024.0
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return math.inf  # the system does not say


def curve_bytes(task: Task) -> int:
    seen = jax.eval_shape(seen_by, task.probes, task.lane_shapes(1))
    values = len(task.metrics) + sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(seen))
    return _COPIES * 8 * task.num_lanes * len(task.steps) * values


def size(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def gigabytes(size: float) -> str:
    return f"{size / 2**30:,.1f} GB" if size >= 2**30 else f"{size / 2**20:,.1f} MB"


def _placed(task: Task, lanes: Any) -> Any:
    """The shapes of ``lanes``, each with its sharding over the devices."""
    leaves, structure = jax.tree.flatten(lanes)
    specs = [PartitionSpec(AXIS) if axis == 0 else PartitionSpec() for axis in lane_axes(lanes)]
    return jax.tree.unflatten(
        structure,
        [
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(task.mesh, spec))
            for leaf, spec in zip(leaves, specs, strict=True)
        ],
    )
