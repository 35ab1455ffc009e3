"""Fits click models to click logs by maximum likelihood."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models import _em
from jaxrank.click_models._em import Count, shrunk, smoothed
from jaxrank.click_models.cascade import CascadeModel
from jaxrank.click_models.click_chain import ClickChainModel
from jaxrank.click_models.click_rates import DocumentClickRate, GlobalClickRate, RankClickRate, RankDocumentClickRate
from jaxrank.click_models.dependent_click import DependentClickModel
from jaxrank.click_models.dynamic_bayesian import DynamicBayesianModel, SimplifiedDynamicBayesianModel
from jaxrank.click_models.evaluation import Evaluation, checked_sessions, evaluate
from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.click_models.trust_bias import TrustBiasModel
from jaxrank.click_models.user_browsing import UserBrowsingModel
from jaxrank.core.checks import choice, integer, non_negative, positive, real, rectangular, switch
from jaxrank.core.types import Array, ClickModel
from jaxrank.output.progress import progress_bar

__all__ = ["Evaluation", "evaluate", "fit", "fit_to_features"]

_CHECK_EVERY = 10  # iterations between two checks of the tolerance
_MOST_ITERATIONS = 10_000
Climb = Callable[..., Any]  # an expectation, parameters, what is held, data -> better parameters


class _Log(NamedTuple):
    documents: np.ndarray  # int32[sessions, K], query·L + item
    clicks: np.ndarray  # bool[sessions, K]
    shape: tuple[int, ...]  # of a table over documents: [L], or [queries, L]
    shrinkage: float
    fix_scale: bool

    @property
    def num_documents(self) -> int:
        return math.prod(self.shape)

    @property
    def examined_at_least(self) -> np.ndarray:
        """bool[sessions, K]: the positions down to the last click; all of them if there is no click."""
        return (self._clicks_from_here > 0) | ~self.clicks.any(axis=1, keepdims=True)

    @property
    def last(self) -> np.ndarray:
        """bool[sessions, K]: is this the last click?"""
        return self.clicks & (self._clicks_from_here == 1)

    @property
    def _clicks_from_here(self) -> np.ndarray:
        return np.cumsum(self.clicks[:, ::-1], axis=1)[:, ::-1]

    def rate(self, happened: np.ndarray, possible: np.ndarray) -> Array:
        """float[documents]: how often one of two conditions [sessions, K] was true where the other one was."""
        counts = (np.bincount(self.documents[where], minlength=self.num_documents) for where in (happened, possible))
        return jnp.asarray(shrunk(Count(*counts), self.shrinkage), float)


def fit(
    name: str,
    rankings: Any,
    clicks: Any,
    num_items: int,
    *,
    queries: Any = None,
    num_queries: int | None = None,
    shrinkage: float = 2.0,
    fix_scale: bool = True,
    num_iterations: int | None = None,
    tolerance: float = 1e-6,
    progress: bool = True,
) -> ClickModel:
    """A click model fitted to sessions by maximum likelihood.

    - "cm": counting; a session ends at its first click.
    - "dcm": counting, as if the user examined the positions down to the last click (all positions, if there is no
      click) and no further (Guo et al., WSDM 2009); then EM. Counting alone overestimates α and v, because it leaves
      out the items that the user examined below the last click. ``num_iterations=0`` stops after counting. v_K is not
      identified: as in counting, the user is taken to leave after a click at K.
    - "sdbn": counting in the same way (Chapelle and Zhang, WWW 2009, Algorithm 1), then EM.
    - "pbm", "ubm": EM. Only products α·χ are identified: χ_1 = 1 (for UBM, γ of the first position) fixes the scale.
    - "trust": EM. Only χ·(1 − (1 − α)(1 − t)) is identified: χ_1 = 1 and t_K = 0 fix the scales, so that trust is
      measured against that in the last position.
    - "dbn", "ccm": EM. The log has no information on what follows a click at the last position. So these clicks do not
      count for the satisfaction or for τ2 and τ3.
    - "gctr", "rctr", "dctr", "rdctr": counting, of all clicks, by rank, by document, and by both.

    All parameters but α (σ of DBN and SDBN, ρ of RDCTR) are shared by all queries: (1 + happened) / (2 + possible). α
    and σ of a document are shrunk towards the mean m of all documents: (s·m + happened) / (s + possible). So a document
    that was shown twice is about halfway, and one that its query never showed is the mean.

    Args:
      name: one of these names.
      rankings: int [sessions, K], items from 0 to ``num_items`` − 1, top first.
      clicks: bool [sessions, K].
      num_items: L.
      queries: int [sessions], the query of each session; then attraction is [queries, L]. One query by default.
      num_queries: the number of queries; the largest of ``queries`` + 1 by default.
      shrinkage: s, in observations.
      fix_scale: for "pbm", "ubm" and "trust": fix the scales there. False leaves them free: the largest χ is then 1,
        and the smallest t is 0, wherever that is. A log whose first rank is not the most examined one is likelier so.
      num_iterations: the largest number of EM iterations; by default 10,000, with a warning if they are not enough.
      tolerance: EM has converged when an iteration changes no parameter by more than this.
      progress: show a progress bar, in a terminal or in a notebook.
    """
    choice("name", name, FITS)
    most = _MOST_ITERATIONS if num_iterations is None else integer("num_iterations", num_iterations, 0)
    shrinkage, fix_scale = real("shrinkage", shrinkage, positive), switch("fix_scale", fix_scale)
    log = _checked_log(rankings, clicks, num_items, queries, num_queries, shrinkage, fix_scale)

    def climb(expect: Callable[..., Any], parameters: Any, held: Any, data: Any) -> Any:
        moved = 0.0
        with progress_bar(f"fit {name}", most, progress) as shown:
            shown.compiling()
            for done in range(0, most, _CHECK_EVERY):
                num = min(_CHECK_EVERY, most - done)
                parameters, moved = _em.repeat(expect, num, parameters, held, data, shrinkage)
                shown.at(done + num)
                if moved <= tolerance:
                    break
        if num_iterations is None and moved > tolerance:
            warnings.warn(
                f"{name} has not converged: iteration {most:,} changed a parameter by {moved:.1e}, not at most "
                f"{tolerance:.1e}",
                RuntimeWarning,
                stacklevel=3,
            )
        return parameters

    return _by_query(FITS[name](log, climb), log)


def fit_to_features(
    name: str,
    rankings: Any,
    clicks: Any,
    features: Any,
    ranker: Any,
    *,
    queries: Any = None,
    num_iterations: int = 500,
    learning_rate: float = 0.1,
    regularization: float = 1e-4,
    fix_scale: bool = True,
    seed: int = 0,
) -> tuple[ClickModel, dict[str, Any]]:
    """A click model whose documents get their parameters from features, so that rare queries share what is known.

    α (and σ) of a document is the logistic function of f(x) + b, where f is a scoring function with parameters to be
    learnt. The other parameters are fitted as in ``fit``.

    Args:
      name: "dcm", "pbm", "ubm", "trust", "dbn", "sdbn" or "ccm".
      rankings: int [sessions, K], items from 0 to L − 1, top first.
      clicks: bool [sessions, K].
      features: float [L, d], or [queries, L, d] if ``queries`` is given; finite, also of items that are never shown.
      ranker: f, one of ``jr.rankers``: any object with ``init(key, d)`` and ``apply(params, features)``.
      queries: int [sessions], the query of each session.
      num_iterations: of EM, each with one step of gradient descent.
      learning_rate: of the first step; they shrink to 0 as a cosine.
      regularization: λ of λ/2·‖θ‖², added to the mean loss.
      fix_scale: as in ``fit``.
      seed: of the scoring functions' first parameters.

    Returns:
      The click model of these queries and items, and for each parameter of documents {"ranker": θ, "bias": b}: of
      other documents it is ``jax.nn.sigmoid(ranker.apply(θ, features) + b)``.
    """
    choice("name", name, [known for known in FITS if known not in _COUNTED])
    num_iterations = integer("num_iterations", num_iterations)
    table = rectangular("features", features)
    if table.ndim != (2 if queries is None else 3) or table.dtype.kind not in "iuf" or not np.isfinite(table).all():
        raise ValueError(
            f"features must be finite numbers [L, d], or [queries, L, d] with queries; got {table.dtype} {table.shape}"
        )
    num_queries = None if queries is None else table.shape[0]
    log = _checked_log(rankings, clicks, table.shape[-2], queries, num_queries, 1.0, switch("fix_scale", fix_scale))
    found: dict[str, Any] = {}

    def climb(expect: Callable[..., Any], parameters: Any, held: Any, data: Any) -> Any:
        fitted, thetas = _em.repeat_scored(
            jax.random.key(integer("seed", seed, 0)),
            expect,
            num_iterations,
            parameters,
            held,
            data,
            jnp.asarray(table.reshape(log.num_documents, -1), float),
            ranker,
            real("learning_rate", learning_rate, positive),
            real("regularization", regularization, non_negative),
        )
        found.update(thetas)
        return fitted

    return _by_query(FITS[name](log, climb), log), found


def _checked_log(
    rankings: Any, clicks: Any, num_items: int, queries: Any, num_queries: int | None, shrinkage: float, fix_scale: bool
) -> _Log:
    rankings, clicks, owner = checked_sessions(rankings, clicks, queries)
    num_items = integer("num_items", num_items, int(rankings.max()) + 1, what=", above the largest item")
    if queries is None and num_queries is not None:
        raise ValueError(f"num_queries must be None where no queries are given; got {num_queries!r}")
    most = int(owner.max()) + 1
    if num_queries is not None:
        most = integer("num_queries", num_queries, most, what=", above the largest of queries")
    shape = (num_items,) if queries is None else (most, num_items)
    if math.prod(shape) >= 2**31:
        raise ValueError(f"num_queries × num_items must be below 2**31; got {math.prod(shape)}")
    documents = np.ascontiguousarray(owner.astype(np.int64)[:, None] * num_items + rankings, np.int32)
    return _Log(documents, clicks, shape, shrinkage, fix_scale)


def _by_query(fitted: Any, log: _Log) -> Any:
    """The model with its tables over documents in the log's shape."""
    tables = {
        name: np.reshape(value, (*log.shape, *np.shape(value)[1:]))
        for name in (*_em.OF_DOCUMENTS, "relative_rate")
        if (value := getattr(fitted, name, None)) is not None
    }
    return dataclasses.replace(fitted, **tables)


