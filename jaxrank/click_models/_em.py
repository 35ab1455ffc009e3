"""Expectation–maximisation (EM) steps: from parameters and a click log to better parameters.

Every step is one pass over the log. It sets the probability of each event to
(1 + Σ P(it happened)) / (2 + Σ P(it could have happened)), so that it never decreases the likelihood times a Beta(2, 2)
prior on every parameter. Here α is over documents, which are (query, item) pairs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.click_models._chain import Chain
from jaxrank.core.types import Array

_TINY = 1e-30


def smoothed(happened: Any, possible: Any) -> Any:
    return (1 + happened) / (2 + possible)


@partial(jax.jit, static_argnums=0)
def repeat(step: Callable[..., Any], num: int, parameters: Any, log: Any) -> tuple[Any, Array]:
    """The parameters after ``num`` steps, and the largest change of any parameter in the last of them."""

    def once(_: Array, states: tuple[Any, Any]) -> tuple[Any, Any]:
        return step(states[0], log), states[0]

    last, before = jax.lax.fori_loop(0, num, once, (parameters, parameters))
    moved = [jnp.max(jnp.abs(a - b)) for a, b in zip(last, before, strict=True)]
    return last, jnp.max(jnp.stack(moved))


# PBM and UBM: P(click) = α·χ, where χ depends on the place: the position (in UBM, with the last click above it). The
# log enters as a table of how often each document was shown and clicked in each place. This is all that matters, and
# far smaller than the log.


class PlaceCounts(NamedTuple):
    document: Array  # int32[N]
    place: Array  # int32[N], 0 is the place that is always examined
    shown: Array  # float[N], how often the document was shown in the place
    clicked: Array  # float[N], how often it was clicked there


class PlaceParameters(NamedTuple):
    attraction: Array  # float[documents]
    examination: Array  # float[places]


def place_step(now: PlaceParameters, log: PlaceCounts) -> PlaceParameters:
    """A document that was not clicked was attractive but not examined, examined but not attractive, or neither."""
    attraction, examination = now.attraction[log.document], now.examination[log.place]
    not_clicked = (log.shown - log.clicked) / jnp.maximum(1 - attraction * examination, _TINY)
    attracted = log.clicked + not_clicked * attraction * (1 - examination)
    examined = log.clicked + not_clicked * examination * (1 - attraction)
    return PlaceParameters(
        attraction=_ratio(now.attraction, log.document, attracted, log.shown),
        examination=_ratio(now.examination, log.place, examined, log.shown).at[0].set(1),
    )


# DCM, DBN and CCM: the user walks down the list and may leave. The log enters as its distinct sessions, with the number
# of times each occurred. The position axis comes first, so that an operation on one position is one on all sessions.


class Walks(NamedTuple):
    document: Array  # int32[K, N]
    clicks: Array  # bool[K, N]
    times: Array  # float[N], how often the session occurred


class _Walked(NamedTuple):
    """The probabilities of the hidden events of every session, given its clicks."""

    looked: Array  # float[K, N], P(k was examined | clicks)
    went_on: Array  # float[K, N], P(k and k + 1 were examined | clicks); meaningless at the last position
    silence_below: Array  # float[K, N], P(no click below k | k + 1 is examined), not given the clicks
    last: Array  # bool[K, N], is this the last click?


def _walked(chain: Chain, clicks: Array) -> _Walked:
    silence_below = chain.silence_below()
    going_on = jnp.where(clicks, chain.after_click, chain.after_skip)
    clicks_from_here = jnp.cumsum(clicks[::-1], axis=0)[::-1]
    silent_on = going_on * silence_below
    onward = jnp.where(clicks_from_here > clicks, 1, silent_on / jnp.maximum(1 - going_on + silent_on, _TINY))
    reached = jnp.cumprod(onward, axis=0)
    looked = jnp.concatenate([jnp.ones_like(reached[:1]), reached[:-1]])
    return _Walked(looked, reached, silence_below, clicks & (clicks_from_here == 1))


class DependentClickParameters(NamedTuple):
    attraction: Array  # float[documents]
    termination: Array  # float[K]


def dependent_click_step(now: DependentClickParameters, log: Walks) -> DependentClickParameters:
    """Only leaving after the last click is hidden. After a click at the last position the user counts as having left.

    Reference: Guo et al., WSDM 2009.
    """
    attraction = now.attraction[log.document]
    going_on = jnp.broadcast_to(1 - now.termination[:, None], attraction.shape)
    walked = _walked(Chain(attraction, jnp.ones_like(attraction), going_on), log.clicks)
    left = jnp.where(walked.last, 1 - walked.went_on.at[-1].set(0), 0)
    return DependentClickParameters(
        attraction=_by_document(now.attraction, log, log.clicks, walked.looked),
        termination=smoothed(left @ log.times, log.clicks @ log.times),
    )


class DynamicBayesianParameters(NamedTuple):
    attraction: Array  # float[documents]
    satisfaction: Array  # float[documents]
    continuation: Array  # float[]


def dynamic_bayesian_step(now: DynamicBayesianParameters, log: Walks) -> DynamicBayesianParameters:
    """After the last click the user was satisfied, left, or kept reading (Chapelle and Zhang, WWW 2009, App. A)."""
    attraction, satisfaction = now.attraction[log.document], now.satisfaction[log.document]
    going_on = jnp.full_like(attraction, now.continuation)
    walked = _walked(Chain(attraction, going_on, going_on * (1 - satisfaction)), log.clicks)
    silent = (1 - satisfaction) * (1 - going_on + going_on * walked.silence_below)
    satisfied = jnp.where(walked.last, satisfaction / jnp.maximum(satisfaction + silent, _TINY), 0)
    unsatisfied = jnp.where(log.clicks, 1 - satisfied, walked.looked)
    above = _above_the_last(log.clicks)
    return DynamicBayesianParameters(
        attraction=_by_document(now.attraction, log, log.clicks, walked.looked),
        satisfaction=_by_document(now.satisfaction, log, above * satisfied, above & log.clicks),
        continuation=smoothed(_total(above * walked.went_on, log), _total(above * unsatisfied, log)),
    )


class ClickChainParameters(NamedTuple):
    attraction: Array  # float[documents]
    tau1: Array  # float[]
    tau2: Array  # float[]
    tau3: Array  # float[]


def click_chain_step(now: ClickChainParameters, log: Walks) -> ClickChainParameters:
    """A clicked item turns out relevant with probability α; then τ3 applies, otherwise τ2 (Guo et al., WWW 2009)."""
    attraction = now.attraction[log.document]
    after_click = now.tau2 * (1 - attraction) + now.tau3 * attraction
    walked = _walked(Chain(attraction, jnp.full_like(attraction, now.tau1), after_click), log.clicks)
    above = _above_the_last(log.clicks)
    clicked, skipped = above & log.clicks, above & ~log.clicks
    on = clicked * walked.went_on / jnp.maximum(after_click, _TINY)
    off = clicked * (1 - walked.went_on) / jnp.maximum(1 - after_click, _TINY)
    relevant_on, relevant_off = on * attraction * now.tau3, off * attraction * (1 - now.tau3)
    other_on, other_off = on * (1 - attraction) * now.tau2, off * (1 - attraction) * (1 - now.tau2)
    relevant = relevant_on + relevant_off
    return ClickChainParameters(
        # Two events have probability α: a click on an examined item, and that a clicked item turns out relevant.
        attraction=_by_document(now.attraction, log, log.clicks + relevant, walked.looked + clicked),
        tau1=smoothed(_total(skipped * walked.went_on, log), _total(skipped * walked.looked, log)),
        tau2=smoothed(_total(other_on, log), _total(other_on + other_off, log)),
        tau3=smoothed(_total(relevant_on, log), _total(relevant, log)),
    )


def _above_the_last(clicks: Array) -> Array:
    """bool[K, N]: true except at the last position, which carries no information about leaving."""
    return jnp.ones_like(clicks).at[-1].set(False)


def _total(events: Array, log: Walks) -> Array:
    return jnp.sum(events @ log.times)


def _by_document(like: Array, log: Walks, happened: Array, possible: Array) -> Array:
    times = log.times[None, :]
    return _ratio(like, log.document, happened * times, possible * times)


def _ratio(like: Array, index: Array, happened: Array, possible: Array) -> Array:
    """Smoothed ratio of the sums of ``happened`` and of ``possible`` by ``index``, in the shape of ``like``."""
    zeros = jnp.zeros_like(like)
    return smoothed(zeros.at[index].add(happened), zeros.at[index].add(possible))
