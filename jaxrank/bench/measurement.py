"""Measuring one policy in one click model at one size."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrank.core.registry import make
from jaxrank.datasets import synthetic
from jaxrank.engine.simulation import simulate
from jaxrank.environments import ClickBandit

_QUERIES = 1_000  # at most; more lanes are more seeds
_SCALAR_LANES = 10  # of the baseline: one lane costs as much as another
_STEPS = (1_000, 2_000, 5_000, 10_000, 20_000)
_SECONDS = 4.0  # what one repetition may take, if that allows 1,000 steps
FEATURE_FREE = (
    "static",
    "random",
    "oracle",
    "bubblerank",
    "batchrank",
    "toprank",
    "cascade_klucb",
    "cascade_ucb1",
    "cascade_ts",
    "dcm_klucb",
    "cascade_ducb",
    "cascade_swucb",
    "glrt_cascade_ucb",
    "glrt_cascade_klucb",
    "grab",
    "unirank",
    "pb_mhb",
    "recurrank",
    "ranked_exp3",
    "ranked_ucb1",
    "ranked_klucb",
    "pbm_ucb",
    "pbm_ts",
    "pbm_pie",
)
LATE = (100_000, 120_000)  # steps in which lists rarely change


class Cell(NamedTuple):
    """What to measure."""

    policy: str
    click_model: str = "cm"
    num_lanes: int = 1_000
    num_items: int = 10
    list_size: int = 10
    num_devices: int = 0  # 0: all
    late: bool = False  # steps 100,000 to 120,000 of a run instead of the first ones


def policies_for(click_model: str) -> tuple[str, ...]:
    """The policies without features; those for the position-based model need its examination probabilities."""
    return tuple(name for name in FEATURE_FREE if click_model == "pbm" or not name.startswith("pbm_"))


def devices_of(cell: Cell) -> list[jax.Device]:
    devices = jax.devices()[: cell.num_devices or None]
    if len(devices) < cell.num_devices:
        raise ValueError(f"devices must be at most the {len(devices)} that JAX has; got {cell.num_devices}")
    return devices


def measure(cell: Cell, repeat: int = 3, baseline: bool = True) -> dict[str, Any]:
    """One row: the cell, lane-steps per second of ``simulate`` and of the scalar loop, and what else they cost."""
    devices = devices_of(cell)
    queries = next(q for q in range(min(_QUERIES, cell.num_lanes), 0, -1) if cell.num_lanes % q == 0)
    model = synthetic(cell.click_model, queries, cell.num_items)
    environment = ClickBandit(model, list_size=cell.list_size, top=max(1, cell.list_size // 2))
    mesh = Mesh(np.array(devices), ("lanes",))

    def run(num_steps: int, **options: Any) -> dict[str, Any]:
        """The attributes of the result: seconds, with and without compiling, and the way that the run took."""
        result = simulate(
            make(cell.policy),
            environment,
            num_steps,
            num_seeds=cell.num_lanes // queries,
            num_records=1,
            skip_settled=False,  # every step is simulated, as in the baseline
            mesh=mesh,
            progress=options.pop("progress", False),
            **options,
        )
        return result.attrs

    _reset_peak_memory()
    jax.clear_caches()
    first = run(1_000)
    second = _seconds(run(1_000))
    if cell.late:
        steps = LATE[1] - LATE[0]
        seconds = min(_late_seconds(run) for _ in range(repeat))
    else:
        steps = max([n for n in _STEPS if n / 1_000 * second <= _SECONDS], default=_STEPS[0])
        seconds = min(_seconds(run(steps)) for _ in range(repeat))
    row = {
        **cell._asdict(),
        "num_devices": len(devices),
        "num_steps": steps,
        "lane_steps_per_second": cell.num_lanes * steps / seconds,
        "way": first["way"].partition(" ")[0],
        "compile_seconds": first["compile_seconds"],
        "peak_memory_mb": _peak_memory(),
    }
    if baseline:
        row["scalar_lane_steps_per_second"] = _scalar_rate(cell, environment, steps, repeat)
        row["ratio"] = row["lane_steps_per_second"] / row["scalar_lane_steps_per_second"]
    return row


def _seconds(attributes: dict[str, Any]) -> float:
    """Of running, without compiling."""
    return attributes["wall_time_seconds"] - attributes["compile_seconds"]


def _late_seconds(run: Callable[..., Any]) -> float:
    times: dict[int, float] = {}
    run(LATE[1], call_intervals=4, progress=lambda step: times.setdefault(step, time.perf_counter()))
    return times[LATE[1]] - times[LATE[0]]


@cache
def _scalar_loop(policy: str, click_model: str) -> Callable:
    from jaxrank.bench import scalar

    return scalar.make_loop(scalar.POLICIES[policy], click_model)


def _scalar_rate(cell: Cell, environment: ClickBandit, num_steps: int, repeat: int) -> float:
    """Lane-steps per second of the scalar loop on the first queries, over the same steps."""
    from jaxrank.bench import scalar

    policy, loop = scalar.POLICIES[cell.policy], _scalar_loop(cell.policy, cell.click_model)
    worlds = scalar_worlds(environment, LATE[1] if cell.late else num_steps)[:_SCALAR_LANES]
    scalar.Lane(policy, loop, worlds[0], seed=0).advance(2)  # compiles
    best = np.inf
    for _ in range(repeat):
        lanes = [scalar.Lane(policy, loop, world, seed) for seed, world in enumerate(worlds)]
        for lane in lanes if cell.late else ():
            lane.advance(LATE[0])
        started = time.perf_counter()
        for lane in lanes:
            lane.advance(num_steps)
        best = min(best, time.perf_counter() - started)
    return len(worlds) * num_steps / best


def scalar_worlds(environment: ClickBandit, horizon: int) -> list[Any]:
    """The environment's queries for the scalar loop."""
    from jaxrank.bench.scalar import World

    model, list_size = environment.click_model, environment.list_size
    position = getattr(model, "termination", getattr(model, "examination", None))
    position = np.ones(list_size) if position is None else np.asarray(position, np.float64)[:list_size]
    queries = zip(model.attraction, environment.base_ranking, environment.optimal_ranking, strict=True)
    return [
        World(
            np.asarray(attraction, np.float64),
            position,
            np.asarray(base, np.int64),
            np.asarray(optimal, np.int64),
            list_size,
            environment.top,
            horizon,
        )
        for attraction, base, optimal in queries
    ]


def _reset_peak_memory() -> None:
    """Resets the peak where the system allows it (Linux); elsewhere it stays that of the process so far."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def _peak_memory() -> float:
    """The peak memory since the last reset, in MB."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
