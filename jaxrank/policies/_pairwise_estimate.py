"""PairRank's estimate θ̂ and its confidence matrix M, after every step and at a bounded cost (eq. 1, lines 9 and 10).

Eq. 1 is the loss of a logistic regression on all pairs x_ij so far, with i the clicked document and at most n pairs a
step: Σ log(1 + exp(−x_ijᵀθ)) + λ/2·‖θ‖². Its minimiser is θ̂, and M = λI + Σ x_ij x_ijᵀ. The released code minimises
the mean of the losses plus λ·‖θ‖² instead: eq. 1 with the ridge 2λ·(the number of pairs so far) in the place of λ.
Minimising from scratch at every step would take many passes over all pairs. Instead:

- Most steps replace the pairs up to an earlier step, the anchor, by their second-order expansion around the anchor's θ:
  by a gradient and a Hessian. The pairs since then are taken as they are. Newton's method minimises the sum of both,
  from the last θ̂. The error of θ̂ is due to the change of the older pairs' Hessian since the anchor; the tests state how
  small it is. Measured once on real data with d = 207, it was 2e-4 in the worst coordinate with λ = 10, and 0.07 with
  λ = 0.1 and few pairs.
- The anchor moves at every step at first; later, after at most 1/64 of the steps so far; and in the end every 64 steps.
  A move is Newton's method on eq. 1 itself, with passes over all pairs for the gradient. The Hessian of all pairs takes
  d times the work of a gradient. So it is computed anew less often: after at most 1/32 of the steps so far, and in the
  end every 256 steps. In between, the new pairs are added to it. With an exact gradient, the Hessian decides only
  how fast Newton's method converges.
- Newton's steps are damped, so that they never increase the loss (Sun and Tran-Dinh, Math. Programming 2019, for losses
  like the logistic one): a step that changes the logit of a pair by r at most is shortened to log(1 + r)/r of its
  length. Their linear systems are solved by conjugate gradients, preconditioned by M⁻¹, or by the Hessian's diagonal if
  the ridge grows, for the Hessian is then far from M but close to a multiple of the identity.
- Memory does not grow with the number of steps. The pairs of the last ``window`` steps are stored. An older pair is
  replaced by its second-order expansion around the θ̂ of the step in which it leaves the window, ``window`` steps after
  it was observed. So θ̂ is that of eq. 1 for the first ``window`` steps. After that its error is the sum over older
  pairs of at most (the change of the pair's logit since it left)²/(12√3), as a change of the gradient. Measured once,
  on MSLR-WEB with perfect users, λ = 1 and the default window of 2,048, θ̂ was off by 0.9 % of its length after 5,000
  steps.
- Of M only a root S of its inverse is kept, SSᵀ = M⁻¹, and updated by each step's pairs (Potter's square-root filter).
  Rounding of M⁻¹ itself can leave it a negative eigenvalue, which later pairs make larger without bound; Newton's
  iteration for inverses would add more rounding if M is ill-conditioned, and with d = 207 and λ = 0.001 it reached NaN
  within 15 steps. SSᵀ never has one, and every pair shrinks the errors of S along it as it shrinks S.
  Nothing is factored: products of matrices run batched on any device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.numerics import CompensatedSum
from jaxrank.core.types import Array
from jaxrank.core.window import put_rows, take_rows

_SPAN = 64  # the most steps between two anchors; a pass over the pairs takes those of this many steps at a time
_AT_ANCHORS, _BETWEEN = (60, 1e-2), (10, 1e-2)  # conjugate gradients: the most iterations, and the relative tolerance


class PairwiseEstimate(NamedTuple):
    """θ̂ and M, and what the next steps need to update them. A pair is a row x_ij; a row of 0 is no pair."""

    theta: Array  # float[d], θ̂
    root: Array  # float[d, d], S with SSᵀ = M⁻¹
    root_error: Array  # float[d, d], its excess, without which it would stop to shrink after some 10⁶ steps
    log_det: Array  # float[], log(det M / det λI)
    log_det_error: Array  # float[], its excess, without which it would stop to grow after some 10⁶ steps
    anchor: Array  # float[d], the θ of the anchor
    gradient: Array  # float[d], of the losses at the anchor, over the pairs up to it
    hessian: Array  # float[d, d], likewise
    recent: Array  # float[64·n, d], the pairs since the anchor
    recent_hessian: Array  # float[d, d], their Hessian, each pair's at the θ̂ before its step
    pairs: Array  # float[window·n, d], the pairs of the last steps, those of step t from row n·(t mod window) on
    leaving: Array  # float[n, d], the rows of ``pairs`` that the next step replaces
    old_hessian: Array  # float[d, d], H of all older pairs, whose part of eq. 1 is ½·θᵀHθ − slopeᵀθ
    old_slope: Array  # float[d], their slope
    num_pairs: Array  # int32[], the number of pairs so far


def initial_estimate(num_features: int, num_pairs: int, window: int, regularization: Array) -> PairwiseEstimate:
    """The estimate before the first step: θ̂ = 0 and M = λI.

    Args:
      num_features: d.
      num_pairs: n, the most pairs of a step.
      window: the number of steps whose pairs are stored; rounded up to a multiple of 64.
      regularization: λ of M.
    """
    d, eye = num_features, jnp.eye(num_features)
    return PairwiseEstimate(
        theta=jnp.zeros(d),
        root=eye / jnp.sqrt(regularization),
        root_error=jnp.zeros((d, d)),
        log_det=jnp.zeros(()),
        log_det_error=jnp.zeros(()),
        anchor=jnp.zeros(d),
        gradient=jnp.zeros(d),
        hessian=jnp.zeros((d, d)),
        recent=jnp.zeros((_SPAN * num_pairs, d)),
        recent_hessian=jnp.zeros((d, d)),
        pairs=jnp.zeros((-(-window // _SPAN) * _SPAN * num_pairs, d)),
        leaving=jnp.zeros((num_pairs, d)),
        old_hessian=jnp.zeros((d, d)),
        old_slope=jnp.zeros(d),
        num_pairs=jnp.int32(0),
    )


def add_pairs(
    estimate: PairwiseEstimate, pairs: Array, step: Array, regularization: Array, loss: str
) -> PairwiseEstimate:
    """The estimate after a step with the pairs float[n, d].

    Args:
      estimate: the one before the step.
      pairs: the step's pairs. Of two documents with the same features there is none.
      step: 1, 2, …, the same in every lane.
      regularization: λ of eq. 1, or of the mean loss.
      loss: "sum" or "mean".
    """
    num_pairs = estimate.num_pairs + jnp.sum(jnp.any(pairs != 0, axis=1), dtype=jnp.int32)
    estimate = _add_to_window(estimate._replace(num_pairs=num_pairs), pairs, step)
    ridge = ridge_of(estimate, regularization, loss)
    estimate = _add_to_m(estimate, pairs)
    estimate = _add_to_recent(estimate, pairs, step)
    # As the step is the same in every lane, this stays a branch under vmap.
    solution = jax.lax.cond(
        _due(step, 6, _SPAN),
        lambda: _move_anchor(estimate, step, ridge, loss),
        lambda: _follow(estimate, ridge, loss),
    )
    return estimate._replace(**solution._asdict())


def projected(estimate: PairwiseEstimate, regularization: Array, loss: str, radius: Array) -> Array:
    """float[d]: θ̂, moved to ‖θ‖ ≤ ``radius`` where it is outside, as in eq. 4 but for one linearisation.

    Eq. 4 minimises ‖g(θ) − g(θ̂)‖ in the norm of M⁻¹, where g is the gradient of eq. 1 up to a constant. With the
    Hessian H at θ̂ in the place of g's changes, that is (θ − θ̂)ᵀHM⁻¹H(θ − θ̂), whose minimiser in a ball is
    (HM⁻¹H + μI)⁻¹HM⁻¹Hθ̂ with the μ that brings its length to the radius. Where it halved θ̂'s length, in one small
    example, what eq. 4 minimises was 14 % above its minimum.
    """
    hessian = _ridged(estimate.hessian + estimate.recent_hessian, ridge_of(estimate, regularization, loss))
    rooted = hessian @ estimate.root
    values, vectors = jnp.linalg.eigh(rooted @ rooted.T)
    values, along, length = jnp.maximum(values, 0), vectors.T @ estimate.theta, jnp.linalg.norm(estimate.theta)

    def shrunk(mu: Array) -> Array:
        return along * values / jnp.maximum(values + mu, jnp.finfo(values.dtype).tiny)

    def bisect(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        outside = jnp.linalg.norm(shrunk(middle)) > radius
        return jnp.where(outside, middle, low), jnp.where(outside, high, middle)

    highest = jnp.max(values) * length / radius  # every direction is then shortened enough
    _, mu = jax.lax.fori_loop(0, 60, bisect, (jnp.zeros_like(highest), highest))
    return jnp.where(length > radius, vectors @ shrunk(mu), estimate.theta)


def ridge_of(estimate: PairwiseEstimate, regularization: Array, loss: str) -> Array:
    """The weight of ½‖θ‖² in eq. 1's terms."""
    return 2 * regularization * estimate.num_pairs if loss == "mean" else regularization


