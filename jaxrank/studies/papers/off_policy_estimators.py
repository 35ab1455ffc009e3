"""Which off-policy estimator for which users? Every estimator against the exact value, which a simulator knows.

Worlds are click models; logs come from ε-greedy around the production list, the target is a Plackett–Luce ranker that
knows the attraction. Many logs of each size give the bias and the spread of each estimator. The doubly robust
estimators and the direct method need predictions, and ``position_ips`` needs χ: all take them from a position-based
model fitted to the same log, which is the right kind of model in the position-based world only.
"""

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models import PositionBasedModel
from jaxrank.core.pytrees import take_instances
from jaxrank.core.types import Array, Key
from jaxrank.learning import off_policy
from jaxrank.learning.counterfactual import LoggedLists, fitted_places
from jaxrank.learning.list_distributions import prefix_probabilities
from jaxrank.output.plotting import Entries, legend_below, panels, plain_log_ticks, styles
from jaxrank.output.report import Report
from jaxrank.output.tables import counted, markdown, plus_minus
from jaxrank.studies.papers.figure import FigureRequest, queries

if TYPE_CHECKING:
    import xarray

ESTIMATORS: dict[str, dict[str, Any]] = {
    "IPS": {"estimator": "ips"},
    "cascade IPS": {"estimator": "cascade_ips"},
    "cascade IPS, normalised": {"estimator": "cascade_ips", "self_normalized": True},
    "independent IPS": {"estimator": "independent_ips"},
    "position-based IPS": {"estimator": "position_ips"},
    "direct": {"estimator": "direct"},
    "doubly robust": {"estimator": "doubly_robust"},
    "cascade DR": {"estimator": "cascade_dr"},
}
MODELS = ("cm", "dcm", "pbm", "ubm", "dbn", "ccm")
_AT_ONCE = 16  # logs
_EM_ITERATIONS = 100  # of the fitted position-based model


class _Size(NamedTuple):
    models: tuple[str, ...]
    num_queries: int
    num_logs: int
    sessions: tuple[int, ...]
    epsilons: tuple[float, ...]  # of the logger; how far it is from the target, ``_worth`` says
    list_sizes: tuple[int, ...]


_SIZES = {
    "smoke": _Size(("cm", "pbm"), 2, 20, (50,), (0.8,), (2,)),
    "laptop": _Size(MODELS, 5, 200, (100, 1_000, 10_000), (0.9, 0.5), (3, 5)),
    "paper": _Size(MODELS, 10, 1_000, (100, 1_000, 10_000), (0.9, 0.5, 0.2), (3, 5)),
}


def off_policy_bench(request: FigureRequest) -> Report:
    """Bias, spread and root mean squared error of off-policy estimators, by click model, log and list size."""
    import xarray

    started, size = time.time(), _SIZES[request.scale]
    cells, worth = {}, []
    for model in size.models:
        for K in size.list_sizes:
            for epsilon in size.epsilons:
                world = queries(request, model, size.num_queries)
                worth.append(_worth(*_rankers(world, K, epsilon)))
                for sessions in size.sessions:
                    cells[model, K, epsilon, sessions] = _errors(world, K, epsilon, sessions, size.num_logs)
    shape = (len(size.models), len(size.list_sizes), len(size.epsilons), len(size.sessions))
    errors = np.reshape(list(cells.values()), (*shape, len(ESTIMATORS), size.num_logs))
    coords = {
        "click_model": list(size.models),
        "list_size": list(size.list_sizes),
        "epsilon": list(size.epsilons),
        "sessions": list(size.sessions),
        "estimator": list(ESTIMATORS),
    }
    result = xarray.Dataset({"error": ((*coords, "log"), errors)}, coords)
    result["worth"] = (("click_model", "list_size", "epsilon"), np.reshape(worth, shape[:3]))
    result["bias"] = result["error"].mean("log")
    result["bias_error"] = result["error"].std("log", ddof=1) / np.sqrt(size.num_logs)
    square = result["error"] ** 2
    result["rmse"] = np.sqrt(square.mean("log"))
    result["rmse_error"] = square.std("log", ddof=1) / np.sqrt(size.num_logs) / (2 * result["rmse"])
    result.attrs |= {"data": request.world, "scale": request.scale, "wall_time_seconds": time.time() - started}
    return Report(result, _picture(result), _table(result, size))


def _rankers(world: Any, list_size: int, epsilon: float) -> tuple[Any, Any]:
    """The target and the logger."""
    attraction = jnp.asarray(world.attraction)
    spread = jnp.std(attraction, axis=-1, keepdims=True)
    target = off_policy.PlackettLuce(2 * (attraction - attraction.mean(axis=-1, keepdims=True)) / spread, list_size)
    production = jnp.broadcast_to(-jnp.arange(attraction.shape[-1], dtype=float), attraction.shape)
    return target, off_policy.EpsilonGreedy(production, epsilon, list_size)


@jax.jit
def _worth(target: Any, logger: Any) -> Array:
    """The share of sessions that a log is worth to IPS, 1/E[w²]: 1 if the logger is the target, near 0 far from it."""
    lists = jnp.asarray(off_policy.all_lists(target.num_items, target.size))

    def of_query(query: Array) -> Array:
        ranker, other = take_instances(target, query), take_instances(logger, query)
        shown, logged = (jax.vmap(partial(_probability, one))(lists) for one in (ranker, other))
        return jnp.sum(shown**2 / logged)

    return 1 / jnp.mean(jax.lax.map(of_query, jnp.arange(target.scores.shape[0])))


def _probability(ranker: Any, ranking: Array) -> Array:
    return prefix_probabilities(ranker, ranking)[-1]


