"""Three ways through the steps of a call, and which one a run takes.

- "kernel" (``kernel.py``): one Pallas kernel a call. A run on a GPU or TPU takes it if its lanes are small.
- "entries" (``entry_loop.py``): an XLA loop, entry by entry. Other runs of small lanes on accelerators take it.
- "loop" (``array_loop.py``): an XLA loop over arrays: CPUs, policies with features, long lists of items, and probes.

Kernels are compiled by Pallas' Triton backend for GPUs, and by its Mosaic backend for TPUs. JAX 0.12 deprecates the
former, but still has it; where it is missing, runs take the next way and say why.
"""

import math
import re
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxrank.core.types import Array
from jaxrank.engine.array_loop import run_arrays
from jaxrank.engine.entries import MOST_ENTRIES
from jaxrank.engine.jaxprs import primitives
from jaxrank.engine.lanes import BY_INTERVAL, CALL_INTERVALS, SHARED, Lanes, lane_axes, on_mesh, platform_of

_OLDEST_GPU = 8.0  # the compute capability that Triton needs
_MOST_OPERATIONS = 40_000  # of a step that is taken apart: beyond, compiling it takes minutes
_REGISTERS = 255  # of a thread
# Operations of a step that is a kernel, without and with arrays that stay in memory: beyond, compiling it takes more
# than two minutes, for Triton goes through pairs of operations anew for every load and store.
_MOST_IN_KERNEL, _MOST_WITH_MEMORY = 24_000, 16_000
_VECTORS = 3_000  # of 4 kB in the 16 MB that Mosaic may use of a TPU core's memory: the rest is for what it spills
_MOST_AT_ONCE = 720  # numbers that wait in a step: beyond, NVIDIA's assembler spills kilobytes (TopRank with 12 items)
# Elementwise primitives that Pallas does not lower.
_UNKNOWN = {
    "gpu": {"copy", "copy_p", "digamma", "erf", "erfc", "lgamma", "log2", "mulhi", "reduce_precision", "round"}
    | {"threefry2x32"},
    "tpu": {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "copy", "copy_p", "cosh", "digamma", "erfc"}
    | {"expm1", "lgamma", "log2", "mulhi", "reduce_precision", "sinh", "threefry2x32"},
}
_BACKENDS = {"gpu": "Triton", "tpu": "Mosaic"}
# The parts of a program that XLA puts into CUDA graphs. With loops and conditionals among them, a whole call is one
# graph, and the host never waits inside of it; by default, XLA copies every loop's condition to the host.
_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"


class Way(NamedTuple):
    """The way that a run takes."""

    name: str  # "kernel", "entries" or "loop"
    reason: str = ""  # why it is not one before it

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def choose(
    asked: str | None, lanes: Lanes, probes: dict[str, Any], *, metrics: tuple[str, ...], mesh: Mesh, prng: str
) -> Way:
    """The way of a run: the one that was asked for, or the first that it can take.

    Args:
      asked: its name, or None.
      lanes: the shapes of some lanes.
      probes: by name.
      metrics: as of ``call``, like the other options.
      mesh: likewise.
      prng: likewise.
    """
    if asked == "loop":
        return Way("loop", "as asked for")
    platform = platform_of(mesh)
    if asked is None and platform == "cpu":
        return Way("loop", "the fastest on a CPU")
    on_arrays, numbers = _on_arrays(lanes, probes, metrics, prng)
    reason = "as asked for"
    if asked != "entries":
        reason = on_arrays
        if platform != "cpu":  # where a kernel that is asked for is interpreted
            reason = _of_device(mesh) or reason or _no_kernel(platform, lanes, numbers, metrics, prng)
        if not reason:
            return Way("kernel")
        if asked == "kernel":
            raise ValueError(f"way must be 'loop' or left out where a kernel cannot be had; got 'kernel', but {reason}")
    obstacle = _too_many(lanes, platform) or on_arrays
    if asked is None and not obstacle and numbers > _REGISTERS and "while" in primitives(_step(lanes, metrics, prng)):
        obstacle = f"its steps have loops, and entry by entry they would carry {numbers} numbers"
    if not obstacle:
        return Way("entries", reason)
    if asked == "entries":
        raise ValueError(f"way must be 'loop' where lanes cannot be taken apart; got 'entries', but {obstacle}")
    return Way("loop", obstacle)


