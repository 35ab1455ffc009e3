"""BubbleRank against its plain reference, step by step, under the same random numbers."""

from functools import cache

import jax
import numpy as np
import pytest
from driver import learnt, record
from reference.bubblerank import BubbleRank as Reference
from worlds import MODELS, any_users, click_model, worst_first

import jaxrank as jr
from jaxrank.core.random import coin_flips

STEPS = 8_000


@cache
def draw_flips(list_size):
    return lambda rank_key, update_key: (coin_flips(rank_key, list_size), jax.random.uniform(update_key))


def follow(policy, environment, seed=0, **reference_options):
    """Drives both through ``STEPS`` steps, compares everything, and returns the base lists."""
    K = environment.list_size
    run = record(
        policy,
        environment,
        STEPS,
        seed=seed,
        draws=draw_flips(K),
        statistics=learnt,
    )
    reference = Reference(environment.base_ranking.tolist(), K, **reference_options)
    reference.choose_challenger(float(run.first.draws[1]))
    for t in range(STEPS):
        assert reference.rank(run.draws[0][t]) == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        assert reference.base == run.statistics["base"][t].tolist(), f"base list after step {t + 1}"
        assert reference.s == run.statistics["s"][t].tolist(), f"s after step {t + 1}"
        assert reference.n == run.statistics["n"][t].tolist(), f"n after step {t + 1}"
        reference.choose_challenger(float(run.draws[1][t]))
    return run.statistics["base"]


def changes(bases):
    return int((np.diff(bases, axis=0) != 0).any(axis=1).sum())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_items", [5, 8])
def test_lists_and_statistics_equal_the_reference(model, num_items):
    users = any_users(model, num_items, seed=num_items)
    environment = jr.ClickBandit(users, base_ranking=worst_first(users))
    bases = follow(jr.BubbleRank(horizon=200), environment, seed=num_items, horizon=200)
    assert changes(bases) >= 2


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("list_size", [3, 4])
def test_more_items_than_positions_equal_the_reference(model, list_size):
    users = any_users(model, 7, seed=1)
    environment = jr.ClickBandit(users, list_size=list_size, base_ranking=worst_first(users))
    bases = follow(jr.BubbleRank(delta=0.1), environment, seed=list_size, horizon=STEPS, delta=0.1)
    entered = set(bases[-1][:list_size].tolist()) - set(bases[0][:list_size].tolist())
    assert len(entered) >= 2


@pytest.mark.parametrize(("model", "list_size"), [("cm", 6), ("pbm", 4)])
def test_certain_pairs_are_frozen_as_in_the_reference(model, list_size):
    users = any_users(model, 6, seed=2)
    environment = jr.ClickBandit(users, list_size=list_size, base_ranking=worst_first(users))
    options = {"delta": 0.1, "freeze_certain": True}
    bases = follow(jr.BubbleRank(**options), environment, seed=3, horizon=STEPS, **options)
    assert changes(bases) >= 2
    frozen = record(jr.BubbleRank(**options), environment, STEPS, statistics=learnt).statistics["n"]
    counted = record(jr.BubbleRank(delta=0.1), environment, STEPS, statistics=learnt).statistics["n"]
    assert frozen[-1].max() < counted[-1].max() / 2, "counts stand still"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("list_size", [4, 6])
def test_doubling_trick_equals_the_reference(model, list_size):
    users = any_users(model, 6, seed=2)
    environment = jr.ClickBandit(users, list_size=list_size, base_ranking=worst_first(users))
    policy = jr.BubbleRank(horizon=50, doubling=True)
    bases = follow(policy, environment, seed=3, horizon=50, doubling=True)
    initial = environment.base_ranking.tolist()
    horizons = [50 * 2**i for i in range(8)]
    for n in horizons:
        assert bases[n - 1].tolist() == initial, f"the base list is R₀ after step n = {n}"
    assert any(bases[n - 2].tolist() != initial for n in horizons), "there was something to reset"
    assert changes(bases) >= 5


def test_delta_defaults_to_horizon_to_the_minus_4():
    environment = jr.ClickBandit(click_model("pbm", 5, seed=0))
    by_horizon = record(jr.BubbleRank(horizon=100), environment, 2_000)
    by_delta = record(jr.BubbleRank(delta=100.0**-4), environment, 2_000)
    np.testing.assert_array_equal(by_horizon.rankings, by_delta.rankings)


def test_every_displayed_item_is_at_most_one_place_from_its_base_position():
    environment = jr.ClickBandit(click_model("cm", 8, seed=4))
    run = record(jr.BubbleRank(horizon=1000), environment, 1000, statistics=lambda policy, state: state.beliefs.base)
    before = np.concatenate([environment.base_ranking[None], run.statistics[:-1]])
    moved = np.abs(np.argsort(run.rankings, axis=1) - np.argsort(before, axis=1))
    assert moved.max() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, r"BubbleRank\.delta must be in \(0, 1\); got 0\.0"),
        ({"delta": 1.5}, r"BubbleRank\.delta must be in \(0, 1\); got 1\.5"),
        ({"delta": float("nan")}, r"BubbleRank\.delta must be in \(0, 1\); got nan"),
        ({"horizon": 0}, r"BubbleRank\.horizon must be positive and finite; got 0"),
        ({"horizon": 10.5}, r"BubbleRank\.horizon must hold integers; got 10\.5"),
        ({"doubling": True}, r"BubbleRank\.horizon must be given, as the first guess"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        jr.BubbleRank(**options)


def test_a_certain_pair_may_become_uncertain_again():
    """Which is why BubbleRank has no ``settled``: its statistics move on, and an exchange may follow."""
    environment = jr.ClickBandit(jr.PositionBasedModel([0.5, 0.45], [1.0, 1.0]))
    run = record(
        jr.BubbleRank(delta=0.5), environment, 3_000, statistics=lambda policy, state: policy.statistics(state)
    )
    t, base = np.arange(3_000), run.statistics["base"]
    s, n = (run.statistics[name][t, base[:, 0], base[:, 1]] for name in ("s", "n"))
    certain = s > 2 * np.sqrt(n * np.log(2))
    lost = certain[:-1] & ~certain[1:] & (base[:-1] == base[1:]).all(axis=1)
    assert lost.any()
    assert (run.rankings[1:][np.maximum.accumulate(lost)] != base[:-1][np.maximum.accumulate(lost)]).any()
