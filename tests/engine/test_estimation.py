"""Estimates of memory and time, and shares of lanes that fit."""

import numpy as np
import pytest
from worlds import click_model, worst_first

import jaxrank as jr
from jaxrank.engine import memory
from jaxrank.engine.request import Request
from jaxrank.engine.task import prepare

MODEL = click_model("pbm", 6, seed=0, num_queries=5)
ENVIRONMENT = jr.ClickBandit(MODEL, base_ranking=worst_first(MODEL), list_size=4, top=3)
POLICY = jr.BubbleRank(delta=0.1)
OPTIONS = {"num_seeds": 7, "num_records": 5, "metrics": ("regret", "misordered")}


@pytest.fixture(scope="module")
def whole():
    return jr.simulate(POLICY, ENVIRONMENT, 3_000, progress=False, **OPTIONS)


def a_limit(parts):
    """Bytes for which the lanes must run in this number of shares."""
    needs = memory.needed(prepare(POLICY, ENVIRONMENT, Request(3_000, **OPTIONS)))
    return needs.curves + needs.loop / (parts - 0.5)


@pytest.mark.parametrize("parts", [2, 3])
def test_shares_of_lanes_have_the_numbers_of_all_at_once(parts, whole, capsys):
    grouped = jr.simulate(POLICY, ENVIRONMENT, 3_000, max_memory=a_limit(parts), progress=False, **OPTIONS)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"they run in {parts} shares, one after the other" in said
    np.testing.assert_array_equal(grouped["misordered"], whole["misordered"])
    np.testing.assert_allclose(grouped["regret"], whole["regret"], rtol=1e-6)


def test_an_interrupted_run_in_shares_resumes_in_the_same_shares(whole, tmp_path):
    class StopError(Exception):
        pass

    calls = []

    def stop(step):
        calls.append(step)
        if len(calls) == 9:
            raise StopError

    options = {**OPTIONS, "max_memory": a_limit(3), "checkpoint_dir": tmp_path, "checkpoint_every": "1 calls"}
    with pytest.raises(StopError):
        jr.simulate(POLICY, ENVIRONMENT, 3_000, progress=stop, **options)
    options["max_memory"] = None  # more memory now: the shares stay
    resumed = jr.simulate(POLICY, ENVIRONMENT, 3_000, progress=False, resume=True, **options)
    np.testing.assert_array_equal(resumed["misordered"], whole["misordered"])
    np.testing.assert_allclose(resumed["regret"], whole["regret"], rtol=1e-6)
    assert {folder.name for folder in tmp_path.iterdir()} == {f"lanes-{i}-of-3" for i in range(3)}


def test_an_estimate_counts_lanes_shares_and_bytes():
    plan = jr.estimate(POLICY, ENVIRONMENT, 3_000, calibration_seconds=0.05, **OPTIONS)
    assert (plan.num_lanes, plan.num_shares, plan.num_steps) == (35, 1, 3_000)
    assert plan.curve_bytes == 3 * 8 * 35 * 5 * 2
    state = 35 * 4 * (6 + 3 + 3 + 2 + 2 + 36 + 36 + 1)  # BubbleRankState, int32, in and out of the loop
    assert 2 * state < plan.loop_bytes < 40 * state
    assert 0 < plan.calibrated_steps <= 3_000 and plan.step_seconds > 0
    assert "35 lanes × 3,000 steps: about" in str(plan)
    limited = jr.estimate(POLICY, ENVIRONMENT, 3_000, calibration_seconds=0.05, max_memory=a_limit(3), **OPTIONS)
    assert limited.num_shares == 3 and "in 3 shares" in str(limited)


def test_what_cannot_fit_at_all_is_refused_with_what_would_help():
    with pytest.raises(ValueError, match=r"the curves must fit in memory; 35 lanes of 5 records need .* take fewer"):
        jr.simulate(POLICY, ENVIRONMENT, 3_000, max_memory=1_000, **OPTIONS)
    with pytest.raises(ValueError, match="max_memory must be positive and finite; got 0"):
        jr.simulate(POLICY, ENVIRONMENT, 3_000, max_memory=0, **OPTIONS)
    with pytest.raises(ValueError, match="calibration_seconds must be positive and finite; got 0"):
        jr.estimate(POLICY, ENVIRONMENT, 3_000, calibration_seconds=0)


def test_probes_count_by_the_size_of_what_they_see():
    probes = {"base": lambda policy, state, environment: state.beliefs.base}
    task = prepare(POLICY, ENVIRONMENT, Request(3_000, probes=probes, **OPTIONS))
    assert memory.curve_bytes(task) == 3 * 8 * 35 * 5 * (2 + 6)
