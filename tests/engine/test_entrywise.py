"""One-lane code evaluated entry by entry does what vmap does: every family of primitives, then every policy's step."""

import dataclasses
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from worlds import HastyBatchRank

import jaxrank as jr
from jaxrank.core import random
from jaxrank.core.batching import lanes_minor, rarely
from jaxrank.core.registry import factory
from jaxrank.engine.entries import Entries
from jaxrank.engine.entrywise import NotEntrywiseError, entry_by_entry
from jaxrank.engine.lanes import lane_axes, one_step, over_lanes
from jaxrank.engine.request import Request
from jaxrank.engine.task import prepare

LANES = 7
# Floats are computed by the same operations in the same order, but XLA contracts and reorders some of them differently
# in the two programs. Entries near 0 are what a difference of larger numbers leaves.
FLOATS = {"rtol": 2e-5, "atol": 2e-6}


def is_entries(x):
    return isinstance(x, Entries)


def together(tree, num_lanes=LANES):
    """[lanes, …] of every array taken apart."""
    return jax.tree.map(lambda x: x.lanes(num_lanes), tree, is_leaf=is_entries)


def by_entry(function, *args, shared=(), whole_arrays=None):
    """``function`` of arguments [lanes, …], but for those numbered ``shared``, evaluated entry by entry."""

    def run(args):
        entries = [a if i in shared else jax.tree.map(Entries.of_lanes, a) for i, a in enumerate(args)]
        return together(entry_by_entry(function, LANES, whole_arrays=whole_arrays)(*entries))

    return jax.jit(run)(args)


def by_vmap(function, *args, shared=()):
    axes = tuple(None if i in shared else 0 for i in range(len(args)))
    return jax.jit(jax.vmap(function, in_axes=axes, axis_size=LANES))(*args)


