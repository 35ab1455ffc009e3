"""The figures of BatchRank (Zoghi et al., ICML 2017, Sec. 6).

60 Yandex queries, L = 10 items, K = 5 positions, 10 runs, 10 million steps; regret per step in windows of 1 % of the
run (100,000 steps in the paper).

The paper's figures were drawn with released code; policies are shown as printed and as released. The published
CascadeKL-UCB is very likely the released one: level log t, L initial steps, feedback down to the last click.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.core.bounds import batchrank_bound
from jaxrank.core.types import ClickModel, Policy
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.output.intervals import difference, mean_and_interval
from jaxrank.output.plotting import Entries, draw_bound, draw_curves, legend_below, panels, styles
from jaxrank.output.report import HOW, Report, alike, judged, met, signed, verdict
from jaxrank.output.results import mean_and_error, per_step
from jaxrank.output.tables import markdown
from jaxrank.policies import BatchRank, CascadeKLUCB, RankedExp3
from jaxrank.studies.papers.figure import (
    FigureRequest,
    Size,
    queries,
    refuse_without,
    run_models,
    seeds_of_each,
    shared,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

MODELS = ("cm", "pbm")
POLICIES: dict[str, Callable[[], Any]] = {
    "BatchRank": BatchRank,
    "BatchRank (released)": partial(BatchRank, variant="released"),
    "CascadeKLUCB": CascadeKLUCB,
    "CascadeKLUCB (last click)": partial(CascadeKLUCB, feedback="last"),
    "CascadeKLUCB (released)": partial(CascadeKLUCB, feedback="last", level="log", initial="each"),
    "RankedExp3": RankedExp3,
    "RankedExp3 (released)": partial(RankedExp3, estimates="losses"),
}
STUCK = 1e-3  # the regret per step above which a run counts as stuck
_SIZES = {"smoke": Size(3, 1, 1_000), "laptop": Size(60, 2, 1_000_000), "paper": Size(60, 10, 10_000_000)}


def _environment(model: ClickModel) -> ClickBandit:
    return ClickBandit(model, list_size=5)


def _run(request: FigureRequest) -> "xarray.Dataset":
    return _runs(shared(request))


@cache
def _runs(request: FigureRequest) -> "xarray.Dataset":
    """The runs that both figures share."""
    policies: dict[str, Policy] = {name: make() for name, make in POLICIES.items()}
    return run_models(request, "batchrank", MODELS, policies, request.size(_SIZES), _environment, num_records=100)


def fig1(request: FigureRequest) -> Report:
    """Figure 1: three problems that represent the trends.

    The paper does not say which queries it shows. Here: the CM queries at the lower and the upper quartile of
    BatchRank's last regret per step, and the PBM query on which CascadeKL-UCB's is highest.
    """
    refuse_without(request, "BatchRank", "CascadeKLUCB")
    result = _run(request)
    last = per_step(result["regret"]).isel(step=-1).mean("seed")
    in_cm = last.sel(click_model="cm", policy="BatchRank")
    order = in_cm["query"].values[np.argsort(in_cm.values, kind="stable")]
    in_pbm = last.sel(click_model="pbm", policy="CascadeKLUCB")
    problems = [
        ("cm", order[len(order) // 4]),
        ("cm", order[(3 * len(order)) // 4]),
        ("pbm", in_pbm["query"].values[np.argmax(in_pbm.values)]),
    ]
    figure, axes = panels(3)
    entries: Entries = {}
    rows = []
    for ax, (model, query) in zip(axes, problems, strict=True):
        chosen = result.sel(click_model=model, query=[query])
        title = f"{model.upper()}, query {query}"
        entries |= draw_curves(ax, chosen, "regret", per_step=True, log=True, title=title)
        number = int(np.flatnonzero(result["query"] == query)[0])
        entries |= _bound(request, ax, model, chosen["step"].values, [number])
        final = per_step(chosen["regret"]).isel(step=-1)
        rows.append([title, *(_scientific(final.sel(policy=p)) for p in final["policy"].values)])
    legend_below(figure, entries)
    header = ["regret per step in the last 1 %", *map(str, result["policy"].values)]
    lines = [f"{HOW} Regret per step:", "", *_trends(result)]
    return Report(result, figure, "\n\n".join([markdown(header, rows), "\n".join(lines)]))


def _trends(result: "xarray.Dataset") -> list[str]:
    """The trends that Figure 1 stands for, over all queries."""
    by_seed = per_step(result["regret"])
    regret = by_seed.mean("seed")
    known = [str(policy) for policy in regret["policy"].values]
    last = regret.isel(step=-1)
    lines = []
    for policy in (policy for policy in known if policy.startswith("CascadeKLUCB")):
        for model, count in (("cm", "most"), ("pbm", "many")):
            if model == "cm" and policy.endswith("(last click)"):
                continue  # there is one click at most
            good = float((last.sel(click_model=model, policy=policy) < STUCK).mean())
            claim = f"{model.upper()}: {policy} performs very well on {count} queries"
            found = f"below {STUCK:g} on {good:.0%} of them in the last 1 %; half of them counts as {count}"
            lines.append(judged("reproduced" if good > 0.5 else "not reproduced", claim, found))
    for policy in (policy for policy in known if policy.startswith("BatchRank")):
        learnt = _learnt(regret.sel(click_model="cm", policy=policy))
        quick, never = float((learnt <= 0.1).mean()), float((learnt > 1).mean())
        late = float((learnt > 0.5).mean()) - never
        found = f"regret stays below {STUCK:g} from the first tenth of the run on in {quick:.0%} of the queries"
        word = "reproduced" if quick >= 0.5 else "not reproduced"
        lines.append(judged(word, f"CM: {policy} often learns quickly", f"{found}; half of them counts as often"))
        word = "reproduced" if late > 0 else "not reproduced"
        claim = f"CM: {policy} sometimes requires close to T steps"
        lines.append(judged(word, claim, f"it does so in the second half in {late:.0%}, and in {never:.0%} not at all"))
    for kind in ("", " (released)"):
        ours, rival = f"BatchRank{kind}", f"RankedExp3{kind}"
        if {ours, rival} <= set(known):
            below = last.sel(policy=ours, drop=True) < last.sel(policy=rival, drop=True)
            word = "reproduced" if bool(below.all()) else "not reproduced"
            found = f"on {int(below.sum())} of {below.size} pairs of query and click model, by means over seeds"
            lines.append(judged(word, f"{ours} outperforms {rival} in all experiments", found))
        learner = f"CascadeKLUCB{kind}"
        if learner in known:
            in_pbm = last.sel(click_model="pbm", policy=learner)
            worst = in_pbm["query"].values[int(np.argmax(in_pbm.values))]
            of_worst = by_seed.sel(click_model="pbm", query=[worst], policy=learner)
            lines.append(_flat(f"PBM, query {worst}: the regret per step of {learner} remains constant", of_worst))
        if {learner, rival} <= set(known):
            here = by_seed.sel(click_model="pbm").isel(step=-1)
            lines.append(
                _on_some_query(f"PBM, last 1 %: {rival} is below {learner} on some query", here, rival, learner)
            )
    return lines


def _flat(claim: str, regret: "xarray.DataArray") -> str:
    """The verdict on regret per step that does not change in the second half of the run, by more than 5 %."""
    steps = regret["step"].values
    middle = regret.isel(step=int(np.searchsorted(steps, steps[-1] / 2)), drop=True)
    return alike(claim, difference(regret.isel(step=-1, drop=True), middle), float(middle.mean()), 6)


def _on_some_query(claim: str, last: "xarray.DataArray", name: str, other: str) -> str:
    """The verdict on a policy that is said to be below another on at least one query.

    One of many queries is always the luckiest, so the level of its test, by Student's t over seeds, is divided by their
    number (Bonferroni).
    """
    from scipy.special import stdtr

    apart = (last.sel(policy=name) - last.sel(policy=other)).dropna("seed", how="all").transpose("query", "seed")
    mean, error, count = apart.mean("seed").values, apart.std("seed", ddof=1).values, apart.sizes["seed"]
    if count < 2:
        return judged("cannot be tested here", claim, "one run has no interval")
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = stdtr(count - 1, mean / error * np.sqrt(count)) * len(mean)
    chance = np.where(np.isfinite(chance), chance, np.where(mean < 0, 0, 1))
    surest = int(np.argmin(chance))
    found = f"its mean is below on {int((mean < 0).sum())} of {len(mean)}; most surely on query "
    found += f"{apart['query'].values[surest]}, {mean[surest]:+.6f}, p = {min(chance[surest], 1):.2g} for all queries"
    return judged("reproduced" if chance[surest] < 0.025 else "not reproduced", claim, found)


def _learnt(regret: "xarray.DataArray") -> "xarray.DataArray":
    """The fraction of the run after which a query's regret per step stays below ``STUCK``; above 1 if it never does."""
    steps = regret["step"].values
    above = (regret >= STUCK).transpose(..., "step")
    bad = np.where(above.values, np.arange(1, len(steps) + 1), 0).max(axis=-1)  # windows up to the last that is above
    ends = np.array([0, *steps[:-1], 2 * steps[-1]])
    return above.isel(step=-1, drop=True).copy(data=ends[bad] / steps[-1])


