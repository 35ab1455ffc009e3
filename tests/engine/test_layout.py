"""One-lane code for a CPU: written out, stored, divided and in one kernel, it computes what plain vmap computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxrank as jr
from jaxrank.core.batching import layouts, rarely
from jaxrank.engine import layout
from jaxrank.engine.array_loop import _any_of
from jaxrank.engine.layout import ForCpu, as_one_kernel, fits_one_kernel, unrolled

LANES = 5


def floats(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(LANES, *shape)), jnp.float32)


def integers(high, *shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).integers(high, size=(LANES, *shape)), jnp.int32)


def reductions(x, n):
    return (
        jnp.sum(n),
        jnp.max(x, axis=0),
        jnp.min(x, axis=(0, 1)),
        jnp.prod(x[:3], axis=1),
        jnp.any(x > 2),
        jnp.all(n > 0),
        jnp.sum(x[:0], axis=0),
    )


def sums_up_to(x, n):
    return jnp.cumsum(x, axis=1), jnp.cumprod(x[0]), lax.cummax(n, reverse=True), jnp.cumsum(x, axis=0)[-1]


def sorting(x, n):
    return jnp.sort(x), jnp.sort(x[:7], descending=True)[1:3], jnp.sort(n, descending=True)[0], jnp.argsort(n)


def writes(x, n, i, matrix):
    return (
        x.at[i].set(3.0),
        x.at[n[:3]].add(x[:3]),
        matrix.at[n[:2], n[1:3]].set(7.0),
        matrix.at[n[:2]].set(x[:4]),
        x.at[i + 4].set(1.0, mode="drop"),
        x.at[i + 4].set(1.0, mode="clip"),
        jnp.zeros((300, 300)).at[n[0], n[1]].set(x[0])[:3, :3],
    )


def loops(x, n):
    def step(carry, here):
        return carry * 0.5 + jnp.sin(here) + jnp.sum(x), carry[0] + here

    def halve(state):
        return state[0] // 2, state[1] + jnp.max(x)

    short, long = lax.scan(step, x, x, reverse=True), lax.scan(step, x, jnp.arange(50.0))
    return (
        short,
        long,
        lax.while_loop(lambda s: s[0] > 0, halve, (n[0], x[0])),
        lax.fori_loop(0, n[1], lambda i, y: y + i, 0),
    )


def conditionals(x, n):
    chosen = lax.switch(n[0] % 3, [jnp.sin, lambda y: jnp.cumsum(y), lambda y: y * jnp.max(y)], x)
    often = jnp.exp(x) + n
    rare = rarely(n[1] > 2, lambda y, k: y.at[k].set(9.0), x, n[2])
    return chosen, often * often[0] + often[::-1], rare


def draws(x, n):
    key = jax.random.wrap_key_data(n[:2].astype(jnp.uint32))
    return jax.random.uniform(key, (3,)) + x[0], jax.random.bits(jax.random.split(key)[1], (2,), jnp.uint32)


CASES = {
    "reductions": (reductions, floats(4, 3), integers(3, 5)),
    "long reductions": (reductions, floats(40, 70), integers(3, 65)),
    "sums up to": (sums_up_to, floats(4, 3), integers(9, 6)),
    "sorting": (sorting, floats(13), integers(4, 9)),
    "sorting many": (sorting, floats(40), integers(4, 40)),
    "writes": (writes, floats(4), integers(4, 3), integers(4), floats(4, 4)),
    "loops": (loops, floats(5), integers(9, 5)),
    "conditionals": (conditionals, floats(5), integers(5, 5)),
    "random numbers": (draws, floats(5), integers(5, 5)),
}


def for_cpu(function, num_constant):
    of_lane = ForCpu(lambda lane, t: function(*lane), num_constant)

    def run(*args):
        with layouts(True):
            fixed = jax.vmap(of_lane.fixed, in_axes=(0, None))(args, 0)
            return jax.vmap(of_lane, in_axes=(0, 0, None))(args, fixed, 0), len(jax.tree.leaves(fixed))

    return run


def assert_alike(got, wanted):
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        compare = np.testing.assert_allclose if jnp.issubdtype(x.dtype, jnp.floating) else np.testing.assert_array_equal
        compare(x, y, **({"rtol": 1e-6, "atol": 1e-6} if jnp.issubdtype(x.dtype, jnp.floating) else {}))


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_vmap_makes_of_the_code(case):
    function, *args = CASES[case]
    wanted = jax.jit(jax.vmap(function))(*args)
    for num_constant in (0, 1):
        assert_alike(jax.jit(lambda *a, n=num_constant: for_cpu(function, n)(*a)[0])(*args), wanted)


def test_what_does_not_change_is_computed_once():
    def function(constant, state):
        return jnp.sort(constant) + state, jnp.exp(jnp.sum(constant)), constant + 1

    args = (floats(4), floats(4, seed=1))
    results, num_fixed = for_cpu(function, 1)(*args)
    assert_alike(results, jax.vmap(function)(*args))
    assert num_fixed > 0
    assert for_cpu(function, 0)(*args)[1] == 0

    of_lane = ForCpu(lambda lane, t: function(*lane), 1)
    shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in args]
    fixed = jax.eval_shape(of_lane.fixed, shapes, 0)
    left = set(layout.primitives(jax.make_jaxpr(of_lane)(shapes, fixed, 0)))
    assert not left & {"exp", "min", "max"}  # the sort was a network of these two


def test_code_with_matrix_products_stays_as_it_is():
    x = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    of_lane = ForCpu(lambda lane, t: jnp.max(lane @ lane), 0)
    assert "reduce_max" in set(layout.primitives(jax.make_jaxpr(lambda y: of_lane(y, [], 0))(x)))


def test_short_loops_are_written_out_and_long_ones_stay():
    @jax.jit
    def sums(x):
        forward = lax.scan(lambda total, y: (total + y, total * y), jnp.float32(0), x)
        return forward, lax.scan(lambda total, y: (total * y, None), jnp.float32(1), x, reverse=True)

    short, long = floats()[:5], jnp.arange(100.0)
    assert "scan" not in set(layout.primitives(jax.make_jaxpr(unrolled(sums))(short)))
    assert "scan" in set(layout.primitives(jax.make_jaxpr(unrolled(sums))(long)))
    for x in (short, long):
        jax.tree.map(np.testing.assert_array_equal, unrolled(sums)(x), sums(x))


def test_a_loop_in_one_kernel_is_the_loop():
    def steps(x, n):
        return lax.fori_loop(0, n, lambda i, y: jnp.sin(y) * jnp.where(y > 0, y, 1).sum() + i, x)

    x, n = floats(3), jnp.int32(7)
    compiled = jax.jit(as_one_kernel(steps)).lower(x, n).compile()
    np.testing.assert_array_equal(compiled(x, n), jax.jit(steps)(x, n))
    if jax.default_backend() == "cpu":
        assert 'xla_cpu_small_call="true"' in compiled.as_text()


def test_what_cannot_be_in_one_kernel():
    x = floats(3)
    assert fits_one_kernel(jnp.sin, x)
    assert fits_one_kernel(lambda x: lax.fori_loop(0, 3, lambda i, y: y[::-1], x), x)
    for function in (
        jnp.sort,
        lambda x: x.at[jnp.argmax(x)].set(0),
        lambda x: x @ x.T,
        lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.sort(y), x),
        jax.vmap(lambda y: rarely(y[0] > 0, lambda z: z + 1, y)),
    ):
        assert not fits_one_kernel(function, x)


def counting(lane, t):
    """A step of one lane that ends with a rare branch: (new state, what was shown)."""
    state, target = lane
    total = state["total"] + jnp.arange(3) * t
    new = rarely(total[2] > target, lambda s, limit: {"total": s["total"] - limit, "times": s["times"] + 1},
                 {"total": total, "times": state["times"]}, target)  # fmt: skip
    return new, total[0]


def test_a_step_is_its_common_part_and_the_rare_branch_behind_it():
    first = {"total": integers(9, 3), "times": jnp.zeros(LANES, jnp.int32)}
    lanes = (first, jnp.array([10, 20, 30, 40, 1000], jnp.int32))
    of_lane = ForCpu(counting, 0)
    branch = of_lane.rare_branch(jax.tree.map(lambda x: x[0], lanes), jnp.int32(1))
    for t in range(1, 12):
        wanted = jax.vmap(counting, in_axes=(0, None))(lanes, t)
        (state, shown), read = jax.vmap(of_lane.common, in_axes=(0, None, None))(lanes, [], t)
        assert_alike((jax.vmap(branch)(state, read), shown), wanted)
        lanes = (wanted[0], lanes[1])
    assert (lanes[0]["times"] > 0).tolist() == [True, True, True, True, False]


@pytest.mark.parametrize(
    "step",
    [
        lambda lane, t: (lane, t),
        lambda lane, t: (rarely(t > 3, jnp.sin, lane) + 1, t),
        lambda lane, t: (lane, rarely(t > 3, jnp.sin, lane)),
        lambda lane, t: (rarely(t > 3, jnp.sin, rarely(t > 4, jnp.cos, lane)), t),
    ],
    ids=["no branch", "used after it", "not the state", "two"],
)
def test_other_steps_have_no_such_parts(step):
    assert ForCpu(step, 0).rare_branch(jnp.float32(1), jnp.int32(1)) is None


@pytest.mark.parametrize("number", [1, 2, 7, 112])
def test_any_of_is_any(number):
    for place in (None, *range(number)):
        assert bool(_any_of(jnp.arange(number) == (-1 if place is None else place))) == (place is not None)


RUNS = {
    "cascade_ucb1": jr.CascadeUCB1(),
    "ranked_exp3": jr.RankedExp3(),
    "bubblerank": jr.BubbleRank(delta=0.1),
    "toprank": jr.TopRank(delta=0.1),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_do_not_depend_on_it(name, monkeypatch):
    """More lanes than a part has, so that several parts run one after the other; rare branches are taken."""
    env = jr.ClickBandit(jr.CascadeModel(np.random.default_rng(0).uniform(0.1, 0.9, (3, 4))), list_size=3)

    def run():
        return jr.simulate(RUNS[name], env, 60, num_seeds=120, num_records=3, metrics=("regret", "clicks"))

    fast = run()
    jax.clear_caches()
    monkeypatch.setattr("jaxrank.engine.array_loop.ForCpu", Plain)
    monkeypatch.setattr("jaxrank.engine.array_loop.fits_one_kernel", lambda *args: False)
    plain = run()
    jax.clear_caches()
    for metric in ("regret", "clicks"):
        np.testing.assert_allclose(fast[metric], plain[metric], rtol=1e-5, atol=1e-5)


class Plain(ForCpu):
    """One-lane code as it is."""

    def _code(self, *args):
        return None, jax.tree.leaves(args)
