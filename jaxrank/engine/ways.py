"""Two ways through a call: one Pallas kernel (``kernel.py``) or an XLA loop (``lanes.py``), and which one a run takes.

On a GPU, a run whose lanes are small goes through all steps of a call in one kernel. Everything else is an XLA loop:
policies with features, long lists of items, probes, CPUs, TPUs, and GPUs on which Pallas' Triton backend does not
compile. JAX 0.12 deprecates that backend, but still has it. Where it is missing, runs take the loop and say why.
"""

import math
import re
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from jaxrank.core.types import Array
from jaxrank.engine.lanes import Lanes, lane_axes, run_intervals

# Numbers that a lane may consist of, state and parameters together, to go through a kernel: each is a register or a
# place in the cache of its core. ``benchmarks/accelerators.py`` shows what larger lanes compile to.
MOST_ENTRIES = 400
_OLDEST_GPU = 8.0  # the compute capability that Triton needs
# The parts of a program that XLA puts into CUDA graphs. With loops and conditionals among them, a whole call is one
# graph, and the host never waits inside of it; by default, XLA copies every loop's condition to the host.
_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"


class Way(NamedTuple):
    """The way that a run takes."""

    name: str  # "kernel" or "loop"
    reason: str = ""  # why it is not the kernel

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def choose(
    asked: str | None, lanes: Lanes, probes: dict[str, Any], *, metrics: tuple[str, ...], mesh: Mesh, prng: str
) -> Way:
    """The way of a run: the one that was asked for or, on a GPU, the kernel if nothing speaks against it.

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
    if asked is None and platform != "gpu":
        return Way("loop", f"kernels are for GPUs, and this is a {platform.upper()}")
    obstacle = "a kernel has no room for probes" if probes else _of_device(mesh) or _of_code(lanes, metrics, prng)
    if not obstacle:
        return Way("kernel")
    if asked == "kernel":
        raise ValueError(f"way must be 'loop' or left out where a kernel cannot be had; got 'kernel', but {obstacle}")
    return Way("loop", obstacle)


def _of_device(mesh: Mesh) -> str:
    """Why these devices cannot run kernels; empty if they can."""
    if find_spec("jax.experimental.pallas.triton") is None:
        return f"JAX {jax.__version__} has no Triton backend of Pallas"
    device = mesh.devices.flat[0]
    if device.platform != "gpu":  # there, kernels are interpreted
        return ""
    capability = getattr(device, "compute_capability", "none")
    if not re.fullmatch(r"\d+\.\d+", capability) or float(capability) < _OLDEST_GPU:  # of AMD's, it is a name
        return f"Triton needs an NVIDIA GPU of compute capability {_OLDEST_GPU}, and this one has {capability}"
    return ""


def _of_code(lanes: Lanes, metrics: tuple[str, ...], prng: str) -> str:
    """Why these lanes cannot be one kernel; empty if they can."""
    if (entries := num_entries(lanes)) > MOST_ENTRIES:
        return f"a lane has {entries:,} numbers, and a kernel has room for {MOST_ENTRIES:,}"
    from jaxrank.engine.entrywise import NotEntrywiseError
    from jaxrank.engine.kernel import check_entrywise

    try:
        check_entrywise(lanes, metrics=metrics, prng=prng)
    except NotEntrywiseError as error:
        return str(error)
    return ""


def num_entries(lanes: Lanes) -> int:
    """The numbers that one lane consists of, with the parameters that it shares with the others."""
    pairs = zip(jax.tree.leaves(lanes), lane_axes(lanes), strict=True)
    return sum(math.prod(leaf.shape if axis is None else leaf.shape[1:]) for leaf, axis in pairs)


def platform_of(mesh: Mesh) -> str:
    """ "cpu", "gpu" or "tpu"."""
    return mesh.devices.flat[0].platform


def call(lanes: Lanes, intervals: Array, probes: dict[str, Any], *, mesh: Mesh, **options: Any) -> Any:
    """Advances every lane through ``intervals``, as ``run_intervals`` does, and uses up their state and sums.

    Args:
      lanes: what to advance.
      intervals: int32[n, 3], as of ``run_intervals``, like the other arguments.
      probes: by name.
      mesh: the devices.
      options: ``metrics``, ``prng`` and the name of the ``way``.
    """
    return _program(platform_of(mesh))(*_split(lanes), intervals, probes, mesh=mesh, **options)


def lower(lanes: Lanes, intervals: Any, probes: dict[str, Any], *, mesh: Mesh, **options: Any) -> Any:
    """``call`` before it is compiled, of arrays or of their shapes."""
    return _program(platform_of(mesh)).lower(*_split(lanes), intervals, probes, mesh=mesh, **options)


def call_bytes(compiled: Any) -> int | None:
    """Bytes of a compiled call's arguments, results and scratch space on one device; None if JAX cannot say."""
    if (analysis := compiled.memory_analysis()) is None:
        return None
    each = analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes
    return each - analysis.alias_size_in_bytes  # what is used up makes room for the result


def _split(lanes: Lanes) -> tuple[Lanes, Any]:
    return lanes._replace(state=(), sums={}), (lanes.state, lanes.sums)


@cache
def _program(platform: str) -> Any:
    options = {"xla_gpu_enable_command_buffer": _GRAPHS} if platform == "gpu" else None
    return jax.jit(
        _advance,
        static_argnames=("metrics", "mesh", "prng", "way"),
        donate_argnames="progress",
        compiler_options=options,
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
    return run_intervals(lanes, intervals, probes, metrics=metrics, mesh=mesh, prng=prng)
