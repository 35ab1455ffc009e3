"""Off-policy evaluation: how many clicks would a ranker get, from the log of another one?

A log has lists, the clicks on them, and how probable the logging ranker was to show what it showed. The value of a
target, a distribution over lists, is its expected number of clicks. Each estimator weighs logged clicks by how much
more probable the target is to show what was clicked; they differ in what they take the user to look at:

| estimator | weight of a click at position k | right if a click at k depends on |
|---|---|---|
| ``ips`` | π(R) / π₀(R) | the whole list |
| ``cascade_ips`` | π(R₁ … R_k) / π₀(R₁ … R_k) | the items down to k: all click models of jaxrank |
| ``independent_ips`` | π(R_k at k) / π₀(R_k at k) | the item and k |
| ``position_ips`` | Σ_l χ_l·π(R_k at l) / Σ_l χ_l·π₀(R_k at l) | a position-based model with examination χ |
| ``direct`` | none: the clicks that a click model predicts | what that model says |
| ``doubly_robust`` | π(R) / π₀(R), of the clicks beyond those predicted | the whole list |
| ``cascade_dr`` | as ``cascade_ips``, of the clicks beyond those predicted | the items down to k |

The fewer things a click is taken to depend on, the smaller the weights, and so the variance. The doubly robust ones
start from the ``direct`` value: they are right if the weights or the model are, and vary less the better it is.
``clip`` bounds the weights (less variance, some bias); ``self_normalized`` divides by their mean (the same).

    log = jr.off_policy.simulate_log(key, model, jr.off_policy.Uniform(10, 5), num_sessions=10_000)
    jr.evaluate(log, jr.off_policy.PlackettLuce(scores, 5), "cascade_ips")

All of it is pure functions of arrays, so it can be mapped over logs and differentiated with respect to the target.

References: ``ips`` and ``cascade_ips`` (reward interaction) McInerney et al., KDD 2020; ``independent_ips`` and
``position_ips`` Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen, KDD 2018; ``cascade_dr`` Kiyohara et al., WSDM
2022: if Q̂_k, the predicted clicks from position k on, comes from one click model at all k, their recursion telescopes
to the sum that is computed here.
"""

import math
import statistics
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core import checks
from jaxrank.core.checks import choice, integer, open_probability, positive, real, switch
from jaxrank.core.pytrees import array, num_instances, over_instances, pytree, take_instances
from jaxrank.core.types import Array, ClickModel, Key
from jaxrank.learning.list_distributions import (
    MOST_LISTS,
    EpsilonGreedy,
    ListDistribution,
    Lists,
    PlackettLuce,
    Uniform,
    all_lists,
    check_rankings,
    prefix_probabilities,
)

_SAMPLES = 10_000  # lists that stand for all lists of a target, where these are too many
_WARN_AT = 5.0  # standard errors from what an estimator assumes at which ``evaluate`` warns


