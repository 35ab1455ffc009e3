"""PairRank: explore only the pairs of documents whose order is uncertain (Jia et al., WWW 2021, Algorithm 1).

The ranker is a single-layer RankNet, P(i ≻ j) = σ(x_ijᵀθ), x_ij = x_i − x_j. A pair is certain if
σ(x_ijᵀθ̂) − α·‖x_ij‖ > 1/2 in the norm of M⁻¹ (line 3 misprints M), M = λI + Σ x_ij x_ijᵀ over all pairs so far.

Blocks (lines 5–6, Definition 2) need no graph search: a certain pair agrees with the order of the scores, and whatever
scores between two members of a block belongs to it, so blocks are runs of the documents sorted by score, with a
boundary after p iff every pair (i ≤ p < j) is certain. All widths at once are G = X M⁻¹ Xᵀ,
‖x_ij‖² = G_ii + G_jj − 2G_ij.

Where the paper leaves a choice:

- Feedback: examined is down to one past the last click; the pairs are those of the disjoint neighbouring positions
  (1, 2), (3, 4), … with different clicks; both documents must be there.
- α is a constant by default, as in the released code, whose value it is too. Lemma 1's α_t has k_μ/c_μ in it, which
  for features in [0, 1]^d is of the order of exp(√d): with it no pair ever becomes certain in practice.
- θ̂ (line 9) is the minimiser of eq. 1 over all pairs so far. Solving it anew in every round would cost passes over all
  pairs. Instead eq. 1 has all older pairs by its gradient and Hessian at an anchor, the second-order expansion, and the
  pairs since then as they are; a round takes Newton's steps on that sum, from the last θ̂. The anchor moves to θ̂, by
  Newton's steps with passes over all pairs, in every round at first, then each time the rounds have grown by 1.5 %, and
  every 64 rounds at last. These passes are for the gradient; the Hessian of all pairs, d times the work, is computed
  anew when the rounds have grown by 3 %, and every 256 rounds at last: it only says how far a step goes. Between
  anchors, θ̂ is off by what the older pairs' Hessian changes on the way from one; the tests state how little that is
  (with d = 207 and λ = 10 on real data, measured once: 2e-4 in the worst coordinate; with λ = 0.1 and few pairs, 0.07).
  Newton's steps are damped so that they never climb (Sun and Tran-Dinh, Math. Programming 2019, for losses like the
  logistic one): a step that changes a pair's logit by r at most is taken log(1 + r)/r of the way. Their linear systems
  are solved by conjugate gradients.
- Memory does not grow with the number of steps: the pairs of the last ``window`` steps are kept as they are. Of an
  older one, eq. 1 has its second-order expansion at the θ̂ of when it left, which had then seen ``window`` steps. So θ̂
  is that of the paper for ``window`` steps and close to it after.
- M⁻¹ is updated by each step's pairs, and rid of rounding errors by a step of Newton's iteration for inverses when the
  Hessian is computed anew. Nothing is factored: only products of matrices, which run batched on any device.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import open_probability, positive
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query
from jaxrank.policies._blocks import (
    blocks,
    by_size,
    certain_orders,
    conservative_list,
    independent_pairs,
    shuffled_blocks,
    widths,
)
from jaxrank.policies._online import documents
from jaxrank.policies._window import put_rows, take_rows

_BLOCK = 64  # steps between two anchors at most, and those whose pairs go into one matrix product in a pass
_EXACT, _CLOSE = (60, 1e-2), (10, 1e-2)  # conjugate gradients at anchors and between: how many at most, how far down


class PairRankState(NamedTuple):
    theta: Array  # float[d], θ̂
    m: Array  # float[d, d], M
    m_inverse: Array  # float[d, d]
    log_det: Array  # float[], log(det M / det λI)
    anchor: Array  # float[d], θ_a
    gradient: Array  # float[d], ∇ of eq. 1 at θ_a, of the pairs until then
    hessian: Array  # float[d, d], likewise
    recent: Array  # float[64·K/2, d], x_ij of the pairs since then
    curvature: Array  # float[d, d], their Hessian, each at the θ̂ of when it came
    pairs: Array  # float[window·K/2, d], x_ij of the last steps' pairs, the clicked document first; 0: no pair
    leaving: Array  # float[K/2, d], those of the step that the next one takes the place of
    settled_hessian: Array  # float[d, d], of the steps before
    settled_slope: Array  # float[d], what eq. 1 has of them: ½θᵀHθ − slopeᵀθ


@pytree
class PairRank:
    """PairRank: divide and conquer; random lists within the blocks of uncertain order.

    Args:
      exploration: "random" shuffles every block (PairRank_R); "conservative" keeps the certain orders within blocks
        too (PairRank_C): each position takes a uniform choice of the documents with no certain predecessor left.
      confidence: "constant" for α itself, "lemma1" for α_t of Lemma 1.
      alpha: the constant α.
      regularization: λ. The released code minimises the mean of the losses plus 0.1·‖θ‖², which is λ = 0.2 for every
        pair so far; of a constant 0.1, 1, 10 and 100, 10 had the best cNDCG in 600 steps on a sample of MSLR-WEB.
      delta: δ₁ of Lemma 1; 1/T by default (Theorem 1).
      norm_bound: Q of Lemma 1, what ‖θ‖ is assumed to be at most. Its R is 1/2, and ‖x_ij‖ ≤ √d.
      window: of how many steps the pairs are kept; K/2·d numbers a step.
      horizon: T of the default δ₁; the number of steps of the run by default.

    Reference: Jia, Wang, Guo, Wang: PairRank: online pairwise learning to rank by divide-and-conquer. WWW 2021.
    """

    exploration: str = static(default="conservative")
    confidence: str = static(default="constant")
    alpha: Any = array(ndim=0, check=positive, default=0.1)
    regularization: Any = array(ndim=0, check=positive, default=10.0)
    delta: Any = array(ndim=0, check=open_probability, default=None)
    norm_bound: Any = array(ndim=0, check=positive, default=1.0)
    window: int = static(default=2048)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def _validate(self) -> None:
        if self.exploration not in ("random", "conservative"):
            raise ValueError(f"PairRank.exploration must be 'random' or 'conservative'; got {self.exploration!r}")
        if self.confidence not in ("constant", "lemma1"):
            raise ValueError(f"PairRank.confidence must be 'constant' or 'lemma1'; got {self.confidence!r}")
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"PairRank.window must be a positive integer; got {self.window!r}")

    def init(self, key: Key, query: Query) -> PairRankState:
        d = documents(query, self)[0].shape[1]
        zeros, eye = jnp.zeros(d), jnp.eye(d)
        return PairRankState(
            theta=zeros,
            m=self.regularization * eye,
            m_inverse=eye / self.regularization,
            log_det=jnp.zeros(()),
            anchor=zeros,
            gradient=zeros,
            hessian=self.regularization * eye,
            recent=jnp.zeros((_BLOCK * (query.list_size // 2), d)),
            curvature=jnp.zeros((d, d)),
            pairs=jnp.zeros((self._num_blocks * _BLOCK * (query.list_size // 2), d)),
            leaving=jnp.zeros((query.list_size // 2, d)),
            settled_hessian=jnp.zeros((d, d)),
            settled_slope=zeros,
        )

    def rank(self, key: Key, state: PairRankState, query: Query) -> Array:
        features, mask = documents(query, self)
        conservative, K = self.exploration == "conservative", query.list_size

        def choose(mask: Array, features: Array, words: Array, theta: Array, m_inverse: Array, alpha: Array) -> Array:
            scores = features @ theta
            certain = certain_orders(scores, widths(features, m_inverse), alpha, mask)
            if conservative:
                return conservative_list(words, certain, mask)
            return shuffled_blocks(words, blocks(scores, certain, mask), mask, K)

        words = jax.random.bits(key, (K, *mask.shape) if conservative else mask.shape, jnp.uint32)
        alpha = self._alpha(state, features.shape[1])
        return by_size(choose, K, mask, features, words, state.theta, state.m_inverse, alpha)

    def update(self, key: Key, state: PairRankState, query: Query, ranking: Array, clicks: Array) -> PairRankState:
        features, mask = documents(query, self)
        pairs = independent_pairs(features[ranking], clicks, mask[ranking])
        state = self._add(self._settle(state, pairs, query.step), pairs, query.step)
        # Which step it is is the same in every lane, so that this stays a branch under vmap.
        estimate = jax.lax.cond(_due(query.step, 6, _BLOCK), self._move_anchor, _follow, state, query.step)
        return state._replace(**estimate._asdict())

    def score(self, state: PairRankState, features: Array) -> Array:
        """float[...]: scores of documents [..., d]: for probes."""
        return features @ state.theta

    def weights(self, state: PairRankState) -> Array:
        """float[d]: θ̂, for probes."""
        return state.theta

    def block_numbers(self, state: PairRankState, query: Query) -> Array:
        """int32[L]: the block of each document, 0 on top: for probes."""
        features, mask = documents(query, self)
        scores = features @ state.theta
        alpha = self._alpha(state, features.shape[1])
        return blocks(scores, certain_orders(scores, widths(features, state.m_inverse), alpha, mask), mask)

    def _alpha(self, state: PairRankState, num_features: int) -> Array:
        if self.confidence == "constant":
            return self.alpha
        steepest = 1 / 4  # k_μ
        z = self.norm_bound * jnp.sqrt(float(num_features))
        flattest = jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)  # c_μ
        delta = 1 / self.horizon if self.delta is None else self.delta
        noise = jnp.sqrt(0.25 * (state.log_det - 2 * jnp.log(delta)))
        return 2 * steepest / flattest * (noise + jnp.sqrt(self.regularization) * self.norm_bound)

    @property
    def _num_blocks(self) -> int:
        return -(-self.window // _BLOCK)

    def _settle(self, state: PairRankState, pairs: Array, step: Array) -> PairRankState:
        """Stores the new pairs in the place of the oldest, and expands those around θ̂."""
        n, window = pairs.shape[0], self._num_blocks * _BLOCK
        z = state.leaving @ state.theta  # rows of 0 settle nothing
        curvature = jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)
        # Written, and only then read, for the next step: in any other order XLA copies the whole window.
        kept = put_rows(state.pairs, pairs, n * (step % window))
        return state._replace(
            pairs=kept,
            leaving=take_rows(kept, n * ((step + 1) % window), n),
            settled_hessian=state.settled_hessian + (state.leaving * curvature[:, None]).T @ state.leaving,
            settled_slope=state.settled_slope + (curvature * z + jax.nn.sigmoid(-z)) @ state.leaving,
        )

    def _add(self, state: PairRankState, pairs: Array, step: Array) -> PairRankState:
        """Adds the new pairs to M and to those since the anchor."""
        m_inverse, gained = add_rows(state.m_inverse, pairs)
        z = pairs @ state.theta
        curvature = jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)
        return state._replace(
            m=state.m + pairs.T @ pairs,
            m_inverse=m_inverse,
            log_det=state.log_det + gained,
            recent=put_rows(state.recent, pairs, pairs.shape[0] * (step % _BLOCK)),
            curvature=state.curvature + (pairs * curvature[:, None]).T @ pairs,
        )

    def _move_anchor(self, state: PairRankState, step: Array) -> "_Estimate":
        """Newton's steps on eq. 1 itself."""
        rows = state.pairs.shape[0] // self._num_blocks
        filled = jnp.minimum(step // _BLOCK + 1, self._num_blocks)
        eye = jnp.eye(state.theta.shape[0])
        old = state.settled_hessian + self.regularization * eye
        anew = _due(step, 5, 256)

        def over_pairs(add, first):
            """``first`` plus what ``add`` has of the pairs, a block of them at a time."""
            return jax.lax.fori_loop(
                0, filled, lambda b, sums: add(sums, take_rows(state.pairs, b * rows, rows)), first
            )

        def hessian_at(theta):
            def add(hessian, x):
                z = x @ theta
                return hessian + (x * (jax.nn.sigmoid(z) * jax.nn.sigmoid(-z))[:, None]).T @ x

            return over_pairs(add, old)

        def inverse():
            refined = state.m_inverse @ (2 * eye - state.m @ state.m_inverse)
            return (refined + refined.T) / 2

        m_inverse = jax.lax.cond(anew, inverse, lambda: state.m_inverse)

        def newton(number, estimate):
            theta, _, _, hessian = estimate
            hessian = jax.lax.cond(
                anew & ((number == 0) | (step < 4 * _BLOCK)), lambda: hessian_at(theta), lambda: hessian
            )
            gradient = over_pairs(
                lambda gradient, x: gradient - jax.nn.sigmoid(-(x @ theta)) @ x, old @ theta - state.settled_slope
            )
            change = _solve(hessian, m_inverse, -gradient, _EXACT)
            reach = over_pairs(
                lambda reach, x: jnp.maximum(reach, jnp.max(jnp.abs(x @ change))), jnp.zeros_like(theta[0])
            )
            return theta + _damping(reach) * change, theta, gradient, hessian

        first = (state.theta, state.anchor, state.gradient, state.hessian + state.curvature)
        theta, anchor, gradient, hessian = jax.lax.fori_loop(0, jnp.where(step < _BLOCK, 6, 3), newton, first)
        zeros = jnp.zeros_like(state.recent), jnp.zeros_like(state.curvature)
        return _Estimate(theta, m_inverse, anchor, gradient, hessian, *zeros)


class _Estimate(NamedTuple):
    """The part of the state that an estimate of θ̂ changes."""

    theta: Array
    m_inverse: Array
    anchor: Array
    gradient: Array
    hessian: Array
    recent: Array
    curvature: Array


def _follow(state: PairRankState, step: Array) -> _Estimate:
    """Newton's steps on the anchor's expansion plus the pairs since then."""
    hessian = state.hessian + state.curvature

    def newton(_: Array, theta: Array) -> Array:
        wrong = jax.nn.sigmoid(-(state.recent @ theta))
        gradient = state.gradient + state.hessian @ (theta - state.anchor) - wrong @ state.recent
        change = _solve(hessian, state.m_inverse, -gradient, _CLOSE)
        return theta + _damping(jnp.max(jnp.abs(state.recent @ change))) * change

    theta = jax.lax.fori_loop(0, 2, newton, state.theta)
    return _Estimate(theta, *(getattr(state, name) for name in _Estimate._fields[1:]))


def _damping(reach: Array) -> Array:
    """log(1 + r)/r, 1 at r = 0."""
    return jnp.where(reach > 1e-4, jnp.log1p(reach) / jnp.maximum(reach, 1e-4), 1)


def _due(step: Array, shift: int, most: int) -> Array:
    """bool[]: at every step at first, then each time they have grown by 2^−shift at most, every ``most`` at last."""
    period = jnp.int32(1) << jnp.clip(31 - jax.lax.clz(jnp.maximum(step, 1)) - shift, 0, most.bit_length() - 1)
    return step % period == 0


def _solve(hessian: Array, m_inverse: Array, target: Array, until: tuple[int, float]) -> Array:
    """float[d]: H⁻¹·target by conjugate gradients, ``until`` so many or until so small a part of the target is left.

    With M⁻¹ as preconditioner: H is M with every pair weighted by its curvature, so M⁻¹ takes most of its spread away.
    """
    most, tolerance = until

    def ratio(above: Array, below: Array) -> Array:
        return jnp.where(below > 0, above / jnp.where(below > 0, below, 1), 0)

    def goes_on(carry: Any) -> Array:
        number, *_, product = carry
        return (number < most) & (product > tolerance**2 * whole)

    def iterate(carry: Any) -> Any:
        number, solution, residual, direction, product = carry
        bent = hessian @ direction
        length = ratio(product, direction @ bent)
        residual = residual - length * bent
        towards = m_inverse @ residual
        new = residual @ towards
        return number + 1, solution + length * direction, residual, towards + ratio(new, product) * direction, new

    first = m_inverse @ target
    whole = target @ first
    start = (jnp.int32(0), jnp.zeros_like(target), target, first, whole)
    return jax.lax.while_loop(goes_on, iterate, start)[1]


def add_rows(inverse: Array, rows: Array) -> tuple[Array, Array]:
    """(A + Σxxᵀ)⁻¹ from A⁻¹ [d, d] and a few rows x [n, d], and how much log det A grew.

    Sherman–Morrison row after row, but on the vectors alone: the matrix is read and written once.
    """
    spread = (inverse @ rows.T).T  # [n, d]
    steps: list[Array] = []
    grown: list[Array] = []
    for k in range(rows.shape[0]):
        v = spread[k]
        for u in steps:
            v = v - jnp.dot(u, rows[k]) * u
        grown.append(1 + jnp.dot(v, rows[k]))
        steps.append(v / jnp.sqrt(grown[-1]))
    vectors = jnp.stack(steps)
    return inverse - vectors.T @ vectors, jnp.sum(jnp.log(jnp.stack(grown)))
