"""Delayed and corrupted clicks: what they cost every policy without features.

Joulani, György and Szepesvári (ICML 2013) show that a delay of mean d adds a regret proportional to d, which does not
grow with the number of steps, to that of a stochastic bandit. Lykouris, Mirrokni and Paes Leme (STOC 2018) show that an
adversary of budget C makes elimination and UCB fail at a C of the order of log n, while randomised lists degrade more
slowly. All delays, and all budgets, run side by side: in each click model, each policy is one run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.core.pytrees import num_instances, take_instances
from jaxrank.core.types import Policy
from jaxrank.engine.simulation import simulate
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.environments.corrupted import Corrupted
from jaxrank.output.plotting import Entries, band_entry, draw_line, legend_below, panels, styles
from jaxrank.output.report import Report
from jaxrank.output.results import describe_error, mean_and_error
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import (
    GRAB,
    PBMHB,
    BatchRank,
    BubbleRank,
    CascadeKLUCB,
    CascadeTS,
    CascadeUCB1,
    Delayed,
    RankedExp3,
    RankedKLUCB,
    RankedUCB1,
    TopRank,
    UniRank,
)
from jaxrank.studies.papers.figure import FigureRequest, Size, paired, queries, verdict

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

POLICIES: tuple[type, ...] = (
    *(BubbleRank, BatchRank, TopRank, UniRank, CascadeKLUCB, CascadeUCB1, CascadeTS),
    *(RankedExp3, RankedUCB1, RankedKLUCB, GRAB, PBMHB),
)
DELAYS, BUDGETS = (0, 10, 100, 1_000), (0, 100, 1_000, 10_000)
_SIZES = {"smoke": Size(2, 1, 300), "laptop": Size(60, 1, 30_000), "paper": Size(60, 10, 1_000_000)}


def delay(request: FigureRequest) -> Report:
    """Delayed clicks: regret of every policy without features against the mean of a geometric delay, in CM."""
    size = _SIZES[request.scale]
    delays = DELAYS if size.num_steps > DELAYS[-1] else (0, 10, 50)
    environment = _environment(request, size)
    runs = {
        make.__name__: _simulate(request, Delayed(make(), delays, kind="geometric"), environment, size)
        for make in POLICIES
    }
    result = _stacked(request, runs)
    lines = [f"Claims about the regret at step {size.num_steps:,}, ✓ as here, ✗ not as here:", ""]
    for policy in runs:
        of_policy = result["regret"].sel(policy=policy).isel(step=-1)
        gap = paired(of_policy.isel(delay=-1), of_policy.isel(delay=0))
        claim = f"{policy}: a delay of {delays[-1]:,} adds at most one step's regret a step of delay"
        lines.append(_at_most(claim, gap, delays[-1]))
    return _report(result, "delay", "mean delay of the clicks, in steps", lines)


def corruption(request: FigureRequest) -> Report:
    """Corrupted clicks: regret of every policy without features against the adversary's budget, in CM."""
    size = _SIZES[request.scale]
    budgets = BUDGETS if size.num_steps > BUDGETS[-1] else (0, 30, 100)
    environment = _environment(request, size)
    count = num_instances(environment) or 1
    several = take_instances(environment, np.tile(np.arange(count), len(budgets)))
    attacked = Corrupted(several, budget=np.repeat(budgets, count), target="best")
    runs = {}
    for make in POLICIES:
        run = _simulate(request, make(), attacked, size)
        by_budget = [run.isel(query=slice(n * count, (n + 1) * count)) for n in range(len(budgets))]
        runs[make.__name__] = _concat(
            [one.assign_coords(query=np.arange(count)) for one in by_budget], "budget", budgets
        )
    result = _stacked(request, runs)
    lines = [f"Claims about the regret at step {size.num_steps:,}, ✓ as here, ✗ not as here:", ""]
    for policy in runs:
        of_policy = result["regret"].sel(policy=policy).isel(step=-1)
        gap = paired(of_policy.isel(budget=-1), of_policy.isel(budget=0))
        lines.append(verdict(f"{policy}: a budget of {budgets[-1]:,} hidden clicks costs regret", gap, 1))
    return _report(result, "budget", "first steps in which clicks on the best item are hidden", lines)


def _environment(request: FigureRequest, size: Size) -> ClickBandit:
    return ClickBandit(queries(request, "cm", size.num_queries), list_size=5)


def _simulate(request: FigureRequest, policy: Policy, environment: Any, size: Size) -> "xarray.Dataset":
    return simulate(
        policy, environment, size.num_steps, num_seeds=size.num_seeds, num_records=20, progress=request.progress
    )


def _concat(runs: Sequence["xarray.Dataset"], dim: str, values: Sequence[Any]) -> "xarray.Dataset":
    import xarray

    along = xarray.Variable(dim, list(values))
    together = xarray.concat(runs, dim=along, combine_attrs="drop_conflicts", join="outer")
    together.attrs["wall_time_seconds"] = max(run.attrs["wall_time_seconds"] for run in runs)
    return together


def _stacked(request: FigureRequest, runs: dict[str, "xarray.Dataset"]) -> "xarray.Dataset":
    result = _concat(list(runs.values()), "policy", list(runs))
    result.attrs |= {"data": request.world, "scale": request.scale}
    result.attrs["wall_time_seconds"] = sum(run.attrs["wall_time_seconds"] for run in runs.values())
    return result


def _at_most(claim: str, gap: tuple[float, float], bound: float) -> str:
    """✓ if the upper end of the interval of ``gap`` is at most ``bound``."""
    mean, half = gap
    mark = "✓" if mean + (0 if np.isnan(half) else half) <= bound else "✗"
    return f"- {mark} {claim}: {plus_minus(mean, half, 1)} (mean and 95 % interval, paired by query)."


def _report(result: "xarray.Dataset", dim: str, label: str, lines: list[str]) -> Report:
    last = result["regret"].isel(step=-1)
    levels = [int(level) for level in last[dim].values]
    figure = _picture(last, dim, label)
    rows = []
    for policy in last["policy"].values:
        of_policy = last.sel(policy=policy)
        cells = [plus_minus(*mean_and_error(of_policy.sel({dim: level})), 1) for level in levels]
        gaps = [paired(of_policy.sel({dim: level}), of_policy.sel({dim: 0})) for level in levels[1:]]
        rows.append([str(policy), *cells, *(plus_minus(*gap, 1) for gap in gaps)])
    header = ["policy", *(f"regret, {dim} {level:,}" for level in levels)]
    header += [f"{level:,} minus 0 (95 %)" for level in levels[1:]]
    return Report(result, figure, markdown(header, rows) + "\n\n" + "\n".join(lines))


def _picture(last: "xarray.DataArray", dim: str, label: str) -> "Figure":
    figure, (ax,) = panels(1)
    entries: Entries = {}
    looks = styles([str(policy) for policy in last["policy"].values])
    for policy, look in looks.items():
        mean, error = mean_and_error(last.sel(policy=policy))
        entries[policy] = draw_line(
            ax, last[dim].values, mean.values, np.nan_to_num(error.values), label=policy, **look
        )
    entries |= band_entry(describe_error(last))
    ax.set_xscale("symlog", linthresh=10)
    ax.set(xlabel=label[0].upper() + label[1:], ylabel="Regret", yscale="log")
    legend_below(figure, entries)
    return figure