@pytree
class Log:
    """Sessions of one or several queries, with the probabilities of what was shown.

    Of these, each estimator needs some: ``ips`` and ``doubly_robust`` ``prefix`` or ``probability``, ``cascade_ips``
    and ``cascade_dr`` ``prefix``, ``independent_ips`` and ``position_ips`` ``placed``.

    Args:
      rankings: int [sessions, K], the items shown, best first.
      clicks: bool [sessions, K].
      query: int [sessions], from 0 on; all of one query by default.
      probability: [sessions], of the list, in (0, 1].
      prefix: [sessions, K], of the first k positions together.
      placed: [sessions, K, K], at [i, k, l] that the item shown at k is shown at l.
    """

    rankings: Any = array(ndim=2, dtype=jnp.int32)
    clicks: Any = array(ndim=2, dtype=bool)
    query: Any = array(ndim=1, dtype=jnp.int32, default=None)
    probability: Any = array(ndim=1, check=checks.probability, default=None)
    prefix: Any = array(ndim=2, check=checks.probability, default=None)
    placed: Any = array(ndim=3, check=checks.probability, default=None)

    def _validate(self) -> None:
        sessions, K = self.rankings.shape[-2:]
        expected = {"clicks": (sessions, K), "query": (sessions,), "probability": (sessions,)}
        expected |= {"prefix": (sessions, K), "placed": (sessions, K, K)}
        for name, shape in expected.items():
            value = getattr(self, name)
            if value is not None and value.shape[-len(shape) :] != shape:
                raise ValueError(f"Log.{name} must have the shape {list(shape)}; got {list(value.shape)}")
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
            return
        check_rankings("Log.rankings", np.asarray(self.rankings).reshape(-1, K), None)
        shown = {"probability": self.probability, "prefix": self.prefix}
        if self.placed is not None:
            shown["placed"] = jnp.diagonal(self.placed, axis1=-2, axis2=-1)
        for name, value in shown.items():
            if value is not None and not np.all(np.asarray(value) > 0):
                where = np.argwhere(~(np.asarray(value) > 0))[0].tolist()
                raise ValueError(f"Log.{name} must be above 0 for what was shown; got 0 at {where}")
        if self.prefix is not None and np.any(np.diff(np.asarray(self.prefix), axis=-1) > 1e-6):
            raise ValueError("Log.prefix must not rise down the list: more positions are less probable")


class Evaluation(NamedTuple):
    """An estimate of the expected clicks of a list, and how far to trust it."""

    value: Any  # float
    error: Any  # float, its standard error
    low: Any  # float, the lower end of the confidence interval
    high: Any  # float, the upper end
    effective_sample_size: Any  # float, (Σw)²/Σw² of the weights, at the position where it is smallest
    mean_weight: Any  # float[K], about 1 if the logging ranker can show all that the target shows


@partial(jax.jit, static_argnames=("num_sessions", "with_placed"))
def simulate_log(
    key: Key, click_model: ClickModel, logger: ListDistribution, *, num_sessions: int, with_placed: bool = True
) -> Log:
    """A log of ``logger``'s lists and ``click_model``'s clicks, with all probabilities; queries in equal shares.

    Args:
      key: of all sessions.
      click_model: how users click; with a query axis, several queries.
      logger: the distribution of the lists, for all queries or with the same query axis.
      num_sessions: the number of sessions; session i is of query i modulo their number.
      with_placed: compute ``placed``, which ``independent_ips`` and ``position_ips`` need.
    """
    num_sessions = integer("num_sessions", num_sessions)
    _require_lists("logger", logger)
    queries = _num_queries(click_model, logger)
    query = jnp.arange(num_sessions, dtype=jnp.int32) % queries

    def session(key: Key, query: Array) -> tuple[Array, Array]:
        list_key, click_key = jax.random.split(key)
        ranking = take_instances(logger, query).sample(list_key)
        return ranking, take_instances(click_model, query).sample(click_key, ranking)

    rankings, clicks = jax.vmap(session)(jax.random.split(key, num_sessions), query)
    prefix, placed = probabilities_of(logger, query, rankings, with_placed=with_placed)
    return Log(rankings, clicks, query, prefix=prefix, placed=placed)


def probabilities_of(
    distribution: ListDistribution, query: Array, rankings: Array, *, with_placed: bool = True
) -> tuple[Array, Array | None]:
    """How probable the lists [sessions, K] are: ``prefix`` and ``placed`` of ``Log``."""
    prefix = jax.vmap(lambda query, ranking: prefix_probabilities(take_instances(distribution, query), ranking))
    return prefix(query, rankings), _placed(distribution, query, rankings) if with_placed else None


def _placed(distribution: ListDistribution, query: Array, rankings: Array) -> Array:
    marginals = over_instances(lambda one: one.marginals(), distribution)
    if num_instances(distribution) is None:
        return jnp.moveaxis(marginals[:, rankings], 0, -1)
    return jax.vmap(lambda query, ranking: marginals[query][:, ranking].T)(query, rankings)


