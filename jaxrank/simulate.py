"""The public function: a policy in an environment, on every lane, for many steps.

The host calls the compiled loop of ``lanes.py`` a chunk of intervals at a time, shows progress and adds up. Nothing
per step is kept. Metrics are summed in float32 with compensation (or int32) inside an interval and in float64 on the
host. Intervals end at every recorded step and at every multiple of 1,000 steps, whatever the chunking, so sums do not
depend on it.

A settled lane, one that will show the same list for ever, needs no simulation: from the end of the interval in which
it settled, its sums are completed in closed form. When enough lanes have settled they leave the batch.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxrank import random, results
from jaxrank.devices import lane_mesh
from jaxrank.lanes import Lanes, can_settle, make_lanes, metrics_now, run_intervals, take_lanes
from jaxrank.progress import progress_bar
from jaxrank.pytrees import num_instances, take_instances
from jaxrank.types import Array, Environment, Policy

if TYPE_CHECKING:
    import xarray

Probe = Callable[[Any, Any, Any], Array]  # (policy, state, environment) -> any array

_INTERVAL = 1_000  # steps in a float32 sum at most
_CHUNK_LANE_STEPS = 20_000_000  # what one host call aims at
_CHUNK_INTERVALS = 64  # and its intervals at most
_WORTH_COMPILING = 20_000_000  # lane-steps to save before the loop is compiled for a smaller batch


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
    skip_settled: bool = True,
    mesh: Mesh | None = None,
    progress: bool | Callable[[int], object] = True,
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
      skip_settled: complete the curves of lanes that can no longer change in closed form instead of simulating them.
      mesh: the devices to spread the lanes over; by default all accelerators, or all cores of a CPU.
      progress: show a progress bar, if standard error is a terminal; or a function to call with the steps done so far.
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
    mesh = lane_mesh(setting.size, mesh, _has_features(environment))
    padded = np.resize(np.arange(setting.size), _round_up(setting.size, mesh.size))
    everywhere = partial(jax.device_put, device=NamedSharding(mesh, PartitionSpec()))
    lanes = make_lanes(
        *everywhere((policy, environment, random.root_key(seed, prng))),
        setting[padded],
        instance_ids[instance][padded],
        seed_ids[lane_seed][padded],
        mesh=mesh,
        prng=prng,
    )
    skip_settled = skip_settled and not probes and can_settle(policy, environment)
    run = _Run(lanes, setting.size, everywhere(looks), metrics, mesh, prng, skip_settled)
    curves: dict[str, np.ndarray] = {}
    column = 0
    started = time.perf_counter()
    with progress_bar(type(policy).__name__, num_steps, setting.size, progress) as advance:
        for chunk, size in _chunks(_intervals(steps), setting.size, chunk_intervals):
            for step, sums, seen in run.advance(chunk, size):
                if step == steps[column]:
                    for name, values in {**sums, **seen}.items():
                        shape = (setting.size, len(steps), *values.shape[1:])
                        curves.setdefault(name, np.zeros(shape))[:, column] = values
                    column += 1
            advance(step)
            if _ends_era(step):
                run.leave_out_settled(num_steps - step)
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


class _Run:
    """The lanes of a run, those still simulated and those settled, and the sums of their metrics so far."""

    def __init__(
        self,
        lanes: Lanes,
        num_lanes: int,
        probes: dict[str, Any],
        metrics: tuple[str, ...],
        mesh: Mesh,
        prng: str,
        skip_settled: bool,
    ) -> None:
        self.lanes, self.probes = lanes, probes
        self.batch = np.arange(num_lanes)  # the numbers of the simulated lanes; padding follows them in ``lanes``
        self.sums = {name: np.zeros(num_lanes) for name in metrics}
        self.settled = np.zeros(num_lanes, bool)
        self.per_step = {name: np.zeros(num_lanes) for name in metrics}  # of settled lanes
        self.options: Any = {"metrics": metrics, "mesh": mesh, "prng": prng}
        self.skip_settled = skip_settled

    def advance(
        self, intervals: np.ndarray, size: int
    ) -> Iterator[tuple[int, dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """Runs ``intervals`` [n, (start, stop)] in a call compiled for ``size``; yields last steps, sums and probes."""
        if self.settled.all():
            totals, seen = {name: np.zeros((len(intervals), 0)) for name in self.sums}, {}
            newly = np.zeros((len(intervals), 0), bool)
            self.batch = self.batch[:0]
        else:
            padded = np.pad(intervals, ((0, size - len(intervals)), (0, 0)))  # (0, 0) is an empty interval
            state, sums, flags, looks = run_intervals(
                self.lanes, jnp.asarray(padded, jnp.int32), self.probes, **self.options
            )
            self.lanes = self.lanes._replace(state=state)
            totals = {name: np.asarray(value, np.float64)[:, : self.batch.size] for name, value in sums.items()}
            seen = {name: np.asarray(values, np.float64)[:, : self.batch.size] for name, values in looks.items()}
            newly = np.asarray(flags)[:, : self.batch.size] & self.skip_settled
            if (newly.any(axis=0) & ~self.settled[self.batch]).any():
                for name, value in metrics_now(self.lanes, **self.options).items():
                    self.per_step[name][self.batch] = np.asarray(value)[: self.batch.size]
        for row, (start, stop) in enumerate(intervals):
            for name, sums_so_far in self.sums.items():
                total = (stop - start) * self.per_step[name]
                total[self.batch] = np.where(self.settled[self.batch], total[self.batch], totals[name][row])
                sums_so_far += total
            self.settled[self.batch] |= newly[row]
            yield stop - 1, self.sums, {name: values[row] for name, values in seen.items()}

    def leave_out_settled(self, steps_left: int) -> None:
        """Goes on with a smaller batch, if that is worth compiling the loop for it."""
        going = np.flatnonzero(~self.settled[self.batch])
        size = _round_up(1 << max(going.size - 1, 0).bit_length(), self.options["mesh"].size)
        if going.size and (self.batch.size - size) * steps_left >= _WORTH_COMPILING:
            self.lanes = take_lanes(self.lanes, np.resize(going, size), mesh=self.options["mesh"])
            self.batch = self.batch[going]


def _chunks(intervals: np.ndarray, num_lanes: int, chunk_intervals: int | None) -> Iterator[tuple[np.ndarray, int]]:
    """Intervals for one host call each, and how many of them the call is compiled for. Eras start with a new chunk."""
    size = chunk_intervals or max(1, min(_CHUNK_INTERVALS, _CHUNK_LANE_STEPS // (_INTERVAL * num_lanes)))
    first = 0
    for last in range(len(intervals)):
        if last - first + 1 == size or last == len(intervals) - 1 or _ends_era(intervals[last, 1] - 1):
            yield intervals[first : last + 1], size
            first = last + 1


def _ends_era(step: int) -> bool:
    """Steps 1,000, 2,000, 4,000, …: where settled lanes may leave, so that the chunking has no say in it."""
    thousands, rest = divmod(int(step), _INTERVAL)
    return rest == 0 and thousands.bit_count() == 1


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


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


def _has_features(environment: Environment) -> bool:
    def query(environment: Environment) -> Any:
        return take_instances(environment, 0).query(random.root_key(0), jnp.int32(1))

    return jax.eval_shape(query, environment).features is not None


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
