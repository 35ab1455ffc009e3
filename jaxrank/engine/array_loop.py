"""A call as an XLA loop over arrays [lanes, …]: what CPUs run, and accelerators where a lane is large.

A call is a scan over intervals of a loop over steps of the one-lane step mapped over lanes. Every device runs it on its
own share of the lanes, and a CPU core on a part of its share at a time, one that stays in its cache.

On a CPU, the loop over steps is compiled into one function where that is possible (``layout.py``). If a step ends with
a rare branch, that is the loop up to the next step in which some lane takes the branch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxrank.core import random
from jaxrank.core.batching import lanes_minor, layouts
from jaxrank.core.types import Array
from jaxrank.engine.lanes import (
    BY_INTERVAL,
    SHARED,
    Lanes,
    Sums,
    for_each_step,
    lane_axes,
    lane_bytes,
    map_lanes,
    on_mesh,
    one_step,
    over_lanes,
    platform_of,
    seen_by,
    settled_lanes,
)
from jaxrank.engine.layout import ForCpu, as_one_kernel, fits_one_kernel, unrolled

# Bytes of a part: the lanes that a CPU core takes through all steps of a call before it turns to the next part.
_IN_CACHE = 5 * 2**19
_VECTOR = 16  # lanes; a large part has an odd multiple of it (``padded_size``)
_FEWEST, _MOST = 15, 127  # vectors of a part, whatever their bytes
_BLOCKS = (7, 9, 5, 11, 13, 15)  # vectors of a part that goes through its steps in one kernel, best first

Words = random.StepWords
Progress = tuple[Lanes, Words, Sums]  # before a step: the lanes, its random words, and the sums so far


@partial(jax.jit, static_argnames=("metrics", "mesh", "prng"))
def run_arrays(
    lanes: Lanes, intervals: Array, probes: dict[str, Any], *, metrics: tuple[str, ...], mesh: Mesh, prng: str
) -> tuple[Any, dict[str, Array], Array, dict[str, Array]]:
    """Advances every lane through ``intervals`` [n, (start, stop, whole)]; the last is not ``whole`` if cut short.

    Returns:
      The lanes' state with the sums of the interval that was cut short; the sums of the metrics in each interval
      [n, lanes]; whether each lane was settled at its end [n, lanes]; and what the probes saw there [n, lanes, …].
    """
    on_cpu = platform_of(mesh) == "cpu"

    def run(lanes: Lanes, intervals: Array, probes: dict[str, Any], steps: Callable[..., tuple[Lanes, Sums]]) -> Any:
        def look(lanes: Lanes) -> tuple[Array, dict[str, Array]]:
            return settled_lanes(lanes), seen_by(probes, lanes)

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
        loop = StepLoop(lanes, metrics, prng, on_cpu)
        parts = _num_parts(lanes.key.shape[0], mesh, lane_bytes(lanes))
        steps = loop.in_kernels(lanes) if on_cpu else None
        if steps is not None:
            parts = _num_blocks(lanes.key.shape[0], parts)
        if parts == 1:
            return run(lanes, intervals, probes, steps or loop.steps)
        leaves, structure = jax.tree.flatten(lanes)
        axes = lane_axes(lanes)
        split = (parts, lanes.key.shape[0] // parts)
        own = [leaf.reshape(*split, *leaf.shape[1:]) for leaf, axis in zip(leaves, axes, strict=True) if axis == 0]

        def run_part(own: list[Array]) -> Any:
            part = iter(own)
            leaves_of_part = [next(part) if axis == 0 else leaf for leaf, axis in zip(leaves, axes, strict=True)]
            return run(jax.tree.unflatten(structure, leaves_of_part), intervals, probes, steps or loop.steps)

        progress, *recorded = jax.lax.map(run_part, own)
        recorded = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), recorded)  # [intervals, parts, lanes, …]
        merge = partial(jax.lax.collapse, start_dimension=0, stop_dimension=2)
        merge_recorded = partial(jax.lax.collapse, start_dimension=1, stop_dimension=3)
        return jax.tree.map(merge, progress), *jax.tree.map(merge_recorded, recorded)

    with layouts(on_cpu):
        return on_mesh(run_parts, mesh, lanes, SHARED, SHARED, out_specs=BY_INTERVAL)(lanes, intervals, probes)


class StepLoop:
    """The loop over steps, start to stop − 1, of lanes such as these: a function of (start, stop, lanes, sums)."""

    def __init__(self, lanes: Lanes, metrics: tuple[str, ...], prng: str, on_cpu: bool) -> None:
        self.metrics, self.on_cpu = metrics, on_cpu
        self.step = partial(one_step, metrics=metrics, prng=prng)
        self.for_cpu = ForCpu(self.step, len(jax.tree.leaves((lanes.policy, lanes.environment))))

    def steps(self, start: Array, stop: Array, lanes: Lanes, sums: Sums) -> tuple[Lanes, Sums]:
        if not self.on_cpu:
            return for_each_step(start, stop, self._on_accelerator, (lanes, sums))
        words, fixed = self._first(lanes, start)

        def body(t: Array, progress: Progress) -> Progress:
            return self._advance(self._one, t, progress, fixed)[0]

        lanes, _, sums = jax.lax.fori_loop(start, stop, body, (lanes, words, sums))
        return lanes, sums

    def in_kernels(self, lanes: Lanes) -> Callable[..., tuple[Lanes, Sums]] | None:
        """``steps`` as one kernel, or as kernels between rare branches; None if a CPU can have neither."""
        t = jnp.int32(0)
        if fits_one_kernel(self.steps, t, t, lanes, lanes.sums):
            return as_one_kernel(self.steps)
        words, fixed = self._first(lanes, t)
        if self.for_cpu.rare_branch(*_first_lane(lanes, words), t) is None:
            return None
        fits = fits_one_kernel(self._until_a_branch, t, t, (lanes, words, lanes.sums), fixed)
        return self._between_branches if fits else None

    def _between_branches(self, start: Array, stop: Array, lanes: Lanes, sums: Sums) -> tuple[Lanes, Sums]:
        words, fixed = self._first(lanes, start)
        branch = cast(Callable[..., Any], self.for_cpu.rare_branch(*_first_lane(lanes, words), start))

        def body(carry: tuple[Array, Progress]) -> tuple[Array, Progress]:
            t, (lanes, words, sums), read = as_one_kernel(self._until_a_branch)(carry[0], stop, carry[1], fixed)
            return t, (lanes._replace(state=jax.vmap(branch)(lanes.state, read)), words, sums)

        first = (start, (lanes, words, sums))
        _, (lanes, _, sums) = jax.lax.while_loop(lambda carry: carry[0] < stop, body, first)
        return lanes, sums

    def _until_a_branch(
        self, start: Array, stop: Array, progress: Progress, fixed: list[Array]
    ) -> tuple[Array, Progress, list[Array]]:
        """Steps up to one in which some lane takes its rare branch, which is still to be done, or to ``stop``.

        Returns:
          The next step, the progress so far, and what the branch reads, first of all which lanes take it.
        """

        def more(carry: tuple[Array, Progress, list[Array]]) -> Array:
            return (carry[0] < stop) & ~_any_of(carry[2][0])

        def body(carry: tuple[Array, Progress, Any]) -> tuple[Array, Progress, list[Array]]:
            return carry[0] + 1, *self._advance(self.for_cpu.common, carry[0], carry[1], fixed)

        read = jax.tree.map(jnp.zeros_like, jax.eval_shape(body, (start, progress, None))[2])
        return jax.lax.while_loop(more, body, (start, progress, read))

    def _on_accelerator(self, t: Array, carry: tuple[Lanes, Sums]) -> tuple[Lanes, Sums]:
        """A step that draws its own words, so that a GPU draws them and makes the first use of them in one kernel."""
        lanes, sums = carry
        state, _, _, measured = over_lanes(unrolled(self.step), lanes, _draw(lanes, t), t, shared=1)
        return lanes._replace(state=state), self._added(sums, measured)

    def _one(self, lane: Lanes, fixed: list[Array], words: Words, t: Array) -> tuple[Any, list[Array]]:
        return self.for_cpu(lane, fixed, words, t), []

    def _advance(
        self, function: Callable[..., Any], t: Array, progress: Progress, fixed: list[Array]
    ) -> tuple[Progress, list[Array]]:
        """A step by ``function``: what is carried to the next one, and what else the function returns."""
        lanes, words, sums = progress
        lanes = map_lanes(lanes_minor, lanes)  # constant leaves too: only what is carried keeps its layout in the loop
        (state, _, _, measured), rest = over_lanes(function, lanes, fixed, words, t, shared=1)
        lanes = map_lanes(lanes_minor, lanes._replace(state=state))
        return (lanes, _draw(lanes, t + 1), self._added(sums, measured)), rest

    def _added(self, sums: Sums, measured: dict[str, Array]) -> Sums:
        return {name: sums[name].add(measured[name]) for name in self.metrics}

    def _first(self, lanes: Lanes, start: Array) -> tuple[Words, list[Array]]:
        """The words of the first step, and what does not change from step to step."""
        words = _draw(lanes, start)
        return words, over_lanes(self.for_cpu.fixed, map_lanes(lanes_minor, lanes), words, start, shared=1)


def _draw(lanes: Lanes, t: Array) -> Words:
    return jax.vmap(random.step_words, in_axes=(0, None))(lanes.key, t)


def _first_lane(lanes: Lanes, words: Words) -> tuple[Lanes, Words]:
    return map_lanes(lambda leaf: leaf[0], lanes), jax.tree.map(lambda leaf: leaf[0], words)


def _any_of(flags: Array) -> Array:
    """``flags.any()`` by halves, which a kernel of ``as_one_kernel`` can have."""
    while flags.shape[0] > 1:
        half = flags.shape[0] // 2
        flags = flags[: flags.shape[0] - half] | flags[half:]  # the middle one of an odd number counts twice
    return flags[0]


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