def _fit_cascade(log: _Log, climb: Climb) -> CascadeModel:
    examined = np.cumsum(log.clicks, axis=1) - log.clicks == 0
    return CascadeModel(log.rate(examined & log.clicks, examined))


def _fit_dependent_click(log: _Log, climb: Climb) -> DependentClickModel:
    by_rank = Count(log.last.sum(axis=0), log.clicks.sum(axis=0))
    counted = _em.DependentClickParameters(
        attraction=log.rate(log.clicks, log.examined_at_least), termination=jnp.asarray(smoothed(by_rank), float)
    )
    held = _em.DependentClickParameters(False, False)
    return DependentClickModel(*climb(_em.expect_dependent_click, counted, held, _walks(log)))


def _fit_places(log: _Log, climb: Climb, places: np.ndarray, num_places: int, trust: bool = False) -> Any:
    counts = _place_counts(log, places, num_places)
    options = {"trust": trust, "fix_scale": log.fix_scale}
    return climb(
        _em.expect_places, *_em.PlaceParameters.start(counts, log.num_documents, num_places, **options), counts
    )


def _fit_position_based(log: _Log, climb: Climb) -> PositionBasedModel:
    K = log.clicks.shape[1]
    return PositionBasedModel(*_fit_places(log, climb, np.broadcast_to(np.arange(K), log.clicks.shape), K)[:2])


