"""Delayed clicks: what arrives, and when; delay 0 is no delay, bit for bit."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record
from streams import data
from worlds import click_model

import jaxrank as jr
from jaxrank.core.types import keeps_items, with_horizon

CAPACITY = 5_000


class Arrivals(NamedTuple):
    now: jax.Array  # int32[], the number of updates
    steps: jax.Array  # int32[CAPACITY], the step of the feedback of each update
    clicks: jax.Array  # bool[CAPACITY, K]
    rankings: jax.Array  # int32[CAPACITY, K]


@jr.pytree
class Listener(jr.RandomRanking):
    """Writes down what it is told."""

    of_list = ("step",)

    def init(self, key, query):
        lists = jnp.zeros((CAPACITY, query.list_size), jnp.int32)
        return Arrivals(jnp.int32(0), jnp.zeros(CAPACITY, jnp.int32), lists.astype(bool), lists)

    def update(self, key, state, query, ranking, clicks):
        n = state.now
        return Arrivals(
            n + 1, state.steps.at[n].set(query.step), state.clicks.at[n].set(clicks), state.rankings.at[n].set(ranking)
        )


def last_state(policy, state):
    return state


def listen(**options):
    """The run, and what the listener had heard after each step (number) and in the end (everything)."""
    environment = jr.ClickBandit(click_model("pbm", 5, seed=0), list_size=3)
    run = record(jr.Delayed(Listener(), **options), environment, 2_000, statistics=lambda _, state: state.policy.now)
    final = record(jr.Delayed(Listener(), **options), environment, 2_000, statistics=lambda _, s: s.policy)
    heard = Arrivals(*(np.asarray(field[-1]) for field in final.statistics))
    return run, heard


def delays(run, heard):
    """The delay of each feedback that has arrived: the step of its update minus its own."""
    arrival = np.searchsorted(run.statistics, np.arange(1, heard.now + 1)) + 1
    return arrival - heard.steps[: heard.now]


def check_content(run, heard):
    """Each step's feedback arrives at most once, with its own list and clicks."""
    steps = heard.steps[: heard.now]
    assert len(set(steps.tolist())) == heard.now
    np.testing.assert_array_equal(heard.clicks[: heard.now], run.clicks[steps - 1])
    np.testing.assert_array_equal(heard.rankings[: heard.now], run.rankings[steps - 1])


@pytest.mark.parametrize("delay", [1, 7])
def test_a_fixed_delay_is_that_of_all_feedback(delay):
    run, heard = listen(delay=delay)
    check_content(run, heard)
    assert heard.now == 2_000 - delay
    assert (delays(run, heard) == delay).all()


def test_a_geometric_delay_has_its_distribution():
    """Mean and quantiles of some 1,900 delays of mean 20, within four standard errors; feedback overtakes."""
    run, heard = listen(delay=20, kind="geometric")
    check_content(run, heard)
    found = delays(run, heard)[heard.steps[: heard.now] <= 1_700]  # what can still wait is left out
    assert found.size > 1_650
    assert abs(found.mean() - 20) < 4 * np.sqrt(20 * 21) / np.sqrt(found.size)
    for wait in (0, 5, 20, 60):
        share, expected = (found <= wait).mean(), 1 - (20 / 21) ** (wait + 1)
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / found.size), wait
    assert (np.diff(heard.steps[: heard.now]) < 0).any()


def test_late_clicks_are_credited_to_what_was_proposed_then():
    """Pulls and rewards of the bandits of positions: those of the proposals d steps ago, not of the present ones."""
    d, steps, environment = 7, 400, jr.ClickBandit(click_model("pbm", 5, seed=0), list_size=3)
    policy = jr.Delayed(jr.RankedUCB1(), d)
    run = record(policy, environment, steps, statistics=lambda policy, state: state.policy._asdict())
    proposals = np.concatenate([run.first.statistics["proposals"][None], run.statistics["proposals"][:-1]])
    pulled = proposals[: steps - d, :, None] == np.arange(5)
    rewarded = pulled & (run.clicks & (run.rankings == proposals))[: steps - d, :, None]
    np.testing.assert_array_equal(run.statistics["pulls"][-1], pulled.sum(axis=0))
    np.testing.assert_array_equal(run.statistics["rewards"][-1], rewarded.sum(axis=0))
    assert (proposals[d:] != proposals[:-d]).any()