def assert_alike(got, expected):
    """Integers and booleans exactly, floats to rounding."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), jax.tree_util.keystr(path)
        compare = np.testing.assert_array_equal
        if jnp.issubdtype(x.dtype, jnp.floating):
            compare = partial(np.testing.assert_allclose, **FLOATS)
        compare(np.asarray(x), np.asarray(y), err_msg=jax.tree_util.keystr(path))


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(LANES, *shape)), jnp.float32)


def integers(below, *shape, seed=0, dtype=jnp.int32):
    return jnp.asarray(np.random.default_rng(seed).integers(below, size=(LANES, *shape)), dtype)


def elementwise(x, n, flag):
    y = jnp.abs(x) + 0.1
    return (
        jnp.exp(x) * jnp.log(y) / jnp.sqrt(y) - jnp.tanh(x) ** 2,
        jnp.where(flag, x[:, None], y[None, :]),
        jnp.clip(x, -0.5, jnp.float32(0.5)) + jnp.sign(x) * jnp.floor(x) % 2,
        (n << 2) ^ (n >> 1) | ~n & 3,
        lax.bitcast_convert_type(x, jnp.int32),
        n // 2 % 3 + n.astype(jnp.float32).astype(jnp.int32),
        flag[0] & (x > 0) | (n == 2),
        lax.erf_inv(jnp.clip(x, -0.9, 0.9)),
        jnp.log1p(y) + jnp.expm1(x) + lax.logistic(x),
    )


def index_work(x, n):
    m = x.reshape(2, 3)
    return (
        m.T,
        m[::-1, 1:],
        x[::2],
        jnp.concatenate([x, m[0], n.astype(jnp.float32)]),
        jnp.stack([m[0], m[1]], axis=1),
        jnp.pad(m, ((1, 0), (0, 2)), constant_values=7),
        lax.pad(x, jnp.float32(0), ((-1, 2, 1),)),
        jnp.roll(n, 1),
        jnp.arange(3) + n[:3],
        jnp.split(x, [2])[1],
        m[None].squeeze(0),
        jnp.broadcast_to(m[:, :, None], (2, 3, 2)),
        jnp.zeros((0, 3)),
        jnp.append(x[:0], n),
    )


def look_ups(x, n, m, i, j):
    """At places that differ from lane to lane, some of them outside."""
    return (
        x[i],
        x[i, None],
        m[i, j],
        m[i],
        m[:, j],
        x[n],
        m[n, n[::-1]],
        x.at[i].get(mode="fill", fill_value=-1.0),
        x.at[n + 3].get(mode="fill"),
        n.at[n + 3].get(mode="fill"),
        x.at[i + 3].get(mode="clip"),
        jnp.take_along_axis(m, n[:3][:, None] % 3, axis=1),
        lax.dynamic_slice(x, (i,), (3,)),
        lax.dynamic_slice(m, (i, j), (2, 1)),
        lax.dynamic_slice(x, (jnp.int32(2),), (3,)),
    )


def writes(x, n, m, i, j):
    return (
        x.at[i].set(9.0),
        x.at[i].add(x[0]),
        m.at[i, j].set(5.0),
        m.at[i].set(x[:3]),
        m.at[:, j].multiply(2.0),
        x.at[n].set(x[::-1][: n.shape[0]]),
        x.at[n].add(1.0),
        x.at[n].min(0.0),
        x.at[n + 3].set(1.0),
        x.at[n + 3].set(1.0, mode="clip"),
        m.at[n[:2] % 3, n[1:3] % 3].set(x[:2]),
        lax.dynamic_update_slice(x, x[:2] * 3, (i + 2,)),
        lax.dynamic_update_slice(m, m[:2, :2] * 3, (i, j)),
        x.at[2].set(0.0),
    )


def reductions(x, n, m, flag):
    return (
        jnp.sum(x),
        jnp.sum(m, axis=0),
        jnp.prod(m, axis=1),
        jnp.max(m, axis=(0, 1)),
        jnp.min(n),
        jnp.any(flag),
        jnp.all(flag),
        jnp.any(flag[:0]),
        jnp.all(flag[:0]),
        jnp.sum(x[:0]),
        jnp.cumsum(m, axis=1),
        jnp.cumprod(x),
        lax.cummax(n, reverse=True),
        lax.cummin(m, axis=0),
        jnp.argmax(n),
        jnp.argmin(m, axis=1),
        jnp.argmax(jnp.where(flag, jnp.nan, x)),
        jnp.dot(m, m),
        m @ x[:3],
        jnp.einsum("ij,ik->ijk", m, m),
    )


def sorting(x, n):
    with_nan = jnp.where(n == 1, jnp.nan, x)
    return (
        jnp.sort(x),
        jnp.argsort(n, stable=True),
        jnp.argsort(n, stable=True, descending=True),
        jnp.lexsort((x, n)),
        lax.top_k(x, 3),
        lax.top_k(n, 2)[1],
        jnp.argsort(with_nan),
    )


def loops(x, n):
    def with_sequences(carry, here):
        y, i = here
        return carry * 0.5 + y, (carry, i + carry.astype(jnp.int32))

    return (
        lax.fori_loop(0, 4, lambda i, y: y.at[i].add(y[i + 1]), x),
        lax.scan(with_sequences, x[0], (x, n)),
        lax.scan(with_sequences, jnp.float32(0), (x, n), reverse=True),
        lax.fori_loop(0, 3_000, lambda i, y: jnp.sin(y) + i * 1e-4, x),  # too long to be written out
        lax.scan(lambda y, i: (y * 0.9 + i, None), x, jnp.arange(900, -900, -2), reverse=True)[0],
        lax.fori_loop(0, n[0], lambda i, y: y * 0.5 + i, x),  # as often as each lane says
        lax.scan(lambda y, _: (y, y), x[0], None, length=0),
    )


def while_loops(x, n):
    def halve(carry):
        steps, y = carry
        return steps + 1, y / 2

    total = n.sum(dtype=n.dtype)
    return (
        lax.while_loop(lambda c: jnp.any(jnp.abs(c[1]) > 1e-2), halve, (jnp.int32(0), x)),
        lax.while_loop(lambda c: c[0] < 5, halve, (jnp.int32(0), x)),
        lax.while_loop(lambda c: c[0] < n[0], lambda c: (c[0] + 1, c[1] + total), (jnp.int32(0), jnp.int32(0))),
    )


def conditionals(x, n, flag, shared):
    return (
        lax.cond(flag[0], lambda y: y * 2, lambda y: jnp.zeros_like(y), x),
        lax.switch(n[0], [lambda: x, lambda: x + 1, lambda: x * 3]),
        lax.cond(shared > 0, lambda: x, lambda: jnp.ones_like(x)),
        lax.cond(shared > 0, lambda: shared, lambda: shared * 2),
        rarely(flag[0], lambda y, z: (y[0] + z, y[1] * 0), (x, n), x[0]),
        rarely(shared > 0, lambda y: y + 1, n),
    )


def draws(words, prng):
    key = jax.random.wrap_key_data(words, impl=prng)
    first, second = jax.random.split(key)
    return (
        jax.random.bits(key, (3,), jnp.uint32),
        jax.random.bits(first, (1, 2), jnp.uint8),
        jax.random.uniform(jax.random.fold_in(second, words[0]), (2,)),
        jax.random.normal(first, (2,)),
        jax.random.key_data(lax.cond(words[1] > 9, lambda: first, lambda: second)),
        jax.random.bernoulli(jax.random.split(key, (2, 1))[1, 0], 0.5, (2,)),
        jax.random.key_data(jax.random.fold_in(jax.random.key(3, impl=prng), words[0])),
        jax.vmap(jax.random.uniform)(jnp.stack([first, second])),
    )


def hints(x):
    """What says something about layouts or derivatives alone."""
    return lax.optimization_barrier(x) + lanes_minor(x[None])[0] + lax.stop_gradient(jax.nn.relu(x))


FAMILIES = {
    "elementwise": (elementwise, (normal(4), integers(9, 4), integers(2, 4, 4, dtype=bool)), ()),
    "index work": (index_work, (normal(6), integers(9, 6)), ()),
    "look-ups": (look_ups, (normal(5), integers(5, 4), normal(3, 3), integers(3), integers(3, seed=1)), ()),
    "writes": (writes, (normal(5), integers(5, 4), normal(3, 3), integers(3), integers(3, seed=1)), ()),
    "reductions": (reductions, (normal(5), integers(3, 5), normal(3, 3), integers(2, 5, dtype=bool)), ()),
    "sorting": (sorting, (normal(5), integers(3, 5)), ()),
    "loops": (loops, (normal(5), integers(5, 5)), ()),
    "while loops": (while_loops, (normal(3), integers(6, 3)), ()),
    "conditionals": (conditionals, (normal(3), integers(3, 3), integers(2, 3, dtype=bool), jnp.float32(1)), (3,)),
    "hints": (hints, (normal(3),), ()),
    **{
        f"keys of {name}": (partial(draws, prng=prng), (integers(2**31, 2, dtype=jnp.uint32),), ())
        for name, prng in [*random.PRNG.items(), ("JAX", "threefry2x32")]
    },
}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_of_primitives_does_what_vmap_does(name):
    function, args, shared = FAMILIES[name]
    assert_alike(by_entry(function, *args, shared=shared), by_vmap(function, *args, shared=shared))


def test_what_is_the_same_in_all_lanes_stays_a_scalar_and_what_is_known_a_constant():
    def function(x, t):
        positions = jnp.arange(3)
        return jnp.where(positions < 2, positions, 7), jnp.log(t) * positions, x * positions[::-1]

    known, shared, own = entry_by_entry(function, LANES)(Entries.of_lanes(normal(3)), jnp.float32(2))
    assert known.known and known.array().tolist() == [0, 1, 7]
    assert not shared.vary and own.vary
    jaxpr = jax.make_jaxpr(lambda x, t: together(entry_by_entry(function, LANES)(Entries.of_lanes(x), t)))(
        normal(3), 2.0
    )
    assert jaxpr.consts == [], "no constant arrays: a kernel could not have them"


def primitives(jaxpr, inside=""):
    """[(its name, within which loops and conditionals)] of every equation."""
    found = []
    for eqn in jaxpr.eqns:
        found.append((eqn.primitive.name, inside))
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            if hasattr(getattr(value, "jaxpr", value), "eqns"):
                found += primitives(getattr(value, "jaxpr", value), f"{inside}/{eqn.primitive.name}")
    return found


def test_a_rare_branch_is_computed_only_if_some_lane_takes_it():
    def function(x, flag):
        return rarely(flag, lambda x: jnp.sin(x), x)

    def run(x, flag):
        return together(entry_by_entry(function, LANES)(Entries.of_lanes(x), Entries.of_lanes(flag)))

    made = primitives(jax.make_jaxpr(run)(normal(3), integers(2, dtype=bool)).jaxpr)
    assert [inside for name, inside in made if name == "sin"] == ["/cond"] * 3


def test_a_long_loop_stays_a_loop():
    def function(x):
        return lax.fori_loop(0, 10_000, lambda i, y: jnp.sin(y), x)

    made = primitives(
        jax.make_jaxpr(lambda x: together(entry_by_entry(function, LANES)(Entries.of_lanes(x))))(normal(3)).jaxpr
    )
    assert sum(name == "sin" for name, _ in made) == 3


def test_what_cannot_be_taken_apart_is_refused_or_counted():
    def function(x):
        return jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(3)) + 1

    x = normal(3, 3)
    with pytest.raises(NotEntrywiseError, match="cholesky"):
        by_entry(function, x)
    counted = Counter()
    assert_alike(by_entry(function, x, whole_arrays=counted), by_vmap(function, x))
    assert counted == {"cholesky": 1}


def test_a_scan_that_makes_a_long_sequence_keeps_it_as_a_whole_array():
    def function(x, n):
        def body(y, here):
            for _ in range(10):
                y = jnp.sin(y) + here
            return y, y[:2]

        return lax.scan(body, x, n)

    args, counted = (normal(10), integers(3, 24)), Counter()
    assert_alike(by_entry(function, *args, whole_arrays=counted), by_vmap(function, *args))
    assert counted == {"scan": 1}


# Steps of policies.

ITEMS, STEPS, BEFORE = 5, 25, 12  # items; steps compared from the start, and again after so many times as many
METRICS = ("regret", "reward", "violations", "misordered", "ndcg", "clicks")
PARAMETERS = {
    "examination_after": np.random.default_rng(0).uniform(0.2, 1, (ITEMS, ITEMS)),
    "satisfaction": [0.5, 0.1, 0.9, 0.3, 0.6],
    "continuation": 0.8,
    "tau1": 0.9,
    "tau2": 0.7,
    "tau3": 0.4,
    "attraction": np.random.default_rng(1).uniform(0.05, 0.9, (LANES, ITEMS)),
    "examination": [1.0, 0.6, 0.9, 0.3, 0.2],
    "trust": [0.4, 0.1, 0.3, 0.0, 0.2],
    "relative_rate": np.linspace(0.1, 1.0, 25).reshape(5, 5) % 0.37 + 0.6,
    "termination": [0.9, 0.3, 0.5, 1.0, 0.1],
}
MODELS = jr.available("click_model")
ON_WHOLE_ARRAYS = {
    "pbm_ts": {"scan"},  # the grid of its posterior has 64 cells: a sequence
}


def world(model, list_size):
    names = [f.name for f in dataclasses.fields(factory(model, "click_model"))]
    users = jr.make(model, kind="click_model", **{name: PARAMETERS[name] for name in names})
    return jr.ClickBandit(users, list_size=list_size, top=2)


def policy(name, list_size):
    """With bounds low enough for decisions, rare branches that is, within the steps of a test."""
    options = {"bubblerank": {"delta": 0.9}, "toprank": {"delta": 0.9}}.get(name, {})
    if name == "batchrank":
        return HastyBatchRank()
    if name == "doubling":
        name, options = "bubblerank", {"doubling": True, "horizon": 11, "delta": 0.9}
    if name.startswith("pbm"):
        options = {"examination": PARAMETERS["examination"][:list_size]}
    return jr.make(name, **options)


def needs_features(name):
    try:
        prepare(policy(name, 3), world("cm", 3), Request(num_steps=10)).lane_shapes(1)
    except ValueError as error:
        assert "feature" in str(error) or "topics" in str(error)
        return True
    return False


def check_step(name, model, list_size, metrics):
    """Entry by entry, a policy's steps are the plain ones, from the start and from a state reached later."""
    request = Request(num_steps=1_000, metrics=metrics)
    lanes = prepare(policy(name, list_size), world(model, list_size), request).make_lanes(np.arange(LANES))
    lanes = lanes._replace(sums={})
    leaves, structure = jax.tree.flatten(lanes._replace(state=()))
    step, counted = partial(one_step, metrics=metrics, prng="jaxrank"), Counter()

    def plain(leaves, state, first):
        def advance(state, t):
            here = jax.tree.unflatten(structure, leaves)._replace(state=state)
            words = jax.vmap(random.step_words, in_axes=(0, None))(here.key, t)
            state, *shown = over_lanes(step, here, words, t, shared=1)
            return state, shown

        return lax.scan(advance, state, first + jnp.arange(STEPS))

    def taken_apart(leaves, state, first):
        axes = lane_axes(jax.tree.unflatten(structure, leaves))
        apart = [
            Entries.shared(x) if axis is None else Entries.of_lanes(x) for x, axis in zip(leaves, axes, strict=True)
        ]

        def of_lane(leaves, state, t):
            lane = jax.tree.unflatten(structure, leaves)._replace(state=state)
            return step(lane, random.step_words(lane.key, t), t)

        def advance(state, t):
            state, *shown = entry_by_entry(of_lane, LANES, whole_arrays=counted)(apart, state, t)
            return jax.tree.map(lambda x: x.vectors(LANES), state, is_leaf=is_entries), together(shown)

        state = jax.tree.map(lambda x: Entries.of_lanes(x).vectors(LANES), state)
        state, shown = lax.scan(advance, state, first + jnp.arange(STEPS))
        return together(state), shown

    state, first = lanes.state, jnp.int32(1)
    programs = [jax.jit(f).lower(leaves, state, first).compile() for f in (plain, taken_apart)]
    assert set(counted) == ON_WHOLE_ARRAYS.get(name, set())
    for part in range(BEFORE + 1):
        after, shown = programs[0](leaves, state, first)
        if part in (0, BEFORE):
            got, got_shown = programs[1](leaves, state, first)
            assert_alike(got_shown, shown)
            assert_alike(got, after)
        state, first = after, first + STEPS


POLICIES = [*(name for name in jr.available() if not needs_features(name)), "doubling"]


@pytest.mark.parametrize(
    ("name", "model", "list_size"),
    [
        ("random", "ubm", 3),
        ("bubblerank", "cm", 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("batchrank", "dcm", ITEMS),
                ("oracle", "dbn", ITEMS),
                ("toprank", "pbm", ITEMS),
                ("cascade_klucb", "ccm", 3),
                ("cascade_ts", "cm", ITEMS),
                ("ranked_exp3", "cm", 3),
                ("pbm_pie", "pbm", 3),
            ]
        ),
    ],
)
def test_a_step_of_some_policies_is_the_plain_one(name, model, list_size):
    check_step(name, model, list_size, METRICS)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_a_step_of_every_policy_is_the_plain_one(number):
    """Each policy in one click model, and all click models in turn: every policy in every one would take 15 minutes."""
    check_step(POLICIES[number], MODELS[number % len(MODELS)], (3, ITEMS)[number % 2], ("regret",))
