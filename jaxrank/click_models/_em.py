"""Expectation–maximisation (EM): from parameters and a click log to better parameters.

An expectation is one pass over the log. For the event of each parameter it counts how often it could have happened and
how often it did, as far as the clicks say (``Count``); the next value is their ratio, smoothed. Here α is over
documents, which are (query, item) pairs.

- A parameter of all queries becomes (1 + happened) / (2 + possible).
- A parameter of documents is shrunk towards the mean m of all of them, (s·m + happened) / (s + possible): a document
  that was rarely shown is near the mean, and one that never was is the mean.
- Or it is not a table: a scoring function of the document's features, which takes a gradient step instead.
- A parameter that is ``held`` keeps the value that it starts with.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrank.click_models._chain import Chain
from jaxrank.core.types import Array, Key

OF_DOCUMENTS = ("attraction", "satisfaction")  # the parameters that every document has its own value of
_TINY = 1e-30
_FREE_ITERATIONS = 50


class Count(NamedTuple):
    """How often the event of a parameter happened, and how often it could have; both in the parameter's shape."""

    happened: Any
    possible: Any


def smoothed(count: Count) -> Any:
    return (1 + count.happened) / (2 + count.possible)


def shrunk(count: Count, strength: Any) -> Any:
    """The ratios of a table after ``strength`` more events that happened as often as those of all its entries."""
    mean = smoothed(Count(count.happened.sum(), count.possible.sum()))
    return (strength * mean + count.happened) / (strength + count.possible)


@partial(jax.jit, static_argnames="expect")
def repeat(
    expect: Callable[..., Any], num: int, parameters: Any, held: Any, log: Any, strength: Any = 2.0
) -> tuple[Any, Array]:
    """The parameters after ``num`` iterations, and the largest change of any parameter in the last of them."""

    def once(_: Array, states: tuple[Any, Any]) -> tuple[Any, Any]:
        now, _ = states
        return _maximised(now, held, expect(now, log), strength), now

    last, before = jax.lax.fori_loop(0, num, once, (parameters, parameters))
    moved = [jnp.max(jnp.abs(a - b)) for a, b in zip(last, before, strict=True)]
    return last, jnp.max(jnp.stack(moved))


def _maximised(now: Any, held: Any, counts: Any, strength: Any) -> Any:
    values = {}
    for name in now._fields:
        count = getattr(counts, name)
        value = shrunk(count, strength) if name in OF_DOCUMENTS else smoothed(count)
        values[name] = jnp.where(getattr(held, name), getattr(now, name), value)
    return type(now)(**values)


