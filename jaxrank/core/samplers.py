"""Samplers of attractions from their posterior given clicks, for Thompson sampling: all items at once.

Where it is known which items were examined, the posterior is a Beta distribution, sampled by ``beta``. In the
position-based model only the probability of examination is known, and ``position_based_posterior`` samples the
posterior.
"""

import jax
import jax.numpy as jnp

from jaxrank.core.numerics import ordered_sum
from jaxrank.core.types import Array, Key

# For position_based_posterior:
_HALVINGS = 20  # halvings of [0, π/2] that find the posterior's peak
_CELLS = 64  # cells of the grid
_REACH = 6.5  # standard deviations on either side of the peak that the grid covers


def beta(key: Key, a: Array, b: Array) -> Array:
    """A sample of Beta(a, b), elementwise, for a, b ≥ 1, from two gamma variates.

    The method of Marsaglia and Tsang (ACM TOMS 26, 2000) accepts 19 of 20 tries. All variates share one key and one
    loop. JAX's sampler takes several times as long, because it needs a key of its own for every variate.
    """
    d = jnp.stack([a, b]) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def some_are_missing(carry: tuple[Array, Array, Array]) -> Array:
        return ~jnp.all(carry[2])

    def attempt(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, gamma, done = carry
        normal_key, uniform_key = jax.random.split(jax.random.fold_in(key, number))
        x = jax.random.normal(normal_key, d.shape, d.dtype)
        u = jax.random.uniform(uniform_key, d.shape, d.dtype)
        w = c * x * (3 + c * x * (3 + c * x))  # v − 1 for v = (1 + c·x)³, which keeps its digits where v is close to 1
        accepted = (w > -1) & (jnp.log(u) < x**2 / 2 + d * (jnp.log1p(jnp.maximum(w, -0.999999)) - w))
        return number + 1, jnp.where(done, gamma, d * (1 + w)), done | accepted

    first = (jnp.int32(0), jnp.zeros_like(d), jnp.zeros(d.shape, bool))
    _, gamma, _ = jax.lax.while_loop(some_are_missing, attempt, first)
    return gamma[0] / (gamma[0] + gamma[1])


def position_based_posterior(uniforms: Array, clicks: Array, skips: Array, examination: Array) -> Array:
    """float[L]: a sample θ of every item's attraction in the position-based model, under a uniform prior on [0, 1].

    Its density is ∝ θ^clicks·Π_l (1 − χ_l·θ)^skips_l, for an item that was clicked ``clicks`` times and shown without
    a click ``skips_l`` times at position l, which is examined with probability χ_l. The sample is the point at which
    the CDF reaches a given uniform, found on a grid.

    In φ, with θ = sin² φ, the posterior has one peak inside (0, π/2) and is close to a Gaussian, however few or many
    the observations are. The grid's 64 cells cover 6.5 standard deviations on either side of the peak. The density is
    taken as constant in a cell. This changes the CDF by 1e-3 at most, as long as float32 can tell θ from 1; a test
    compares with the integral. Densities are relative to that of the peak and computed by log1p, because float32
    cannot represent them otherwise with millions of observations.

    Args:
      uniforms: float[L], in [0, 1), independent and uniform.
      clicks: int32[L].
      skips: int32[K, L].
      examination: float[K], χ.
    """
    # dθ = 2·sin φ·cos φ·dφ counts as half a click, and half a skip at a position that is always examined.
    clicks = clicks + 0.5  # [L]
    skips = jnp.append(skips, jnp.full((1, uniforms.shape[0]), 0.5), axis=0)
    chi = jnp.append(examination, 1)[:, None]  # [K+1, 1]

    def per_skip(phi: Array) -> Array:
        """[K+1, L]: χ_l / (1 − χ_l·θ)."""
        return chi / ((1 - chi) + chi * jnp.cos(phi)[None, :] ** 2)

    def halve(i: Array, low: Array) -> Array:
        middle = low + jnp.pi / 2 * jnp.exp2(-1.0 - i)
        rising = clicks / jnp.sin(middle) ** 2 > ordered_sum(skips * per_skip(middle))
        return jnp.where(rising, middle, low)

    peak = jax.lax.fori_loop(0, _HALVINGS, halve, jnp.full_like(uniforms, 2.0**-_HALVINGS))
    theta, ratio = jnp.sin(peak) ** 2, per_skip(peak)
    curvature = 4 * theta * (1 - theta) * (clicks / theta**2 + ordered_sum(skips * ratio**2))  # in φ
    reach = _REACH / jnp.sqrt(curvature)
    start = jnp.maximum(peak - reach, 0)
    width = (jnp.minimum(peak + reach, jnp.pi / 2) - start) / _CELLS

    def add_cell(mass: Array, i: Array) -> tuple[Array, Array]:
        phi = start + (i + 0.5) * width
        gain = jnp.sin(phi - peak) * jnp.sin(phi + peak)  # sin² φ − θ
        log_density = clicks * _log1p(gain / theta) + ordered_sum(skips * _log1p(-ratio * gain[None, :]))
        mass = mass + jnp.exp(log_density)
        return mass, mass

    total, mass = jax.lax.scan(add_cell, jnp.zeros_like(uniforms), jnp.arange(_CELLS))  # mass: [cells, L]
    target = uniforms * total
    below = mass <= target[None, :]
    before = jnp.max(jnp.where(below, mass, 0), axis=0)
    after = jnp.min(jnp.where(below, jnp.inf, mass), axis=0)
    cell = jnp.sum(below, axis=0) + (target - before) / (after - before)
    return jnp.sin(start + cell * width) ** 2


def _log1p(x: Array) -> Array:
    """log(1 + x) for an x that rounding may have put below −1."""
    return jnp.log1p(jnp.maximum(x, -1 + 1e-6))
