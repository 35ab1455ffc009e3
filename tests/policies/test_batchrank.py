"""BatchRank against its plain reference, step by step, under the same random numbers."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record, run_lanes
from reference.batchrank import BatchRank as Reference
from reference.batchrank import ReleasedBatchRank
from scipy.stats import chisquare
from worlds import MODELS, any_users, click_model

import jaxrank as jr
from jaxrank.core import random
from jaxrank.policies.batchrank import BatchRank, BatchRankState, _stage_length, _update_batches

HORIZON = 8  # n_0 = 34: stages end early, and often
STEPS = 8_000


def statistics(policy, state):
    return {**policy.statistics(state), "settled": policy.settled(state)}


@cache
def draw_words(number):
    return lambda rank_key, update_key: jax.random.bits(rank_key, (number,), jnp.uint32)


def follow(environment, horizon=HORIZON, seed=0, steps=STEPS, variant="printed"):
    """Drives both through ``steps`` steps, compares everything, and returns the statistics."""
    L, K = environment.num_items, environment.list_size
    released = variant == "released"
    run = record(
        BatchRank(horizon=horizon, variant=variant),
        environment,
        steps,
        seed=seed,
        draws=draw_words(L if L == K or released else L + K),
        statistics=statistics,
    )
    reference = (ReleasedBatchRank if released else Reference)(L, K, horizon)
    assert run.first.statistics["settled"] == reference.settled()
    for t in range(steps):
        order_words, position_words = run.draws[t][:L], run.draws[t][L:]
        if L == K:
            position_words = range(K)  # all items are shown in the random order of line 3: π may be the identity
        ranking = reference.rank(order_words) if released else reference.rank(order_words, position_words)
        assert ranking == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(ranking, run.clicks[t])
        expected = {**reference.statistics(), "settled": reference.settled()}
        assert {name: value[t].tolist() for name, value in run.statistics.items()} == expected, f"step {t + 1}"
    return run.statistics


def batches(stats):
    """How many batches there are after each step."""
    L = stats["first"].shape[1]
    return np.array([len(set(first.tolist()) - {L}) for first in stats["first"]])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_items", [5, 8])
def test_lists_and_statistics_equal_the_reference(model, num_items):
    stats = follow(jr.ClickBandit(any_users(model, num_items, seed=num_items)), seed=num_items)
    assert np.unique(batches(stats)).size >= 3, "batches are split more than once"
    assert stats["stage"].max() >= 2, "a batch that is not split goes on to its next stages"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("list_size", [1, 3, 5])
def test_more_items_than_positions_equal_the_reference(model, list_size):
    environment = jr.ClickBandit(any_users(model, 8, seed=2), list_size=list_size)
    stats = follow(environment, seed=list_size)
    eliminated = (stats["first"] == 8).sum(axis=1)
    assert eliminated[0] == 0 and eliminated[-1] >= 2, "items are eliminated"
    assert (np.diff(eliminated) >= 0).all(), "and never come back"
    assert stats["stage"].max() >= 2, "batches go on to their next stages"
    assert list_size == 1 or batches(stats)[-1] >= 2, "batches are split"


@pytest.mark.parametrize("model", ["cm", "pbm"])
@pytest.mark.parametrize("list_size", [1, 3, 8])
def test_the_released_variant_equals_its_reference(model, list_size):
    environment = jr.ClickBandit(any_users(model, 8, seed=2), list_size=list_size)
    stats = follow(environment, seed=list_size, variant="released")
    eliminated = (stats["first"] == 8).sum(axis=1)
    assert (eliminated[-1] >= 2) == (list_size < 8) and (np.diff(eliminated) >= 0).all(), (
        "items are eliminated for good"
    )
    assert stats["stage"].max() >= 2, "batches go on to their next stages"
    number = batches(stats)
    assert list_size < 8 or number[-1] >= 2, "batches are split"
    assert list_size < 8 or np.diff(number).max() >= 2, "at several places at once"
    kept = (np.diff(stats["stage"], axis=0) == 1) & (stats["n"][1:] > 0)
    assert kept.any(), "counts are kept if nothing changes"


@pytest.mark.parametrize(("num_items", "list_size"), [(1, 1), (2, 2), (2, 1), (33, 4)])
def test_smallest_and_large_worlds_equal_the_reference(num_items, list_size):
    environment = jr.ClickBandit(click_model("pbm", num_items, seed=0), list_size=list_size)
    stats = follow(environment, steps=1_500)
    changed = (stats["first"] != 0).any() or (stats["stage"] != 0).any()
    assert changed == (num_items > 1)


@pytest.mark.parametrize("horizon", [1, 2])
def test_horizons_of_one_and_two_equal_the_reference(horizon):
    stats = follow(jr.ClickBandit(click_model("dcm", 4, seed=0)), horizon=horizon, steps=300)
    assert batches(stats)[-1] == {1: 1, 2: 4}[horizon], "n_ℓ = 0 is never reached; δ_T = 0 splits all but ties"


@pytest.mark.parametrize("horizon", [5, 1_000, 5_000_000])
def test_stages_quadruple_and_never_overflow(horizon):
    lengths = _stage_length(jnp.arange(16, dtype=jnp.int32), jnp.log(jnp.float32(horizon)), 10, "printed")
    exact = np.minimum(np.ceil(16 * 4.0 ** np.arange(16) * np.log(horizon)), 2**31 - 128)
    np.testing.assert_array_equal(lengths[:6], exact[:6])
    np.testing.assert_allclose(lengths, exact, rtol=1e-7)


@pytest.mark.parametrize("horizon", [2, 8, 5_000_000])
def test_items_with_equal_clicks_are_neither_split_nor_eliminated(horizon):
    log_horizon = jnp.log(jnp.float32(horizon))
    zeros = jnp.zeros(3, jnp.int32)
    n = _stage_length(zeros, log_horizon, 3, "printed")

    def update(clicks):
        state = BatchRankState(zeros, zeros + 1, zeros, n, zeros + clicks, n_min=n[0], settled=jnp.bool_(False))
        return _update_batches(2, "printed", state, log_horizon)

    after = jax.jit(jax.vmap(update))(jnp.arange(int(n[0]) + 1))
    assert (after.first == 0).all() and (after.last == 1).all() and (after.stage == 1).all()


@pytest.mark.parametrize("list_size", [2, 4])
def test_settled_lists_never_change_and_others_do(list_size):
    environment = jr.ClickBandit(jr.PositionBasedModel([0.1, 0.9, 0.4, 0.6], np.ones(4)), list_size=list_size)
    run = record(BatchRank(horizon=HORIZON), environment, 5_000, statistics=statistics)
    start = int(np.argmax(run.statistics["settled"])) + 1
    assert 30 < start < 4_000 and run.statistics["settled"][start - 1 :].all()
    assert np.unique(run.rankings[start:], axis=0).tolist() == [[1, 3, 2, 0][:list_size]]
    assert len(np.unique(run.rankings[start - 30 : start], axis=0)) > 1


@pytest.mark.parametrize(
    ("observed", "possible"),
    [
        ([0, 5, 5, 5, 0], list(itertools.permutations([1, 2, 3], 2))),
        ([0, 6, 6, 5, 0], [(1, 3), (3, 1), (2, 3), (3, 2)]),  # item 3 for sure, item 1 or 2 to fill up
        ([0, 6, 5, 5, 0], [(2, 3), (3, 2)]),
    ],
)
def test_least_observed_items_are_shown_at_uniformly_random_positions(observed, possible):
    """Item 0 alone at position 1; items 1, 2 and 3 over positions 2 and 3; item 4 eliminated."""
    first, last, n = (jnp.array(x, jnp.int32) for x in ([0, 1, 1, 1, 5], [0, 2, 2, 2, 5], observed))
    state = BatchRankState(first, last, 0 * n, n=n, c=0 * n, n_min=jnp.int32(5), settled=jnp.bool_(False))
    query = jr.ClickBandit(jr.CascadeModel(np.full(5, 0.5)), list_size=3).query(None, jnp.int32(1))
    rank = jax.jit(jax.vmap(lambda key: BatchRank(horizon=100).rank(key, state, query)))
    lists = np.asarray(rank(jax.random.split(random.root_key(0), 12_000)))
    counts = [(lists == [0, *ranking]).all(axis=1).sum() for ranking in possible]
    assert sum(counts) == len(lists)
    assert chisquare(counts).pvalue > 1e-6


def test_horizon_defaults_to_the_number_of_steps():
    environment = jr.ClickBandit(click_model("pbm", 5, seed=0))
    options = {"num_steps": 20_000, "progress": False, "metrics": ("misordered",)}
    filled_in = jr.simulate(BatchRank(), environment, **options)["misordered"]
    given = jr.simulate(BatchRank(horizon=20_000), environment, **options)["misordered"]
    other = jr.simulate(BatchRank(horizon=5_000_000), environment, **options)["misordered"]
    np.testing.assert_array_equal(filled_in, given)
    assert not np.array_equal(filled_in, other)


def test_lists_hold_distinct_items():
    environment = jr.ClickBandit(click_model("dcm", 7, seed=3), list_size=4)
    rankings = np.sort(record(BatchRank(horizon=HORIZON), environment, 3_000).rankings, axis=1)
    assert rankings.dtype == np.int32 and rankings.min() == 0 and rankings.max() == 6
    assert (rankings[:, 1:] > rankings[:, :-1]).all()


@pytest.mark.parametrize("list_size", [4, 6])
def test_vmapped_lanes_equal_single_ones(list_size):
    environment = jr.ClickBandit(click_model("pbm", 6, seed=5, num_queries=4), list_size=list_size)
    policy = BatchRank(horizon=HORIZON)
    states, _ = run_lanes(policy, environment, 4_000)
    assert (states.first.max(axis=1) >= 2).all(), "every lane has split or eliminated"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, r"BatchRank\.horizon must be positive and finite; got 0"),
        ({"horizon": -3}, r"BatchRank\.horizon must be positive and finite; got -3"),
        ({"horizon": 10.5}, r"BatchRank\.horizon must hold integers; got 10\.5"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        BatchRank(**options)


def test_a_missing_horizon_is_named():
    with pytest.raises(ValueError, match=r"BatchRank\.horizon must be given"):
        record(BatchRank(), jr.ClickBandit(click_model("cm", 3, seed=0)), 1)
