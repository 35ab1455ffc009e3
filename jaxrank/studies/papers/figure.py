"""What the figures have in common: their sizes, their worlds, their three files."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import ClickModel, Policy
from jaxrank.datasets import synthetic, yandex
from jaxrank.engine.simulation import compare
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.output import results
from jaxrank.output.files import atomic_path

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

SCALES = ("smoke", "laptop", "paper")


class Size(NamedTuple):
    """How large a figure's runs are."""

    num_queries: int
    num_seeds: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class Request:
    """How a figure is wanted.

    Args:
      scale: "smoke" (mostly compiling), "laptop" (minutes to an hour on 2 cores) or "paper" (the paper's own sizes).
      data: where the real queries are; synthetic ones without.
      out: the folder for the files.
      bound: draw the theorem's bound too.
      progress: show progress bars.
    """

    scale: str = "smoke"
    data: str | os.PathLike[str] | None = None
    out: Path = Path("results")
    bound: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {self.scale!r}")

    @property
    def world(self) -> str:
        return "synthetic queries" if self.data is None else f"real queries ({Path(self.data).name})"


class Report(NamedTuple):
    result: "xarray.Dataset"
    figure: "Figure"
    table: str  # Markdown


def queries(request: Request, model: str, count: int) -> ClickModel:
    """The click model of the first ``count`` queries (or of as many as the data has)."""
    if request.data is None:
        return synthetic(model, count)
    return take_instances(yandex(request.data, model), slice(count))


def run_models(
    request: Request,
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


def panels(count: int) -> tuple["Figure", Any]:
    """A row of axes, as the papers have them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * count, 3.4), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, count))


def cell(mean: Any, error: Any, digits: int = 2) -> str:
    return f"{float(mean):,.{digits}f} ± {float(error):,.{digits}f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(name: str, request: Request, report: Report) -> None:
    """Writes <name>.nc, <name>.png and <name>.md."""
    out = Path(request.out)
    results.save(report.result, out / f"{name}.nc")
    with atomic_path(out / f"{name}.png") as temporary:
        report.figure.savefig(temporary, dpi=150)
    minutes = report.result.attrs["wall_time_seconds"] / 60
    with atomic_path(out / f"{name}.md") as temporary:
        note = f"`jaxrank reproduce {name} --scale {request.scale}`, {request.world}, {minutes:.1f} minutes."
        Path(temporary).write_text(f"# {name}\n\n{note}\n\n{report.table}\n")
