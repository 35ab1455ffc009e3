"""Which devices a run uses.

On accelerators, all of them. On a CPU, one device per core. JAX makes its CPU devices when its CPU backend starts, and
only then, so ``import jaxrank`` asks for them, unless the backend has already started or the user has set their number
(``jax_num_cpu_devices``, or ``--xla_force_host_platform_device_count`` in XLA_FLAGS). With a single CPU device, a run
uses the other cores only as far as XLA's own threads do.
"""

import contextlib
import os

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxrank.core.checks import integer
from jaxrank.engine.lanes import AXIS

_LANES_PER_CORE = 8  # one vector; fewer lanes are not worth another core


def use_all_cores() -> None:
    """Makes one CPU device for every core that this process may use, where that is still possible."""
    given = jax.config.jax_num_cpu_devices > 0  # type: ignore[attr-defined]
    if not given and "device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # if the backend has started
            jax.config.update("jax_num_cpu_devices", _num_cores())


def lane_mesh(num_lanes: int, mesh: Mesh | None, has_features: bool) -> Mesh:
    """A mesh of one axis over the devices of ``mesh``; by default all of them, or as many CPU cores as are useful.

    Items with features need matrix products, which XLA spreads over its own threads. Several CPU devices would share
    these threads and may wait for each other forever (seen with jaxlib 0.10), so such runs have one CPU device.
    """
    own = jax.process_index()  # with several processes, each has its own lanes
    devices = np.array([d for d in (jax.devices() if mesh is None else mesh.devices.flat) if d.process_index == own])
    if mesh is None and devices[0].platform == "cpu":
        devices = devices[: 1 if has_features else max(1, num_lanes // _LANES_PER_CORE)]
    return Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))


def first_devices(count: int) -> Mesh:
    """A mesh of the first ``count`` devices of this process; CPU devices are made where that is still possible."""
    count = integer("devices", count)
    with contextlib.suppress(RuntimeError):  # if the backend has started
        jax.config.update("jax_num_cpu_devices", count)
    devices = jax.local_devices()
    if count > len(devices):
        raise ValueError(f"devices must be at most the {len(devices)} there are; got {count}")
    return Mesh(np.array(devices[:count]), (AXIS,), axis_types=(AxisType.Auto,))


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
