"""Checkpoints of a run: written in the background, sealed; the last two are kept, and any other run refuses them.

A checkpoint is one file of the arrays of ``Run.snapshot`` with the step and the configuration of the run. Policy and
environment are not stored: the caller gives them again, and digests tell whether they are the same. A thread writes it
as ``output/files.py`` does, so a run killed at any moment leaves only whole files, and reads it back from the disk
before it removes an older one. A damaged checkpoint is set aside, and the one before it is used.

Why not orbax: each process keeps its own lanes on its own devices and saves them without asking the others, so that a
dead peer cannot spoil a checkpoint. In a job of several processes orbax (0.12) saves arrays of the whole job together,
behind barriers, and writes NumPy arrays in process 0 only.
"""

import json
import re
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from jaxrank.engine.identity import differences
from jaxrank.output.arrays import load_arrays, save_arrays
from jaxrank.output.files import remove, set_aside, unsealed

_KEPT = 2


class Checkpoints:
    """The checkpoints of one run, or of one process's share of it, in one folder."""

    def __init__(self, folder: Path, configuration: Mapping[str, Any], every: float | str) -> None:
        self.folder, self.configuration = folder, json.loads(json.dumps(configuration))
        self.calls = int(every.split()[0]) if isinstance(every, str) else None
        self.seconds = 0.0 if isinstance(every, str) else every
        self.last_time, self.last_call = time.monotonic(), 0
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self._finish()
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
                about, snapshot = load_arrays(path)
                if not isinstance(about, dict) or not isinstance(about.get("configuration"), dict):
                    raise ValueError("it does not say of which run it is")
                if about.get("step") != step:
                    raise ValueError(f"it is that of step {about.get('step')!r:.20}")
            except (OSError, ValueError) as error:
                warnings.warn(f"checkpoint {path} is damaged and left out: {error}", RuntimeWarning, stacklevel=3)
                damaged.append(path)
                continue
            self._refuse_another(about["configuration"])
            for path in damaged:  # so that they do not count among the last two
                set_aside(path)
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
        """Writes in the background, after the previous checkpoint; with ``wait``, returns when that is done.

        If a checkpoint cannot be written, a warning says so and the run continues: its results are worth more.
        """
        self._finish()
        self.last_time = time.monotonic()
        self.pending = self.writer.submit(self._write, step, snapshot)
        if wait:
            self._finish()

    def _finish(self) -> None:
        if self.pending is None:
            return
        pending, self.pending = self.pending, None
        try:
            pending.result()
        except (OSError, ValueError) as error:
            warnings.warn(
                f"checkpoint_dir must be writable; cannot write a checkpoint to {self.folder}: {error}; the run "
                "continues without it",
                RuntimeWarning,
                stacklevel=3,
            )

    def _write(self, step: int, snapshot: dict[str, np.ndarray]) -> None:
        path = self._path(step)
        save_arrays(path, {"step": step, "configuration": self.configuration}, snapshot)
        try:
            with unsealed(path, fresh=True):  # before an older one is removed
                pass
        except (OSError, ValueError) as error:
            set_aside(path)
            raise ValueError(f"{path}, read back: {error}") from None
        for old in self.steps()[:-_KEPT]:
            remove(self._path(old))

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:010}.arrays"

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
    named = ((re.fullmatch(r"lanes-\d{1,7}-of-(\d{1,7})", path.name), path) for path in folder.glob("lanes-*-of-*"))
    found = {int(match[1]) for match, path in named if match and saved_steps(path)}
    if any(folder.glob("lanes-*-of-*/step-*.npz")):
        raise ValueError(
            f"checkpoint_dir must hold checkpoints of this version; those in {folder} are of jaxrank 0.1.0, whose "
            "damage cannot be told: finish the run with that version, or remove them to start again"
        )
    if found and not resume:
        raise ValueError(f"checkpoint_dir must be empty, or resume must be set; {folder} holds the run of another call")
    if len(found) > 1:
        raise ValueError(f"checkpoint_dir must hold one run; {folder} has runs divided into {sorted(found)} shares")
    return next(iter(found), None)


def saved_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in ``folder``, ascending."""
    found = (re.fullmatch(r"step-(\d{10})\.arrays", path.name) for path in folder.glob("step-*.arrays"))
    return sorted(int(match[1]) for match in found if match)
