"""What the figures have in common: their sizes, their worlds, their runs, their three files."""

import dataclasses
import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from jaxrank.core.checks import choice, integer
from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import ClickModel, Environment, Policy
from jaxrank.datasets import synthetic, yandex
from jaxrank.engine.compiled_code import forget_if_much
from jaxrank.engine.simulation import simulate
from jaxrank.output.intervals import difference
from jaxrank.output.plotting import FORMATS
from jaxrank.output.report import Report, write_report
from jaxrank.output.results import stack
from jaxrank.output.tables import counted

if TYPE_CHECKING:
    import xarray

SCALES = ("smoke", "laptop", "paper")
PANELS = ("trade-off", "d", "K")  # what CascadeHybrid's figures change: λ, the number of topics, the size of lists


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
      bound: draw the theorem's bound too; refused by figures without one.
      progress: show progress bars.
      format: of the picture, "png", "pdf" or "svg".
      checkpoint: a folder in which runs are saved, and from which they continue; finished ones are only read.
      seeds: repetitions instead of the scale's, as text: "10" for all policies, "TopRank=2" for one of them, and
        "TopRank=0" to leave it out.
      click_models: which of the figure's click models; all if none is named.
      stop_at: where the users of PairRank's figures may stop: at a "click", as printed, or at a "view", as released.
      num_queries: queries (users, in CascadeHybrid's figures) instead of the scale's.
      panels: which of ``PANELS`` CascadeHybrid's figures have; all if none is named.
    """

    scale: str = "smoke"
    data: str | os.PathLike[str] | None = None
    out: Path = Path("results")
    bound: bool = False
    progress: bool = True
    format: str = "png"
    checkpoint: Path | None = None
    seeds: tuple[str, ...] = ()
    click_models: tuple[str, ...] = ()
    stop_at: str = "click"
    num_queries: int | None = None
    panels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choice("scale", self.scale, SCALES)
        choice("format", self.format, FORMATS)
        choice("stop_at", self.stop_at, ("click", "view"))
        for panel in self.panels:
            choice("panels", panel, PANELS)
        if self.num_queries is not None:
            integer("num_queries", self.num_queries, 1)
        self.asked_seeds()

    @property
    def world(self) -> str:
        if self.data is None:
            return "synthetic queries"
        *_, folder, name = Path(self.data).absolute().parts
        return f"real queries ({f'{folder}/{name}' if name.startswith('Fold') else name})"  # mq2008/Fold1

    def size(self, sizes: Mapping[str, Any]) -> Any:
        """That of the scale, with the numbers of queries that were asked for."""
        size = sizes[self.scale]
        return size if self.num_queries is None else size._replace(num_queries=self.num_queries)

    def num_seeds(self, policy: str, default: int) -> int:
        """The repetitions of a policy's runs."""
        asked = self.asked_seeds()
        return asked.get(policy, asked.get("", default))

    def asked_seeds(self) -> dict[str, int]:
        """The numbers of ``seeds`` by policy, "" for all others."""
        numbers = {}
        for text in self.seeds:
            policy, _, number = text.rpartition("=")
            if not number.isdigit():
                raise ValueError(f"seeds must be a number, or a policy and a number as TopRank=2; got {text!r}")
            numbers[policy] = integer("seeds", int(number), 0 if policy else 1)
        return numbers


def shared(request: FigureRequest) -> FigureRequest:
    """What the runs of a request depend on, as a key: figures of one experiment share them."""
    data = None if request.data is None else os.fspath(request.data)
    return dataclasses.replace(request, data=data, out=FigureRequest.out, format="png", bound=False)


def refuse_unknown(request: FigureRequest, policies: Iterable[str]) -> None:
    """Refuses numbers of seeds of other policies than the figure's."""
    known = list(policies)
    for asked in request.asked_seeds():
        if asked and asked not in known:
            allowed = f"of policies of this figure, {', '.join(known)}" if known else "one number in this figure"
            raise ValueError(f"seeds must be {allowed}; got {asked!r}")


def refuse_without(request: FigureRequest, *policies: str) -> None:
    """Refuses a request that leaves out one of the policies, which the figure is about, before anything runs."""
    for policy in policies:
        if request.num_seeds(policy, 1) < 1:
            raise ValueError(f"seeds must not leave out {policy}, which this figure is about; got {policy}=0")


def saved(request: FigureRequest, *folders: str) -> dict[str, Any]:
    """The options of ``simulate`` that save a run below the request's ``checkpoint``, and continue it from there."""
    if request.checkpoint is None:
        return {}
    return {"checkpoint_dir": Path(request.checkpoint, *folders), "resume": True}


def queries(request: FigureRequest, model: str, count: int) -> ClickModel:
    """The click model of the first ``count`` queries (or of as many as the data has)."""
    if request.data is None:
        return synthetic(model, count)
    return take_instances(yandex(request.data, model), slice(count))


def run(
    request: FigureRequest,
    name: str,
    policies: Mapping[str, Policy],
    environment: Environment,
    num_steps: int,
    num_seeds: int,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> "xarray.Dataset":
    """``compare``, saved under ``name`` in the request's ``checkpoint`` and with its numbers of seeds.

    A policy with fewer seeds than the others has NaN for the missing ones. ``own`` are the options of single policies.
    """
    refuse_unknown(request, policies)
    runs = {}
    chosen = {label: policy for label, policy in policies.items() if request.num_seeds(label, num_seeds) > 0}
    for label, policy in chosen.items():
        forget_if_much()
        runs[label] = simulate(
            policy,
            environment,
            num_steps,
            num_seeds=request.num_seeds(label, num_seeds),
            progress=request.progress,
            **saved(request, name, quote(label, safe=" ()")),
            **options | dict((own or {}).get(label, {})),
        )
    return stack(runs)


def run_models(
    request: FigureRequest,
    name: str,
    models: Sequence[str],
    policies: Mapping[str, Policy],
    size: Size,
    environment: Callable[[ClickModel], Environment],
    **options: Any,
) -> "xarray.Dataset":
    """``run`` in each click model, stacked along a ``click_model`` dimension."""
    for model in request.click_models:
        choice("click_models", model, models)
    chosen = [model for model in models if not request.click_models or model in request.click_models]
    worlds = {model: environment(queries(request, model, size.num_queries)) for model in chosen}
    return run_worlds(request, name, "click_model", worlds, policies, size, **options)


def run_worlds(
    request: FigureRequest,
    name: str,
    dim: str,
    worlds: Mapping[str, Environment],
    policies: Mapping[str, Policy],
    size: Size,
    **options: Any,
) -> "xarray.Dataset":
    """``run`` in each world, stacked along the dimension ``dim``."""
    import xarray

    runs = [
        run(request, f"{name}/{key}", policies, world, size.num_steps, size.num_seeds, **options)
        for key, world in worlds.items()
    ]
    together = xarray.concat(runs, dim=xarray.Variable(dim, list(worlds)), combine_attrs="drop_conflicts", join="outer")
    together.attrs |= {"data": request.world, "scale": request.scale}
    together.attrs["wall_time_seconds"] = sum(run.attrs["wall_time_seconds"] for run in runs)
    return together


def seeds_of_each(result: "xarray.Dataset") -> str:
    """How many seeds each policy has, if they differ."""
    curve = result["regret"].isel(step=-1)
    numbers = curve.notnull().any([d for d in curve.dims if d not in ("policy", "seed")]).sum("seed")
    if len(np.unique(numbers)) == 1:
        return f"Every policy has {counted(int(numbers[0]), 'seed')}."
    each = zip(numbers["policy"].values, numbers.values, strict=True)
    return f"Seeds: {', '.join(f'{policy} {int(number)}' for policy, number in each)}."


def paired(values: "xarray.DataArray", other: "xarray.DataArray") -> tuple[float, float]:
    """The mean of values − other, and half of its 95 % confidence interval, paired by query.

    Seeds are averaged first, because two seeds of one query are not two queries; with one query, seeds are paired.
    """
    mean, low, _ = difference(values, other)
    return mean, mean - low


def write(name: str, request: FigureRequest, report: Report) -> None:
    """Writes <name>.nc, <name>.<format> and <name>.md."""
    minutes = report.result.attrs["wall_time_seconds"] / 60
    seeds = f" --seeds {shlex.join(request.seeds)}" if request.seeds else ""
    stop = "" if request.stop_at == "click" else f" --stop-at {request.stop_at}"
    models = f" --click-model {' '.join(request.click_models)}" if request.click_models else ""
    number = "" if request.num_queries is None else f" --queries {request.num_queries}"
    panels = f" --panel {' '.join(request.panels)}" if request.panels else ""
    command = f"jaxrank reproduce {name} --scale {request.scale}{number}{seeds}{models}{stop}{panels}"
    note = f"`{command}`, {request.world}, {minutes:.1f} minutes{_commit()}."
    write_report(Path(request.out), name, report, note, request.format)


def _commit() -> str:
    """The last commit that changed the package, if it runs from a git repository."""
    command = ["git", "-C", str(Path(__file__).parents[2]), "log", "-1", "--format=%h", "--", "."]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return f", commit {found}" if found else ""
