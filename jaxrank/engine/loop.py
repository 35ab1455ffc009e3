"""The host's loop: one run from its start, or from its checkpoint, to its end."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrank.engine.checkpoint import Checkpoints
from jaxrank.engine.run import Run
from jaxrank.output.files import locked
from jaxrank.output.progress import Progress


class Interrupted(KeyboardInterrupt):
    """A run was told to stop (SIGTERM, Ctrl-C) and has saved a checkpoint first."""


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
    """``run_to_end``, saved in ``folder`` on the way; from the checkpoint there if it is to ``resume``."""
    with (
        locked(folder, "checkpoint_dir"),
        Checkpoints(folder, configuration, every) as checkpoints,
        stop_signals() as stop,
    ):
        if resume and (found := checkpoints.load()) is not None:
            run.restore(*found)
        while not run.finished:
            _advance(run, progress)
            stopping = stop.is_set()
            if stopping or run.finished or checkpoints.due():
                checkpoints.save(run.step, run.snapshot(), wait=stopping or run.finished)
            if stopping and not run.finished:
                raise Interrupted(
                    f"interrupted at step {run.step:,} of {run.steps[-1]:,}; its checkpoint is in {folder}"
                )


def _advance(run: Run, progress: Progress) -> None:
    if not run.compiled:
        progress.compiling()  # which ``advance`` does first
    run.advance()
    progress.at(run.step, run.lane_steps_per_second)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event set by SIGTERM or the first Ctrl-C; a second signal acts as usual."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield event
        return
    usual = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

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
