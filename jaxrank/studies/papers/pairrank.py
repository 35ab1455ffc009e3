"""The figures of PairRank (Jia et al., WWW 2021, Sec. 4).

The paper has Yahoo! LTRC and MSLR-WEB10K, 20 runs of 5,000 steps, three users.

As in the paper, the hyper-parameters of DBGD, MGD and PDGD are those of their papers, and those of the others are set
by the best performance on validation data, the same for all users of a dataset: λ and α of PairRank, the learning rates
of RankNet and of ε-greedy, ε, and λ of the offline ranker. A grid is widened while its edge is best. ``query_streams``
says how settings are scored, and how data are read. PairRank as released has the released hyper-parameters.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from jaxrank.core.types import Policy
from jaxrank.environments.query_stream import QueryStream
from jaxrank.learning.probes import BlockSizes, Cosine, OfflineNDCG
from jaxrank.learning.training import train
from jaxrank.output.intervals import (
    difference,
    has_own_queries,
    mean_and_interval,
    two_way_difference,
    two_way_error,
)
from jaxrank.output.plotting import (
    REFERENCE,
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
from jaxrank.output.report import HOW_TWO_WAYS, Report, alike, between, how, judged, signed, verdict
from jaxrank.output.results import describe_error, error_over_seeds, mean_and_error
from jaxrank.output.tables import TWO_WAY_ERRORS, markdown, plus_minus, with_both_errors
from jaxrank.policies import DBGD, MGD, PDGD, EpsilonGreedy, PairRank, SGDRankNet
from jaxrank.studies.papers.figure import FigureRequest, Size, refuse_unknown, refuse_without, run, shared
from jaxrank.studies.papers.query_streams import (
    FOLDS,
    OFFLINE,
    TRIES,
    USERS,
    Grids,
    by_user,
    folds,
    folds_of,
    offline,
    read_queries,
    stream,
    tuned,
    two_of_each,
    users,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

POLICIES: dict[str, Callable[[], Any]] = {
    "PairRank_C": partial(PairRank, exploration="conservative"),
    "PairRank_R": partial(PairRank, exploration="random"),
    "PairRank_C (released)": partial(PairRank.released, exploration="conservative"),
    "PairRank_R (released)": partial(PairRank.released, exploration="random"),
    "SGDRankNet": SGDRankNet,
    "PDGD": PDGD,
    "EpsilonGreedy": EpsilonGreedy,
    "MGD": MGD,
    "DBGD": DBGD,
}
TUNED: dict[str, dict[str, tuple[float, ...]]] = {  # by policy: what is tuned, one after the other, and its first grid
    "PairRank_C": {"regularization": (0.1, 1.0, 10.0, 100.0), "alpha": (0.01, 0.1, 1.0)},
    "SGDRankNet": {"learning_rate": (0.01, 0.03, 0.09)},
    "EpsilonGreedy": {"learning_rate": (0.01, 0.03, 0.09), "epsilon": (0.05, 0.1, 0.2)},
}
_SIZES = {"smoke": Size(8, 2, 60), "laptop": Size(0, 5, 2_000), "paper": Size(0, 20, 5_000)}  # 0: all queries
_BLOCK_QUERIES = 20  # the first ones of the training queries, of which figures 6 and 7 have the blocks
_RECORDS = {"smoke": 3, "laptop": 40, "paper": 50}


@cache
def _runs(request: FigureRequest, zoom: bool) -> "xarray.Dataset":
    """The runs that figures 3–5 share; with ``zoom``, those of figures 6 and 7.

    Folds share the seeds. Runs of one fold have their queries and hyper-parameters in common, so they are not apart as
    runs of other folds are: the mean over a fold's runs stands for one run.
    """
    import xarray

    by_fold = {name: _of_fold(one, zoom) for name, one in folds(request, _SIZES[request.scale].num_seeds).items()} or {
        "": _of_fold(request, zoom)
    }
    runs = list(by_fold.values())
    if len(runs) > 1:
        runs = [run.mean("seed", keep_attrs=True).expand_dims("seed") for run in runs]
    # Every fold has test queries of its own, and blocks at as many ranks as its longest query has documents.
    runs = [run.assign_coords(query=name + run["query"]) for name, run in zip(by_fold, runs, strict=True)]
    if zoom:
        runs = [run.assign_coords(blocks_0=np.arange(run.sizes["blocks_0"])) for run in runs]
    result = xarray.concat(runs, "seed", combine_attrs="drop_conflicts", join="outer")
    result = result.assign_coords(seed=np.arange(result.sizes["seed"]))
    if zoom:  # 0 is the size at a rank that none of a fold's queries has
        result["blocks"] = result["blocks"].where(result["blocks"] > 0)
    result.attrs |= {"data": request.world, "scale": request.scale, "stop_at": request.stop_at, "folds": len(runs)}
    result.attrs["wall_time_seconds"] = sum(run.attrs["wall_time_seconds"] for run in runs)
    chosen = [f"{name}: {run.attrs['chosen']}" if name else run.attrs["chosen"] for name, run in by_fold.items()]
    result.attrs["chosen"] = ". ".join(chosen)
    return result


def _of_fold(request: FigureRequest, zoom: bool) -> "xarray.Dataset":
    policies = {label: POLICIES[label]() for label in POLICIES if label.startswith("PairRank_C") or not zoom}
    if zoom:  # hyper-parameters with which blocks are small on all three datasets
        policies["PairRank_C (λ = 0.1, α = 0.01)"] = PairRank(regularization=0.1, alpha=0.01)
    refuse_unknown(request, policies)
    size = _SIZES[request.scale]
    queries = read_queries(request, size.num_queries)
    tries = TRIES[request.scale]
    epochs = 3 if request.scale == "smoke" else 100
    num_folds = 1 if request.scale == "smoke" else FOLDS
    ndcg = OfflineNDCG(queries.test, by_query=True)
    probes: dict[str, Any] = {"ndcg@10": ndcg}
    of_labels: dict[str, np.ndarray] = {}
    chosen_of_labels = []
    for label, loss in OFFLINE.items():
        strength, text = offline(queries, epochs, tries, num_folds, label=label, loss=loss)
        best = train(queries.train, loss, num_epochs=epochs, regularization=strength)
        probes[f"cosine to {label}"] = Cosine(best)
        of_labels[label] = np.asarray(ndcg.of_scores(queries.test.features @ best))
        chosen_of_labels.append(text)
    name = f"pairrank-fig3-{request.stop_at}"
    runs = {label for label in policies if request.num_seeds(label, size.num_seeds) > 0}
    grids: Grids = {label: grid for label, grid in TUNED.items() if runs & {label, label.replace("_C", "_R")}}
    grids = two_of_each(grids) if request.scale == "smoke" else grids
    policies, chosen = tuned(queries, request, name, policies, grids, size.num_steps, tries, num_folds)
    if not zoom:  # both PairRanks have the same hyper-parameters
        policies["PairRank_R"] = dataclasses.replace(cast(Any, policies["PairRank_C"]), exploration="random")
    blocks = BlockSizes(num_queries=_BLOCK_QUERIES, top=queries.train.max_documents)
    with_blocks = {"probes": probes | {"blocks": blocks}}  # figures 3 to 5 have the same runs, and leave the blocks out
    result = run(
        request,
        name,
        policies,
        stream(queries.train, request),
        size.num_steps,
        size.num_seeds,
        own={label: with_blocks for label in policies if label.startswith("PairRank_C")},
        num_records=_RECORDS[request.scale],
        metrics=("cndcg", "ndcg", "regret"),
        probes=probes,
    ).assign_coords(user=list(USERS))
    for label, by_query in of_labels.items():
        result[f"{label} of query"] = (("seed", "ndcg@10_0"), np.tile(by_query, (result.sizes["seed"], 1)))
    result = _by_query(result)
    result = result if zoom else result.drop_vars("blocks", errors="ignore")
    result.attrs["chosen"] = "; ".join([*chosen_of_labels, *chosen])
    return result


def _by_query(result: "xarray.Dataset") -> "xarray.Dataset":
    """Means over test queries in the place of the values of each, which stay for the end of the run."""
    values = result["ndcg@10"]
    result["ndcg@10"] = values.mean("ndcg@10_0")
    result["ndcg@10 of query"] = values.isel(step=-1)
    result = result.rename({"ndcg@10_0": "query"}).dropna("query", how="all", subset=["ndcg@10 of query"])
    return result.assign_coords(query=[f" query {number}" for number in range(result.sizes["query"])])


def _run(request: FigureRequest, zoom: bool = False) -> "xarray.Dataset":
    return _runs(shared(request), zoom)


def _by_user(
    result: "xarray.Dataset", metric: str, digits: int, level: dict[str, float] | None = None, table: str = ""
) -> Report:
    """Panels and a table of the last values, a line for each policy and a column for each user.

    Args:
      result: the runs.
      metric: which of their variables.
      digits: decimals of the table.
      level: {label: height} of a horizontal line.
      table: another table with its own errors, in the place of that with errors over seeds.
    """
    figure, axes = panels(len(USERS))
    entries: Entries = {}
    for ax, user in zip(axes, USERS, strict=True):
        entries |= draw_curves(ax, result.sel(user=user), metric, title=user)
        for (label, height), line in zip((level or {}).items(), ("--", ":"), strict=False):
            entries[label] = ax.axhline(height, label=label, **REFERENCE | {"linestyle": line})
    _legend(figure, entries, result)
    table = table or f"{by_user(result, metric, digits)}\n\n± is the standard error over {_repeated(result)}."
    return Report(result, figure, f"{table}\n\n{_chosen(result)}")


def _legend(figure: "Figure", entries: Entries, result: "xarray.Dataset") -> None:
    folds = result.attrs["folds"] > 1  # a run is that of a fold
    legend_below(figure, {label.replace("seeds", "folds") if folds else label: e for label, e in entries.items()})


def _repeated(result: "xarray.Dataset") -> str:
    """What errors are over, where the data have no instances."""
    return "folds, of means over their seeds" if result.attrs["folds"] > 1 else "seeds"


def _chosen(result: "xarray.Dataset") -> str:
    """What was tuned, and to which value; and what else the reader of a table asks."""
    told = f"Chosen on validation queries, online rankers in runs of {int(result['step'][-1]):,} steps"
    folds = " A run is the mean over the seeds of a fold." if result.attrs["folds"] > 1 else ""
    users = f"Users may stop at every {result.attrs['stop_at']}, also beside policies as released."
    return f"{told}: {result.attrs['chosen']}.{folds}\n\n{users} DBGD and MGD interleave by team draft, as printed."


_ONLINE = ("SGDRankNet", "PDGD", "EpsilonGreedy")  # the baselines that are not of DBGD's kind
_DUELS = ("MGD", "DBGD")


def _verdicts(
    result: "xarray.Dataset", metric: str, digits: int, own: tuple[tuple[str, str, str], ...], two_ways: bool = False
) -> list[str]:
    """The orderings of Sec. 4.2, for each user: PairRank above all others, and the figure's ``own`` claims.

    With ``two_ways``, ``metric`` is of every test query.
    """
    known = [str(policy) for policy in result["policy"].values]
    claims = list(own)
    for kind in ("", " (released)"):
        for explores in "CR":
            claims += [(f"PairRank_{explores}{kind}", "above", other) for other in (*_ONLINE, *_DUELS)]
    lines = []
    for user in USERS:
        last = result[metric].sel(user=user)
        last = last.isel(step=-1) if "step" in last.dims else last
        interval = two_way_difference if two_ways else difference
        lines += [
            verdict(user, name, side, other, last, digits, interval)
            for name, side, other in claims
            if {name, other} <= set(known)
        ]
    return lines


def _early(values: "xarray.DataArray") -> tuple["xarray.DataArray", str]:
    """The values after a tenth of the run, and which step that is."""
    found = values.isel(step=max(values.sizes["step"] // 10, 1) - 1)
    return found, f"step {int(found['step']):,}"


_EXPLORATION = tuple((f"PairRank_C{kind}", "above", f"PairRank_R{kind}") for kind in ("", " (released)"))


def fig3(request: FigureRequest) -> Report:
    """Figure 3: offline NDCG@10 of seven policies and three users, and of rankers that are trained on the labels."""
    result = _run(request)
    of_labels = {label: result[f"{label} of query"] for label in OFFLINE}
    lines_at = {label: float(values.mean("query").mean("seed")) for label, values in of_labels.items()}  # as the curves
    levels = {label: float(values.mean("seed").mean("query")) for label, values in of_labels.items()}  # as the table
    report = _by_user(result, "ndcg@10", 4, lines_at, _by_user_two_ways(result))
    told = "; ".join(f"{label} {level:.4f}" for label, level in levels.items())
    last = result["ndcg@10 of query"]
    highest = float(last.mean("seed").mean("query").max())
    more = f"Trained on the labels: {told}. The highest online is {highest:.4f}."
    own = (  # Sec. 4.2.1
        *_EXPLORATION,
        *((policy, "above", duel) for policy in ("PDGD", "SGDRankNet") for duel in _DUELS),
        ("EpsilonGreedy", "below", "SGDRankNet"),
        ("EpsilonGreedy", "below", "MGD"),
    )
    told = how(_repeated(result)) if has_own_queries(last) else HOW_TWO_WAYS
    lines = [f"{told} NDCG@10 at the end, of {last.sizes['query']} test queries with a relevant document:", ""]
    lines += _verdicts(result, "ndcg@10 of query", 4, own, two_ways=True)
    if {"SGDRankNet", "PDGD"} <= set(last["policy"].values):
        for user in USERS:
            ranknet, pdgd = (last.sel(user=user, policy=policy) for policy in ("SGDRankNet", "PDGD"))
            apart = two_way_difference(ranknet, pdgd)
            lines.append(alike(f"{user}: SGDRankNet is comparable to PDGD", apart, float(pdgd.mean()), 4))
    reference, level = of_labels["offline RankNet"], levels["offline RankNet"]
    for policy in (policy for policy in last["policy"].values if policy.startswith("PairRank")):
        apart = two_way_difference(last.sel(user="perfect", policy=policy), reference)
        lines.append(alike(f"perfect: {policy} converges to the offline RankNet", apart, level, 4))
    return report._replace(table="\n\n".join([report.table, more, "\n".join(lines)]))


def _by_user_two_ways(result: "xarray.Dataset") -> str:
    """A table of NDCG@10 at the end with both errors, a line for each policy and a column for each user."""
    last = result["ndcg@10 of query"]
    alone = has_own_queries(last)  # then the errors over runs are all that there is

    def cell(values: "xarray.DataArray") -> str:
        found = two_way_error(values)
        return plus_minus(*found, 4) if alone else with_both_errors(*found, error_over_seeds(values), 4)

    rows = [
        [str(policy), *(cell(last.sel(policy=policy, user=user)) for user in USERS)] for policy in last["policy"].values
    ]
    header = [f"ndcg@10 at {int(result['step'][-1]):,}", *USERS]
    if alone:
        return (
            f"{markdown(header, rows)}\n\n± is the standard error over {_repeated(result)}, each on its test queries."
        )
    return f"{markdown(header, rows)}\n\n{TWO_WAY_ERRORS}"


def fig4(request: FigureRequest) -> Report:
    """Figure 4: online performance, discounted cumulative NDCG@10."""
    result = _run(request)
    report = _by_user(result, "cndcg", 1)
    # Kendall's tau regret; Theorem 1 bounds that of whole lists, not of the ten documents that are shown
    misordered = by_user(result, "regret", 0).replace("regret at", "mis-ordered pairs with a shown one, steps 1 to", 1)
    own = (*_EXPLORATION, ("SGDRankNet", "above", "EpsilonGreedy"), ("SGDRankNet", "above", "PDGD"))  # Sec. 4.2.2
    zero = "The NDCG@10 of a query without a relevant document counts as 0."
    lines = [f"{how(_repeated(result))} cndcg at the end:", "", *_verdicts(result, "cndcg", 1, own)]
    lines += _especially(result["cndcg"].isel(step=-1))
    return report._replace(table="\n\n".join([report.table, zero, misordered, "\n".join(lines)]))


def _especially(last: "xarray.DataArray") -> list[str]:
    """Sec. 4.2.2: SGD RankNet is better than PDGD, "especially" for navigational and informational users."""
    if not {"SGDRankNet", "PDGD"} <= set(last["policy"].values):
        return []
    ahead = last.sel(policy="SGDRankNet", drop=True) - last.sel(policy="PDGD", drop=True)
    return [
        signed(
            f"SGDRankNet is further above PDGD for {user} users than for perfect ones",
            "above",
            _gap(ahead, "user", user, "perfect"),
            1,
        )
        for user in ("navigational", "informational")
    ]


def _faster(early: "xarray.DataArray", at: str) -> list[str]:
    """Sec. 4.2.3: PairRank converges faster than all others, so it is closer early."""
    policies = [str(policy) for policy in early["policy"].values]
    pairrank = [policy for policy in policies if policy.startswith("PairRank")]
    others = [policy for policy in (*_ONLINE, *_DUELS) if policy in policies]
    return [
        verdict(f"{user}, {at}", policy, "above", other, early.sel(user=user), 3)
        for user, policy, other in product(USERS, pairrank, others)
    ]


def fig5(request: FigureRequest) -> Report:
    """Figure 5: cosine between the online rankers and the offline one, RankNet as in the paper, and LambdaLoss."""
    result = _run(request)
    first, second = (f"cosine to {label}" for label in OFFLINE)  # the paper's, and that of the better ranker
    report = _by_user(result, first, 3)
    own = tuple((policy, "above", duel) for policy in _ONLINE for duel in _DUELS)  # Sec. 4.2.3
    lines = [
        f"{how(_repeated(result))} {first}, at the end if no step is named:",
        "",
        *_verdicts(result, first, 3, own),
    ]
    cosines = result[first]
    early, at = _early(cosines)
    lines += _faster(early, at)
    policies = [str(policy) for policy in cosines["policy"].values]
    for user in USERS:
        if {"SGDRankNet", "PDGD"} <= set(policies):
            lines.append(verdict(f"{user}, {at}", "SGDRankNet", "above", "PDGD", early.sel(user=user), 3))
        for policy in (policy for policy in policies if policy not in _DUELS):
            now, then = (
                curve.sel(user=user, policy=policy).drop_vars("step") for curve in (cosines.isel(step=-1), early)
            )
            claim = f"{user}: {policy} comes closer between {at} and the end"
            lines.append(signed(claim, "above", difference(now, then), 3))
    return report._replace(table="\n\n".join([report.table, by_user(result, second, 3), "\n".join(lines)]))


def fig6(request: FigureRequest) -> Report:
    """Figure 6: the size of PairRank's block at ranks 1, 5 and 10."""
    result = _run(request, zoom=True)
    policies = [str(policy) for policy in result["policy"].values]
    figure, axes = panels(len(USERS))
    looks = styles(f"{policy}, rank {rank}" for policy in policies for rank in (1, 5, 10))
    entries: Entries = {}
    rows = []
    for ax, user in zip(axes, USERS, strict=True):
        for policy, rank in ((policy, rank) for policy in policies for rank in (1, 5, 10)):
            sizes = result["blocks"].sel(policy=policy)
            mean, error = mean_and_error(sizes.sel(user=user).isel(blocks_0=min(rank, sizes.sizes["blocks_0"] - 1)))
            label = f"{policy}, rank {rank}"
            entries[label] = draw_line(ax, mean["step"], mean, error, label=label, **looks[label])
            marks = np.unique(np.linspace(0, mean.sizes["step"] - 1, 4).round().astype(int))
            rows.append([policy, user, str(rank), *(plus_minus(mean[m], error[m], 1) for m in marks)])
        ax.set(xlabel="Step", ylabel="Size of the block", title=user)
        plain_ticks(ax.xaxis)
        log_scale(ax, np.concatenate([line.get_ydata() for line in ax.lines]))
    _legend(figure, entries | band_entry(describe_error(sizes.isel(user=0))), result)
    header = ["policy", "user", "rank", *(f"size at {int(mean['step'][m]):,}" for m in marks)]
    lines = [*_block_verdicts(result["blocks"].isel(step=-1)), *_slow_blocks(result["blocks"])]
    return Report(result, figure, "\n\n".join([markdown(header, rows), _chosen(result), "\n".join(lines)]))


