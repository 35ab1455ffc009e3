"""Delayed and corrupted clicks: what they cost every policy without features.

Joulani, György and Szepesvári (ICML 2013) show that a delay of mean d adds a regret proportional to d, which does not
grow with the number of steps, to that of a stochastic bandit. Lykouris, Mirrokni and Paes Leme (STOC 2018) show that an
adversary of budget C makes elimination and UCB fail at a C of the order of log n, while randomised lists degrade more
slowly. All delays, and all budgets, run side by side: each policy is one run. Left out are the policies that a CM
cannot serve (those that know the examination of a PBM) and dcmKL-UCB, which is CascadeKL-UCB where there is one click.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.core.pytrees import num_instances, take_instances
from jaxrank.core.types import Environment, Policy
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.environments.corrupted import Corrupted
from jaxrank.output.plotting import Entries, band_entry, draw_line, legend_below, panels, styles
from jaxrank.output.report import HOW, Report, judged
from jaxrank.output.results import describe_error, mean_and_error
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import (
    GRAB,
    PBMHB,
    BatchRank,
    BubbleRank,
    CascadeDUCB,
    CascadeKLUCB,
    CascadeSWUCB,
    CascadeTS,
    CascadeUCB1,
    Delayed,
    GLRTCascadeKLUCB,
    GLRTCascadeUCB,
    RankedExp3,
    RankedKLUCB,
    RankedUCB1,
    TopRank,
    UniRank,
)
from jaxrank.studies.papers.figure import FigureRequest, Size, paired, queries, run

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

POLICIES: tuple[type, ...] = (
    *(BubbleRank, BatchRank, TopRank, UniRank, CascadeKLUCB, CascadeUCB1, CascadeTS),
    *(CascadeDUCB, CascadeSWUCB, GLRTCascadeUCB, GLRTCascadeKLUCB, RankedExp3, RankedUCB1, RankedKLUCB, GRAB, PBMHB),
)
DELAYS, BUDGETS = (0, 10, 100, 1_000), (0, 100, 1_000, 10_000)
_SIZES = {"smoke": Size(2, 1, 300), "laptop": Size(60, 1, 30_000), "paper": Size(60, 10, 1_000_000)}

_BATCHRANK = (
    "BatchRank counts clicks only on the items observed least in their batch (Algorithm 3, line 4): of several lists "
    "under way, it counts few."
)


def delay(request: FigureRequest) -> Report:
    """Delayed clicks: regret of every policy without features against the mean of a geometric delay, in CM."""
    size = request.size(_SIZES)
    delays = DELAYS if size.num_steps > DELAYS[-1] else (0, 10, 50)
    policies = {make.__name__: Delayed(make(), delays, kind="geometric") for make in POLICIES}
    result = _run(request, "delay", policies, _environment(request, size), size)
    lines = [f"Claims about the regret at step {size.num_steps:,}. {HOW}", ""]
    for policy in map(str, result["policy"].values):
        of_policy = result["regret"].sel(policy=policy).isel(step=-1)
        gap = paired(of_policy.isel(delay=-1), of_policy.isel(delay=0))
        claim = f"{policy}: a mean delay of {delays[-1]:,} adds at most the highest regret of so many steps"
        lines.append(_judged(claim, gap, gap[0] + gap[1] <= delays[-1]))
    lines += ["", _BATCHRANK]
    return _report(result, "delay", "Mean delay of the clicks, in steps", lines)


def corruption(request: FigureRequest) -> Report:
    """Corrupted clicks: regret of every policy without features against the adversary's budget, in CM."""
    import xarray

    size = request.size(_SIZES)
    budgets = BUDGETS if size.num_steps > BUDGETS[-1] else (0, 30, 100)
    environment = _environment(request, size)
    count = num_instances(environment) or 1
    several = take_instances(environment, np.tile(np.arange(count), len(budgets)))
    attacked = Corrupted(several, budget=np.repeat(budgets, count), target="best")
    policies: dict[str, Policy] = {make.__name__: make() for make in POLICIES}
    together = _run(request, "corruption", policies, attacked, size)
    by_budget = [
        together.isel(query=slice(n * count, (n + 1) * count)).assign_coords(query=np.arange(count))
        for n in range(len(budgets))
    ]
    result = xarray.concat(by_budget, dim=xarray.Variable("budget", list(budgets)), combine_attrs="override")
    lines = [f"Claims about the regret at step {size.num_steps:,}. {HOW}", ""]
    for policy in map(str, result["policy"].values):
        of_policy = result["regret"].sel(policy=policy).isel(step=-1)
        gap = paired(of_policy.isel(budget=-1), of_policy.isel(budget=0))
        lines.append(_judged(f"{policy}: {budgets[-1]:,} steps with hidden clicks cost regret", gap, gap[0] > gap[1]))
    return _report(result, "budget", "First steps in which clicks on the best item are hidden", lines)


def _environment(request: FigureRequest, size: Size) -> ClickBandit:
    return ClickBandit(queries(request, "cm", size.num_queries), list_size=5)


def _run(
    request: FigureRequest, name: str, policies: Mapping[str, Any], environment: Environment, size: Size
) -> "xarray.Dataset":
    result = run(request, name, policies, environment, size.num_steps, size.num_seeds, num_records=20)
    result.attrs |= {"data": request.world, "scale": request.scale}
    return result


def _judged(claim: str, gap: tuple[float, float], holds: bool) -> str:
    """The verdict on a claim about a paired ``gap``, whether it ``holds`` for the whole interval."""
    if np.isnan(gap[1]):
        return judged("cannot be tested here", claim, "one run has no interval")
    return judged("reproduced" if holds else "not reproduced", claim, plus_minus(*gap, 1))


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
    ax.set(xlabel=label, ylabel="Regret", yscale="log")
    legend_below(figure, entries)
    return figure
