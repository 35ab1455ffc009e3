"""Keys and draws."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom

from jaxrank import random


def test_bits_are_those_of_jax_threefry():
    ours, theirs = random.root_key(42), jax.random.key(42, impl="threefry2x32")
    for shape in ((), (5,), (3, 4)):
        np.testing.assert_array_equal(
            jax.random.bits(ours, shape, jnp.uint32), jax.random.bits(theirs, shape, jnp.uint32)
        )
    for use in (0, 7, 123_456):
        np.testing.assert_array_equal(
            jax.random.key_data(jax.random.fold_in(ours, use)), jax.random.key_data(jax.random.fold_in(theirs, use))
        )
    np.testing.assert_array_equal(
        jax.random.key_data(jax.random.split(ours, 3)), jax.random.key_data(jax.random.split(theirs, 3))
    )
    np.testing.assert_array_equal(jax.random.uniform(ours, (9,)), jax.random.uniform(theirs, (9,)))


def test_keys_of_lanes_steps_and_uses_differ():
    root = random.root_key(0)
    lanes = jax.vmap(lambda i: random.lane_key(root, i // 8, i % 8))(jnp.arange(64))
    keys = jax.vmap(
        lambda lane: jnp.stack([jax.random.key_data(jnp.stack(random.step_keys(lane, t))) for t in range(9)])
    )
    words = np.asarray(keys(lanes)).reshape(-1, 2)
    assert len(np.unique(words, axis=0)) == 64 * 9 * 4


def test_coin_flips_are_fair_and_independent_of_their_number():
    keys = jax.random.split(random.root_key(1), 20_000)
    flips = np.asarray(jax.vmap(lambda key: random.coin_flips(key, 40))(keys))
    low, high = binom.ppf([1e-7, 1 - 1e-7], 20_000, 0.5)
    heads = flips.sum(axis=0)
    assert low <= heads.min() and heads.max() <= high
    together = (flips[:, :-1] & flips[:, 1:]).sum(axis=0)
    low, high = binom.ppf([1e-7, 1 - 1e-7], 20_000, 0.25)
    assert low <= together.min() and together.max() <= high
    np.testing.assert_array_equal(flips[:100, :10], jax.vmap(lambda key: random.coin_flips(key, 10))(keys[:100]))
