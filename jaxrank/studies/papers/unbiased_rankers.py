"""Which way to learn a ranker from clicks? Every method against labels and against click rates, in three worlds.

A production ranker, trained on few of the queries, shows lists of ten. Users are simulated: in the position-based world
they look at position k with probability 1/k; with trust bias they also click what is not relevant, most at the top
(ε⁺ and ε⁻ of Vardasbi et al., CIKM 2020); in the cascade they read down to the first click. All methods train the same
linear ranker on the same logs, fit what they need to know of the bias to the log, and are compared on held-out queries.
"""

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models import CascadeModel, PositionBasedModel, TrustBiasModel
from jaxrank.core.metrics import relevance_gain
from jaxrank.core.types import Array, Key
from jaxrank.datasets import LetorData, letor, synthetic_letor
from jaxrank.learning import counterfactual, unbiased
from jaxrank.learning.counterfactual import LoggedLists
from jaxrank.learning.probes import OfflineNDCG
from jaxrank.learning.training import offline_ranknet, train
from jaxrank.output.intervals import two_way_difference, two_way_interval
from jaxrank.output.plotting import panels
from jaxrank.output.report import Report
from jaxrank.output.tables import counted, markdown, plus_minus
from jaxrank.studies.papers.figure import FigureRequest, refuse_unknown

if TYPE_CHECKING:
    import xarray

LIST_SIZE = 10
SHARPNESS = 3.0  # the standard deviation of the production ranker's scores: the larger, the less its lists vary
NOISE = 0.1  # P(click) of an irrelevant document that is examined, in the position-based world and in the cascade
METHODS = (
    *("labels", "production", "naive", "IPW", "affine", "doubly robust"),
    *("regression EM", "dual learning", "pairwise debiasing"),
)


class _Size(NamedTuple):
    num_queries: int  # synthetic, if there are no data
    num_sessions: int
    num_seeds: int
    num_epochs: int  # of training on labels, through the queries
    session_epochs: int  # of the methods that learn from sessions
    num_iterations: int  # of EM


_SIZES = {
    "smoke": _Size(20, 512, 2, 1, 1, 5),
    "laptop": _Size(200, 100_000, 5, 50, 10, 500),
    "paper": _Size(1_000, 1_000_000, 10, 50, 10, 1_000),
}


def worlds() -> dict[str, tuple[Any, float]]:
    """Click models, to be given a query's attraction, and P(attractive) of an irrelevant document, by name."""
    rank = np.arange(1, LIST_SIZE + 1)
    seen, true, false = 1 / rank, 1 - (np.minimum(rank, 20) + 1) / 100, 0.65 / np.minimum(rank, 10)
    return {
        "position-based": (PositionBasedModel(np.zeros(1), seen), NOISE),
        "trust bias": (TrustBiasModel(np.zeros(1), seen * true, false / true), 0.0),
        "cascade": (CascadeModel(np.zeros(1)), NOISE),
    }


def unbiased_learning(request: FigureRequest) -> Report:
    """NDCG@10 of rankers learnt from clicks: IPW, affine, doubly robust, regression EM, dual learning, pairs."""
    import xarray

    refuse_unknown(request, ())
    started, size = time.time(), _SIZES[request.scale]
    seeds = request.num_seeds("", size.num_seeds)
    data = synthetic_letor(size.num_queries) if request.data is None else letor(request.data)
    probes = [OfflineNDCG(split) for split in (data.validation, data.test) if split is not None]
    measure = jax.jit(
        jax.vmap(lambda theta: jnp.concatenate([p.of_scores(p.queries.features @ theta) for p in probes]))
    )
    names = list(worlds())
    found = np.stack([_by_method(data, name, size, seeds, measure) for name in names])
    held_out = np.flatnonzero(np.isfinite(found).all(axis=(0, 1, 2)))
    result = xarray.Dataset(
        {"ndcg": (("world", "learner", "seed", "query"), found[..., held_out])},
        {"world": names, "learner": list(METHODS), "seed": np.arange(seeds), "query": held_out},
    )
    result.attrs |= {"data": request.world, "scale": request.scale, "wall_time_seconds": time.time() - started}
    about = (
        f"NDCG@10 on {counted(len(held_out), 'held-out query')}, {counted(seeds, 'log')} of "
        f"{counted(size.num_sessions, 'session')} of {counted(data.train.num_queries, 'query')} in each world; "
        "± is half of a 95 % interval over queries and logs: the root of the sum of squares of that over queries, of "
        "means over logs, and that over logs, of means over queries."
    )
    return Report(result, _picture(result), _table(result, about))