BLOCKS = {1: 1.1, 5: 1.4, 10: 2.2}  # by rank: the size of the block in Figure 6, after 5,000 steps on MSLR-WEB10K


def _block_verdicts(sizes: "xarray.DataArray") -> list[str]:
    """Is the block at a rank as small as in Figure 6, and at the top 1? In the mean over users."""
    lines = [
        "Verdicts on Figure 6: sizes at the end, means over users, 95 % intervals over runs by Student's t. The paper "
        "draws its sizes, for MSLR-WEB10K, and gives no numbers. A size is reproduced if its interval reaches the "
        "published one or is below it.",
        "",
    ]
    for policy in map(str, sizes["policy"].values):
        of_policy = sizes.sel(policy=policy).mean("user")
        for rank, published in BLOCKS.items():
            by_run = of_policy.isel(blocks_0=min(rank, sizes.sizes["blocks_0"] - 1))
            mean, half = map(float, mean_and_interval(by_run))
            claim = f"{policy}: the block at rank {rank} is as small as in the paper, {published}"
            found = f"{mean:.1f} [{mean - half:.1f}, {mean + half:.1f}]"
            if np.isnan(half):
                lines.append(judged("cannot be tested here", claim, "one run has no interval"))
            elif mean - half > published:
                lines.append(judged("not reproduced", claim, found))
            elif half > published:
                lines.append(judged("cannot be tested here", claim, f"{found}, too wide to tell"))
            else:
                lines.append(judged("reproduced", claim, found))
        mean, half = map(float, mean_and_interval(of_policy.isel(blocks_0=1)))
        word = between(mean - half, mean + half, -np.inf, 1.5)
        found = f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]; surely below 1.5 counts"
        lines.append(judged(word, f"{policy}: the block at rank 1 converges to one document", found))
    return lines


