"""Curves as xarray: labelled, averaged with standard errors, saved and loaded."""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrank.pytrees import leaf_axes
from jaxrank.version import __version__

if TYPE_CHECKING:
    import xarray


def from_curves(
    curves: Mapping[str, np.ndarray],
    *,
    policy: Any,
    environment: Any,
    instances: np.ndarray | None,
    seeds: np.ndarray,
    steps: np.ndarray,
    seed: int,
    num_steps: int,
    wall_time: float,
) -> "xarray.Dataset":
    """A dataset of curves [setting, instance, seed, step], without the axes that are not there.

    What probes saw may have more axes, which are called after it: ``<name>_0``, ``<name>_1``, ….
    """
    import xarray

    swept = _swept(policy)
    dims: list[str] = []
    coords: dict[str, Any] = {}
    keep: list[Any] = []
    if swept:  # one field: its name is the dimension; several, swept together: "setting"
        dims.append(next(iter(swept)) if len(swept) == 1 else "setting")
        coords |= {name: (dims[0], values) for name, values in swept.items()}
    keep.append(slice(None) if swept else 0)
    if instances is not None:
        dims.append(environment.instance_dim)
        coords[environment.instance_dim] = instances
    keep.append(slice(None) if instances is not None else 0)
    dims += ["seed", "step"]
    coords |= {"seed": seeds, "step": steps}
    num_lanes = int(np.prod(next(iter(curves.values())).shape[:3]))
    attributes = {
        "policy": repr(policy),
        "environment": repr(environment),
        "root_seed": seed,
        "num_steps": num_steps,
        "jaxrank_version": __version__,
        "jax_version": jax.__version__,
        "devices": ", ".join(sorted(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())),
        "wall_time_seconds": wall_time,
        "lane_steps_per_second": num_lanes * num_steps / wall_time,
    }
    variables = {
        name: ([*dims, *(f"{name}_{axis}" for axis in range(curve.ndim - 4))], curve[tuple(keep)])
        for name, curve in curves.items()
    }
    return xarray.Dataset(variables, coords, attributes)


def stack(runs: Mapping[str, "xarray.Dataset"]) -> "xarray.Dataset":
    """Runs in one environment, side by side along a ``policy`` dimension."""
    import xarray

    together = xarray.concat(
        list(runs.values()),
        dim=xarray.Variable("policy", list(runs)),
        combine_attrs="drop_conflicts",
        join="outer",
    )
    together.attrs["policy"] = json.dumps({name: run.attrs["policy"] for name, run in runs.items()})
    wall_times = {name: run.attrs["wall_time_seconds"] for name, run in runs.items()}
    lane_steps = sum(run.attrs["lane_steps_per_second"] * wall_times[name] for name, run in runs.items())
    together.attrs["wall_time_seconds"] = sum(wall_times.values())
    together.attrs["lane_steps_per_second"] = lane_steps / sum(wall_times.values())
    return together


def per_step(curve: "xarray.DataArray") -> "xarray.DataArray":
    """A cumulative curve as the mean per step in each window between two recorded steps."""
    steps = curve["step"].values
    widths = np.diff(steps, prepend=0)
    values = np.diff(curve.transpose(..., "step").values, axis=-1, prepend=0) / widths
    return curve.transpose(..., "step").copy(data=values)


def mean_and_error(curve: "xarray.DataArray") -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """The mean over instances and seeds, and its standard error.

    Seeds are averaged first and the error is taken over instances, because two seeds of one query are not two
    queries. With a single instance the error is taken over seeds.
    """
    instance_dims = [dim for dim in curve.dims if dim in ("query", "user") and curve.sizes[dim] > 1]
    if instance_dims and "seed" in curve.dims:
        curve = curve.mean("seed")
    over = [dim for dim in ("query", "user", "seed") if dim in curve.dims]
    count = int(np.prod([curve.sizes[dim] for dim in over]))
    spread = curve.std(over, ddof=1) if count > 1 else curve.mean(over) * np.nan
    return curve.mean(over), spread / np.sqrt(count)


def save(result: "xarray.Dataset", path: str | os.PathLike[str]) -> Path:
    """Writes a result as netCDF: to a temporary name first, then renamed, so that no half file is ever seen."""
    with atomic_path(path) as temporary:
        result.to_netcdf(temporary, engine="h5netcdf")
    return Path(path)


def load(path: str | os.PathLike[str]) -> "xarray.Dataset":
    """Reads what ``save`` wrote."""
    import xarray

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a results file; there is none at {path}")
    try:
        with xarray.open_dataset(path, engine="h5netcdf") as file:
            return file.load()
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"path must be a netCDF file written by jaxrank; cannot read {path}: {error}") from None


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]):
    """A temporary name beside ``path``; renamed to it if the block succeeds, removed if not."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise ValueError(f"path must be writable; cannot write {path}: {error.strerror}") from None
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _swept(policy: Any) -> dict[str, np.ndarray]:
    """The policy's leaves that have a sweep axis, by field name."""
    paths = jax.tree_util.tree_leaves_with_path(policy)
    axes = leaf_axes(policy)
    return {path[-1].name: np.asarray(leaf) for (path, leaf), axis in zip(paths, axes, strict=True) if axis == 0}
