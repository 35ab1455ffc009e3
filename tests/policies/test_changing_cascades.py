"""Cascading bandits for attractions that change, against their plain references under the same random numbers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import learnt, record
from reference.changing_cascades import GLRT, Forgetting
from worlds import any_users

import jaxrank as jr
from jaxrank.policies.glrt_cascade import LEVELS, PER_LEVEL

STEPS, CHANGE = 2_400, 700
L, K = 6, 3


@cache
def draw_words(num_items):
    return lambda rank_key, update_key: jax.random.bits(rank_key, (num_items,), jnp.uint32)


def world(model):
    """After 700 steps, three times, the best items become the worst."""
    environment = jr.ClickBandit(any_users(model, L, seed=0), list_size=K)
    attraction = np.asarray(environment.click_model.attraction)
    return jr.Changing(environment, [attraction, attraction.max() + attraction.min() - attraction], every=CHANGE)


def follow(policy, model, reference, seed=0):
    """Drives both through ``STEPS`` steps and compares lists; returns the run."""
    run = record(policy, world(model), STEPS, seed=seed, draws=draw_words(L), statistics=learnt)
    for t in range(STEPS):
        assert reference.rank(run.draws[t].tolist()) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
    return run


@pytest.mark.parametrize("model", ["cm", "pbm"])
def test_cascade_ducb_equals_the_reference(model):
    discount = float(jnp.float32(0.99))
    reference = Forgetting(L, K, STEPS, epsilon=0.5, discount=discount)
    run = follow(jr.CascadeDUCB(discount=discount), model, reference)
    observed, clicks = reference.counts()
    np.testing.assert_allclose(run.statistics["observed"][-1], observed, rtol=1e-4)
    np.testing.assert_allclose(run.statistics["clicks"][-1], clicks, rtol=1e-4, atol=1e-6)
    assert observed.sum() < 0.1 * reference.observations.sum(), "most of the past is forgotten"


def test_the_default_discount_is_that_of_the_horizon():
    run = record(jr.CascadeDUCB(horizon=400), world("cm"), 400, draws=draw_words(L))
    given = record(jr.CascadeDUCB(discount=1 - 0.25 / 20), world("cm"), 400, draws=draw_words(L))
    np.testing.assert_array_equal(run.rankings, given.rankings)


@pytest.mark.parametrize("model", ["cm", "pbm"])
def test_cascade_swucb_equals_the_reference(model):
    window = 250
    reference = Forgetting(L, K, STEPS, epsilon=0.5, window=window)
    run = follow(jr.CascadeSWUCB(window=window), model, reference)
    before = np.cumsum(reference.observations, axis=0)
    slid = before[window:] - before[:-window]
    np.testing.assert_array_equal(run.statistics["observed"][window:], slid)
    assert (np.diff(run.statistics["observed"].astype(int), axis=0) < 0).sum() > 500, "the window slides"


def test_the_default_window_is_that_of_the_horizon():
    query = world("cm").query(None, jnp.int32(1))
    state = jr.CascadeSWUCB(horizon=100_000).init(jax.random.key(0), query)
    assert state.window.shape == (round(2 * np.sqrt(100_000 * np.log(100_000))), L) == (2146, L)
    with pytest.raises(ValueError, match=r"CascadeSWUCB\.horizon must be given outside of simulate"):
        jr.CascadeSWUCB().init(jax.random.key(0), query)


GLRT_POLICIES = {"ucb1": jr.GLRTCascadeUCB, "klucb": jr.GLRTCascadeKLUCB}
OPTIONS = {"delta": 1e-4, "exploration": 0.1, "every": 5}


def glrt_reference(kind, **splits):
    return GLRT(L, K, kind, STEPS, OPTIONS["delta"], OPTIONS["exploration"], OPTIONS["every"], **splits)


@pytest.mark.parametrize(
    ("kind", "model"), [("ucb1", "cm"), ("klucb", "cm"), pytest.param("klucb", "pbm", marks=pytest.mark.slow)]
)
def test_glrt_equals_the_reference_and_detects_the_changes(kind, model):
    reference = glrt_reference(kind, levels=LEVELS, per_level=PER_LEVEL)
    run = follow(GLRT_POLICIES[kind](**OPTIONS, horizon=STEPS), model, reference)
    assert run.statistics["restarts"][-1] == len(reference.restarts)
    assert run.statistics["restart"][-1] == reference.restart
    assert run.statistics["observed"][-1].tolist() == [len(x) for x in reference.X]
    changes = [CHANGE, 2 * CHANGE, 3 * CHANGE]
    if model == "cm":
        found = [any(c < r <= c + 300 for r in reference.restarts) for c in changes]
        assert all(found), f"each of {changes} is detected: {reference.restarts}"
        assert len(reference.restarts) <= 4, "and little else"


def test_a_bounded_set_of_splits_detects_a_change_at_most_a_tenth_later_than_all_splits():
    """Means of 12 single changes; both tests see the same clicks and test after every one."""
    delays = {"bounded": [], "all": []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        clicks = rng.random(1_000) < np.where(np.arange(1_000) < 400, rng.uniform(0.1, 0.3), rng.uniform(0.6, 0.9))
        for name, splits in (("bounded", {"levels": LEVELS, "per_level": PER_LEVEL}), ("all", {})):
            one = GLRT(1, 1, "ucb1", 1_000, 1e-4, 1e-6, 1, **splits)
            while not one.restarts:
                one.update([0], [clicks[one.t - 1]])
            delays[name].append(one.restarts[0] - 400)
    bounded, every = np.array(delays["bounded"]), np.array(delays["all"])
    assert (every > 0).all() and (bounded >= every).all() and (bounded > every).any()
    assert bounded.mean() < 1.1 * every.mean(), (bounded.mean(), every.mean())


def test_forgetting_pays_after_a_change_and_costs_without_one():
    """Paired over 30 seeds by three standard errors, in a world that is reversed once and in one that is not."""
    model = jr.CascadeModel(np.linspace(0.05, 0.6, L))
    static = jr.ClickBandit(model, list_size=K)
    changing = jr.Changing(static, np.stack([model.attraction, model.attraction[::-1]]), at=[3_001])
    policies = {"plain": jr.CascadeUCB1(), "glrt": jr.GLRTCascadeUCB()}
    for environment, sign in ((changing, -1), (static, 1)):
        last = jr.compare(policies, environment, 6_000, num_seeds=30, num_records=1, progress=False)["regret"]
        gap = (last.sel(policy="glrt") - last.sel(policy="plain")).values.ravel() * sign
        assert gap.mean() > 3 * gap.std(ddof=1) / np.sqrt(gap.size), (sign, gap.mean())
