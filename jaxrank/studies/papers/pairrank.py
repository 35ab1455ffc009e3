"""The figures of PairRank (Jia et al., WWW 2021, Sec. 4).

The paper has Yahoo! LTRC and MSLR-WEB10K, 20 runs of 5,000 steps, three users. ``--data`` takes the folder of any
LETOR dataset; without it, a synthetic one. Users are those for 5 grades, which these datasets have.

As in the paper, the hyper-parameters of DBGD, MGD and PDGD are those of their papers, and those of the others are set
by the best NDCG@10 on validation queries, the same for all users of a dataset: λ of PairRank and the learning rate of
RankNet, in short runs. Without a validation split, every fifth training query is held out of these short runs.
"""

import dataclasses
import os
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.click_models.graded import graded_user
from jaxrank.core.types import Policy
from jaxrank.datasets.letor_files import LetorData, letor, synthetic_letor
from jaxrank.engine.simulation import compare, simulate
from jaxrank.environments.query_stream import QueryStream
from jaxrank.learning.probes import BlockSizes, Cosine, OfflineNDCG
from jaxrank.learning.training import offline_ranknet
from jaxrank.output.plotting import (
    Entries,
    band_entry,
    draw_curves,
    draw_line,
    legend_below,
    log_scale,
    panels,
    plain_ticks,
    styles,
)
from jaxrank.output.report import Report, ordering
from jaxrank.output.results import describe_error, mean_and_error
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import DBGD, MGD, PDGD, EpsilonGreedy, FixedRanker, PairRank, SGDRankNet
from jaxrank.studies.papers.figure import FigureRequest, Size

if TYPE_CHECKING:
    import xarray

USERS = ("perfect", "navigational", "informational")
POLICIES: dict[str, Callable[[], Any]] = {
    "PairRank_C": partial(PairRank, exploration="conservative"),
    "PairRank_R": partial(PairRank, exploration="random"),
    "SGDRankNet": SGDRankNet,
    "PDGD": PDGD,
    "EpsilonGreedy": EpsilonGreedy,
    "MGD": MGD,
    "DBGD": DBGD,
}
TUNED: dict[str, tuple[float, ...]] = {"regularization": (0.1, 1.0, 10.0, 100.0), "learning_rate": (0.03, 0.1, 0.3)}
_SIZES = {"smoke": Size(8, 2, 60), "laptop": Size(0, 5, 2_000), "paper": Size(0, 20, 5_000)}  # 0: all queries
_RECORDS = {"smoke": 3, "laptop": 40, "paper": 50}


def _data(request: FigureRequest) -> LetorData:
    if request.data is not None:
        return letor(request.data)
    return synthetic_letor(_SIZES[request.scale].num_queries or 100)


@cache
def _runs(scale: str, data: str | None, progress: bool, zoom: bool) -> "xarray.Dataset":
    """The runs that figures 3–5 share; with ``zoom``, those of figures 6 and 7."""
    request = FigureRequest(scale, data, progress=progress)
    size, queries = _SIZES[scale], _data(request)
    environment = QueryStream(queries.train, graded_user(*USERS))
    offline = offline_ranknet(queries.train, num_epochs=3 if scale == "smoke" else 100)
    ideal = OfflineNDCG(queries.test)
    probes: dict[str, Any] = {"ndcg@10": ideal, "cosine": Cosine(offline)}
    policies = _tuned(queries, scale, ["PairRank_C"] if zoom else list(POLICIES))
    if zoom:
        probes = {"blocks": BlockSizes(num_queries=8, top=queries.train.max_documents)}
    result = compare(
        policies,
        environment,
        size.num_steps,
        num_seeds=size.num_seeds,
        num_records=_RECORDS[scale],
        metrics=("cndcg", "ndcg", "regret"),
        probes=probes,
        progress=progress,
    ).assign_coords(user=list(USERS))
    result.attrs |= {"data": request.world, "scale": scale, "offline_ndcg": float(_ndcg_of(ideal, offline))}
    result.attrs["chosen"] = ", ".join(
        f"{name}: {_choice(policy)}" for name, policy in policies.items() if _choice(policy)
    )
    return result