def _of_device(mesh: Mesh) -> str:
    """Why these devices cannot run kernels; empty if they can."""
    device = mesh.devices.flat[0]
    if device.platform == "tpu":
        return ""
    if device.platform != "gpu":
        return f"kernels are for GPUs and TPUs, and this is a {device.platform.upper()}"
    if find_spec("jax.experimental.pallas.triton") is None:
        return f"JAX {jax.__version__} has no Triton backend of Pallas"
    capability = getattr(device, "compute_capability", "none")
    if not re.fullmatch(r"\d+\.\d+", capability) or float(capability) < _OLDEST_GPU:  # of AMD's, it is a name
        return f"Triton needs an NVIDIA GPU of compute capability {_OLDEST_GPU}, and this one has {capability}"
    return ""


def _too_many(lanes: Lanes, platform: str) -> str:
    """Why a TPU's loop cannot carry the entries of these lanes; empty if it can. Others keep large arrays whole."""
    if platform == "tpu" and (entries := num_entries(lanes)) > MOST_ENTRIES:
        return f"a lane has {entries:,} numbers, and at most {MOST_ENTRIES:,} are taken apart"
    return ""


def _on_arrays(lanes: Lanes, probes: dict[str, Any], metrics: tuple[str, ...], prng: str) -> tuple[str, int]:
    """Why a step of these lanes needs whole arrays; empty if it can be taken apart, into how many numbers."""
    if probes:
        return "probes see whole arrays", 0
    if any(leaf.dtype.itemsize != 4 and leaf.dtype != bool for leaf in jax.tree.leaves(lanes)):
        return "only numbers of 32 bits and booleans are taken apart", 0
    from jaxrank.engine.entry_loop import kept_in_memory
    from jaxrank.engine.entrywise import NotEntrywiseError, num_operations

    if (operations := num_operations(_step(lanes, metrics, prng))) > _MOST_OPERATIONS:
        reason = (
            f"entry by entry, a step has about {operations:,} operations, and at most {_MOST_OPERATIONS:,} are taken"
        )
        return reason, 0
    try:
        kept = kept_in_memory(lanes, metrics=metrics, prng=prng)
    except NotEntrywiseError as error:
        return str(error), 0
    sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(_one_lane(lanes))]
    return "", sum(size for size, stays in zip(sizes, kept, strict=True) if not stays)


def _no_kernel(platform: str, lanes: Lanes, numbers: int, metrics: tuple[str, ...], prng: str) -> str:
    """Why no good kernel can be made of these lanes, of so many numbers each, in minutes; empty if it can."""
    from jaxrank.engine.entry_loop import numbers_at_once
    from jaxrank.engine.entrywise import num_operations

    step = _step(lanes, metrics, prng)
    if unknown := sorted(_UNKNOWN[platform] & {*primitives(step)}):
        return f"Pallas' {_BACKENDS[platform]} backend has no {unknown[0]!r}"
    if platform == "tpu":
        return _too_many(lanes, platform) or _too_many_vectors(lanes)
    if numbers > _REGISTERS:
        return f"a kernel keeps a lane in the {_REGISTERS} registers of a thread, and here it has {numbers} numbers"
    most = _MOST_WITH_MEMORY if num_entries(lanes) > numbers else _MOST_IN_KERNEL
    if (operations := num_operations(step)) > most:
        return f"a kernel's step would have about {operations:,} operations, and at most {most:,} are compiled"
    if (at_once := numbers_at_once(lanes, metrics=metrics, prng=prng)) > _MOST_AT_ONCE:
        return f"in a kernel's step {at_once} numbers of a lane would wait at once, and at most {_MOST_AT_ONCE} may"
    return ""


def _too_many_vectors(lanes: Lanes) -> str:
    """Why the memory of a TPU's core cannot hold a block of these lanes; empty if it can."""
    recorded = 1 + sum(math.prod(total.total.shape[1:]) for total in lanes.sums.values())
    vectors = 2 * (2 * num_entries(lanes) + CALL_INTERVALS * recorded)  # of arguments and results, of two blocks
    if vectors > _VECTORS:
        return f"a kernel would keep {vectors:,} vectors in the memory of a TPU's core, and {_VECTORS:,} have room"
    return ""