def expected_clicks(click_model: ClickModel, distribution: ListDistribution) -> Array:
    """float[]: the exact value of a target, the mean over queries of the expected clicks on its lists.

    A sum over all lists, or over those of a ``Lists``: there are at most 200,000.
    """
    _require_lists("distribution", distribution)
    return jnp.mean(_clicks_by_query(click_model, distribution))


def _clicks_by_query(click_model: ClickModel, distribution: ListDistribution, num_samples: int = 0) -> Array:
    """float[queries]: the expected clicks on a list of each query.

    If ``num_samples`` is not 0, it is the mean over so many lists where there are too many of them to sum over.
    """
    queries = _num_queries(click_model, distribution)

    def of_query(query: Array) -> Array:
        model, one = take_instances(click_model, query), take_instances(distribution, query)
        if isinstance(one, Lists):
            rankings, shares = one.rankings, one.probabilities
        elif num_samples and math.perm(one.num_items, one.size) > MOST_LISTS:
            rankings = jax.vmap(one.sample)(jax.random.split(jax.random.fold_in(jax.random.key(0), query), num_samples))
            probability = jax.vmap(lambda ranking: prefix_probabilities(one, ranking)[-1])(rankings)
            # 1 / num_samples each; the gradient is that of what the target's probabilities weigh
            shares = probability / jax.lax.stop_gradient(probability) / num_samples
        else:
            rankings = jnp.asarray(all_lists(one.num_items, one.size))
            shares = jax.vmap(lambda ranking: prefix_probabilities(one, ranking)[-1])(rankings)
        clicks = jax.vmap(lambda ranking: jnp.sum(model.click_probability(ranking)))(rankings)
        return jnp.dot(shares, clicks, precision=jax.lax.Precision.HIGHEST)

    return jax.lax.map(of_query, jnp.arange(queries))


def _require_lists(name: str, given: Any) -> None:
    """Refuses what is no distribution over lists, such as a policy."""
    if isinstance(given, type) or not hasattr(given, "next_item"):
        kind = given.__name__ if isinstance(given, type) else type(given).__name__
        write = "jr.off_policy.Lists.of_policy(…)" if hasattr(given, "rank") else "jr.off_policy.PlackettLuce(…)"
        raise ValueError(f"{name} must be a distribution over lists; got {kind}: write {write}")


def _num_queries(click_model: ClickModel, distribution: ListDistribution) -> int:
    """The number of queries that both have; what has no query axis serves any number."""
    counts = {count for tree in (click_model, distribution) if (count := num_instances(tree)) is not None}
    if len(counts) > 1:
        raise ValueError(f"click_model and lists must be of the same queries; got {sorted(counts)} of them")
    attraction = getattr(click_model, "attraction", None)
    if attraction is not None and attraction.shape[-1] != distribution.num_items:
        raise ValueError(
            f"click_model must be of the {distribution.num_items} items of the lists; got {attraction.shape[-1]}"
        )
    return counts.pop() if counts else 1


def _list_weights(log: Log, target: ListDistribution) -> Array:
    logged = log.probability if log.prefix is None else log.prefix[:, -1]
    weight = probabilities_of(target, log.query, log.rankings, with_placed=False)[0][:, -1] / logged
    return jnp.broadcast_to(weight[:, None], log.rankings.shape)


def _cascade_weights(log: Log, target: ListDistribution) -> Array:
    return probabilities_of(target, log.query, log.rankings, with_placed=False)[0] / log.prefix


def _independent_weights(log: Log, target: ListDistribution) -> Array:
    at_k = partial(jnp.diagonal, axis1=-2, axis2=-1)
    return at_k(_placed(target, log.query, log.rankings)) / at_k(log.placed)


def _position_weights(log: Log, target: ListDistribution, examination: Array) -> Array:
    examined = partial(jnp.dot, b=examination, precision=jax.lax.Precision.HIGHEST)
    return examined(_placed(target, log.query, log.rankings)) / examined(log.placed)


