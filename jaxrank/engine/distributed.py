"""Several processes, on one machine or many: each runs its share of the lanes on its own devices.

Lanes never communicate, so processes communicate only twice: at the start, to check that they run the same thing, and
at the end, to gather the curves. A lane has the same number, and so the same random numbers, as in a run of a single
process. In between, JAX's coordination service watches the processes: when one dies, it ends the others within about
20 s. Each process has its own checkpoints (``checkpoint.py``), from which ``jaxrank resume`` continues with the same
number of processes, with fewer, which then run several shares one after the other, or with more, of which some have
nothing to run.

What processes send each other is arrays and JSON, and never code. But whoever can reach the coordinator's port can join
a run and spoil it: JAX's coordination service knows no passwords. So run on a network that only you can reach.

Two processes on one machine (``scripts/cluster-demo``):

    jaxrank run --checkpoint runs/a --distributed --coordinator 127.0.0.1:9876 --num-processes 2 --process-id 0 &
    jaxrank run --checkpoint runs/a --distributed --coordinator 127.0.0.1:9876 --num-processes 2 --process-id 1

SLURM, where JAX finds the coordinator and the numbers itself (as on Kubernetes and Cloud TPU):

    #!/bin/bash
    #SBATCH --nodes=4 --ntasks-per-node=1 --signal=TERM@120 --requeue
    if [ -e runs/a/run.json ]; then srun jaxrank resume runs/a --distributed --out results
    else srun jaxrank run --checkpoint runs/a --distributed --steps 1000000 --seeds 1000; fi

The same in a program: ``jr.distributed.start()`` before anything else uses JAX, then ``simulate`` as usual, and
``jr.distributed.leave()`` at the end.
"""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxrank.engine.identity import differences
from jaxrank.engine.run import Run
from jaxrank.output.arrays import pack, unpack

GATHER_BYTES = 2**30  # of curves that are gathered; of more, every process keeps its own
_LANES = ""  # the name of the lanes' numbers among the curves, which no metric has
_HEARTBEAT_SECONDS = 20  # of silence, until a process counts as dead
_PATIENCE_SECONDS = 20  # to wait for the others to end

# A process that outlives this one, which JAX aborts when a peer dies: it prints a clear last line for the user.
_WITNESS = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
last = sys.stdin.read().splitlines()[-1]
if last != "done":
    print(last, file=sys.stderr, flush=True)
"""
_witness: "subprocess.Popen[str] | None" = None


def start(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    kept: str = "its checkpoints are kept, if it has any",
) -> None:
    """Joins the other processes of a run.

    Args:
      coordinator: HOST:PORT of process 0; this and the next two are detected on SLURM, Kubernetes and Cloud TPU.
      num_processes: the number of processes.
      process_id: the number of this process, from 0.
      kept: what remains of the run if this process is lost, for the message that is then printed.
    """
    global _witness
    given = [coordinator, num_processes, process_id]
    if any(value is None for value in given) and any(value is not None for value in given):
        raise ValueError(
            "coordinator, num_processes and process_id must be given together, or none of them; got "
            f"{coordinator!r}, {num_processes!r}, {process_id!r}"
        )
    if coordinator is not None and not coordinator.rpartition(":")[2].isdecimal():
        raise ValueError(f"coordinator must look like HOST:PORT; got {coordinator!r}")
    on_this_machine = (coordinator or "").rpartition(":")[0] in ("127.0.0.1", "localhost")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from ``loop.py``
    _witness = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WITNESS], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    lost = f"ended early: it was killed, or JAX ended it because another process died (see above); {kept}"
    _tell_witness(f"jaxrank: a process that was joining the others {lost}")
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            coordinator_bind_address=coordinator if on_this_machine else None,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=2 * _PATIENCE_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        _tell_witness("done")
        _witness = None
        reason = " ".join(str(error).split())
        raise ValueError(f"coordinator must be reached by all processes, or be detected; {reason}") from None
    _tell_witness(f"jaxrank: process {jax.process_index()} of {jax.process_count()} {lost}")


def what_is_kept(again: str | None) -> str:
    """What remains of a run that the command ``again`` continues, or of one without checkpoints, for messages."""
    if again is None:
        return "nothing was kept, as there is no checkpoint folder"
    return f"checkpoints are kept, continue with: {again}"


def leave(code: int = 0, wait: bool = True) -> None:
    """Ends this process with ``code``, if it has joined others; with ``wait``, waits for them first, at most 20 s."""
    if _witness is None:
        return
    sys.stdout.flush()
    sys.stderr.flush()

    def end() -> None:
        _tell_witness("done")
        os._exit(code)

    if wait:
        impatience = threading.Timer(_PATIENCE_SECONDS, end)  # before JAX aborts
        impatience.daemon = True
        impatience.start()
        jax.distributed.shutdown()
    end()


def gather(value: Any) -> list[Any]:
    """The ``value``, which is any JSON, of every process, in the order of their numbers."""
    return [about for about, _ in _gather_arrays(value, {})]


def _gather_arrays(about: Any, arrays: Mapping[str, np.ndarray]) -> list[tuple[Any, Mapping[str, np.ndarray]]]:
    """(about, arrays) of every process."""
    if jax.process_count() == 1:
        return [(about, arrays)]
    from jax.experimental.multihost_utils import process_allgather

    # Bytes, because JAX would round float64 to float32.
    own = np.frombuffer(b"".join(pack(about, arrays)), np.uint8)
    sizes = np.asarray(process_allgather(np.array([own.size], np.int32))).ravel()
    everyone = np.asarray(process_allgather(np.pad(own, (0, sizes.max() - own.size))))
    return [unpack(io.BytesIO(row[:size].tobytes()), int(size)) for row, size in zip(everyone, sizes, strict=True)]


def gather_curves(
    runs: list[tuple[np.ndarray, Run]],
) -> tuple[np.ndarray, dict[str, np.ndarray], tuple[float, float]]:
    """Lane numbers and their curves: of all processes, or of this one if the curves are large.

    And the seconds of running and of compiling, of the process that took longest.
    """
    own: dict[str, np.ndarray] = {}
    if runs:
        own = {name: np.concatenate([run.curves[name] for _, run in runs]) for name in runs[0][1].curves}
        own[_LANES] = np.concatenate([numbers for numbers, _ in runs])
    taken = sum(run.seconds for _, run in runs), sum(run.compile_seconds for _, run in runs)
    sizes, seconds = zip(*gather((sum(array.nbytes for array in own.values()), taken)), strict=True)
    shares = [own]
    if sum(sizes) <= GATHER_BYTES:
        shares = [dict(arrays) for _, arrays in _gather_arrays(None, own) if arrays]
    curves = {name: np.concatenate([share[name] for share in shares]) for name in (shares or [{}])[0]}
    numbers = curves.pop(_LANES, np.zeros(0, int))
    order = np.argsort(numbers)
    return numbers[order], {name: curve[order] for name, curve in curves.items()}, max(seconds, key=sum)


def agree(configuration: Mapping[str, Any]) -> None:
    """Raises a ValueError if the processes were asked for different runs."""
    first, *others = gather(json.loads(json.dumps(configuration)))
    for number, other in enumerate(others, start=1):
        for name, here, there in differences(first, other):
            raise ValueError(f"all processes must run the same: {name} is {here!r} in process 0, {there!r} in {number}")


def _tell_witness(line: str) -> None:
    if _witness is not None and _witness.stdin is not None:
        _witness.stdin.write(line + "\n")
        _witness.stdin.flush()
