"""Tests of my_policies.py: what every policy must do, and what this one does."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from my_policies import ItemTS, State


def test_it_conforms():
    """Valid lists, a stable state, the same alone as among many, resumed as straight: see jr.testing."""
    jr.testing.check_policy(ItemTS())


def test_it_learns_from_the_part_of_the_list_that_was_read():
    query = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3, 0.4]), list_size=3).query(jax.random.key(0), jnp.int32(1))
    state = State(clicks=jnp.array([5, 0, 0, 0]), skips=jnp.array([0, 7, 0, 0]))
    clicks = jnp.array([False, True, False])  # items 2, 0 and 3 were shown; the user left after item 0
    state = ItemTS().update(None, state, query, jnp.array([2, 0, 3]), clicks)
    np.testing.assert_array_equal(state.clicks, [6, 0, 0, 0])
    np.testing.assert_array_equal(state.skips, [0, 7, 1, 0])