def _add_to_window(estimate: PairwiseEstimate, pairs: Array, step: Array) -> PairwiseEstimate:
    """Stores the new pairs in place of the oldest ones, of which the expansion around θ̂ is kept."""
    n = pairs.shape[0]
    window = estimate.pairs.shape[0] // n
    leaving = estimate.leaving
    z = leaving @ estimate.theta
    curvature = _curvature(z)
    # The new pairs are written before the next step's leaving pairs are read: otherwise XLA copies the whole window.
    stored = put_rows(estimate.pairs, pairs, n * (step % window))
    return estimate._replace(
        pairs=stored,
        leaving=take_rows(stored, n * ((step + 1) % window), n),
        old_hessian=estimate.old_hessian + _gram(leaving, curvature),
        old_slope=estimate.old_slope + (curvature * z + jax.nn.sigmoid(-z)) @ leaving,
    )


def _add_to_m(estimate: PairwiseEstimate, pairs: Array) -> PairwiseEstimate:
    """Line 10."""
    change, growth = root_change(estimate.root, pairs)
    root = CompensatedSum(estimate.root, estimate.root_error).add(change)
    log_det = CompensatedSum(estimate.log_det, estimate.log_det_error).add(growth)
    return estimate._replace(root=root.total, root_error=root.error, log_det=log_det.total, log_det_error=log_det.error)


