"""A run before it starts: what was asked for, checked, and which lane is which."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxrank.core import random
from jaxrank.core.pytrees import num_instances, take_instances
from jaxrank.core.types import Array, Environment, Policy, Query
from jaxrank.core.version import __version__
from jaxrank.engine.checkpoint import FORMAT, described
from jaxrank.engine.devices import lane_mesh
from jaxrank.engine.lanes import Lanes, can_settle, lane_bytes, make_lanes, padded_size
from jaxrank.engine.run import Run

Probe = Callable[[Any, Any, Any], Array]  # (policy, state, environment) -> any array


@dataclasses.dataclass(frozen=True)
class Task:
    """Lanes are in the order (setting, instance, seed): ``grid`` says how many of each."""

    policy: Policy  # with its horizon
    environment: Environment
    num_steps: int
    steps: np.ndarray  # to record
    seed: int
    prng: str
    metrics: dict[str, np.ndarray]  # zeros of their shapes and types
    probes: dict[str, Any]
    grid: tuple[int, int, int]
    instance_ids: np.ndarray
    seed_ids: np.ndarray
    skip_settled: bool
    mesh: Mesh
    chunk_intervals: int | None

    @property
    def num_lanes(self) -> int:
        return int(np.prod(self.grid))

    @property
    def has_instances(self) -> bool:
        return num_instances(self.environment) is not None

    def make_lanes(self, numbers: np.ndarray) -> Lanes:
        """The lanes of these numbers, padded for the devices."""
        all_lanes = np.resize(numbers, self._padded_size(numbers.size))
        setting, instance, lane_seed = np.unravel_index(all_lanes, self.grid)
        ids = (setting.astype(np.int32), self.instance_ids[instance], self.seed_ids[lane_seed])
        roots = self.everywhere((self.policy, self.environment, random.root_key(self.seed, self.prng)))
        return make_lanes(*roots, *ids, self.metrics, mesh=self.mesh, prng=self.prng)

    def lane_shapes(self, num_lanes: int) -> Any:
        """The shapes of so many lanes, padded for the devices, without making them."""
        return self._shapes(self._padded_size(num_lanes))

    def _padded_size(self, num_lanes: int) -> int:
        return padded_size(num_lanes, self.mesh, lane_bytes(self._shapes(self.mesh.size)))

    def _shapes(self, padded_size: int) -> Any:
        ids = [jax.ShapeDtypeStruct((padded_size,), jnp.int32)] * 3
        make = partial(make_lanes, mesh=self.mesh, prng=self.prng)
        root = random.root_key(self.seed, self.prng)
        return jax.eval_shape(make, self.policy, self.environment, root, *ids, self.metrics)

    def start(self, numbers: np.ndarray) -> Run:
        """The lanes of these numbers, at step 0."""
        return Run(
            self.make_lanes(numbers),
            numbers.size,
            self.steps,
            self.everywhere(self.probes),
            metrics=tuple(self.metrics),
            mesh=self.mesh,
            prng=self.prng,
            skip_settled=self.skip_settled,
            call_intervals=self.chunk_intervals,
            describe=lambda lane: self.describe(numbers[lane]),
        )

    def everywhere(self, tree: Any) -> Any:
        """On every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def describe(self, lane: int) -> str:
        setting, instance, lane_seed = np.unravel_index(lane, self.grid)
        names = [f"seed {self.seed_ids[lane_seed]}"]
        if self.has_instances:
            names.insert(0, f"{self.environment.instance_dim} {self.instance_ids[instance]}")
        if num_instances(self.policy) is not None:
            names.insert(0, f"setting {setting}")
        return f"{self.policy!r}, {', '.join(names)}"

    def configuration(self) -> dict[str, Any]:
        """What must be the same for two runs to have the same numbers."""
        state = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}", self.lane_shapes(1).state)
        return {
            "format": FORMAT,
            "jaxrank": __version__,
            "policy": described(self.policy),
            "environment": described(self.environment),
            "state of a lane": str(state),
            "num_steps": self.num_steps,
            "recorded steps": described(self.steps),
            "seed": self.seed,
            "prng": self.prng,
            "instances": described(self.instance_ids),
            "seeds": described(self.seed_ids),
            "metrics": list(self.metrics),
            "probes": {name: described(look) for name, look in self.probes.items()},
            "skip_settled": self.skip_settled,
            "float64": bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
        }


