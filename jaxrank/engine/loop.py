"""The host's loop: one run from its start, or from its checkpoint, to its end."""

import contextlib
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrank.engine.checkpoint import Checkpoints
from jaxrank.engine.run import Run
from jaxrank.output.files import UnwritableError, locked
from jaxrank.output.progress import Progress


class Interrupted(KeyboardInterrupt):
    """A run was told to stop (SIGTERM, SIGHUP, Ctrl-C) and has saved a checkpoint first."""


def run_to_end(run: Run, progress: Progress) -> None:
    """Takes ``run`` to its end, and tells ``progress`` its step after every call of the host."""
    while not run.finished:
        _advance(run, progress)


def run_with_checkpoints(
    run: Run,
    progress: Progress,
    folder: Path,
    configuration: Mapping[str, Any],
    every: float | str,
    resume: bool,
) -> None:
    """``run_to_end``, saved in ``folder`` on the way; from the checkpoint there if it is to ``resume``.

    A folder that cannot be written costs the checkpoints, and never the run.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, "checkpoint_dir"))
        except UnwritableError as error:
            warnings.warn(f"{error}; the run continues without checkpoints", RuntimeWarning, stacklevel=2)
            return run_to_end(run, progress)
        checkpoints = stack.enter_context(Checkpoints(folder, configuration, every))
        stop = stack.enter_context(stop_signals())
        if resume and (found := checkpoints.load()) is not None:
            run.restore(*found)
        while not run.finished:
            _advance(run, progress)
            stopping = stop.is_set()
            if stopping or run.finished or checkpoints.due():
                checkpoints.save(run.step, run.snapshot(), wait=stopping or run.finished)
            if stopping and not run.finished:
                last = checkpoints.steps()[-1:]
                kept = f"its checkpoint is in {folder}"
                if last != [run.step]:
                    kept = f"the last checkpoint in {folder} is of step {last[0]:,}" if last else "nothing was saved"
                raise Interrupted(f"interrupted at step {run.step:,} of {run.steps[-1]:,}; {kept}")


def _advance(run: Run, progress: Progress) -> None:
    if not run.compiled:
        progress.compiling()  # which ``advance`` does first
    run.advance()
    progress.at(run.step, run.lane_steps_per_second)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event set by SIGTERM, SIGHUP or the first Ctrl-C; a second signal acts as usual.

    SIGHUP, which a terminal sends when it is closed, stays ignored where it was: under nohup.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield event
        return
    usual = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        usual[int(signal.SIGHUP)] = signal.getsignal(signal.SIGHUP)

    def handle(number: int, frame: Any) -> None:
        event.set()
        signal.signal(number, usual[number])

    for number in usual:
        signal.signal(number, handle)
    try:
        yield event
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
