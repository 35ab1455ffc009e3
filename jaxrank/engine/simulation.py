"""The public functions: a policy, or several, in an environment, on every lane, for many steps."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrank.core.types import Environment, Policy
from jaxrank.engine import distributed, memory
from jaxrank.engine.checkpoint import run_to_end, saved_shares, share_folder
from jaxrank.engine.task import Probe, prepare
from jaxrank.output import results
from jaxrank.output.progress import progress_bar

if TYPE_CHECKING:
    import xarray


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
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: float | str = 60.0,
    resume: bool = False,
    max_memory: float | None = None,
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
      checkpoint_dir: a folder for checkpoints. SIGTERM and Ctrl-C then save one and raise ``Interrupted``.
      checkpoint_every: seconds between checkpoints, or text such as "5 chunks": that many host calls.
      resume: go on from the checkpoint in ``checkpoint_dir``, if there is one; a finished run is only read.
      max_memory: bytes that the run may use; by default most of what the devices have free. More lanes than fit run
        in groups, one after the other, which changes nothing but the time.

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
    task = prepare(
        policy,
        environment,
        num_steps,
        num_seeds=num_seeds,
        seed=seed,
        prng=prng,
        metrics=metrics,
        num_records=num_records,
        spacing=spacing,
        record_at=record_at,
        instances=instances,
        seeds=seeds,
        skip_settled=skip_settled,
        mesh=mesh,
        chunk_intervals=chunk_intervals,
        probes=probes,
    )
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    shares = folder and saved_shares(folder, resume)
    if not shares:
        shares = jax.process_count() * memory.num_groups(task, max_memory)
    configuration: dict[str, Any] = {}
    if folder or jax.process_count() > 1:  # who runs alone and keeps nothing need not look at all the data
        configuration = {**task.configuration(), "shares": shares}
        distributed.agree(configuration)
    runs = []
    for share in range(jax.process_index(), shares, jax.process_count()):
        numbers = np.array_split(np.arange(task.num_lanes), shares)[share]
        if numbers.size:
            run = task.start(numbers)
            with progress_bar(type(policy).__name__, num_steps, numbers.size, progress) as advance:
                own = None if folder is None else share_folder(folder, share, shares)
                run_to_end(run, advance, own, configuration, checkpoint_every, resume)
            run.release()
            runs.append((numbers, run))
    numbers, curves, wall_time = distributed.gather_curves(runs)

    return results.from_curves(
        curves,
        lanes=numbers,
        grid=task.grid,
        policy=task.policy,
        environment=environment,
        instances=task.instance_ids if task.has_instances else None,
        seeds=task.seed_ids,
        steps=task.steps,
        seed=seed,
        num_steps=num_steps,
        wall_time=wall_time,
    )


def compare(
    policies: Mapping[str, Policy], environment: Environment, num_steps: int, **options: Any
) -> "xarray.Dataset":
    """``simulate`` for each of several named policies, with a leading ``policy`` dimension.

    All policies meet the same random numbers in the same lanes. Options are those of ``simulate``; each policy has
    a folder of its own in ``checkpoint_dir``, and with ``resume`` those that have finished are only read.
    """
    if not policies:
        raise ValueError("policies must name at least one policy; got none")
    folder = options.pop("checkpoint_dir", None)
    runs = {}
    for name, policy in policies.items():
        own = None if folder is None else Path(folder) / quote(name, safe=" ")
        runs[name] = simulate(policy, environment, num_steps, checkpoint_dir=own, **options)
    return results.stack(runs)
