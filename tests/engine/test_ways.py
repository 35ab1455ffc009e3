"""Which way a run takes, that every way leads to the same numbers, and what is lowered for GPUs and TPUs."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.export
import numpy as np
import pytest
from jax.sharding import Mesh
from streams import stream
from worlds import click_model, topic_bandit, worst_first

import jaxrank as jr
from jaxrank.core.batching import lanes_minor, layouts
from jaxrank.engine import array_loop, devices, memory, ways
from jaxrank.engine.entry_rules import ELEMENTWISE
from jaxrank.engine.request import Request
from jaxrank.engine.task import prepare

BENCHMARKS = Path(jr.__file__).parents[1] / "benchmarks"
USERS = click_model("cm", 5, seed=0, num_queries=3)
ENVIRONMENT = jr.ClickBandit(USERS, base_ranking=worst_first(USERS), list_size=3)
QUIET = {"progress": False, "num_seeds": 3, "num_records": 4, "metrics": ("regret", "violations")}


# Which way.


def fake_device(platform, capability=None, stats=None):
    """A device that is not there: what the engine asks one for."""
    own = {} if capability is None else {"compute_capability": capability}
    return SimpleNamespace(
        platform=platform, process_index=0, id=0, device_kind=f"a {platform}", memory_stats=lambda: stats, **own
    )


def fake_mesh(*devices):
    return SimpleNamespace(devices=np.array(devices), size=len(devices))


def chosen(mesh, policy=None, environment=ENVIRONMENT, asked=None, metrics=("regret",), probes=()):
    task = prepare(policy or jr.CascadeUCB1(), environment, Request(num_steps=10, metrics=metrics))
    shapes = task.lane_shapes(task.mesh.size)
    return ways.choose(asked, shapes, dict.fromkeys(probes), metrics=metrics, mesh=mesh, prng="jaxrank")


GPU, TPU, CPU = (fake_mesh(fake_device(*one)) for one in (("gpu", "8.0"), ("tpu",), ("cpu",)))


def test_a_small_run_is_a_kernel_on_a_gpu_and_on_a_tpu():
    assert chosen(GPU) == chosen(TPU) == ways.Way("kernel")
    assert chosen(CPU) == ways.Way("loop", "the fastest on a CPU")


@pytest.mark.parametrize("capability", ["7.5", "gfx90a"])
def test_a_gpu_that_triton_does_not_know_runs_a_loop_over_entries(capability):
    way = chosen(fake_mesh(fake_device("gpu", capability)))
    assert way.name == "entries" and capability in way.reason


def test_without_the_triton_backend_a_gpu_runs_a_loop_over_entries(monkeypatch):
    monkeypatch.setattr(ways, "find_spec", lambda name: None)
    way = chosen(GPU)
    assert way.name == "entries" and "no Triton backend" in way.reason


def test_what_cannot_be_taken_apart_runs_as_a_loop_over_arrays_and_says_why():
    assert "probes" in chosen(GPU, probes=("seen",)).reason
    many = click_model("cm", 20, seed=0, num_queries=2)
    assert "numbers" in chosen(GPU, jr.TopRank(), jr.ClickBandit(many, list_size=5)).reason
    # BubbleRank's matrices stay in a kernel's memory, but the loop over entries would have to carry them.
    items = jr.ClickBandit(click_model("cm", 15, seed=0, num_queries=2), list_size=5)
    assert chosen(GPU, jr.BubbleRank(), items).name == "kernel" and chosen(TPU, jr.BubbleRank(), items).name == "loop"
    examination = np.linspace(1, 0.5, 3)
    assert "'scan'" in chosen(GPU, jr.PBMTS(examination=examination)).reason
    items = jr.ClickBandit(click_model("cm", 20, seed=0, num_queries=2), list_size=10)
    assert "operations" in chosen(GPU, jr.BatchRank(), items).reason  # its kernel would take minutes to compile
    assert chosen(GPU, jr.CascadeLinUCB(), topic_bandit(num_items=30, num_users=2)).name == "loop"


def test_what_triton_or_mosaic_does_not_have_runs_as_a_loop_over_entries():
    assert chosen(GPU, jr.PBMHB()) == ways.Way("entries", "Pallas' Triton backend has no 'erf'")
    assert chosen(TPU, jr.make("cascade_ducb")) == ways.Way("entries", "Pallas' Mosaic backend has no 'expm1'")
    rules = importlib.import_module("jax._src.pallas.triton.lowering").triton_lowering_rules  # private: only for tests
    assert {*ELEMENTWISE} - {primitive.name for primitive in rules} <= ways._UNKNOWN["gpu"]
    rules = importlib.import_module("jax._src.pallas.mosaic.lowering").lowering_rules
    of_core = next(own for kind, own in rules.items() if str(kind) == "tc")
    assert {*ELEMENTWISE} - {primitive.name for primitive in of_core} <= ways._UNKNOWN["tpu"]


def test_a_kernel_keeps_what_fits_the_registers():
    items = jr.ClickBandit(click_model("cm", 60, seed=0, num_queries=2), list_size=10)
    way = chosen(GPU, jr.CascadeUCB1(), items)
    assert way.name == "entries" and "255 registers" in way.reason
    items = jr.ClickBandit(click_model("cm", 10, seed=0, num_queries=2), list_size=10)
    way = chosen(GPU, jr.GRAB(), items)
    assert way.name == "loop" and "its steps have loops" in way.reason


def test_a_kernel_is_not_too_long_to_compile_and_has_few_numbers_that_wait():
    def way_of(policy, num_items):
        items = jr.ClickBandit(click_model("cm", num_items, seed=0, num_queries=2), list_size=10)
        return chosen(GPU, policy, items)

    assert way_of(jr.BubbleRank(), 20).name == way_of(jr.TopRank(), 11).name == "kernel"
    assert "operations" in way_of(jr.BubbleRank(), 30).reason and way_of(jr.BubbleRank(), 30).name == "entries"
    assert "would wait at once" in way_of(jr.TopRank(), 12).reason and way_of(jr.TopRank(), 12).name == "entries"


def test_a_way_that_cannot_be_taken_is_refused():
    with pytest.raises(ValueError, match="way must be 'loop' where lanes cannot be taken apart; got 'entries'"):
        chosen(GPU, jr.CascadeLinUCB(), topic_bandit(num_items=30, num_users=2), asked="entries")
    with pytest.raises(ValueError, match=r"way must be 'loop' or left out.*compute capability"):
        chosen(fake_mesh(fake_device("gpu", "7.0")), asked="kernel")
    with pytest.raises(ValueError, match="way must be"):
        jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, way="fast")


def test_estimates_and_results_say_which_way():
    result = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, way="entries", progress=False)
    assert result.attrs["way"] == "entries (as asked for)"
    plan = jr.estimate(jr.StaticRanking(), ENVIRONMENT, 10, calibration_seconds=0.01)
    assert plan.way == "loop (the fastest on a CPU)" and "tried; loop)" in str(plan)


# The same numbers.


@pytest.mark.parametrize("way", ["kernel", "entries"])
def test_a_run_has_the_same_curves_whichever_way_it_takes(way, tmp_path):
    """On two devices, in several calls, with settled lanes; interrupted and resumed, bit for bit."""
    policy = jr.CascadeUCB1()
    loop = jr.simulate(policy, ENVIRONMENT, 300, **QUIET)
    mesh = Mesh(np.array(jax.devices()[:2]), ("lanes",))
    taken = jr.simulate(policy, ENVIRONMENT, 300, way=way, mesh=mesh, call_intervals=2, **QUIET)
    assert taken.attrs["way"].startswith(way)
    np.testing.assert_array_equal(taken["violations"], loop["violations"])
    np.testing.assert_allclose(taken["regret"], loop["regret"], rtol=1e-5)

    def stop(step):
        if step >= 150:
            raise KeyboardInterrupt

    options = QUIET | {"way": way, "call_intervals": 2, "mesh": mesh, "checkpoint_dir": tmp_path}
    options |= {"checkpoint_every": "1 calls"}
    with pytest.raises(KeyboardInterrupt):
        jr.simulate(policy, ENVIRONMENT, 300, **options | {"progress": stop})
    resumed = jr.simulate(policy, ENVIRONMENT, 300, **options, resume=True)
    for metric in QUIET["metrics"]:
        np.testing.assert_array_equal(resumed[metric], taken[metric])


def test_settled_lanes_of_a_kernel_are_completed_in_closed_form():
    loop = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 1_500, **QUIET)
    kernel = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 1_500, way="kernel", **QUIET)
    np.testing.assert_allclose(kernel["regret"], loop["regret"], rtol=1e-6)


# What is lowered for accelerators, without having one.

WITH_FEATURES = ("cascade_lin_ucb", "cascade_lin_ts", "cascade_lsb", "cascade_hybrid")
RANKERS = (
    *("pairrank", "pdgd", "dbgd", "mgd", "epsilon_greedy", "sgd_ranknet"),
    *("neural_pdgd", "p2neurrank", "ol_ranknet", "ol_lambdarank"),
)
QUICK = ("static", "bubblerank", "cascade_ts", "pbm_ts", "cascade_hybrid", "pdgd")
# What must not be in a program: host callbacks, layout constraints, and communication between devices.
UNWANTED = re.compile(r"custom_call @\w*(?:callback|Layout)\w*|stablehlo\.(?:all_\w+|collective_\w+|reduce_scatter)")

# Calls of a library's solver, which are no part of a CUDA graph: the host waits for them.
SOLVER = re.compile(r"custom_call @cu\w+|stablehlo\.(?:cholesky|triangular_solve)")


def world_of(name):
    if name in WITH_FEATURES:
        return jr.make(name), topic_bandit(num_items=9, num_users=3), "regret"
    if name in RANKERS:
        return jr.make(name), stream(), "ndcg"
    examination = {"examination": [1.0, 0.7, 0.5]} if name.startswith("pbm") else {}
    try:
        return jr.make(name, **examination), ENVIRONMENT, "regret"
    except TypeError:  # it does not need to know
        return jr.make(name), ENVIRONMENT, "regret"


def exported(task, way, platform):
    """The loop of a task, lowered for an accelerator."""
    shapes = memory.placed(task, task.lane_shapes(4))
    arguments = (*ways.split(shapes), jax.ShapeDtypeStruct((3, 3), np.int32), {})
    options = {"metrics": tuple(task.metrics), "mesh": task.mesh, "prng": "jaxrank", "way": way}
    return jax.export.export(ways.program(platform), platforms=("cuda", "tpu"))(*arguments, **options).mlir_module()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in jr.available()]
)
def test_every_loop_lowers_for_gpus_and_tpus_without_callbacks_collectives_or_layouts(name, monkeypatch):
    policy, environment, metric = world_of(name)
    task = prepare(policy, environment, Request(num_steps=50, metrics=(metric,), num_seeds=4))
    monkeypatch.setattr(array_loop, "platform_of", lambda mesh: "gpu")
    way = ways.choose(None, task.lane_shapes(4), {}, metrics=(metric,), mesh=GPU, prng="jaxrank").name
    for form in {"loop", "entries" if way == "kernel" else "loop"}:
        text = exported(task, form, "gpu")
        assert "stablehlo.while" in text and UNWANTED.findall(text) == [], form
        assert bool(SOLVER.search(text)) == (name == "cascade_lin_ts"), "it factors a matrix in every step"


def test_recurrank_with_features_calls_no_solver(monkeypatch):
    monkeypatch.setattr(array_loop, "platform_of", lambda mesh: "gpu")
    task = prepare(jr.RecurRank(), topic_bandit(num_items=9, num_users=3), Request(num_steps=50, metrics=("regret",)))
    assert not SOLVER.search(exported(task, "loop", "gpu"))


def test_layouts_callbacks_and_collectives_would_be_found():
    """The test above can fail."""
    x = jax.ShapeDtypeStruct((4, 3), np.float32)
    with layouts(True), pytest.raises(ValueError, match="LayoutConstraint"):
        jax.export.export(jax.jit(lambda x: lanes_minor(x) + 1), platforms=("cuda",))(x)
    called = jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(x).as_text()
    assert "callback" in UNWANTED.findall(called)[0]
    mesh = Mesh(np.array(jax.devices()[:1]), ("lanes",))
    spec = jax.sharding.PartitionSpec()
    summed = jax.shard_map(lambda x: jax.lax.psum(x, "lanes"), mesh=mesh, in_specs=spec, out_specs=spec)
    assert UNWANTED.findall(jax.jit(summed).lower(x).as_text()) == ["stablehlo.all_reduce"]


def test_the_loop_on_a_gpu_asks_for_graphs_of_whole_loops():
    """So that the host does not wait for a loop's condition: XLA puts loops and branches into the CUDA graph."""
    named = ways.compiler_options("gpu")["xla_gpu_enable_command_buffer"].split(",")
    assert {"FUSION", "CUSTOM_CALL", "WHILE", "CONDITIONAL"} <= set(named)
    assert ways.compiler_options("tpu") is None


