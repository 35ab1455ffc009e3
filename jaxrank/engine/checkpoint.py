"""Checkpoints of a run: written in the background, atomically; the last two are kept, and any other run refuses them.

A checkpoint is one .npz file of the arrays of ``Run.snapshot`` with the configuration of the run as JSON. Policy and
environment are not stored: the caller gives them again, and digests tell whether they are the same. A thread writes to
a temporary name, flushes and renames, so a run killed at any moment leaves only whole files. The checksums of the .npz
members reveal a file that was damaged on disk; the checkpoint before it is then used.

Why not orbax: each process keeps its own lanes on its own devices and saves them without asking the others, so that a
dead peer cannot spoil a checkpoint. In a job of several processes orbax (0.12) saves arrays of the whole job together,
behind barriers, and writes NumPy arrays in process 0 only.
"""

import json
import os
import re
import time
import warnings
import zipfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from jaxrank.engine.identity import differences
from jaxrank.output.files import atomic_path

_KEPT = 2
_CONFIGURATION = "configuration"


class Checkpoints:
    """The checkpoints of one run, or of one process's share of it, in one folder."""

    def __init__(self, folder: Path, configuration: Mapping[str, Any], every: float | str) -> None:
        self.folder, self.configuration = folder, dict(configuration)
        self.calls = int(every.split()[0]) if isinstance(every, str) else None
        self.seconds = 0.0 if isinstance(every, str) else every
        self.last_time, self.last_call = time.monotonic(), 0
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None
        for left_over in folder.glob(".step-*"):  # temporary files of a run that was killed while it wrote
            left_over.unlink(missing_ok=True)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self._finish(warn=True)
        self.writer.shutdown()

    def steps(self) -> list[int]:
        """The steps of the checkpoints in the folder, ascending."""
        return saved_steps(self.folder)

    def load(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """The latest (step, snapshot) that can be read; None if there is no checkpoint at all."""
        damaged = []
        for step in reversed(self.steps()):
            path = self._path(step)
            try:
                with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                    stored = json.loads(str(file[_CONFIGURATION]))
                    snapshot = {name: file[name] for name in file.files if name != _CONFIGURATION}
            except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
                reason = str(error).strip().split("\n")[0] or type(error).__name__
                warnings.warn(f"checkpoint {path} is damaged and left out: {reason}", RuntimeWarning, stacklevel=3)
                damaged.append(path)
                continue
            self._refuse_another(stored)
            for path in damaged:  # so that they do not count among the last two
                path.rename(path.with_name(f"damaged-{path.name}"))
            return step, snapshot
        if damaged:
            raise ValueError(
                f"checkpoint_dir must hold a checkpoint that can be read; all of {self.folder} are damaged: "
                "remove them to start again"
            )
        return None

    def due(self) -> bool:
        """Whether to save now; to be asked once after every call of the host."""
        self.last_call += 1
        if self.calls is not None:
            return self.last_call % self.calls == 0
        waiting = self.pending is not None and not self.pending.done()
        return not waiting and time.monotonic() - self.last_time >= self.seconds

    def save(self, step: int, snapshot: dict[str, np.ndarray], wait: bool = False) -> None:
        """Writes in the background, after the previous checkpoint; with ``wait``, returns when the file is there."""
        self._finish(warn=not wait)
        self.last_time = time.monotonic()
        self.pending = self.writer.submit(self._write, step, snapshot)
        if wait:
            self._finish(warn=False)

    def _finish(self, warn: bool) -> None:
        if self.pending is None:
            return
        pending, self.pending = self.pending, None
        try:
            pending.result()
        except (OSError, ValueError) as error:
            message = f"checkpoint_dir must be writable; cannot write a checkpoint to {self.folder}: {error}"
            if not warn:
                raise ValueError(message) from None
            warnings.warn(f"{message}; the run continues without it", RuntimeWarning, stacklevel=3)

    def _write(self, step: int, snapshot: dict[str, np.ndarray]) -> None:
        arrays = snapshot | {_CONFIGURATION: np.array(json.dumps(self.configuration))}
        with atomic_path(self._path(step)) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        for old in self.steps()[:-_KEPT]:
            self._path(old).unlink(missing_ok=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:010}.npz"

    def _refuse_another(self, stored: Mapping[str, Any]) -> None:
        differing = differences(stored, self.configuration)
        if differing:
            listing = "; ".join(f"{name} is {there!r} there and {here!r} here" for name, there, here in differing)
            raise ValueError(f"checkpoint_dir must hold a checkpoint of this run; in {self.folder} {listing}")


def share_folder(folder: Path, share: int, shares: int) -> Path:
    """The folder of the checkpoints of one share of the lanes."""
    return folder / f"lanes-{share}-of-{shares}"


def saved_shares(folder: Path, resume: bool) -> int | None:
    """The number of shares that the lanes of the run in ``folder`` are divided into; None if there is no such run."""
    found = {int(path.name.rpartition("-")[2]) for path in folder.glob("lanes-*-of-*") if saved_steps(path)}
    if found and not resume:
        raise ValueError(f"checkpoint_dir must be empty, or resume must be set; {folder} holds the run of another call")
    if len(found) > 1:
        raise ValueError(f"checkpoint_dir must hold one run; {folder} has runs divided into {sorted(found)} shares")
    return next(iter(found), None)


def saved_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in ``folder``, ascending."""
    found = (re.fullmatch(r"step-(\d+)\.npz", path.name) for path in folder.glob("step-*.npz"))
    return sorted(int(match[1]) for match in found if match)
