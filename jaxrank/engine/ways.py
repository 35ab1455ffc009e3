"""Three ways through the steps of a call, and which one a run takes.

- "kernel" (``kernel.py``): one Pallas kernel a call. A run on a GPU takes it if its lanes are small.
- "entries" (``entry_loop.py``): an XLA loop, entry by entry. Other runs of small lanes on accelerators take it.
- "loop" (``lanes.py``): an XLA loop over arrays: CPUs, policies with features, long lists of items, and probes.

Kernels are compiled by Pallas' Triton backend. JAX 0.12 deprecates it, but still has it; where it is missing, runs take
the next way and say why.
"""

import math
import re
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from jaxrank.core.types import Array
from jaxrank.engine.entries import MOST_ENTRIES
from jaxrank.engine.lanes import BY_INTERVAL, SHARED, Lanes, lane_axes, on_mesh, platform_of, run_intervals

_OLDEST_GPU = 8.0  # the compute capability that Triton needs
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
    reason = "as asked for"
    if asked != "entries":
        reason = _on_arrays(lanes, probes, metrics, prng)
        if asked is None or platform == "gpu":  # on others, a kernel that is asked for is interpreted
            reason = _of_device(mesh) or reason
        if not reason:
            return Way("kernel")
        if asked == "kernel":
            raise ValueError(f"way must be 'loop' or left out where a kernel cannot be had; got 'kernel', but {reason}")
    obstacle = _too_many(lanes) or _on_arrays(lanes, probes, metrics, prng)
    if not obstacle:
        return Way("entries", reason)
    if asked == "entries":
        raise ValueError(f"way must be 'loop' where lanes cannot be taken apart; got 'entries', but {obstacle}")
    return Way("loop", obstacle)


def _of_device(mesh: Mesh) -> str:
    """Why these devices cannot run kernels; empty if they can."""
    device = mesh.devices.flat[0]
    if device.platform != "gpu":
        return f"kernels are for GPUs, and this is a {device.platform.upper()}"
    if find_spec("jax.experimental.pallas.triton") is None:
        return f"JAX {jax.__version__} has no Triton backend of Pallas"
    capability = getattr(device, "compute_capability", "none")
    if not re.fullmatch(r"\d+\.\d+", capability) or float(capability) < _OLDEST_GPU:  # of AMD's, it is a name
        return f"Triton needs an NVIDIA GPU of compute capability {_OLDEST_GPU}, and this one has {capability}"
    return ""


def _too_many(lanes: Lanes) -> str:
    """Why an XLA loop cannot carry the entries of these lanes; empty if it can."""
    if (entries := num_entries(lanes)) > MOST_ENTRIES:
        return f"a lane has {entries:,} numbers, and at most {MOST_ENTRIES:,} are taken apart"
    return ""


def _on_arrays(lanes: Lanes, probes: dict[str, Any], metrics: tuple[str, ...], prng: str) -> str:
    """Why a step of these lanes needs whole arrays; empty if it can be taken apart."""
    if probes:
        return "probes see whole arrays"
    if any(leaf.dtype.itemsize != 4 and leaf.dtype != bool for leaf in jax.tree.leaves(lanes)):
        return "only numbers of 32 bits and booleans are taken apart"
    from jaxrank.engine.entrywise import NotEntrywiseError
    from jaxrank.engine.kernel import kept_in_memory

    try:
        kept_in_memory(lanes, metrics=metrics, prng=prng)
    except NotEntrywiseError as error:
        return str(error)
    return ""


def num_entries(lanes: Lanes) -> int:
    """The numbers that one lane consists of, with the parameters that it shares with the others."""
    pairs = zip(jax.tree.leaves(lanes), lane_axes(lanes), strict=True)
    return sum(math.prod(leaf.shape if axis is None else leaf.shape[1:]) for leaf, axis in pairs)


def call(lanes: Lanes, intervals: Array, probes: dict[str, Any], *, mesh: Mesh, **options: Any) -> Any:
    """Advances every lane through ``intervals``, as ``run_intervals`` does, and uses up their state and sums.

    Args:
      lanes: what to advance.
      intervals: int32[n, 3], as of ``run_intervals``, like the other arguments.
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
    return {"xla_gpu_enable_command_buffer": _GRAPHS} if platform == "gpu" else None


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

        run = partial(run_entries, metrics=metrics, prng=prng)
        return on_mesh(run, mesh, lanes, SHARED, out_specs=BY_INTERVAL)(lanes, intervals)
    return run_intervals(lanes, intervals, probes, metrics=metrics, mesh=mesh, prng=prng)
