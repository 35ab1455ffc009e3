"""A call as one Pallas kernel does what the XLA loop does. On the CPU it runs in interpret mode: as plain JAX."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal, jaxpr_as_fun
from worlds import HastyBatchRank, click_model, worst_first

import jaxrank as jr
from jaxrank.engine.array_loop import run_arrays
from jaxrank.engine.entry_loop import kept_in_memory, run_entries
from jaxrank.engine.gpu_kernel import GpuBlocks, tiles
from jaxrank.engine.jaxprs import by_demand, most_at_once
from jaxrank.engine.kernel import run_kernel
from jaxrank.engine.request import Request
from jaxrank.engine.task import prepare
from jaxrank.engine.tpu_kernel import TpuBlocks, for_mosaic
from jaxrank.engine.ways import choose

METRICS = ("regret", "violations")  # a float and an integer
LANES = 7
BLOCKS = {"gpu": GpuBlocks(4), "tpu": TpuBlocks()}  # the last block has a lane too many, and the only one many
# Two whole intervals, one that is cut short, and an empty one that fills the call up.
INTERVALS = np.array([[1, 40, 1], [40, 61, 1], [61, 80, 0], [0, 0, 0]], np.int32)
DEVICES = {
    "gpu": SimpleNamespace(devices=np.array([SimpleNamespace(platform="gpu", compute_capability="8.0")])),
    "tpu": SimpleNamespace(devices=np.array([SimpleNamespace(platform="tpu")])),
}
CHI = [1.0, 0.8, 0.6, 0.4]  # examination probabilities
# Bounds low enough for exchanges, splits and eliminations within these steps.
POLICIES = {
    "static": (jr.StaticRanking(), "cm", 4),
    "random": (jr.RandomRanking(), "cm", 4),
    "oracle": (jr.OracleRanking(), "cm", 4),
    "bubblerank": (jr.BubbleRank(delta=0.9), "pbm", 5),
    "bubblerank_in_memory": (jr.BubbleRank(delta=0.9), "cm", 6, 7),  # matrices of 49 entries stay in memory
    "toprank": (jr.TopRank(delta=0.9), "cm", 5),
    "batchrank": (HastyBatchRank(), "dcm", 4),
    "cascade_ucb1": (jr.CascadeUCB1(), "cm", 4),
    "cascade_klucb": (jr.CascadeKLUCB(), "cm", 4),
    "cascade_ts": (jr.CascadeTS(), "cm", 4),
    "dcm_klucb": (jr.DCMKLUCB(), "dcm", 4),
    "ranked_exp3": (jr.RankedExp3(), "pbm", 4),
    "ranked_ucb1": (jr.RankedUCB1(), "cm", 3),
    "ranked_klucb": (jr.RankedKLUCB(), "cm", 3),
    "pbm_ucb": (jr.PBMUCB(examination=CHI), "pbm", 4),
    "pbm_pie": (jr.PBMPIE(examination=CHI), "pbm", 4),
    "cascade_ducb": (jr.make("cascade_ducb"), "cm", 4),
    "pb_mhb": (jr.make("pb_mhb"), "pbm", 4),
    "grab": (jr.make("grab"), "pbm", 4),
    "unirank": (jr.make("unirank"), "pbm", 4),
    "recurrank": (jr.RecurRank(delta=0.99), "cm", 4),
}


def make_task(policy, model="cm", list_size=4, num_items=5, metrics=METRICS):
    users = click_model(model, num_items, seed=0, num_queries=LANES)
    environment = jr.ClickBandit(users, base_ranking=worst_first(users), list_size=list_size, top=3)
    return prepare(policy, environment, Request(num_steps=80, metrics=metrics))


def assert_alike(got, expected):
    """Integers and booleans exactly, floats to rounding."""
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), jax.tree_util.keystr(path)
        tolerance = {"rtol": 2e-5, "atol": 2e-6} if jnp.issubdtype(x.dtype, jnp.floating) else {"rtol": 0}
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), err_msg=jax.tree_util.keystr(path), **tolerance)


QUICKEST = ("static", "cascade_ucb1")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICKEST else [pytest.mark.slow]) for name in POLICIES]
)
def test_the_kernel_and_the_loop_over_entries_do_what_the_loop_does(name):
    task = make_task(*POLICIES[name])
    lanes = task.make_lanes(np.arange(LANES))
    expected = run_arrays(lanes, INTERVALS, {}, metrics=METRICS, mesh=task.mesh, prng="jaxrank")
    options = {"metrics": METRICS, "prng": "jaxrank"}
    for gathers in (True, False) if name == "bubblerank_in_memory" else (True,):
        by_entries = jax.jit(partial(run_entries, **options, gathers=gathers))(lanes, INTERVALS)
        assert_alike(by_entries[0][0], expected[0][0])
        assert_alike(by_entries[1:], expected[1:])
    for platform, blocks in BLOCKS.items():
        check_kernel(name, task, partial(run_kernel, **options, blocks=blocks, interpret=True), platform, expected)


def check_kernel(name, task, kernel, platform, expected):
    lanes, kernel = task.make_lanes(np.arange(LANES)), jax.jit(kernel)
    got = kernel(lanes, INTERVALS)
    if name == "bubblerank_in_memory":
        assert sum(kept_in_memory(lanes, metrics=METRICS, prng="jaxrank")) == 2
        assert (np.asarray(got[0][0].beliefs.s_items) != 0).any(), "there were exchanges"
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    assert_alike(got[0][0], expected[0][0])
    assert_alike(got[1:], expected[1:])
    # What is left of a sum's compensation depends on the last bits of the sum.
    sums, expected_sums = ({name: s.total - s.error for name, s in result[0][1].items()} for result in (got, expected))
    assert_alike(sums, expected_sums)
    if name == "static":
        assert np.asarray(got[2]).all(axis=1).tolist() == [True, True, False, False], "settled, at whole intervals"
    # From where the call ended, the next one continues.
    state, sums = got[0]
    rest = np.array([[80, 81, 1], *INTERVALS[[3, 3, 3]]], np.int32)
    continued = kernel(lanes._replace(state=state, sums=sums), rest)
    straight = np.array([[1, 61, 1], [61, 81, 1], *INTERVALS[[3, 3]]], np.int32)
    whole = run_arrays(lanes, straight, {}, metrics=METRICS, mesh=task.mesh, prng="jaxrank")
    assert_alike(jax.tree.map(lambda x: x[0], continued[1]), jax.tree.map(lambda x: x[1], whole[1]))


def test_a_value_is_computed_right_before_it_is_needed():
    def of_one(x):
        waves = [jnp.sin(i * x) for i in range(1, 9)]
        jax.debug.callback(said.append, 1, ordered=True)
        jax.debug.callback(said.append, 2, ordered=True)
        return [wave + 1 for wave in waves]

    said = []
    code = jax.make_jaxpr(of_one)(2.0)
    ordered = by_demand(code)
    assert (waiting(code), waiting(ordered)) == (8, 2), "the sines, most of them; x and one of them"
    np.testing.assert_array_equal(jaxpr_as_fun(ordered)(2.0), jaxpr_as_fun(code)(2.0))
    jax.effects_barrier()
    assert [int(number) for number in said] == [1, 2, 1, 2], "what has effects keeps its order"


def waiting(closed):
    """The most values that wait for an equation at a time, without those that are results."""
    made, last = dict.fromkeys(closed.jaxpr.invars, -1), {}
    for i, eqn in enumerate(closed.jaxpr.eqns):
        made.update(dict.fromkeys(eqn.outvars, i))
        last.update((var, i) for var in eqn.invars if not isinstance(var, Literal))
    waits = {var: range(made[var] + 1, end + 1) for var, end in last.items() if var not in closed.jaxpr.outvars}
    return max(sum(i in wait for wait in waits.values()) for i in range(len(closed.jaxpr.eqns)))


# Policies that are no kernels: they have features, operations on whole arrays or unknown to Triton, or large states.
ON_ARRAYS = {"pbm_ts", "cascade_swucb", "glrt_cascade_ucb", "glrt_cascade_klucb"}
OTHER_WAYS = {
    "gpu": {**dict.fromkeys(ON_ARRAYS, "loop"), "pb_mhb": "entries"},
    "tpu": {**dict.fromkeys(ON_ARRAYS, "loop"), "cascade_ducb": "entries"},
}
WITH_FEATURES = {"cascade_lin_ucb", "cascade_lin_ts", "cascade_lsb", "cascade_hybrid"}
WITH_FEATURES |= {"pairrank", "pdgd", "dbgd", "mgd", "epsilon_greedy", "sgd_ranknet"}
WITH_FEATURES |= {"neural_pdgd", "p2neurrank", "ol_ranknet", "ol_lambdarank"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")  # from JAX 0.12 on
@pytest.mark.parametrize("platform", DEVICES)
@pytest.mark.parametrize("name", sorted({*jr.available()} - WITH_FEATURES))
def test_every_feature_free_policy_lowers_for_a_gpu_and_a_tpu(name, platform):
    """As one kernel. ``benchmarks/accelerators.py`` shows what the device's compiler makes of it."""
    policy = jr.make(name, **({"examination": CHI} if name.startswith("pbm") else {}))
    task = make_task(policy, metrics=("regret",))
    lanes = task.make_lanes(np.arange(LANES))
    options = {"metrics": ("regret",), "prng": "jaxrank"}
    way = choose(None, lanes, {}, mesh=DEVICES[platform], **options)
    assert way.name == OTHER_WAYS[platform].get(name, "kernel")
    if name in OTHER_WAYS[platform]:
        return
    blocks = GpuBlocks() if platform == "gpu" else TpuBlocks()
    traced = jax.jit(partial(run_kernel, **options, blocks=blocks)).trace(lanes, INTERVALS)
    try:
        text = traced.lower(lowering_platforms=("cuda" if platform == "gpu" else "tpu",)).as_text()
    except NotImplementedError:
        raise  # a primitive that Triton or Mosaic does not have
    except RuntimeError as error:
        pytest.skip(f"JAX {jax.__version__} lowers by Triton only where there is a GPU: {error}")
    except ValueError as error:
        if "Unsupported TPU device kind" not in str(error):
            raise
        pytest.skip(f"JAX {jax.__version__} lowers a sign by Mosaic only where there is a TPU: {error}")
    assert text.count("__gpu$xla.gpu.triton" if platform == "gpu" else "tpu_custom_call") == 1
    assert "callback" not in text


