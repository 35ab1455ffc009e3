"""A run before it starts: a request that fits its policy and its environment, and which lane is which."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxrank.core import random
from jaxrank.core.checks import did_you_mean
from jaxrank.core.pytrees import num_instances, take_instances
from jaxrank.core.types import Array, Environment, Policy, Query, keeps_items, require, with_horizon
from jaxrank.engine.array_loop import padded_size
from jaxrank.engine.devices import lane_mesh
from jaxrank.engine.lanes import Lanes, lane_bytes, make_lanes, may_settle
from jaxrank.engine.request import Probe, Request
from jaxrank.engine.run import Run
from jaxrank.engine.ways import Way, choose


@dataclasses.dataclass(frozen=True)
class Task:
    """Lanes are in the order (setting, instance, seed): ``grid`` says how many of each."""

    policy: Policy  # with its horizon
    environment: Environment
    request: Request
    steps: np.ndarray  # to record
    metrics: dict[str, np.ndarray]  # zeros of their shapes and types
    probes: dict[str, Any]  # as pytrees
    grid: tuple[int, int, int]
    skip_settled: bool
    mesh: Mesh

    @property
    def num_lanes(self) -> int:
        return math.prod(self.grid)

    @cached_property
    def instance_ids(self) -> np.ndarray:
        return _ids(self.request.instances, self.grid[1])

    @cached_property
    def seed_ids(self) -> np.ndarray:
        return _ids(self.request.seeds, self.grid[2])

    @cached_property
    def way(self) -> Way:
        """How its calls are run."""
        shapes = self.lane_shapes(self.mesh.size)
        options: Any = {"metrics": tuple(self.metrics), "mesh": self.mesh, "prng": self.request.prng}
        return choose(self.request.way, shapes, self.probes, **options)

    @property
    def has_instances(self) -> bool:
        return num_instances(self.environment) is not None

    def make_lanes(self, numbers: np.ndarray) -> Lanes:
        """The lanes of these numbers, padded for the devices."""
        all_lanes = np.resize(numbers, self._padded_size(numbers.size))
        setting, instance, lane_seed = np.unravel_index(all_lanes, self.grid)
        ids = (setting.astype(np.int32), self.instance_ids[instance], self.seed_ids[lane_seed])
        policy, environment, root = self.everywhere((self.policy, self.environment, self._root_key()))
        return make_lanes(policy, environment, root, *ids, self.metrics, mesh=self.mesh, prng=self.request.prng)

    def lane_shapes(self, num_lanes: int) -> Any:
        """The shapes of this number of lanes, padded for the devices, without making them."""
        return self._shapes(self._padded_size(num_lanes))

    def _padded_size(self, num_lanes: int) -> int:
        return padded_size(num_lanes, self.mesh, lane_bytes(self._shapes(self.mesh.size)))

    def _shapes(self, padded_size: int) -> Any:
        ids = [jax.ShapeDtypeStruct((padded_size,), jnp.int32)] * 3
        make = partial(make_lanes, mesh=self.mesh, prng=self.request.prng)
        return jax.eval_shape(make, self.policy, self.environment, self._root_key(), *ids, self.metrics)

    def _root_key(self) -> Any:
        return random.root_key(self.request.seed, self.request.prng)

    def start(self, numbers: np.ndarray) -> Run:
        """The lanes of these numbers, at step 0."""
        return Run(
            self.make_lanes(numbers),
            numbers.size,
            self.steps,
            self.everywhere(self.probes),
            metrics=tuple(self.metrics),
            mesh=self.mesh,
            prng=self.request.prng,
            way=self.way.name,
            skip_settled=self.skip_settled,
            call_intervals=self.request.call_intervals,
            describe=lambda lane: self.describe(numbers[lane]),
        )

    def everywhere(self, tree: Any) -> Any:
        """On every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def describe(self, lane: int) -> str:
        """The policy, the setting, the instance and the seed of a lane, for messages."""
        setting, instance, lane_seed = np.unravel_index(lane, self.grid)
        names = [f"seed {self.seed_ids[lane_seed]}"]
        if self.has_instances:
            names.insert(0, f"{self.environment.instance_dim} {self.instance_ids[instance]}")
        if num_instances(self.policy) is not None:
            names.insert(0, f"setting {setting}")
        return f"{self.policy!r}, {', '.join(names)}"


def prepare(policy: Policy, environment: Environment, request: Request) -> Task:
    """Checks a request against its policy and its environment, before anything runs."""
    require("policy", policy)
    require("environment", environment)
    policy = with_horizon(policy, request.num_steps)
    settings, available = num_instances(policy), num_instances(environment) or 1
    if request.instances is not None and max(request.instances) >= available:
        raise ValueError(f"instances must be integers from 0 to {available - 1}; got {list(request.instances[:10])}")
    instances = available if request.instances is None else len(request.instances)
    seeds = request.num_seeds if request.seeds is None else len(request.seeds)
    grid = (settings or 1, instances, seeds)
    query, known = _offered(environment)
    _refuse_unknown(request.metrics, known)
    if query.index is not None and keeps_items(policy):
        raise ValueError(
            f"policy must learn a ranker of documents, as jr.PDGD does, where queries have different items; got "
            f"{_named(policy, 'policy')}, which keeps statistics of items, in {_named(environment, 'environment')}"
        )
    return Task(
        policy=policy,
        environment=environment,
        request=request,
        steps=request.recorded_steps(),
        metrics={name: np.zeros(known[name].shape, known[name].dtype) for name in request.metrics},
        probes=_as_pytrees(request.probes or {}),
        grid=grid,
        skip_settled=request.skip_settled and not request.probes and may_settle(policy, environment),
        mesh=lane_mesh(math.prod(grid), request.mesh, query.features is not None),
    )


def _ids(chosen: Sequence[int] | None, count: int) -> np.ndarray:
    """int32[count]: the chosen numbers, or 0, 1, …, count − 1."""
    return np.arange(count, dtype=np.int32) if chosen is None else np.array(chosen, np.int32)


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


def _refuse_unknown(metrics: Sequence[str], known: Mapping[str, Any]) -> None:
    for name in metrics:
        if name not in known:
            raise ValueError(f"metrics must be among {', '.join(known)}; got {name!r}{did_you_mean(name, known)}")


def _named(thing: Any, inner: str) -> str:
    """Its class, and that of what it wraps in this field: Delayed(BubbleRank)."""
    within = getattr(thing, inner, None)
    return type(thing).__name__ + (f"({_named(within, inner)})" if within is not None else "")


def _as_pytrees(probes: Mapping[str, Probe]) -> dict[str, Any]:
    """Probes as arguments of a compiled function: pytrees as they are, other functions by their identity."""
    is_pytree = {name: not jax.tree_util.all_leaves([probe]) for name, probe in probes.items()}
    return {name: probe if is_pytree[name] else jax.tree_util.Partial(probe) for name, probe in probes.items()}