def _slow_blocks(blocks: "xarray.DataArray") -> list[str]:
    """What Sec. 4.2.4 says of the pace: blocks shrink slower for navigational users, and slower at rank 10."""
    early, at = _early(blocks)
    early = early.isel(blocks_0=[min(rank, early.sizes["blocks_0"] - 1) for rank in BLOCKS])
    early = early.assign_coords(blocks_0=list(BLOCKS))  # by rank
    lines = []
    for policy in early["policy"].values:
        sizes = early.sel(policy=policy)
        by_user, by_rank = sizes.mean("blocks_0"), sizes.mean("user")
        for user in ("perfect", "informational"):
            claim = f"{at}: blocks of {policy} are larger for navigational users than for {user} ones"
            lines.append(signed(claim, "above", _gap(by_user, "user", "navigational", user), 1))
        for rank in (1, 5):
            claim = f"{at}: the block of {policy} at rank 10 is larger than that at rank {rank}"
            lines.append(signed(claim, "above", _gap(by_rank, "blocks_0", 10, rank), 1))
    return lines


def _gap(values: "xarray.DataArray", dim: str, one: Any, other: Any) -> tuple[float, float, float]:
    """The difference of two places along a dimension, paired by run, with its interval."""
    return difference(values.sel({dim: one}, drop=True), values.sel({dim: other}, drop=True))


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
    policy = str(values["policy"].values)
    axes[0].set(xlabel="Rank", ylabel="Size of the block", title=f"{policy}, informational")
    looks = styles(USERS)
    rows = []
    for user in USERS:
        number = values.sel(user=user).isel(blocks_0=0)
        axes[1].plot(number["step"], number, label=user, **looks[user])
        rows.append([user, *(f"{float(number[m]):.1f}" for m in marks)])
    axes[1].set(xlabel="Step", ylabel="Number of blocks", title=policy)
    plain_ticks(axes[1].xaxis)
    for ax in axes:  # two legends, for the panels show different things
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), ncols=2, frameon=False, fontsize="small")
    header = [f"number of blocks, {policy}", *(f"at {int(values['step'][m]):,}" for m in marks)]
    text = f"Means over runs and the first {_BLOCK_QUERIES} training queries; a rank counts in queries that have it."
    lines = [how(_repeated(result)), "", *_middle_blocks(result["blocks"].isel(policy=0))]
    return Report(result, figure, "\n\n".join([markdown(header, rows), text, "\n".join(lines)]))


