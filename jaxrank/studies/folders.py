"""What a folder of results holds, as the content of a report: a run, a sweep or the figures of papers."""

import itertools
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrank.output import results
from jaxrank.output.charts import Lines
from jaxrank.output.files import read_json
from jaxrank.output.page import Content
from jaxrank.output.plotting import lines_of, parts_of
from jaxrank.output.results import REPEATED
from jaxrank.output.tables import counted

if TYPE_CHECKING:
    import xarray

MANIFEST = "manifest.json"
REPORT = "report.html"
_PANELS = 12  # at most, of one chart
_SHOWN = {  # attributes of a result, in the order of the report
    "command": "command",
    "data": "data",
    "scale": "scale",
    "environment": "environment",
    "num_steps": "steps",
    "root_seed": "root seed",
    "jaxrank_version": "jaxrank",
    "jax_version": "jax",
    "python_version": "Python",
    "machine": "machine",
    "devices": "devices",
    "wall_time_seconds": "seconds in all",
    "compile_seconds": "seconds of compiling",
    "lane_steps_per_second": "lane-steps per second",
}


def content_of(folder: Path) -> Content:
    """The content of a report of ``folder``, or of a results file; a ValueError if there is nothing to report on."""
    if folder.is_file():
        return figure_content(folder) if (folder.with_suffix(".md")).is_file() else run_content(folder)
    if (folder / MANIFEST).is_file():
        return sweep_content(folder)
    if (folder / "run.nc").is_file():
        return run_content(folder / "run.nc")
    figures = [file for file in sorted(folder.glob("*.nc")) if file.with_suffix(".md").is_file()]
    if not figures:
        raise ValueError(f"folder must be that of a run, a sweep or a figure; {folder} has no results")
    if len(figures) > 1:
        named = ", ".join(str(file) for file in figures)
        raise ValueError(f"folder must have one figure, or be the results file of one; there are {named}")
    return figure_content(figures[0])


def run_content(file: Path) -> Content:
    """The report of a results file of ``jaxrank run``, or of one that ``jr.save`` wrote."""
    result = results.load(file)
    name = file.parent.resolve().name if file.name == "run.nc" else file.stem
    return Content(name, _sizes(result), curves_of(result), {"": facts_of(result.attrs)})


def figure_content(file: Path) -> Content:
    """The report of a figure that ``jaxrank reproduce`` wrote, from its results file."""
    result = results.load(file)
    notes = file.with_suffix(".md").read_text(encoding="utf-8").partition("\n")[2]
    pictures = [file.with_suffix(kind) for kind in (".png", ".svg")]
    picture = next((path for path in pictures if path.is_file()), None)
    facts = {"": facts_of(result.attrs)}
    return Content(file.stem, _sizes(result), curves_of(result), facts, notes=notes, picture=picture)


def sweep_content(folder: Path) -> Content:
    """The report of a sweep, finished or not."""
    manifest = stored_manifest(folder)
    curves: dict[str, dict[str, dict[str, Any]]] = {}
    waiting, attributes, configurations = {}, [], {}
    for name, entry in manifest["cells"].items():
        configurations[name] = json.dumps(entry["configuration"], ensure_ascii=False)
        if entry["state"] != "done":
            waiting[name] = f"{entry['state']}: {entry['error']}" if entry.get("error") else entry["state"]
            continue
        result = results.load(folder / entry["file"])
        attributes.append(result.attrs)
        result = by_policy(entry.get("label", name), settings_of(entry["configuration"]), result)
        for metric, panels in curves_of(result).items():
            for title, lines in panels.items():
                where = ", ".join(filter(None, [entry.get("where", ""), title]))
                curves.setdefault(metric, {}).setdefault(where, {}).update(lines)
    done = len(manifest["cells"]) - len(waiting)
    common = {
        key: value for key, value in (attributes[0] if attributes else {}).items()
        if all(each.get(key) == value for each in attributes)
    }  # fmt: skip
    common |= {"command": manifest["command"]} if "command" in manifest else {}
    facts = {"": facts_of(common), "Configuration of each cell": configurations}
    about = f"sweep: {done} of {counted(len(manifest['cells']), 'cell')} done"
    return Content(folder.resolve().name, about, curves, facts, waiting=waiting)


def compared(contents: Mapping[str, Content]) -> Content:
    """One report of several: the lines of all in the same panels, each label with the name of its folder."""
    curves: dict[str, dict[str, dict[str, Any]]] = {}
    facts: dict[str, Mapping[str, str]] = {}
    waiting: dict[str, str] = {}
    for name, content in contents.items():
        for metric, panels in content.curves.items():
            for title, lines in panels.items():
                of_panel = curves.setdefault(metric, {}).setdefault(title, {})
                of_panel.update({f"{label} ({name})": curve for label, curve in lines.items()})
        facts |= {f"{name} {heading}".strip(): named for heading, named in content.facts.items()}
        waiting |= {f"{cell} ({name})": state for cell, state in content.waiting.items()}
    title = " and ".join(contents)
    about = "; ".join(f"{name}: {content.about}" for name, content in contents.items())
    return Content(title, about, curves, facts, waiting=waiting)


