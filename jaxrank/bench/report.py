"""The files of a benchmark: JSON lines, a Markdown table, and a picture of lane-steps per second."""

import json
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from jaxrank.core.version import __version__
from jaxrank.output.files import write_text
from jaxrank.output.plotting import save_picture, styles
from jaxrank.output.report import spared
from jaxrank.output.tables import markdown

Row = dict[str, Any]


def machine() -> dict[str, str]:
    """What the numbers were measured on and with."""

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": f"{_processor()}, {cores} cores",
        "devices": ", ".join(sorted({device.device_kind for device in jax.devices()})),
        "driver": _driver(),
        "python": platform.python_version(),
        **{package: of(package) for package in ("jax", "jaxlib", "numba")},
        "jaxrank": __version__,
    }


def listing(about: dict[str, str]) -> str:
    """The machine as one line of text."""
    return ", ".join(f"{key} {value}" for key, value in about.items())


def _driver() -> str:
    """What JAX says about the platform of its devices, and the version of NVIDIA's driver."""
    platform_version = " ".join(jax.devices()[0].client.platform_version.split())
    try:
        driver = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].partition(":")[2].strip()
    except (OSError, IndexError):
        return platform_version
    return f"{platform_version}; {driver}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "policy": ("policy", str),
    "click_model": ("click model", str),
    "num_items": ("L", str),
    "num_lanes": ("lanes", "{:,}".format),
    "num_devices": ("devices", str),
    "num_steps": ("steps", "{:,}".format),
    "way": ("way", str),
    "lane_steps_per_second": ("M lane-steps/s", lambda x: f"{x / 1e6:.2f}"),
    "scalar_lane_steps_per_second": ("scalar loop", lambda x: f"{x / 1e6:.2f}"),
    "ratio": ("ratio", "{:.2f}".format),
    "compile_seconds": ("compile s", "{:.1f}".format),
    "peak_memory_mb": ("peak MB", "{:.0f}".format),
}


def table(rows: Sequence[Row]) -> str:
    """A Markdown table of the rows."""
    shown = [key for key in _COLUMNS if any(key in row for row in rows)]

    def cells(row: Row) -> list[str]:
        text = [_COLUMNS[key][1](row[key]) if key in row else "" for key in shown]
        if row["late"]:
            text[shown.index("num_steps")] = "100,000 to 120,000"
        return text

    return markdown([_COLUMNS[key][0] for key in shown], [cells(row) for row in rows])


def write(rows: Sequence[Row], folder: Path, format: str = "png") -> list[Path]:
    """Writes bench.jsonl, bench.md and a picture into ``folder``; returns their paths."""
    about = machine()
    lines, page, picture = (folder / f"bench.{suffix}" for suffix in ("jsonl", "md", format))
    write_text(lines, "".join(json.dumps({**row, "machine": about}) + "\n" for row in rows))
    write_text(page, f"# Speed\n\n{table(rows)}\n\nMeasured with {listing(about)}.\n")
    with spared("the picture of the measurements"):
        draw(rows, picture)
    return [lines, page, picture]


_DIFFERING = {
    "num_lanes": "lanes",
    "num_items": "L",
    "click_model": "click model",
    "late": "steps",
    "num_devices": "devices",
}
_DASHES = ("-", "--", ":", "-.")
_FILLS = ("full", "none", "left", "top", "right")


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draws speed against the first thing that differs between rows; a line for each policy and what else differs.

    If only the policies differ, there is a point for each.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    rows = [{**row, "late": "late" if row["late"] else "first"} for row in rows]
    differing = [name for name in _DIFFERING if len({row[name] for row in rows}) > 1]
    if not differing:
        speeds = {row["policy"]: row["lane_steps_per_second"] for row in reversed(rows)}  # the first one on top
        axes.plot(list(speeds.values()), list(speeds), "o", color="black")
        axes.set(xscale="log", xlabel=f"lane-steps per second, {rows[0]['num_lanes']:,} lanes")
        axes.grid(alpha=0.3)
        save_picture(figure, path)
        return
    against, *told_apart = differing
    curves: dict[tuple[Any, ...], list[tuple[Any, float]]] = {}
    for row in rows:
        curve = (row["policy"], *(f"{_DIFFERING[name]} {row[name]}" for name in told_apart))
        curves.setdefault(curve, []).append((row[against], row["lane_steps_per_second"]))
    kinds = list(dict.fromkeys(curve[1:] for curve in curves))
    by_policy = styles(policy for policy, *_ in curves)
    by_label = styles(", ".join(curve) for curve in curves)
    for curve, points in curves.items():
        label, kind = ", ".join(curve), kinds.index(curve[1:])
        look = by_label[label]
        if len(kinds) > 1 and len(by_policy) <= 8:  # a colour for each policy, dashes and fill for the rest
            look = by_policy[curve[0]] | {"linestyle": _DASHES[kind % 4], "fillstyle": _FILLS[kind % 5]}
        axes.plot(*zip(*sorted(points), strict=True), label=label, **look | {"markevery": 1, "linewidth": 1})
    axes.set_yscale("log")
    if against in ("num_lanes", "num_items"):
        axes.set_xscale("log")
    axes.set_xlabel(_DIFFERING[against])
    axes.set_ylabel("lane-steps per second")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", handlelength=3, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    save_picture(figure, path)