def _predicted(log: Log, click_model: ClickModel) -> Array:
    """float[sessions, K]: the clicks that a click model predicts for the lists of the log."""
    return jax.vmap(lambda query, ranking: take_instances(click_model, query).click_probability(ranking))(
        log.query, log.rankings
    )


class _Estimator(NamedTuple):
    needs: tuple[str, ...]  # one of these fields of the log
    assumption: str | None = None  # what ``evaluate`` tests
    model: str | None = None  # "model" or "examination", if it takes one


ESTIMATORS = {
    "ips": _Estimator(("probability", "prefix")),
    "cascade_ips": _Estimator(("prefix",), "cascade"),
    "independent_ips": _Estimator(("placed",), "independent"),
    "position_ips": _Estimator(("placed",), "independent", "examination"),
    "direct": _Estimator((), None, "model"),
    "doubly_robust": _Estimator(("probability", "prefix"), None, "model"),
    "cascade_dr": _Estimator(("prefix",), "cascade", "model"),
}


def estimate_value(
    log: Log,
    target: ListDistribution,
    estimator: str = "cascade_ips",
    *,
    click_model: Any = None,
    examination: Any = None,
    clip: float | None = None,
    self_normalized: bool = False,
) -> tuple[Array, Array, Array]:
    """One estimator as a pure function, to be mapped over logs and differentiated with respect to ``target``.

    Returns:
      The value; the sessions' parts in it [sessions], whose mean is the value and whose spread its error; and the
      weights [sessions, K].
    """
    clicks = log.clicks.astype(float)
    baseline, predicted = jnp.zeros(clicks.shape[0]), jnp.zeros(clicks.shape)
    if ESTIMATORS[estimator].model == "model":
        of_query = _clicks_by_query(click_model, target, _SAMPLES)
        baseline = baseline + (of_query[log.query] if of_query.shape[0] > 1 else of_query)
    if estimator == "direct":
        return jnp.mean(baseline), baseline, jnp.ones(clicks.shape)
    if estimator in ("ips", "doubly_robust"):
        weights = _list_weights(log, target)
    elif estimator in ("cascade_ips", "cascade_dr"):
        weights = _cascade_weights(log, target)
    elif estimator == "independent_ips":
        weights = _independent_weights(log, target)
    else:
        weights = _position_weights(log, target, examination)
    if clip is not None:
        weights = jnp.minimum(weights, clip)
    if click_model is not None:
        predicted = _predicted(log, click_model)
    if not self_normalized:
        parts = baseline + jnp.sum(weights * (clicks - predicted), axis=1)
        return jnp.mean(parts), parts, weights
    share = weights / jnp.mean(weights, axis=0)[None, :]
    beyond = jnp.mean(share * (clicks - predicted), axis=0)  # [K], a ratio of two means: its parts are its influences
    parts = baseline + jnp.sum(beyond[None, :] + share * (clicks - predicted - beyond[None, :]), axis=1)
    return jnp.mean(baseline) + jnp.sum(beyond), parts, weights


_compiled = jax.jit(estimate_value, static_argnames=("estimator", "self_normalized"))