def _tuned(queries: LetorData, scale: str, names: list[str]) -> dict[str, Policy]:
    """The policies with the hyper-parameters that are best on validation queries. Both PairRanks have the same λ."""
    train, held_out = queries.train, queries.validation
    if held_out is None:
        numbers = np.arange(train.num_queries)
        train, held_out = train.take(numbers[numbers % 5 != 0]), train.take(numbers[::5])
    environment = QueryStream(train, graded_user(*USERS))
    num_steps = _SIZES[scale].num_steps // 4
    probe = OfflineNDCG(held_out)
    chosen: dict[str, Policy] = {}
    for name in names:
        policy = POLICIES[name]()
        if name == "PairRank_R":
            policy = dataclasses.replace(policy, regularization=chosen["PairRank_C"].regularization)  # type: ignore
        elif name in ("PairRank_C", "SGDRankNet", "EpsilonGreedy"):
            field = "regularization" if name == "PairRank_C" else "learning_rate"
            sweep = dataclasses.replace(policy, **{field: np.array(TUNED[field])})
            options: Any = {"num_seeds": 2, "metrics": ("ndcg",), "num_records": 4, "progress": False}
            run = simulate(sweep, environment, num_steps, probes={"validation": probe}, **options)
            score = run["validation"].mean(("user", "seed", "step")).values
            policy = dataclasses.replace(policy, **{field: TUNED[field][int(np.argmax(score))]})
        chosen[name] = policy
    return chosen


def _ndcg_of(probe: OfflineNDCG, params: Any) -> Any:
    return probe(FixedRanker(params), (), None)


def _choice(policy: Any) -> str:
    if isinstance(policy, PairRank):
        return f"λ = {float(policy.regularization):g} of {_grid('regularization')}"
    if isinstance(policy, SGDRankNet | EpsilonGreedy):
        return f"learning rate {float(policy.learning_rate):g} of {_grid('learning_rate')}"
    return ""


def _grid(field: str) -> str:
    return "/".join(f"{value:g}" for value in TUNED[field])


def _run(request: FigureRequest, zoom: bool = False) -> "xarray.Dataset":
    data = None if request.data is None else os.fspath(request.data)
    return _runs(request.scale, data, request.progress, zoom)


def _by_user(result: "xarray.Dataset", metric: str, digits: int, level: dict[str, float] | None = None) -> Report:
    """Panels and a table of the last values, a line for each policy and a column for each user.

    Args:
      result: the runs.
      metric: which of their variables.
      digits: decimals of the table.
      level: {label: height} of a horizontal line.
    """
    figure, axes = panels(len(USERS))
    entries: Entries = {}
    for ax, user in zip(axes, USERS, strict=True):
        entries |= draw_curves(ax, result.sel(user=user), metric, title=user)
        for label, height in (level or {}).items():
            entries[label] = ax.axhline(height, color="black", linestyle=":", label=label)
    legend_below(figure, entries)
    rows = []
    for policy in result["policy"].values:
        last = result[metric].sel(policy=policy).isel(step=-1)
        rows.append([str(policy), *(plus_minus(*mean_and_error(last.sel(user=user)), digits) for user in USERS)])
    table = markdown([f"{metric} at {int(result['step'][-1]):,}", *USERS], rows)
    return Report(result, figure, f"{table}\n\nChosen on validation queries: {result.attrs['chosen']}.")


def _orderings(result: "xarray.Dataset", metric: str, digits: int) -> str:
    """Whether the orderings of Sec. 4.2 hold: PairRank above all others, and PDGD above MGD and DBGD."""
    lines = [f"Published orderings of {metric}, ✓ as here, ✗ not as here:", ""]
    for user in USERS:
        last = result[metric].isel(step=-1).sel(user=user).mean("seed")
        here = {str(policy): float(last.sel(policy=policy)) for policy in last["policy"].values}
        baselines = [policy for policy in POLICIES if not policy.startswith("PairRank")]
        for policy, others in (
            ("PairRank_C", ["PairRank_R", *baselines]),
            ("PairRank_R", baselines),
            ("PDGD", ["MGD", "DBGD"]),
        ):
            lines.append(ordering(user, policy, "above", others, here, digits))
    return "\n".join(lines)


