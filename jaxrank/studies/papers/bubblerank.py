"""The figures of BubbleRank (Li et al., UAI 2019, Sec. 5 and App. B).

The paper has 100 Yandex queries, 10 runs each, 5 million steps, K = L = 10, measured at the top 5. The public data
has 60 other queries, so numbers agree within query-sampling error. CascadeKL-UCB uses the first click as feedback.

BatchRank is shown as printed and as released. Its figures were drawn with released code, and BubbleRank's paper, of the
same authors' circle, does not say which of the two it compares with.
"""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.core.bounds import bubblerank_bound
from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import Array, ClickModel, Policy
from jaxrank.engine.simulation import simulate
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.output.intervals import difference, mean_and_interval
from jaxrank.output.plotting import (
    Entries,
    band_entry,
    draw_bound,
    draw_curves,
    draw_line,
    legend_below,
    panels,
    plain_ticks,
    styles,
)
from jaxrank.output.report import HOW, Report, alike, between, judged, met, verdict
from jaxrank.output.results import describe_error, error_over_seeds, mean_and_error, per_step
from jaxrank.output.tables import BOTH_ERRORS, counted, markdown, plus_minus, with_both_errors
from jaxrank.policies import BatchRank, BubbleRank, CascadeKLUCB, StaticRanking, TopRank
from jaxrank.studies.papers.figure import (
    FigureRequest,
    Size,
    queries,
    refuse_without,
    run_models,
    saved,
    seeds_of_each,
    shared,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

MODELS = ("cm", "dcm", "pbm")
HORIZON = 5_000_000
METRICS = ("regret", "violations", "ndcg@5")
POLICIES: dict[str, Callable[[], Policy]] = {
    "BubbleRank": BubbleRank,
    "CascadeKLUCB": CascadeKLUCB,
    "CascadeKLUCB (last click)": partial(CascadeKLUCB, feedback="last"),
    "BatchRank": BatchRank,
    "BatchRank (released)": partial(BatchRank, variant="released"),
    "TopRank": TopRank,
    "StaticRanking": StaticRanking,
}
_SIZES = {"smoke": Size(3, 1, 1_000), "laptop": Size(60, 2, 1_000_000), "paper": Size(100, 10, HORIZON)}
PUBLISHED_VIOLATIONS = {  # Sec. 5.3, in the first 100 steps
    "CascadeKLUCB": {"cm": "24.12 ± 0.76", "dcm": "23.33 ± 0.90", "pbm": "23.63 ± 0.96"},
    "BatchRank": {"cm": "83.01 ± 0.56", "dcm": "71.89 ± 0.92", "pbm": "59.63 ± 0.98"},
    "TopRank": {"cm": "83.56 ± 0.70", "dcm": "71.47 ± 1.07", "pbm": "57.00 ± 1.24"},
    "BubbleRank": {"cm": "0", "dcm": "0", "pbm": "0"},
}


def _environment(model: ClickModel) -> ClickBandit:
    return ClickBandit(model, list_size=10, top=5)


@cache
def _runs(request: FigureRequest) -> "xarray.Dataset":
    """The runs that figures 1, 2 and 4 share, recorded evenly in steps and in their logarithm."""
    size = request.size(_SIZES)
    by_factors = np.geomspace(1, size.num_steps, 100).round().astype(int)
    steps = np.unique(np.concatenate([by_factors, _even(size), _marks(size), [100, _early(size)]]))
    policies = {label: make() for label, make in POLICIES.items()}
    options: dict[str, Any] = {"metrics": METRICS, "record_at": steps.tolist()}
    return run_models(request, "bubblerank", MODELS, policies, size, _environment, **options)


def _run(request: FigureRequest) -> "xarray.Dataset":
    refuse_without(request, "BubbleRank")
    return _runs(shared(request))


def _even(size: Size) -> np.ndarray:
    """The ends of the hundredths of a run."""
    return np.arange(1, 101) * size.num_steps // 100


def _marks(size: Size) -> list[int]:
    """The steps of figure 1's table."""
    return [max(size.num_steps // part, 1) for part in (1_000, 100, 10, 1)]


def _early(size: Size) -> int:
    """What counts as early: the paper does not say."""
    return 1_000 if size.num_steps > 1_000 else 100


def fig1(request: FigureRequest) -> Report:
    """Figure 1: cumulative regret in CM, DCM and PBM, of the paper's five policies and of two variants."""
    size, result = request.size(_SIZES), _run(request)
    figure, axes = panels(len(_models(result)))
    entries: Entries = {}
    for ax, model in zip(axes, _models(result), strict=True):
        entries |= draw_curves(ax, result.sel(click_model=model), "regret", log=True, title=model.upper())
        if request.bound:
            steps = result["step"].values
            entries |= draw_bound(ax, steps, _mean_bound(request, model, size, steps), "Theorem 1 (BubbleRank)")
    legend_below(figure, entries)
    marks = _marks(size)
    rows = []
    for policy in map(str, result["policy"].values):
        for model in _models(result):
            curve = result["regret"].sel(policy=policy, click_model=model)
            at = (curve.sel(step=t) for t in marks)
            cells = (with_both_errors(*mean_and_error(c), error_over_seeds(c), 1) for c in at)
            rows.append([policy, model.upper(), *cells])
    table = markdown(["policy", "model", *(f"regret at {t:,}" for t in marks)], rows)
    notes = f"{BOTH_ERRORS.format(instances='queries')} {seeds_of_each(result)}"
    gap = _gap_of_dcm(request, size) if "dcm" in _models(result) else np.zeros(0)
    if gap.size:
        notes += (
            "\n\nIn DCM, regret is against the best pairing of attraction with termination. The list by attraction "
            f"itself has {gap.mean() * size.num_steps:,.1f} after {size.num_steps:,} steps, on the mean. Against that "
            'list, every DCM entry is lower by its share of it (`ClickBandit(reference="attraction")`).'
        )
    return Report(result, figure, "\n\n".join([table, notes, _verdicts(result, _early(size), gap)]))


def _models(result: "xarray.Dataset") -> list[str]:
    return [str(model) for model in result["click_model"].values]


def _verdicts(result: "xarray.Dataset", early: int, gap_of_dcm: np.ndarray) -> str:
    """The claims of Sec. 5.2: BubbleRank is lower early and, since safety costs, higher at the end; and others."""
    last, known = int(result["step"][-1]), set(result["policy"].values)
    others = ("BatchRank", "BatchRank (released)", "TopRank")
    lines = [f"{HOW} Regret:", ""]
    for model in _models(result):
        regret = result["regret"].sel(click_model=model)
        claims = [(early, "BubbleRank", "below", other) for other in others]
        claims += [(last, "BubbleRank", "above", other) for other in others]
        if model != "pbm":  # CascadeKL-UCB is for cascades
            claims += [(last, "CascadeKLUCB", "below", other) for other in ("BubbleRank", *others)]
        claims.append((last, "BubbleRank", "below", "StaticRanking"))
        for step, name, side, other in claims:
            if {name, other} <= known:
                lines.append(verdict(f"{model.upper()}, step {step:,}", name, side, other, regret.sel(step=step), 1))
        lines += _learning(model, regret, gap_of_dcm)
        lines += _crossing(model, regret)
    return "\n".join(lines)


def _learning(model: str, regret: "xarray.DataArray", gap_of_dcm: np.ndarray) -> list[str]:
    """Who learns in this model, and whose regret grows linearly.

    They learn the list by attraction. In DCM that is not the optimum, and has a regret itself, which is left out.
    """
    import xarray

    lines = []
    for policy in (str(policy) for policy in regret["policy"].values if "(last click)" not in policy):
        curve, linearly = regret.sel(policy=policy), policy == "StaticRanking"
        if policy == "CascadeKLUCB" and model == "pbm":
            linearly = True
        elif model == "dcm" and not linearly:
            curve = curve - xarray.DataArray(gap_of_dcm, dims="query") * regret["step"]
        claim = f"the regret of {policy} grows linearly" if linearly else f"{policy} learns"
        lines.append(_grows(curve, f"{model.upper()}: {claim}", linearly))
    return lines


_LINEAR = 0.8  # the exponent of the steps above which growth counts as linear, and below which a policy learns


def _grows(curve: "xarray.DataArray", claim: str, linearly: bool) -> str:
    """Whether a mean curve surely grows as the steps do or, if not ``linearly``, surely slower: by its exponent.

    The exponent is that of the last nine tenths of the run, on the mean over queries; its interval is the jackknife's,
    which leaves out one query at a time.
    """
    from scipy.special import stdtrit

    by_query = curve.mean("seed").transpose("query", "step")
    steps, values = by_query["step"].values, by_query.values
    tenth, count = int(np.searchsorted(steps, steps[-1] / 10)), len(values)

    def exponent(mean: np.ndarray) -> float:
        return float(np.log(mean[-1] / mean[tenth]) / np.log(steps[-1] / steps[tenth]))

    if values[:, -1].mean() <= 0:
        return judged("not reproduced" if linearly else "reproduced", claim, "no more than 0 at the end")
    if values[:, tenth].mean() <= 0:
        return judged("cannot be tested here", claim, f"no more than 0 at step {steps[tenth]:,}, above it at the end")
    grown = exponent(values.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a single query may have all of what grows
        without = [exponent(np.delete(values, q, axis=0).mean(axis=0)) for q in range(count)] if count > 1 else [np.nan]
    half = float(np.std(without) * np.sqrt(count - 1) * stdtrit(max(count - 1, 1), 0.975))
    low, high = grown - half, grown + half
    found = f"as steps^{grown:.2f} [{low:.2f}, {high:.2f}] from step {steps[tenth]:,} on; above {_LINEAR} is linear"
    if not np.isfinite(half):
        return judged("cannot be tested here", claim, f"as steps^{grown:.2f}; the exponent has no interval")
    allowed = (_LINEAR, np.inf) if linearly else (-np.inf, _LINEAR)
    return judged(between(low, high, *allowed), claim, found)


def _crossing(model: str, regret: "xarray.DataArray") -> list[str]:
    """Until which step BubbleRank's regret is surely below that of the others, and from which on its mean is above."""
    steps = regret["step"].values
    bubblerank = regret.sel(policy="BubbleRank")
    lines = []
    for other in (p for p in ("BatchRank", "BatchRank (released)", "TopRank") if p in regret["policy"]):
        mean, half = (each.values for each in mean_and_interval(bubblerank - regret.sel(policy=other)))
        below = np.flatnonzero(mean + half < 0)
        last = below[0] + np.argmin(np.append(mean + half < 0, False)[below[0] :]) - 1 if below.size else 0
        early = f"from step {steps[below[0]]:,} to {steps[last]:,}" if below.size else "at no step"
        from_here = np.flatnonzero(np.logical_and.accumulate((mean > 0)[::-1])[::-1])
        late = f"stays above 0 from step {steps[from_here[0]]:,} on" if from_here.size else "is not above 0 at the end"
        lines.append(
            f"- {model.upper()}: the interval of BubbleRank's regret minus that of {other} is below 0 {early}; "
            f"its mean {late}."
        )
    return lines


def _gap_of_dcm(request: FigureRequest, size: Size) -> np.ndarray:
    """What the list by attraction loses per step against the optimum of the dependent click model, by query."""
    environment = _environment(queries(request, "dcm", size.num_queries))
    by_attraction = dataclasses.replace(environment, reference="attraction").optimal_ranking

    def lost(query: Array) -> Array:
        one = take_instances(environment, query)
        return one.metrics(one.query(jnp.zeros(2, jnp.uint32), jnp.int32(1)), by_attraction[query])["regret"]

    return np.asarray(jax.vmap(lost)(jnp.arange(len(by_attraction))), np.float64)


def _mean_bound(request: FigureRequest, model: str, size: Size, steps: np.ndarray) -> np.ndarray:
    environment: Any = _environment(queries(request, model, size.num_queries))
    users = environment.click_model
    bounds = []
    for q in range(users.attraction.shape[0]):
        alpha = -np.sort(-np.asarray(users.attraction[q], np.float64))
        if model == "pbm":
            chi = np.broadcast_to(np.asarray(users.examination), users.attraction.shape)[q]
        else:
            leave = np.broadcast_to(np.asarray(getattr(users, "termination", 1.0)), users.attraction.shape)[q]
            chi = np.append(1, np.cumprod(1 - leave * alpha)[:-1])
        bounds.append(bubblerank_bound(alpha, chi, np.asarray(environment.base_inversions)[q], steps, size.num_steps))
    return np.mean(bounds, axis=0)


def fig2(request: FigureRequest) -> Report:
    """Figure 2: violations of the safety constraint; the first 100 steps are the published numbers."""
    result = _run(request)
    figure = _by_model(result, "violations", log=True)
    models, known = _models(result), [str(policy) for policy in result["policy"].values]
    rows = []
    for policy in known:
        cells = []
        for model in models:
            first = result["violations"].sel(policy=policy, click_model=model, step=100)
            published = PUBLISHED_VIOLATIONS.get(policy, {}).get(model)
            cells.append(with_both_errors(*mean_and_error(first), error_over_seeds(first), 2))
            cells[-1] += f" [{published}]" if published else ""
        rows.append([policy, *cells])
    header = ["violations in 100 steps [published]", *(model.upper() for model in models)]
    lines = [f"{HOW} Violations of the safety constraint:", ""]
    rivals = [policy for policy in ("CascadeKLUCB", "BatchRank", "TopRank") if policy in known]
    for model in models:
        for step in (100, int(result["step"][-1])):
            here, where = result["violations"].sel(click_model=model, step=step), f"{model.upper()}, step {step:,}"
            lines += [verdict(where, "BubbleRank", "below", rival, here, 2) for rival in rivals]
        here, where = result["violations"].sel(click_model=model, step=100), f"{model.upper()}, step 100"
        if "CascadeKLUCB" in known:
            lines += [verdict(where, "CascadeKLUCB", "below", rival, here, 2) for rival in rivals[1:]]
        if {"TopRank", "BatchRank"} <= set(known):
            found = difference(here.sel(policy="TopRank"), here.sel(policy="BatchRank"))
            level = float(here.sel(policy="BatchRank").mean())
            lines.append(alike(f"{where}: TopRank is close to BatchRank", found, level, 2))
        total = result["violations"].sel(click_model=model, policy="BubbleRank").isel(step=-1).sum()
        claim = f"{model.upper()}: BubbleRank never violates the constraint"
        lanes = f"{counted(int(total), 'violation')} in {int(result['step'][-1]):,} steps of all its lanes"
        lines.append(judged("reproduced" if total == 0 else "not reproduced", claim, lanes))
        if model == "pbm" and "CascadeKLUCB" in known:
            claim = "PBM: the violations of CascadeKLUCB grow linearly"
            lines.append(_grows(result["violations"].sel(click_model=model, policy="CascadeKLUCB"), claim, True))
    lines += _published_violations(result)
    notes = f"{BOTH_ERRORS.format(instances='queries')} Published errors are of other queries, and of "
    notes += "100 × 10 runs as if they were independent."
    return Report(result, figure, "\n\n".join([markdown(header, rows), notes, "\n".join(lines)]))


def _published_violations(result: "xarray.Dataset") -> list[str]:
    """Whether the published numbers are within the 95 % interval of the difference: two samples of queries.

    The published errors are those of 1,000 runs, as if 10 runs of one query were 10 queries: so computed, the errors
    here are theirs. Over 100 queries they are three times as large. So the error over queries here stands for both.
    """
    lines, count = [], result.sizes["query"]
    for policy in (policy for policy in PUBLISHED_VIOLATIONS if policy in result["policy"]):
        for model in _models(result):
            text = PUBLISHED_VIOLATIONS[policy][model]
            if text == "0":  # a claim of its own
                continue
            values = result["violations"].sel(policy=policy, click_model=model, step=100)
            mean, half = (float(x) for x in mean_and_interval(values))
            width = half * np.sqrt(1 + count / 100) if count > 1 else np.nan
            claim = f"{model.upper()}: {policy} has {text} violations in 100 steps"
            lines.append(met(claim, mean, float(text.partition(" ± ")[0]), width, 2))
    return lines


def _ndcg_claims(model: str, ndcg: "xarray.DataArray") -> list[str]:
    """BubbleRank's NDCG approaches 1, and is much worse than the production list's in no window (App. B)."""
    bubblerank = ndcg.sel(policy="BubbleRank")
    last = bubblerank.isel(step=-1)
    found = difference(last, last.copy(data=np.ones(last.shape)))
    lines = [alike(f"{model.upper()}, last 1 % of steps: NDCG@5 of BubbleRank approaches 1", found, 1.0, 3)]
    if "StaticRanking" in ndcg["policy"]:
        mean, half = mean_and_interval(bubblerank - ndcg.sel(policy="StaticRanking"))
        low, high = float((mean - half).min()), float((mean + half).min())
        claim = f"{model.upper()}: NDCG@5 of BubbleRank is never much worse than that of StaticRanking"
        word = between(low, high, -_MUCH, np.inf)
        first = int(ndcg["step"][0])
        why = f"the lowest ends of intervals, from the first {first:,} steps on, are {low:+.3f} and {high:+.3f}"
        lines.append(judged(word, claim, f"{why}; {_MUCH} less is much"))
    return lines


_MUCH = 0.05  # of NDCG@5


def _by_model(result: "xarray.Dataset", metric: str, **options: Any) -> "Figure":
    """A panel for each click model."""
    models = _models(result)
    figure, axes = panels(len(models))
    entries: Entries = {}
    for ax, model in zip(axes, models, strict=True):
        entries |= draw_curves(ax, result.sel(click_model=model), metric, title=model.upper(), **options)
    legend_below(figure, entries)
    return figure


def fig3(request: FigureRequest) -> Report:
    """Figure 3: regret of BubbleRank against |V₀|, and against the smallest examination probability."""
    import xarray

    sizes = {"smoke": Size(4, 3, 2_000), "laptop": Size(60, 10, 500_000), "paper": Size(100, 10, HORIZON)}
    size = request.size(sizes)
    by_list, rows, lines, seconds = {}, [], ["Verdicts on the paper's claims:", ""], 0.0
    for model in MODELS:
        users: Any = queries(request, model, size.num_queries)
        environment = _random_base_lists(users, size.num_seeds)
        options = {"num_records": 1, "progress": request.progress} | saved(request, "bubblerank-fig3", model)
        run = simulate(BubbleRank(), environment, size.num_steps, **options)
        seconds += run.attrs["wall_time_seconds"]
        regret = run["regret"].values[:, 0, 0]
        inversions = np.asarray(environment.base_inversions)
        shape = (-1, size.num_seeds)  # lists of a query follow one another
        lines.append(_grows_linearly(model, regret.reshape(shape), inversions.reshape(shape)))
        by_list[model] = (("list",), regret)
        by_list[f"{model}_inversions"] = (("list",), inversions)
        counts = np.unique(inversions)
        means = np.array([regret[inversions == v].mean() for v in counts])
        weights = np.array([(inversions == v).sum() for v in counts])
        slope, intercept = np.polyfit(counts, means, 1, w=np.sqrt(weights))
        rows.append(
            [
                model.upper(),
                f"{slope:,.1f}·|V₀| {'-' if intercept < 0 else '+'} {abs(intercept):,.1f}",
                f"{_r_squared(regret, inversions * slope + intercept):.3f}",
                f"{_r_squared(means, counts * slope + intercept, weights):.3f}",
            ]
        )

    steps = {"smoke": 5_000, "laptop": 1_000_000, "paper": 1_000_000}[request.scale]
    halvings = np.arange(1, 6)
    run = simulate(
        BubbleRank(),
        _rarely_examined(halvings),
        steps,
        num_seeds=10 * size.num_seeds,  # there is one query
        num_records=100,
        progress=request.progress,
        **saved(request, "bubblerank-fig3", "halvings"),
    )
    by_halving = run["regret"].rename(query="halvings").assign_coords(halvings=halvings)
    final, ratios = by_halving.isel(step=-1).mean("seed").values, _ratios(by_halving)
    doubling = [
        [f"{i}", f"{0.5**i:.3f}", f"{r:,.0f}", "" if i == 1 else f"{float(ratios[i - 2].mean()):.2f}"]
        for i, r in zip(halvings, final, strict=True)
    ]

    result = xarray.Dataset({name: xarray.Variable(*value) for name, value in by_list.items()})
    result["regret_by_halving"] = by_halving
    result.attrs = run.attrs | {"data": request.world, "scale": request.scale}
    result.attrs["wall_time_seconds"] += seconds
    figure, axes = panels(4)
    dots: dict[str, Any] = {
        "linestyle": "",
        "marker": ".",
        "alpha": 0.4,
        "color": styles(["BubbleRank"])["BubbleRank"]["color"],
    }
    for ax, model in zip(axes[:3], MODELS, strict=True):
        ax.plot(by_list[f"{model}_inversions"][1], by_list[model][1], **dots)
        ax.set(xlabel="|V₀| of a list", ylabel=f"Regret after {size.num_steps:,} steps", title=model.upper())
        plain_ticks(ax.yaxis)
    looks = styles(f"χ_min = {0.5**i:g}" for i in halvings)
    entries: Entries = {}
    for i, (label, look) in zip(halvings, looks.items(), strict=True):
        mean, error = mean_and_error(by_halving.sel(halvings=i))
        entries[label] = draw_line(axes[3], mean["step"], mean, error, label=label, **look)
    axes[3].set(xlabel="Step", ylabel="Regret", title="PBM, χ_min halved")
    plain_ticks(axes[3].xaxis)
    plain_ticks(axes[3].yaxis)
    legend_below(figure, entries | band_entry(describe_error(by_halving.isel(halvings=0))))
    fits = markdown(["model", f"regret at {size.num_steps:,}", "R² of lists", "R² of means per |V₀|"], rows)
    halved = markdown(["i", "χ_min", f"regret at {steps:,}", "ratio, on the mean over seeds"], doubling)
    return Report(result, figure, f"{fits}\n\n{halved}\n\n" + "\n".join([*lines, *_doubles(ratios)]))


def _grows_linearly(model: str, regret: np.ndarray, inversions: np.ndarray) -> str:
    """Whether regret [queries, lists] grows with |V₀| by a positive slope, and a curvature's interval contains 0.

    Both are fitted to the lists of each query, and have intervals over queries: lists of one query are alike.
    """
    import xarray

    claim = f"{model.upper()}: regret is linear in |V₀|"
    if regret.shape[1] < 4:
        return judged("cannot be tested here", claim, "too few lists")
    center = inversions.mean()
    fits = [np.polyfit(v - center, r, 2) for v, r in zip(inversions, regret, strict=True)]
    both = xarray.DataArray(np.array(fits)[:, :2], dims=("query", "of"))
    (bent, slope), (bent_half, slope_half) = (each.values for each in mean_and_interval(both))
    if not np.isfinite(bent_half):
        return judged("cannot be tested here", claim, "one query has no interval")
    linear = slope > slope_half and abs(bent) <= bent_half
    found = f"slope {slope:,.0f} ± {slope_half:,.0f}, curvature {bent:,.1f} ± {bent_half:,.1f} (95 %, over queries)"
    why = "; the slope is positive, but the curvature's interval does not contain 0"
    word = "reproduced" if linear else "not reproduced"
    return judged(word, claim, found + (why if slope > slope_half and not linear else ""))


def _ratios(by_halving: "xarray.DataArray") -> "xarray.DataArray":
    """Every seed's regret at the end for a χ_min, by that for twice the χ_min: [halvings − 1, seed]."""
    final = by_halving.isel(step=-1).transpose("halvings", "seed")
    return final[1:].copy(data=final.values[1:] / final.values[:-1])


def _doubles(ratios: "xarray.DataArray") -> list[str]:
    """Whether regret grows, and doubles, when χ_min is halved: ``_ratios``, with intervals over seeds."""
    both = zip(*(map(float, mean_and_interval(ratio)) for ratio in ratios), strict=True)
    mean, half = map(np.array, both)
    found = ", ".join(f"{m:.2f} [{m - h:.2f}, {m + h:.2f}]" for m, h in zip(mean, half, strict=True))

    def of(claim: str, low: float, high: float, more: str = "") -> str:
        words = [between(m - h, m + h, low, high) for m, h in zip(mean, half, strict=True)]
        word = next((each for each in ("not reproduced", "cannot be tested here") if each in words), "reproduced")
        return judged(word, f"regret {claim} whenever χ_min is halved", f"ratios, by seed: {found}{more}")

    return [of("grows", 1, np.inf), of("doubles", 1.9, 2.1, "; surely within 5 % of 2 counts as doubling")]


def _random_base_lists(users: Any, count: int) -> ClickBandit:
    """``count`` random base lists of every query, as instances."""
    num_queries, num_items = users.attraction.shape
    rng = np.random.default_rng(0)
    lists = rng.permuted(np.tile(np.arange(num_items), (num_queries * count, 1)), axis=1)
    repeated = take_instances(users, np.repeat(np.arange(num_queries), count))
    return ClickBandit(repeated, base_ranking=lists, list_size=10, top=5)


def _rarely_examined(halvings: np.ndarray) -> ClickBandit:
    """Sec. 5.4: α = (0.9, 0.5, …, 0.5), χ = (0.9, …, 0.9, 0.5^i, 0.5^i), the best item last."""
    attraction = np.tile([0.9, *[0.5] * 9], (len(halvings), 1))
    examination = np.array([[*[0.9] * 8, 0.5**i, 0.5**i] for i in halvings])
    return ClickBandit(
        PositionBasedModel(attraction, examination), base_ranking=[*range(1, 10), 0], list_size=10, top=5
    )


def _r_squared(values: np.ndarray, fitted: np.ndarray, weights: np.ndarray | None = None) -> float:
    mean = np.average(values, weights=weights)
    return 1 - np.average((values - fitted) ** 2, weights=weights) / np.average((values - mean) ** 2, weights=weights)


def fig4(request: FigureRequest) -> Report:
    """Figure 4 (App. B): NDCG@5 per step. As in the paper, CascadeKL-UCB is left out."""
    result = _run(request)
    result = result.sel(policy=[p for p in result["policy"].values if not p.startswith("CascadeKLUCB")])
    evenly = result.sel(step=_even(request.size(_SIZES)))
    early = [step for step in (100, _early(request.size(_SIZES))) if step < evenly["step"][0]]
    windows = result.sel(step=[*early, *evenly["step"].values])  # exploration costs the most at first
    figure = _by_model(evenly, "ndcg@5", per_step=True)
    models, policies = _models(result), [str(policy) for policy in result["policy"].values]
    ndcg = {
        "first 100 steps": result["ndcg@5"].sel(step=100) / 100,
        "last 1 % of steps": per_step(evenly["ndcg@5"]).isel(step=-1),
    }
    rows = [
        [policy, when, *(plus_minus(*mean_and_error(of.sel(policy=policy, click_model=m)), 3) for m in models)]
        for policy in policies
        for when, of in ndcg.items()
    ]
    lines = [f"{HOW} NDCG@5 per step:", ""]
    for model in models:
        for (when, of), others in zip(ndcg.items(), (("BatchRank", "TopRank"), ("StaticRanking",)), strict=True):
            here, where = of.sel(click_model=model), f"{model.upper()}, {when}"
            lines += [verdict(where, "BubbleRank", "above", other, here, 3) for other in others if other in policies]
        first, last = (of.sel(click_model=model) for of in ndcg.values())
        if "StaticRanking" in policies:
            found = difference(first.sel(policy="BubbleRank"), first.sel(policy="StaticRanking"))
            level = float(first.sel(policy="StaticRanking").mean())
            claim = f"{model.upper()}, first 100 steps: BubbleRank is close to StaticRanking"
            lines.append(alike(claim, found, level, 3))
        for other in (each for each in policies if each.startswith(("BatchRank", "TopRank"))):
            found = difference(last.sel(policy="BubbleRank"), last.sel(policy=other))
            claim = f"{model.upper()}, last 1 % of steps: BubbleRank and {other} are similar"
            lines.append(alike(claim, found, 1.0, 3))
        lines += _ndcg_claims(model, per_step(windows["ndcg@5"]).sel(click_model=model))
    table = markdown(["policy", "NDCG@5 per step", *(m.upper() for m in models)], rows)
    return Report(evenly, figure, "\n\n".join([table, "\n".join(lines)]))
