"""Bandits for the position-based model against their plain reference, step by step, under the same random numbers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import learnt, record
from reference import position_based as plain
from reference.cascade import best_first
from worlds import MODELS, click_model

import jaxrank as jr
from jaxrank.core import random
from jaxrank.core.samplers import position_based_posterior
from jaxrank.policies.position_based import PBMPIE, PBMTS, PBMUCB, PositionBasedState

STEPS = 3_000
SIZES = [(6, 6), (7, 3), (5, 1)]  # (L, K)


def world(size, seed=0):
    """Examination in no order, and such that no two sums of it are equal by accident."""
    L, K = size
    rng = np.random.default_rng(seed + 10)
    examination = rng.permutation(np.linspace(1, 0.3, K) ** np.sqrt(2))
    return jr.ClickBandit(jr.PositionBasedModel(click_model("pbm", L, seed).attraction, examination), list_size=K)


def exactly(chi):
    """float32 χ as Python's floats, for the reference."""
    return np.asarray(chi, np.float64).tolist()


def run_steps(policy, environment, draws=None, seed=0):
    return record(policy, environment, STEPS, seed=seed, draws=draws, statistics=learnt)


@cache
def draw_words(number):
    return lambda rank_key, update_key: jax.random.bits(rank_key, (number,), jnp.uint32)


def compare(reference, run, t):
    assert run.statistics["N"][t].tolist() == reference.N, f"N after step {t + 1}"
    S = run.statistics["S"][t]
    assert S.tolist() == (reference.S if S.ndim == 2 else np.sum(reference.S, axis=0).tolist()), f"S after step {t + 1}"


@pytest.mark.parametrize("size", SIZES)
def test_pbm_ucb_equals_the_reference(size):
    environment = world(size)
    L, K = size
    run = run_steps(PBMUCB(), environment, draw_words(L))
    reference = plain.PBMUCB(L, exactly(environment.click_model.examination), epsilon=0.01)
    ties = 0
    for t in range(STEPS):
        words = run.draws[t].tolist()
        index = [reference.index(k) for k in range(L)]
        ties += best_first(index, words, K) != best_first(index, [-word for word in words], K)
        assert reference.rank(words) == run.rankings[t].tolist(), f"list at step {t + 1}; indices {index}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        compare(reference, run, t)
    assert ties >= 1


@pytest.mark.parametrize("model", ["cm", "dcm"])
def test_pbm_ucb_takes_its_own_examination_to_other_users(model):
    environment = jr.ClickBandit(click_model(model, 6, seed=0), list_size=4)
    chi = np.float32([0.9, 0.31, 0.77, 0.43])
    policy = PBMUCB(examination=chi, epsilon=0.5)
    run = run_steps(policy, environment, draw_words(6))
    reference = plain.PBMUCB(6, exactly(chi), epsilon=0.5)
    for t in range(STEPS):
        assert reference.rank(run.draws[t].tolist()) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        compare(reference, run, t)


@pytest.mark.parametrize("size", [(5, 3), (4, 2), (4, 1), (4, 4)])
def test_pbm_pie_equals_the_reference_that_finds_the_upper_bounds(size):
    environment = world(size)
    L, K = size
    run = run_steps(PBMPIE(), environment, draw_words(L + 1))
    reference = plain.PBMPIE(L, exactly(environment.click_model.examination), epsilon=0.01)
    candidates, explored = np.zeros(STEPS, int), np.zeros(STEPS, bool)
    for t in range(STEPS):
        *words, explorer_word = run.draws[t].tolist()
        assert reference.rank(words, explorer_word) == run.rankings[t].tolist(), f"list at step {t + 1}"
        candidates[t] = len(reference.set_of_candidates)
        explored[t] = bool(set(reference.set_of_candidates) & set(run.rankings[t].tolist()))
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        compare(reference, run, t)
    if K < L:
        assert 0.01 < (candidates > 0).mean() < 0.99, "there are candidates at some steps, and none at others"
        assert (candidates > 1).any(), "and at some there are several"
        assert abs(explored[candidates > 0].mean() - 0.5) < 0.1, "one of them is shown half of the time"


@pytest.mark.parametrize("t", [2, 50, 3_000])
def test_who_may_reach_a_level_without_finding_upper_bounds(t):
    """Also where clicks fit no attraction, so that Φ exceeds δ_t everywhere."""
    L, chi = 60, np.float32([0.9, 0.5, 0.21])
    rng = np.random.default_rng(t)
    N = rng.integers(0, [[12], [12], [30]], (3, L))
    S = rng.binomial(N, rng.uniform(0, chi[:, None], (3, L)))
    reference = plain.PBMPIE(L, exactly(chi), epsilon=0.01)
    reference.N, reference.S, reference.t = N.tolist(), S.tolist(), t
    upper_bounds = np.array([reference.upper_bound(k) for k in range(L)])
    nowhere = [reference.divergence(k, reference.maximum_likelihood(k)) > reference.delta() for k in range(L)]
    assert any(nowhere) or t > 2
    state = PositionBasedState(jnp.asarray(N, jnp.int32), jnp.asarray(S, jnp.int32))
    for c in np.float32([0, 0.04, 0.2, 0.37, 0.55, 0.81, 0.999, 1.3, np.inf]):
        far = abs(upper_bounds - c) > 1e-5
        reached = np.asarray(PBMPIE()._may_reach(c, state, jnp.asarray(chi), jnp.int32(t)))
        np.testing.assert_array_equal(reached[far], (upper_bounds >= c)[far], err_msg=f"c = {c}")
        assert far.sum() > L - 5


