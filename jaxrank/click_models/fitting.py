"""Fits click models to click logs by maximum likelihood."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrank.click_models import _em
from jaxrank.click_models._em import smoothed
from jaxrank.click_models.cascade import CascadeModel
from jaxrank.click_models.click_chain import ClickChainModel
from jaxrank.click_models.dependent_click import DependentClickModel
from jaxrank.click_models.dynamic_bayesian import DynamicBayesianModel
from jaxrank.click_models.evaluation import Evaluation, checked_sessions, evaluate
from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.click_models.user_browsing import UserBrowsingModel
from jaxrank.core.checks import choice, integer
from jaxrank.core.types import Array, ClickModel
from jaxrank.output.progress import progress_bar

__all__ = ["Evaluation", "evaluate", "fit"]

_CHECK_EVERY = 10  # iterations between two checks of the tolerance


class _Log(NamedTuple):
    documents: np.ndarray  # int32[sessions, K], query·L + item
    clicks: np.ndarray  # bool[sessions, K]
    num_documents: int

    def totals(self, where: np.ndarray) -> np.ndarray:
        """float64[documents]: how often each document was at a position where ``where`` [sessions, K] is true."""
        return np.bincount(self.documents[where], minlength=self.num_documents).astype(float)


def fit(
    name: str,
    rankings: Any,
    clicks: Any,
    num_items: int,
    *,
    queries: Any = None,
    num_queries: int | None = None,
    num_iterations: int = 1000,
    tolerance: float = 1e-6,
    progress: bool = True,
) -> ClickModel:
    """A click model fitted to sessions by maximum likelihood.

    Every ratio of counts is smoothed to (1 + numerator) / (2 + denominator).

    - "cm": counting; a session ends at its first click.
    - "dcm": counting, as if the user examined the positions down to the last click (all positions, if there is no
      click) and no further (Guo et al., WSDM 2009); then EM. Counting alone overestimates α and v, because it leaves
      out the items that the user examined below the last click. ``num_iterations=0`` stops after counting. v_K is not
      identified: as in counting, the user is taken to leave after a click at K.
    - "pbm", "ubm": EM. Only products α·χ are identified: χ_1 = 1 (for UBM, γ of the first position) fixes the scale.
    - "dbn", "ccm": EM. The log has no information on what follows a click at the last position. So these clicks do not
      count for the satisfaction or for τ2 and τ3.

    All parameters but α (and σ of DBN) are shared by all queries. An item that its query never shows gets 1/2.

    Args:
      name: "cm", "dcm", "pbm", "ubm", "dbn" or "ccm".
      rankings: int [sessions, K], items from 0 to ``num_items`` − 1, top first.
      clicks: bool [sessions, K].
      num_items: L.
      queries: int [sessions], the query of each session; then attraction is [queries, L]. One query by default.
      num_queries: the number of queries; the largest of ``queries`` + 1 by default.
      num_iterations: the largest number of EM iterations.
      tolerance: EM ends when an iteration changes no parameter by more than this.
      progress: show a progress bar, in a terminal or in a notebook.
    """
    choice("name", name, _FITS)
    num_iterations = integer("num_iterations", num_iterations, 0)
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
    log = _Log(documents, clicks, math.prod(shape))

    def climb(step: Callable[..., Any], parameters: Any, data: Any) -> Any:
        with progress_bar(f"fit {name}", num_iterations, progress) as shown:
            shown.compiling()
            for done in range(0, num_iterations, _CHECK_EVERY):
                num = min(_CHECK_EVERY, num_iterations - done)
                parameters, moved = _em.repeat(step, num, parameters, data)
                shown.at(done + num)
                if moved <= tolerance:
                    break
        return parameters

    fitted = _FITS[name](log, climb)
    over_documents = {
        f: np.reshape(getattr(fitted, f), shape) for f in ("attraction", "satisfaction") if hasattr(fitted, f)
    }
    return dataclasses.replace(fitted, **over_documents)


def _fit_cascade(log: _Log, climb: Callable[..., Any]) -> CascadeModel:
    examined = np.cumsum(log.clicks, axis=1) - log.clicks == 0
    return CascadeModel(smoothed(log.totals(examined & log.clicks), log.totals(examined)))


def _fit_dependent_click(log: _Log, climb: Callable[..., Any]) -> DependentClickModel:
    clicks_from_here = np.cumsum(log.clicks[:, ::-1], axis=1)[:, ::-1]
    examined = (clicks_from_here > 0) | ~log.clicks.any(axis=1, keepdims=True)
    last = log.clicks & (clicks_from_here == 1)
    counted = _em.DependentClickParameters(
        attraction=jnp.asarray(smoothed(log.totals(log.clicks), log.totals(examined)), float),
        termination=jnp.asarray(smoothed(last.sum(axis=0), log.clicks.sum(axis=0)), float),
    )
    return DependentClickModel(*climb(_em.dependent_click_step, counted, _walks(log)))


def _fit_position_based(log: _Log, climb: Callable[..., Any]) -> PositionBasedModel:
    K = log.clicks.shape[1]
    places = np.broadcast_to(np.arange(K), log.clicks.shape)
    return PositionBasedModel(*climb(_em.place_step, _place_start(log, K), _place_counts(log, places, K)))


def _fit_user_browsing(log: _Log, climb: Callable[..., Any]) -> UserBrowsingModel:
    K = log.clicks.shape[1]
    positions = np.arange(K)
    last = np.maximum.accumulate(np.where(log.clicks, positions, -1), axis=1)
    # Place k·K + r + 1 is position k with the last click at r, and k·K is position k without a click above. So place 0
    # is the first position.
    places = positions * K + np.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=-1) + 1
    fitted = climb(_em.place_step, _place_start(log, K * K), _place_counts(log, places, K * K))
    return UserBrowsingModel(fitted.attraction, jnp.roll(fitted.examination.reshape(K, K), -1, axis=1))


def _fit_dynamic_bayesian(log: _Log, climb: Callable[..., Any]) -> DynamicBayesianModel:
    start = _em.DynamicBayesianParameters(_half(log.num_documents), _half(log.num_documents), _half())
    return DynamicBayesianModel(*climb(_em.dynamic_bayesian_step, start, _walks(log)))


def _fit_click_chain(log: _Log, climb: Callable[..., Any]) -> ClickChainModel:
    start = _em.ClickChainParameters(_half(log.num_documents), _half(), _half(), _half())
    return ClickChainModel(*climb(_em.click_chain_step, start, _walks(log)))


_FITS: dict[str, Callable[[_Log, Callable[..., Any]], Any]] = {
    "cm": _fit_cascade,
    "dcm": _fit_dependent_click,
    "pbm": _fit_position_based,
    "ubm": _fit_user_browsing,
    "dbn": _fit_dynamic_bayesian,
    "ccm": _fit_click_chain,
}


def _half(*shape: int) -> Array:
    return jnp.full(shape, 0.5, float)


def _place_start(log: _Log, num_places: int) -> _em.PlaceParameters:
    return _em.PlaceParameters(_half(log.num_documents), _half(num_places).at[0].set(1))


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