def _add_to_recent(estimate: PairwiseEstimate, pairs: Array, step: Array) -> PairwiseEstimate:
    """Adds the new pairs to those since the anchor."""
    return estimate._replace(
        recent=put_rows(estimate.recent, pairs, pairs.shape[0] * (step % _SPAN)),
        recent_hessian=estimate.recent_hessian + _gram(pairs, _curvature(pairs @ estimate.theta)),
    )


class _Solution(NamedTuple):
    """The fields of the estimate that a new θ̂ changes; without the window, so that no branch has to return it."""

    theta: Array
    anchor: Array
    gradient: Array
    hessian: Array
    recent: Array
    recent_hessian: Array


def _follow(estimate: PairwiseEstimate, ridge: Array, loss: str) -> _Solution:
    """Newton's method on the expansion around the anchor plus the pairs since then."""
    recent, hessian = estimate.recent, _ridged(estimate.hessian + estimate.recent_hessian, ridge)
    precondition = _preconditioner(hessian, estimate.root, loss)

    def newton(_: Array, theta: Array) -> Array:
        wrong = jax.nn.sigmoid(-(recent @ theta))
        gradient = estimate.gradient + estimate.hessian @ (theta - estimate.anchor) + ridge * theta - wrong @ recent
        change = _solve(hessian, precondition, -gradient, *_BETWEEN)
        return theta + _damping(jnp.max(jnp.abs(recent @ change))) * change

    theta = jax.lax.fori_loop(0, 2, newton, estimate.theta)
    return _Solution(theta, *(getattr(estimate, name) for name in _Solution._fields[1:]))