def test_what_mosaic_does_not_compile_is_written_in_another_way():
    def code(x):
        def body(i, carry):
            total, flags, _ = carry
            chosen = jnp.where(x > i, flags, ~flags)  # of booleans
            total = jax.lax.cond(i > 1, lambda: total + x * flags, lambda: jnp.full((8, 128), 3.0))
            return total, chosen, jnp.ones((8, 128), jnp.uint32)  # of equal entries

        first = (jnp.zeros((8, 128)), x > 2, jnp.zeros((8, 128), jnp.uint32))
        return jax.lax.fori_loop(0, jnp.int32(x[0, 0]) + 4, body, jax.lax.fori_loop(0, 3, body, first))

    x = jnp.arange(1024.0).reshape(8, 128) % 7
    written = for_mosaic(code, lambda: jnp.zeros((8, 128), jnp.int32))
    for got, expected in zip(written(x), code(x), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    names = [*loops(jax.make_jaxpr(written)(x).jaxpr)]
    assert names and not any(var.aval.dtype == bool and var.aval.shape for eqn in names for var in eqn.outvars)
    assert any(
        var.aval.dtype == bool and var.aval.shape for eqn in loops(jax.make_jaxpr(code)(x).jaxpr) for var in eqn.outvars
    )


def loops(jaxpr):
    """The loops and conditionals of a jaxpr."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("while", "scan", "cond"):
            yield eqn
        for parameter in eqn.params.values():
            for inner in parameter if isinstance(parameter, tuple) else (parameter,):
                if hasattr(inner, "jaxpr"):
                    yield from loops(inner.jaxpr)


def test_a_lane_is_loaded_in_few_tiles_of_powers_of_two():
    assert {n: tiles(n) for n in (0, 16, 17, 64, 65, 100, 255)} == {
        **{0: [16], 16: [16], 17: [32], 64: [64], 65: [64, 16], 100: [64, 64]},
        255: [64] * 4,
    }


def test_what_waits_at_once_is_counted_in_the_order_of_the_code():
    def late(x):
        parts = [x * i for i in range(5)]  # all five wait, beside x or the first sum
        return sum(parts[1:], parts[0])

    def early(x):
        total = x * 0
        for i in range(1, 5):
            total = total + x * i  # x, the sum, the part and the new sum
        return total

    assert most_at_once(jax.make_jaxpr(late)(1.0)) == 6
    assert most_at_once(jax.make_jaxpr(early)(1.0)) == 4