def evaluate(
    log: Log,
    target: ListDistribution,
    estimator: str = "cascade_ips",
    *,
    click_model: ClickModel | None = None,
    examination: Any = None,
    clip: float | None = None,
    self_normalized: bool = False,
    confidence: float = 0.95,
) -> Evaluation:
    """The expected clicks on a list of ``target``, estimated from a log of another ranker.

    It warns if the log contradicts what the estimator assumes, or does not have enough of the lists that the target
    shows: then the value is wrong by more than its interval says.

    Args:
      log: of the logging ranker.
      target: the distribution of lists to evaluate, for all queries or with a query axis.
      estimator: one of those in the table above.
      click_model: predicts clicks, for ``direct``, ``doubly_robust`` and ``cascade_dr``; where the target has more than
        200,000 lists, 10,000 samples of them are predicted, whose own error the interval leaves out.
      examination: χ [K], for ``position_ips``.
      clip: the upper bound of the weights.
      self_normalized: divide the weights by their mean.
      confidence: of the interval, by the normal approximation.

    Example:
      >>> import jax, jaxrank as jr
      >>> model = jr.CascadeModel(attraction=[0.5, 0.3, 0.1])
      >>> log = jr.off_policy.simulate_log(jax.random.key(0), model, jr.off_policy.Uniform(3, 2), num_sessions=4000)
      >>> target = jr.off_policy.PlackettLuce([2.0, 1.0, 0.0], 2)
      >>> found, exact = jr.evaluate(log, target), jr.off_policy.expected_clicks(model, target)
      >>> bool(found.low < exact < found.high)
      True
    """
    choice("estimator", estimator, ESTIMATORS)
    needs, assumption, model = ESTIMATORS[estimator]
    log = _checked(log, target, estimator, needs, click_model)
    options = _checked_model(log, estimator, model, click_model, examination)
    clip = None if clip is None else real("clip", clip, positive)
    quantile = statistics.NormalDist().inv_cdf((1 + real("confidence", confidence, open_probability)) / 2)
    value, parts, weights = _compiled(
        log, target, estimator, clip=clip, self_normalized=switch("self_normalized", self_normalized), **options
    )
    sessions = log.rankings.shape[0]
    error = float(jnp.std(parts, ddof=1) / np.sqrt(sessions)) if sessions > 1 else float("nan")
    _warn(log, estimator, assumption, np.asarray(weights, np.float64), clip)
    size = jnp.min(jnp.sum(weights, axis=0) ** 2 / jnp.maximum(jnp.sum(weights**2, axis=0), 1e-30))
    low, high = float(value) - quantile * error, float(value) + quantile * error
    return Evaluation(float(value), error, low, high, float(size), np.asarray(jnp.mean(weights, axis=0)))


def _checked(
    log: Log, target: ListDistribution, estimator: str, needs: tuple[str, ...], click_model: ClickModel | None
) -> Log:
    if not isinstance(log, Log):
        raise ValueError(f"log must be a jr.off_policy.Log; got {type(log).__name__}")
    _require_lists("target", target)
    if num_instances(log) is not None:
        raise ValueError(f"log must be one log; got {num_instances(log)}: map estimate_value over several")
    sessions, K = log.rankings.shape
    if needs and all(getattr(log, name) is None for name in needs):
        raise ValueError(f"log must have {' or '.join(needs)} for the estimator {estimator!r}; got neither")
    if target.size != K:
        raise ValueError(f"target must be of lists of {K} items, as the log's are; got {target.size}")
    if int(np.max(log.rankings)) >= target.num_items:
        raise ValueError(
            f"log.rankings must hold items from 0 to {target.num_items - 1}; got {int(np.max(log.rankings))}"
        )
    query = jnp.zeros(sessions, jnp.int32) if log.query is None else log.query
    if click_model is not None:
        _num_queries(click_model, target)
    for queries in (num_instances(target), None if click_model is None else num_instances(click_model)):
        if queries is not None and int(np.max(query)) >= queries:
            raise ValueError(f"log.query must hold queries from 0 to {queries - 1}; got {int(np.max(query))}")
    return Log(log.rankings, log.clicks, query, log.probability, log.prefix, log.placed)


def _checked_model(
    log: Log, estimator: str, model: str | None, click_model: ClickModel | None, examination: Any
) -> dict[str, Any]:
    given = {"click_model": click_model, "examination": examination}
    wanted = {"model": "click_model", "examination": "examination"}.get(model or "")
    for name, value in given.items():
        if name == wanted and value is None:
            raise ValueError(f"{name} must be given for the estimator {estimator!r}; got None")
        if name != wanted and value is not None:
            raise ValueError(f"{name} must be left out: the estimator {estimator!r} does not use it")
    if wanted == "examination":
        examination = np.asarray(examination, float)
        if examination.shape != (log.rankings.shape[1],) or not np.all((examination > 0) & (examination <= 1)):
            raise ValueError(
                f"examination must be in (0, 1] for each of {log.rankings.shape[1]} positions; got {examination}"
            )
        return {"examination": jnp.asarray(examination)}
    return {"click_model": click_model} if wanted else {}


