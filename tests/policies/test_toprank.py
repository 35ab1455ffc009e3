"""TopRank against its plain reference, step by step, under the same random numbers."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record, run_lanes
from reference.toprank import TopRank as Reference
from scipy.stats import chisquare
from worlds import MODELS, any_users, click_model

import jaxrank as jr
from jaxrank.core import random
from jaxrank.policies.toprank import TopRank, TopRankState, _partition

STEPS = 5_000


def statistics(policy, state):
    return {**policy.statistics(state), "settled": policy.settled(state)}


@cache
def draw_words(number):
    return lambda rank_key, update_key: jax.random.bits(rank_key, (number,), jnp.uint32)


def follow(policy, environment, delta, seed=0, steps=STEPS):
    """Drives both through ``steps`` steps, compares everything, and returns the run."""
    L, K = environment.num_items, environment.list_size
    run = record(
        policy,
        environment,
        steps,
        seed=seed,
        draws=draw_words(L),
        statistics=statistics,
    )
    reference = Reference(L, K, delta)
    assert run.first.statistics["settled"] == reference.settled()
    for t in range(steps):
        assert reference.rank(run.draws[t]) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        after = {name: value[t].tolist() for name, value in run.statistics.items()}
        assert after["S"] == reference.S, f"S after step {t + 1}"
        assert after["N"] == reference.N, f"N after step {t + 1}"
        assert after["G"] == reference.relation(), f"G after step {t + 1}"
        assert after["block"] == reference.block_of_items(), f"blocks after step {t + 1}"
        assert after["settled"] == reference.settled(), f"settled after step {t + 1}"
    return run


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_items", [5, 8])
def test_lists_and_statistics_equal_the_reference(model, num_items):
    environment = jr.ClickBandit(any_users(model, num_items, seed=num_items))
    run = follow(TopRank(horizon=STEPS), environment, delta=1 / STEPS, seed=num_items)
    relations = run.statistics["G"].sum(axis=(1, 2))
    assert relations[0] == 0 and np.unique(relations).size >= 5, "relations are found one after the other"
    assert run.statistics["block"].max() >= 3, "there are four blocks or more"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("list_size", [1, 4])
def test_more_items_than_positions_equal_the_reference(model, list_size):
    environment = jr.ClickBandit(any_users(model, 7, seed=1), list_size=list_size)
    run = follow(TopRank(delta=0.1), environment, delta=0.1, seed=list_size)
    sizes = (run.statistics["block"][-1][:, None] == np.arange(7)).sum(axis=0)
    below = 7 - sizes[np.cumsum(sizes) - sizes < list_size].sum()
    assert below >= 1, "an item is known to lie below position K"


@pytest.mark.parametrize(
    ("model", "num_items", "list_size"),
    [("cm", 1, 1), ("cm", 2, 2), ("cm", 2, 1), ("cm", 33, 4), ("pbm", 36, 8), ("dcm", 33, 33)],
)
def test_smallest_and_large_worlds_equal_the_reference(model, num_items, list_size):
    environment = jr.ClickBandit(click_model(model, num_items, seed=0), list_size=list_size)
    run = follow(TopRank(delta=0.5), environment, delta=0.5, steps=400)
    assert run.statistics["G"][-1].any() == (num_items > 1)


@pytest.mark.parametrize("list_size", [2, 4])
def test_settled_lists_never_change_and_others_do(list_size):
    environment = jr.ClickBandit(jr.PositionBasedModel([0.1, 0.9, 0.4, 0.6], np.ones(4)), list_size=list_size)
    run = record(TopRank(delta=0.1), environment, 5_000, statistics=statistics)
    start = int(np.argmax(run.statistics["settled"])) + 1
    assert 30 < start < 4_000 and run.statistics["settled"][start - 1 :].all()
    assert np.unique(run.rankings[start:], axis=0).tolist() == [[1, 3, 2, 0][:list_size]]
    assert len(np.unique(run.rankings[start - 30 : start], axis=0)) > 1


def test_blocks_are_shown_in_order_and_each_list_of_a_block_is_equally_likely():
    block = jnp.array([1, 0, 1, 0, 1], jnp.int32)
    zeros = jnp.zeros((5, 5), jnp.int32)
    query = jr.ClickBandit(jr.CascadeModel(np.full(5, 0.5)), list_size=4).query(None, jnp.int32(1))
    rank = jax.jit(
        jax.vmap(lambda key: TopRank(delta=0.1).rank(key, TopRankState(zeros, block, jnp.bool_(False)), query))
    )
    lists = np.asarray(rank(jax.random.split(random.root_key(0), 24_000)))
    possible = [
        [*top, *rest] for top in itertools.permutations([1, 3]) for rest in itertools.permutations([0, 2, 4], 2)
    ]
    counts = [(lists == ranking).all(axis=1).sum() for ranking in possible]
    assert sum(counts) == len(lists)
    assert chisquare(counts).pvalue > 1e-6


def test_a_cyclic_relation_gives_every_item_a_block():
    relation = [(4, 0), (0, 1), (1, 2), (2, 3), (3, 1)]
    wins = np.zeros((5, 5), np.int32)
    for i, j in relation:
        wins[i, j] = 1000
    zeros = jnp.zeros(5, jnp.int32)
    state = TopRankState(jnp.asarray(wins), zeros, jnp.bool_(False))
    assert _partition(5, state, jnp.log(10.0)).block.tolist() == [1, 4, 4, 4, 0]


def test_delta_defaults_to_one_over_the_horizon_which_simulate_fills_in():
    environment = jr.ClickBandit(click_model("pbm", 5, seed=0))
    by_horizon = record(TopRank(horizon=100), environment, 2_000)
    by_delta = record(TopRank(delta=0.01), environment, 2_000)
    np.testing.assert_array_equal(by_horizon.rankings, by_delta.rankings)
    options = {"num_steps": 2_000, "progress": False, "metrics": ("misordered",)}
    filled_in = jr.simulate(TopRank(), environment, **options)["misordered"]
    given = jr.simulate(TopRank(horizon=2_000), environment, **options)["misordered"]
    other = jr.simulate(TopRank(horizon=2_000_000), environment, **options)["misordered"]
    np.testing.assert_array_equal(filled_in, given)
    assert not np.array_equal(filled_in, other)


def test_lists_hold_distinct_items():
    environment = jr.ClickBandit(click_model("dcm", 7, seed=3), list_size=4)
    rankings = np.sort(record(TopRank(delta=0.1), environment, 3_000).rankings, axis=1)
    assert rankings.dtype == np.int32 and rankings.min() == 0 and rankings.max() == 6
    assert (rankings[:, 1:] > rankings[:, :-1]).all()


@pytest.mark.parametrize(("num_items", "list_size"), [(6, 4), (6, 6), (36, 8)])
def test_vmapped_lanes_equal_single_ones(num_items, list_size):
    environment = jr.ClickBandit(click_model("pbm", num_items, seed=5, num_queries=4), list_size=list_size)
    policy = TopRank(delta=0.2)
    states, _ = run_lanes(policy, environment, 2_000)
    assert (states.block.max(axis=1) >= 2).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, r"TopRank\.delta must be in \(0, 1\); got 0\.0"),
        ({"delta": 1.0}, r"TopRank\.delta must be in \(0, 1\); got 1\.0"),
        ({"delta": float("nan")}, r"TopRank\.delta must be in \(0, 1\); got nan"),
        ({"horizon": 0}, r"TopRank\.horizon must be positive and finite; got 0"),
        ({"horizon": 10.5}, r"TopRank\.horizon must hold integers; got 10\.5"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        TopRank(**options)


def test_a_missing_horizon_is_named():
    with pytest.raises(ValueError, match=r"TopRank\.horizon must be given"):
        record(TopRank(), jr.ClickBandit(click_model("cm", 3, seed=0)), 1)