def curves_of(result: "xarray.Dataset") -> dict[str, dict[str, Lines]]:
    """metric -> panel -> label -> curve, of every variable that is a curve.

    Panels are click models or users with names; where there are several policies, so are the settings they share.
    """
    curves: dict[str, dict[str, Lines]] = {}
    for metric, whole in result.data_vars.items():
        name = str(metric)
        own = any(str(dim).startswith(f"{name}_") for dim in whole.dims)  # a probe with axes of its own
        if "step" not in whole.dims or own or whole.dtype.kind not in "iuf" or name.startswith("error_"):
            continue
        for title, part in parts_of(result[[metric]]).items():
            for setting, chosen in _settings(part, part[metric]).items():
                panel = ", ".join(filter(None, [title, setting]))
                chosen.attrs = result.attrs
                curves.setdefault(name, {})[panel] = lines_of(chosen, chosen[metric])
    return curves


def _settings(result: "xarray.Dataset", curve: "xarray.DataArray") -> dict[str, "xarray.Dataset"]:
    """The parts of a result with a ``policy`` dimension by its other settings, unless those are too many for panels."""
    dims = [dim for dim in curve.dims if dim not in (*REPEATED, "policy", "step")]
    indices = list(itertools.product(*(range(curve.sizes[dim]) for dim in dims)))
    if "policy" not in curve.dims or len(indices) > _PANELS:
        return {"": result}
    named = {}
    for index in indices:
        part = result.isel(dict(zip(dims, index, strict=True)))
        named[", ".join(f"{dim} = {part[dim].item()}" for dim in dims)] = part
    return named


def facts_of(attributes: Mapping[Any, Any]) -> dict[str, str]:
    """How a result was made, from its attributes."""
    facts = {}
    for key, name in _SHOWN.items():
        if key in attributes:
            value = attributes[key]
            number = f"{value:,.1f}" if isinstance(value, float) else f"{value}"
            facts[name] = number if key != "num_steps" else f"{int(value):,}"
    return facts | _policies(str(attributes.get("policy", "")))


def _policies(text: str) -> dict[str, str]:
    """A line for each policy of the attribute, which is JSON where there are several."""
    try:
        named = json.loads(text)
        return {f"policy {label}": str(policy) for label, policy in named.items()}
    except (ValueError, AttributeError):
        return {"policy": text} if text else {}


def _sizes(result: "xarray.Dataset") -> str:
    sizes = " × ".join(counted(size, re.sub("_", " ", str(dim))) for dim, size in result.sizes.items() if dim != "step")
    recorded = f", recorded at {counted(result.sizes['step'], 'step')}" if "step" in result.sizes else ""
    return sizes + recorded


def stored_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the sweeps in ``folder``; without cells if there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return {"cells": {}}
    try:
        manifest, sealed = read_json(path)
        if set(manifest) - {"command"} != {"jaxrank", "jax", "cells"}:
            raise ValueError("it has other members")
        for entry in manifest["cells"].values():
            metrics = entry["configuration"]["metrics"]
            if not all(isinstance(text, str) for text in (entry["state"], entry["file"], *metrics)):
                raise ValueError("a cell has no text where it must")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, ValueError) else "a cell lacks something"
        raise ValueError(f"{path}: not a manifest of a sweep: {why}; remove it, or choose another folder") from None
    if not sealed:
        warnings.warn(
            f"{path} is of jaxrank 0.1.0, and has no checksum to tell damage by", RuntimeWarning, stacklevel=2
        )
    return manifest


def settings_of(configuration: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The settings that a cell runs side by side; none if it sweeps nothing."""
    grid = configuration["policy"].get("grid", {})
    return [dict(zip(grid, values, strict=True)) for values in zip(*grid.values(), strict=True)]


def by_policy(label: str, settings: Iterable[Mapping[str, Any]], result: "xarray.Dataset") -> "xarray.Dataset":
    """The result of a cell with a ``policy`` dimension, an entry for each setting."""
    settings = list(settings)
    if not settings:
        return result.expand_dims(policy=[label])
    swept = next(iter(result.data_vars.values())).dims[0]
    labels = [f"{label} {' '.join(f'{key}={value}' for key, value in setting.items())}" for setting in settings]
    return result.drop_vars(list(settings[0])).rename_dims({swept: "policy"}).assign_coords(policy=labels)
