"""What the figures have in common: their sizes, their worlds, their three files."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxrank.core.checks import choice
from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import ClickModel, Policy
from jaxrank.datasets import synthetic, yandex
from jaxrank.engine.simulation import compare
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.output.plotting import FORMATS
from jaxrank.output.report import Report, write_report

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
    environment: Callable[[ClickModel], ClickBandit],
    **options: Any,
) -> "xarray.Dataset":
    """``compare`` in each click model, stacked along a ``click_model`` dimension."""
    import xarray

    runs = []
    for model in models:
        env = environment(queries(request, model, size.num_queries))
        runs.append(
            compare(policies, env, size.num_steps, num_seeds=size.num_seeds, progress=request.progress, **options)
        )
    together = xarray.concat(
        runs, dim=xarray.Variable("click_model", list(models)), combine_attrs="drop_conflicts", join="outer"
    )
    together.attrs |= {"data": request.world, "scale": request.scale}
    together.attrs["wall_time_seconds"] = sum(run.attrs["wall_time_seconds"] for run in runs)
    return together


def write(name: str, request: FigureRequest, report: Report) -> None:
    """Writes <name>.nc, <name>.<format> and <name>.md."""
    minutes = report.result.attrs["wall_time_seconds"] / 60
    note = f"`jaxrank reproduce {name} --scale {request.scale}`, {request.world}, {minutes:.1f} minutes."
    write_report(Path(request.out), name, report, note, request.format)