def _errors(world: Any, list_size: int, epsilon: float, sessions: int, num_logs: int) -> np.ndarray:
    """[estimators, logs]: estimates less the exact value, relative to it."""
    target, logger = _rankers(world, list_size, epsilon)
    exact = off_policy.expected_clicks(world, target)
    found = _estimates(jax.random.split(jax.random.key(0), num_logs), world, logger, target, sessions)
    return np.asarray((found - exact) / exact, np.float64).T


@partial(jax.jit, static_argnames="sessions")
def _estimates(keys: Key, world: Any, logger: Any, target: Any, sessions: int) -> Array:
    def of_log(key: Key) -> Array:
        log = off_policy.simulate_log(key, world, logger, num_sessions=sessions)
        fitted = _fitted(log, world.attraction.shape)
        needs: dict[str, dict[str, Any]] = {"position_ips": {"examination": fitted.examination}}
        needs |= {name: {"click_model": fitted} for name in ("direct", "doubly_robust", "cascade_dr")}
        values = [
            off_policy.estimate_value(log, target, **options, **needs.get(options["estimator"], {}))[0]
            for options in ESTIMATORS.values()
        ]
        return jnp.stack(values)

    return jax.lax.map(of_log, keys, batch_size=min(_AT_ONCE, keys.shape[0]))


def _fitted(log: off_policy.Log, shape: tuple[int, int]) -> PositionBasedModel:
    """A position-based model of queries × items by EM."""
    num_queries, L = shape
    rows = log.query[:, None] * L + log.rankings
    counts = LoggedLists(rows, jnp.ones(rows.shape, bool), log.clicks).counts(num_queries * L)
    found = fitted_places(counts, _EM_ITERATIONS)
    return PositionBasedModel(found.attraction.reshape(shape), found.examination)


def _picture(result: "xarray.Dataset") -> Any:
    """Root mean squared error against the sessions or, of a single size, as points: a panel for each click model."""
    looks = styles(ESTIMATORS)
    figure, axes = panels(result.sizes["click_model"], columns=3)
    chosen = result["rmse"].isel(list_size=-1, epsilon=-1)
    entries: Entries = {}
    for ax, model in zip(axes, result["click_model"].values, strict=True):
        for name in ESTIMATORS:
            line = chosen.sel(click_model=model, estimator=name)
            (entries[name],) = ax.plot(line["sessions"], line, **looks[name] | {"markevery": 1})
        ax.set(xscale="log", yscale="log", title=str(model).upper(), xlabel="Sessions", ylabel="Relative RMSE")
        plain_log_ticks(ax.yaxis)
    legend_below(figure, entries)
    return figure


def _table(result: "xarray.Dataset", size: _Size) -> str:
    """Relative bias and error in one cell of every world, the best estimator of all cells, and which one to take."""
    chosen = result.isel(list_size=-1, epsilon=-1, sessions=-1)
    bias, rmse = [], []
    for name in ESTIMATORS:
        row = [chosen.sel(estimator=name, click_model=model) for model in size.models]
        bias.append([name, *(plus_minus(one["bias"], 1.96 * one["bias_error"], 3) + _star(one) for one in row)])
        rmse.append([name, *(plus_minus(one["rmse"], 1.96 * one["rmse_error"], 3) for one in row)])
    best = []
    for K, epsilon, sessions in itertools.product(size.list_sizes, size.epsilons, size.sessions):
        cell = result["rmse"].sel(list_size=K, epsilon=epsilon, sessions=sessions)
        of_models = [cell.sel(click_model=model) for model in size.models]
        errors = [f"{one.idxmin('estimator').item()}, {float(one.min()):.3f}" for one in of_models]
        worth = float(result["worth"].sel(list_size=K, epsilon=epsilon).mean())
        best.append([str(K), str(epsilon), f"{worth:.4f}", f"{sessions:,}", *errors])
    models = [model.upper() for model in size.models]
    where = f"{size.sessions[-1]:,} sessions, K = {size.list_sizes[-1]}, ε = {size.epsilons[-1]}"
    return "\n\n".join(
        [
            f"Errors of estimates relative to the exact value, over {counted(size.num_logs, 'log')} in each cell; ± is "
            f"half of a 95 % interval. The logger is ε-greedy around the production list. Bias at {where}, * if it is "
            "more than three standard errors:",
            markdown(["estimator", *models], bias),
            f"Root mean squared error at {where}; the picture has the other log sizes:",
            markdown(["estimator", *models], rmse),
            "The estimator with the lowest root mean squared error, and this error. Worth is the share of sessions "
            "that a log is worth to IPS, 1/E[w²], the mean over worlds: the smaller, the further the logger is from "
            "the target.",
            markdown(["K", "ε", "worth", "sessions", *models], best),
            "Which estimator for which users? The one whose error is, at worst over K and ε, the smallest multiple of "
            "the lowest in the cell, and this multiple; in the last column at worst over users, too:",
            markdown(["sessions", *models, "users unknown"], _chosen(result)),
        ]
    )


def _chosen(result: "xarray.Dataset") -> list[list[str]]:
    """By log size, the estimator that is never far from the best, for each world and for all together."""
    multiple = result["rmse"] / result["rmse"].min("estimator")
    worst = multiple.max(("list_size", "epsilon"))
    rows = []
    for sessions in result["sessions"].values:
        of_models = [worst.sel(sessions=sessions, click_model=model) for model in result["click_model"].values]
        cells = [*of_models, worst.sel(sessions=sessions).max("click_model")]
        rows.append([f"{sessions:,}", *(f"{one.idxmin('estimator').item()}, {float(one.min()):.2f}" for one in cells)])
    return rows


def _star(one: "xarray.Dataset") -> str:
    """Marks a bias of more than three standard errors."""
    return " *" if abs(float(one["bias"])) > 3 * float(one["bias_error"]) + 1e-6 else ""
