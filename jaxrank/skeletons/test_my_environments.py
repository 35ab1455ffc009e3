"""Tests of my_environments.py: what every environment must do, and what this one does."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from my_environments import TwoKinds


def test_it_conforms():
    """Queries, clicks and metrics of the right shapes, the same alone as among many: see jr.testing."""
    jr.testing.check_environment(TwoKinds(), policy=jr.StaticRanking(), num_steps=100)


def test_the_reward_is_the_mean_over_both_kinds_of_users():
    environment = TwoKinds(attraction=[[1.0, 0.0], [0.0, 0.5]], share=0.4, list_size=2)
    query = environment.query(jax.random.key(0), jnp.int32(1))
    measured = environment.metrics(query, jnp.array([1, 0], jnp.int32))
    np.testing.assert_allclose(measured["reward"], 0.4 * 0.5 + 0.6 * 1.0 / 2, rtol=1e-6)
    np.testing.assert_allclose(measured["regret"], (0.6 * 1.0 + 0.4 * 0.5 / 2) - 0.5, rtol=1e-6)
