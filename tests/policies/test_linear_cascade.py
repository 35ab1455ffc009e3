"""Cascading bandits with features against their plain references, step by step, under the same random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from driver import record
from reference import linear_cascade as reference
from worlds import topic_bandit

import jaxrank as jr
from jaxrank.core import random, ridge
from jaxrank.policies.linear_cascade import CascadeHybrid, CascadeLinTS, CascadeLinUCB, CascadeLSB, sample_weights

STEPS = 2_000
FLOAT32 = 3e-6  # what a float32 score may err by: choices that hang on less are not compared


def words(num_items):
    def draw(rank_key, update_key):
        return jax.random.bits(jax.random.split(rank_key)[1], (num_items,), jnp.uint32)

    return draw


def follow(policy, make_reference, seed=0):
    """Drives both through ``STEPS`` steps and compares lists and estimates."""
    environment = topic_bandit(seed=seed)
    x, z = (np.asarray(a, np.float64) for a in (environment.topics, environment.features))
    run = record(
        policy,
        environment,
        STEPS,
        seed=seed,
        draws=words(environment.num_items),
        statistics=lambda policy, state: policy.statistics(state)["weights"],
    )
    expected = make_reference(x, z, environment.list_size)
    compared = 0
    for t in range(STEPS):
        ranking = expected.rank(run.draws[t])
        if expected.margin > FLOAT32:
            assert ranking == run.rankings[t].tolist(), f"list at step {t + 1}"
            compared += 1
        expected.update(run.rankings[t].tolist(), run.clicks[t])
        np.testing.assert_allclose(run.statistics[t], expected.weights, atol=1e-4, err_msg=f"ŵ after step {t + 1}")
    assert compared > 0.97 * STEPS, "hardly a choice hangs on rounding"
    assert 0.2 < run.clicks.any(axis=1).mean() < 0.98, "lists with and without a click"
    assert len({tuple(r) for r in run.rankings.tolist()}) > 20
    return run


def test_cascade_hybrid_equals_algorithm_1():
    follow(CascadeHybrid(), reference.CascadeHybrid)


def test_cascade_hybrid_equals_algorithm_1_with_another_gamma():
    follow(CascadeHybrid(gamma=2.0), lambda x, z, K: reference.CascadeHybrid(x, z, K, gamma=2.0), seed=1)


def test_cascade_lin_ucb_equals_its_reference():
    follow(CascadeLinUCB(), lambda x, z, K: reference.CascadeLinUCB(z, K))


def test_cascade_lin_ucb_with_all_features_equals_its_reference():
    follow(CascadeLinUCB(full=True), lambda x, z, K: reference.CascadeLinUCB(np.hstack([x, z]), K))


def test_cascade_lsb_equals_its_reference():
    follow(CascadeLSB(), lambda x, z, K: reference.CascadeLSB(x, K))


def test_cascade_lsb_with_all_features_equals_its_reference():
    follow(CascadeLSB(full=True), lambda x, z, K: reference.CascadeLSB(np.hstack([x, z]), K))


def rank_keys(num_steps):
    """The keys of Thompson samples that ``record`` leads to."""
    lane = random.lane_key(random.root_key(0), jnp.int32(0), jnp.int32(0))
    steps = jnp.arange(1, num_steps + 1, dtype=jnp.int32)
    return jax.jit(jax.vmap(lambda t: jax.random.split(random.step_keys(lane, t)[1])[0]))(steps)


@pytest.mark.parametrize(
    ("policy", "make_reference"),
    [
        (CascadeHybrid(exploration="ts"), lambda x, z: reference.CascadeHybrid(x, z, 5)),
        (CascadeLinTS(), lambda x, z: reference.CascadeLinUCB(z, 5)),
        (CascadeLinTS(full=True), lambda x, z: reference.CascadeLinUCB(np.hstack([x, z]), 5)),
    ],
    ids=["CascadeHybrid", "CascadeLinTS", "CascadeLinTSFull"],
)
def test_thompson_sampling_shows_the_greedy_list_of_its_sample(policy, make_reference):
    """The reference with ŵ replaced by the sample and no width; steps enough to see re-solved states."""
    environment = topic_bandit(seed=2)
    steps = 2 * ridge.RESOLVE_EVERY
    run = record(policy, environment, steps, draws=words(environment.num_items), statistics=lambda policy, state: state)
    first = jax.tree.map(lambda x: x[None], jax.device_get(policy.init(None, environment.query(None, jnp.int32(0)))))
    before = jax.tree.map(lambda x, y: np.concatenate([x, y[:-1]]), first, run.statistics)
    samples = jax.jit(jax.vmap(sample_weights, in_axes=(0, 0, None)))(rank_keys(steps), before, 1.0)
    x, z = (np.asarray(a, np.float64) for a in (environment.topics, environment.features))
    expected = make_reference(x, z)
    expected.gamma = 0.0
    compared = 0
    for t in range(steps):
        sample = np.asarray(samples[t], np.float64)
        if isinstance(expected, reference.CascadeHybrid):
            expected.theta, expected.beta = sample[: x.shape[1]], sample[x.shape[1] :]
        else:
            expected.weights = sample
        ranking = expected.rank(run.draws[t])
        if expected.margin > FLOAT32:
            assert ranking == run.rankings[t].tolist(), f"list at step {t + 1}"
            compared += 1
    assert compared > 0.97 * steps


def test_samples_are_normal_with_covariance_gamma_squared_over_o():
    """Along several directions, by Kolmogorov–Smirnov at p = 1e-4."""
    rng = np.random.default_rng(0)
    state = ridge.init(5)
    for t in range(1, 31):
        phi, reward = rng.normal(size=(3, 5)), rng.uniform(size=3) < 0.4
        state = ridge.update(state, jnp.asarray(phi, jnp.float32), jnp.asarray(reward), jnp.int32(t))
    keys = jax.random.split(jax.random.key(0), 20_000)
    samples = np.asarray(jax.jit(jax.vmap(sample_weights, in_axes=(0, None, None)))(keys, state, 0.7), np.float64)
    covariance = 0.7**2 * np.linalg.inv(np.asarray(ridge.gram(state), np.float64))
    for direction in (*np.eye(5), *rng.normal(size=(3, 5))):
        exact = scipy.stats.norm(direction @ state.weights, np.sqrt(direction @ covariance @ direction))
        assert scipy.stats.kstest(samples @ direction, exact.cdf).pvalue > 1e-4


def test_equal_items_are_shown_in_random_order():
    """At the first step all items of normalised features are equal: each is first in 1/L of the lanes (chi-square)."""
    angles = np.linspace(0, 2, 8)
    environment = jr.TopicBandit(
        np.full((8, 2), 0.1), np.stack([np.cos(angles), np.sin(angles)], axis=1), [0.5, 0.5], [1, 0], list_size=3
    )
    query, state = environment.query(None, jnp.int32(1)), ridge.init(2)
    keys = jax.random.split(random.root_key(0), 4_000)
    lists = np.asarray(jax.jit(jax.vmap(lambda key: CascadeLinUCB().rank(key, state, query)))(keys))
    assert scipy.stats.chisquare(np.bincount(lists[:, 0], minlength=8)).pvalue > 1e-4
    assert len({tuple(r) for r in lists.tolist()}) == 8 * 7 * 6


def take_lane(states, lane):
    return jax.tree.map(lambda x: x[lane], states)


def test_many_lanes_do_what_each_does_alone():
    """More lanes and items than XLA takes in one piece: the lists of lanes 0, 37 and 99 among 100, and alone."""
    environment = topic_bandit(num_items=300, num_users=100)
    query = environment.query(None, jnp.int32(1))
    rng = np.random.default_rng(0)
    phi = jnp.asarray(rng.uniform(size=(100, 8, environment.num_topics + environment.num_features)), jnp.float32)
    reward = jnp.asarray(rng.uniform(size=(100, 8)) < 0.3)
    learn = jax.jit(jax.vmap(lambda phi, reward: ridge.update(ridge.init(phi.shape[1]), phi, reward, jnp.int32(1))))
    states = learn(phi, reward)
    keys = jax.random.split(random.root_key(0), 100)
    rank = lambda key, state: CascadeHybrid().rank(key, state, query)  # noqa: E731
    together = jax.jit(jax.vmap(rank))(keys, states)
    for lane in (0, 37, 99):
        alone = jax.jit(rank)(keys[lane], take_lane(states, lane))
        np.testing.assert_array_equal(together[lane], alone)


@pytest.mark.parametrize("policy", [CascadeHybrid, CascadeLinUCB, CascadeLSB])
def test_items_without_features_are_refused(policy):
    environment = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3]))
    with pytest.raises(
        ValueError, match=rf"{policy.__name__} needs items with (topics|features), as a TopicBandit has"
    ):
        jr.simulate(policy(), environment, 10, progress=False)


def test_bad_options_name_the_field_and_the_value():
    with pytest.raises(ValueError, match=r"CascadeHybrid\.exploration must be 'ucb' or 'ts'; got 'greedy'"):
        CascadeHybrid(exploration="greedy")
    with pytest.raises(ValueError, match=r"CascadeLSB\.gamma must be non-negative and finite; got -1"):
        CascadeLSB(gamma=-1.0)