def _step(lanes: Lanes, metrics: tuple[str, ...], prng: str) -> Any:
    """The jaxpr of a step of one lane."""
    from jaxrank.engine.entry_loop import advance_lane

    return jax.make_jaxpr(partial(advance_lane, metrics, prng))(_one_lane(lanes), jnp.int32(1))


def num_entries(lanes: Lanes) -> int:
    """The numbers that one lane consists of, with the parameters that it shares with the others."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(_one_lane(lanes)))


def _one_lane(lanes: Lanes) -> Lanes:
    """The shapes of one of them."""
    leaves, structure = jax.tree.flatten(lanes)
    shapes = [
        leaf.shape if axis is None else leaf.shape[1:] for leaf, axis in zip(leaves, lane_axes(lanes), strict=True)
    ]
    one = [jax.ShapeDtypeStruct(shape, leaf.dtype) for shape, leaf in zip(shapes, leaves, strict=True)]
    return jax.tree.unflatten(structure, one)


def call(lanes: Lanes, intervals: Array, probes: dict[str, Any], *, mesh: Mesh, **options: Any) -> Any:
    """Advances every lane through ``intervals``, as ``run_arrays`` does, and uses up their state and sums.

    Args:
      lanes: what to advance.
      intervals: int32[n, 3], as of ``run_arrays``, like the other arguments.
      probes: by name.
      mesh: the devices.
      options: ``metrics``, ``prng`` and the name of the ``way``.
    """
    return program(platform_of(mesh))(*split(lanes), intervals, probes, mesh=mesh, **options)


def lower(lanes: Lanes, intervals: Any, probes: dict[str, Any], *, mesh: Mesh, **options: Any) -> Any:
    """``call`` before it is compiled, of arrays or of their shapes."""
    return program(platform_of(mesh)).lower(*split(lanes), intervals, probes, mesh=mesh, **options)


def call_bytes(compiled: Any) -> int | None:
    """Bytes of a compiled call's arguments, results and scratch space on one device; None if JAX cannot say."""
    if (analysis := compiled.memory_analysis()) is None:
        return None
    each = analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes
    return each - analysis.alias_size_in_bytes  # what is used up makes room for the result


def split(lanes: Lanes) -> tuple[Lanes, Any]:
    """What stays the same in a call, and what it uses up."""
    return lanes._replace(state=(), sums={}), (lanes.state, lanes.sums)


def compiler_options(platform: str) -> dict[str, Any] | None:
    """What XLA is told: loops as CUDA graphs; vectors as wide as the CPU has them, instead of 256 bits."""
    options: dict[str, dict[str, Any]] = {
        "gpu": {"xla_gpu_enable_command_buffer": _GRAPHS},
        "cpu": {"xla_cpu_prefer_vector_width": 512},
    }
    return options.get(platform)


@cache
def program(platform: str) -> Any:
    """The compiled function behind ``call`` on a platform."""
    return jax.jit(
        _advance,
        static_argnames=("metrics", "mesh", "prng", "way"),
        donate_argnames="progress",
        compiler_options=compiler_options(platform),
    )


def _advance(
    lanes: Lanes,
    progress: Any,
    intervals: Array,
    probes: dict[str, Any],
    *,
    metrics: tuple[str, ...],
    mesh: Mesh,
    prng: str,
    way: str,
) -> Any:
    state, sums = progress
    lanes = lanes._replace(state=state, sums=sums)
    if way == "kernel":
        from jaxrank.engine.kernel import run_kernels

        return run_kernels(lanes, intervals, metrics=metrics, mesh=mesh, prng=prng)
    if way == "entries":
        from jaxrank.engine.entry_loop import run_entries

        run = partial(run_entries, metrics=metrics, prng=prng, gathers=platform_of(mesh) != "tpu")
        return on_mesh(run, mesh, lanes, SHARED, out_specs=BY_INTERVAL)(lanes, intervals)
    return run_arrays(lanes, intervals, probes, metrics=metrics, mesh=mesh, prng=prng)
