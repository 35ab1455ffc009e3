"""What the figures have in common: their sizes, their worlds, their three files."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrank.core.checks import choice
from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import ClickModel, Environment, Policy
from jaxrank.datasets import synthetic, yandex
from jaxrank.engine.simulation import compare
from jaxrank.output.plotting import FORMATS
from jaxrank.output.report import Report, write_report
from jaxrank.output.tables import plus_minus

if TYPE_CHECKING:
    import xarray

SCALES = ("smoke", "laptop", "paper")


class Size(NamedTuple):
    """How large a figure's runs are."""

    num_queries: int
    num_seeds: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class FigureRequest:
    """The options of a figure.

    Args:
      scale: "smoke" (mostly compiling), "laptop" (minutes to an hour on 2 cores) or "paper" (the paper's own sizes).
      data: the path of real queries; synthetic ones if not given.
      out: the folder for the files.
      bound: draw the theorem's bound too.
      progress: show progress bars.
      format: of the picture, "png", "pdf" or "svg".
    """

    scale: str = "smoke"
    data: str | os.PathLike[str] | None = None
    out: Path = Path("results")
    bound: bool = False
    progress: bool = True
    format: str = "png"

    def __post_init__(self) -> None:
        choice("scale", self.scale, SCALES)
        choice("format", self.format, FORMATS)

    @property
    def world(self) -> str:
        return "synthetic queries" if self.data is None else f"real queries ({Path(self.data).name})"


def queries(request: FigureRequest, model: str, count: int) -> ClickModel:
    """The click model of the first ``count`` queries (or of as many as the data has)."""
    if request.data is None:
        return synthetic(model, count)
    return take_instances(yandex(request.data, model), slice(count))


def run_models(
    request: FigureRequest,
    models: Sequence[str],
    policies: Mapping[str, Policy],
    size: Size,
    environment: Callable[[ClickModel], Environment],
    **options: Any,
) -> "xarray.Dataset":
    """``compare`` in each click model, stacked along a ``click_model`` dimension."""
    worlds = {model: environment(queries(request, model, size.num_queries)) for model in models}
    return run_worlds(request, "click_model", worlds, policies, size, **options)


def run_worlds(
    request: FigureRequest,
    dim: str,
    worlds: Mapping[str, Environment],
    policies: Mapping[str, Policy],
    size: Size,
    **options: Any,
) -> "xarray.Dataset":
    """``compare`` in each world, stacked along the dimension ``dim``."""
    import xarray

    runs = [
        compare(policies, world, size.num_steps, num_seeds=size.num_seeds, progress=request.progress, **options)
        for world in worlds.values()
    ]
    together = xarray.concat(runs, dim=xarray.Variable(dim, list(worlds)), combine_attrs="drop_conflicts", join="outer")
    together.attrs |= {"data": request.world, "scale": request.scale}
    together.attrs["wall_time_seconds"] = sum(run.attrs["wall_time_seconds"] for run in runs)
    return together


def paired(values: "xarray.DataArray", other: "xarray.DataArray") -> tuple[float, float]:
    """The mean of values − other, and half of its 95 % confidence interval, paired by query.

    Seeds are averaged first, because two seeds of one query are not two queries; with one query, seeds are paired.
    """
    gap = values - other
    each = (gap.mean("seed") if gap.sizes.get("query", 1) > 1 else gap).values.ravel()
    if each.size < 2:
        return float(each.mean()), float("nan")
    quantile = 1.96 + (1.96**3 + 1.96) / (4 * (each.size - 1))  # of Student's t, by its first expansion
    return float(each.mean()), float(quantile * each.std(ddof=1) / np.sqrt(each.size))


def verdict(claim: str, gap: tuple[float, float], sign: int) -> str:
    """A claim as an item of a list, ✓ if the paired ``gap`` has this sign with its whole interval, ✗ if not."""
    mean, half = gap
    holds = sign * mean > 0 and not abs(mean) <= half
    return f"- {'✓' if holds else '✗'} {claim}: {plus_minus(mean, half, 1)} (mean and 95 % interval, paired by query)."


def write(name: str, request: FigureRequest, report: Report) -> None:
    """Writes <name>.nc, <name>.<format> and <name>.md."""
    minutes = report.result.attrs["wall_time_seconds"] / 60
    note = f"`jaxrank reproduce {name} --scale {request.scale}`, {request.world}, {minutes:.1f} minutes."
    write_report(Path(request.out), name, report, note, request.format)
