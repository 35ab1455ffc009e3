"""Arithmetic on floats that stays accurate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.types import Array

SHORT = 32  # vectors of at most this length are written out entry by entry: elementwise code, which XLA fuses
_SMALLEST = 1e-10  # lower clip on a probability under a logarithm


def safe_log(probability: Array) -> Array:
    """log p with the gradient 1/p, where p is clipped to at least 1e-10 in both.

    So at p = 0 both are finite, and the gradient still points uphill.
    """
    floored = jnp.maximum(probability, _SMALLEST)
    return jnp.log(probability + jax.lax.stop_gradient(floored - probability))


def ordered_sum(terms: Array) -> Array:
    """The sum of a short vector from the first term to the last: the same bits on any number of devices."""
    total = terms[0]
    for k in range(1, terms.shape[0]):
        total = total + terms[k]
    return total


def exclusive(cumulative: Array, first: float | int | bool) -> Array:
    """Shifts a cumulative sum, product or ``any`` down by one: position k holds that of the positions above it."""
    return jnp.pad(cumulative[:-1], (1, 0), constant_values=first)


def product_above(factors: Array) -> Array:
    """[K]: for each position the product of the factors above it; 1 at the first."""
    size = factors.shape[0]
    if size > SHORT:
        return exclusive(jnp.cumprod(factors), 1)
    positions, product = jnp.arange(size), jnp.ones(size, factors.dtype)
    for k in range(size - 1):
        product = jnp.where(k < positions, product * factors[k], product)
    return product


def any_above(flags: Array) -> Array:
    """bool[K]: for each position, is any flag above it set?"""
    size = flags.shape[0]
    if size > SHORT:
        return exclusive(jnp.cumsum(flags) > 0, False)
    positions, found = jnp.arange(size), jnp.zeros(size, bool)
    for k in range(size - 1):
        found |= flags[k] & (k < positions)
    return found


def product_gap(better: Array, worse: Array, difference: Array) -> Array:
    """(1 − Π(1 − better)) − (1 − Π(1 − worse)), to full precision, where ``difference`` = better − worse.

    The difference of two products telescopes into Σ_k Π_{i<k}(1−worse_i)·(better_k − worse_k)·Π_{i>k}(1−better_i).
    Equal lists give exactly 0, and the gap of similar lists keeps its relative precision, so that float32 regret can be
    summed over millions of steps.
    """
    gap, below = difference[-1], 1 - better[-1]  # of the terms from k to the last, by Horner's rule
    for k in range(difference.shape[0] - 2, -1, -1):
        gap = difference[k] * below + (1 - worse[k]) * gap
        below = below * (1 - better[k])
    return gap


_HALLEY_STEPS = {4: 2, 8: 3}  # by bytes of a float: enough to converge from the starting points below


def kl_upper(p: Array, level: Array) -> Array:
    """max{q ≥ p : KL(p ‖ q) ≤ level}, elementwise.

    Halley's method starts from the lower one of two points above the root. One is the root of d²/(2q(1−p)) = level with
    d = q − p: KL is at least that, since its second derivative along the way from p is at least 1/(q(1−p)), and hardly
    more for small d, as after many observations. The other is the root of −H(p) − (1−p)·log(1−q) = level. KL exceeds
    that function by −p·log q, small for q near 1.
    """
    entropy = -(_x_log_x(p) + _x_log_x(1 - p))
    near_one = 1 - jnp.exp(-(level + entropy) / jnp.maximum(1 - p, 1e-7))
    above, below = jnp.maximum(p, 1e-12), jnp.maximum(1 - p, 1e-7)
    a = level * (1 - p)
    d = jnp.minimum(a + jnp.sqrt(a * (a + 2 * p)), near_one - p)  # log1p of d keeps the digits that log q would lose

    def halley(_: Array, d: Array) -> Array:
        d = jnp.clip(d, 0, below * (1 - 6e-8))
        q, rest = above + d, below - d
        excess = -p * jnp.log1p(d / above) - (1 - p) * jnp.log1p(-d / below) - level
        slope = jnp.maximum(d / (q * rest), 1e-12)
        curvature = p / (q * q) + (1 - p) / (rest * rest)
        newton = excess / slope
        bent = jnp.minimum(newton * curvature / (2 * slope), 0.9)
        return d - jnp.where(d > 0, newton / (1 - bent), 0)

    return p + jnp.clip(jax.lax.fori_loop(0, _HALLEY_STEPS[d.dtype.itemsize], halley, d), 0, 1 - p)


def kl_lower(p: Array, level: Array) -> Array:
    """min{q ≤ p : KL(p ‖ q) ≤ level}, elementwise."""
    return jnp.minimum(1 - kl_upper(1 - p, level), p)


def _x_log_x(x: Array) -> Array:
    return x * jnp.log(jnp.maximum(x, 1e-30))


class CompensatedSum(NamedTuple):
    """Kahan's running sum: its error does not grow with the number of terms."""

    total: Array  # float[...]
    error: Array  # float[...], the excess of total over the exact sum

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: jnp.dtype) -> "CompensatedSum":
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def add(self, term: Array) -> "CompensatedSum":
        if not jnp.issubdtype(self.total.dtype, jnp.floating):
            return self._replace(total=self.total + term)
        corrected = term - self.error
        total = self.total + corrected
        return CompensatedSum(total, (total - self.total) - corrected)


def solve_positive(matrix: Array, right: Array) -> Array:
    """float[n, m]: matrix⁻¹·right for a positive definite matrix [n, n], which needs no pivots, by elimination.

    Solvers of libraries are no part of the CUDA graph of a step, so that the host would wait for them.
    """

    def eliminate(k: Array, rows: Array) -> Array:
        row = rows[k] / rows[k, k]
        return jnp.where(jnp.arange(n)[:, None] == k, row[None, :], rows - rows[:, k, None] * row[None, :])

    n = matrix.shape[0]
    return jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, right], axis=1))[:, n:]
