"""Keys and draws, and the statistics of what the default generator puts out."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, chi2, norm, poisson

import jaxrank as jr
from jaxrank.core import random

P = 1e-7  # of a false alarm, in each of a few hundred comparisons


def test_threefry_bits_are_those_of_jax():
    ours, theirs = random.root_key(42, "threefry2x32"), jax.random.key(42, impl="threefry2x32")
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


@pytest.mark.parametrize("prng", random.PRNG)
def test_keys_of_lanes_steps_and_uses_differ(prng):
    root = random.root_key(0, prng)
    lanes = jax.jit(jax.vmap(lambda i: random.lane_key(root, i // 8, i % 8)))(jnp.arange(64))

    def keys(lane):
        return jnp.stack([jax.random.key_data(jnp.stack(random.step_keys(lane, jnp.int32(t)))) for t in range(9)])

    words = np.asarray(jax.jit(jax.vmap(keys))(lanes)).reshape(-1, 2)
    assert len(np.unique(words, axis=0)) == 64 * 9 * 4


def test_unknown_generators_are_refused():
    with pytest.raises(ValueError, match="prng must be 'jaxrank' or 'threefry2x32'; got 'mt19937'"):
        random.root_key(0, "mt19937")


def test_the_words_of_one_key_do_not_run_into_those_of_another_of_the_same_step():
    """Word c of use u is at Weyl position c + u·USE/WEYL: these must lie far apart."""
    inverse = pow(random._WEYL, -1, 2**32)
    places = [use * random._USE_HIGH * inverse % 2**32 for use in range(4)]
    for a, b in itertools.combinations(places, 2):
        assert min((a - b) % 2**32, (b - a) % 2**32) > 2**24


@pytest.fixture(scope="module")
def words():
    """uint32 [lane, step, use, word]: what steps really draw, 4.2 million words."""
    root = random.root_key(3)

    @jax.jit
    def draw(instance, seed, step):
        keys = random.step_keys(random.lane_key(root, instance, seed), step)
        return jnp.stack([jax.random.bits(key, (16,), jnp.uint32) for key in keys])

    lane, step = jnp.meshgrid(jnp.arange(256), jnp.arange(1, 257), indexing="ij")
    return np.asarray(jax.jit(jax.vmap(jax.vmap(draw)))(lane // 16, lane % 16, step))


AXES = {"lanes": 0, "steps": 1, "uses": 2, "words": 3}


def test_every_bit_is_balanced(words):
    low, high = binom.ppf([P, 1 - P], words.size, 0.5)
    for bit in range(32):
        assert low <= ((words >> bit) & 1).sum() <= high


@pytest.mark.parametrize("axis", AXES)
def test_every_bit_is_balanced_against_its_neighbour(words, axis):
    """Between neighbouring lanes, steps, uses and words, for every bit and its two neighbours in the word."""
    along = np.moveaxis(words, AXES[axis], 0)
    first, second = along[:-1], along[1:]
    low, high = binom.ppf([P, 1 - P], first.size, 0.5)
    for bit, shift in itertools.product(range(32), (-1, 0, 1)):
        differ = ((first >> bit) ^ (second >> ((bit + shift) % 32))) & 1
        assert low <= differ.sum() <= high, f"bit {bit} against {bit + shift} of the next along {axis}"


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_uniforms_are_uncorrelated(words, axis, distance):
    uniform = np.moveaxis(words, AXES[axis], 0) / 2.0**32 - 0.5
    correlation = 12 * (uniform[:-distance] * uniform[distance:]).mean()
    assert abs(correlation) * np.sqrt(uniform[distance:].size) < norm.isf(P / 2)


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_every_byte_is_uniform(words, shift):
    counts = np.bincount(((words >> shift) & 255).ravel(), minlength=256)
    expected = words.size / 256
    assert chi2.isf(1 - P, 255) < ((counts - expected) ** 2 / expected).sum() < chi2.isf(P, 255)


@pytest.mark.parametrize("axis", AXES)
def test_pairs_of_bytes_are_uniform(words, axis):
    """The top bytes of neighbours: 65,536 cells."""
    along = np.moveaxis(words >> 24, AXES[axis], 0)
    counts = np.bincount((along[:-1] * 256 + along[1:]).ravel(), minlength=65_536)
    expected = counts.sum() / 65_536
    assert chi2.isf(1 - P, 65_535) < ((counts - expected) ** 2 / expected).sum() < chi2.isf(P, 65_535)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_birthday_spacings(words, order):
    """Marsaglia: of 4,096 days in a year of 2³², the repeated spacings are Poisson(4); sums over 1,024 samples."""
    samples = np.transpose(words, order).reshape(-1, 4_096).astype(np.int64)
    spacings = np.sort(np.diff(np.sort(samples, axis=1), axis=1), axis=1)
    repeats = (np.diff(spacings, axis=1) == 0).sum()
    mean = len(samples) * 4_096**3 / 2**34
    assert poisson.ppf(P, mean) <= repeats <= poisson.isf(P, mean)


@pytest.mark.slow
def test_learning_curves_agree_with_threefry():
    """The mean regret over 1,000 lanes, within 4 standard errors of the difference."""
    environment = jr.ClickBandit(jr.datasets.synthetic("cm", 20), top=5)
    options = {"num_seeds": 50, "num_records": 1, "progress": False}
    policy = jr.BubbleRank(delta=0.1)
    ours, theirs = (
        jr.simulate(policy, environment, 2_000, prng=prng, **options)["regret"][..., 0].values for prng in random.PRNG
    )
    error = np.sqrt((ours.var(axis=1, ddof=1) + theirs.var(axis=1, ddof=1)).sum() / 50) / 20
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert not np.array_equal(ours, theirs)


def test_coin_flips_are_fair_and_independent_of_their_number():
    keys = jax.random.split(random.root_key(1), 20_000)
    flips = np.asarray(jax.jit(jax.vmap(lambda key: random.coin_flips(key, 40)))(keys))
    low, high = binom.ppf([1e-7, 1 - 1e-7], 20_000, 0.5)
    heads = flips.sum(axis=0)
    assert low <= heads.min() and heads.max() <= high
    together = (flips[:, :-1] & flips[:, 1:]).sum(axis=0)
    low, high = binom.ppf([1e-7, 1 - 1e-7], 20_000, 0.25)
    assert low <= together.min() and together.max() <= high
    np.testing.assert_array_equal(
        flips[:100, :10], jax.jit(jax.vmap(lambda key: random.coin_flips(key, 10)))(keys[:100])
    )
