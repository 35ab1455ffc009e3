"""Sweeps: every cell of a TOML file, once, in one folder, however often it is interrupted.

The folder has a results file of each finished cell, manifest.json (every cell, its state, its file, its configuration),
summary.md, a picture of each metric, and report.html. A finished cell is not run again, and is refused if its
configuration has changed since; an interrupted cell continues from its checkpoint; a failed cell is tried again.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from jaxrank.core.checks import choice, switch
from jaxrank.core.version import __version__
from jaxrank.engine import memory
from jaxrank.engine.compiled_code import forget_if_much
from jaxrank.engine.estimation import Estimate, estimate, estimate_like
from jaxrank.engine.identity import differences
from jaxrank.engine.request import Request
from jaxrank.engine.simulation import simulate
from jaxrank.output import results
from jaxrank.output.files import (
    UnwritableError,
    locked,
    refuse_links,
    remove,
    remove_folder,
    remove_tree,
    write_json,
    write_text,
)
from jaxrank.output.page import write_page
from jaxrank.output.plotting import FORMATS, Entries, draw_curves, legend_below, panels, save_picture, styles
from jaxrank.output.report import spared
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.studies.folders import MANIFEST, REPORT, by_policy, settings_of, stored_manifest, sweep_content
from jaxrank.studies.sweep_files import DEFAULTS, FILE_NAME, Cell, Sweep, read_sweep

if TYPE_CHECKING:
    import xarray


class SweepReport(NamedTuple):
    """The outcome of a sweep."""

    out: Path
    table: str  # Markdown
    failed: dict[str, str]  # cell -> error
    skipped: int  # cells that had finished before


def sweep(
    config: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
    max_memory: float | None = Request.max_memory,
    checkpoint_every: float | str = Request.checkpoint_every,
    overwrite: bool = False,
    format: str = "png",
    report: bool = True,
) -> SweepReport:
    """Runs all cells of ``config`` that have not finished yet.

    Args:
      config: a TOML file, as ``jaxrank.studies.sweep_files`` describes it.
      out: the folder for the files, instead of that of the config.
      progress: print a line for each cell, and show progress bars.
      max_memory: as in ``simulate``.
      checkpoint_every: likewise; an interrupted cell continues from its checkpoint.
      overwrite: remove what an earlier sweep has left in the folder, and run all cells again. Without it, finished
        cells stay as they are, and files that are not those of a sweep are never replaced.
      format: of the pictures, "png", "pdf" or "svg".
      report: write report.html, too.
    """
    choice("format", format, FORMATS)
    planned = read_sweep(config)
    folder = planned.out if out is None else Path(out)
    overwrite = switch("overwrite", overwrite)
    with locked(folder):
        _refuse_files_of_others(folder, planned)
        if overwrite:
            _remove_old(folder)
        manifest = _manifest(folder, planned)
        skipped = 0
        for number, cell in enumerate(planned.cells, start=1):
            entry = manifest["cells"][cell.name]
            title = f"[{number}/{len(planned.cells)}] {cell.name}"
            if entry["state"] == "done":
                skipped += 1
                remove_tree(_checkpoints(folder, cell.file))  # if it was killed before it could
                continue
            started = time.perf_counter()
            try:
                _run(cell, folder, progress, max_memory, checkpoint_every)
                entry |= {"state": "done", "seconds": round(time.perf_counter() - started, 3), "error": None}
            except Exception as error:  # the other cells still run
                reason = str(error).strip().split("\n")[0] or type(error).__name__
                if not isinstance(error, ValueError):
                    reason = f"{type(error).__name__}: {reason}"
                entry |= {"state": "failed", "error": reason}
            try:
                _write_manifest(folder, manifest)
            except UnwritableError as error:  # the cell's checkpoint, which says that it has finished, stays
                warnings.warn(f"{error}; the sweep continues", RuntimeWarning, stacklevel=2)
            else:
                if entry["state"] == "done":
                    remove_tree(_checkpoints(folder, cell.file))
            if progress:
                said = f"{entry['seconds']:.1f} s" if entry["state"] == "done" else f"failed: {entry['error']}"
                print(f"{title}: {said}", file=sys.stderr, flush=True)
        remove_folder(folder / "checkpoints")  # it stays if cells that failed have left some
        table = _summary(planned, folder, manifest, format)
        if switch("report", report):
            with spared("the report"):
                write_page(folder / REPORT, sweep_content(folder))
    errors = {name: entry["error"] for name, entry in manifest["cells"].items() if entry["state"] == "failed"}
    return SweepReport(folder, table, errors, skipped)


def estimate_sweep(
    config: str | os.PathLike[str], max_memory: float | None = None, seconds: float = 20.0
) -> list[tuple[str, Estimate]]:
    """The estimate of each cell, from trials that are started in these ``seconds``, at least one.

    A trial has to be compiled, which takes most of its time, so cells that are alike share one: those of one kind of
    policy whose lanes have about the same size. When the time is up, the other cells have the pace of the last trial of
    their kind of policy or, if there was none, of the slowest trial.
    """
    started = time.perf_counter()
    tried: list[tuple[type, int, Estimate]] = []  # (kind of policy, bytes of a lane, estimate)
    estimates = []
    for cell in read_sweep(config).cells:
        kind, lane = type(cell.policy), memory.size(cell.task().lane_shapes(1))
        same = [(size, known) for of, size, known in tried if of is kind]
        alike = [known for size, known in same if size / 2 <= lane <= size * 2]
        options = {"max_memory": max_memory, **cell.options}
        if not tried or not (alike or time.perf_counter() - started > seconds):
            one = estimate(cell.policy, cell.world.environment, calibration_seconds=0.5, **options)
            tried.append((kind, lane, one))
        else:
            slowest = max((known for *_, known in tried), key=lambda known: known.lane_step_seconds)
            known = [slowest, *(known for _, known in same), *alike][-1]
            one = estimate_like(cell.policy, cell.world.environment, Request(**options), known)
        estimates.append((cell.name, one))
    return estimates


def _run(cell: Cell, folder: Path, progress: bool, max_memory: float | None, every: float | str) -> None:
    checkpoints = _checkpoints(folder, cell.file)
    refuse_links(folder, checkpoints)
    forget_if_much()
    result = simulate(
        cell.policy,
        cell.world.environment,
        progress=progress,
        checkpoint_dir=checkpoints,
        checkpoint_every=every,
        resume=True,
        max_memory=max_memory,
        **cell.options,
    )
    results.save(result, folder / cell.file, overwrite=True)


def _checkpoints(folder: Path, file: str) -> Path:
    """The folder of the checkpoints of the cell with this file."""
    return folder / "checkpoints" / file.removesuffix(".nc")


def _files(cells: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """The names of all files that a sweep writes but its manifest, for cells of these (file, metrics)."""
    names = {"summary.md": None, REPORT: None}
    for file, metrics in cells:
        names |= dict.fromkeys([file, *(f"{metric}.{kind}" for metric in metrics for kind in FORMATS)])
    return list(names)


def _old_files(folder: Path) -> list[str]:
    """The names of the files that the sweeps of the manifest in ``folder`` write."""
    cells = stored_manifest(folder)["cells"].values()
    names = _files((cell["file"], cell["configuration"]["metrics"]) for cell in cells) if cells else []
    return [name for name in names if FILE_NAME.fullmatch(name)]


def _refuse_files_of_others(folder: Path, planned: Sweep) -> None:
    names = _files((cell.file, cell.configuration["metrics"]) for cell in planned.cells)
    others = [folder / name for name in names if name not in _old_files(folder) and (folder / name).exists()]
    if others:
        raise ValueError(
            f"out must not hold other results; there is {others[0]}, which is not of a sweep: choose another folder, "
            "or remove it"
        )


def _remove_old(folder: Path) -> None:
    """Removes what sweeps have left in ``folder``, and nothing else."""
    for name in _old_files(folder):
        remove(folder / name)
        remove_tree(_checkpoints(folder, name))
    remove(folder / MANIFEST)


def _manifest(folder: Path, planned: Sweep) -> dict[str, Any]:
    """The manifest of the folder, with the cells of ``planned``; cells that are no longer planned stay as they are."""
    manifest = stored_manifest(folder)
    for cell in planned.cells:
        before = manifest["cells"].get(cell.name)
        if before and before["state"] == "done":
            _refuse_changed(folder, cell, before["configuration"])
    manifest |= {"jaxrank": __version__, "jax": jax.__version__, "command": f"jaxrank sweep {planned.file}"}
    for cell in planned.cells:
        entry = manifest["cells"].setdefault(cell.name, {"state": "waiting", "error": None})
        entry |= {"file": cell.file, "where": cell.where, "label": cell.label}
        entry |= {"configuration": json.loads(json.dumps(cell.configuration))}
        if entry["state"] == "done":
            try:
                results.load(folder / cell.file)
            except ValueError:  # lost or damaged
                entry["state"] = "waiting"
    _write_manifest(folder, manifest)
    return manifest


def _refuse_changed(folder: Path, cell: Cell, before: dict[str, Any]) -> None:
    differing = differences(DEFAULTS | before, json.loads(json.dumps(cell.configuration)))
    if differing:
        listing = "; ".join(f"{key} was {then!r} and is {now!r}" for key, then, now in differing)
        raise ValueError(
            f"a finished cell must keep its configuration; for {cell.name!r} in {folder}, {listing}: "
            "choose another folder, or run all cells again (--force, overwrite=True)"
        )


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    write_json(folder / MANIFEST, manifest)


def _summary(planned: Sweep, folder: Path, manifest: dict[str, Any], format: str) -> str:
    """Writes summary.md and the pictures of all finished cells; returns the table."""
    finished: dict[str, list[xarray.Dataset]] = {}
    rows, metrics = [], []
    for cell in planned.cells:
        entry = manifest["cells"][cell.name]
        if entry["state"] != "done":
            rows.append([cell.where, cell.label, f"{entry['state']}: {entry['error']}".replace("|", "/")])
            continue
        result = by_policy(cell.label, settings_of(cell.configuration), results.load(folder / cell.file))
        finished.setdefault(cell.where, []).append(result)
        metrics += [str(name) for name in result.data_vars if name not in metrics]
        for policy in result["policy"].values:
            rows.append([cell.where, str(policy), *(_final(result, metric, policy) for metric in result.data_vars)])
    width = 2 + max(1, len(metrics))
    table = markdown(["environment", "policy", *metrics][:width], [row + [""] * (width - len(row)) for row in rows])
    with spared("summary.md"):
        write_text(folder / "summary.md", f"# Sweep\n\n{table}\n\njaxrank {__version__}, jax {jax.__version__}.\n")
    for metric in metrics:
        with spared(f"the picture of {metric}"):
            _picture(finished, metric, folder / f"{metric}.{format}")
    return table


def _final(result: "xarray.Dataset", metric: Any, policy: Any) -> str:
    return plus_minus(*results.mean_and_error(result[metric].sel(policy=policy).isel(step=-1)))


def _picture(finished: dict[str, list["xarray.Dataset"]], metric: str, path: Path) -> None:
    """A panel for each environment, a line for each policy and setting."""
    import xarray

    shown = {where: [run[[metric]] for run in runs if metric in run] for where, runs in finished.items()}
    shown = {where: runs for where, runs in shown.items() if runs}
    figure, axes = panels(len(shown))
    looks = styles(str(policy) for runs in shown.values() for run in runs for policy in run["policy"].values)
    entries: Entries = {}
    for ax, (where, runs) in zip(axes, shown.items(), strict=True):
        together = xarray.concat(runs, dim="policy", join="outer", combine_attrs="drop")
        entries |= draw_curves(ax, together, metric, title=where, looks=looks)
    legend_below(figure, entries)
    save_picture(figure, path)