def fig2(request: FigureRequest) -> Report:
    """Figure 2: regret per step over all queries, and its distribution at the end."""
    result = _run(request)
    last = per_step(result["regret"]).isel(step=-1)
    models, policies = ([str(name) for name in result[dim].values] for dim in ("click_model", "policy"))
    figure, axes = panels(2 * len(models), columns=len(models))
    entries: Entries = {}
    looks = styles(policies)
    rows = []
    lines = [f"{HOW} Regret per step in the last 1 %:", ""]
    for model, above, below in zip(models, axes[: len(models)], axes[len(models) :], strict=True):
        chosen = result.sel(click_model=model)
        entries |= draw_curves(above, chosen, "regret", per_step=True, log=True, title=model.upper())
        entries |= _bound(request, above, model, chosen["step"].values, list(range(chosen.sizes["query"])))
        edges = np.logspace(-6, 0, 25)
        for policy in policies:
            final = last.sel(click_model=model, policy=policy)
            runs = final.values[np.isfinite(final.values)]
            look = {"color": looks[policy]["color"], "linestyle": looks[policy]["linestyle"]}
            shares = np.full(runs.size, 1 / max(runs.size, 1))  # policies may have different numbers of runs
            at_least = np.maximum(runs, edges[0])
            below.hist(at_least, bins=list(edges), weights=shares, histtype="step", linewidth=1.5, **look)
            rows.append([model.upper(), policy, _scientific(final), _share(final)])
        below.set(xscale="log", xlabel="Regret per step in the last 1 %", ylabel="Fraction of runs")
        here, where = last.sel(click_model=model), model.upper()
        side = "above" if model == "cm" else "below"  # CascadeKL-UCB is for cascades
        claims = [
            (f"BatchRank{kind}", *claim)
            for kind in ("", " (released)")
            for claim in (("below", f"RankedExp3{kind}"), (side, f"CascadeKLUCB{kind}"))
        ]
        lines += [verdict(where, *claim, here, 6) for claim in claims if {claim[0], claim[2]} <= set(policies)]
        if model == "pbm":
            lines += _robust(result["regret"].sel(click_model=model), here)
            for policy in (policy for policy in policies if policy.startswith("CascadeKLUCB")):
                curve = per_step(result["regret"]).sel(click_model=model, policy=policy)
                lines.append(_flat(f"PBM: the regret per step of {policy} flattens", curve))
            lines += [_stuck(p, here.sel(policy=p)) for p in policies if p.startswith("CascadeKLUCB")]
    legend_below(figure, entries)
    header = ["model", "policy", "regret per step in the last 1 %", f"runs above {STUCK:g}"]
    notes = f"± is the standard error over queries, of means over seeds. {seeds_of_each(result)}"
    return Report(result, figure, "\n\n".join([markdown(header, rows), notes, "\n".join(lines)]))


