"""95 % intervals of means and of paired differences, by Student's t over instances or, of a single one, over seeds."""

from typing import TYPE_CHECKING

from jaxrank.output.results import REPEATED, error_over_seeds, mean_and_error, repeated_values

if TYPE_CHECKING:
    import xarray

_LEVEL = 0.975  # of one side


def mean_and_interval(curve: "xarray.DataArray") -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """The mean over instances and seeds, and half the width of its 95 % interval; NaN of a single value."""
    from scipy.special import stdtrit

    mean, error = mean_and_error(curve)
    values, over = repeated_values(curve)
    return mean, error * stdtrit((values.notnull().sum(over) - 1).clip(min=1), _LEVEL)


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
    return _ends(*found)


def two_way_error(values: "xarray.DataArray") -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """The mean over queries and seeds where every seed is one run that all its queries are scored on, and its error.

    Two queries of one run, and two runs on one query, have something in common. So the squared error is that of the
    means by query plus that of the means by run: for other queries and other runs, and a little too large, because the
    noise of single values is in both. If every run has queries of its own, as folds have, that of the means by run has
    the queries' in it, and stands alone.
    """
    mean, over_queries = mean_and_error(values)
    if has_own_queries(values):
        return mean, error_over_seeds(values)
    return mean, (over_queries**2 + error_over_seeds(values).fillna(0) ** 2) ** 0.5  # of one run, over queries alone


def two_way_interval(values: "xarray.DataArray") -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """The mean of ``two_way_error``, and half the width of its 95 % interval: Student's t, each way with its own."""
    mean, over_queries = mean_and_interval(values)
    _, over_seeds = mean_and_interval(values.mean("query"))
    if has_own_queries(values):
        return mean, over_seeds
    return mean, (over_queries**2 + over_seeds.fillna(0) ** 2) ** 0.5


def has_own_queries(values: "xarray.DataArray") -> bool:
    """Is every query in one run only, of several?"""
    scored = values.notnull()
    runs = scored.any([dim for dim in values.dims if dim != "seed"]).sum()
    return int(runs) > 1 and bool((scored.sum("seed") <= 1).all())


def two_way_difference(values: "xarray.DataArray", other: "xarray.DataArray") -> tuple[float, float, float]:
    """``two_way_interval`` of a paired difference as numbers: the mean, and the ends of its interval."""
    return _ends(*two_way_interval(values - other))


def _ends(mean: "xarray.DataArray", half: "xarray.DataArray") -> tuple[float, float, float]:
    return float(mean), float(mean - half), float(mean + half)
