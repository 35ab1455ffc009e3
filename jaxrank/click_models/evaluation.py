"""How well a click model predicts the clicks of a log."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import rectangular
from jaxrank.core.numerics import safe_log
from jaxrank.core.pytrees import leaf_axes, num_instances
from jaxrank.core.types import Array, ClickModel

_SESSIONS_AT_ONCE = 4096


class Evaluation(NamedTuple):
    """The two measures of a click model on a log."""

    log_likelihood: float  # mean over sessions of log P(all clicks of the session)
    perplexity: float  # mean over positions of perplexity_at
    perplexity_at: np.ndarray  # float64[K], 2^(−mean of log₂ P(what happened at k)), by the marginal P(click at k)


def evaluate(model: ClickModel, rankings: Any, clicks: Any, *, queries: Any = None) -> Evaluation:
    """The log-likelihood and the perplexity of a log under a click model.

    The perplexity at k is 2^(−1/S Σ_s c·log₂ p + (1−c)·log₂(1−p)) over the S sessions, where c is the click at k and p
    its marginal probability ``click_probability(ranking)[k]``. It is 1 for perfect predictions and 2 for p = 1/2. The
    overall perplexity is the mean over positions (Dupret and Piwowarski, SIGIR 2008). Probabilities are clipped to at
    least 1e-10.

    Args:
      model: a click model; with a query axis if ``queries`` is given.
      rankings: int [sessions, K].
      clicks: bool [sessions, K].
      queries: int [sessions], the row of the query axis for each session.
    """
    rankings, clicks, owner = checked_sessions(rankings, clicks, queries)
    known = num_instances(model)
    if (queries is None) != (known is None) or (known is not None and owner.max() >= known):
        rows = "no query axis" if known is None else f"a query axis of length {known}"
        raise ValueError(
            f"queries must fit the model, which has {rows}; got {'None' if queries is None else f'up to {owner.max()}'}"
        )
    num_items = model.attraction.shape[-1]
    if rankings.max() >= num_items:
        raise ValueError(f"rankings must hold items from 0 to {num_items - 1}; got {rankings.max()}")
    session, at_position = _log_probabilities(model, *(jnp.asarray(x) for x in (owner, rankings, clicks)))
    perplexity_at = np.exp(-np.asarray(at_position, np.float64).mean(axis=0))
    return Evaluation(float(np.asarray(session, np.float64).mean()), float(perplexity_at.mean()), perplexity_at)


@jax.jit
def _log_probabilities(model: Any, queries: Array, rankings: Array, clicks: Array) -> tuple[Array, Array]:
    leaves, treedef = jax.tree.flatten(model)
    axes = leaf_axes(model)

    def of_session(session: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        query, ranking, clicks = session
        lane = [leaf if axis is None else leaf[query] for leaf, axis in zip(leaves, axes, strict=True)]
        user = jax.tree.unflatten(treedef, lane)
        p = user.click_probability(ranking)
        return user.log_likelihood(ranking, clicks), jnp.where(clicks, safe_log(p), safe_log(1 - p))

    return jax.lax.map(of_session, (queries, rankings, clicks), batch_size=_SESSIONS_AT_ONCE)


def checked_sessions(rankings: Any, clicks: Any, queries: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rankings, clicks and queries as arrays; if ``queries`` is None, all sessions are of query 0."""
    rankings, clicks = rectangular("rankings", rankings), rectangular("clicks", clicks)
    owner = np.zeros(len(rankings), np.int32) if queries is None else np.asarray(queries)
    if rankings.ndim != 2 or 0 in rankings.shape:
        raise ValueError(f"rankings must have shape [sessions, K], neither of them 0; got {rankings.shape}")
    if clicks.shape != rankings.shape or clicks.dtype != bool:
        raise ValueError(f"clicks must be booleans of shape {rankings.shape}; got {clicks.dtype} {clicks.shape}")
    if owner.shape != rankings.shape[:1]:
        raise ValueError(f"queries must have shape {rankings.shape[:1]}; got {owner.shape}")
    for field, values in (("rankings", rankings), ("queries", owner)):
        if values.dtype.kind not in "iu" or values.min() < 0:
            raise ValueError(f"{field} must be non-negative integers; got {values.dtype}, least {values.min()}")
    return rankings, clicks, owner
