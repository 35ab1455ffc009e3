"""Relevance from logged clicks, with position bias removed: what a ranker can be trained on instead of labels.

In a position-based log a document at position k is clicked with probability χ_k·α. The sum of its clicks, each weighted
with 1/χ_k, divided by the number of times that it was shown, estimates α without bias (inverse propensity weighting;
Joachims, Swaminathan, Schnabel, WSDM 2017); the plain click rate does not. A log is kept as counts by document and
position: they are all that matters here, and their size does not depend on the number of sessions.

    counts = log_clicks(key, queries, model, attraction, scores, num_sessions=100_000)
    params = jr.train(queries, jr.losses.softmax, labels=relevance(counts, fit_examination(counts)))
"""

from functools import partial
from typing import TYPE_CHECKING, Any

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

    def session(key: Key) -> tuple[Array, Array, Array]:
        query_key, list_key, click_key = jax.random.split(key, 3)
        index = jax.random.randint(query_key, (), 0, queries.num_queries, jnp.int32)
        rows, where = queries.rows(index)
        ranking = plackett_luce(list_key, scores[rows], list_size=K, where=where)
        clicks = with_labels(click_model, labels[rows], where).sample(click_key, ranking)
        return rows[ranking], where[ranking], clicks

    def add(counts: ClickCounts, key: Key) -> tuple[ClickCounts, None]:
        rows, there, clicks = jax.vmap(session)(jax.random.split(key, _SESSIONS_AT_ONCE))
        place = jnp.broadcast_to(jnp.arange(K), rows.shape)
        shown = counts.shown.at[rows, place].add(there.astype(jnp.int32))
        return ClickCounts(shown, counts.clicked.at[rows, place].add((clicks & there).astype(jnp.int32))), None

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
    shown, clicked = np.asarray(counts.shown), np.asarray(counts.clicked)
    document, place = np.nonzero(shown)
    log = _em.PlaceCounts(
        *(jnp.asarray(i, jnp.int32) for i in (document, place)),
        *(jnp.asarray(n[document, place], float) for n in (shown, clicked)),
    )
    start, held = _em.PlaceParameters.start(log, *shown.shape)
    return _em.repeat(_em.expect_places, num_iterations, start, held, log)[0].examination


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