# Memory and devices.


def test_an_accelerators_own_memory_is_what_may_be_filled(monkeypatch):
    task = prepare(jr.StaticRanking(), ENVIRONMENT, Request(num_steps=10))
    stats = [{"bytes_limit": 1_000, "bytes_in_use": 100}, {"bytes_limit": 1_000, "bytes_in_use": 300}]

    def usable(*stats, **options):
        mesh = fake_mesh(*(fake_device("gpu", "8.0", stats=one) for one in stats))
        return memory.usable(SimpleNamespace(request=Request(num_steps=10, **options), mesh=mesh))

    assert usable(*stats) == pytest.approx(0.8 * 700 * 2), "of two devices alike, by the fuller one"
    assert usable(*stats, max_memory=5e3) == 5e3
    monkeypatch.setattr(memory, "_free_on_host", lambda: 5_000.0)
    assert usable(None) == pytest.approx(4_000), "a device that does not say"
    # Curves are on the host: what they take is not taken from the device's memory.
    on_gpu = SimpleNamespace(mesh=GPU, num_lanes=100)
    assert memory.shares_that_fit(on_gpu, memory.Memory(1_000, 900), 1_000.0) == 1
    on_cpu = SimpleNamespace(mesh=CPU, num_lanes=100)
    assert memory.shares_that_fit(on_cpu, memory.Memory(1_000, 900), 1_000.0) == 10
    assert task.mesh.size