def _fit_trust_bias(log: _Log, climb: Climb) -> TrustBiasModel:
    K = log.clicks.shape[1]
    return TrustBiasModel(*_fit_places(log, climb, np.broadcast_to(np.arange(K), log.clicks.shape), K, trust=True))


def _fit_user_browsing(log: _Log, climb: Climb) -> UserBrowsingModel:
    K = log.clicks.shape[1]
    positions = np.arange(K)
    last = np.maximum.accumulate(np.where(log.clicks, positions, -1), axis=1)
    # Place k·K + r + 1 is position k with the last click at r, and k·K is position k without a click above. So place 0
    # is the first position.
    places = positions * K + np.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=-1) + 1
    fitted = _fit_places(log, climb, places, K * K)
    return UserBrowsingModel(fitted.attraction, jnp.roll(fitted.examination.reshape(K, K), -1, axis=1))


def _fit_dynamic_bayesian(log: _Log, climb: Climb) -> DynamicBayesianModel:
    start = _em.DynamicBayesianParameters(_half(log.num_documents), _half(log.num_documents), _half())
    held = _em.DynamicBayesianParameters(False, False, False)
    return DynamicBayesianModel(*climb(_em.expect_dynamic_bayesian, start, held, _walks(log)))


def _fit_simplified_dynamic_bayesian(log: _Log, climb: Climb) -> SimplifiedDynamicBayesianModel:
    above_the_last = np.arange(log.clicks.shape[1]) < log.clicks.shape[1] - 1
    counted = _em.DynamicBayesianParameters(
        attraction=log.rate(log.clicks, log.examined_at_least),
        satisfaction=log.rate(log.last & above_the_last, log.clicks & above_the_last),
        continuation=jnp.ones(()),
    )
    held = _em.DynamicBayesianParameters(False, False, True)
    return SimplifiedDynamicBayesianModel(*climb(_em.expect_dynamic_bayesian, counted, held, _walks(log))[:2])


