"""Corrupted clicks: what the adversary does, how often; without one, the environment bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record
from streams import data
from worlds import click_model, topic_bandit

import jaxrank as jr

STEPS = 4_000
ENVIRONMENT = jr.ClickBandit(click_model("pbm", 5, seed=0), list_size=3)


def flips(**options):
    """The steps [n] and the changes [n, K] that an adversary makes, with random lists; and these lists."""
    plain = record(jr.RandomRanking(), ENVIRONMENT, STEPS)
    attacked = record(jr.RandomRanking(), jr.Corrupted(ENVIRONMENT, **options), STEPS)
    np.testing.assert_array_equal(plain.rankings, attacked.rankings)
    return plain, attacked.clicks.astype(int) - plain.clicks


def test_without_an_attack_everything_is_that_of_the_environment_bit_for_bit():
    _, change = flips()
    assert not change.any()
    options = {"num_seeds": 2, "num_records": 4, "progress": False, "skip_settled": False}
    plain = jr.simulate(jr.CascadeTS(), ENVIRONMENT, 300, **options)["regret"]
    np.testing.assert_array_equal(
        plain, jr.simulate(jr.CascadeTS(), jr.Corrupted(ENVIRONMENT), 300, **options)["regret"]
    )


def test_a_fraction_of_steps_has_one_click_flipped_at_a_random_position():
    """Frequencies within four standard errors."""
    _, change = flips(fraction=0.1)
    count = np.abs(change).sum(axis=1)
    assert set(count.tolist()) == {0, 1}
    assert abs(count.mean() - 0.1) < 4 * np.sqrt(0.09 / STEPS)
    by_position = np.abs(change).sum(axis=0)
    assert abs(by_position / by_position.sum() - 1 / 3).max() < 4 * np.sqrt(2 / 9 / by_position.sum())
    assert (change == 1).any() and (change == -1).any()


def test_a_budget_is_spent_in_the_first_steps():
    _, change = flips(budget=250)
    assert (np.abs(change).sum(axis=1) == (np.arange(STEPS) < 250)).all()


def test_aimed_at_the_best_item_only_its_clicks_are_hidden():
    plain, change = flips(fraction=0.5, budget=500, target="best")
    best = int(ENVIRONMENT.optimal_ranking[0])
    assert (change <= 0).all() and (plain.rankings[change == -1] == best).all()
    clicked = (plain.clicks & (plain.rankings == best)).any(axis=1)
    hidden = change.any(axis=1)
    assert (hidden[:500] == clicked[:500]).all(), "the budget hides them all"
    later = hidden[500:].sum() / clicked[500:].sum()
    assert abs(later - 0.5) < 4 * 0.5 / np.sqrt(clicked[500:].sum())


def test_metrics_are_those_of_the_users():
    query = ENVIRONMENT.query(jax.random.key(0), jnp.int32(3))
    ranking = jnp.asarray([4, 0, 2], jnp.int32)
    attacked = jr.Corrupted(ENVIRONMENT, 0.7).metrics(query, ranking)
    for name, value in ENVIRONMENT.metrics(query, ranking).items():
        assert attacked[name] == value


@pytest.mark.parametrize(
    "environment",
    [
        jr.Corrupted(jr.ClickBandit(click_model("cm", 5, seed=1, num_queries=2), list_size=3), [0.1, 0.4], [0, 20]),
        pytest.param(jr.Corrupted(topic_bandit(num_items=9, num_users=3), 0.3, target="best"), marks=pytest.mark.slow),
        pytest.param(
            jr.Corrupted(jr.QueryStream(data().train, jr.click_models.graded_user("perfect"), list_size=5), 0.3),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            jr.Corrupted(jr.change(jr.ClickBandit(click_model("cm", 5, seed=1)), every=300), 0.2),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["click bandit", "topic bandit", "query stream", "changing"],
)
def test_environment_conforms(environment):
    jr.testing.check_environment(environment)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 1.5}, r"Corrupted\.fraction must be in \[0, 1\]; got 1\.5"),
        ({"budget": -1}, r"Corrupted\.budget must be non-negative and finite; got -1"),
        ({"target": "worst"}, r"Corrupted\.target must be 'random' or 'best'; got 'worst'"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        jr.Corrupted(ENVIRONMENT, **options)
    with pytest.raises(ValueError, match=r"Corrupted\.environment must have the members query, clicks, metrics"):
        jr.Corrupted(3)
