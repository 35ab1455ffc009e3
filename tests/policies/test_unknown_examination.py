"""GRAB, UniRank and PB-MHB against their plain references under the same random numbers."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from driver import learnt, record
from reference import grab, pbmhb, unirank
from worlds import any_users

import jaxrank as jr
from jaxrank.policies.grab import best_assignment
from jaxrank.policies.pbmhb import PBMHBState, sweep
from jaxrank.policies.unirank import leader_partition

STEPS = 2_500


def world(model, size):
    return jr.ClickBandit(any_users(model, size[0], seed=0), list_size=size[1])


@pytest.mark.parametrize(("model", "size"), [("pbm", (6, 3)), ("cm", (5, 5))])
def test_grab_equals_the_reference(model, size):
    L, K = size
    run = record(jr.GRAB(horizon=STEPS), world(model, size), STEPS, statistics=learnt)
    first = run.first.statistics["leader"].tolist()
    assert sorted(first) == list(range(L))
    reference = grab.GRAB(K, first, STEPS, period=L - 1)
    leaders = []
    for t in range(STEPS):
        assert reference.rank() == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        assert reference.leader == run.statistics["leader"][t].tolist(), f"leader after step {t + 1}"
        assert reference.led == run.statistics["led"][t], f"age of the leader after step {t + 1}"
        leaders.append(tuple(reference.leader[:K]))
    assert sum(a != b for a, b in itertools.pairwise(leaders)) > 10, "the leader changes"
    assert (run.rankings[1:] != np.array(leaders)[:-1]).any(axis=1).sum() > 100, "neighbours are shown"


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (4, 4), (6, 9)])
def test_the_assignment_is_the_best_one(shape):
    """Against SciPy's solver, on random and on coarse values, which have many ties."""
    rng = np.random.default_rng(0)
    solve = jax.jit(jax.vmap(best_assignment))
    for values in (rng.random((60, *shape)), rng.integers(0, 3, (60, *shape)) / 2):
        found = np.asarray(solve(jnp.asarray(values, jnp.float32)))
        for value, items in zip(values, found, strict=True):
            assert len(set(items.tolist())) == shape[0]
            best = value[scipy.optimize.linear_sum_assignment(-value)].sum()
            assert value[np.arange(shape[0]), items].sum() == pytest.approx(best, abs=1e-5)


@cache
def draw_words(num_items):
    def draw(rank_key, update_key):
        return tuple(jax.random.bits(key, (num_items,), jnp.uint32) for key in (rank_key, update_key))

    return draw


@pytest.mark.parametrize(
    ("model", "size"), [("pbm", (6, 3)), ("cm", (5, 5)), pytest.param("dcm", (5, 2), marks=pytest.mark.slow)]
)
def test_unirank_equals_the_reference(model, size):
    L, K = size
    run = record(jr.UniRank(), world(model, size), STEPS, draws=draw_words(L), statistics=learnt)
    reference = unirank.UniRank(L, K)
    partitions = set()
    for t in range(STEPS):
        rank_words, update_words = run.draws[0][t], run.draws[1][t]
        assert reference.rank(rank_words.tolist()) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t], update_words.tolist())
        part = run.statistics["part"][t]
        ours = [sorted(np.flatnonzero(part == number).tolist()) for number in range(K) if (part == number).any()]
        assert [sorted(p) for p in reference.parts] == ours, f"partition after step {t + 1}"
        partitions.add(tuple(part.tolist()))
    np.testing.assert_array_equal(run.statistics["S"][-1], reference.wins - reference.wins.T)
    assert len(partitions) > 5 and reference.merges > 100, "partitions move"
    assert (reference.joins > 100) == (K < L)


def test_the_leader_partition_is_that_of_all_subsets():
    """On random relations with cycles and ties, the scores find the parts that a search through all sets finds."""
    rng = np.random.default_rng(0)
    find = jax.jit(leader_partition)
    lengths = set()
    for _ in range(200):
        wins = rng.integers(0, 4, (5, 5))
        order = rng.permutation(5)
        wins[np.ix_(order[:2], order[2:])] += 3 * rng.integers(0, 2)  # often, two items beat the others
        np.fill_diagonal(wins, 0)
        parts = unirank.leader_partition((wins - wins.T).tolist())
        ours = np.asarray(find(jnp.asarray(wins, jnp.int32)))
        assert [np.flatnonzero(ours == n).tolist() for n in range(len(parts))] == parts
        lengths.add(len(parts))
    assert {1, 2} < lengths