def rank_keys(seed, num_steps):
    """The keys that ``record`` hands to ``rank``."""
    lane = random.lane_key(random.root_key(seed), jnp.int32(0), jnp.int32(0))
    return jax.jit(jax.vmap(lambda t: random.step_keys(lane, t)[1]))(jnp.arange(1, num_steps + 1, dtype=jnp.int32))


def samples_of(run, environment):
    """The uniforms and the samples of a run of PBM-TS: [steps, L] both, and the statistics before each step."""
    L, chi = environment.num_items, environment.click_model.examination
    before = {name: np.concatenate([values[:1] * 0, values[:-1]]) for name, values in run.statistics.items()}
    uniforms = jax.jit(jax.vmap(lambda key: jax.random.uniform(key, (L,))))(rank_keys(0, STEPS))
    clicks, skips = before["S"].sum(axis=1, dtype=np.int32), before["N"] - before["S"]
    sample = jax.jit(jax.vmap(position_based_posterior, in_axes=(0, 0, 0, None)))
    return uniforms, sample(uniforms, clicks, skips, chi), before


@pytest.mark.parametrize("size", SIZES)
def test_pbm_ts_equals_the_reference_given_its_samples(size):
    environment = world(size)
    L = size[0]
    run = run_steps(PBMTS(), environment)
    _, samples, before = samples_of(run, environment)
    reference = plain.PBMTS(L, exactly(environment.click_model.examination))
    for t in range(STEPS):
        assert before["N"][t].tolist() == reference.N, f"N before step {t + 1}"
        assert before["S"][t].tolist() == reference.S, f"S before step {t + 1}"
        assert reference.rank(samples[t].tolist()) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
    assert len({tuple(ranking) for ranking in run.rankings.tolist()}) > min(L, 10) - 1


def test_samples_invert_the_posterior_cdf_to_1e_3_along_a_run():
    environment = world((7, 3))
    chi = exactly(environment.click_model.examination)
    run = run_steps(PBMTS(), environment)
    uniforms, samples, before = samples_of(run, environment)
    for t in range(0, STEPS, 25):
        N, S = before["N"][t], before["S"][t]
        for k in range(7):
            cdf = plain.posterior_cdf(float(samples[t, k]), S[:, k].sum(), (N - S)[:, k], chi)
            assert abs(cdf - float(uniforms[t, k])) < 1e-3, (t, k)


@pytest.mark.parametrize(
    "policy", [PBMUCB(), PBMPIE(), pytest.param(PBMTS(), marks=pytest.mark.slow)], ids=lambda p: type(p).__name__
)
def test_regret_per_step_falls_to_a_third(policy):
    """Its mean over 40 lanes, by five standard errors."""
    result = jr.simulate(policy, world((6, 3)), 10_000, num_seeds=40, record_at=(1_000, 9_000))
    regret = result["regret"].values
    first, last = regret[:, 0], regret[:, 2] - regret[:, 1]
    fall = first - 3 * last
    assert fall.mean() > 5 * fall.std() / np.sqrt(40)


def test_items_never_examined_come_first():
    environment = world((7, 3))
    for policy in (PBMUCB(), PBMPIE()):
        run = record(policy, environment, 3)
        assert set(run.rankings.ravel().tolist()) == set(range(7))


def test_best_items_go_to_the_most_examined_positions():
    chi = np.float32([0.2, 0.9, 0.5])
    attraction = [0.1, 0.9, 0.5, 0.3]
    environment = jr.ClickBandit(jr.PositionBasedModel(attraction, chi), list_size=3)
    assert environment.optimal_ranking.tolist() == [3, 1, 2]
    for policy in (PBMUCB(), PBMPIE(), PBMTS()):
        run = record(policy, environment, 3_000)
        shown = (run.rankings[-500:] == np.array([3, 1, 2])).mean(axis=0)
        assert (shown > 0.5).all(), (policy, shown)


@pytest.mark.parametrize("policy", [PBMUCB, PBMPIE, PBMTS])
def test_examination_must_be_known(policy):
    for model in ("cm", "dcm"):
        environment = jr.ClickBandit(click_model(model, 4, seed=0))
        with pytest.raises(ValueError, match=rf"{policy.__name__}\.examination must be given"):
            record(policy(), environment, 1)
    with pytest.raises(ValueError, match=rf"{policy.__name__}\.examination must hold the 4 positions .* got 2"):
        record(policy(examination=[1, 0.5]), environment, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"examination": [0.5, 1.5]}, r"PBMUCB\.examination must be in \[0, 1\]; got 1\.5 at index \(1,\)"),
        ({"examination": 0.5}, r"PBMUCB\.examination must have 1 dimensions"),
        ({"epsilon": -0.1}, r"PBMUCB\.epsilon must be non-negative and finite; got -0\.1"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        PBMUCB(**options)


@pytest.mark.slow
def test_conforms_with_an_examination_of_its_own():
    environment = jr.ClickBandit(click_model(MODELS[0], 5, seed=0), list_size=3)
    jr.testing.check_policy(PBMPIE(examination=[0.5, 1.0, 0.7]), environment)
