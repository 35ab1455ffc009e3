"""The figures of BubbleRank (Li et al., UAI 2019, Sec. 5 and App. B).

The paper has 100 Yandex queries, 10 runs each, 5 million steps, K = L = 10, measured at the top 5. The public data
has 60 other queries, so numbers agree within query-sampling error. CascadeKL-UCB uses the first click as feedback.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.core.bounds import bubblerank_bound
from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import ClickModel, Policy
from jaxrank.engine.simulation import simulate
from jaxrank.environments.click_bandit import ClickBandit
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
from jaxrank.output.report import Report, ordering
from jaxrank.output.results import describe_error, mean_and_error, per_step
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import BatchRank, BubbleRank, CascadeKLUCB, StaticRanking, TopRank
from jaxrank.studies.papers.figure import FigureRequest, Size, queries, run_models

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

MODELS = ("cm", "dcm", "pbm")
HORIZON = 5_000_000
METRICS = ("regret", "violations", "ndcg@5")  # in every figure, so that figures share their compiled loops
PUBLISHED_VIOLATIONS = {  # Sec. 5.3, in the first 100 steps
    "CascadeKLUCB": ("24.12 ± 0.76", "23.33 ± 0.90", "23.63 ± 0.96"),
    "BatchRank": ("83.01 ± 0.56", "71.89 ± 0.92", "59.63 ± 0.98"),
    "TopRank": ("83.56 ± 0.70", "71.47 ± 1.07", "57.00 ± 1.24"),
    "BubbleRank": ("0", "0", "0"),
}


def _environment(model: ClickModel) -> ClickBandit:
    return ClickBandit(model, list_size=10, top=5)


def fig1(request: FigureRequest) -> Report:
    """Figure 1: cumulative regret of five policies in CM, DCM and PBM."""
    size = {"smoke": Size(3, 1, 1_000), "laptop": Size(60, 2, 1_000_000), "paper": Size(100, 10, HORIZON)}[
        request.scale
    ]
    policies: dict[str, Policy] = {
        "BubbleRank": BubbleRank(),
        "CascadeKLUCB": CascadeKLUCB(),
        "BatchRank": BatchRank(),
        "BatchRank (released)": BatchRank(variant="released"),
        "TopRank": TopRank(),
        "StaticRanking": StaticRanking(),
    }
    options: dict[str, Any] = {"metrics": METRICS, "num_records": 100, "spacing": "log"}
    result = run_models(request, "bubblerank-fig1", MODELS, policies, size, _environment, **options)
    figure, axes = panels(3)
    entries: Entries = {}
    for ax, model in zip(axes, MODELS, strict=True):
        entries |= draw_curves(ax, result.sel(click_model=model), "regret", log=True, title=model.upper())
        if request.bound:
            steps = result["step"].values
            entries |= draw_bound(ax, steps, _mean_bound(request, model, size, steps), "Theorem 1 (BubbleRank)")
    legend_below(figure, entries)
    marks = [int(result["step"][i]) for i in np.searchsorted(result["step"], np.array([0.001, 0.01, 0.1, 1]) * size[2])]
    rows = []
    for policy in policies:
        for model in MODELS:
            curve = result["regret"].sel(policy=policy, click_model=model)
            rows.append([policy, model.upper(), *(plus_minus(*mean_and_error(curve.sel(step=t)), 1) for t in marks)])
    table = markdown(["policy", "model", *(f"regret at {t:,}" for t in marks)], rows)
    return Report(result, figure, f"{table}\n\n{_orderings(result, early=marks[0])}")


def _orderings(result: "xarray.Dataset", early: int) -> str:
    """Whether the orderings of Sec. 5.2 hold: BubbleRank is lower early and, since safety costs, higher at the end."""
    regret = result["regret"].mean(("query", "seed"))
    lines = ["Published orderings of the regret, ✓ as here, ✗ not as here:", ""]
    for model in MODELS:
        for step, side in ((early, "below"), (int(result["step"][-1]), "above")):
            here = _by_policy(regret.sel(click_model=model, step=step))
            lines.append(
                ordering(f"{model.upper()}, step {step:,}", "BubbleRank", side, ("BatchRank", "TopRank"), here, 1)
            )
        if model != "pbm":  # CascadeKL-UCB is for cascades
            others = [policy for policy in here if policy != "CascadeKLUCB"]
            lines.append(ordering(f"{model.upper()}, step {step:,}", "CascadeKLUCB", "below", others, here, 1))
    return "\n".join(lines)


def _by_policy(values: "xarray.DataArray") -> dict[str, float]:
    return {str(policy): float(values.sel(policy=policy)) for policy in values["policy"].values}


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
    size = {"smoke": Size(3, 1, 200), "laptop": Size(60, 10, 10_000), "paper": Size(100, 10, HORIZON)}[request.scale]
    policies: dict[str, Policy] = {
        "CascadeKLUCB": CascadeKLUCB(),
        "CascadeKLUCB (last click)": CascadeKLUCB(feedback="last"),
        "BatchRank": BatchRank(horizon=HORIZON),
        "BatchRank (released)": BatchRank(horizon=HORIZON, variant="released"),
        "TopRank": TopRank(horizon=HORIZON),
        "BubbleRank": BubbleRank(horizon=HORIZON),
    }
    steps = np.unique(np.append(np.geomspace(1, size.num_steps, 60).round().astype(int), 100))
    options: dict[str, Any] = {"metrics": METRICS, "record_at": steps.tolist()}
    result = run_models(request, "bubblerank-fig2", MODELS, policies, size, _environment, **options)
    figure = _by_model(result, "violations", log=True)
    rows = []
    for policy in policies:
        first = [result["violations"].sel(policy=policy, click_model=model, step=100) for model in MODELS]
        published = PUBLISHED_VIOLATIONS.get(policy, ("", "", ""))
        rows.append(
            [
                policy,
                *(
                    plus_minus(*mean_and_error(v)) + (f" ({p})" if p else "")
                    for v, p in zip(first, published, strict=True)
                ),
            ]
        )
    header = ["violations in 100 steps (published)", *(model.upper() for model in MODELS)]
    lines = ["Published orderings of the violations, ✓ as here, ✗ not as here:", ""]
    for model in MODELS:
        for step in sorted({100, size.num_steps}):
            here = _by_policy(result["violations"].sel(click_model=model, step=step).mean(("query", "seed")))
            where, rivals = f"{model.upper()}, step {step:,}", ("CascadeKLUCB", "BatchRank", "TopRank")
            lines.append(ordering(where, "BubbleRank", "below", rivals, here, 2))
        here = _by_policy(result["violations"].sel(click_model=model, step=100).mean(("query", "seed")))
        where = f"{model.upper()}, step 100"
        lines.append(ordering(where, "CascadeKLUCB", "below", ("BatchRank", "TopRank"), here, 2))
    return Report(result, figure, markdown(header, rows) + "\n\n" + "\n".join(lines))


def _by_model(result: "xarray.Dataset", metric: str, **options: Any) -> "Figure":
    """A panel for each click model."""
    figure, axes = panels(len(MODELS))
    entries: Entries = {}
    for ax, model in zip(axes, MODELS, strict=True):
        entries |= draw_curves(ax, result.sel(click_model=model), metric, title=model.upper(), **options)
    legend_below(figure, entries)
    return figure


def fig3(request: FigureRequest) -> Report:
    """Figure 3: regret of BubbleRank against |V₀|, and against the smallest examination probability."""
    import xarray

    size = {"smoke": Size(4, 3, 2_000), "laptop": Size(60, 10, 500_000), "paper": Size(100, 10, HORIZON)}[request.scale]
    by_list, rows = {}, []
    for model in MODELS:
        users: Any = queries(request, model, size.num_queries)
        environment = _random_base_lists(users, size.num_seeds)
        run = simulate(BubbleRank(), environment, size.num_steps, num_records=1, progress=request.progress)
        regret = run["regret"].values[:, 0, 0]
        inversions = np.asarray(environment.base_inversions)
        by_list[model] = (("list",), regret)
        by_list[f"{model}_inversions"] = (("list",), inversions)
        counts = np.unique(inversions)
        means = np.array([regret[inversions == v].mean() for v in counts])
        weights = np.array([(inversions == v).sum() for v in counts])
        slope, intercept = np.polyfit(counts, means, 1, w=np.sqrt(weights))
        rows.append(
            [
                model.upper(),
                f"{slope:,.1f}·|V₀| + {intercept:,.1f}",
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
        num_seeds=size.num_seeds,
        num_records=100,
        progress=request.progress,
    )
    by_halving = run["regret"].rename(query="halvings").assign_coords(halvings=halvings)
    final = by_halving.isel(step=-1).mean("seed").values
    doubling = [
        [f"{i}", f"{0.5**i:.3f}", f"{r:,.0f}", "" if i == 1 else f"{r / final[i - 2]:.2f}"]
        for i, r in zip(halvings, final, strict=True)
    ]

    result = xarray.Dataset({name: xarray.Variable(*value) for name, value in by_list.items()})
    result["regret_by_halving"] = by_halving
    result.attrs = run.attrs | {"data": request.world, "scale": request.scale}
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
    halved = markdown(["i", "χ_min", f"regret at {steps:,}", "ratio"], doubling)
    return Report(result, figure, f"{fits}\n\n{halved}")


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
    """Figure 4 (App. B): NDCG@5 per step."""
    size = {"smoke": Size(3, 1, 1_000), "laptop": Size(60, 2, 1_000_000), "paper": Size(100, 10, HORIZON)}[
        request.scale
    ]
    policies: dict[str, Policy] = {
        "BubbleRank": BubbleRank(),
        "BatchRank": BatchRank(),
        "BatchRank (released)": BatchRank(variant="released"),
        "TopRank": TopRank(),
        "StaticRanking": StaticRanking(),
    }
    options: dict[str, Any] = {"metrics": METRICS, "num_records": 100}
    result = run_models(request, "bubblerank-fig4", MODELS, policies, size, _environment, **options)
    figure = _by_model(result, "ndcg@5", per_step=True)
    ndcg = per_step(result["ndcg@5"])
    rows = [
        [
            policy,
            when,
            *(plus_minus(*mean_and_error(ndcg.sel(policy=policy, click_model=m).isel(step=i)), 3) for m in MODELS),
        ]
        for policy in policies
        for when, i in (("first 1 % of steps", 0), ("last 1 % of steps", -1))
    ]
    return Report(result, figure, markdown(["policy", "NDCG@5 per step", *(m.upper() for m in MODELS)], rows))
