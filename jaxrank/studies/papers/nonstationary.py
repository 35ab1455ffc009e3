"""Cascading bandits in worlds that change, after Li and de Rijke (IJCAI 2019) and Wang et al. (AAAI 2021).

Both papers have abruptly changing cascade models, 10 items of which 3 are shown, and find their policies below those
that do not forget. Here: CM, L = 10, K = 3, 100,000 steps, and 10 changes, at equal distances, at which the items of a
query exchange their attractions at random; and the same without a change, where forgetting has a price.
"""

from jaxrank.core.types import Environment, Policy
from jaxrank.environments.changing import change
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.output.plotting import Entries, draw_curves, legend_below, panels
from jaxrank.output.report import HOW, Report, verdict
from jaxrank.output.results import mean_and_error
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import (
    CascadeDUCB,
    CascadeKLUCB,
    CascadeSWUCB,
    CascadeUCB1,
    GLRTCascadeKLUCB,
    GLRTCascadeUCB,
    TopRank,
)
from jaxrank.studies.papers.figure import FigureRequest, Size, paired, queries, refuse_without, run_worlds

ADAPTIVE: dict[str, type] = {
    "CascadeDUCB": CascadeDUCB,
    "CascadeSWUCB": CascadeSWUCB,
    "GLRTCascadeUCB": GLRTCascadeUCB,
    "GLRTCascadeKLUCB": GLRTCascadeKLUCB,
}
STATIC: dict[str, type] = {"CascadeKLUCB": CascadeKLUCB, "CascadeUCB1": CascadeUCB1, "TopRank": TopRank}
CHANGES = 10
_SIZES = {"smoke": Size(3, 1, 1_100), "laptop": Size(60, 10, 100_000), "paper": Size(60, 20, 100_000)}
_CHANGING, _STATIONARY = f"{CHANGES} changes", "stationary"


def figure(request: FigureRequest) -> Report:
    """Worlds that change: regret of static and adaptive cascading bandits with 10 changes, and with none."""
    refuse_without(request, "CascadeKLUCB")
    size = request.size(_SIZES)
    policies: dict[str, Policy] = {name: make() for name, make in (STATIC | ADAPTIVE).items()}
    still = ClickBandit(queries(request, "cm", size.num_queries), list_size=3)
    worlds: dict[str, Environment] = {
        _CHANGING: change(still, every=-(-size.num_steps // (CHANGES + 1)), worlds=CHANGES + 1),
        _STATIONARY: still,
    }
    result = run_worlds(request, "nonstationary", "world", worlds, policies, size, num_records=110)
    figure, axes = panels(2)
    entries: Entries = {}
    for ax, world in zip(axes, worlds, strict=True):
        entries |= draw_curves(ax, result.sel(world=world), "regret", title=f"CM, {world}")
    legend_below(figure, entries)
    last = result["regret"].isel(step=-1)
    rows = []
    for policy in map(str, last["policy"].values):
        gaps = {w: paired(last.sel(world=w, policy=policy), last.sel(world=w, policy="CascadeKLUCB")) for w in worlds}
        cells = [plus_minus(*mean_and_error(last.sel(world=w, policy=policy)), 1) for w in worlds]
        rows.append([policy, *cells, *(plus_minus(*gaps[w], 1) for w in worlds)])
    header = ["policy", *(f"regret, {w}" for w in worlds), *(f"minus CascadeKLUCB, {w} (95 %)" for w in worlds)]
    lines = [f"Claims about the regret at step {size.num_steps:,}. {HOW}", ""]
    for policy in (policy for policy in ADAPTIVE if policy in last["policy"]):
        for world, side in ((_CHANGING, "below"), (_STATIONARY, "above")):
            lines.append(verdict(world, policy, side, "CascadeKLUCB", last.sel(world=world), 1))
    return Report(result, figure, markdown(header, rows) + "\n\n" + "\n".join(lines))