@cache
def draw_uniforms(size):
    return lambda rank_key, update_key: jax.random.uniform(update_key, (1, 2, size))


def test_pbmhb_equals_the_reference_given_the_particle_of_the_step_before():
    """Every decision is the same, unless it hangs by a margin of 1e-3; proposals agree to 1e-3."""
    L, K = 6, 3
    run = record(jr.PBMHB(width=2.0), world("pbm", (L, K)), 600, draws=draw_uniforms(L + K), statistics=learnt)
    before = {name: values[None] for name, values in run.first.statistics.items()}
    before = {name: np.concatenate([before[name], values[:-1]]) for name, values in run.statistics.items()}
    accepted = 0
    for t in range(600):
        ranking = run.rankings[t].tolist()
        assert ranking == pbmhb.best_list(before["theta"][t].tolist(), before["kappa"][t].tolist())
        shown, clicks = run.statistics["shown"][t], run.statistics["clicks"][t]
        sigma = 2.0 / np.sqrt(t + 2)
        uniforms = run.draws[t][0].astype(float)
        particle = before["theta"][t].astype(float), before["kappa"][t].astype(float)
        theta, kappa, margins = pbmhb.sweep(*particle, clicks, shown, sigma, uniforms)
        if min(map(abs, margins)) > 1e-3:
            np.testing.assert_allclose(run.statistics["theta"][t], theta, atol=1e-3)
            np.testing.assert_allclose(run.statistics["kappa"][t], kappa, atol=1e-3)
        accepted += sum(margin > 0 for margin in margins)
    assert run.statistics["shown"][-1].sum() == 600 * K and accepted > 500


def test_pbmhb_samples_the_posterior():
    """Means of 40,000 sweeps at fixed counts against the integral over a grid, within 0.01."""
    shown = jnp.asarray([[30, 10], [8, 25]], jnp.int32)
    clicks = jnp.asarray([[18, 3], [2, 4]], jnp.int32)
    state = PBMHBState(shown, clicks, jnp.asarray([0.5, 0.5]), jnp.asarray([1.0, 0.5]))

    def step(state, key):
        state = sweep(state, jnp.float32(0.3), jax.random.uniform(key, (2, 4)))
        return state, (state.theta, state.kappa[1])

    _, (theta, kappa) = jax.lax.scan(step, state, jax.random.split(jax.random.key(0), 40_000))
    grid = (np.arange(150) + 0.5) / 150
    a, b, k = np.meshgrid(grid, grid, grid, indexing="ij")
    log = 0.0
    for x, s, n in ((a, 18, 30), (b, 3, 10), (a * k, 2, 8), (b * k, 4, 25)):
        log = log + (s + 0.5) * np.log(x) + (n - s + 0.5) * np.log1p(-x)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    means = [(weight * x).sum() for x in (a, b, k)]
    np.testing.assert_allclose([*np.mean(theta, axis=0), np.mean(kappa)], means, atol=0.01)


@pytest.mark.slow
def test_they_learn_the_order_without_knowing_the_examination():
    """With χ = (1, 0.4, 0.7), not in order and not told to the policies, regret per step falls to a half or less."""
    users = jr.PositionBasedModel([0.1, 0.6, 0.3, 0.8, 0.2], [1.0, 0.4, 0.7])
    environment = jr.ClickBandit(users, list_size=3)
    policies = {"GRAB": jr.GRAB(), "PBMHB": jr.PBMHB()}
    result = jr.compare(policies, environment, 6_000, num_seeds=20, record_at=(1_000, 5_000, 6_000), progress=False)
    for policy in policies:
        regret = result["regret"].sel(policy=policy).values
        early, late = regret[:, 0], regret[:, 2] - regret[:, 1]
        assert late.mean() < early.mean() / 2, (policy, early.mean(), late.mean())