def _middle_blocks(blocks: "xarray.DataArray") -> list[str]:
    """What Sec. 4.2.4 says of Figure 7: larger blocks at middle ranks, and fewer blocks for navigational users."""
    early, at = _early(blocks)
    sizes = early.sel(user="informational").isel(blocks_0=slice(1, None)).dropna("blocks_0", how="all")
    thirds = [part.mean("blocks_0") for part in _thirds(sizes)]
    lines = []
    for place, third in (("top", thirds[0]), ("bottom", thirds[2])):
        claim = f"informational, {at}: blocks at the middle third of ranks are larger than at the {place} third"
        lines.append(signed(claim, "above", difference(thirds[1], third), 1))
    for user in ("perfect", "informational"):
        claim = f"{at}: there are fewer blocks for navigational users than for {user} ones"
        lines.append(signed(claim, "below", _gap(early.isel(blocks_0=0), "user", "navigational", user), 1))
    return lines


def _thirds(sizes: "xarray.DataArray") -> list["xarray.DataArray"]:
    ends = np.linspace(0, sizes.sizes["blocks_0"], 4).round().astype(int)
    return [sizes.isel(blocks_0=slice(*pair)) for pair in itertools.pairwise(ends)]


VARIANTS = {  # pair rule × scaling of the loss, each with a λ of its size, also of M; α is the released example's
    f"{pairs}, {loss}": partial(PairRank, pairs=pairs, loss=loss, regularization=10.0 if loss == "sum" else 0.1)
    for pairs in ("neighbours", "matched")
    for loss in ("sum", "mean")
}


