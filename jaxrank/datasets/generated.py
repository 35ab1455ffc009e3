"""Synthetic queries that look like real ones: the default world, for when there is no data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxrank.core import registry
from jaxrank.core.checks import integer, open_probability, real
from jaxrank.core.limits import refuse_beyond
from jaxrank.core.types import ClickModel
from jaxrank.datasets.ratings import Ratings


class _Calibration(NamedTuple):
    """logit α(q, k) = level_q − slope_q·log k + noise(q, k), of the document at production position k."""

    level: float
    slope: float
    level_spread: float  # standard deviations over queries
    slope_spread: float
    noise: float  # and over documents


_CALIBRATION = {
    "cm": _Calibration(-0.74, 1.33, 0.68, 0.50, 0.90),
    "dcm": _Calibration(-0.57, 0.84, 0.89, 0.25, 0.65),
    "pbm": _Calibration(-0.86, 0.68, 0.85, 0.35, 0.85),
    "ubm": _Calibration(-0.85, 0.50, 0.70, 0.30, 0.90),
    "dbn": _Calibration(-0.67, 1.16, 0.83, 0.40, 0.65),
    "ccm": _Calibration(-0.71, 1.11, 0.83, 0.40, 0.65),
}
_CALIBRATION |= {"sdbn": _CALIBRATION["dbn"]}
_CALIBRATION |= dict.fromkeys(("trust", "gctr", "rctr", "dctr", "rdctr"), _CALIBRATION["pbm"])


def synthetic(
    model: str = "cm", num_queries: int = 60, num_items: int = 10, seed: int = 0, **parameters: Any
) -> ClickModel:
    """A click model of ``num_queries`` queries, items in production order: the base list R₀ is 0, 1, 2, ….

    Attraction falls with the logarithm of the production position, with a level and a slope for each query and noise
    for each document. The five numbers per model were calibrated on the 60 Yandex queries of the
    BatchRank paper's authors: level, slope and level spread are a least-squares fit of the logits of their
    attractions on log k; slope spread and noise were then chosen so that the number of inversions |V₀| of R₀ has
    their mean and standard deviation (at 10 items 10.9 ± 4.8 for CM, 11.7 ± 4.8 for DCM, 15.0 ± 5.7 for PBM,
    17.1 ± 6.0 for UBM, 9.7 ± 4.5 for DBN, 9.8 ± 4.6 for CCM).
    The other parameters are smooth curves through those fitted there: examination falls from 1 to about a quarter, and
    after a click with the distance from it; termination is highest at both ends and 1 at the last position;
    satisfaction falls with the production position from a third to an eighth.

    Of the other models, "sdbn" has the attractions of "dbn", and those that click position by position ("trust",
    "gctr", "rctr", "dctr" and "rdctr") have those of "pbm". A model of one's own has the attractions of "cm". Its
    fields of the same names as those of jaxrank's models, such as ``examination``, have their values; other fields
    need a default, or a value in ``parameters``.

    Args:
      model: the name of a click model as in ``jr.make``.
      num_queries: the length of the query axis.
      num_items: L, and the number of positions that have an examination or termination probability.
      seed: of NumPy's generator. A query's numbers do not depend on the number of queries.
      parameters: of the click model, instead of the synthetic ones.
    """
    fields = registry.required_fields(model, kind="click_model")
    num_queries, num_items = integer("num_queries", num_queries), integer("num_items", num_items)
    refuse_beyond("JAXRANK_MAX_ITEMS", "num_items", num_items)
    refuse_beyond("JAXRANK_MAX_SYNTHETIC", "queries × items", num_queries * num_items)
    c = _CALIBRATION.get(model, _CALIBRATION["cm"])
    normal = np.random.default_rng(integer("seed", seed, 0)).standard_normal((num_queries, 2 + num_items))
    log_position = np.log(np.arange(1, num_items + 1))
    level, slope, noise = normal[:, :1], normal[:, 1:2], normal[:, 2:]
    logit = c.level - c.slope * log_position + c.level_spread * level + c.noise * noise
    logit -= c.slope_spread * slope * (log_position - log_position.mean())
    parameters = {"attraction": 1 / (1 + np.exp(-logit))} | parameters
    for field in fields:
        if field in _PARAMETERS and field not in parameters:
            parameters[field] = _PARAMETERS[field](num_items)
    return registry.make(model, kind="click_model", **parameters)


def _examination(num_positions: int) -> np.ndarray:
    above = np.arange(num_positions)
    return 0.2 + 0.8 / (1 + (above / 2.8) ** 2)


def _termination(num_positions: int) -> np.ndarray:
    above, below = np.arange(num_positions), np.arange(num_positions)[::-1]
    return np.minimum(1, 0.46 + 0.2 * np.exp(-2.0 * above) + 0.54 * np.exp(-1.0 * below))


def _examination_after(num_positions: int) -> np.ndarray:
    """[K, K]: 1 right below a click, then falling, the faster the higher the click is; the last column is no click."""
    position, click = np.indices((num_positions, num_positions))
    after = np.minimum(1, ((click + 2.1) / (position + 0.7)) ** 2.5)
    after[:, -1] = 1 / (1 + (np.arange(num_positions) / 2.3) ** 1.9)
    return after


def _satisfaction(num_items: int) -> np.ndarray:
    return 0.125 + 0.225 * np.exp(-1.2 * np.arange(num_items))


_PARAMETERS: dict[str, Callable[[int], Any]] = {
    "examination": _examination,
    "termination": _termination,
    "trust": lambda num_items: 0.2 / np.arange(1, num_items + 1),
    "relative_rate": lambda num_items: np.tile(_examination(num_items), (num_items, 1)),
    "examination_after": _examination_after,
    "satisfaction": _satisfaction,
    "continuation": lambda num_items: 1.0,
    "tau1": lambda num_items: 1.0,
    "tau2": lambda num_items: 0.94,
    "tau3": lambda num_items: 0.0,
}


# The fraction of MovieLens's 1,000 most rated movies in each genre; the rarest three are rounded up.
_TOPICS = (
    *(0.41, 0.40, 0.34, 0.28, 0.27, 0.20, 0.18, 0.165, 0.127, 0.093),
    *(0.082, 0.074, 0.07, 0.052, 0.046, 0.044, 0.022, 0.01, 0.005, 0.005),
)


def synthetic_ratings(
    num_users: int = 1000, num_items: int = 1000, fraction_attractive: float = 0.07, seed: int = 0
) -> Ratings:
    """Ratings with the statistics of CascadeHybrid's MovieLens world: 7 % attractive pairs, 20 topics, a long tail.

    logit P(F = 1) falls with the logarithm of the item's popularity rank and has, for each user, a level, a taste for
    topics and a taste for eight hidden factors. The common level is then set so that the mean probability is
    ``fraction_attractive``. Items have the topics of MovieLens's 1,000 most rated movies, drawn independently at those
    movies' frequencies, and at least one each.

    Args:
      num_users: the number of users.
      num_items: the number of items, most popular first.
      fraction_attractive: the expected fraction of pairs that are attractive.
      seed: of NumPy's generator.
    """
    num_users, num_items = integer("num_users", num_users), integer("num_items", num_items)
    refuse_beyond("JAXRANK_MAX_ITEMS", "num_items", num_items)
    refuse_beyond("JAXRANK_MAX_SYNTHETIC", "users × items", num_users * num_items)
    fraction_attractive = real("fraction_attractive", fraction_attractive, open_probability)
    rng = np.random.default_rng(integer("seed", seed, 0))
    frequency = np.array(_TOPICS)
    topics = rng.uniform(size=(num_items, len(frequency))) < frequency
    only = rng.choice(len(frequency), num_items, p=frequency / frequency.sum())
    topics[np.arange(num_items), only] |= ~topics.any(axis=1)

    popularity = -0.7 * np.log(np.arange(1, num_items + 1)) + 0.4 * rng.standard_normal(num_items)
    activity = 1.1 * rng.standard_normal((num_users, 1))
    taste = 0.6 * rng.standard_normal((num_users, len(frequency))) @ (topics / topics.sum(axis=1, keepdims=True)).T
    hidden = rng.standard_normal((num_users, 8)) @ rng.standard_normal((8, num_items)) * (0.8 / np.sqrt(8))
    logit = popularity + activity + taste + hidden
    low, high = -50.0, 50.0
    for _ in range(60):
        level = (low + high) / 2
        mean = np.mean(1 / (1 + np.exp(-np.clip(logit + level, -60, 60))))
        low, high = (level, high) if mean < fraction_attractive else (low, level)
    attractive = rng.uniform(size=logit.shape) < 1 / (1 + np.exp(-np.clip(logit + level, -60, 60)))
    order = np.argsort(-topics.sum(axis=0), kind="stable")
    names = tuple(f"topic {j + 1}" for j in range(len(frequency)))
    return Ratings(attractive, topics[:, order], names, np.arange(num_users), np.arange(num_items))