def prepare(
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
    chunk_intervals: int | None = None,
    probes: Mapping[str, Probe] | None = None,
) -> Task:
    """Checks all that ``simulate`` is given, before anything runs."""
    num_steps = positive_int("num_steps", num_steps, maximum=2**31 - 2)
    steps = _record_steps(num_steps, num_records, spacing, record_at)
    policy = _with_horizon(policy, num_steps)
    settings, available = num_instances(policy), num_instances(environment)
    instance_ids = _chosen("instances", instances, available or 1, limit=available or 1)
    seed_ids = _chosen("seeds", seeds, positive_int("num_seeds", num_seeds), limit=2**31)
    grid = (settings or 1, len(instance_ids), len(seed_ids))
    query, known = _offered(environment)
    metrics = _known_metrics(metrics, known)
    return Task(
        policy=policy,
        environment=environment,
        num_steps=num_steps,
        steps=steps,
        seed=seed,
        prng=prng,
        metrics={name: np.zeros(known[name].shape, known[name].dtype) for name in metrics},
        probes=_as_pytrees(probes or {}, metrics),
        grid=grid,
        instance_ids=instance_ids,
        seed_ids=seed_ids,
        skip_settled=skip_settled and not probes and can_settle(policy, environment),
        mesh=lane_mesh(int(np.prod(grid)), mesh, query.features is not None),
        chunk_intervals=chunk_intervals,
    )


def _with_horizon(policy: Policy, num_steps: int) -> Policy:
    """``horizon=None`` means the number of steps of the run."""
    if getattr(policy, "horizon", num_steps) is None:
        return dataclasses.replace(policy, horizon=num_steps)  # type: ignore[type-var]
    return policy


def _record_steps(num_steps: int, num_records: int, spacing: str, record_at: Iterable[int] | None) -> np.ndarray:
    if record_at is not None:
        steps = np.asarray(list(record_at))
        if steps.size == 0 or steps.dtype.kind not in "iu" or (np.diff(steps) <= 0).any() or steps[0] < 1:
            raise ValueError(f"record_at must be increasing integers from 1 to num_steps; got {record_at!r}")
        if steps[-1] > num_steps:
            raise ValueError(f"record_at must not pass num_steps = {num_steps}; got {steps[-1]}")
        return np.unique(np.append(steps, num_steps)) if steps[-1] < num_steps else steps
    count = min(positive_int("num_records", num_records), num_steps)
    if spacing == "linear":
        return np.unique(np.linspace(0, num_steps, count + 1)[1:].round().astype(np.int64))
    if spacing == "log":
        return np.unique(np.geomspace(1, num_steps, count).round().astype(np.int64))
    raise ValueError(f"spacing must be 'linear' or 'log'; got {spacing!r}")


def _offered(environment: Environment) -> tuple[Query, dict[str, jax.ShapeDtypeStruct]]:
    """The shapes of a query and of the metrics, these in the environment's order, which JAX would sort."""
    names: list[str] = []

    def first(environment: Environment) -> tuple[Query, dict[str, Array]]:
        one = take_instances(environment, 0)
        query = one.query(random.root_key(0), jnp.int32(1))
        measured = one.metrics(query, jnp.zeros(query.list_size, jnp.int32))
        names.extend(measured)
        return query, measured

    query, measured = jax.eval_shape(first, environment)
    return query, {name: measured[name] for name in names}


def _known_metrics(metrics: Sequence[str], known: Mapping[str, Any]) -> tuple[str, ...]:
    if isinstance(metrics, str) or not metrics:
        raise ValueError(f"metrics must be a sequence of at least one name; got {metrics!r}")
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


def positive_int(name: str, value: Any, maximum: int = 2**31 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= maximum:
        raise ValueError(f"{name} must be an integer from 1 to {maximum}; got {value!r}")
    return int(value)
