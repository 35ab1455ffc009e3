"""Lanes: what a run consists of, how they are made, and a step of one of them.

A lane is one (policy setting, instance, seed). Lanes never communicate, so every device of a mesh has its own share of
them. How they are advanced depends on the platform and on their size (``ways.py``): by a loop over arrays
(``array_loop.py``), by a loop over entries (``entry_loop.py``), or in a kernel (``kernel.py``).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from jaxrank.core import random
from jaxrank.core.numerics import CompensatedSum
from jaxrank.core.pytrees import leaf_axes, strongly_typed, take_instances
from jaxrank.core.types import Array, Environment, Policy, State, can_settle, is_stationary

T = TypeVar("T")

AXIS = "lanes"  # of the mesh
PER_LANE, PER_INTERVAL, SHARED = PartitionSpec(AXIS), PartitionSpec(None, AXIS), PartitionSpec()
CALL_INTERVALS = 64  # intervals that a call has at most
BY_INTERVAL = (PER_LANE, PER_INTERVAL, PER_INTERVAL, PER_INTERVAL)  # what a call returns

Sums = dict[str, CompensatedSum]  # by metric


class Lanes(NamedTuple):
    """All lanes of a run. Leaves that differ between lanes have a leading lane axis; the others are shared."""

    policy: Policy
    environment: Environment
    key: Array  # uint32[lanes, 2], key data
    state: State
    sums: Sums  # of the metrics, in the interval that has not ended yet


def make_lanes(
    policy: Policy,
    environment: Environment,
    root: Array,
    setting: ArrayLike,
    instance: ArrayLike,
    seed: ArrayLike,
    zeros: Mapping[str, ArrayLike],
    *,
    mesh: Mesh,
    prng: str,
) -> Lanes:
    """One lane for every entry of ``setting``, ``instance`` and ``seed`` [lanes]; ``zeros`` has one for each metric."""
    key = _lane_keys(root, instance, seed)
    return _init_lanes(policy, environment, key, setting, instance, zeros, mesh=mesh, prng=prng)


@jax.jit
def _lane_keys(root: Array, instance: ArrayLike, seed: ArrayLike) -> Array:
    """uint32[lanes, 2]. A program of its own: it takes longer to compile than most policies' ``init``."""
    return jax.vmap(lambda i, s: jax.random.key_data(random.lane_key(root, i, s)))(instance, seed)


@partial(jax.jit, static_argnames=("mesh", "prng"))
def _init_lanes(
    policy: Policy,
    environment: Environment,
    key: Array,
    setting: Array,
    instance: Array,
    zeros: dict[str, Array],
    *,
    mesh: Mesh,
    prng: str,
) -> Lanes:
    key = jax.lax.with_sharding_constraint(key, jax.NamedSharding(mesh, PER_LANE))
    sums = {name: CompensatedSum.zeros((key.shape[0], *zero.shape), zero.dtype) for name, zero in zeros.items()}
    lanes = Lanes(take_instances(policy, setting), take_instances(environment, instance), key, (), sums)

    def init(lane: Lanes) -> State:
        words = random.step_words(lane.key, jnp.int32(0))  # steps count from 1
        query_key, _, _, init_key = random.keys_of(words, prng)
        state = lane.policy.init(init_key, lane.environment.query(query_key, jnp.int32(0)))
        return strongly_typed(state)  # as the loop returns it: otherwise its second call would compile it again

    init_lanes = on_mesh(lambda lanes: over_lanes(init, lanes), mesh, lanes, out_specs=PER_LANE)
    # The sums have the sharding that the loop returns: with another, its second call would compile it again.
    sums = jax.lax.with_sharding_constraint(sums, jax.NamedSharding(mesh, PER_LANE))
    return lanes._replace(state=init_lanes(lanes), sums=sums)


def one_step(
    lane: Lanes, words: random.StepWords, t: Array, *, metrics: tuple[str, ...], prng: str
) -> tuple[State, Array, Array, dict[str, Array]]:
    """A step of one lane: its new state, the list that it showed, the clicks on it, and these metrics of it."""
    policy, environment, _, state, _ = lane
    query_key, rank_key, click_key, update_key = random.keys_of(words, prng)
    query = environment.query(query_key, t)
    ranking = policy.rank(rank_key, state, query)
    _require(policy, "rank", ranking, (query.list_size,), jnp.int32)
    clicks = environment.clicks(click_key, query, ranking)
    _require(environment, "clicks", clicks, (query.list_size,), bool)
    measured = environment.metrics(query, ranking)
    new_state = policy.update(update_key, state, query, ranking, clicks)
    _require_alike(policy, state, new_state)
    return new_state, ranking, clicks, {name: measured[name] for name in metrics}


def for_each_step(start: Array, stop: Array, step: Callable[[Array, T], T], carry: T) -> T:
    """``lax.fori_loop`` for accelerators, where a condition is a kernel of its own unless the body computes it."""

    def body(progress: tuple[Array, Array, T]) -> tuple[Array, Array, T]:
        t, _, carry = progress
        return t + 1, t + 1 < stop, step(t, carry)

    return jax.lax.while_loop(lambda progress: progress[1], body, (start, start < stop, carry))[2]


