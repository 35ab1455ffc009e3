"""Lanes: what a run consists of, and the compiled loop that advances them.

A lane is one (policy setting, instance, seed). One compiled call is a scan over intervals of a loop over steps of the
one-lane step mapped over lanes. Lanes never communicate, so every device of a mesh runs the loop on its own share, and
a CPU core on a part of its share at a time, one that stays in its cache.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from jaxrank.core import random
from jaxrank.core.batching import lanes_minor, layouts
from jaxrank.core.numerics import CompensatedSum
from jaxrank.core.pytrees import leaf_axes, strongly_typed, take_instances
from jaxrank.core.types import Array, Environment, Policy, State, can_settle, is_stationary
from jaxrank.engine.layout import ForCpu, as_one_kernel, fits_one_kernel, unrolled

AXIS = "lanes"  # of the mesh
# Bytes of a part: the lanes that a CPU core takes through all steps of a call before it turns to the next part.
_IN_CACHE = 5 * 2**19
_VECTOR = 16  # lanes; a large part has an odd multiple of it (``padded_size``)
_FEWEST, _MOST = 15, 127  # vectors of a part, whatever their bytes
_BLOCKS = (7, 9, 5, 11, 13, 15)  # vectors of a part that goes through its steps in one kernel, best first
PER_LANE, PER_INTERVAL, SHARED = PartitionSpec(AXIS), PartitionSpec(None, AXIS), PartitionSpec()
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


@partial(jax.jit, static_argnames=("metrics", "mesh", "prng"))
def run_intervals(
    lanes: Lanes, intervals: Array, probes: dict[str, Any], *, metrics: tuple[str, ...], mesh: Mesh, prng: str
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances every lane through ``intervals`` [n, (start, stop, whole)]; the last is not ``whole`` if cut short.

    Returns:
      The lanes' state with the sums of the interval that was cut short; the sums of the metrics in each interval
      [n, lanes]; whether each lane was settled at its end [n, lanes]; and what the probes saw there [n, lanes, …].
    """
    step = partial(one_step, metrics=metrics, prng=prng)
    on_cpu = platform_of(mesh) == "cpu"
    for_cpu = ForCpu(step, len(jax.tree.leaves((lanes.policy, lanes.environment))))

    def draw(lanes: Lanes, t: Array) -> random.StepWords:
        return jax.vmap(random.step_words, in_axes=(0, None))(lanes.key, t)

    def unchanging(lanes: Lanes, words: random.StepWords, t: Array) -> list[Array]:
        return over_lanes(for_cpu.fixed, _map_lanes(lanes_minor, lanes), words, t, shared=1) if on_cpu else []

    def one(lane: Lanes, fixed: list[Array], words: random.StepWords, t: Array) -> tuple[Any, list[Array]]:
        return (for_cpu(lane, fixed, words, t) if on_cpu else unrolled(step)(lane, words, t)), []

    def advance(
        function: Callable[..., Any],
        t: Array,
        lanes: Lanes,
        words: random.StepWords,
        sums: Sums,
        fixed: list[Array],
    ) -> tuple[Lanes, random.StepWords, Sums, list[Array]]:
        """A step by ``function``: the lanes after it, the words of the next one, the new sums, and what it adds."""
        # The constant leaves are carried too: only what is carried keeps its layout in the loop.
        lanes = _map_lanes(lanes_minor, lanes)
        (state, _, _, measured), rest = over_lanes(function, lanes, fixed, words, t, shared=1)
        lanes = _map_lanes(lanes_minor, lanes._replace(state=state))
        return lanes, draw(lanes, t + 1), {name: sums[name].add(measured[name]) for name in metrics}, rest

    def steps(start: Array, stop: Array, lanes: Lanes, sums: Sums) -> tuple[Lanes, Sums]:
        words = draw(lanes, start)
        fixed = unchanging(lanes, words, start)

        def body(t: Array, carry: tuple[Lanes, random.StepWords, Sums]) -> tuple[Lanes, random.StepWords, Sums]:
            return advance(one, t, *carry, fixed)[:3]

        lanes, _, sums = jax.lax.fori_loop(start, stop, body, (lanes, words, sums))
        return lanes, sums

    def until_a_branch(
        start: Array, stop: Array, lanes: Lanes, words: random.StepWords, sums: Sums, fixed: list[Array]
    ) -> tuple[Array, Lanes, random.StepWords, Sums, list[Array]]:
        """Steps up to one in which some lane takes its rare branch, which is still to be done, or to ``stop``."""

        def more(carry: Any) -> Array:
            return (carry[0] < stop) & ~_any_of(carry[-1][0])

        def body(carry: Any) -> Any:
            t, lanes, words, sums, _ = carry
            return t + 1, *advance(for_cpu.common, t, lanes, words, sums, fixed)

        first = (start, lanes, words, sums, None)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(body, first)[-1])
        return jax.lax.while_loop(more, body, (*first[:-1], nothing))

    def steps_and_branches(start: Array, stop: Array, lanes: Lanes, sums: Sums) -> tuple[Lanes, Sums]:
        """``steps``, in one kernel up to each step with a rare branch, which is not in it."""
        words = draw(lanes, start)
        fixed = unchanging(lanes, words, start)
        branch = cast(Callable[..., Any], for_cpu.rare_branch(*_first_lane(lanes, words), start))

        def body(carry: Any) -> Any:
            t, *progress = carry
            t, lanes, words, sums, read = as_one_kernel(until_a_branch)(t, stop, *progress, fixed)
            return t, lanes._replace(state=jax.vmap(branch)(lanes.state, read)), words, sums

        carry = (start, lanes, words, sums)
        _, lanes, _, sums = jax.lax.while_loop(lambda carry: carry[0] < stop, body, carry)
        return lanes, sums

    def kernels(lanes: Lanes) -> Callable[..., Any] | None:
        """``steps`` as one kernel, or as kernels between rare branches, if that is possible."""
        t, words = jnp.int32(0), draw(lanes, jnp.int32(0))
        if not on_cpu:
            return None
        if fits_one_kernel(steps, t, t, lanes, lanes.sums):
            return as_one_kernel(steps)
        if for_cpu.rare_branch(*_first_lane(lanes, words), t) is None:
            return None
        fixed = unchanging(lanes, words, t)
        return steps_and_branches if fits_one_kernel(until_a_branch, t, t, lanes, words, lanes.sums, fixed) else None

    def run(lanes: Lanes, intervals: Array, probes: dict[str, Any], steps: Callable[..., Any]) -> Any:
        def look(lanes: Lanes) -> tuple[Array, dict[str, Array]]:
            return _settled(lanes), seen_by(probes, lanes)

        def do_not_look(lanes: Lanes) -> tuple[Array, dict[str, Array]]:
            return jax.tree.map(jnp.zeros_like, jax.eval_shape(look, lanes))

        def run_interval(carry: tuple[Lanes, Sums], interval: Array) -> tuple[tuple[Lanes, Sums], Any]:
            start, stop, whole = interval
            lanes, sums = steps(start, stop, *carry)
            totals = {name: total.total for name, total in sums.items()}
            unfinished = jax.tree.map(lambda value: jnp.where(whole == 1, jnp.zeros_like(value), value), sums)
            settled, seen = jax.lax.cond(whole == 1, look, do_not_look, lanes)
            return (lanes, unfinished), (totals, settled, seen)

        carry = (lanes._replace(sums={}), lanes.sums)
        (lanes, sums), (totals, settled, seen) = jax.lax.scan(run_interval, carry, intervals)
        return (lanes.state, sums), totals, settled, seen

    def run_parts(lanes: Lanes, intervals: Array, probes: dict[str, Any]) -> Any:
        parts = _num_parts(lanes.key.shape[0], mesh, lane_bytes(lanes))
        found = kernels(lanes)
        if found:
            parts = _num_blocks(lanes.key.shape[0], parts)
        if parts == 1:
            return run(lanes, intervals, probes, found or steps)
        leaves, structure = jax.tree.flatten(lanes)
        axes = lane_axes(lanes)
        split = (parts, lanes.key.shape[0] // parts)
        own = [leaf.reshape(*split, *leaf.shape[1:]) for leaf, axis in zip(leaves, axes, strict=True) if axis == 0]

        def run_part(own: list[Array]) -> Any:
            part = iter(own)
            leaves_of_part = [next(part) if axis == 0 else leaf for leaf, axis in zip(leaves, axes, strict=True)]
            return run(jax.tree.unflatten(structure, leaves_of_part), intervals, probes, found or steps)

        progress, *recorded = jax.lax.map(run_part, own)
        recorded = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), recorded)  # [intervals, parts, lanes, …]
        merge = partial(jax.lax.collapse, start_dimension=0, stop_dimension=2)
        merge_recorded = partial(jax.lax.collapse, start_dimension=1, stop_dimension=3)
        return jax.tree.map(merge, progress), *jax.tree.map(merge_recorded, recorded)

    with layouts(on_cpu):
        return on_mesh(run_parts, mesh, lanes, SHARED, SHARED, out_specs=BY_INTERVAL)(lanes, intervals, probes)


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


