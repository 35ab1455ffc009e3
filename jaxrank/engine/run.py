"""A run as the host sees it: active lanes, settled lanes, sums and curves so far.

The host calls the compiled loop or kernel (``ways.py``) for about a second at a time and adds up. Nothing per step is
kept. Metrics are summed in float32 with compensation (or int32) inside an interval and in float64 here. Intervals end
at every recorded step and at every multiple of 1,000 steps, however many calls it takes to get there, so sums do not
depend on the calls.

A settled lane, one that will show the same list forever, needs no simulation: from the end of the interval in which
it settled, its sums are completed in closed form. When enough lanes have settled, only the others stay active, that is,
are simulated.

``snapshot`` returns all of that as arrays, which is what a checkpoint holds; ``restore`` continues from it.
Compiling is timed apart from running: ``compile`` calls the loop for no steps at all.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrank.engine.array_loop import padded_size
from jaxrank.engine.lanes import (
    CALL_INTERVALS,
    Lanes,
    lane_bytes,
    metrics_now,
    nan_lanes,
    platform_of,
    seen_by,
    spread,
    take_lanes,
)
from jaxrank.engine.ways import call, call_bytes, lower

_INTERVAL = 1_000  # steps in a float32 sum at most
_CALL_SECONDS = 1.0  # the target length of a host call: how soon a signal is answered and the progress bar moves
_CALL_LANE_STEPS = {"cpu": 20_000_000}  # lane-steps that a call has room for, by platform …
_ON_ACCELERATORS = 2_000_000_000  # … and on any other
_WORTH_COMPILING = 20_000_000  # lane-steps that must be saved for the loop to be compiled again, for fewer lanes


class Run:
    """Some lanes on their way through all steps."""

    def __init__(
        self,
        lanes: Lanes,
        num_lanes: int,
        steps: np.ndarray,
        probes: dict[str, Any],
        *,
        metrics: tuple[str, ...],
        mesh: Mesh,
        prng: str,
        way: str = "loop",
        skip_settled: bool,
        call_intervals: int | None = None,
        describe: Callable[[int], str] = "lane {}".format,
    ) -> None:
        self.step = 0  # the last step simulated
        self.seconds = 0.0  # spent so far, without compiling
        self.compile_seconds = 0.0
        self.compiled = False
        self.began = (0, 0.0)  # the step and the seconds from which this process has run
        self.steps, self.ends = steps, interval_ends(steps)
        self.lanes, self.probes = lanes, probes
        self.active = np.arange(num_lanes)  # the numbers of the simulated lanes; padding follows them in ``lanes``
        self.sums = {name: np.zeros(num_lanes) for name in metrics}
        self.settled = np.zeros(num_lanes, bool)
        self.per_step = {name: np.zeros(num_lanes) for name in metrics}  # of settled lanes
        self.curves: dict[str, np.ndarray] = {}  # [lanes, steps, …]
        self.options: Any = {"metrics": metrics, "mesh": mesh, "prng": prng}
        self.way = way
        self.skip_settled, self.describe = skip_settled, describe
        self.call_intervals = call_intervals or intervals_of_a_call(num_lanes, self.ends, mesh)
        self.call_steps = float("inf") if call_intervals else 16.0

    @property
    def finished(self) -> bool:
        return self.step == self.steps[-1]

    @property
    def lane_steps_per_second(self) -> float:
        """The mean so far, in this process, without compiling."""
        steps, seconds = self.step - self.began[0], self.seconds - self.began[1]
        return self.settled.size * steps / max(seconds, 1e-9)

    def compile(self) -> None:
        """Compiles the loop for the active lanes, by a call without steps; ``advance`` does so if it has not been done.

        That is needed once, and again after settled lanes have left.
        """
        with self._compiling():
            if not self.settled.all():
                self._call(np.zeros((0, 3), np.int32))
                jax.block_until_ready(self.lanes)
                nan_lanes(self.lanes.state)
        self.compiled = True

    def loop_bytes(self) -> int | None:
        """Bytes of the compiled loop's arguments, results and scratch space on all devices; None if JAX cannot say."""
        lowered = lower(*self._arguments(np.zeros((0, 3), np.int32)), **self.options, way=self.way)
        each = call_bytes(lowered.compile())  # what ``compile`` has compiled
        return None if each is None else each * self.options["mesh"].size

    def advance(self) -> None:
        """One host call: some intervals, or a part of one if that takes a second; settled lanes may then leave."""
        if not self.compiled:
            self.compile()
        started, compiling = time.perf_counter(), self.compile_seconds
        self._add(self._next_intervals())
        if _may_leave_at(self.step):
            self._drop_settled()
        seconds = time.perf_counter() - started - (self.compile_seconds - compiling)
        self.seconds += seconds
        self.call_steps = max(1.0, self.call_steps * min(max(_CALL_SECONDS / max(seconds, 1e-6), 1 / 8), 8))

    def release(self) -> None:
        """Frees the devices' memory: only the curves of a finished run are still needed."""
        self.lanes = self.lanes._replace(state=(), sums={}, environment=None, policy=None)  # type: ignore[arg-type]

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that ``restore`` needs, on the host. What changes is copied: it is written while the run continues.

        Padding is left out, since another number of devices needs another padding.
        """
        recorded = int(np.searchsorted(self.steps, self.step, side="right"))
        # Copies: the next call writes its results where the lanes' state is now.
        progress = [np.asarray(leaf) for leaf in jax.tree.leaves((self.lanes.state, self.lanes.sums))]
        return {
            "seconds": np.array(self.seconds),
            "compile_seconds": np.array(self.compile_seconds),
            "active": self.active.copy(),
            "settled": self.settled.copy(),
            **{f"lanes/{i}": np.array(leaf[: self.active.size]) for i, leaf in enumerate(progress)},
            **{f"sums/{name}": values.copy() for name, values in self.sums.items()},
            **{f"per_step/{name}": values.copy() for name, values in self.per_step.items()},
            **{f"curves/{name}": curve[:, :recorded] for name, curve in self.curves.items()},
        }

    def restore(self, step: int, snapshot: dict[str, np.ndarray]) -> None:
        """Continues after ``step`` from a ``snapshot`` of this run, on whatever devices this one has.

        A snapshot whose arrays have other names, shapes or types is refused.
        """
        self._refuse_misfit(step, snapshot)
        self.step, self.seconds = step, float(snapshot["seconds"])
        self.compile_seconds = float(snapshot["compile_seconds"])
        self.began = (self.step, self.seconds)
        self.active, self.settled = snapshot["active"], snapshot["settled"]
        for name in self.sums:
            self.sums[name], self.per_step[name] = snapshot[f"sums/{name}"], snapshot[f"per_step/{name}"]
        for path, curve in snapshot.items():
            if path.startswith("curves/"):
                self._curve(path.removeprefix("curves/"), curve.shape[2:])[:, : curve.shape[1]] = curve
        if 0 < self.active.size < self.settled.size:
            self._shrink(self.active)
        if self.active.size:
            padded = np.resize(np.arange(self.active.size), self.lanes.key.shape[0])
            leaves, structure = jax.tree.flatten((self.lanes.state, self.lanes.sums))
            stored = [snapshot[f"lanes/{i}"].view(leaf.dtype)[padded] for i, leaf in enumerate(leaves)]
            state, sums = jax.tree.unflatten(structure, [spread(leaf, self.options["mesh"]) for leaf in stored])
            self.lanes = self.lanes._replace(state=state, sums=sums)

    def _refuse_misfit(self, step: int, snapshot: dict[str, np.ndarray]) -> None:
        """A ValueError unless the snapshot has all that ``snapshot`` of this run has at ``step``, and nothing else."""
        lanes, active = self.settled.size, snapshot.get("active", np.zeros(0))
        recorded = int(np.searchsorted(self.steps, step, side="right"))
        progress = jax.tree.leaves((self.lanes.state, self.lanes.sums))
        wanted: dict[str, Any] = {"seconds": ((), float), "compile_seconds": ((), float), "settled": ((lanes,), bool)}
        wanted["active"] = (active.shape, np.int64)
        wanted |= {f"lanes/{i}": ((active.size, *leaf.shape[1:]), leaf.dtype) for i, leaf in enumerate(progress)}
        wanted |= {f"{part}/{name}": ((lanes,), float) for part in ("sums", "per_step") for name in self.sums}
        if recorded:
            seen = jax.eval_shape(seen_by, self.probes, self.lanes)
            shapes = dict.fromkeys(self.sums, ()) | {name: values.shape[1:] for name, values in seen.items()}
            wanted |= {f"curves/{name}": ((lanes, recorded, *shape), float) for name, shape in shapes.items()}
        here = {name: f"{np.dtype(dtype).str}{list(shape)}" for name, (shape, dtype) in wanted.items()}
        there = {name: f"{array.dtype.str}{list(array.shape)}" for name, array in snapshot.items()}
        for name in {**here, **there}:
            if here.get(name) != there.get(name):
                got, rule = there.get(name, "missing"), here.get(name, "there")
                raise ValueError(f"checkpoint must be of this run; its {name} is {got}, not {rule}")
        increasing = active.ndim == 1 and (np.diff(active, prepend=-1) > 0).all() and (active < lanes).all()
        if not increasing or not 1 <= step <= self.steps[-1]:
            raise ValueError(f"checkpoint must be of this run; its lanes, or its step {step}, are not")

    def _next_intervals(self) -> np.ndarray:
        """[n, (start, stop, whole)]: what the next call runs. It ends where settled lanes may leave."""
        last_step = self.step + max(1, round(min(self.call_steps, self.steps[-1])))
        rows, start = [], self.step + 1
        for end in self.ends[np.searchsorted(self.ends, self.step, side="right") :]:
            rows.append((start, min(end, last_step) + 1, int(end <= last_step)))
            start = end + 1
            if end >= last_step or len(rows) == self.call_intervals or _may_leave_at(end):
                break
        return np.array(rows, np.int32)

    def _add(self, intervals: np.ndarray) -> None:
        totals = {name: np.zeros((len(intervals), 0)) for name in self.sums}
        newly, seen = np.zeros((len(intervals), 0), bool), {}
        if self.settled.all():
            self.active = self.active[:0]
        else:
            added, flags, looks = self._call(intervals)
            totals = {name: np.asarray(value, np.float64)[:, : self.active.size] for name, value in added.items()}
            seen = {name: np.asarray(values, np.float64)[:, : self.active.size] for name, values in looks.items()}
            newly = np.asarray(flags)[: len(intervals), : self.active.size] & self.skip_settled
            newly &= intervals[:, 2:] == 1
            self._refuse_nan(intervals, totals)
            if (newly.any(axis=0) & ~self.settled[self.active]).any():
                with self._compiling():
                    now = jax.block_until_ready(metrics_now(self.lanes, **self.options))
                for name, value in now.items():
                    self.per_step[name][self.active] = np.asarray(value)[: self.active.size]
        for row, (_, stop, whole) in enumerate(intervals):
            self.step = int(stop) - 1
            if whole:
                self._end_interval(
                    {name: values[row] for name, values in totals.items()},
                    newly[row],
                    {name: values[row] for name, values in seen.items()},
                )

    def _call(self, intervals: np.ndarray) -> Any:
        """Advances the lanes; returns their sums, whether they are settled, and what the probes saw."""
        (state, sums), *recorded = call(*self._arguments(intervals), **self.options, way=self.way)
        self.lanes = self.lanes._replace(state=state, sums=sums)
        return recorded

    def _arguments(self, intervals: np.ndarray) -> tuple[Any, ...]:
        padded = np.pad(intervals, ((0, self.call_intervals - len(intervals)), (0, 0)))  # (0, 0, 0) is empty
        return self.lanes, jnp.asarray(padded), self.probes

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        """Counts the block, which takes hardly longer than to compile what it calls, as compiling."""
        started = time.perf_counter()
        yield
        self.compile_seconds += time.perf_counter() - started

    def _end_interval(self, totals: dict[str, np.ndarray], newly: np.ndarray, seen: dict[str, np.ndarray]) -> None:
        index = int(np.searchsorted(self.ends, self.step))
        width = self.step - (self.ends[index - 1] if index else 0)
        for name, sums_so_far in self.sums.items():
            total = width * self.per_step[name]
            total[self.active] = np.where(self.settled[self.active], total[self.active], totals[name])
            sums_so_far += total
        self.settled[self.active] |= newly
        column = int(np.searchsorted(self.steps, self.step))
        if self.steps[column] == self.step:
            for name, values in {**self.sums, **seen}.items():
                self._curve(name, values.shape[1:])[:, column] = values

    def _refuse_nan(self, intervals: np.ndarray, totals: dict[str, np.ndarray]) -> None:
        """Names the first lane with a NaN or infinite value, in the call in which it appears."""
        broken = {f"metric {name}": ~np.isfinite(values) for name, values in totals.items()}
        if (in_state := nan_lanes(self.lanes.state)) is not None:
            seen_after = np.zeros((len(intervals), self.active.size), bool)
            seen_after[-1] = np.asarray(in_state)[: self.active.size]
            broken["the policy's state"] = seen_after
        for what, flags in broken.items():
            if flags.any():
                row, lane = (int(i) for i in np.argwhere(flags[: len(intervals)])[0])
                first = intervals[0, 0] if what.startswith("the") else intervals[row, 0]
                raise ValueError(
                    f"numbers must stay finite; {what} is NaN or infinite in {self.describe(int(self.active[lane]))}, "
                    f"somewhere in steps {first} to {intervals[row, 1] - 1}"
                )

    def _curve(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.curves.setdefault(name, np.zeros((self.settled.size, len(self.steps), *shape)))

    def _drop_settled(self) -> None:
        """Continues with the lanes that have not settled, if the time saved is worth compiling the loop for them."""
        left = np.flatnonzero(~self.settled[self.active])
        saved = self.active.size - self._active_size(left.size)
        if left.size and saved * (self.steps[-1] - self.step) >= self._worth_compiling():
            self._shrink(left)
            self.active = self.active[left]

    def _worth_compiling(self) -> float:
        """Lane-steps that take as long as compiling: of kernels, which take a minute to compile, a great many."""
        if self.way == "kernel":
            return max(_WORTH_COMPILING, self.compile_seconds * self.lane_steps_per_second)
        return _WORTH_COMPILING

    def _shrink(self, left: np.ndarray) -> None:
        with self._compiling():
            index = np.resize(left, self._active_size(left.size))
            self.lanes = jax.block_until_ready(take_lanes(self.lanes, index, mesh=self.options["mesh"]))
        self.compiled = False

    def _active_size(self, num_lanes: int) -> int:
        """The padded number of lanes after some have left: from a power of two, so that few sizes are compiled."""
        return padded_size(1 << max(num_lanes - 1, 0).bit_length(), self.options["mesh"], lane_bytes(self.lanes))


def interval_ends(steps: np.ndarray) -> np.ndarray:
    """int64[n]: the last steps of the intervals of a run that records ``steps``."""
    return np.union1d(steps, np.arange(_INTERVAL, steps[-1], _INTERVAL))


def intervals_of_a_call(num_lanes: int, ends: np.ndarray, mesh: Mesh) -> int:
    """The number of intervals, of average length, that a call has room for."""
    lane_steps = _CALL_LANE_STEPS.get(platform_of(mesh), _ON_ACCELERATORS)
    return max(1, min(CALL_INTERVALS, lane_steps * len(ends) // (int(ends[-1]) * num_lanes)))


def _may_leave_at(step: int) -> bool:
    """True at steps 1,000, 2,000, 4,000, …, where settled lanes may leave, however long the calls are."""
    thousands, rest = divmod(int(step), _INTERVAL)
    return rest == 0 and thousands.bit_count() == 1
