"""The public functions: a policy, or several, in an environment, on every lane, for many steps."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jax
import numpy as np

from jaxrank.core.checks import renamed
from jaxrank.core.types import Environment, Policy
from jaxrank.engine import distributed, memory
from jaxrank.engine.checkpoint import saved_shares, share_folder
from jaxrank.engine.identity import configuration
from jaxrank.engine.loop import run_to_end, run_with_checkpoints
from jaxrank.engine.request import Request, takes_request
from jaxrank.engine.task import Task, prepare
from jaxrank.output import results
from jaxrank.output.files import refuse_links, require_folder
from jaxrank.output.progress import progress_bar

if TYPE_CHECKING:
    import xarray


@takes_request(Request)
def simulate(policy: Policy, environment: Environment, request: Request) -> "xarray.Dataset":
    """Runs ``policy`` in ``environment`` for ``num_steps`` steps on every lane and returns cumulative curves.

    Args:
      policy: a policy. Leaves with a leading axis are a sweep: one more dimension of the result, run in parallel.
      environment: an environment. Its instance axis, if it has one, is a dimension of the result.
      {request}

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
    return _carry_out(_claimed(prepare(policy, environment, request)))


def _claimed(task: Task) -> Task:
    """The task, whose folder for checkpoints, if it has one, is made: before any work, in case that it cannot be."""
    if task.request.checkpoint_dir is not None:
        require_folder(task.request.checkpoint_dir, "checkpoint_dir")
    return task


def _carry_out(task: Task) -> "xarray.Dataset":
    request = task.request
    folder = None if request.checkpoint_dir is None else Path(request.checkpoint_dir)
    shares = folder and saved_shares(folder, request.resume)
    if not shares:
        shares = jax.process_count() * memory.num_shares(task)
    described: dict[str, Any] = {}
    if folder or jax.process_count() > 1:  # a single process without checkpoints skips hashing the data
        described = {**configuration(task), "shares": shares}
        distributed.agree(described)
    runs = []
    for share in range(jax.process_index(), shares, jax.process_count()):
        numbers = np.arange(*(task.num_lanes * end // shares for end in (share, share + 1)))
        if not numbers.size:
            continue
        run = task.start(numbers)
        with progress_bar(type(task.policy).__name__, request.num_steps, request.progress) as progress:
            if folder is None:
                run_to_end(run, progress)
            else:
                own = share_folder(folder, share, shares)
                refuse_links(folder, own)
                run_with_checkpoints(run, progress, own, described, request.checkpoint_every, request.resume)
        run.release()
        runs.append((numbers, run))
    numbers, curves, (seconds, compile_seconds) = distributed.gather_curves(runs)

    return results.from_curves(
        curves,
        lanes=numbers,
        grid=task.grid,
        policy=task.policy,
        environment=task.environment,
        instances=task.instance_ids if task.has_instances else None,
        seeds=task.seed_ids,
        steps=task.steps,
        seed=request.seed,
        num_steps=request.num_steps,
        seconds=seconds,
        compile_seconds=compile_seconds,
        way=str(task.way),
    )


@takes_request(Request)
def compare(policies: Mapping[str, Policy], environment: Environment, request: Request) -> "xarray.Dataset":
    """``simulate`` for each of several named policies, with a leading ``policy`` dimension.

    All policies have the same random numbers in the same lanes. All are checked before the first one runs. Each policy
    has a folder of its own in ``checkpoint_dir``, and with ``resume`` those that have finished are only read.

    Args:
      policies: policies by name.
      environment: as in ``simulate``, and so are the options.
      {request}
    """
    if not isinstance(policies, Mapping):
        raise ValueError(f"policies must be a dict of policies by name; got a {type(policies).__name__}")
    if not policies:
        raise ValueError("policies must name at least one policy; got none")
    tasks = {}
    for name, policy in policies.items():
        if not isinstance(name, str):
            raise ValueError(f"policies must have names that are text; got {name!r}")
        folder = None
        if request.checkpoint_dir is not None:
            folder = folder_of(Path(request.checkpoint_dir), name)
            refuse_links(Path(request.checkpoint_dir), folder)
        with renamed({"policy": f"policies[{name!r}]"}):
            tasks[name] = prepare(policy, environment, dataclasses.replace(request, checkpoint_dir=folder))
    for task in tasks.values():
        _claimed(task)
    return results.stack({name: _carry_out(task) for name, task in tasks.items()})


def folder_of(folder: Path, name: str) -> Path:
    """The folder, inside of ``folder`` whatever the name is, of the checkpoints of the policy of this name."""
    quoted = quote(name, safe=" ")
    return folder / (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted or "%")