def padded_size(num_lanes: int, mesh: Mesh, bytes_of_lane: int) -> int:
    """The padded number of lanes, which divides evenly among the devices and among the parts that each device runs.

    A large part is padded to an odd number of whole vectors: consecutive entries of a lane's array lie as far apart in
    memory as the part has lanes, and at a power of two they would compete for the same lines of the cache. ``jaxrank
    bench --policy random --items 30`` went from 6 to 17 M lane-steps/s when its 500 lanes on each core were padded to
    528 instead of 512.
    """
    each = -(-num_lanes // mesh.size)
    parts = _num_parts(each, mesh, bytes_of_lane)
    part = -(-each // parts)
    if part >= 8 * _VECTOR:
        part = (-(-part // _VECTOR) | 1) * _VECTOR
    return part * parts * mesh.size


def _num_parts(num_lanes: int, mesh: Mesh, bytes_of_lane: int) -> int:
    """The number of parts that a device's share is divided into."""
    if platform_of(mesh) != "cpu":
        return 1
    vectors = min(max(_IN_CACHE // (bytes_of_lane * _VECTOR), _FEWEST), _MOST)
    return -(-num_lanes // ((vectors - 1 | 1) * _VECTOR))


def _num_blocks(num_lanes: int, parts: int) -> int:
    """The number of parts of a device's share if a part goes through its steps in one kernel; ``parts`` if not."""
    sizes = [block * _VECTOR for block in _BLOCKS if num_lanes % (block * _VECTOR) == 0]
    return num_lanes // sizes[0] if sizes else parts


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
    return _map_lanes(
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


def _settled(lanes: Lanes) -> Array:
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


def _first_lane(lanes: Lanes, words: random.StepWords) -> tuple[Lanes, random.StepWords]:
    return _map_lanes(lambda leaf: leaf[0], lanes), jax.tree.map(lambda leaf: leaf[0], words)


def _any_of(flags: Array) -> Array:
    """``flags.any()`` by halves, which a kernel of ``as_one_kernel`` can have."""
    while flags.shape[0] > 1:
        half = flags.shape[0] // 2
        flags = flags[: flags.shape[0] - half] | flags[half:]  # the middle one of an odd number counts twice
    return flags[0]


def _map_lanes(function: Callable[[Array], Array], lanes: Lanes) -> Lanes:
    """``function`` of every leaf that has a lane axis."""
    leaves, structure = jax.tree.flatten(lanes)
    axes = lane_axes(lanes)
    return jax.tree.unflatten(
        structure, [leaf if axis is None else function(leaf) for leaf, axis in zip(leaves, axes, strict=True)]
    )