def fig3(request: FigureRequest) -> Report:
    """Figure 3: offline NDCG@10 of seven policies and three users."""
    result = _run(request)
    offline = result.attrs["offline_ndcg"]
    report = _by_user(result, "ndcg@10", 4, {"offline RankNet": offline})
    more = f"Offline RankNet (the labels): {offline:.4f}.\n\n{_orderings(result, 'ndcg@10', 4)}"
    return report._replace(table=f"{report.table}\n\n{more}")


def fig4(request: FigureRequest) -> Report:
    """Figure 4: online performance, discounted cumulative NDCG@10."""
    result = _run(request)
    report = _by_user(result, "cndcg", 1)
    return report._replace(table=f"{report.table}\n\n{_orderings(result, 'cndcg', 1)}")


def fig5(request: FigureRequest) -> Report:
    """Figure 5: cosine between the online rankers and the offline one."""
    return _by_user(_run(request), "cosine", 3)


def fig6(request: FigureRequest) -> Report:
    """Figure 6: the size of PairRank's block at ranks 1, 5 and 10."""
    result = _run(request, zoom=True)
    sizes = result["blocks"].isel(policy=0)
    figure, axes = panels(len(USERS))
    looks = styles(f"rank {rank}" for rank in (1, 5, 10))
    entries: Entries = {}
    rows = []
    for ax, user in zip(axes, USERS, strict=True):
        for rank in (1, 5, 10):
            mean, error = mean_and_error(sizes.sel(user=user).isel(blocks_0=min(rank, sizes.sizes["blocks_0"] - 1)))
            label = f"rank {rank}"
            entries[label] = draw_line(ax, mean["step"], mean, error, label=label, **looks[label])
            marks = np.unique(np.linspace(0, mean.sizes["step"] - 1, 4).round().astype(int))
            rows.append([user, str(rank), *(plus_minus(mean[m], error[m], 1) for m in marks)])
        ax.set(xlabel="Step", ylabel="Size of the block", title=user)
        plain_ticks(ax.xaxis)
        log_scale(ax, np.concatenate([line.get_ydata() for line in ax.lines]))
    legend_below(figure, entries | band_entry(describe_error(sizes.isel(user=0))))
    header = ["user", "rank", *(f"size at {int(mean['step'][m]):,}" for m in marks)]
    return Report(result, figure, markdown(header, rows))


def fig7(request: FigureRequest) -> Report:
    """Figure 7: the size of blocks at every rank under the informational user, and the number of blocks."""
    result = _run(request, zoom=True)
    values = result["blocks"].isel(policy=0).mean("seed")
    figure, axes = panels(2)
    marks = np.unique(np.linspace(0, values.sizes["step"] - 1, 4).round().astype(int))
    looks = styles(f"step {int(values['step'][m]):,}" for m in marks)
    for m, (label, look) in zip(marks, looks.items(), strict=True):
        sizes = values.sel(user="informational").isel(step=m).values[1:]
        axes[0].plot(np.arange(1, len(sizes) + 1), sizes, label=label, **look)
    axes[0].set(xlabel="Rank", ylabel="Size of the block", title="informational")
    looks = styles(USERS)
    rows = []
    for user in USERS:
        number = values.sel(user=user).isel(blocks_0=0)
        axes[1].plot(number["step"], number, label=user, **looks[user])
        rows.append([user, *(f"{float(number[m]):.1f}" for m in marks)])
    axes[1].set(xlabel="Step", ylabel="Number of blocks")
    plain_ticks(axes[1].xaxis)
    for ax in axes:  # two legends, for the panels show different things
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), ncols=2, frameon=False, fontsize="small")
    header = ["number of blocks", *(f"at {int(values['step'][m]):,}" for m in marks)]
    return Report(result, figure, markdown(header, rows))