def _robust(regret: "xarray.DataArray", last: "xarray.DataArray") -> list[str]:
    """PBM: BatchRank is below CascadeKL-UCB at 2 million steps already, and fewer of its runs are stuck."""
    lines = []
    known = set(regret["policy"].values)
    half_way = per_step(regret).sel(step=2_000_000, method="nearest")
    for kind in ("", " (released)"):
        ours, rival = f"BatchRank{kind}", f"CascadeKLUCB{kind}"
        if {ours, rival} <= known:
            where = f"PBM, step {int(half_way['step']):,}"
            lines.append(verdict(where, ours, "below", rival, half_way, 6))
            stuck = (last > STUCK).where(last.notnull())
            apart = difference(stuck.sel(policy=ours), stuck.sel(policy=rival))
            claim = f"PBM: fewer runs of {ours} than of {rival} end above {STUCK:g} per step"
            lines.append(signed(claim, "below", apart, 3))
    return lines


def _share(final: "xarray.DataArray") -> str:
    """The fraction of stuck runs and its standard error over queries."""
    mean, error = mean_and_error((final > STUCK).where(final.notnull()))
    return f"{float(mean):.3f} ± {float(error):.3f}"


def _stuck(policy: str, final: "xarray.DataArray") -> str:
    """Whether about 1/6 of the PBM runs are stuck, as published."""
    mean, half = (float(x) for x in mean_and_interval((final > STUCK).where(final.notnull())))
    claim = f"PBM: about 1/6 of the runs of CascadeKLUCB end above {STUCK:g} per step, with {policy}"
    return met(claim, mean, 1 / 6, half, 3)


def _bound(request: FigureRequest, ax: "Axes", model: str, steps: np.ndarray, numbers: list[int]) -> Entries:
    """Theorem 1 per step, on the mean over the queries of these numbers; in both CM and PBM it needs α only.

    T is the run's at every step, because BatchRank's bounds and stages are made for that T.
    """
    if not request.bound:
        return {}
    attraction = np.asarray(queries(request, model, max(numbers) + 1).attraction, np.float64)
    horizon = np.maximum(steps[-1:], 5)
    bounds = [batchrank_bound(attraction[q], min(5, attraction.shape[1]), horizon) for q in numbers]
    return draw_bound(ax, steps, np.mean(bounds, axis=0) / steps, "Theorem 1 (BatchRank), per step so far")


def _scientific(curve: "xarray.DataArray") -> str:
    mean, error = mean_and_error(curve)
    return f"{float(mean):.2e} ± {float(error):.1e}"