def variants(request: FigureRequest) -> Report:
    """Not a figure of the paper: PairRank's pair rule, loss and users' stop rule, each printed and released."""
    import xarray

    refuse_without(request, *VARIANTS)
    size = _SIZES[request.scale]
    queries = read_queries(request, size.num_queries)
    policies: dict[str, Policy] = {name: make() for name, make in VARIANTS.items()}
    policies["released, α = 0.01"] = PairRank.released()
    policies["PDGD"] = PDGD()
    stops = ("click", "view")
    runs = []
    for stop in stops:
        environment = QueryStream(queries.train, users(queries.train, "informational", stop_at=stop))
        options: dict[str, Any] = {"num_records": _RECORDS[request.scale], "metrics": ("cndcg", "regret")}
        options["probes"] = {"ndcg@10": OfflineNDCG(queries.test)}
        name = f"pairrank-variants/{stop}"
        runs.append(run(request, name, policies, environment, size.num_steps, size.num_seeds, **options))
    result = xarray.concat(runs, xarray.Variable("stop", list(stops)), combine_attrs="drop_conflicts")
    result.attrs |= {"data": request.world, "scale": request.scale}
    result.attrs["wall_time_seconds"] = sum(one.attrs["wall_time_seconds"] for one in runs)
    figure, axes = panels(len(stops))
    entries: Entries = {}
    tables = []
    for ax, stop in zip(axes, stops, strict=True):
        entries |= draw_curves(ax, result.sel(stop=stop), "ndcg@10", title=f"informational, stops at a {stop}")
    legend_below(figure, entries)
    for metric, digits in (("ndcg@10", 4), ("cndcg", 1)):
        last = result[metric].isel(step=-1)
        rows = [
            [name, *(plus_minus(*mean_and_error(last.sel(policy=name, stop=stop)), digits) for stop in stops)]
            for name in map(str, last["policy"].values)
        ]
        header = [f"{metric} at {int(result['step'][-1]):,}", *(f"stops at a {stop}" for stop in stops)]
        tables += [markdown(header, rows), _effects(last, digits)]
    return Report(result, figure, "\n\n".join([*tables, "± is the standard error over seeds."]))


