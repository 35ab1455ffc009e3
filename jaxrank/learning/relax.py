"""Rankings to differentiate through: soft permutations of scores, and distributions over hard ones.

A soft ranking is float[K, L]: row k has the weights of the items at position k. Click models and ``metrics.ndcg`` take
it wherever they take a hard one, int32[K] (``jr.ClickModel`` says what that means), so

    jax.grad(lambda scores: model.reward(jr.relax.sinkhorn_sort(scores, 0.1)))(scores)

is the gradient of expected clicks. Three relaxations share their arguments: scores [L]; a temperature (as it falls to
0, the soft ranking becomes the hard one); ``list_size``, K, all L by default; ``where`` bool[L], False for padding,
whose weights are 0, as are the rows beyond the number of items; and ``hard``, the straight-through estimator: the hard
ranking in the forward pass, the gradient of the soft one in the backward pass.

Which one to choose: SoftSort is the cheapest, but has no gradient where all scores are equal, as those of a linear
ranker at θ = 0 are. Only Sinkhorn's columns sum to 1: gradient ascent on clicks or gains under the other two tends to
show one good item at many positions. So the losses use Sinkhorn's.

The alternative is a distribution over hard rankings, Plackett–Luce: sampled by the Gumbel trick, with its
log-probability, and differentiated without bias by ``expected_reward``.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import integer, positive
from jaxrank.core.ranking import complete
from jaxrank.core.types import Array, Key


def soft_sort(
    scores: Array,
    temperature: Any = 1.0,
    *,
    list_size: int | None = None,
    where: Array | None = None,
    hard: bool = False,
) -> Array:
    """float[K, L]: row k is softmax(−|s_(k) − s| / τ), s_(k) the k-th highest score.

    Reference: Prillo, Eisenschlos: SoftSort: a continuous relaxation for the argsort operator. ICML 2020.
    """
    scores, K, where = _checked(scores, temperature, list_size, where)
    order = _sorted_items(scores, where)[:K]
    distance = jnp.abs(scores[order][:, None] - scores[None, :])
    return _finish(_softmax(-distance, temperature, _cells(where, K)), order, where, hard)


def neural_sort(
    scores: Array,
    temperature: Any = 1.0,
    *,
    list_size: int | None = None,
    where: Array | None = None,
    hard: bool = False,
) -> Array:
    """float[K, L]: row k is softmax(((n + 1 − 2k)·s − Σ_i |s − s_i|) / τ) over the n items.

    The logits grow with n, and so must the temperature for equal softness. In float32 they are accurate to about 1e-7·n
    times the spread of the scores.

    Reference: Grover, Wang, Zweig, Ermon: Stochastic optimization of sorting networks via continuous relaxations.
    ICLR 2019.
    """
    scores, K, where = _checked(scores, temperature, list_size, where)
    soft = _softmax(_neural_logits(scores, where)[:K], temperature, _cells(where, K))
    return _finish(soft, _sorted_items(scores, where)[:K], where, hard)


def sinkhorn_sort(
    scores: Array,
    temperature: Any = 1.0,
    *,
    list_size: int | None = None,
    where: Array | None = None,
    hard: bool = False,
    num_iterations: int = 20,
) -> Array:
    """float[K, L]: the first K rows of the doubly stochastic P that maximises Σ_kj (n + 1 − 2k)·s_j·P_kj + τ·H(P).

    H is the entropy. P is ``sinkhorn`` of NeuralSort's logits: their Σ_i |s_j − s_i| is constant in each column, so it
    does not change P, and it is a start from which few iterations are needed. Rows sum to 1, columns nearly.

    Reference: Cuturi, Teboul, Vert: Differentiable ranking and sorting using optimal transport. NeurIPS 2019.
    """
    scores, K, where = _checked(scores, temperature, list_size, where)
    L = scores.shape[0]
    soft = sinkhorn(_neural_logits(scores, where), temperature, where=_cells(where, L), num_iterations=num_iterations)
    return _finish(soft[:K], _sorted_items(scores, where)[:K], where, hard)


def sinkhorn(logits: Array, temperature: Any = 1.0, *, where: Array | None = None, num_iterations: int = 20) -> Array:
    """float[L, L]: exp(logits / τ), columns and rows scaled to sum 1 in turn ``num_iterations`` times, rows last.

    ``where`` bool[L, L] is False for padding. No iteration keeps a matrix for the gradient: the backward pass computes
    it again, so memory hardly grows with their number.

    Reference: Mena, Belanger, Linderman, Snoek: Learning latent permutations with Gumbel–Sinkhorn networks. ICLR 2018.
    """
    _check_temperature(temperature)
    allowed = jnp.ones(logits.shape, bool) if where is None else where

    @jax.checkpoint
    def iterate(rows: Array, _: None) -> tuple[Array, None]:
        columns = _log_sums(logits - rows[:, None], temperature, allowed, axis=0)
        return _log_sums(logits - columns[None, :], temperature, allowed, axis=1), None

    rows = _log_sums(logits, temperature, allowed, axis=1)
    rows, _ = jax.lax.scan(iterate, rows, length=num_iterations)
    columns = _log_sums(logits - rows[:, None], temperature, allowed, axis=0)
    return _softmax(logits - columns[None, :], temperature, allowed)


def plackett_luce(key: Key, scores: Array, *, list_size: int | None = None, where: Array | None = None) -> Array:
    """int32[K]: a sampled ranking, each item drawn with odds exp(score) from those left; padding comes last.

    Sampled by the Gumbel trick: the order of scores + noise.
    """
    scores, K, where = _checked(scores, 1.0, list_size, where)
    noisy = scores + jax.random.gumbel(key, scores.shape, scores.dtype)
    return jax.lax.top_k(jnp.where(where, noisy, -jnp.inf), K)[1].astype(jnp.int32)


def log_probability(scores: Array, ranking: Array, *, where: Array | None = None) -> Array:
    """float[]: log P(ranking) under Plackett–Luce, of a whole ranking [L] or of its first K positions [K].

    Σ_k s(R_k) − log Σ exp s over the items that are not above k. Padding adds nothing.
    """
    scores, K, where = _checked(scores, 1.0, ranking.shape[0], where)
    order = complete(ranking, scores.shape[0])
    there = where[order]
    ordered = jnp.where(there, scores[order], jnp.finfo(scores.dtype).min / 2)
    remaining = jax.lax.cumlogsumexp(ordered, reverse=True)
    return jnp.sum(jnp.where(there, ordered - remaining, 0)[:K])


def expected_reward(
    key: Key,
    reward: Callable[[Array], Array],
    scores: Array,
    *,
    num_samples: int = 16,
    list_size: int | None = None,
    where: Array | None = None,
) -> Array:
    """float[]: the mean of ``reward(ranking)`` over Plackett–Luce samples; its gradient is unbiased.

    With respect to the scores the gradient is REINFORCE's, the mean of (reward − baseline)·∇log P. The baseline of each
    sample is the mean reward of the others, which keeps the gradient unbiased (Kool, van Hoof, Welling, 2019). With
    respect to what ``reward`` closes over, it is the mean of the samples' gradients.
    """
    num_samples = integer("num_samples", num_samples, 2, what=", for a baseline")

    def draw(key: Key) -> tuple[Array, Array]:
        ranking = plackett_luce(key, jax.lax.stop_gradient(scores), list_size=list_size, where=where)
        return reward(ranking), log_probability(scores, ranking, where=where)

    rewards, log_probabilities = jax.vmap(draw)(jax.random.split(key, num_samples))
    mean = jnp.mean(rewards)
    advantage = jax.lax.stop_gradient(rewards - mean) * (num_samples / (num_samples - 1))  # r − mean of the others
    surrogate = jnp.mean(advantage * log_probabilities)
    return mean + surrogate - jax.lax.stop_gradient(surrogate)


def _checked(scores: Array, temperature: Any, list_size: int | None, where: Array | None) -> tuple[Array, int, Array]:
    """The scores (0 for padding), K, and the mask (False for padding)."""
    if scores.ndim != 1 or not jnp.issubdtype(scores.dtype, jnp.floating):
        raise ValueError(f"scores must be floats of shape [items]; got {scores.dtype} of shape {scores.shape}")
    L = scores.shape[0]
    list_size = L if list_size is None else integer("list_size", list_size, 1, L, " items")
    if where is not None and (where.shape != scores.shape or where.dtype != bool):
        raise ValueError(f"where must be booleans of shape {scores.shape}; got {where.dtype} of shape {where.shape}")
    _check_temperature(temperature)
    if where is None:
        return scores, list_size, jnp.ones(L, bool)
    return jnp.where(where, scores, 0), list_size, where


def _check_temperature(temperature: Any) -> None:
    if not isinstance(temperature, jax.core.Tracer):
        allowed, rule = positive(np.asarray(temperature))
        if not np.all(allowed):
            raise ValueError(f"temperature must be {rule}; got {temperature!r}")


def _sorted_items(scores: Array, where: Array) -> Array:
    """int32[L]: best first, equal scores in item order, padding last."""
    return jnp.argsort(jnp.where(where, scores, -jnp.inf), descending=True, stable=True).astype(jnp.int32)


def _cells(where: Array, K: int) -> Array:
    """bool[K, L]: True where the position is at most the number of items and the item is not padding."""
    return (jnp.arange(K) < jnp.sum(where))[:, None] & where[None, :]


def _neural_logits(scores: Array, where: Array) -> Array:
    """float[L, L]: (n + 1 − 2k)·s_j − Σ_i |s_j − s_i|."""
    # Centred scores round less; a shift of the scores only adds a constant to each row.
    n = jnp.sum(where)
    centre = jax.lax.stop_gradient(jnp.sum(scores) / jnp.maximum(n, 1))
    scores = jnp.where(where, scores - centre, 0)
    distance = jnp.where(where[None, :], jnp.abs(scores[:, None] - scores[None, :]), 0)
    slope = (n + 1 - 2 * jnp.arange(1, scores.shape[0] + 1)).astype(scores.dtype)
    return slope[:, None] * scores[None, :] - jnp.sum(distance, axis=1)[None, :]


def _exponentials(logits: Array, temperature: Any, where: Array, axis: int) -> tuple[Array, Array]:
    """exp((logits − highest) / τ), 0 where not allowed, and the highest, subtracted so that nothing overflows."""
    highest = jnp.max(logits, axis=axis, keepdims=True, where=where, initial=jnp.finfo(logits.dtype).min)
    highest = jax.lax.stop_gradient(highest)
    below = jnp.where(where, logits - highest, 0)
    return jnp.where(where, jnp.exp(below / temperature), 0), highest


def _softmax(logits: Array, temperature: Any, where: Array) -> Array:
    """Rows that sum to 1 over ``where``; a row with nothing allowed is 0."""
    weights, _ = _exponentials(logits, temperature, where, axis=1)
    total = jnp.sum(weights, axis=1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _log_sums(logits: Array, temperature: Any, where: Array, axis: int) -> Array:
    """τ·log Σ exp(logits / τ) over ``axis``; 0 where nothing is allowed."""
    weights, highest = _exponentials(logits, temperature, where, axis)
    total, some = jnp.sum(weights, axis=axis), jnp.any(where, axis=axis)
    return jnp.where(some, jnp.squeeze(highest, axis) + temperature * jnp.log(jnp.where(some, total, 1)), 0)


def _finish(soft: Array, order: Array, where: Array, hard: bool) -> Array:
    if not hard:
        return soft
    one_hot = jnp.where(where[order][:, None], jax.nn.one_hot(order, soft.shape[1], dtype=soft.dtype), 0)
    return one_hot + (soft - jax.lax.stop_gradient(soft))
