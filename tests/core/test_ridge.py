"""Ridge regression by rank-one updates against float64 solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record
from worlds import topic_bandit

import jaxrank as jr
from jaxrank.core import ridge


def observed_features(environment, rankings, clicks):
    """[steps, K, d + m] in float64: φ of CascadeHybrid, zero below the click."""
    shown = np.asarray(environment.topics, np.float64)[rankings]
    above = np.concatenate([np.ones_like(shown[:, :1]), np.cumprod(1 - shown, axis=1)[:, :-1]], axis=1)
    phi = np.concatenate([shown * above, np.asarray(environment.features, np.float64)[rankings]], axis=2)
    return phi * (np.cumsum(clicks, axis=1) - clicks == 0)[:, :, None]


@pytest.mark.slow
def test_drift_after_50_000_steps_is_below_a_thousandth():
    """The paper's sizes d + m = 30, K = 10. O⁻¹, ŵ and the widths φᵀO⁻¹φ of all items, relative to float64."""
    environment = topic_bandit(num_items=60, list_size=10, num_topics=20, num_features=10)
    run = record(jr.CascadeHybrid(), environment, 50_000, statistics=lambda policy, state: state.weights[0])
    phi = observed_features(environment, run.rankings, run.clicks)

    @jax.jit
    def last(rankings, clicks):
        def step(state, session):
            t, ranking, clicks = session
            return jr.CascadeHybrid().update(None, state, environment.query(None, t), ranking, clicks), None

        steps = jnp.arange(1, 50_001, dtype=jnp.int32)
        return jax.lax.scan(step, ridge.init(30), (steps, rankings, clicks))[0]

    state = jax.device_get(last(run.rankings, run.clicks))
    assert state.weights[0] == run.statistics[-1], "the same run"
    gram = np.eye(30) + np.einsum("tkp,tkq->pq", phi, phi)
    inverse = np.linalg.inv(gram)
    weights = inverse @ np.einsum("tkp,tk->p", phi, run.clicks)
    assert np.linalg.cond(gram) > 1e4, "an easy matrix would show nothing"
    assert np.linalg.norm(state.inverse - inverse) < 1e-3 * np.linalg.norm(inverse)
    assert np.linalg.norm(state.weights - weights) < 1e-3 * np.linalg.norm(weights)
    items = np.concatenate([environment.topics, environment.features], axis=1).astype(np.float64)
    width = lambda matrix: np.einsum("lp,pq,lq->l", items, matrix, items)  # noqa: E731
    np.testing.assert_allclose(width(state.inverse.astype(np.float64)), width(inverse), rtol=1e-3)


@pytest.mark.parametrize("steps", [1, ridge.RESOLVE_EVERY - 1, ridge.RESOLVE_EVERY, 3 * ridge.RESOLVE_EVERY + 1])
def test_updates_are_the_ridge_solution_before_and_after_it_is_solved_anew(steps):
    rng = np.random.default_rng(steps)
    phi, reward = rng.normal(size=(40, steps, 3, 6)), rng.uniform(size=(40, steps, 3)) < 0.5

    def run(phi, reward):
        def step(state, observed):
            return ridge.update(state, *observed), None

        numbers = jnp.arange(1, steps + 1, dtype=jnp.int32)
        return jax.lax.scan(step, ridge.init(6), (phi, reward, numbers))[0]

    states = jax.jit(jax.vmap(run))(jnp.asarray(phi, jnp.float32), jnp.asarray(reward))
    for lane in range(40):
        gram = np.eye(6) + np.einsum("tkp,tkq->pq", phi[lane], phi[lane])
        expected = np.linalg.solve(gram, np.einsum("tkp,tk->p", phi[lane], reward[lane]))
        np.testing.assert_allclose(states.inverse[lane], np.linalg.inv(gram), atol=1e-5)
        np.testing.assert_allclose(states.weights[lane], expected, atol=1e-5)
        np.testing.assert_allclose(jax.vmap(ridge.gram)(states)[lane], gram, rtol=1e-5, atol=1e-5)


def test_products_and_sums_keep_what_rounding_drops():
    rng = np.random.default_rng(0)
    a, b = (np.float32(rng.normal(size=1_000) * 10.0 ** rng.integers(-3, 4, 1_000)) for _ in range(2))
    for operation, exact in ((ridge._two_sum, np.add), (ridge._two_product, np.multiply)):
        rounded, lost = jax.jit(operation)(a, b)
        np.testing.assert_array_equal(np.float64(rounded) + np.float64(lost), exact(np.float64(a), np.float64(b)))
