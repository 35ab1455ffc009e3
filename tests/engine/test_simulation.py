"""The engine: curves, records, lanes, reproducibility, memory."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record
from worlds import HastyBatchRank, click_model, worst_first

import jaxrank as jr
from jaxrank.core.pytrees import array, pytree
from jaxrank.core.random import lane_key, root_key
from jaxrank.engine import array_loop
from jaxrank.engine import run as engine
from jaxrank.engine.ways import program

MODEL = click_model("pbm", 6, seed=0, num_queries=5)
ENVIRONMENT = jr.ClickBandit(MODEL, base_ranking=worst_first(MODEL), list_size=4, top=3)
MANY_ITEMS = jr.ClickBandit(click_model("pbm", 36, seed=0, num_queries=5), list_size=8, top=3)
QUIET = {"progress": False}


def test_static_regret_is_a_straight_line_of_known_slope():
    result = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 5_000, num_seeds=2, num_records=10, **QUIET)
    attraction = np.sort(np.asarray(MODEL.attraction, np.float64), axis=1)
    examination = np.asarray(MODEL.examination, np.float64)
    slope = ((attraction[:, ::-1][:, :3] - attraction[:, :3]) * examination[:3]).sum(axis=1)
    expected = slope[:, None, None] * result["step"].values
    np.testing.assert_allclose(result["regret"], np.broadcast_to(expected, result["regret"].shape), rtol=1e-6)


def test_oracle_has_no_regret_at_all():
    for name in ("cm", "dcm", "pbm"):
        environment = jr.ClickBandit(click_model(name, 6, seed=0, num_queries=5), list_size=4, top=3)
        assert (jr.simulate(jr.OracleRanking(), environment, 2_000, **QUIET)["regret"] == 0).all()


def test_regret_sums_agree_with_float64():
    """A learning policy, every list of the run re-evaluated in float64."""
    for name in ("cm", "dcm", "pbm"):
        users = click_model(name, 6, seed=1)
        environment = jr.ClickBandit(users, base_ranking=worst_first(users), top=4)
        steps = 30_000
        policy = jr.BubbleRank(delta=0.1)
        rankings = record(policy, environment, steps).rankings
        attraction = np.asarray(users.attraction, np.float64)

        def reward(ranking, users=users, name=name, attraction=attraction):
            alpha = attraction[ranking[..., :4]]
            if name == "cm":
                return 1 - np.prod(1 - alpha, axis=-1)
            if name == "dcm":
                return 1 - np.prod(1 - alpha * np.asarray(users.termination, np.float64)[:4], axis=-1)
            return (alpha * np.asarray(users.examination, np.float64)[:4]).sum(axis=-1)

        exact = (reward(np.asarray(environment.optimal_ranking)) - reward(rankings)).sum()
        regret = jr.simulate(policy, environment, steps, **QUIET)["regret"][0, -1]
        assert float(regret) == pytest.approx(exact, rel=1e-6), name


def test_the_engine_runs_what_the_one_lane_methods_say():
    steps = 300
    one = jr.ClickBandit(jr.PositionBasedModel(MODEL.attraction[0], MODEL.examination), list_size=4, top=3)
    run = record(jr.RandomRanking(), one, steps)
    regret = [float(one.metrics(None, jnp.asarray(ranking))["regret"]) for ranking in run.rankings]
    result = jr.simulate(jr.RandomRanking(), one, steps, num_records=steps, **QUIET)
    np.testing.assert_allclose(result["regret"][0], np.cumsum(regret), rtol=1e-5)


@pytest.mark.parametrize(
    ("policy", "environment", "num_steps"),
    [
        (jr.BubbleRank(delta=0.1), ENVIRONMENT, 3_000),
        pytest.param(jr.TopRank(delta=0.5), MANY_ITEMS, 500, marks=pytest.mark.slow),
    ],
)
def test_one_lane_alone_equals_that_lane_among_1000(policy, environment, num_steps):
    options = {"metrics": ("regret", "misordered", "clicks"), "num_records": 20, **QUIET}
    many = jr.simulate(policy, environment, num_steps, num_seeds=200, **options)
    for query, seed in ((0, 0), (3, 117), (4, 199)):
        alone = jr.simulate(policy, environment, num_steps, instances=[query], seeds=[seed], **options)
        for metric, exactly in (("misordered", True), ("regret", False), ("clicks", False)):
            lane, among = alone[metric][0, 0].values, many[metric].sel(query=query, seed=seed).values
            np.testing.assert_allclose(lane, among, rtol=0 if exactly else 1e-6)


@pytest.mark.parametrize("policy", [jr.BubbleRank(delta=0.1), jr.RandomRanking()])
def test_curves_do_not_depend_on_the_calls(policy):
    options = {"num_seeds": 3, "num_records": 11, "metrics": ("regret", "ndcg"), **QUIET}
    straight = jr.simulate(policy, ENVIRONMENT, 4_321, **options)
    for call_intervals in (1, 3):
        in_calls = jr.simulate(policy, ENVIRONMENT, 4_321, call_intervals=call_intervals, **options)
        for metric in ("regret", "ndcg"):
            np.testing.assert_array_equal(in_calls[metric], straight[metric])


@pytest.mark.parametrize(
    "policy", [pytest.param(jr.TopRank(delta=0.5), marks=pytest.mark.slow), HastyBatchRank(), jr.StaticRanking()]
)
def test_settled_lanes_are_completed_in_closed_form(policy, monkeypatch):
    calls = []  # (lanes, last step) of each call

    def call(lanes, intervals, *arguments, original=engine.call, **options):
        calls.append((len(lanes.key), int(intervals.max()) - 1))
        return original(lanes, intervals, *arguments, **options)

    monkeypatch.setattr(engine, "call", call)
    monkeypatch.setattr(engine, "_WORTH_COMPILING", 1)
    options = {"num_seeds": 30, "num_records": 13, "metrics": ("regret", "misordered", "ndcg"), **QUIET}
    simulated = jr.simulate(policy, ENVIRONMENT, 17_500, skip_settled=False, **options)
    assert {lanes for lanes, _ in calls} == {150} and calls[-1][1] == 17_500
    calls.clear()
    skipped = jr.simulate(policy, ENVIRONMENT, 17_500, **options)
    assert calls[-1][0] < 150 or calls[-1][1] <= 1_000, "no lane has left"
    np.testing.assert_array_equal(skipped["misordered"], simulated["misordered"])
    for metric in ("regret", "ndcg"):
        np.testing.assert_allclose(skipped[metric], simulated[metric], rtol=1e-6, atol=1e-6)
    for call_intervals in (1, 5):
        in_calls = jr.simulate(policy, ENVIRONMENT, 17_500, call_intervals=call_intervals, **options)
        np.testing.assert_array_equal(in_calls["regret"], skipped["regret"])


@pytest.mark.parametrize(
    "policy", [jr.BubbleRank(delta=[0.1, 0.01]), pytest.param(jr.TopRank(delta=0.5), marks=pytest.mark.slow)]
)
def test_lanes_in_parts_do_what_all_together_do(policy, monkeypatch):
    def shown(policy, state, environment):
        return policy.rank(jax.random.key(0), state, environment.query(None, 1))

    parts = []
    num_parts = array_loop._num_parts
    monkeypatch.setattr(array_loop, "_num_parts", lambda *arguments: parts.append(num_parts(*arguments)) or parts[-1])
    options = {"num_seeds": 7, "num_records": 5, "metrics": ("regret", "misordered"), **QUIET}
    for extra in ({}, {"probes": {"shown": shown}}):
        runs = []
        for vector, vectors in ((4, 1), (16, 127)):  # 35 or 70 lanes on one device or two: the last part is padded
            monkeypatch.setattr(array_loop, "_VECTOR", vector)
            monkeypatch.setattr(array_loop, "_MOST", vectors)
            jax.clear_caches()
            parts.clear()
            runs.append(jr.simulate(policy, ENVIRONMENT, 1_500, **options, **extra))
            assert max(parts) == 1 if vectors > 1 else max(parts) > 4
        assert runs[0].sizes == runs[1].sizes
        for name in runs[0].data_vars:
            np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=1e-6 if name == "regret" else 0)


@pytest.mark.parametrize("bytes_of_lane", [1, 1_500, 4_100, 100_000])
def test_padding_is_little_and_shared_out_evenly(bytes_of_lane):
    """The loop divides padded lanes into as many parts as they were padded for."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    for num_lanes in [*range(1, 3_000, 7), *range(3_000, 200_000, 1_237)]:
        padded = array_loop.padded_size(num_lanes, mesh, bytes_of_lane)
        asked, parts = (array_loop._num_parts(-(-n // mesh.size), mesh, bytes_of_lane) for n in (num_lanes, padded))
        assert parts == asked and padded % (mesh.size * parts) == 0
        part = padded // mesh.size // parts
        assert part < 128 or part % 32 == 16
        assert num_lanes <= padded < num_lanes + mesh.size * parts * 32


def test_a_lane_is_the_same_on_any_number_of_devices():
    devices = np.array(jax.devices())
    options = {"num_seeds": 27, "num_records": 5, "metrics": ("regret", "misordered"), **QUIET}
    runs = [
        jr.simulate(
            jr.BubbleRank(delta=0.1), ENVIRONMENT, 2_000, mesh=jax.sharding.Mesh(devices[:n], ("x",)), **options
        )
        for n in {1, len(devices)}
    ]
    np.testing.assert_array_equal(runs[0]["misordered"], runs[-1]["misordered"])
    np.testing.assert_allclose(runs[0]["regret"], runs[-1]["regret"], rtol=1e-6)


def test_records_do_not_change_the_run():
    few = jr.simulate(jr.RandomRanking(), ENVIRONMENT, 2_500, record_at=[700, 2_500], **QUIET)["regret"]
    many = jr.simulate(jr.RandomRanking(), ENVIRONMENT, 2_500, num_records=2_500, **QUIET)["regret"]
    np.testing.assert_allclose(few, many.sel(step=[700, 2_500]), rtol=1e-6)


def test_seeds_differ_and_the_root_seed_matters():
    first = jr.simulate(jr.RandomRanking(), ENVIRONMENT, 500, num_seeds=3, **QUIET)["regret"][..., -1]
    second = jr.simulate(jr.RandomRanking(), ENVIRONMENT, 500, num_seeds=3, seed=1, **QUIET)["regret"][..., -1]
    assert len(np.unique(first)) == first.size
    assert not np.isin(first, second).any()


def test_lane_keys_are_folded_as_documented():
    expected = jax.random.fold_in(jax.random.fold_in(root_key(5), 2), 7)
    assert (jax.random.key_data(lane_key(root_key(5), 2, 7)) == jax.random.key_data(expected)).all()


def test_a_swept_leaf_is_a_dimension_and_each_setting_is_that_policy():
    deltas = [0.5, 0.1, 0.001]
    options = {"num_seeds": 2, "num_records": 5, **QUIET}
    sweep = jr.simulate(jr.BubbleRank(delta=deltas), ENVIRONMENT, 3_000, **options)["regret"]
    assert sweep.dims == ("delta", "query", "seed", "step")
    np.testing.assert_allclose(sweep["delta"], deltas, rtol=1e-6)
    for i, delta in enumerate(deltas):
        single = jr.simulate(jr.BubbleRank(delta=delta), ENVIRONMENT, 3_000, **options)["regret"]
        np.testing.assert_allclose(sweep[i], single, rtol=1e-6)
    assert not np.allclose(sweep[0], sweep[2])


def test_several_swept_leaves_are_swept_together():
    policy = jr.BubbleRank(delta=[0.5, 0.1], horizon=[100, 200])
    sweep = jr.simulate(policy, ENVIRONMENT, 100, num_records=2, **QUIET)["regret"]
    assert sweep.dims[0] == "setting"
    np.testing.assert_array_equal(sweep["horizon"], [100, 200])


def test_compare_has_a_policy_dimension_and_shared_random_numbers():
    policies = {"static": jr.StaticRanking(), "a": jr.RandomRanking(), "b": jr.RandomRanking()}
    result = jr.compare(policies, ENVIRONMENT, 200, num_seeds=2, num_records=4, **QUIET)
    assert result["regret"].dims == ("policy", "query", "seed", "step")
    assert result["policy"].values.tolist() == list(policies)
    np.testing.assert_array_equal(result["regret"].sel(policy="a"), result["regret"].sel(policy="b"))


def test_an_environment_of_one_query_has_no_query_dimension():
    environment = jr.ClickBandit(jr.CascadeModel([0.1, 0.5, 0.3]))
    result = jr.simulate(jr.StaticRanking(), environment, 10, num_seeds=2, **QUIET)
    assert result["regret"].dims == ("seed", "step")


def test_horizon_is_the_number_of_steps_unless_given():
    filled = jr.simulate(jr.BubbleRank(), ENVIRONMENT, 2_000, **QUIET)["regret"]
    given = jr.simulate(jr.BubbleRank(horizon=2_000), ENVIRONMENT, 2_000, **QUIET)["regret"]
    np.testing.assert_array_equal(filled, given)


def test_linear_and_logarithmic_record_grids():
    linear = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 1_000, num_records=4, **QUIET)
    assert linear["step"].values.tolist() == [250, 500, 750, 1_000]
    log = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 1_000, num_records=4, spacing="log", **QUIET)
    assert log["step"].values.tolist() == [1, 10, 100, 1_000]
    explicit = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 1_000, record_at=(7, 30), **QUIET)
    assert explicit["step"].values.tolist() == [7, 30, 1_000]


