"""Relevance from logged clicks, with position bias removed: what a ranker can be trained on instead of labels.

In a position-based log a document at position k is clicked with probability χ_k·α. The sum of its clicks, each weighted
with 1/χ_k, divided by the number of times that it was shown, estimates α without bias (inverse propensity weighting;
Joachims, Swaminathan, Schnabel, WSDM 2017); the plain click rate does not. A log is kept as counts by document and
position: they are all that matters here, and their size does not depend on the number of sessions.

    counts = log_clicks(key, queries, model, attraction, scores, num_sessions=100_000)
    params = jr.train(queries, jr.losses.softmax, labels=relevance(counts, fit_examination(counts)))
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models import _em
from jaxrank.click_models.evaluation import checked_sessions
from jaxrank.core.checks import below_one, integer, non_negative, open_probability, real
from jaxrank.core.pytrees import array, pytree
from jaxrank.core.types import Array, Key
from jaxrank.learning.losses import with_labels
from jaxrank.learning.relax import plackett_luce

if TYPE_CHECKING:
    from jaxrank.datasets.queries import QuerySet

_SESSIONS_AT_ONCE = 256


@pytree
class ClickCounts:
    """How often each document of a ``QuerySet`` was shown at each position, and clicked there."""

    shown: Any = array(ndim=2, dtype=jnp.int32, check=non_negative)  # int32[documents, K]
    clicked: Any = array(ndim=2, dtype=jnp.int32, check=non_negative)  # int32[documents, K]


def count_sessions(queries: "QuerySet", owner: Any, rankings: Any, clicks: Any) -> ClickCounts:
    """The counts of a log: owner [sessions], the query; rankings [sessions, K], documents of that query; clicks."""
    rankings, clicks, owner = checked_sessions(rankings, clicks, owner)
    starts = np.asarray(queries.starts)
    if owner.max() >= queries.num_queries:
        raise ValueError(f"owner must hold queries from 0 to {queries.num_queries - 1}; got {owner.max()}")
    rows = starts[owner][:, None] + rankings
    if (rows >= starts[owner + 1][:, None]).any():
        raise ValueError("rankings must hold documents of their query, counted from 0; got one beyond the last")
    shown, clicked = np.zeros((2, len(queries.grades), rankings.shape[1]), np.int32)
    place = np.broadcast_to(np.arange(rankings.shape[1]), rankings.shape)
    np.add.at(shown, (rows, place), 1)
    np.add.at(clicked, (rows, place), clicks)
    return ClickCounts(shown, clicked)


class LoggedLists(NamedTuple):
    """Sessions: what was shown, as rows of a ``QuerySet``, and what was clicked."""

    rows: Array  # int32[sessions, K], the documents shown, top first
    shown: Array  # bool[sessions, K], false below the end of a shorter list
    clicks: Array  # bool[sessions, K]

    def counts(self, num_documents: int) -> ClickCounts:
        """How often each document was shown and clicked at each position."""
        zeros = jnp.zeros((num_documents, self.rows.shape[1]), jnp.int32)
        return self.added_to(ClickCounts(zeros, zeros))

    def added_to(self, counts: ClickCounts) -> ClickCounts:
        place = jnp.broadcast_to(jnp.arange(self.rows.shape[1]), self.rows.shape)
        clicked = (self.clicks & self.shown).astype(jnp.int32)
        return ClickCounts(
            counts.shown.at[self.rows, place].add(self.shown.astype(jnp.int32)),
            counts.clicked.at[self.rows, place].add(clicked),
        )


@partial(jax.jit, static_argnames=("num_sessions", "list_size"))
def log_lists(
    key: Key,
    queries: "QuerySet",
    click_model: Any,
    labels: Array,
    scores: Array,
    *,
    num_sessions: int,
    list_size: int = 10,
) -> LoggedLists:
    """A simulated log, session by session. Arguments as in ``log_clicks``, which keeps only counts."""
    num_sessions = integer("num_sessions", num_sessions)
    K = min(integer("list_size", list_size), queries.max_documents)
    session = partial(_session, queries=queries, click_model=click_model, labels=labels, scores=scores, list_size=K)
    return jax.lax.map(session, jax.random.split(key, num_sessions), batch_size=min(_SESSIONS_AT_ONCE, num_sessions))


def _session(
    key: Key, queries: "QuerySet", click_model: Any, labels: Array, scores: Array, list_size: int
) -> LoggedLists:
    """One session: a query at random, a list of it, and the clicks on this list."""
    query_key, list_key, click_key = jax.random.split(key, 3)
    index = jax.random.randint(query_key, (), 0, queries.num_queries, jnp.int32)
    rows, where = queries.rows(index)
    ranking = plackett_luce(list_key, scores[rows], list_size=list_size, where=where)
    clicks = with_labels(click_model, labels[rows], where).sample(click_key, ranking)
    return LoggedLists(rows[ranking], where[ranking], clicks)


@partial(jax.jit, static_argnames=("num_sessions", "list_size"))
def log_clicks(
    key: Key,
    queries: "QuerySet",
    click_model: Any,
    labels: Array,
    scores: Array,
    *,
    num_sessions: int,
    list_size: int = 10,
) -> ClickCounts:
    """A simulated log: queries at random, Plackett–Luce lists of a production ranker's scores, clicks of a click model.

    Args:
      key: of all sessions.
      queries: whose documents are shown.
      click_model: how users click; the labels of a query's documents become its attraction (a ``GradedUser``'s grades).
      labels: [documents].
      scores: [documents], the production ranker's; the smaller their differences, the more lists vary.
      num_sessions: the number of sessions, rounded up to a multiple of 256.
      list_size: K, at most the number of documents of the largest query.
    """
    num_sessions = integer("num_sessions", num_sessions)
    K = min(integer("list_size", list_size), queries.max_documents)

    session = partial(_session, queries=queries, click_model=click_model, labels=labels, scores=scores, list_size=K)

    def add(counts: ClickCounts, key: Key) -> tuple[ClickCounts, None]:
        lists = jax.vmap(session)(jax.random.split(key, _SESSIONS_AT_ONCE))
        return lists.added_to(counts), None

    zeros = jnp.zeros((queries.features.shape[0], K), jnp.int32)
    keys = jax.random.split(key, -(-num_sessions // _SESSIONS_AT_ONCE))
    return jax.lax.scan(add, ClickCounts(zeros, zeros), keys)[0]


def fit_examination(counts: ClickCounts, *, shuffled: bool = False, num_iterations: int = 1000) -> Array:
    """float[K]: χ, with χ_1 = 1, from a log in which documents change their positions.

    It is fitted by the EM of the position-based model or, if the lists of the log are in uniformly random order
    (``shuffled``), computed as the click rate of each position divided by that of the first.
    """
    if shuffled:
        rate = np.asarray(counts.clicked).sum(axis=0) / np.maximum(np.asarray(counts.shown).sum(axis=0), 1)
        return jnp.asarray(rate / max(rate[0], 1e-30), float)
    return fitted_examination(counts, num_iterations)


def fitted_examination(counts: ClickCounts, num_iterations: int = 1000) -> Array:
    """float[K]: ``fit_examination`` as a pure function of arrays, to be mapped over logs."""
    return fitted_places(counts, num_iterations).examination


def fitted_places(counts: ClickCounts, num_iterations: int = 1000) -> _em.PlaceParameters:
    """α of the documents and χ of the positions by the EM of the position-based model; never shown, α is their mean."""
    log = place_counts(counts)
    start, held = _em.PlaceParameters.start(log, *counts.shown.shape)
    return _em.repeat(_em.expect_places, num_iterations, start, held, log)[0]


def place_counts(counts: ClickCounts) -> _em.PlaceCounts:
    """The counts as EM takes them: every document in every place."""
    documents, K = counts.shown.shape
    return _em.PlaceCounts(
        jnp.repeat(jnp.arange(documents, dtype=jnp.int32), K),
        jnp.tile(jnp.arange(K, dtype=jnp.int32), documents),
        counts.shown.reshape(-1).astype(float),
        counts.clicked.reshape(-1).astype(float),
    )


def relevance(counts: ClickCounts, examination: Any = None, *, noise: float = 0.0, smallest: float = 1e-3) -> Array:
    """float[documents]: ((Σ clicks/χ_k) / (times shown) − noise) / (1 − noise); 0 if never shown.

    Args:
      counts: the log.
      examination: χ [K]; without it, the result is the click rate, with its position bias.
      noise: P(click) of an irrelevant document that is looked at, if known: α = noise + (1 − noise)·relevance. The
        estimate of a document with few clicks may then be negative, which keeps it unbiased (Vardasbi, Oosterhuis, de
        Rijke, CIKM 2020, have such an affine correction for each position).
      smallest: the lower clip on χ: a larger one gives less variance and some bias.
    """
    noise, smallest = real("noise", noise, below_one), real("smallest", smallest, open_probability)
    K = counts.clicked.shape[-1]
    chi = jnp.ones(K) if examination is None else jnp.maximum(jnp.asarray(examination, float)[:K], smallest)
    if chi.shape != (K,):
        raise ValueError(f"examination must have a value for each of {K} positions; got shape {chi.shape}")
    shown = jnp.sum(counts.shown, axis=-1)
    attraction = jnp.dot(counts.clicked.astype(float), 1 / chi) / jnp.maximum(shown, 1)
    return jnp.where(shown > 0, (attraction - noise) / (1 - noise), 0)
