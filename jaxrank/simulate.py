"""The loop: a policy in an environment, on every lane, for many steps.

A lane is one (policy setting, instance, seed). One compiled chunk is a scan over intervals of a loop over steps of
the one-lane step mapped over lanes. The host calls chunks, shows progress and adds up. Nothing per step is kept.

Metrics are summed in float32 with compensation (or int32) inside an interval and in float64 on the host. Intervals
end at every recorded step and at every multiple of 1,000 steps, whatever the chunking, so sums do not depend on it.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank import random, results
from jaxrank.batching import lanes_minor
from jaxrank.numerics import CompensatedSum
from jaxrank.progress import progress_bar
from jaxrank.pytrees import leaf_axes, num_instances, take_instances
from jaxrank.types import Array, Environment, Policy, State

if TYPE_CHECKING:
    import xarray

Probe = Callable[[Any, Any, Any], Array]  # (policy, state, environment) -> any array

_INTERVAL = 1_000  # steps in a float32 sum at most
_CHUNK_LANE_STEPS = 20_000_000  # what one host call aims at
_CHUNK_INTERVALS = 64  # and its intervals at most


def simulate(
    policy: Policy,
    environment: Environment,
    num_steps: int,
    *,
    num_seeds: int = 1,
    seed: int = 0,
    prng: str = "jaxrank",
    metrics: Sequence[str] = ("regret",),
    num_records: int = 200,
    spacing: str = "linear",
    record_at: Sequence[int] | None = None,
    instances: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    progress: bool = True,
    chunk_intervals: int | None = None,
    probes: Mapping[str, Probe] | None = None,
) -> "xarray.Dataset":
    """Runs ``policy`` in ``environment`` for ``num_steps`` steps on every lane and returns cumulative curves.

    Args:
      policy: a policy. Leaves with a leading axis are a sweep: one more dimension of the result, run in parallel.
      environment: an environment. Its instance axis, if it has one, is a dimension of the result.
      num_steps: the number of steps, and the horizon of policies that need one and were given none.
      num_seeds: independent repetitions of every instance: seeds 0, 1, …, num_seeds − 1.
      seed: the root of all random numbers.
      prng: the generator: "jaxrank", or "threefry2x32" for JAX's own bits at 2 to 3 times the cost of a step.
      metrics: which of the environment's metrics to sum up.
      num_records: how many points a curve has.
      spacing: "linear" or "log": how these points lie between 1 and ``num_steps``.
      record_at: the steps to record, instead of ``num_records`` and ``spacing``.
      instances: run only these instances; their numbers are those of the full run.
      seeds: run only these seeds, instead of ``num_seeds``; likewise.
      progress: show a progress bar, if standard error is a terminal.
      chunk_intervals: how many intervals one host call runs; the curves do not depend on it.
      probes: functions of (policy, state, environment) of a lane, called after every recorded step; their values are
        variables of the result, not summed. ``jaxrank.probes`` has some.

    Returns:
      A dataset with one float64 variable per metric, of dims ([setting,] [instance,] seed, step): the sum of the
      metric over steps 1 to ``step``. Its attributes say what ran, on what, and how fast.

    Example:
      >>> import jaxrank as jr
      >>> env = jr.ClickBandit(jr.CascadeModel([[0.2, 0.5, 0.1], [0.3, 0.3, 0.4]]), list_size=2)
      >>> result = jr.simulate(jr.StaticRanking(), env, num_steps=1000, num_seeds=3)
      >>> {dim: int(size) for dim, size in result["regret"].sizes.items()}
      {'query': 2, 'seed': 3, 'step': 200}
      >>> result["regret"][:, 0, -1].round(3).values
      array([ 0., 70.])
    """
    num_steps = _positive_int("num_steps", num_steps, maximum=2**31 - 2)
    steps = _record_steps(num_steps, num_records, spacing, record_at)
    policy = _with_horizon(policy, num_steps)
    settings, available = num_instances(policy), num_instances(environment)
    instance_ids = _chosen("instances", instances, available or 1, limit=available or 1)
    seed_ids = _chosen("seeds", seeds, _positive_int("num_seeds", num_seeds), limit=2**31)
    grid = (settings or 1, len(instance_ids), len(seed_ids))
    metrics = _known_metrics(metrics, environment)
    looks = _as_pytrees(probes or {}, metrics)

    # Lanes in the order (setting, instance, seed): which row of the leaves' instance axes each lane reads.
    setting, instance, lane_seed = (index.ravel() for index in np.indices(grid))
    lanes = _make_lanes(
        policy, environment, random.root_key(seed, prng), setting, instance_ids[instance], seed_ids[lane_seed], prng
    )
    intervals = _intervals(steps)
    per_chunk = chunk_intervals or max(1, min(_CHUNK_INTERVALS, _CHUNK_LANE_STEPS // (_INTERVAL * setting.size)))

    sums = {name: np.zeros(setting.size) for name in metrics}
    curves = {name: np.zeros((setting.size, len(steps))) for name in metrics}
    record_of = {int(step): column for column, step in enumerate(steps)}
    started = time.perf_counter()
    with progress_bar(type(policy).__name__, num_steps, setting.size, enabled=progress) as advance:
        for first in range(0, len(intervals), per_chunk):
            chunk = intervals[first : first + per_chunk]
            padded = np.pad(chunk, ((0, per_chunk - len(chunk)), (0, 0)))  # (0, 0) is an empty interval
            lanes, totals, seen = _run_chunk(lanes, jnp.asarray(padded, jnp.int32), metrics, prng, looks)
            totals = {name: np.asarray(total, np.float64) for name, total in totals.items()}
            seen = {name: np.asarray(values, np.float64) for name, values in seen.items()}
            for row, last_step in enumerate(chunk[:, 1] - 1):
                for name in metrics:
                    sums[name] += totals[name][row]
                    if last_step in record_of:
                        curves[name][:, record_of[last_step]] = sums[name]
                for name, values in seen.items():
                    if last_step in record_of:
                        shape = (setting.size, len(steps), *values.shape[2:])
                        curves.setdefault(name, np.zeros(shape))[:, record_of[last_step]] = values[row]
            advance(int(chunk[-1, 1]) - 1)
    wall_time = time.perf_counter() - started

    return results.from_curves(
        {name: curve.reshape(*grid, *curve.shape[1:]) for name, curve in curves.items()},
        policy=policy,
        environment=environment,
        instances=instance_ids if available is not None else None,
        seeds=seed_ids,
        steps=steps,
        seed=seed,
        num_steps=num_steps,
        wall_time=wall_time,
    )


def compare(
    policies: Mapping[str, Policy], environment: Environment, num_steps: int, **options: Any
) -> "xarray.Dataset":
    """``simulate`` for each of several named policies, with a leading ``policy`` dimension.

    All policies meet the same random numbers in the same lanes. Options are those of ``simulate``.
    """
    if not policies:
        raise ValueError("policies must name at least one policy; got none")
    runs = {name: simulate(policy, environment, num_steps, **options) for name, policy in policies.items()}
    return results.stack(runs)


class Lanes(NamedTuple):
    """All lanes of a run. Leaves that differ between lanes have a leading lane axis; the others are shared."""

    policy: Policy
    environment: Environment
    key: Array  # uint32[lanes, 2], key data
    state: State


@partial(jax.jit, static_argnames="prng")
def _make_lanes(
    policy: Policy, environment: Environment, root: Array, setting: Array, instance: Array, seed: Array, prng: str
) -> Lanes:
    """One lane for every entry of ``setting``, ``instance`` and ``seed`` [lanes]."""
    key = jax.vmap(lambda i, s: jax.random.key_data(random.lane_key(root, i, s)))(instance, seed)

    def init(lane: Lanes) -> State:
        words = random.step_words(lane.key, jnp.int32(0))  # steps count from 1
        query_key, _, _, init_key = random.keys_of(words, prng)
        return lane.policy.init(init_key, lane.environment.query(query_key, jnp.int32(0)))

    lanes = Lanes(take_instances(policy, setting), take_instances(environment, instance), key, state=())
    return lanes._replace(state=_over_lanes(init, lanes))


@partial(jax.jit, static_argnames=("metrics", "prng"))
def _run_chunk(
    lanes: Lanes, intervals: Array, metrics: tuple[str, ...], prng: str, probes: dict[str, Any]
) -> tuple[Lanes, dict[str, Array], dict[str, Array]]:
    """Advances every lane through ``intervals`` [n, (start, stop)]; returns sums and probes [n, lanes, …] too."""

    def step(lane: Lanes, words: random.StepWords, t: Array) -> tuple[State, dict[str, Array]]:
        policy, environment, _, state = lane
        query_key, rank_key, click_key, update_key = random.keys_of(words, prng)
        query = environment.query(query_key, t)
        ranking = policy.rank(rank_key, state, query)
        clicks = environment.clicks(click_key, query, ranking)
        measured = environment.metrics(query, ranking)
        state = policy.update(update_key, state, query, ranking, clicks)
        return state, {name: measured[name] for name in metrics}

    def advance(lanes: Lanes, words: random.StepWords, t: Array) -> tuple[Lanes, dict[str, Array]]:
        # The constant leaves are carried too: only what is carried keeps its layout in the loop.
        lanes = _map_lanes(lanes_minor, lanes)
        state, measured = _over_lanes(step, lanes, words, t, shared=1)
        return _map_lanes(lanes_minor, lanes._replace(state=state)), measured

    def look(lane: Lanes) -> dict[str, Array]:
        return {name: probe(lane.policy, lane.state, lane.environment) for name, probe in probes.items()}

    def run_interval(lanes: Lanes, interval: Array) -> tuple[Lanes, tuple[dict[str, Array], dict[str, Array]]]:
        def body(t, carry):
            lanes, words, sums = carry
            lanes, measured = advance(lanes, words, t)
            return lanes, draw(lanes, t + 1), {name: sums[name].add(measured[name]) for name in metrics}

        first = (lanes, draw(lanes, interval[0]), zeros)
        lanes, _, sums = jax.lax.fori_loop(interval[0], interval[1], body, first)
        seen = _over_lanes(look, lanes) if probes else {}
        return lanes, ({name: total.total for name, total in sums.items()}, seen)

    def draw(lanes: Lanes, t: Array) -> random.StepWords:
        return jax.vmap(random.step_words, in_axes=(0, None))(lanes.key, t)

    measured = jax.eval_shape(advance, lanes, draw(lanes, jnp.int32(0)), jnp.int32(0))[1]
    zeros = {name: CompensatedSum.zeros(value.shape, value.dtype) for name, value in measured.items()}
    lanes, (totals, seen) = jax.lax.scan(run_interval, lanes, intervals)
    return lanes, totals, seen


def _lane_axes(lanes: Lanes) -> list[int | None]:
    """For every leaf of ``lanes``: 0 if it has a lane axis, None if it is shared."""
    policy, environment, *per_lane = lanes
    return [*leaf_axes(policy), *leaf_axes(environment), *[0] * len(jax.tree.leaves(per_lane))]


def _over_lanes(function: Callable[..., Any], lanes: Lanes, *arguments: Any, shared: int = 0) -> Any:
    """``function(lane, *arguments)`` mapped over lanes; the last ``shared`` arguments are the same in all."""
    leaves, structure = jax.tree.flatten(lanes)

    def of_leaves(leaves, *arguments):
        return function(jax.tree.unflatten(structure, leaves), *arguments)

    mapped = [0] * (len(arguments) - shared) + [None] * shared
    return jax.vmap(of_leaves, in_axes=(_lane_axes(lanes), *mapped))(leaves, *arguments)


def _map_lanes(function: Callable[[Array], Array], lanes: Lanes) -> Lanes:
    """``function`` of every leaf that has a lane axis."""
    leaves, structure = jax.tree.flatten(lanes)
    axes = _lane_axes(lanes)
    return jax.tree.unflatten(
        structure, [leaf if axis is None else function(leaf) for leaf, axis in zip(leaves, axes, strict=True)]
    )


def _with_horizon(policy: Policy, num_steps: int) -> Policy:
    """``horizon=None`` means the number of steps of the run."""
    if getattr(policy, "horizon", num_steps) is None:
        return dataclasses.replace(policy, horizon=num_steps)  # type: ignore[type-var]
    return policy


def _intervals(steps: np.ndarray) -> np.ndarray:
    """[n, 2]: half-open intervals of steps that end at every recorded step and at multiples of 1,000."""
    ends = np.union1d(steps, np.arange(_INTERVAL, steps[-1], _INTERVAL))
    return np.stack([np.append(0, ends[:-1]), ends], axis=1) + 1


def _record_steps(num_steps: int, num_records: int, spacing: str, record_at: Iterable[int] | None) -> np.ndarray:
    if record_at is not None:
        steps = np.asarray(list(record_at))
        if steps.size == 0 or steps.dtype.kind not in "iu" or (np.diff(steps) <= 0).any() or steps[0] < 1:
            raise ValueError(f"record_at must be increasing integers from 1 to num_steps; got {record_at!r}")
        if steps[-1] > num_steps:
            raise ValueError(f"record_at must not pass num_steps = {num_steps}; got {steps[-1]}")
        return np.unique(np.append(steps, num_steps)) if steps[-1] < num_steps else steps
    count = min(_positive_int("num_records", num_records), num_steps)
    if spacing == "linear":
        return np.unique(np.linspace(0, num_steps, count + 1)[1:].round().astype(np.int64))
    if spacing == "log":
        return np.unique(np.geomspace(1, num_steps, count).round().astype(np.int64))
    raise ValueError(f"spacing must be 'linear' or 'log'; got {spacing!r}")


def _known_metrics(metrics: Sequence[str], environment: Environment) -> tuple[str, ...]:
    if isinstance(metrics, str) or not metrics:
        raise ValueError(f"metrics must be a sequence of at least one name; got {metrics!r}")
    known: list[str] = []

    def measure(environment: Environment) -> None:
        one = take_instances(environment, 0)
        query = one.query(random.root_key(0), jnp.int32(1))
        known.extend(one.metrics(query, jnp.zeros(query.list_size, jnp.int32)))

    jax.eval_shape(measure, environment)
    for name in metrics:
        if name not in known:
            raise ValueError(f"metrics must be among {', '.join(known)}; got {name!r}")
    return tuple(metrics)


def _as_pytrees(probes: Mapping[str, Probe], metrics: Sequence[str]) -> dict[str, Any]:
    """Probes as arguments of a compiled function: pytrees as they are, other functions by their identity."""
    for name, probe in probes.items():
        if name in metrics:
            raise ValueError(f"probes must not be called as a metric; got {name!r}")
        if not callable(probe):
            raise ValueError(f"probes must be functions of (policy, state, environment); got {probe!r} for {name!r}")
    is_pytree = {name: not jax.tree_util.all_leaves([probe]) for name, probe in probes.items()}
    return {name: probe if is_pytree[name] else jax.tree_util.Partial(probe) for name, probe in probes.items()}


def _chosen(name: str, chosen: Sequence[int] | None, count: int, limit: int) -> np.ndarray:
    if chosen is None:
        return np.arange(count, dtype=np.int32)
    ids = np.asarray(list(chosen))
    if ids.size == 0 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= limit:
        raise ValueError(f"{name} must be integers from 0 to {limit - 1}; got {list(chosen)!r}")
    if len(set(ids.tolist())) < ids.size:
        raise ValueError(f"{name} must not repeat; got {list(chosen)!r}")
    return ids.astype(np.int32)


def _positive_int(name: str, value: Any, maximum: int = 2**31 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= maximum:
        raise ValueError(f"{name} must be an integer from 1 to {maximum}; got {value!r}")
    return int(value)
