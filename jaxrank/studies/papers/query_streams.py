"""What the figures of online learning to rank share: data, users, tuning on validation queries, rankers from labels.

A setting of an online ranker is scored by the mean of two numbers: NDCG@10 of what it learns, on validation queries and
over the run, and NDCG@10 of the lists that it shows. The figures have both, and the first alone does not see what
exploration costs. It is the mean over five runs: of five seeds with the validation split or, if the data have none, of
one seed for each of five folds of the training queries; none of them is a run that a figure shows.

``--data`` takes the folder of any LETOR dataset; without it, a synthetic one. Users are those for 3 or 5 grades, as the
data have. NDCG of a query without relevant documents counts as 0 online, and offline such queries are left out.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from jaxrank.click_models.graded import GradedUser, graded_user
from jaxrank.core.types import Policy
from jaxrank.datasets.letor_files import LetorData, letor, synthetic_letor
from jaxrank.engine.compiled_code import forget_if_much
from jaxrank.engine.simulation import simulate
from jaxrank.environments.query_stream import QueryStream
from jaxrank.learning import losses, training
from jaxrank.learning.probes import OfflineNDCG
from jaxrank.learning.rankers import Ranker, linear
from jaxrank.output.results import mean_and_error
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import FixedRanker
from jaxrank.studies.papers.figure import FigureRequest, saved
from jaxrank.studies.tuning import best_on_grid

if TYPE_CHECKING:
    import xarray

USERS = ("perfect", "navigational", "informational")
FOLDS = 5
TUNING_SEED = 1  # where figures have 0: a setting is not chosen in the lanes that are shown
TRIES = {"smoke": 0, "laptop": 12, "paper": 12}  # by how many values a grid is widened at most
# The losses of rankers that are trained on labels, and their λ: RankNet's loss is a mean over pairs, LambdaLoss a sum.
OFFLINE: dict[str, losses.Loss] = {"offline RankNet": losses.ranknet, "offline LambdaLoss": losses.lambda_loss}
_STRENGTHS: dict[losses.Loss, tuple[float, ...]] = {
    losses.ranknet: (1e-4, 1e-3, 1e-2),
    losses.lambda_loss: (0.01, 0.1, 1.0),
}

Grids = Mapping[str, Mapping[str, tuple[float, ...]]]  # by policy: what is tuned, one after the other, and its grid


def read_queries(request: FigureRequest, num_queries: int) -> LetorData:
    """The queries of ``--data``, or ``num_queries`` synthetic ones, 100 if that is 0."""
    return synthetic_letor(num_queries or 100) if request.data is None else letor(request.data)


def folds(request: FigureRequest, num_seeds: int) -> dict[str, FigureRequest]:
    """The request for each fold of the data, by its name, with its share of the seeds; none if there are no folds."""
    found = [] if request.data is None else sorted(Path(request.data).glob("Fold[0-9]"))
    asked = {"": num_seeds} | request.asked_seeds()
    seeds = {policy: -(-number // max(len(found), 1)) for policy, number in asked.items()}
    words = tuple(f"{policy}={number}" if policy else str(number) for policy, number in seeds.items())

    def of(fold: Path) -> FigureRequest:
        checkpoint = None if request.checkpoint is None else Path(request.checkpoint) / fold.name
        return dataclasses.replace(request, data=str(fold), seeds=words, checkpoint=checkpoint)

    return {fold.name: of(fold) for fold in found}


def users(queries: Any, *names: str, stop_at: str = "click") -> GradedUser:
    """Users for 3 grades if the queries have no more, and for 5 otherwise."""
    return graded_user(*names, num_grades=3 if queries.num_grades <= 3 else 5, stop_at=stop_at)


def stream(queries: Any, request: FigureRequest) -> QueryStream:
    return QueryStream(queries, users(queries, *USERS, stop_at=request.stop_at))


def ndcg_of(probe: OfflineNDCG, params: Any, ranker: Ranker = linear) -> float:
    return float(probe(FixedRanker(params, ranker), (), None))


def offline(
    queries: LetorData,
    num_epochs: int,
    tries: int,
    num_folds: int = FOLDS,
    ranker: Ranker = linear,
    label: str = "offline RankNet",
    loss: losses.Loss = losses.ranknet,
) -> tuple[float, str]:
    """λ of the ranker that is trained on labels, by the best NDCG@10 on validation queries, and what was tried."""
    folds = folds_of(queries)[:num_folds]

    def score(values: Sequence[float]) -> list[float]:
        by_fold = []
        for train, held_out in folds:
            probe = OfflineNDCG(held_out)
            fits = [
                training.train(train, loss, ranker, num_epochs=num_epochs, regularization=value) for value in values
            ]
            by_fold.append([ndcg_of(probe, fit, ranker) for fit in fits])
        return np.mean(by_fold, axis=0).tolist()

    grid = _STRENGTHS[loss]
    best, tried = best_on_grid(score, grid if tries else grid[:2], tries)
    return best, f"{label}: λ = {best:g} of {_shown(tried)}"


def tuned(
    queries: LetorData,
    request: FigureRequest,
    name: str,
    policies: Mapping[str, Policy],
    grids: Grids,
    num_steps: int,
    tries: int,
    num_folds: int = FOLDS,
) -> tuple[dict[str, Policy], list[str]]:
    """The policies with the hyper-parameters that are best on validation queries, and what was tried.

    Args:
      queries: the data.
      request: the options of the figure.
      name: of the folder in the request's ``checkpoint`` in which the runs are saved.
      policies: by label.
      grids: what is tuned. A grid is widened while its edge is best.
      num_steps: of a run. It should be as long as those that are tuned for: a small λ is ahead at first.
      tries: by how many values a grid is widened at most.
      num_folds: without a validation split, on how many of five folds of the training queries a value is scored.
    """
    folds = [(stream(train, request), OfflineNDCG(held_out)) for train, held_out in folds_of(queries)[:num_folds]]
    found: dict[str, Policy] = {}
    chosen: list[str] = []

    def score(label: str, policy: Any, field: str, values: Sequence[float]) -> list[float]:
        sweep = dataclasses.replace(policy, **{field: np.array(values)})
        num_seeds = FOLDS // len(folds)
        options: Any = {"num_seeds": num_seeds, "seed": TUNING_SEED, "num_records": 4, "progress": False}
        options["metrics"] = ("ndcg",)
        by_fold = []
        for number, (environment, probe) in enumerate(folds):
            of_values = quote(f"{field} {_shown(values)} fold {number}", safe=" ")
            options |= saved(request, name, "tuning", quote(label, safe=" ()"), of_values)
            forget_if_much()
            run = simulate(sweep, environment, num_steps, probes={"validation": probe}, **options)
            learnt = run["validation"].mean(("user", "seed", "step"))
            shown = run["ndcg"].isel(step=-1).mean(("user", "seed")) / num_steps
            by_fold.append((learnt + shown).values / 2)
        return np.mean(by_fold, axis=0).tolist()

    for label, policy in policies.items():
        for field, grid in grids.get(label, {}).items():
            highest = 1.0 if field == "epsilon" else np.inf
            value, tried = best_on_grid(partial(score, label, policy, field), grid, tries, highest)
            policy = dataclasses.replace(policy, **{field: value})  # type: ignore[type-var]
            chosen.append(f"{label}: {field} {value:g} of {_shown(tried)}")
        found[label] = policy
    return found, chosen


def two_of_each(grids: Grids) -> Grids:
    """The first two values of every grid, for smoke tests."""
    return {label: {field: grid[:2] for field, grid in fields.items()} for label, fields in grids.items()}


def by_user(result: "xarray.Dataset", metric: str, digits: int) -> str:
    """A table of the last values, a line for each policy and a column for each user."""
    rows = []
    for policy in result["policy"].values:
        last = result[metric].sel(policy=policy).isel(step=-1)
        rows.append([str(policy), *(plus_minus(*mean_and_error(last.sel(user=user)), digits) for user in USERS)])
    return markdown([f"{metric} at {int(result['step'][-1]):,}", *USERS], rows)


def folds_of(queries: LetorData) -> list[tuple[Any, Any]]:
    """(queries to learn from, queries to score on), once with the validation split and otherwise for each fold."""
    train = queries.train
    if queries.validation is not None:
        return [(train, queries.validation)]
    numbers = np.arange(train.num_queries)
    return [(train.take(numbers[numbers % FOLDS != k]), train.take(numbers[k::FOLDS])) for k in range(FOLDS)]


def _shown(values: Sequence[float]) -> str:
    return "/".join(f"{value:g}" for value in values)