def _move_anchor(estimate: PairwiseEstimate, step: Array, ridge: Array, loss: str) -> _Solution:
    """Newton's method on eq. 1 itself. The new anchor is the θ before its last step."""
    span = estimate.recent.shape[0]  # rows
    num_filled = jnp.minimum(step // _SPAN + 1, estimate.pairs.shape[0] // span)
    anew = _due(step, 5, 256)

    def over_pairs(add: Any, first: Array) -> Array:
        """Accumulates ``add`` over the stored pairs, a span of steps at a time."""
        return jax.lax.fori_loop(
            0, num_filled, lambda i, total: add(total, take_rows(estimate.pairs, i * span, span)), first
        )

    def hessian_at(theta: Array) -> Array:
        return over_pairs(lambda total, x: total + _gram(x, _curvature(x @ theta)), estimate.old_hessian)

    def gradient_at(theta: Array) -> Array:
        return over_pairs(
            lambda total, x: total - jax.nn.sigmoid(-(x @ theta)) @ x, estimate.old_hessian @ theta - estimate.old_slope
        )

    def largest_logit(change: Array) -> Array:
        return over_pairs(lambda most, x: jnp.maximum(most, jnp.max(jnp.abs(x @ change))), jnp.zeros_like(change[0]))

    def newton(number: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        theta, _, _, hessian = carry
        recompute = anew & ((number == 0) | (step < 4 * _SPAN))
        hessian = jax.lax.cond(recompute, lambda: hessian_at(theta), lambda: hessian)
        gradient = gradient_at(theta)
        ridged = _ridged(hessian, ridge)
        precondition = _preconditioner(ridged, estimate.root, loss)
        change = _solve(ridged, precondition, -gradient - ridge * theta, *_AT_ANCHORS)
        return theta + _damping(largest_logit(change)) * change, theta, gradient, hessian

    first = (estimate.theta, estimate.anchor, estimate.gradient, estimate.hessian + estimate.recent_hessian)
    theta, anchor, gradient, hessian = jax.lax.fori_loop(0, jnp.where(step < _SPAN, 6, 3), newton, first)
    none = jnp.zeros_like(estimate.recent), jnp.zeros_like(estimate.recent_hessian)
    return _Solution(theta, anchor, gradient, hessian, *none)


def _due(step: Array, shift: int, most: int) -> Array:
    """bool[]: does the step complete a period?

    The period is 1 at first, then a power of 2 that is at most 2^−shift of the steps so far, and ``most`` in the end.
    """
    period = jnp.int32(1) << jnp.clip(31 - jax.lax.clz(jnp.maximum(step, 1)) - shift, 0, most.bit_length() - 1)
    return step % period == 0


def _curvature(logits: Array) -> Array:
    """The second derivative of a pair's loss log(1 + exp(−z)), which is σ(z)·σ(−z)."""
    return jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)


def _gram(rows: Array, weights: Array) -> Array:
    """float[d, d]: Σ w·xxᵀ over the rows x [n, d] with weights w [n]."""
    return (rows * weights[:, None]).T @ rows


def _ridged(hessian: Array, ridge: Array) -> Array:
    return hessian + ridge * jnp.eye(hessian.shape[0])


def _preconditioner(hessian: Array, root: Array, loss: str) -> Callable[[Array], Array]:
    """A cheap approximation of H⁻¹·v.

    M⁻¹ removes most of the Hessian's spread, for H is M with every pair weighted by its curvature; with a ridge that
    grows, the ridge is most of H, and so of its diagonal.
    """
    if loss == "sum":
        return lambda v: root @ (v @ root)
    diagonal = jnp.diagonal(hessian)
    return lambda v: v / jnp.where(diagonal > 0, diagonal, 1)


def _damping(reach: Array) -> Array:
    """log(1 + r)/r, which is 1 at r = 0."""
    return jnp.where(reach > 1e-4, jnp.log1p(reach) / jnp.maximum(reach, 1e-4), 1)


def _solve(
    hessian: Array, precondition: Callable[[Array], Array], target: Array, max_iterations: int, tolerance: float
) -> Array:
    """float[d]: H⁻¹·target by conjugate gradients, until the residual is ``tolerance`` times the target.

    The preconditioner gives the norm of the residual.
    """

    def ratio(above: Array, below: Array) -> Array:
        return jnp.where(below > 0, above / jnp.where(below > 0, below, 1), 0)

    def continues(carry: Any) -> Array:
        number, *_, product = carry
        return (number < max_iterations) & (product > tolerance**2 * whole)

    def iterate(carry: Any) -> Any:
        number, solution, residual, direction, product = carry
        bent = hessian @ direction
        length = ratio(product, direction @ bent)
        residual = residual - length * bent
        towards = precondition(residual)
        new = residual @ towards
        return number + 1, solution + length * direction, residual, towards + ratio(new, product) * direction, new

    first = precondition(target)
    whole = target @ first
    start = (jnp.int32(0), jnp.zeros_like(target), target, first, whole)
    return jax.lax.while_loop(continues, iterate, start)[1]


def root_change(root: Array, rows: Array) -> tuple[Array, Array]:
    """The change of S [d, d] with SSᵀ = A⁻¹ when A grows by Σxxᵀ over a few rows x [n, d], and the growth of log det A.

    A row x changes S by −γ·Sv·vᵀ, with v = Sᵀx, r² = 1 + vᵀv and γ = 1/(r² + r) (Potter, 1963). The rows follow one
    another, but on vectors alone: the matrix is read twice and its change written once.
    """
    rows_v = rows @ root  # Sᵀx, of the S before all rows
    rows_sv = rows_v @ root.T
    old: list[Array] = []  # Sv, of the S before all rows
    vs: list[Array] = []
    sides: list[Array] = []  # γ·Sv, of the S before the row
    gains: list[Array] = []
    for k in range(rows.shape[0]):
        v, sv = rows_v[k], rows_sv[k]
        for j in range(k):
            overlap = jnp.dot(sides[j], rows[k])
            v, sv = v - overlap * vs[j], sv - overlap * old[j]
        old.append(sv)
        for j in range(k):
            sv = sv - jnp.dot(vs[j], v) * sides[j]
        gains.append(jnp.dot(v, v))
        vs.append(v)
        sides.append(sv / (1 + gains[-1] + jnp.sqrt(1 + gains[-1])))
    return -jnp.stack(sides).T @ jnp.stack(vs), jnp.sum(jnp.log1p(jnp.stack(gains)))
