"""Curves as xarray: labelled, averaged with standard errors, saved and loaded."""

import io
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrank.core.checks import switch
from jaxrank.core.pytrees import leaf_axes
from jaxrank.core.version import __version__
from jaxrank.output.files import unsealed, write_sealed
from jaxrank.output.tables import counted

if TYPE_CHECKING:
    import xarray

REPEATED = ("query", "user", "seed")  # the dimensions that means are taken over


def from_curves(
    curves: Mapping[str, np.ndarray],
    *,
    lanes: np.ndarray,
    grid: tuple[int, int, int],
    policy: Any,
    environment: Any,
    instances: np.ndarray | None,
    seeds: np.ndarray,
    steps: np.ndarray,
    seed: int,
    num_steps: int,
    seconds: float,
    compile_seconds: float,
    way: str,
) -> "xarray.Dataset":
    """A dataset of the curves [lane, step] of the lanes numbered ``lanes`` in a ``grid`` of (setting, instance, seed).

    Its dimensions are those of the grid that the run has or, if only some of the lanes are given, ``lane``. The values
    of a probe may have more axes, which are named after it: ``<name>_0``, ``<name>_1``, ….
    """
    import xarray

    swept = _swept(policy)  # one field: its name is the dimension; several, swept together: "setting"
    axes: list[tuple[str, dict[str, np.ndarray]] | None] = [
        (next(iter(swept)) if len(swept) == 1 else "setting", swept) if swept else None,
        (environment.instance_dim, {environment.instance_dim: instances}) if instances is not None else None,
        ("seed", {"seed": seeds}),
    ]
    coords: dict[str, Any] = {"step": steps}
    if whole := lanes.size == np.prod(grid):
        dims = [axis[0] for axis in axes if axis]
        coords |= {name: (axis[0], values) for axis in axes if axis for name, values in axis[1].items()}
    else:
        dims = ["lane"]
        coords["lane"] = lanes
        for axis, index in zip(axes, np.unravel_index(lanes, grid), strict=True):
            coords |= {name: ("lane", values[index]) for name, values in axis[1].items()} if axis else {}
    shape = [size for axis, size in zip(axes, grid, strict=True) if axis] if whole else [lanes.size]
    attributes = {
        "policy": repr(policy),
        "environment": repr(environment),
        "root_seed": seed,
        "num_steps": num_steps,
        "jaxrank_version": __version__,
        "jax_version": jax.__version__,
        "machine": f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores",
        "python_version": platform.python_version(),
        "devices": ", ".join(sorted(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())),
        "way": way,
        "wall_time_seconds": seconds + compile_seconds,
        "compile_seconds": compile_seconds,
        "lane_steps_per_second": lanes.size * num_steps / max(seconds, 1e-9),  # without compiling
    }
    variables = {
        name: (
            [*dims, "step", *(f"{name}_{axis}" for axis in range(curve.ndim - 2))],
            curve.reshape(*shape, *curve.shape[1:]),
        )
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
    attributes = [run.attrs for run in runs.values()]
    for name in ("wall_time_seconds", "compile_seconds"):
        together.attrs[name] = sum(each[name] for each in attributes)
    running = [each["wall_time_seconds"] - each["compile_seconds"] for each in attributes]
    lane_steps = sum(s * each["lane_steps_per_second"] for s, each in zip(running, attributes, strict=True))
    together.attrs["lane_steps_per_second"] = lane_steps / max(sum(running), 1e-9)
    return together


def per_step(curve: "xarray.DataArray") -> "xarray.DataArray":
    """A cumulative curve, such as ``result["regret"]``, as the mean per step in each window between two records."""
    _require_curve(curve)
    if "step" not in curve.dims:
        raise ValueError(f"curve must have the dimension step; got {', '.join(map(str, curve.dims)) or 'none'}")
    steps = curve["step"].values
    widths = np.diff(steps, prepend=0)
    values = np.diff(curve.transpose(..., "step").values, axis=-1, prepend=0) / widths
    return curve.transpose(..., "step").copy(data=values)


def mean_and_error(curve: "xarray.DataArray") -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """The mean over instances and seeds of a curve, such as ``result["regret"]``, and its standard error.

    Seeds are averaged first and the error is taken over instances, because two seeds of one query are not two
    queries. With a single instance the error is taken over seeds; of a single value it is NaN.
    """
    _require_curve(curve)
    curve, over = repeated_values(curve)
    count = curve.notnull().sum(over)  # a policy with fewer seeds than others has NaN for the missing ones
    spread = curve.std(over, ddof=1).where(count > 1) if over else curve * np.nan
    return curve.mean(over), spread / np.sqrt(count)


def repeated_values(curve: "xarray.DataArray") -> tuple["xarray.DataArray", list[str]]:
    """What the error of the mean is taken over, and its dimensions: instances, seeds averaged first; of one, seeds."""
    if _instance_dims(curve) and "seed" in curve.dims:
        curve = curve.mean("seed")
    return curve, [dim for dim in REPEATED if dim in curve.dims]


def error_over_seeds(curve: "xarray.DataArray") -> "xarray.DataArray":
    """The standard error over seeds alone of the mean over the given instances; NaN of a single seed."""
    _require_curve(curve)
    by_seed = curve.mean(_instance_dims(curve))
    count = by_seed.notnull().sum("seed")
    return by_seed.std("seed", ddof=1).where(count > 1) / np.sqrt(count)


def describe_error(curve: "xarray.DataArray") -> str:
    """What the error of ``mean_and_error`` is, in two lines for a legend."""
    most = fewest = curve.sizes.get("seed", 1)
    if "seed" in curve.dims:  # a policy with fewer seeds than others has NaN for the missing ones
        others = [dim for dim in curve.dims if dim not in ("policy", "seed")]
        numbers = curve.notnull().any(others).sum("seed").values
        most, fewest = int(numbers.max()), int(numbers.min())
    each = counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    if dims := _instance_dims(curve):
        instances = " × ".join(counted(curve.sizes[dim], str(dim)) for dim in dims)
        return f"± standard error\nover {instances} ({each} each)"
    return f"± standard error\nover {each}"


def named_dim(result: "xarray.Dataset") -> str | None:
    """The dimension with names, besides ``policy``: click models, or users of a query stream; None if there is none."""
    return next(
        (dim for dim in ("click_model", "query", "user") if dim in result.dims and result[dim].dtype.kind in "UO"), None
    )


def _instance_dims(curve: "xarray.DataArray") -> list[Any]:
    return [dim for dim in curve.dims if dim in ("query", "user") and curve.sizes[dim] > 1]


def save(result: "xarray.Dataset", path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Writes a result as netCDF: whole or not at all, on the disk when this returns, and sealed with its checksum.

    The bytes are made in memory: on a full disk or a damaged file, the HDF5 library under netCDF can crash the whole
    process.

    Args:
      result: what ``simulate`` or ``compare`` returned.
      path: the file.
      overwrite: replace the file if there is one; otherwise that is a ValueError.
    """
    import xarray

    if not isinstance(result, xarray.Dataset | xarray.DataArray):
        raise ValueError(f"result must be what jr.simulate or jr.compare returned; got a {type(result).__name__}")
    if not switch("overwrite", overwrite) and _path(path).exists():
        raise ValueError(f"path must be new; there is a file at {path}: write overwrite=True to replace it")
    write_sealed(path, [bytes(result.to_netcdf(engine="h5netcdf"))])
    return Path(path)


def load(path: str | os.PathLike[str]) -> "xarray.Dataset":
    """Reads what ``save`` wrote."""
    import xarray

    path = _path(path)
    if not path.exists():
        raise ValueError(f"path must be a results file; there is none at {path}")
    try:
        with unsealed(path) as (file, size):
            return xarray.load_dataset(io.BytesIO(file.read(size)), engine="h5netcdf")
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"path must be a results file written by jaxrank; cannot read {path}: {error}") from None


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the path of a file; got {path!r:.60}")
    return Path(path)


def _require_curve(curve: Any) -> None:
    import xarray

    if isinstance(curve, xarray.Dataset):
        names = list(map(str, curve.data_vars))
        raise ValueError(f"curve must be one variable of a result, as result[{names[0]!r}]; got them all: {names}")
    if not isinstance(curve, xarray.DataArray):
        raise ValueError(f"curve must be an xarray.DataArray, as result['regret']; got a {type(curve).__name__}")


def _swept(policy: Any) -> dict[str, np.ndarray]:
    """The policy's leaves that have a sweep axis, by field name."""
    paths = jax.tree_util.tree_leaves_with_path(policy)
    axes = leaf_axes(policy)
    return {path[-1].name: np.asarray(leaf) for (path, leaf), axis in zip(paths, axes, strict=True) if axis == 0}
