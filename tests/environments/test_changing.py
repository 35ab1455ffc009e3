"""Click bandits that change: clicks and metrics against plain NumPy, and the conformance suite."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import click_model

import jaxrank as jr

ATTRACTION = np.array([[0.9, 0.1, 0.5, 0.3], [0.2, 0.8, 0.4, 0.7], [0.3, 0.6, 0.1, 0.9]])  # of three worlds
CHI = np.array([[1.0, 0.6, 0.3], [0.4, 0.9, 0.2], [0.8, 0.7, 0.6]])


def pbm(**options):
    environment = jr.ClickBandit(jr.PositionBasedModel(ATTRACTION[0], CHI[0]), list_size=3, top=2)
    return jr.Changing(environment, ATTRACTION, **{"every": 10, **options})


def measure(environment, step, ranking=(2, 0, 3)):
    query = environment.query(jax.random.key(0), jnp.int32(step))
    return {k: np.asarray(v) for k, v in environment.metrics(query, jnp.asarray(ranking, jnp.int32)).items()}


def rewards(attraction, chi, ranking=(2, 0, 3)):
    """The reward of the first two positions of the list, and the best one."""
    best = (np.sort(chi[:2])[::-1] * np.sort(attraction)[::-1][:2]).sum()
    return (chi[:2] * attraction[list(ranking[:2])]).sum(), best


@pytest.mark.parametrize(("step", "world"), [(1, 0), (10, 0), (11, 1), (20, 1), (25, 2), (31, 0), (10_000_000, 0)])
def test_every_world_lasts_its_number_of_steps_and_the_first_follows_the_last(step, world):
    reward, best = rewards(ATTRACTION[world], CHI[0])
    measured = measure(pbm(), step)
    assert measured["reward"] == pytest.approx(reward, abs=1e-6)
    assert measured["regret"] == pytest.approx(best - reward, abs=1e-6)


def test_changes_come_at_the_given_steps():
    for step, world in [(1, 0), (4, 0), (5, 1), (49, 1), (50, 2), (99, 2), (100, 0)]:
        reward, _ = rewards(ATTRACTION[world], CHI[0])
        assert measure(pbm(every=None, at=[5, 50, 100]), step)["reward"] == pytest.approx(reward, abs=1e-6)


def test_drift_is_linear_from_one_world_to_the_next():
    environment = pbm(drift=True)
    for step, world, share in [(1, 0, 0.0), (4, 0, 0.3), (11, 1, 0.0), (30, 2, 0.9)]:
        attraction = (1 - share) * ATTRACTION[world] + share * ATTRACTION[(world + 1) % 3]
        reward, best = rewards(attraction, CHI[0])
        measured = measure(environment, step)
        assert measured["reward"] == pytest.approx(reward, abs=1e-6)
        assert measured["regret"] == pytest.approx(best - reward, abs=1e-6)


def test_examination_changes_too():
    environment = pbm(examination=CHI)
    for step, world in [(1, 0), (11, 1), (21, 2)]:
        reward, best = rewards(ATTRACTION[world], CHI[world])
        measured = measure(environment, step)
        assert measured["regret"] == pytest.approx(best - reward, abs=1e-6)
        np.testing.assert_allclose(environment.query(None, jnp.int32(step)).examination, CHI[world])


def test_fixed_regret_is_against_the_best_list_of_the_whole_cycle():
    """In the position-based model no list has more reward in all worlds together: all 24 are tried."""
    import itertools

    environment = pbm()
    totals = {
        ranking: sum(rewards(ATTRACTION[world], CHI[0], ranking)[0] for world in range(3))
        for ranking in itertools.permutations(range(4), 3)
    }
    fixed = tuple(environment.fixed_ranking.tolist())
    assert totals[fixed] == pytest.approx(max(totals.values()))
    for step in (1, 11, 21):
        world = (step - 1) // 10
        expected = rewards(ATTRACTION[world], CHI[0], fixed)[0] - rewards(ATTRACTION[world], CHI[0])[0]
        assert measure(environment, step)["fixed_regret"] == pytest.approx(expected, abs=1e-6)


def test_clicks_are_those_of_the_click_model_of_the_moment():
    environment = pbm()
    ranking = jnp.asarray([1, 3, 0], jnp.int32)
    for step, world in [(3, 0), (13, 1), (23, 2)]:
        query = environment.query(None, jnp.int32(step))
        alone = jr.PositionBasedModel(ATTRACTION[world], CHI[0])
        for seed in range(20):
            key = jax.random.key(seed)
            np.testing.assert_array_equal(environment.clicks(key, query, ranking), alone.sample(key, ranking))


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(pbm(examination=CHI, every=700), marks=pytest.mark.slow),
        jr.change(jr.ClickBandit(click_model("cm", 5, seed=1, num_queries=2), list_size=3), random=200),
        pytest.param(
            jr.change(jr.ClickBandit(click_model("dcm", 5, seed=1, num_queries=2)), drift=300), marks=pytest.mark.slow
        ),
    ],
    ids=["every", "random", "drift"],
)
def test_environment_conforms(environment):
    jr.testing.check_environment(environment)


@pytest.mark.slow
def test_policies_conform_in_a_world_that_changes():
    environment = jr.change(jr.ClickBandit(click_model("cm", 5, seed=1, num_queries=2), list_size=3), every=11)
    jr.testing.check_policy(jr.CascadeKLUCB(), environment)


def test_change_gives_the_items_other_attractions_of_the_same_query():
    environment = jr.ClickBandit(click_model("cm", 6, seed=0, num_queries=3))
    before = np.asarray(environment.click_model.attraction)
    changing = jr.change(environment, every=100, worlds=4, keep=2)
    worlds = np.asarray(changing.attraction)
    assert worlds.shape == (3, 4, 6)
    np.testing.assert_array_equal(worlds[:, 0], before)
    np.testing.assert_array_equal(np.sort(worlds, axis=-1), np.sort(before[:, None].repeat(4, axis=1), axis=-1))
    for query in range(3):
        best = np.argsort(-before[query])[:2]
        np.testing.assert_array_equal(worlds[query, :, best], np.repeat(before[query, best][:, None], 4, axis=1))
        assert (worlds[query, 1:] != before[query]).any(axis=1).all()
    again = jr.change(environment, every=100, worlds=4, keep=2)
    assert again == changing and jr.change(environment, every=100, worlds=4, keep=2, seed=1) != changing


def test_random_changes_come_at_the_stated_mean_distance():
    """The mean of 100 geometric gaps of mean 50, within four standard errors."""
    environment = jr.ClickBandit(click_model("cm", 4, seed=0))
    gaps = np.diff(np.asarray(jr.change(environment, random=50).at), prepend=1)
    assert gaps.min() >= 1 and abs(gaps.mean() - 50) < 4 * 50 / 10


def test_a_resumed_run_and_other_calls_give_the_same_curves(tmp_path):
    environment = jr.change(jr.ClickBandit(click_model("cm", 5, seed=1, num_queries=2), list_size=3), every=300)
    options = {"num_seeds": 2, "num_records": 5, "metrics": ("regret", "fixed_regret"), "progress": False}
    straight = jr.simulate(jr.CascadeDUCB(), environment, 1_500, **options)

    class StopError(Exception):
        """Ends a run half-way."""

    def stop(step):
        if step >= 700:
            raise StopError

    saving = {"checkpoint_dir": tmp_path, "checkpoint_every": "1 call", "call_intervals": 1}
    with pytest.raises(StopError):
        jr.simulate(jr.CascadeDUCB(), environment, 1_500, **options | saving | {"progress": stop})
    resumed = jr.simulate(jr.CascadeDUCB(), environment, 1_500, **options | saving, resume=True)
    for metric in options["metrics"]:
        np.testing.assert_array_equal(resumed[metric], straight[metric])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": None}, "Changing needs either every, .* or at"),
        ({"at": [5]}, "Changing needs either every, .* or at"),
        ({"every": None, "at": [5, 5]}, r"Changing\.at must be increasing steps; got \[5, 5\]"),
        ({"every": None, "at": [5], "drift": True}, r"Changing\.drift needs every"),
        ({"examination": CHI[:2]}, r"Changing\.examination must be \[worlds, positions\] = \(3, 3\)"),
        ({"attraction": ATTRACTION[:, :3]}, r"Changing\.attraction must be that of 4 items in each world; got"),
        ({"environment": 3}, r"Changing\.environment must have the members query, .*; int has no query"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(pbm(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "change needs one of every, random, at, drift; got none"),
        ({"every": 5, "drift": 5}, "change needs one of .*; got every and drift"),
        ({"every": 5, "worlds": 1}, "worlds must be an integer of at least 2; got 1"),
        ({"every": 5, "keep": 4}, "keep must be an integer from 0 to 3 items; got 4"),
    ],
)
def test_change_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        jr.change(jr.ClickBandit(jr.CascadeModel(ATTRACTION[0])), **options)


def test_change_wants_a_click_bandit():
    bandit = jr.ClickBandit(jr.CascadeModel(ATTRACTION[0]))
    with pytest.raises(ValueError, match=r"got a Corrupted: write jr.Corrupted\(jr.change\(…\), …\)"):
        jr.change(jr.Corrupted(bandit, 0.1), every=5)
    with pytest.raises(ValueError, match="environment must be an instance; got the class ClickBandit"):
        jr.change(jr.ClickBandit, every=5)
    with pytest.raises(ValueError, match=r"which is a click model: write jr.ClickBandit\(CascadeModel\(…\)\)"):
        jr.change(jr.CascadeModel(ATTRACTION[0]), every=5)