def _by_method(data: LetorData, world: str, size: _Size, seeds: int, measure: Any) -> np.ndarray:
    """float[methods, seeds, queries]: NDCG@10."""
    queries, (click_model, noise) = data.train, worlds()[world]
    gains = relevance_gain(queries.grades) / relevance_gain(queries.grades).max()
    few = queries.take(range(max(2, queries.num_queries // 20)))
    production = offline_ranknet(few, num_epochs=min(20, size.num_epochs))  # better than chance, and far from good
    scores = queries.features @ production
    scores = SHARPNESS * scores / jnp.maximum(jnp.std(scores), 1e-6)
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    attraction = noise + (1 - noise) * gains
    logs = [
        counterfactual.log_lists(
            key, queries, click_model, attraction, scores, num_sessions=size.num_sessions, list_size=LIST_SIZE
        )
        for key in keys
    ]
    lists = LoggedLists(*(jnp.stack(values) for values in zip(*logs, strict=True)))
    labels, params = _estimates(keys, queries, lists, size)
    labels["labels"] = jnp.broadcast_to(gains[None, :], (seeds, *gains.shape))
    params["production"] = jnp.broadcast_to(production[None, :], (seeds, *production.shape))
    for name, relevance in labels.items():
        params[name] = train(queries, labels=relevance, num_epochs=size.num_epochs, num_seeds=seeds)
    return np.stack([np.asarray(measure(params[name]), np.float64) for name in METHODS])


@partial(jax.jit, static_argnames="size")
def _estimates(keys: Key, queries: Any, lists: LoggedLists, size: _Size) -> tuple[dict[str, Array], dict[str, Any]]:
    """Labels [seeds, documents] by method, and parameters [seeds, …] of the methods that learn a ranker themselves."""

    def one(log: tuple[Key, LoggedLists]) -> tuple[dict[str, Array], dict[str, Any]]:
        key, lists = log
        counts = lists.counts(queries.features.shape[0])
        examination = counterfactual.fitted_examination(counts, size.num_iterations)
        bias = unbiased.fit_affine(counts, size.num_iterations)
        regress = partial(unbiased.regression_em, key, queries, counts, num_iterations=size.num_iterations)
        trusting = regress(trust=True)
        sessions = _sessions_of(queries, lists)
        labels = {
            "naive": counterfactual.relevance(counts),
            "IPW": counterfactual.relevance(counts, examination, smallest=0.05),
            "affine": unbiased.affine_relevance(counts, bias),
            "doubly robust": unbiased.doubly_robust_relevance(counts, trusting.bias, trusting.relevance, sessions),
        }
        epochs = size.session_epochs
        rankers = {
            "regression EM": regress().theta,
            "dual learning": unbiased.dual_learning(key, queries, lists, num_epochs=epochs)[0],
            "pairwise debiasing": unbiased.pairwise_debiasing(key, queries, lists, num_epochs=epochs)[0],
        }
        return labels, rankers

    return jax.lax.map(one, (keys, lists))


def _sessions_of(queries: Any, lists: LoggedLists) -> Array:
    """float[documents]: the number of sessions of each document's query."""
    query_of = jnp.searchsorted(queries.starts, jnp.arange(queries.features.shape[0]), side="right") - 1
    sessions = jnp.zeros(queries.num_queries).at[query_of[lists.rows[:, 0]]].add(1)
    return sessions[query_of]


def _picture(result: "xarray.Dataset") -> Any:
    """Means with their intervals, a panel for each world; the naive learner as a line."""
    figure, axes = panels(result.sizes["world"], columns=3)
    for number, (ax, world) in enumerate(zip(axes, result["world"].values, strict=True)):
        values = result["ndcg"].sel(world=world)
        mean, half = two_way_interval(values)
        at = np.arange(len(METHODS))[::-1]
        ax.errorbar(mean, at, xerr=half, fmt="o", capsize=3)
        ax.axvline(float(mean.sel(learner="naive")), color="grey", linewidth=1, linestyle=":")
        ax.set(title=str(world), xlabel="NDCG@10, with its 95 % interval\n(dotted: naive)")
        ax.set_yticks(at, METHODS if number == 0 else [""] * len(METHODS))
    return figure


def _table(result: "xarray.Dataset", about: str) -> str:
    """Means by world, paired differences from the naive learner, and what follows from these."""
    names = [str(name) for name in result["world"].values]
    mean, half = two_way_interval(result["ndcg"])
    rows, gaps, lines = [], [], []
    for method in METHODS:
        at = [{"world": world, "learner": method} for world in names]
        rows.append([method, *(plus_minus(mean.sel(one), half.sel(one), 4) for one in at)])
    against = {}
    for method in METHODS:
        cells = []
        for world in names:
            values = result["ndcg"].sel(world=world)
            against[world, method] = [
                two_way_difference(values.sel(learner=method), values.sel(learner=other))
                for other in ("naive", "labels")
            ]
            gap, low, high = against[world, method][0]
            cells.append("–" if method == "naive" else f"{gap:+.4f} [{low:+.4f}, {high:+.4f}]")
        gaps.append([method, *cells])
    learners = [method for method in METHODS if method not in ("labels", "production", "naive")]
    for world in names:
        better = [m for m in learners if against[world, m][0][1] > 0]
        worse = [m for m in learners if against[world, m][0][2] < 0]
        as_good = [m for m in learners if against[world, m][1][2] >= 0]
        best = max(learners, key=lambda m: float(mean.sel(world=world, learner=m)))
        lines.append(
            f"- {world.capitalize()}: {_named(better)} better than click rates, {_named(worse)} worse; the best mean "
            f"is that of {best}; not distinguishable from training on labels: {', '.join(as_good) or 'none'}."
        )
    return "\n\n".join(
        [
            about,
            markdown(["method", *names], rows),
            "Differences from the naive learner, which takes click rates for relevance, paired by query and log, with "
            "such intervals:",
            markdown(["method", *names], gaps),
            "\n".join(lines),
        ]
    )


def _named(methods: list[str]) -> str:
    return f"{', '.join(methods) or 'no method'} {'are' if len(methods) > 1 else 'is'}"