def test_a_window_slides_over_the_feedback_as_it_arrives():
    """CascadeSWUCB's counts are those of the last τ lists that have arrived, in whatever order."""
    window, environment = 50, jr.ClickBandit(click_model("cm", 5, seed=0), list_size=2)
    policy = jr.Delayed(jr.CascadeSWUCB(window=window), 30, kind="geometric")
    run = record(policy, environment, 400, statistics=lambda policy, state: state.policy._asdict())
    rows, counts = run.statistics["window"], run.statistics["counts"]
    np.testing.assert_array_equal(counts.observed, (rows > 0).sum(axis=1))
    np.testing.assert_array_equal(counts.clicks, (rows == 2).sum(axis=1))
    assert ((rows[-1] > 0).any(axis=1)).all()  # every row is of some list


def test_bubblerank_finds_items_below_the_list_by_late_clicks():
    """Its challenger of the last position is another one when the clicks arrive."""
    environment = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.1, 0.1, 0.9]), list_size=2)
    lists = record(jr.Delayed(jr.BubbleRank(delta=0.1), 20, kind="geometric"), environment, 3_000).rankings
    assert (lists[-100:, 0] == 4).mean() > 0.4 and (lists[:100] != 4).any()


@pytest.mark.parametrize(("kind", "policy"), [("fixed", jr.CascadeTS()), ("geometric", jr.TopRank())])
def test_delay_0_is_no_delay_bit_for_bit(kind, policy):
    environment = jr.ClickBandit(click_model("cm", 5, seed=0, num_queries=2), list_size=3)
    options = {"num_seeds": 2, "num_records": 5, "skip_settled": False, "progress": False}
    plain = jr.simulate(policy, environment, 400, **options)["regret"]
    delayed = jr.simulate(jr.Delayed(policy, kind=kind), environment, 400, **options)["regret"]
    np.testing.assert_array_equal(plain, delayed)
    late = jr.simulate(jr.Delayed(policy, 50, kind=kind), environment, 400, **options)["regret"]
    assert (late.values != plain.values).any()


def test_several_delays_run_side_by_side_as_they_run_alone():
    environment = jr.ClickBandit(click_model("cm", 5, seed=0, num_queries=2), list_size=3)
    options = {"num_seeds": 2, "num_records": 3, "progress": False}
    together = jr.simulate(jr.Delayed(jr.CascadeUCB1(), [0, 3, 40]), environment, 300, **options)["regret"]
    for delay in (0, 3, 40):
        alone = jr.simulate(jr.Delayed(jr.CascadeUCB1(), delay, capacity=40), environment, 300, **options)["regret"]
        np.testing.assert_array_equal(together.sel(delay=delay), alone)


@pytest.mark.parametrize("kind", [pytest.param("fixed", marks=pytest.mark.slow), "geometric"])
def test_conforms_and_resumes_bit_for_bit(kind):
    jr.testing.check_policy(jr.Delayed(jr.TopRank(), 4, kind=kind))


@pytest.mark.slow
def test_a_delayed_ranker_conforms_in_a_stream_whose_queries_it_keeps():
    users = jr.click_models.graded_user("perfect")
    jr.testing.check_policy(jr.Delayed(jr.PDGD(), 3), jr.QueryStream(data().train, users, list_size=5))


def test_it_has_the_optional_members_of_its_policy():
    delayed = jr.Delayed(jr.TopRank(), 5)
    assert keeps_items(delayed) and not hasattr(delayed, "score") and hasattr(delayed, "statistics")
    assert hasattr(jr.Delayed(jr.PDGD(), 5), "score") and not keeps_items(jr.Delayed(jr.PDGD(), 5))
    assert with_horizon(delayed, 77).policy.horizon == 77
    assert dataclasses.replace(delayed, delay=9, capacity=None).capacity == 9
    query = jr.ClickBandit(click_model("cm", 5, seed=0)).query(None, jnp.int32(1))
    delayed = with_horizon(delayed, 77)
    state = delayed.init(jax.random.key(0), query)
    assert set(delayed.statistics(state)) == {"S", "N", "G", "block"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": -1}, r"Delayed\.delay must be non-negative and finite; got -1"),
        ({"delay": 5, "capacity": 4}, r"Delayed\.capacity must be an integer of at least 5; got 4"),
        ({"kind": "late"}, r"Delayed\.kind must be 'fixed' or 'geometric'; got 'late'"),
        ({"policy": 3}, r"Delayed\.policy must have the members init, rank, update"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        jr.Delayed(**{"policy": jr.TopRank(), **options})
