"""Small operations on rankings, below and above the size where they change method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrank.core import ranking

SIZES = [1, 7, 32, 33, 50]


@pytest.mark.parametrize("size", SIZES)
def test_lookup_is_indexing(size):
    rng = np.random.default_rng(size)
    for values in (
        rng.normal(size=size).astype(np.float32),
        rng.integers(-9, 9, size, dtype=np.int32),
        rng.random(size) < 0.5,
    ):
        index = rng.integers(size, size=4)
        found = ranking.lookup(jnp.asarray(values), jnp.asarray(index))
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values[index])
        assert ranking.lookup(jnp.asarray(values), jnp.asarray(index[0])) == values[index[0]]


@pytest.mark.parametrize("size", SIZES)
def test_top_items_is_a_stable_descending_sort(size):
    scores = np.random.default_rng(size).integers(0, 6, size).astype(np.uint32)
    order = np.argsort(-scores.astype(int), kind="stable")
    for list_size in {1, size // 2 + 1, size}:
        top = ranking.top_items(jnp.asarray(scores), list_size)
        assert top.dtype == jnp.int32
        np.testing.assert_array_equal(top, order[:list_size])


@pytest.mark.parametrize("size", [7, 32, 100])
def test_top_items_orders_floats_and_breaks_ties_by_words(size):
    rng = np.random.default_rng(size)
    scores = rng.choice(np.array([-np.inf, -2.5, -0.0, 0.0, 1e-30, 3.0, np.inf], np.float32), size)
    words = rng.permutation(size).astype(np.uint32) << 20
    order = np.lexsort((-words.astype(np.int64), -(scores + 0.0)))
    for list_size in (1, 3, 7):
        top = ranking.top_items(jnp.asarray(scores), list_size, jnp.asarray(words))
        np.testing.assert_array_equal(top, order[:list_size])


def test_complete_appends_the_missing_items_in_order():
    np.testing.assert_array_equal(ranking.complete(jnp.array([4, 1]), 6), [4, 1, 0, 2, 3, 5])
    np.testing.assert_array_equal(ranking.complete(jnp.array([2, 0, 1]), 3), [2, 0, 1])


@pytest.mark.parametrize("size", [1, 2, 10])
def test_inversions_counts_pairs_in_the_wrong_order_and_no_ties(size):
    rng = np.random.default_rng(size)
    for _ in range(20):
        values = rng.integers(0, 5, size).astype(np.float32)
        count = sum(values[i] < values[j] for i in range(size) for j in range(i + 1, size))
        assert ranking.inversions(jnp.asarray(values)) == count


def test_results_of_a_mapped_look_up_can_be_used_further():
    """A layout constraint at the end of a compiled function once came out transposed."""
    values = jnp.arange(12.0).reshape(4, 3)
    index = jnp.tile(jnp.array([2, 0, 1]), (4, 1))
    found = jax.jit(jax.vmap(ranking.lookup))(values, index)
    np.testing.assert_array_equal(found + 0, np.asarray(values)[:, [2, 0, 1]])
