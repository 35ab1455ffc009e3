"""A cond that stays cheap under vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrank.core import batching
from jaxrank.core.batching import rarely


def branch(operand, offset):
    x, y = operand
    return x * 2 + offset, y + jnp.arange(3, dtype=jnp.int32)


def lanes(count, seed=0):
    rng = np.random.default_rng(seed)
    return (
        jnp.asarray(rng.random(count) < 0.3),
        (jnp.asarray(rng.normal(size=count), jnp.float32), jnp.asarray(rng.integers(9, size=(count, 3)), jnp.int32)),
        jnp.asarray(rng.normal(size=count), jnp.float32),
    )


@pytest.mark.parametrize("count", [1, 5, 64, 65, 1000])
def test_rarely_takes_the_branch_in_the_lanes_that_need_it(count):
    predicate, operand, offset = lanes(count)
    got = jax.jit(jax.vmap(lambda p, o, f: rarely(p, branch, o, f)))(predicate, operand, offset)
    taken = jax.vmap(branch)(operand, offset)
    np.testing.assert_array_equal(got[0] + 0, np.where(predicate, taken[0], operand[0]))
    np.testing.assert_array_equal(got[1] + 0, np.where(predicate[:, None], taken[1], operand[1]))


def test_rarely_works_with_shared_arguments_and_predicates():
    predicate, operand, _ = lanes(10)
    shared = jnp.zeros(3, jnp.int32)  # for an operand of which only a part has lanes
    for p in (True, False):
        got = jax.vmap(lambda o, p=p: rarely(jnp.asarray(p), branch, o, jnp.float32(1)))(operand)
        expected = jax.vmap(lambda o: branch(o, jnp.float32(1)))(operand) if p else operand
        np.testing.assert_array_equal(got[1], expected[1])
        got = jax.vmap(lambda x, p=p: rarely(jnp.asarray(p), branch, (x, shared), jnp.float32(1)))(operand[0])
        np.testing.assert_array_equal(got[1], np.tile([0, 1, 2] if p else [0, 0, 0], (10, 1)))
    got = jax.vmap(lambda p: rarely(p, branch, (jnp.float32(3), jnp.zeros(3, jnp.int32)), jnp.float32(1)))(predicate)
    np.testing.assert_array_equal(got[0], np.where(predicate, 7, 3))


def test_rarely_without_vmap_is_cond():
    operand = (jnp.float32(3), jnp.zeros(3, jnp.int32))
    assert rarely(jnp.asarray(True), branch, operand, jnp.float32(1))[0] == 7
    assert rarely(jnp.asarray(False), branch, operand, jnp.float32(1))[0] == 3


@pytest.mark.parametrize("chosen", [False, True])
def test_layouts_are_chosen_only_where_the_engine_says_so(chosen):
    def lay_out(x):
        with batching.layouts(chosen):
            return batching.lanes_minor(x) + batching.lanes_major(x)

    x = jnp.arange(6.0).reshape(2, 3)
    assert ("layout_constraint" in str(jax.make_jaxpr(lay_out)(x))) == chosen
    np.testing.assert_array_equal(jax.jit(lay_out)(x), 2 * x)