def test_attributes_say_what_ran():
    attrs = jr.simulate(jr.BubbleRank(), ENVIRONMENT, 100, seed=3, **QUIET).attrs
    assert attrs["policy"] == "BubbleRank(horizon=100)"
    assert attrs["environment"].startswith("ClickBandit(click_model=PositionBasedModel(")
    assert attrs["root_seed"] == 3
    assert attrs["jaxrank_version"] == jr.__version__
    running = attrs["wall_time_seconds"] - attrs["compile_seconds"]
    assert attrs["lane_steps_per_second"] == pytest.approx(500 / running) and attrs["compile_seconds"] > 0
    assert "cpu" in attrs["devices"].lower() or attrs["devices"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 0}, "num_steps must be an integer from 1 to 2147483646; got 0"),
        ({"num_steps": 10.5}, "num_steps must be an integer .* got 10.5"),
        ({"num_steps": True}, "num_steps must be an integer .* got True"),
        ({"num_steps": 2**31}, "num_steps must be an integer from 1 to 2147483646; got 2147483648"),
        ({"num_seeds": 0}, "num_seeds must be an integer .* got 0"),
        ({"metrics": ("regert",)}, "metrics must be among regret, reward, .*; got 'regert'"),
        ({"metrics": "regret"}, r"metrics must be a sequence of names, not text; got 'regret': write \['regret'\]"),
        ({"spacing": "cubic"}, "spacing must be 'linear' or 'log'; got 'cubic'"),
        ({"record_at": [5, 5]}, r"record_at must be increasing integers .* got \[5, 5\]"),
        ({"record_at": [5, 500]}, "record_at must not pass num_steps = 100; got 500"),
        ({"instances": [5]}, r"instances must be integers from 0 to 4; got \[5\]"),
        ({"seeds": [1, 1]}, r"seeds must not repeat; got \[1, 1\]"),
        ({"num_records": -1}, "num_records must be an integer .* got -1"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(jr.StaticRanking(), ENVIRONMENT, **{"num_steps": 100} | options)


MEMORY = """
import resource
import jaxrank as jr
environment = jr.ClickBandit(jr.datasets.synthetic("cm", 20), top=5)
for steps in (2_000, 60_000):
    jr.simulate(jr.BubbleRank(), environment, steps, num_seeds=10, num_records=50, progress=False)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_steps():
    as_users = os.environ | {"XLA_FLAGS": ""}  # it runs longer than it compiles
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, env=as_users)
    few, many = map(int, run.stdout.split())
    assert many < few + 40_000, f"{few} KB at 2,000 steps, {many} KB at 60,000"


SPOILT = int(ENVIRONMENT.base_ranking[3, 0])  # the first item of these queries' base lists
SPOILT_QUERY = next(q for q in range(5) if ENVIRONMENT.base_ranking[q, 0] == SPOILT)


@pytree
class Spoils:
    """Its state becomes NaN at step 7 of some queries, if delta > 1."""

    delta: object = array(ndim=0, default=1.0)

    def init(self, key, query):
        return jnp.zeros(())

    def rank(self, key, state, query):
        return query.base_ranking[: query.list_size]

    def update(self, key, state, query, ranking, clicks):
        return jnp.where((query.step == 7) & (query.base_ranking[0] == SPOILT) & (self.delta > 1), jnp.nan, state)


def test_a_nan_is_reported_with_policy_setting_query_seed_and_steps():
    lane = rf"Spoils\(delta=\[1, 2\]\), setting 1, query {SPOILT_QUERY}, seed 4"
    with pytest.raises(ValueError, match=rf"the policy's state is NaN or infinite in {lane}, somewhere in steps 1 to"):
        jr.simulate(Spoils(delta=[1.0, 2.0]), ENVIRONMENT, 30, seeds=[4, 5], **QUIET)


def test_a_metric_that_is_not_finite_is_reported_with_its_steps(monkeypatch):
    def metrics(self, query, ranking):
        return {"broken": jnp.where((query.step == 7) & (query.base_ranking[0] == SPOILT), jnp.inf, 0.0)}

    monkeypatch.setattr(jr.ClickBandit, "metrics", metrics)
    lane = rf"StaticRanking\(\), query {SPOILT_QUERY}, seed 0"
    with pytest.raises(ValueError, match=rf"metric broken is NaN or infinite in {lane}, somewhere in steps 6 to 10"):
        jr.simulate(
            jr.StaticRanking(),
            ENVIRONMENT,
            30,
            num_records=6,
            metrics=["broken"],
            skip_settled=False,
            call_intervals=3,
            **QUIET,
        )


@pytree
class WeaklyTyped(jr.RandomRanking):
    """Its first state is made of a Python number, and the next one of an array."""

    def init(self, key, query):
        return jnp.full(3, 0.5)

    def update(self, key, state, query, ranking, clicks):
        return state + jnp.zeros(3)


@pytest.mark.parametrize("policy", [jr.RandomRanking(), WeaklyTyped()], ids=type)
def test_the_loop_is_compiled_once_for_a_run(policy):
    before = program("cpu")._cache_size()
    jr.simulate(policy, ENVIRONMENT, 1_234, num_seeds=11, num_records=3, call_intervals=1, **QUIET)
    assert program("cpu")._cache_size() == before + 1
