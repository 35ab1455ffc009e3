"""Ranked bandits against their plain reference, step by step, under the same random numbers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import learnt, record
from reference.cascade import best_first
from reference.ranked import Exp3, Index, LossExp3, RankedBandits, exp3_gamma
from worlds import MODELS, any_users, click_model

import jaxrank as jr
from jaxrank.policies.ranked import RankedExp3, RankedKLUCB, RankedUCB1

STEPS = 3_000
SIZES = [(4, 4), (6, 2), (4, 1)]  # (L, K)

# Seeds of runs in which no two indices that decide a proposal are closer than 3e-8 (1e-9 is common in 12,000
# proposals), so that float32 orders them as float64 does.
SEEDS = {
    ("ucb1", (4, 4)): {"cm": 10, "dcm": 7, "pbm": 10},
    ("ucb1", (6, 2)): {"cm": 2, "dcm": 2, "pbm": 6},
    ("ucb1", (4, 1)): {"pbm": 1},
    ("klucb", (4, 4)): {"cm": 8, "dcm": 9, "pbm": 0},
    ("klucb", (6, 2)): {"cm": 0, "dcm": 5, "pbm": 8},
    ("klucb", (4, 1)): {"pbm": 0},
}


def world(model, size, users=click_model):
    return jr.ClickBandit(users(model, size[0], seed=0), list_size=size[1])


@cache
def draw_for(size, uniforms):
    """What a step draws: words for its list, and for the proposals a uniform each, or a word for each item."""
    L, K = size

    def draws(rank_key, update_key):
        words = jax.random.bits(rank_key, (L,), jnp.uint32)
        if uniforms:
            return words, jax.random.uniform(update_key, (K,))
        return words, jax.random.bits(update_key, (K, L), jnp.uint32)

    return draws


def follow(policy, environment, bandits, draws, propose, compare, seed=0):
    """Drives both through ``STEPS`` steps, compares everything, and returns how many proposals were replaced.

    ``draws`` are a step's, ``propose(bandit, draw of its position, t)`` is the reference's proposal,
    ``compare(bandits, statistics)`` asserts that what was learnt is equal.
    """
    run = record(policy, environment, STEPS, seed=seed, draws=draws, statistics=learnt)
    reference = RankedBandits(bandits)
    draws, replaced = run.first.draws[1], 0
    for t in range(STEPS):
        reference.proposals = [propose(bandit, draws[k].tolist(), t + 1) for k, bandit in enumerate(bandits)]
        ranking = reference.rank((run.draws[0][t] | 1).tolist())  # the last bit is spent on marking what is shown
        assert ranking == run.rankings[t].tolist(), f"list at step {t + 1}; {[vars(bandit) for bandit in bandits]}"
        replaced += reference.update(ranking, run.clicks[t])
        compare(bandits, {name: values[t] for name, values in run.statistics.items()})
        draws = run.draws[1][t]
    return replaced


def compare_weights(bandits, statistics):
    """To 1e-4 in log w, of which float32 loses 1e-7 a step at most."""
    expected = np.array([bandit.log_weights for bandit in bandits])
    expected -= expected.max(axis=1, keepdims=True)
    np.testing.assert_allclose(statistics["log_weights"], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("size", SIZES)
def test_ranked_exp3_equals_the_reference(model, size):
    L, K = size
    bandits = [Exp3(L, exp3_gamma(L, STEPS)) for _ in range(K)]
    replaced = follow(
        RankedExp3(horizon=STEPS),
        world(model, size, any_users),
        bandits,
        draw_for(size, uniforms=True),
        propose=lambda bandit, uniform, t: bandit.propose(uniform),
        compare=compare_weights,
    )
    assert replaced >= 100 or K == 1
    best = max(max(bandit.probabilities()) for bandit in bandits)
    assert best > 2 / L, "something was learnt"


@pytest.mark.parametrize(("model", "size"), [("pbm", (4, 4)), ("dcm", (6, 2))])
def test_ranked_exp3_on_losses_equals_the_reference(model, size):
    """Each step from the same weights: with no uniform part in p, 1/p enlarges rounding errors of log w."""
    bandits = [LossExp3(size[0], STEPS) for _ in range(size[1])]

    def compare(bandits, statistics):
        for bandit, here in zip(bandits, statistics["log_weights"], strict=True):
            expected = np.array(bandit.log_weights) - max(bandit.log_weights)
            np.testing.assert_allclose(here, expected, rtol=1e-5, atol=2e-6)
            bandit.log_weights = here.tolist()

    replaced = follow(
        RankedExp3(horizon=STEPS, estimates="losses"),
        world(model, size, any_users),
        bandits,
        draw_for(size, uniforms=True),
        propose=lambda bandit, uniform, t: bandit.propose(uniform),
        compare=compare,
    )
    assert replaced >= 100
    assert max(max(bandit.probabilities()) for bandit in bandits) > 2 / size[0], "something was learnt"


@pytest.mark.parametrize(
    ("kind", "size", "model", "seed"), [(*run, model, seed) for run in SEEDS for model, seed in SEEDS[run].items()]
)
def test_ranked_index_bandits_equal_the_reference(kind, size, model, seed):
    L, K = size
    ties = 0

    def propose(bandit, words, t):
        nonlocal ties
        proposal = bandit.propose(words, t)
        ties += proposal != best_first(bandit.index(t), [-word for word in words], 1)[0]
        return proposal

    def compare(bandits, statistics):
        assert [bandit.pulls for bandit in bandits] == statistics["pulls"].tolist()
        assert [bandit.rewards for bandit in bandits] == statistics["rewards"].tolist()

    replaced = follow(
        RankedUCB1() if kind == "ucb1" else RankedKLUCB(),
        world(model, size, any_users),
        [Index(L, kind) for _ in range(K)],
        draw_for(size, uniforms=False),
        propose=propose,
        compare=compare,
        seed=seed + 100 * jax.config.jax_enable_x64,  # clicks are others there, and so are the close calls
    )
    assert replaced >= 100 or K == 1
    assert ties >= 5 * K


def test_replacements_are_uniform_over_the_items_not_shown_above():
    """Chi-square over what replaces the second of two equal proposals, at p = 1e-4."""
    L, samples = 6, 6_000
    policy, query = RankedUCB1(), world("cm", (L, 3)).query(jax.random.key(0), jnp.int32(0))
    state = policy.init(jax.random.key(1), query)._replace(proposals=jnp.array([2, 2, 0], jnp.int32))
    keys = jax.random.split(jax.random.key(2), samples)
    rankings = np.asarray(jax.jit(jax.vmap(lambda key: policy.rank(key, state, query)))(keys))
    counts = np.bincount(rankings[:, 1], minlength=L)
    assert (rankings[:, 0] == 2).all()
    assert counts[2] == 0
    expected = samples / (L - 1)
    assert ((counts[[0, 1, 3, 4, 5]] - expected) ** 2 / expected).sum() < 23.5  # 4 degrees of freedom
    met = rankings[rankings[:, 1] == 0, 2]  # the third bandit's proposal is gone: uniform again, over four
    counts, expected = np.bincount(met, minlength=L)[[1, 3, 4, 5]], len(met) / 4
    assert ((counts - expected) ** 2 / expected).sum() < 21.1  # 3 degrees of freedom


def test_exp3_proposes_with_its_probabilities():
    """Chi-square at p = 1e-4, 3 degrees of freedom."""
    samples = 20_000
    policy, log_weights = RankedExp3(gamma=0.2), jnp.log(jnp.array([[1.0, 3.0, 0.5, 0.1]]))
    keys = jax.random.split(jax.random.key(0), samples)
    states = jax.jit(jax.vmap(lambda key: policy._propose(key, log_weights)))(keys)
    p = 0.8 * np.array([1.0, 3.0, 0.5, 0.1]) / 4.6 + 0.2 / 4
    counts = np.bincount(np.asarray(states.proposals)[:, 0], minlength=4)
    assert ((counts - samples * p) ** 2 / (samples * p)).sum() < 21.1
    np.testing.assert_allclose(states.probability[:, 0], p[states.proposals[:, 0]], rtol=1e-5)


def test_gamma_defaults_to_that_of_the_horizon():
    environment = world("pbm", (5, 3))
    by_horizon = record(RankedExp3(horizon=500), environment, 500)
    by_gamma = record(RankedExp3(gamma=exp3_gamma(5, 500), horizon=7), environment, 500)
    np.testing.assert_array_equal(by_horizon.rankings, by_gamma.rankings)


def test_a_small_gain_of_the_best_item_counts_however_far_it_leads():
    """2e-5 at a distance of 50. Beside the log weights themselves, thousands after 10⁹ steps, float32 would lose it."""
    log_weights = jnp.array([[50.0, 0.0]])
    policy = RankedExp3(gamma=1e-4)
    state = policy._propose(jax.random.key(0), log_weights)
    np.testing.assert_array_equal(state.log_weights, [[0, -50]])
    after = policy._propose(jax.random.key(0), state.log_weights.at[0, 0].add(2e-5)).log_weights
    assert after[0, 0] == 0
    assert 1.5e-5 < -50 - float(after[0, 1]) < 2.5e-5


def test_ranked_exp3_needs_gamma_or_horizon_outside_of_simulate():
    with pytest.raises(ValueError, match=r"RankedExp3\.horizon must be given outside of simulate"):
        record(RankedExp3(), world("cm", (4, 2)), 1)
    jr.simulate(RankedExp3(), world("cm", (4, 2)), 10)


@pytest.mark.slow
def test_conforms_with_gamma():
    jr.testing.check_policy(RankedExp3(gamma=0.1), world("pbm", (5, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, r"RankedExp3\.gamma must be in \(0, 1\); got 0\.0"),
        ({"gamma": 1.5}, r"RankedExp3\.gamma must be in \(0, 1\); got 1\.5"),
        ({"horizon": 0}, r"RankedExp3\.horizon must be positive and finite; got 0"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        RankedExp3(**options)