def _effects(last: "xarray.DataArray", digits: int) -> str:
    """Each factor's effect, released minus printed, on the mean over the other two factors, with its interval."""
    cells = {
        (pairs, loss, stop): last.sel(policy=f"{pairs}, {loss}", stop=stop)
        for pairs in ("neighbours", "matched")
        for loss in ("sum", "mean")
        for stop in ("click", "view")
    }
    lines = []
    for place, (what, released) in enumerate(
        (
            ("matched pairs", "matched"),
            ("mean loss, and λ = 0.1 for 10, in M too", "mean"),
            ("stops at a view", "view"),
        )
    ):
        with_it = sum(value for key, value in cells.items() if key[place] == released) / 4
        without = sum(value for key, value in cells.items() if key[place] != released) / 4
        mean, low, high = difference(cast("xarray.DataArray", with_it), cast("xarray.DataArray", without))
        lines.append(f"- {what}: {mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]")
    return "The effect of each released choice, over the other two (95 % intervals over seeds):\n\n" + "\n".join(lines)


_STRENGTHS: dict[str, tuple[float, ...]] = {  # λ by loss: a mean over pairs is smaller than their sum
    "sum": (1.0, 10.0, 100.0, 1_000.0, 10_000.0),
    "mean": (0.001, 0.01, 0.1, 1.0, 10.0),
}


