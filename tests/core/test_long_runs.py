"""States as after millions of steps, constructed: what float32 sums and bonuses are worth there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrank.core import numerics, ridge
from jaxrank.policies import _pairwise_estimate as pairwise


def exact_bonus(p, level):
    """max{d : KL(p ‖ p + d) ≤ level} in float64."""
    low, high = np.zeros_like(p), 1 - p
    for _ in range(100):
        d = (low + high) / 2
        inside = -p * np.log1p(d / p) - (1 - p) * np.log1p(-d / (1 - p)) <= level
        low, high = np.where(inside, d, low), np.where(inside, high, d)
    return low


@pytest.mark.parametrize("observations", [2**16, 2**20, 2**24, 2**27])
def test_the_bonus_of_klucb_is_as_exact_as_float32_allows(observations):
    """Relative to the bonus 2e-4, beyond the rounding of the index p + bonus itself, which is up to 6e-8."""
    share = np.array([1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999])
    clicks = np.round(share * observations)
    p = (clicks / observations).astype(np.float32)
    level = np.float32((np.log(observations) + 3 * np.log(np.log(observations))) / observations)
    bonus = exact_bonus(p.astype(np.float64), np.full(p.shape, level, np.float64))
    upper = np.asarray(jax.jit(numerics.kl_upper)(p, jnp.full(p.shape, level)), np.float64)
    np.testing.assert_array_less(np.abs(upper - p - bonus), 2e-4 * bonus + 6e-8 * (p + bonus))


def test_ridge_regression_beyond_2_to_the_24_observations():
    """O = 2²⁶ in some directions and 2 in another; 500 more steps: ŵ, O⁻¹ and the widths against float64."""
    rng = np.random.default_rng(0)
    p, steps = 6, 500
    basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
    gram = basis @ np.diag([2.0, 2**10, 2**18, 2**24, 2**25, 2**26]) @ basis.T
    weights = rng.standard_normal(p)
    start = np.concatenate([gram, (gram @ weights)[:, None]], axis=1)
    high = start.astype(np.float32)
    state = ridge.init(p)._replace(high=jnp.asarray(high), low=jnp.asarray((start - high).astype(np.float32)))
    state = state._replace(weights=jnp.asarray(weights, jnp.float32))
    phi = rng.uniform(0, 1, (steps, 2, p)).astype(np.float32)
    rewards = rng.integers(0, 2, (steps, 2)).astype(np.float32)

    @jax.jit
    def run(state):
        def step(state, observed):
            return ridge.update(state, *observed), None

        numbers = jnp.arange(1, steps + 1, dtype=jnp.int32)
        return jax.lax.scan(step, ridge.solve(state), (jnp.asarray(phi), jnp.asarray(rewards), numbers))[0]

    last = jax.device_get(run(state))
    stored = np.asarray(state.high, np.float64) + np.asarray(state.low, np.float64)
    added = np.concatenate([phi, rewards[:, :, None]], axis=2).astype(np.float64)
    moments = stored + np.einsum("tkp,tkq->pq", phi.astype(np.float64), added)
    inverse = np.linalg.inv(moments[:, :-1])
    exact = inverse @ moments[:, -1]
    assert np.linalg.norm(last.weights - exact) < 1e-3 * np.linalg.norm(exact)
    assert np.linalg.norm(last.inverse - inverse) < 1e-3 * np.linalg.norm(inverse)
    width = np.einsum("tkp,pq,tkq->tk", phi, inverse, phi)
    np.testing.assert_allclose(np.einsum("tkp,pq,tkq->tk", phi, last.inverse, phi), width, rtol=5e-3)


def test_pairrank_keeps_counting_beyond_2_to_the_24_steps():
    """M = 2²⁴·I grows by less than half its spacing at every step, and so does log det M: both still add up.

    The root of M⁻¹ shrinks by less than half its spacing, too.
    """
    d, n, steps = 4, 3, 4_000
    rng = np.random.default_rng(0)
    pairs = rng.uniform(-0.5, 0.5, (steps, n, d)).astype(np.float32)
    estimate = pairwise.initial_estimate(d, n, 64, jnp.float32(1.0))
    eye = jnp.eye(d)
    estimate = estimate._replace(root=2.0**-12 * eye, log_det=jnp.float32(d * np.log(2.0**24)))
    add = jax.jit(lambda e, all_pairs: jax.lax.scan(lambda e, x: (pairwise._add_to_m(e, x), None), e, all_pairs)[0])
    last = jax.device_get(add(estimate, jnp.asarray(pairs)))
    growth = np.einsum("tnp,tnq->pq", pairs, pairs, dtype=np.float64)
    assert growth.diagonal().min() > 500, "enough to see"
    root = last.root.astype(np.float64) - last.root_error
    found = np.linalg.inv(root @ root.T) - 2.0**24 * np.eye(d)
    np.testing.assert_allclose(found, growth, atol=1e-3 * growth.max())
    gained = np.linalg.slogdet(np.eye(d) + growth / 2**24)[1]
    found = (last.log_det.astype(np.float64) - last.log_det_error) - np.float32(d * np.log(2.0**24))
    assert found == pytest.approx(gained, rel=1e-3)
    assert np.float32(2**24) + np.float32(growth.diagonal().max() / steps) == 2**24, "a plain sum would not grow at all"
