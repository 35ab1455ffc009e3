"""Ridge regression, one observation at a time, that stays accurate in float32 over many observations.

O = I + Σ φφᵀ and b = Σ φ·r give ŵ = O⁻¹b. Observations update O⁻¹ (Woodbury) and correct ŵ by their residuals,
which has none of the cancellation of O⁻¹b. Rounding errors accumulate, so both are
solved anew from O and b every ``RESOLVE_EVERY`` steps. O itself needs more digits than float32 has, because its entries
grow to the number of observations while its smallest eigenvalue may stay 1. So O is stored as the sum of two float32
numbers, and its products are computed to the same precision.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.numerics import solve_positive
from jaxrank.core.types import Array

RESOLVE_EVERY = 25  # steps; relative errors after 50,000 steps are below 1e-3 (tests/core/test_ridge.py)
_SPLIT = 0xFFFFF000  # mask of the upper 12 of the 24 binary digits of a float32


class Ridge(NamedTuple):
    inverse: Array  # float[p, p], O⁻¹
    weights: Array  # float[p], ŵ
    recent: Array  # float[p, p + 1], Σ φ·[φ, r] since the last solution
    high: Array  # float[p, p + 1], [O, b] at the last solution, as high + low
    low: Array  # float[p, p + 1]


def init(num_features: int) -> Ridge:
    """O = I, b = 0."""
    identity = jnp.eye(num_features)
    moments = jnp.eye(num_features, num_features + 1)
    zeros = jnp.zeros_like(moments)
    return Ridge(identity, jnp.zeros(num_features), recent=zeros, high=moments, low=zeros)


@jax.jit
def update(ridge: Ridge, features: Array, rewards: Array, step: Array) -> Ridge:
    """Adds the observations ``features`` [K, p], ``rewards`` [K]. A row of zeros changes nothing.

    ``step`` counts 1, 2, …, the same in every lane.
    """

    # The rank-one updates of all observations at once (Woodbury): O⁻¹ − Dᵀ(I + D·Fᵀ)⁻¹D, D = F·O⁻¹.
    features, rewards = features.astype(ridge.inverse.dtype), rewards.astype(ridge.inverse.dtype)
    directions = _dot(features, ridge.inverse)
    residuals = rewards - _dot(features, ridge.weights)
    system = jnp.eye(features.shape[0]) + _dot(directions, features.T)
    gains = solve_positive(system, jnp.concatenate([directions, residuals[:, None]], axis=1))
    change = _dot(directions.T, gains)
    moments = _dot(features.T, jnp.concatenate([features, rewards[:, None]], axis=1))
    inverse, weights = ridge.inverse - change[:, :-1], ridge.weights + change[:, -1]
    ridge = ridge._replace(inverse=inverse, weights=weights, recent=ridge.recent + moments)
    return rarely(step % RESOLVE_EVERY == 0, solve, ridge)


def gram(ridge: Ridge) -> Array:
    """float[p, p]: O, rounded."""
    return (ridge.high + (ridge.low + ridge.recent))[:, :-1]


def solve(ridge: Ridge) -> Ridge:
    """O⁻¹ and ŵ from O and b: elimination, then one Newton step X + X·(I − O·X) with an exact residual."""
    high, error = _two_sum(ridge.high, ridge.recent)
    high, low = _two_sum(high, error + ridge.low)
    p = high.shape[0]
    inverse = solve_positive(high[:, :-1], jnp.eye(p))
    inverse = inverse + _dot(inverse, _residual(jnp.eye(p), jnp.zeros((p, p)), high, low, inverse))
    right = ridge.weights[:, None]
    for _ in range(2):
        right = right + _dot(inverse, _residual(high[:, -1:], low[:, -1:], high, low, right))
    return Ridge((inverse + inverse.T) / 2, right[:, 0], jnp.zeros_like(ridge.recent), high, low)


def _residual(target: Array, target_low: Array, high: Array, low: Array, x: Array) -> Array:
    """target − O·x, rounded to float32 from products and sums of twice as many digits."""

    def subtract(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, error = carry
        product, rest = _two_product(-high[:, k, None], x[k][None, :])
        total, lost = _two_sum(total, product)
        return total, error + (lost + (rest - low[:, k, None] * x[k][None, :]))

    total, error = jax.lax.fori_loop(0, x.shape[0], subtract, (target, target_low))
    return total + error


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as the rounded sum and its rounding error (Knuth)."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a·b as the rounded product and its rounding error (Dekker)."""
    a, b = jnp.broadcast_arrays(a, b)
    a_high, b_high = _upper_half(a), _upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, lost


def _upper_half(x: Array) -> Array:
    if x.dtype != jnp.float32:  # float64: its own digits are enough
        return x
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jax.lax.bitcast_convert_type(bits & jnp.uint32(_SPLIT), jnp.float32)


def _dot(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST)
