"""Cascading bandits against their plain reference, step by step, under the same random numbers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from driver import learnt, record
from reference.cascade import Cascade as Reference
from reference.cascade import best_first, kl_ucb
from worlds import MODELS, any_users, click_model

import jaxrank as jr
from jaxrank.core import random
from jaxrank.core.ranking import top_items
from jaxrank.policies.cascade import DCMKLUCB, CascadeKLUCB, CascadeState, CascadeTS, CascadeUCB1, beta_posterior
from jaxrank.policies.cascade import kl_ucb as jax_kl_ucb

STEPS = 3_000
WORLDS = [(model, size) for size in [(6, 6), (8, 3)] for model in MODELS] + [("pbm", (5, 1))]  # size: (L, K)


def world(model, size, users=any_users):
    return jr.ClickBandit(users(model, size[0], seed=0), list_size=size[1])


@cache
def draw_words(num_items):
    return lambda rank_key, update_key: jax.random.bits(rank_key, (num_items,), jnp.uint32)


def follow(policy, environment, kind, feedback, seed=0, **options):
    """Drives both through ``STEPS`` steps and compares everything.

    Returns in how many steps the random words decided a tie, and the clicks.
    """
    L, K = environment.num_items, environment.list_size
    run = record(
        policy,
        environment,
        STEPS,
        seed=seed,
        draws=draw_words(L),
        statistics=learnt,
    )
    reference = Reference(L, K, kind, feedback, **options)
    ties = 0
    for t in range(STEPS):
        words = run.draws[t].tolist()
        ranking, index = reference.rank(words), reference.index()
        assert ranking == run.rankings[t].tolist(), f"list at step {t + 1}; indices {index}"
        ties += ranking != best_first(index, [-word for word in words], K)
        reference.update(ranking, run.clicks[t])
        assert reference.observed == run.statistics["observed"][t].tolist(), f"T_e after step {t + 1}"
        assert reference.clicks == run.statistics["clicks"][t].tolist(), f"clicks after step {t + 1}"
    return ties, run.clicks


@pytest.mark.parametrize(("model", "size"), WORLDS)
def test_cascade_klucb_equals_the_reference(model, size):
    ties, _ = follow(CascadeKLUCB(), world(model, size), "klucb", "first")
    assert ties >= 5


@pytest.mark.parametrize(("model", "size"), WORLDS)
def test_cascade_ucb1_equals_the_reference(model, size):
    ties, _ = follow(CascadeUCB1(), world(model, size), "ucb1", "first")
    assert ties >= 5


@pytest.mark.parametrize("model", ["dcm", "pbm"])
@pytest.mark.parametrize("policy", [CascadeKLUCB(feedback="last"), DCMKLUCB()], ids=lambda p: type(p).__name__)
def test_feedback_down_to_the_last_click_equals_the_reference(model, policy):
    environment = world(model, (8, 5))
    ties, clicks = follow(policy, environment, "klucb", "last")
    assert ties >= 5
    assert (clicks.sum(axis=1) >= 2).sum() >= STEPS / 10, "first and last click often differ"
    first = record(CascadeKLUCB(), environment, STEPS, draws=draw_words(8), statistics=learnt)
    last = record(policy, environment, STEPS, draws=draw_words(8), statistics=learnt)
    assert (first.rankings != last.rankings).any(), "and so do the lists"


@pytest.mark.parametrize("feedback", ["last", "full"])
@pytest.mark.parametrize("size", [(6, 6), (8, 3)])
def test_cascade_klucb_as_released_equals_the_reference(feedback, size):
    options = {"level": "log", "initial": "each"}
    policy = CascadeKLUCB(feedback=feedback, **options)
    ties, clicks = follow(policy, world("pbm", size), "klucb", feedback, **options)
    assert ties >= 5
    assert (clicks.sum(axis=1) >= 2).any(), "the rules of feedback differ"


def rank_keys(seed, num_steps):
    """The keys that ``record`` hands to ``rank``."""
    lane = random.lane_key(random.root_key(seed), jnp.int32(0), jnp.int32(0))
    return jax.jit(jax.vmap(lambda t: random.step_keys(lane, t)[1]))(jnp.arange(1, num_steps + 1, dtype=jnp.int32))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("size", "feedback"), [((6, 6), "first"), ((8, 3), "last")])
def test_cascade_ts_equals_the_reference_given_its_samples(model, size, feedback):
    run = record(
        CascadeTS(feedback=feedback),
        world(model, size),
        STEPS,
        statistics=learnt,
    )
    before = {name: np.concatenate([values[:1] * 0, values[:-1]]) for name, values in run.statistics.items()}
    samples = jax.jit(jax.vmap(beta_posterior))(rank_keys(0, STEPS), CascadeState(**before))
    reference = Reference(*size, "ts", feedback)
    for t in range(STEPS):
        assert reference.observed == before["observed"][t].tolist(), f"T_e before step {t + 1}"
        assert reference.clicks == before["clicks"][t].tolist(), f"clicks before step {t + 1}"
        assert reference.rank_samples(samples[t].tolist()) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
    assert len({tuple(ranking) for ranking in run.rankings.tolist()}) > 10


def test_cascade_ts_samples_from_the_beta_posterior_of_a_uniform_prior():
    observed = np.array([0, 5, 5, 400, 100_000, 2_000_000, 2_000_000])
    clicks = np.array([0, 0, 5, 30, 60_000, 3, 1_300_000])
    state = CascadeState(jnp.asarray(observed, jnp.int32), jnp.asarray(clicks, jnp.int32))
    samples = jax.jit(jax.vmap(beta_posterior, in_axes=(0, None)))(rank_keys(1, 20_000), state)
    for e in range(len(clicks)):
        exact = scipy.stats.beta(1 + clicks[e], 1 + observed[e] - clicks[e])
        assert scipy.stats.kstest(samples[:, e], exact.cdf).pvalue > 1e-4, (clicks[e], observed[e])


def test_kl_index_is_that_of_the_reference_to_float32():
    rng = np.random.default_rng(0)
    for t in (1, 2, 3, 10, 1_000, 100_000):
        trials = rng.integers(0, t + 1, 200)
        successes = rng.binomial(trials, rng.uniform(size=200))
        index = jax.jit(jax_kl_ucb)(jnp.asarray(successes, jnp.int32), jnp.asarray(trials, jnp.int32), jnp.int32(t))
        expected = [kl_ucb(s, n, t) for s, n in zip(successes, trials, strict=True)]
        np.testing.assert_allclose(index, expected, rtol=0, atol=2e-6)


def test_never_observed_items_come_first():
    environment = world("pbm", (8, 3))
    run = record(CascadeUCB1(), environment, 30, statistics=lambda policy, state: policy.statistics(state)["observed"])
    before = np.concatenate([run.statistics[:1] * 0, run.statistics[:-1]])
    assert (before == 0).any(axis=1).sum() >= 3
    for observed, ranking in zip(before, run.rankings, strict=True):
        unseen = int((observed == 0).sum())
        assert (observed[ranking[: min(unseen, 3)]] == 0).all()


@pytest.mark.parametrize("num_items", [5, 40])
def test_top_items_with_random_ties_sorts_by_score_then_word(num_items):
    rng = np.random.default_rng(0)
    for _ in range(100):
        scores = rng.choice([0.0, 0.25, 1.0, np.inf], num_items).astype(np.float32)
        words = rng.permutation(num_items).astype(np.uint32) << 24  # short lists compare the upper 27 bits
        list_size = int(rng.integers(1, num_items + 1))
        ranking = top_items(jnp.asarray(scores), list_size, jnp.asarray(words))
        assert ranking.dtype == jnp.int32
        assert ranking.tolist() == best_first(scores.tolist(), words.tolist(), list_size)


@pytest.mark.parametrize("policy", [CascadeKLUCB(), CascadeTS()], ids=repr)
def test_regret_per_step_falls_to_a_third_in_the_cascade_model(policy):
    """Regret grows as log t: its mean over 40 lanes, by five standard errors."""
    result = jr.simulate(policy, world("cm", (8, 3), click_model), 8_000, num_seeds=40, record_at=(1_000, 7_000))
    regret = result["regret"].values
    first, last = regret[:, 0], regret[:, 2] - regret[:, 1]
    fall = first - 3 * last
    assert fall.mean() > 5 * fall.std() / np.sqrt(40)


@pytest.mark.slow
def test_conforms_with_the_last_click():
    jr.testing.check_policy(CascadeKLUCB(feedback="last"), world("pbm", (5, 3), click_model))


@pytest.mark.parametrize("policy", [CascadeKLUCB, CascadeUCB1, CascadeTS])
def test_feedback_must_be_known(policy):
    with pytest.raises(
        ValueError, match=rf"{policy.__name__}\.feedback must be one of first, last, full; got 'middle'"
    ):
        policy(feedback="middle")
