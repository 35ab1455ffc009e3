"""Careful arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import rel_entr

from jaxrank.core import numerics


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.3, 1.0])
def test_safe_log_has_a_finite_value_and_slope(p):
    value, slope = jax.value_and_grad(numerics.safe_log)(p)
    assert value == pytest.approx(np.log(max(p, 1e-10)), rel=1e-5)
    assert slope == pytest.approx(1 / max(p, 1e-10), rel=1e-5)


def test_product_gap_keeps_its_digits_where_subtraction_loses_them():
    rng = np.random.default_rng(0)
    for _ in range(20):
        better = rng.uniform(0.1, 0.4, 10).astype(np.float32)
        worse = better.copy()
        worse[rng.integers(10)] -= np.float32(1e-4)
        exact = np.prod(1 - worse.astype(np.float64)) - np.prod(1 - better.astype(np.float64))
        gap = numerics.product_gap(*map(jnp.asarray, (better, worse, better - worse)))
        assert gap == pytest.approx(exact, rel=2e-6)
        assert numerics.product_gap(*map(jnp.asarray, (better, better, better - better))) == 0


@pytest.mark.parametrize("size", [1, 2, 10, 40])
def test_what_is_above(size):
    rng = np.random.default_rng(size)
    factors, flags = rng.random(size).astype(np.float32), rng.random(size) < 0.2
    expected = np.append(1, np.cumprod(factors)[:-1])
    np.testing.assert_allclose(numerics.product_above(jnp.asarray(factors)), expected, rtol=1e-6)
    expected = np.append(False, np.cumsum(flags)[:-1] > 0)
    np.testing.assert_array_equal(numerics.any_above(jnp.asarray(flags)), expected)


def test_compensated_sum_of_many_small_terms():
    terms = np.random.default_rng(0).uniform(0, 1e-3, 200_000).astype(np.float32)
    total, _ = jax.lax.scan(lambda s, x: (s.add(x), None), numerics.CompensatedSum.zeros((), jnp.float32), terms)
    assert float(total.total) == pytest.approx(terms.astype(np.float64).sum(), rel=1e-7)
    plain, _ = jax.lax.scan(lambda s, x: (s + x, None), jnp.float32(0), terms)
    assert abs(float(plain) - terms.astype(np.float64).sum()) > 1e-5, "a plain float32 sum would not do"


def test_positive_definite_systems_are_solved_as_in_float64():
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 30):
        features, right = rng.normal(size=(2 * n, n)), rng.normal(size=(n, 3))
        matrix = np.eye(n) + features.T @ features
        found = jax.jit(numerics.solve_positive)(matrix.astype(np.float32), right.astype(np.float32))
        np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-4, atol=1e-5)


def test_kl_bounds_agree_with_60_bisections_in_float64():
    means = np.concatenate([[0, 1e-4, 1e-3], np.linspace(0.005, 0.995, 199), [0.999, 0.9999, 1]]).astype(np.float32)
    levels = np.logspace(-6, 2, 161).astype(np.float32)
    p, level = (x.ravel().astype(np.float64) for x in np.meshgrid(means, levels))

    def bisect(near, far):
        for _ in range(60):
            middle = (near + far) / 2
            inside = rel_entr(p, middle) + rel_entr(1 - p, 1 - middle) <= level
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        return near

    upper, lower = numerics.kl_upper(*map(jnp.float32, (p, level))), numerics.kl_lower(*map(jnp.float32, (p, level)))
    np.testing.assert_allclose(upper, bisect(p, np.ones_like(p)), rtol=0, atol=1e-5)
    np.testing.assert_allclose(lower, bisect(p, np.zeros_like(p)), rtol=0, atol=1e-5)


def test_kl_bounds_at_the_ends():
    np.testing.assert_allclose(
        numerics.kl_upper(jnp.array([0.0, 1.0]), jnp.array(0.1)), [1 - np.exp(-0.1), 1], atol=1e-6
    )
    np.testing.assert_allclose(numerics.kl_lower(jnp.array([0.0, 1.0]), jnp.array(0.1)), [0, np.exp(-0.1)], atol=1e-6)