def _require(owner: Any, method: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """While the loop is traced: a method has returned an array of this shape and type."""
    try:
        chex.assert_shape(value, shape)
        chex.assert_type(value, dtype)
    except AssertionError:
        wanted, got = f"{jnp.dtype(dtype)}{list(shape)}", f"{jnp.result_type(value)}{list(jnp.shape(value))}"
        raise ValueError(f"{type(owner).__name__}.{method} must return {wanted}; got {got}") from None


def _require_alike(policy: Policy, before: State, after: State) -> None:
    """While the loop is traced: an update has kept the state's structure, shapes and types."""
    try:
        chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    except (AssertionError, ValueError) as error:
        reason = " ".join(str(error).split())
        name = type(policy).__name__
        raise ValueError(f"{name}.update must keep the shapes and types of its state: {reason:.300}") from None


def platform_of(mesh: Mesh) -> str:
    """The kind of its devices: "cpu", "gpu" or "tpu"."""
    return mesh.devices.flat[0].platform


def lane_bytes(lanes: Lanes) -> int:
    """The bytes of one lane, without the leaves that all lanes share."""
    own = [leaf for leaf, axis in zip(jax.tree.leaves(lanes), lane_axes(lanes), strict=True) if axis == 0]
    return sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in own)


def seen_by(probes: dict[str, Any], lanes: Lanes) -> dict[str, Array]:
    """What each probe sees in every lane, [lanes, …]."""

    def probe_lane(lane: Lanes) -> dict[str, Array]:
        return {name: probe(lane.policy, lane.state, lane.environment) for name, probe in probes.items()}

    return over_lanes(probe_lane, lanes) if probes else {}


@partial(jax.jit, static_argnames=("metrics", "mesh", "prng"))
def metrics_now(lanes: Lanes, *, metrics: tuple[str, ...], mesh: Mesh, prng: str) -> dict[str, Array]:
    """The metrics [lanes] of the list that each lane would show next; in a settled lane, those of every later step."""

    def measure(lane: Lanes) -> dict[str, Array]:
        query_key, rank_key, _, _ = random.keys_of(random.step_words(lane.key, jnp.int32(0)), prng)
        query = lane.environment.query(query_key, jnp.int32(0))
        measured = lane.environment.metrics(query, lane.policy.rank(rank_key, lane.state, query))
        return {name: measured[name] for name in metrics}

    return on_mesh(lambda lanes: over_lanes(measure, lanes), mesh, lanes, out_specs=PER_LANE)(lanes)


@partial(jax.jit, static_argnames="mesh")
def take_lanes(lanes: Lanes, index: Array, *, mesh: Mesh) -> Lanes:
    """The lanes of these numbers."""
    return map_lanes(
        lambda leaf: jax.lax.with_sharding_constraint(leaf[index], jax.NamedSharding(mesh, PER_LANE)), lanes
    )


def nan_lanes(state: State) -> Array | None:
    """bool[lanes]: which lanes have a NaN in their state; None if the state has no floating-point leaf."""
    numbers = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return _any_nan(numbers) if numbers else None


@jax.jit
def _any_nan(leaves: list[Array]) -> Array:
    return jnp.stack([jnp.isnan(leaf).reshape(leaf.shape[0], -1).any(axis=1) for leaf in leaves]).any(axis=0)


def spread(leaf: Any, mesh: Mesh) -> Array:
    """An array with a lane axis, on the devices of ``mesh``."""
    return jax.device_put(leaf, jax.NamedSharding(mesh, PER_LANE))


def may_settle(policy: Policy, environment: Environment) -> bool:
    """Whether lanes can settle: the policy knows when its list is final, and the environment repeats the same query."""
    return can_settle(policy) and is_stationary(environment)


def settled_lanes(lanes: Lanes) -> Array:
    """bool[lanes]: which lanes are settled."""
    if may_settle(lanes.policy, lanes.environment):
        return over_lanes(lambda lane: lane.policy.settled(lane.state), lanes)
    return jnp.zeros(lanes.key.shape[0], bool)


def over_lanes(function: Callable[..., Any], lanes: Lanes, *arguments: Any, shared: int = 0) -> Any:
    """``function(lane, *arguments)`` mapped over lanes; the last ``shared`` arguments are the same in all."""
    leaves, structure = jax.tree.flatten(lanes)

    def of_leaves(leaves: list[Array], *arguments: Any) -> Any:
        return function(jax.tree.unflatten(structure, leaves), *arguments)

    mapped = [0] * (len(arguments) - shared) + [None] * shared
    return jax.vmap(of_leaves, in_axes=(lane_axes(lanes), *mapped), axis_size=lanes.key.shape[0])(leaves, *arguments)


def on_mesh(function: Callable[..., Any], mesh: Mesh, lanes: Lanes, *specs: PartitionSpec, out_specs: Any) -> Any:
    """``function(lanes, …)`` on every device with its share of lanes; ``specs`` are those of the other arguments."""
    per_lane = [SHARED if axis is None else PER_LANE for axis in lane_axes(lanes)]
    in_specs = (jax.tree.unflatten(jax.tree.structure(lanes), per_lane), *specs)
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def lane_axes(lanes: Lanes) -> list[int | None]:
    """For every leaf of ``lanes``: 0 if it has a lane axis, None if it is shared."""
    policy, environment, *per_lane = lanes
    return [*leaf_axes(policy), *leaf_axes(environment), *[0] * len(jax.tree.leaves(per_lane))]


def map_lanes(function: Callable[[Array], Array], lanes: Lanes) -> Lanes:
    """``function`` of every leaf that has a lane axis."""
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    return jax.tree.unflatten(
        structure, [leaf if axis is None else function(leaf) for leaf, axis in zip(leaves, axes, strict=True)]
    )