def tuning(request: FigureRequest) -> Report:
    """Not a figure of the paper: PairRank's loss, λ and α scored on validation queries; its defaults come from here."""
    import xarray

    refuse_without(request, "PairRank")
    size = _SIZES[request.scale]
    train, held_out = folds_of(read_queries(request, size.num_queries))[0]
    options: dict[str, Any] = {"num_records": 8, "metrics": ("cndcg",), "probes": {"ndcg@10": OfflineNDCG(held_out)}}
    runs = []
    for loss, strengths in _STRENGTHS.items():
        some = strengths[:1] if request.scale == "smoke" else strengths
        grid = np.array([(strength, alpha) for strength in some for alpha in (0.01, 0.1, 1.0)])
        policy = PairRank(loss=loss, regularization=grid[:, 0], alpha=grid[:, 1])
        name, environment = f"pairrank-tuning/{loss}", stream(train, request)
        one = run(request, name, {"PairRank": policy}, environment, size.num_steps, 2, **options)
        one = one.isel(policy=0, drop=True).drop_vars(["regularization", "alpha"]).rename(setting="policy")
        labels = [f"{loss}, λ = {strength:g}, α = {alpha:g}" for strength, alpha in grid]
        runs.append(one.assign_coords(policy=labels))
    result = xarray.concat(runs, "policy", combine_attrs="drop_conflicts").assign_coords(user=list(USERS))
    result.attrs |= {"data": request.world, "scale": request.scale}
    result.attrs["wall_time_seconds"] = sum(one.attrs["wall_time_seconds"] for one in runs)
    last = result.isel(step=-1).mean("user")
    order = np.argsort(-last["ndcg@10"].mean("seed").values)
    figure, axes = panels(len(USERS))
    entries: Entries = {}
    for ax, user in zip(axes, USERS, strict=True):
        entries |= draw_curves(ax, result.isel(policy=order[:6]).sel(user=user), "ndcg@10", title=user)
    legend_below(figure, entries)
    rows = []
    for name in last["policy"].values[order]:
        scores = (("ndcg@10", 4), ("cndcg", 1))
        rows.append([str(name), *(plus_minus(*mean_and_error(last[m].sel(policy=name)), d) for m, d in scores)])
    header = [f"PairRank, {int(result['step'][-1]):,} steps", "ndcg@10 on validation queries", "cndcg online"]
    told = "Means over the three users; ± is the standard error over seeds."
    return Report(result, figure, f"{markdown(header, rows)}\n\n{told}")