@partial(jax.jit, static_argnames=("expect", "ranker", "num", "learning_rate"))
def repeat_scored(
    key: Key,
    expect: Callable[..., Any],
    num: int,
    parameters: Any,
    held: Any,
    log: Any,
    features: Array,
    ranker: Any,
    learning_rate: float,
    regularization: Any,
) -> tuple[Any, dict[str, Any]]:
    """The parameters after ``num`` iterations, and the scoring functions' own: {name: {"ranker": θ, "bias": b}}.

    An iteration is an expectation, and then one step of Adam on what it says of the documents. The gradient of the
    expected likelihood is that of the likelihood itself, so no more than one step is needed.
    """
    names = [name for name in parameters._fields if name in OF_DOCUMENTS]
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num))

    def logits(theta: Any) -> Array:
        return ranker.apply(theta["ranker"], features) + theta["bias"]

    def loss(thetas: dict[str, Any], counts: Any) -> Array:
        total = jnp.zeros(())
        for name in names:
            count, f = getattr(counts, name), logits(thetas[name])
            cost = count.happened * jax.nn.softplus(-f) + (count.possible - count.happened) * jax.nn.softplus(f)
            total += jnp.sum(cost) / jnp.maximum(jnp.sum(count.possible), _TINY)
        square = sum(jnp.sum(leaf**2) for name in names for leaf in jax.tree.leaves(thetas[name]["ranker"]))
        return total + regularization / 2 * square

    def with_scores(now: Any, thetas: dict[str, Any]) -> Any:
        return now._replace(**{name: jax.nn.sigmoid(logits(thetas[name])) for name in names})

    def once(_: Array, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        now, thetas, memory = state
        counts = expect(now, log)
        updates, memory = optimizer.update(jax.grad(loss)(thetas, counts), memory, thetas)
        thetas = optax.apply_updates(thetas, updates)
        return with_scores(_maximised(now, held, counts, 1.0), thetas), thetas, memory

    thetas, first = {}, expect(parameters, log)
    for name, k in zip(names, jax.random.split(key, len(names)), strict=True):
        count = getattr(first, name)
        mean = smoothed(Count(count.happened.sum(), count.possible.sum()))  # where a constant would start
        thetas[name] = {"ranker": ranker.init(k, features.shape[-1]), "bias": jnp.log(mean / (1 - mean))}
    start = (with_scores(parameters, thetas), thetas, optimizer.init(thetas))
    now, thetas, _ = jax.lax.fori_loop(0, num, once, start)
    return now, thetas


# PBM, UBM and the trust-bias model: P(click) = χ·(α + t − α·t), where χ and t depend on the place: the position (in
# UBM, with the last click above it). t is the probability that an item that was examined and is not attractive is
# clicked for its place alone, 0 in PBM and UBM. The log enters as a table of how often each document was shown and
# clicked in each place. This is all that matters, and far smaller than the log.


class PlaceCounts(NamedTuple):
    document: Array  # int32[N]
    place: Array  # int32[N]
    shown: Array  # float[N], how often the document was shown in the place
    clicked: Array  # float[N], how often it was clicked there


class PlaceParameters(NamedTuple):
    attraction: Any  # float[documents]
    examination: Any  # float[places]
    trust: Any  # float[places]

    @classmethod
    def start(
        cls, log: PlaceCounts, num_documents: int, num_places: int, *, trust: bool = False, fix_scale: bool = True
    ) -> tuple["PlaceParameters", "PlaceParameters"]:
        """Where EM starts, and what it holds: t unless it is fitted, and one χ = 1 and one t = 0 for the scale.

        These are χ of the first place and t of the last, or else, after some iterations in which nothing is held, the
        largest χ and the smallest t. (Without any, EM would drift along a ridge of equal likelihood.)
        """
        free = jnp.full(num_places, not trust)
        start = cls(jnp.full(num_documents, 0.5), jnp.full(num_places, 0.5), jnp.where(free, 0, 0.25))
        first, last = jnp.int32(0), jnp.int32(num_places - 1)
        if not fix_scale:
            found = repeat(expect_places, _FREE_ITERATIONS, start, cls(False, False, free), log)[0]
            first, last = jnp.argmax(found.examination), jnp.argmin(found.trust)
        at_one, at_zero = jnp.arange(num_places) == first, jnp.arange(num_places) == last
        start = cls(start.attraction, jnp.where(at_one, 1, start.examination), jnp.where(at_zero, 0, start.trust))
        return start, cls(False, at_one, free | at_zero)


def expect_places(now: PlaceParameters, log: PlaceCounts) -> PlaceParameters:
    """A document was clicked if it was examined, and attracted or was trusted; given that, these are independent."""
    alpha, chi, trust = now.attraction[log.document], now.examination[log.place], now.trust[log.place]
    wanted = alpha + trust - alpha * trust
    clicked = log.clicked / jnp.maximum(wanted, _TINY)
    not_clicked = (log.shown - log.clicked) / jnp.maximum(1 - chi * wanted, _TINY)
    by_document = partial(_totals, now.attraction, log.document)
    by_place = partial(_totals, now.examination, log.place)
    shown = by_place(log.shown)
    return PlaceParameters(
        attraction=Count(by_document(clicked * alpha + not_clicked * alpha * (1 - chi)), by_document(log.shown)),
        examination=Count(by_place(log.clicked + not_clicked * chi * (1 - wanted)), shown),
        trust=Count(by_place(clicked * trust + not_clicked * trust * (1 - chi)), shown),
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
    attraction: Any  # float[documents]
    termination: Any  # float[K]


def expect_dependent_click(now: DependentClickParameters, log: Walks) -> DependentClickParameters:
    """Only leaving after the last click is hidden. After a click at the last position the user counts as having left.

    Reference: Guo et al., WSDM 2009.
    """
    attraction = now.attraction[log.document]
    going_on = jnp.broadcast_to(1 - now.termination[:, None], attraction.shape)
    walked = _walked(Chain(attraction, jnp.ones_like(attraction), going_on), log.clicks)
    left = jnp.where(walked.last, 1 - walked.went_on.at[-1].set(0), 0)
    return DependentClickParameters(
        attraction=_by_document(now.attraction, log, log.clicks, walked.looked),
        termination=Count(left @ log.times, log.clicks @ log.times),
    )


class DynamicBayesianParameters(NamedTuple):
    attraction: Any  # float[documents]
    satisfaction: Any  # float[documents]
    continuation: Any  # float[]


def expect_dynamic_bayesian(now: DynamicBayesianParameters, log: Walks) -> DynamicBayesianParameters:
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
        continuation=Count(_total(above * walked.went_on, log), _total(above * unsatisfied, log)),
    )


class ClickChainParameters(NamedTuple):
    attraction: Any  # float[documents]
    tau1: Any  # float[]
    tau2: Any  # float[]
    tau3: Any  # float[]


def expect_click_chain(now: ClickChainParameters, log: Walks) -> ClickChainParameters:
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
        tau1=Count(_total(skipped * walked.went_on, log), _total(skipped * walked.looked, log)),
        tau2=Count(_total(other_on, log), _total(other_on + other_off, log)),
        tau3=Count(_total(relevant_on, log), _total(relevant, log)),
    )


def _above_the_last(clicks: Array) -> Array:
    """bool[K, N]: true except at the last position, which carries no information about leaving."""
    return jnp.ones_like(clicks).at[-1].set(False)


def _total(events: Array, log: Walks) -> Array:
    return jnp.sum(events @ log.times)


def _by_document(like: Array, log: Walks, happened: Array, possible: Array) -> Count:
    times = log.times[None, :]
    return Count(_totals(like, log.document, happened * times), _totals(like, log.document, possible * times))


def _totals(like: Array, index: Array, values: Array) -> Array:
    """The sums of ``values`` by ``index``, in the shape of ``like``."""
    return jnp.zeros_like(like).at[index].add(values)
