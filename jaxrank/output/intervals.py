"""95 % intervals of means and of paired differences, by Student's t over instances or, of a single one, over seeds."""

from typing import TYPE_CHECKING

from jaxrank.output.results import REPEATED, mean_and_error

if TYPE_CHECKING:
    import xarray

_LEVEL = 0.975  # of one side


def mean_and_interval(curve: "xarray.DataArray") -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """The mean over instances and seeds, and half the width of its 95 % interval; NaN of a single value."""
    from scipy.special import stdtrit

    mean, error = mean_and_error(curve)
    return mean, error * stdtrit(max(num_values(curve) - 1, 1), _LEVEL)


def num_values(curve: "xarray.DataArray") -> int:
    """How many values the error of the mean is taken over: instances, whose seeds are averaged first, or seeds."""
    sizes = {dim: curve.sizes[dim] for dim in REPEATED if dim in curve.dims}
    seeds = sizes.pop("seed", 1)
    instances = 1
    for size in sizes.values():
        instances *= size
    return instances if instances > 1 else seeds


def paired_difference(
    curve: "xarray.DataArray", other: "xarray.DataArray"
) -> tuple["xarray.DataArray", "xarray.DataArray"] | None:
    """``mean_and_interval`` of ``curve`` − ``other``, lane by lane; None if their lanes or steps are not the same."""
    dims = [dim for dim in REPEATED if dim in curve.dims]
    if dims != [dim for dim in REPEATED if dim in other.dims]:
        return None
    along = [*dims, *(["step"] if "step" in curve.coords and "step" in other.coords else [])]
    if any(not curve[dim].variable.equals(other[dim].variable) for dim in along):
        return None
    return mean_and_interval(curve - other)


def difference(values: "xarray.DataArray", other: "xarray.DataArray") -> tuple[float, float, float]:
    """``paired_difference`` of two values as numbers: the mean, and the ends of its interval."""
    found = paired_difference(values, other)
    if found is None:
        raise ValueError("values must be of the same lanes as other")
    mean, half = float(found[0]), float(found[1])
    return mean, mean - half, mean + half
