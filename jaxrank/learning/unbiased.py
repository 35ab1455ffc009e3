"""Rankers from a click log with position bias: what each method takes the bias to be, and how it removes it.

| function | the bias | what is learnt |
|---|---|---|
| ``counterfactual.relevance`` | P(click at k) = χ_k·α, χ known or fitted | labels, by inverse propensity weighting |
| ``affine_relevance`` | P(click at k) = a_k·α + b_k: trust, too | labels, by the affine correction |
| ``doubly_robust_relevance`` | the same | labels: a regression, and the clicks beyond what it predicts |
| ``regression_em`` | P(click at k) = χ_k·σ(f(x)) | a ranker f and χ, by EM |
| ``dual_learning`` | the same, as softmax over a list | a ranker and a propensity model, each weighting the other |
| ``pairwise_debiasing`` | t⁺_i of a click at i, t⁻_j of none at j | a ranker and both, from pairs of positions |

Labels train a ranker by ``jr.train``. The first four take counts of clicks by document and position, the last two
sessions. All are pure functions of arrays, so that several logs can be mapped over (``jax.vmap``).

References: regression EM Wang, Golbandi, Bendersky, Metzler, Najork, WSDM 2018; dual learning Ai, Bi, Luo, Guo, Croft,
SIGIR 2018; the affine correction Vardasbi, Oosterhuis, de Rijke, CIKM 2020; pairwise debiasing Hu, Wang, Peng, Li, WWW
2019 (its LambdaMART is any ranker here); doubly robust Oosterhuis, TOIS 2023.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrank.click_models import _em
from jaxrank.core.types import Array, Key
from jaxrank.learning.counterfactual import ClickCounts, LoggedLists, place_counts
from jaxrank.learning.losses import pairwise_logistic_matrix
from jaxrank.learning.rankers import Params, Ranker, linear

if TYPE_CHECKING:
    from jaxrank.datasets.queries import QuerySet


class AffineBias(NamedTuple):
    """P(click at k) = slope_k·α + offset_k."""

    slope: Array  # float[K]
    offset: Array  # float[K]


def fit_affine(counts: ClickCounts, num_iterations: int = 1000) -> AffineBias:
    """The affine bias of a log by the EM of the trust-bias model, with χ_1 = 1 and t_K = 0.

    A log only identifies the bias up to the scale and the origin of α, on which the order of documents does not depend.
    """
    log = place_counts(counts)
    start, held = _em.PlaceParameters.start(log, *counts.shown.shape, trust=True)
    found, _ = _em.repeat(_em.expect_places, num_iterations, start, held, log)
    return AffineBias(found.examination * (1 - found.trust), found.examination * found.trust)


def affine_relevance(counts: ClickCounts, bias: AffineBias, *, smallest: float = 0.05) -> Array:
    """float[documents]: the mean of (click − b_k) / a_k; 0 if never shown (Vardasbi et al., eq. 15).

    Unbiased, and negative for some documents with few clicks.

    Args:
      counts: the log.
      bias: a and b.
      smallest: the lower clip on a: a larger one gives less variance and some bias.
    """
    beyond = counts.clicked - counts.shown * bias.offset[None, :]
    shown = jnp.sum(counts.shown, axis=-1)
    return jnp.sum(beyond / jnp.maximum(bias.slope, smallest)[None, :], axis=-1) / jnp.maximum(shown, 1)


def doubly_robust_relevance(
    counts: ClickCounts, bias: AffineBias, prediction: Array, sessions: Array, *, smallest: float = 0.01
) -> Array:
    """float[documents]: R̂ + Σ (click − a_k·R̂ − b_k) / (n·ρ), the sum over all showings (Oosterhuis, eq. 33).

    n is the number of sessions of the document's query and ρ the document's mean a_k over them, 0 where it was not
    shown: how much of it users saw. Unbiased if the bias is right where documents were shown, or else R̂ is; a document
    that was never shown has the prediction. Without a prediction, R̂ = 0, it is inverse propensity weighting by ρ.

    Args:
      counts: the log.
      bias: a and b.
      prediction: R̂ [documents], of a regression on features under the same bias, such as ``regression_em``.
      sessions: [documents], n.
      smallest: the lower clip on ρ.
    """
    beyond = counts.clicked - counts.shown * (bias.slope[None, :] * prediction[:, None] + bias.offset[None, :])
    seen = jnp.dot(counts.shown.astype(float), bias.slope, precision=jax.lax.Precision.HIGHEST)
    return prediction + jnp.sum(beyond, axis=-1) / jnp.maximum(jnp.maximum(seen, smallest * sessions), 1e-30)


class Regression(NamedTuple):
    """What regression EM has learnt."""

    theta: Params  # the ranker's parameters
    examination: Array  # float[K], χ, with χ_1 = 1
    relevance: Array  # float[documents], σ(f(x) + b)
    bias: AffineBias


def regression_em(
    key: Key,
    queries: "QuerySet",
    counts: ClickCounts,
    ranker: Ranker = linear,
    *,
    trust: bool = False,
    num_iterations: int = 500,
    learning_rate: float = 0.2,
    regularization: float = 1e-3,
) -> Regression:
    """A ranker f with relevance σ(f(x) + b), and the examination of positions, by EM (Wang et al., Algorithm 1).

    An iteration takes the expected examination and relevance of every showing, then χ from the former, and one step of
    gradient descent on the logistic regression of the latter, where the paper grows trees on samples.

    Args:
      key: of the initial parameters.
      queries: whose documents were shown.
      counts: the log.
      ranker: f.
      trust: fit trust too, as in the trust-bias model (Agarwal et al., WWW 2019).
      num_iterations: of EM.
      learning_rate: of Adam, whose steps shrink to 0 as a cosine.
      regularization: λ of λ/2·‖θ‖².
    """
    log = place_counts(counts)
    start, held = _em.PlaceParameters.start(log, *counts.shown.shape, trust=trust)
    options = (queries.features, ranker, learning_rate, regularization)
    found, thetas = _em.repeat_scored(key, _em.expect_places, num_iterations, start, held, log, *options)
    bias = AffineBias(found.examination * (1 - found.trust), found.examination * found.trust)
    return Regression(thetas["attraction"]["ranker"], found.examination, found.attraction, bias)


class _Learner(NamedTuple):
    """What a method that learns from sessions holds while it learns."""

    theta: Any  # the ranker's parameters
    bias: Any  # its idea of the bias
    memory: Any  # the optimiser's state


def dual_learning(
    key: Key,
    queries: "QuerySet",
    lists: LoggedLists,
    ranker: Ranker = linear,
    *,
    num_epochs: int = 5,
    batch_size: int = 256,
    learning_rate: float = 0.01,
    largest: float = 20.0,
    optimizer: Any = None,
) -> tuple[Params, Array]:
    """A ranker f and a propensity model g, learnt together (Ai et al., Algorithm 1).

    The ranker minimises Σ −(g_1/g_k)·log softmax(f)_k over the clicked positions k, the propensity model Σ
    −(f_1/f_k)·log softmax(g)_k, with g_1/g_k and f_1/f_k the ratios of their softmax values, taken as constants: clicks
    are weighted by the inverse of what the other one explains.

    Args:
      key: of the initial parameters and of the order of sessions.
      queries: whose documents were shown.
      lists: the sessions.
      ranker: f.
      num_epochs: the number of times that every session is seen.
      batch_size: the number of sessions of a step.
      learning_rate: of Adam, whose steps shrink to 0 as a cosine.
      largest: the upper clip on the ratios.
      optimizer: an optax optimiser instead.

    Returns:
      The ranker's parameters, and the propensities of positions relative to the first [K].
    """

    def loss(parameters: tuple[Params, Array], batch: LoggedLists) -> Array:
        theta, g = parameters
        f = ranker.apply(theta, queries.features[batch.rows])
        g = jnp.broadcast_to(g[None, :], f.shape)
        return _weighted_softmax(f, g, batch, largest) + _weighted_softmax(g, f, batch, largest)

    def step(now: _Learner, batch: LoggedLists, optimizer: Any) -> _Learner:
        parameters = (now.theta, now.bias)
        updates, memory = optimizer.update(jax.grad(loss)(parameters, batch), now.memory, parameters)
        theta, bias = optax.apply_updates(parameters, updates)
        return _Learner(theta, bias, memory)

    init_key, order_key = jax.random.split(key)
    theta, g = ranker.init(init_key, queries.num_features), jnp.zeros(lists.rows.shape[-1])
    optimizer = optimizer or _adam(lists, num_epochs, batch_size, learning_rate)
    start = _Learner(theta, g, optimizer.init((theta, g)))
    found = _epochs(order_key, lists, start, partial(step, optimizer=optimizer), num_epochs, batch_size)
    return found.theta, jnp.exp(found.bias - found.bias[0])


def _weighted_softmax(scores: Array, others: Array, batch: LoggedLists, largest: float) -> Array:
    """The mean over sessions of Σ −min(e^(others_1 − others_k), largest)·log softmax(scores)_k over clicks k."""
    weights = jax.lax.stop_gradient(jnp.minimum(jnp.exp(others[:, :1] - others), largest))
    lowest = jnp.finfo(scores.dtype).min / 2
    log_share = jax.nn.log_softmax(jnp.where(batch.shown, scores, lowest), axis=1)
    return -jnp.mean(jnp.sum(jnp.where(batch.clicks & batch.shown, weights * log_share, 0), axis=1))


def pairwise_debiasing(
    key: Key,
    queries: "QuerySet",
    lists: LoggedLists,
    ranker: Ranker = linear,
    *,
    num_epochs: int = 5,
    batch_size: int = 256,
    learning_rate: float = 0.01,
    exponent: float = 1.0,
    step_size: float = 0.05,
    smallest: float = 0.05,
    optimizer: Any = None,
) -> tuple[Params, Array, Array]:
    """A ranker from pairs of a clicked position i and another j, each weighted 1 / (t⁺_i·t⁻_j) (Hu et al., eq. 22).

    t⁺ and t⁻, 1 at the first position, are the loss of pairs with a click at i, weighted 1/t⁻, and of those without one
    at j, weighted 1/t⁺, both relative to the first position and to the power of ``exponent`` = 1/(1 + p) (eqs. 30 and
    31); as gradient descent sees a few sessions at a time, they move towards these by ``step_size``.

    Args:
      key: of the initial parameters and of the order of sessions.
      queries: whose documents were shown.
      lists: the sessions.
      ranker: f.
      num_epochs: the number of times that every session is seen.
      batch_size: the number of sessions of a step.
      learning_rate: of Adam, whose steps shrink to 0 as a cosine.
      exponent: below 1 it regularises t⁺ and t⁻ towards 1.
      step_size: of t⁺ and t⁻.
      smallest: the lower clip on t⁺ and t⁻.
      optimizer: an optax optimiser instead.

    Returns:
      The ranker's parameters, t⁺ [K] and t⁻ [K].
    """

    def by_pair(theta: Params, batch: LoggedLists) -> Array:
        """float[K, K]: the loss of pairs, a click at i and none at j, summed over sessions."""
        f = ranker.apply(theta, queries.features[batch.rows])
        clicked, not_clicked = batch.clicks & batch.shown, batch.shown & ~batch.clicks
        pairs = jax.vmap(pairwise_logistic_matrix)(f, clicked[:, :, None] & not_clicked[:, None, :])
        return jnp.sum(pairs, axis=0)

    def loss(theta: Params, bias: tuple[Array, Array], batch: LoggedLists) -> tuple[Array, Array]:
        pairs = by_pair(theta, batch)
        return jnp.sum(pairs / (bias[0][:, None] * bias[1][None, :])) / batch.rows.shape[0], pairs

    def step(now: _Learner, batch: LoggedLists, optimizer: Any) -> _Learner:
        (plus, minus), (gradient, pairs) = now.bias, jax.grad(loss, has_aux=True)(now.theta, now.bias, batch)
        updates, memory = optimizer.update(gradient, now.memory, now.theta)
        with_click = jnp.sum(pairs / minus[None, :], axis=1)
        without_click = jnp.sum(pairs / plus[:, None], axis=0)
        bias = (_moved(plus, with_click), _moved(minus, without_click))
        return _Learner(optax.apply_updates(now.theta, updates), bias, memory)

    def _moved(now: Array, losses: Array) -> Array:
        towards = (losses / jnp.maximum(losses[0], 1e-30)) ** exponent
        moved = now + step_size * jnp.where(losses[0] > 0, towards - now, 0)
        return jnp.maximum(moved, smallest).at[0].set(1)

    init_key, order_key = jax.random.split(key)
    theta, ones = ranker.init(init_key, queries.num_features), jnp.ones(lists.rows.shape[-1])
    optimizer = optimizer or _adam(lists, num_epochs, batch_size, learning_rate)
    start = _Learner(theta, (ones, ones), optimizer.init(theta))
    found = _epochs(order_key, lists, start, partial(step, optimizer=optimizer), num_epochs, batch_size)
    return found.theta, *found.bias


def _adam(lists: LoggedLists, num_epochs: int, batch_size: int, learning_rate: float) -> Any:
    num_steps = num_epochs * max(lists.rows.shape[0] // batch_size, 1)
    return optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))


def _epochs(
    key: Key,
    lists: LoggedLists,
    start: _Learner,
    step: Callable[[_Learner, LoggedLists], _Learner],
    num_epochs: int,
    batch_size: int,
) -> _Learner:
    """``step`` after ``step`` through the sessions in random order; what does not fill a batch is left out."""
    sessions = lists.rows.shape[0]
    batch_size = min(batch_size, sessions)

    def one(now: _Learner, chosen: Array) -> tuple[_Learner, None]:
        return step(now, LoggedLists(*(values[chosen] for values in lists))), None

    def epoch(now: _Learner, key: Key) -> tuple[_Learner, None]:
        order = jax.random.permutation(key, sessions)
        batches = order[: sessions // batch_size * batch_size].reshape(-1, batch_size)
        return jax.lax.scan(one, now, batches)[0], None

    return jax.lax.scan(epoch, start, jax.random.split(key, num_epochs))[0]
