"""Linear and neural rankers in a query stream: what a network gains, with the same algorithm on both sides.

Not a figure of a paper. Each of PDGD, P2NeurRank and OLRankNet runs with a linear ranker and with a network of 32
hidden units; PairRank, linear, and OLLambdaRank, neural, have no counterpart. Beside them stand rankers of both kinds
that RankNet trained on the labels, which say whether there is anything for a network to gain on these data. NDCG@10 is
that on test queries; that on the stream's own queries, beside it, tells what was not learnt from what was learnt and
does not carry over to other queries.

η of every online ranker, or PairRank's λ, and λ of the offline ones are set on validation queries, the same for all
users, as ``query_streams`` scores them, but in runs of a quarter of the steps and, without a validation split, on one
fifth of the training queries. Everything else is as the policies' defaults are.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrank.core.types import Policy
from jaxrank.datasets.letor_files import LetorData
from jaxrank.learning.probes import OfflineNDCG
from jaxrank.learning.rankers import linear, mlp
from jaxrank.learning.training import offline_ranknet
from jaxrank.output.intervals import difference
from jaxrank.output.plotting import Entries, draw_curves, legend_below, panels
from jaxrank.output.report import Report
from jaxrank.output.tables import markdown
from jaxrank.policies import PDGD, NeuralPDGD, OLLambdaRank, OLRankNet, P2NeurRank, PairRank
from jaxrank.studies.papers.figure import FigureRequest, Size, refuse_unknown, run
from jaxrank.studies.papers.query_streams import (
    USERS,
    Grids,
    by_user,
    ndcg_of,
    offline,
    read_queries,
    stream,
    tuned,
    two_of_each,
)

if TYPE_CHECKING:
    import xarray

RANKERS = {"linear": linear, "MLP": mlp(32)}
METRICS = {"ndcg@10": 4, "training ndcg@10": 4, "cndcg": 1}  # decimals
PAIRED = ("PDGD", "P2NeurRank", "OLRankNet")  # run with both rankers
_RATES = (0.01, 0.03, 0.1, 0.3)  # η
_STRENGTHS = (1.0, 10.0, 100.0)  # λ of PairRank
_SIZES = {"smoke": Size(8, 2, 40), "laptop": Size(0, 10, 1_000), "paper": Size(0, 20, 5_000)}  # 0: all queries
_RECORDS = {"smoke": 2, "laptop": 20, "paper": 50}
_SEEDS = 10  # of the rankers that are trained on labels

Labelled = dict[str, dict[str, np.ndarray]]  # {"labels, MLP": {metric: a value for each seed}, …}


def _policies() -> dict[str, Policy]:
    return {
        "PDGD, linear": PDGD(),
        "PDGD, MLP": NeuralPDGD(ranker=RANKERS["MLP"]),
        "P2NeurRank, linear": P2NeurRank(ranker=linear),
        "P2NeurRank, MLP": P2NeurRank(ranker=RANKERS["MLP"]),
        "OLRankNet, linear": OLRankNet(ranker=linear),
        "OLRankNet, MLP": OLRankNet(ranker=RANKERS["MLP"]),
        "OLLambdaRank, MLP": OLLambdaRank(ranker=RANKERS["MLP"]),
        "PairRank, linear": PairRank(),
    }


def figure(request: FigureRequest) -> Report:
    """Linear and neural rankers, online from clicks and offline from labels: NDCG@10 and cNDCG of three users."""
    size, smoke = _SIZES[request.scale], request.scale == "smoke"
    queries = read_queries(request, size.num_queries)
    policies = _policies()
    refuse_unknown(request, policies)
    if smoke:  # every policy is compiled, which is what takes the time
        policies = {label: policies[label] for label in ("PDGD, linear", "PDGD, MLP", "P2NeurRank, MLP")}
    grids: Grids = {
        label: {"regularization": _STRENGTHS} if label.startswith("PairRank") else {"learning_rate": _RATES}
        for label in policies
        if request.num_seeds(label, size.num_seeds) > 0
    }
    probes = {"ndcg@10": OfflineNDCG(queries.test), "training ndcg@10": OfflineNDCG(queries.train)}
    labelled, chosen = _from_labels(queries, probes, 2 if smoke else 30, smoke)
    name = "neural-rankers"
    grids = two_of_each(grids) if smoke else grids
    policies, more = tuned(queries, request, name, policies, grids, size.num_steps // 4, tries=0, num_folds=1)
    options: dict[str, Any] = {"num_records": _RECORDS[request.scale], "metrics": ("cndcg",), "probes": probes}
    environment = stream(queries.train, request)
    result = run(request, name, policies, environment, size.num_steps, size.num_seeds, **options)
    result = result.assign_coords(user=list(USERS))
    result.attrs |= {"data": request.world, "scale": request.scale, "chosen": "; ".join([*chosen, *more])}
    result.attrs |= {
        f"{kind} {metric}": ndcg.mean() for kind, found in labelled.items() for metric, ndcg in found.items()
    }
    return Report(result, _drawn(result, labelled), _page(result, labelled))


def _from_labels(
    queries: LetorData, probes: dict[str, OfflineNDCG], num_epochs: int, smoke: bool
) -> tuple[Labelled, list[str]]:
    """What rankers that are trained on labels reach, and what was chosen."""
    num_seeds = 2 if smoke else _SEEDS
    found, chosen = {}, []
    for kind, ranker in RANKERS.items():
        strength, text = offline(queries, num_epochs, 0 if smoke else 1, 1, ranker, f"labels, {kind}")
        many = offline_ranknet(
            queries.train, ranker, num_epochs=num_epochs, regularization=strength, num_seeds=num_seeds
        )
        each = [jax.tree.map(lambda leaf, k=k: leaf[k], many) for k in range(num_seeds)]
        found[f"labels, {kind}"] = {
            metric: np.array([ndcg_of(probe, params, ranker) for params in each]) for metric, probe in probes.items()
        }
        chosen.append(text)
    return found, chosen


def _drawn(result: "xarray.Dataset", labelled: Labelled) -> Any:
    picture, axes = panels(2 * len(USERS), columns=len(USERS))
    entries: Entries = {}
    for ax, user in zip(axes, USERS, strict=False):
        entries |= draw_curves(ax, result.sel(user=user), "ndcg@10", title=user)
        for (kind, found), line in zip(labelled.items(), (":", "--"), strict=True):
            entries[kind] = ax.axhline(found["ndcg@10"].mean(), color="black", linestyle=line, label=kind)
    for ax, user in zip(axes[len(USERS) :], USERS, strict=True):
        draw_curves(ax, result.sel(user=user), "cndcg")
    legend_below(picture, entries)
    return picture


def _page(result: "xarray.Dataset", labelled: Labelled) -> str:
    rows = [[kind, *(_mean(ndcg) for ndcg in found.values())] for kind, found in labelled.items()]
    from_labels = markdown(["trained on the labels", *next(iter(labelled.values()))], rows)
    tables = [by_user(result, metric, digits) for metric, digits in METRICS.items()]
    chosen = f"Chosen on validation queries: {result.attrs['chosen']}. ± is the standard error over seeds."
    return "\n\n".join([*tables, from_labels, chosen, _gains(result, labelled)])


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def _gains(result: "xarray.Dataset", labelled: Labelled) -> str:
    """What the network gains over the linear ranker, with its 95 % interval over seeds, in each algorithm."""
    known = [str(policy) for policy in result["policy"].values]
    rows = []
    for metric, digits in METRICS.items():
        last = result[metric].isel(step=-1)
        if metric in labelled["labels, MLP"]:
            gain = labelled["labels, MLP"][metric].mean() - labelled["labels, linear"][metric].mean()
            rows.append([f"labels, {metric}", *[f"{gain:+.4f}"] * len(USERS)])
        for name in PAIRED:
            if {f"{name}, linear", f"{name}, MLP"} <= set(known):
                neural, plain = last.sel(policy=f"{name}, MLP"), last.sel(policy=f"{name}, linear")
                cells = [difference(neural.sel(user=user), plain.sel(user=user)) for user in USERS]
                shown = [f"{m:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]" for m, low, high in cells]
                rows.append([f"{name}, {metric}", *shown])
    return f"MLP minus linear, with 95 % intervals over seeds:\n\n{markdown(['', *USERS], rows)}"