def _fit_click_chain(log: _Log, climb: Climb) -> ClickChainModel:
    start = _em.ClickChainParameters(_half(log.num_documents), _half(), _half(), _half())
    held = _em.ClickChainParameters(False, False, False, False)
    return ClickChainModel(*climb(_em.expect_click_chain, start, held, _walks(log)))


def _fit_global_rate(log: _Log, climb: Climb) -> GlobalClickRate:
    return GlobalClickRate(jnp.full(log.num_documents, smoothed(Count(log.clicks.sum(), log.clicks.size)), float))


def _fit_rank_rate(log: _Log, climb: Climb) -> RankClickRate:
    return RankClickRate(jnp.ones(log.num_documents), smoothed(Count(log.clicks.sum(axis=0), len(log.clicks))))


def _fit_document_rate(log: _Log, climb: Climb) -> DocumentClickRate:
    return DocumentClickRate(log.rate(log.clicks, np.ones_like(log.clicks)))


def _fit_rank_document_rate(log: _Log, climb: Climb) -> RankDocumentClickRate:
    """A rate for every document and position, shrunk towards that of the position."""
    K = log.clicks.shape[1]
    counts = np.zeros((2, log.num_documents, K))
    places = np.broadcast_to(np.arange(K), log.clicks.shape)
    np.add.at(counts[0], (log.documents[log.clicks], places[log.clicks]), 1)
    np.add.at(counts[1], (log.documents, places), 1)
    rates = np.stack([shrunk(Count(*counts[:, :, k]), log.shrinkage) for k in range(K)], axis=1)
    best = rates.max(axis=1)
    return RankDocumentClickRate(best, rates / best[:, None])


FITS: dict[str, Callable[[_Log, Climb], Any]] = {
    "cm": _fit_cascade,
    "dcm": _fit_dependent_click,
    "pbm": _fit_position_based,
    "ubm": _fit_user_browsing,
    "dbn": _fit_dynamic_bayesian,
    "ccm": _fit_click_chain,
    "sdbn": _fit_simplified_dynamic_bayesian,
    "trust": _fit_trust_bias,
    "gctr": _fit_global_rate,
    "rctr": _fit_rank_rate,
    "dctr": _fit_document_rate,
    "rdctr": _fit_rank_document_rate,
}
_COUNTED = ("cm", "gctr", "rctr", "dctr", "rdctr")


def _half(*shape: int) -> Array:
    return jnp.full(shape, 0.5, float)


def _place_counts(log: _Log, places: np.ndarray, num_places: int) -> _em.PlaceCounts:
    pairs, index = np.unique(log.documents.astype(np.int64) * num_places + places, return_inverse=True)
    shown = np.bincount(index.ravel())
    clicked = np.bincount(index.ravel(), weights=log.clicks.ravel())
    document, place = np.divmod(pairs, num_places)
    return _em.PlaceCounts(
        *(jnp.asarray(i, jnp.int32) for i in (document, place)),
        *(jnp.asarray(n, float) for n in (shown, clicked)),
    )


def _walks(log: _Log) -> _em.Walks:
    """The distinct sessions, each with the number of times that it occurred."""
    rows = np.concatenate([log.documents.view(np.uint8), np.packbits(log.clicks, axis=1)], axis=1)
    whole_rows = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]
    _, first, times = np.unique(whole_rows, return_index=True, return_counts=True)
    return _em.Walks(jnp.asarray(log.documents[first].T), jnp.asarray(log.clicks[first].T), jnp.asarray(times, float))