def _warn(log: Log, estimator: str, assumption: str | None, weights: np.ndarray, clip: float | None) -> None:
    """Says what in the log contradicts the estimator."""
    spread = (
        weights.std(axis=0, ddof=1) / np.sqrt(len(weights)) if len(weights) > 1 else np.full(weights.shape[1], np.inf)
    )
    missing = (1 - weights.mean(axis=0)) / np.maximum(spread, 1e-9)
    if clip is None and missing.max() > _WARN_AT:
        k = int(np.argmax(missing))
        warnings.warn(
            f"{estimator}: the mean weight at position {k + 1} is {weights.mean(axis=0)[k]:.3f} and should be about 1: "
            "this log does not have enough of the lists that the target shows",
            stacklevel=3,
        )
    if assumption == "independent" and abs(z := dependence(log)) > _WARN_AT:
        warnings.warn(
            f"{estimator} takes clicks on a list to be independent; in this log they are not (z = {z:.1f}): "
            "cascade_ips does not need that",
            stacklevel=3,
        )
    if assumption == "cascade" and abs(z := upward_dependence(log)) > _WARN_AT:
        warnings.warn(
            f"{estimator} takes a click to depend on the items above; in this log the first click also depends on the "
            f"item below it (z = {z:.1f}): ips does not need that",
            stacklevel=3,
        )


def dependence(log: Log) -> float:
    """Standard score of clicks on a list going together, beyond what the items and their positions explain.

    The clicks at two positions, each less the click rate of its item there, are independent in a position-based model.
    The sum of their products over all pairs of positions is compared with its standard error.
    """
    residual = _residuals(log)
    total = residual.sum(axis=1)
    products = (total**2 - (residual**2).sum(axis=1)) / 2
    return _score(products)


def upward_dependence(log: Log) -> float:
    """Standard score of the first position's click depending on the item below it.

    The click there, less the click rate of its item, times the click rate of the item below, less the mean of that
    under the same first item: 0 on average if a click depends on the items above only.
    """
    if log.rankings.shape[1] == 1:
        return 0.0
    residual = _residuals(log)[:, 0]
    query, rankings = np.asarray(log.query), np.asarray(log.rankings)
    rate = np.asarray(log.clicks)[:, 1].astype(float)
    below = _mean_by([query, rankings[:, 1]], rate)
    return _score(residual * (below - _mean_by([query, rankings[:, 0]], below)))


def _residuals(log: Log) -> np.ndarray:
    """float[sessions, K]: the clicks, less the click rate of that item at that position."""
    query, rankings, clicks = np.asarray(log.query), np.asarray(log.rankings), np.asarray(log.clicks, float)
    rates = [_mean_by([query, rankings[:, k]], clicks[:, k]) for k in range(rankings.shape[1])]
    return clicks - np.stack(rates, axis=1)


def _mean_by(keys: list[np.ndarray], values: np.ndarray) -> np.ndarray:
    """The mean of ``values`` among the rows with the same keys, for every row."""
    _, group = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
    return (np.bincount(group, values) / np.bincount(group))[group]


def _score(products: np.ndarray) -> float:
    error = products.std(ddof=1) / np.sqrt(len(products)) if len(products) > 1 else 0.0
    return float(products.mean() / error) if error > 0 else 0.0


__all__ = [
    "ESTIMATORS",
    "EpsilonGreedy",
    "Evaluation",
    "ListDistribution",
    "Lists",
    "Log",
    "PlackettLuce",
    "Uniform",
    "all_lists",
    "dependence",
    "estimate_value",
    "evaluate",
    "expected_clicks",
    "probabilities_of",
    "simulate_log",
    "upward_dependence",
]