def test_a_run_uses_all_accelerators_however_few_its_lanes(monkeypatch):
    made = [fake_device("gpu", "9.0") for _ in range(4)]
    monkeypatch.setattr(devices, "Mesh", lambda devices, *args, **options: fake_mesh(*devices))
    monkeypatch.setattr(devices.jax, "devices", lambda: made)
    assert devices.lane_mesh(3, None, has_features=True).size == 4
    monkeypatch.setattr(devices.jax, "local_devices", lambda: made)
    assert devices.first_devices(2).size == 2
    with pytest.raises(ValueError, match="devices must be at most the 4 there are; got 5"):
        devices.first_devices(5)


def test_an_accelerator_takes_its_share_as_one_part():
    assert array_loop.padded_size(1_000_001, fake_mesh(*[fake_device("gpu")] * 2), bytes_of_lane=10_000) == 1_000_032
    assert array_loop.padded_size(7, fake_mesh(fake_device("tpu")), bytes_of_lane=10) == 7


# Where the plugins are.


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs jaxrank[gpu-compile]")
@pytest.mark.parametrize("way", ["kernel", "entries"])
def test_what_is_compiled_for_an_a100_is_what_the_table_says(way, tmp_path):
    rows = [json.loads(line) for line in (BENCHMARKS / "results" / "accelerators.jsonl").read_text().splitlines()]
    cell = ("a100", "cascade_ucb1", way, 100_000, 10)
    expected = next(row for row in rows if tuple(row[k] for k in ("device", "policy", "way", "lanes", "items")) == cell)
    command = [sys.executable, str(BENCHMARKS / "accelerators.py"), "--device", "a100", "--policy", "cascade_ucb1"]
    subprocess.run([*command, "--way", way, "--out", str(tmp_path)], check=True, env=os.environ | {"XLA_FLAGS": ""})
    got = json.loads((tmp_path / "accelerators.jsonl").read_text())
    for name in ("waits", "collectives", "registers", "spilled_bytes", "kernels", "bytes"):
        assert got.get(name) == expected.get(name), name
