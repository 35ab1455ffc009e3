"""The TOML file of a sweep, read and checked before anything runs: policies × grids × environments, as cells.

    steps = 20_000                      # of each lane; the world's own number if left out
    seeds = 5                           # repetitions of every query or user
    metrics = ["regret", "violations"]  # the world's own if left out
    out = "results/sweep"

    [[policy]]
    name = "bubblerank"                 # the other keys are its options
    grid.delta = [0.1, 0.01, 0.001]     # a number of the policy: all values side by side in one run
    grid.doubling = [false, true]       # a switch: one run for each value
    horizon = 20_000

    [[policy]]
    name = "static"

    [[environment]]
    world = "click"                     # or "topics", "letor": as in jaxrank run, with the same options
    queries = 20
    grid.click_model = ["cm", "pbm"]    # one run for each value

A cell is one policy, with one choice of its switches, in one environment.

Policies, click models and environments of your own are named as in jaxrank run: name = "my_policies.py:ItemTS",
click_model = "my_models.py:RankBiased", world = "package.module:TwoKinds". Paths are relative to the working directory.
Such a name imports the file or module: running a sweep file runs the code that it names, so read what others send you.
"""

import dataclasses
import hashlib
import itertools
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrank.core import own_code, registry
from jaxrank.core.checks import choice, did_you_mean, integer, rectangular, renamed
from jaxrank.core.limits import refuse_beyond
from jaxrank.core.types import Policy
from jaxrank.engine.request import Request, command_default, flags
from jaxrank.engine.task import Task, prepare
from jaxrank.output.files import read_small
from jaxrank.studies import worlds

# The options that hold for all runs of a sweep: those of a request, except those about the machine. Steps and metrics
# are the world's own unless given.
_OPTIONS = {flag.replace("-", "_"): field for flag, field in flags().items() if not field.metadata["of_machine"]}
_OF_WORLD = ("steps", "metrics")
FILE_NAME = re.compile(r"[\w=+@-][\w.=+@-]*")  # of all that a sweep writes into its folder
DEFAULTS = {key: command_default(field) for key, field in _OPTIONS.items() if key not in _OF_WORLD}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    name: str  # e.g. "click queries=20 click_model=cm, bubblerank doubling=false"
    where: str  # its environment
    label: str  # its policy, and the choice of its switches
    settings: tuple[dict[str, Any], ...]  # side by side in this run; one empty dict if there are none
    policy: Policy
    world: worlds.World
    options: dict[str, Any]  # of ``simulate``
    configuration: dict[str, Any]  # as JSON: what must be the same for the cell to be the same

    @property
    def file(self) -> str:
        name = re.sub(r"^\.|[^\w.=+-]+", "_", self.name)
        if len(name.encode()) > 200:  # file systems allow 255
            name = f"{name[:60]}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
        return name + ".nc"

    def task(self) -> Task:
        return prepare(self.policy, self.world.environment, Request(**self.options))


@dataclasses.dataclass(frozen=True)
class Sweep:
    file: Path
    out: Path
    cells: tuple[Cell, ...]


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Reads a sweep's file; a ValueError names the key, its value and what is allowed."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"config must be a TOML file; there is none at {path}")
    try:
        text = read_small(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {str(error)!r:.120}") from None
    try:
        config = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {str(error)!r:.120}") from None
    try:
        return _sweep(path, config)
    except (ValueError, MemoryError, OverflowError) as error:
        message = re.sub(r"--([a-z-]+)", lambda flag: flag[1].replace("-", "_"), str(error))
        if len(message) > 700:  # what is allowed comes first, and what was given last
            message = f"{message[:340]} … {message[-340:]}"
        raise ValueError(f"{path}: {message or 'needs more memory than there is'}") from None


def _sweep(path: Path, config: Mapping[str, Any]) -> Sweep:
    _known("", config, ("out", *_OPTIONS, "policy", "environment"))
    out = _typed("out", config.get("out", "results/sweep"), str)
    given = {key: field.metadata["check"](key, config[key]) for key, field in _OPTIONS.items() if key in config}
    policies = [policy for table in _tables(config, "policy") for policy in _policies(table)]
    labels = [label for label, *_ in policies]
    _distinct("policy", labels)
    environments = [chosen for table in _tables(config, "environment", [{}]) for chosen in _alternatives(table)]
    wheres = [_text(chosen) or "click" for chosen in environments]
    _distinct("environment", wheres)
    refuse_beyond("JAXRANK_MAX_CELLS", "cells (policies × environments)", len(policies) * len(environments))
    cells = []
    for where, chosen in zip(wheres, environments, strict=True):
        world = _world(where, chosen, {label: policy for label, policy, *_ in policies})
        for label, policy, settings, description in policies:
            cells.append(_cell(where, chosen, world, label, policy, settings, description, given))
    _distinct("the names of results files", [cell.file for cell in cells])
    return Sweep(path, Path(out), tuple(cells))


def _cell(
    where: str,
    chosen: dict[str, Any],
    world: worlds.World,
    label: str,
    policy: Policy,
    settings: tuple[dict[str, Any], ...],
    description: dict[str, Any],
    given: dict[str, Any],
) -> Cell:
    asked = {"steps": world.num_steps, "metrics": world.metrics, **DEFAULTS, **given}
    options = {_OPTIONS[key].name: value for key, value in asked.items()} | world.measured(asked["metrics"])
    configuration = {"policy": description, "environment": chosen, **asked, "metrics": list(asked["metrics"])}
    for cls, digest in own_code.code_of((policy, world.environment)).items():
        configuration[f"code of {cls}"] = digest
    cell = Cell(f"{where}, {label}", where, label, settings, world.delayed(policy), world, options, configuration)
    try:
        with renamed({field.name: key for key, field in _OPTIONS.items()}):
            cell.task()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{cell.name:.80}: {error}") from None
    return cell


def _policies(table: dict[str, Any]) -> list[tuple[str, Policy, tuple[dict[str, Any], ...], dict[str, Any]]]:
    """(label, policy, settings, description) for each choice of the switches; numbers are swept inside the policy."""
    name = _typed("policy.name", table.get("name"), str)
    if own_code.source_of(name) is None:
        choice("policy.name", name, registry.available())
    fixed, grid = _parted(f"policy {name}", table)
    fixed.pop("name")
    factory = registry.factory(name)
    fields: dict[str, Any] = {}
    if dataclasses.is_dataclass(factory):
        fields = {field.name: field for field in dataclasses.fields(factory) if field.init}
        _known(f"policy {name}: ", {**fixed, **grid}, tuple(fields))
    registry.refuse_objects(name, [*fixed, *grid])
    for key, value in fixed.items():
        if key in fields and rectangular(key, value).ndim > fields[key].metadata.get("ndim", math.inf):
            raise ValueError(f"policy {name}: {key} must be one value, or several as grid.{key}; got {value!r:.60}")
    numbers = {key: values for key, values in grid.items() if key in fields and fields[key].metadata.get("ndim") == 0}
    settings = tuple(_product(numbers, "JAXRANK_MAX_SETTINGS"))
    made = []
    for switches in _product({key: values for key, values in grid.items() if key not in numbers}):
        columns: dict[str, Any] = {key: [setting[key] for setting in settings] for key in numbers}
        policy = registry.make_of(name, "policy", {**fixed, **switches, **columns})
        description = {"name": name, **fixed, **switches, **({"grid": columns} if columns else {})}
        made.append((_text({"name": name, **fixed, **switches}), policy, settings, description))
    return made


def _world(where: str, chosen: dict[str, Any], policies: dict[str, Policy]) -> worlds.World:
    options = dict(chosen)
    name = _typed("environment.world", options.pop("world", "click"), str)
    if name in worlds.OPTIONS:
        options = _world_options(name, options)
    elif own_code.source_of(name) is None:
        choice("environment.world", name, registry.available("environment"))
    try:
        return worlds.make_world(name, policies, **options)
    except (ValueError, TypeError) as error:
        raise ValueError(f"environment {where:.80}: {error}") from None


def _world_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a world of jaxrank's own, checked."""
    _known(f"environment {name}: ", options, worlds.OPTIONS[name])
    types: dict[str, Any] = {"data": str, "click_model": str, "trade_off": (int, float), "user": list}
    types |= {"reference": str, "normalize_relevance": bool}
    types |= {"change": str, "delay": (int, str), "corrupt": (int, float, str)}
    for key, value in options.items():
        if key in types:
            _typed(f"environment.{key}", value, types[key])
        else:
            options[key] = integer(f"environment.{key}", value)
    if not all(isinstance(user, str) for user in options.get("user", [])):
        raise ValueError(f"environment.user must be a list of names; got {options['user']!r:.60}")
    return options


def _alternatives(table: dict[str, Any]) -> list[dict[str, Any]]:
    fixed, grid = _parted("environment", table)
    return [{**fixed, **chosen} for chosen in _product(grid)]


def _parted(name: str, table: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The fixed keys of a table, and its grid."""
    fixed = dict(table)
    grid = _typed(f"{name}: grid", fixed.pop("grid", {}), dict)
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{name}: grid.{key} must be a list of at least one value; got {values!r:.60}")
        if key in fixed:
            raise ValueError(f"{name}: {key} must be given once; it is in the grid too")
        _distinct(f"{name}: grid.{key}", [repr(value) for value in values])
    return fixed, grid


def _product(grid: Mapping[str, Sequence[Any]], most: str = "JAXRANK_MAX_CELLS") -> list[dict[str, Any]]:
    """All combinations, as many as the limit ``most`` allows."""
    refuse_beyond(
        most, f"the combinations of {', '.join(f'grid.{key}' for key in grid)}", math.prod(map(len, grid.values()))
    )
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _tables(config: Mapping[str, Any], key: str, default: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    tables = config.get(key, default)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{key} must be at least one table [[{key}]]; got {tables!r:.60}")
    return tables


def _known(prefix: str, table: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in table:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise ValueError(f"{prefix}keys must be among {', '.join(allowed) or 'none'}; got {key!r:.60}{hint}")


def _typed(key: str, value: Any, wanted: Any) -> Any:
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        words = {str: "text", list: "a list", dict: "a table", (int, float): "a number"}
        words |= {(int, str): "a number or text", (int, float, str): "a number or text"}
        raise ValueError(f"{key} must be {words[wanted]}; got {value!r:.60}")
    return value


def _distinct(what: str, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{what} must not repeat; got {name:.60} twice")


def _text(chosen: Mapping[str, Any]) -> str:
    """For people and file names: "bubblerank doubling=false"."""
    words = {True: "true", False: "false"}
    return " ".join(
        str(value) if key in ("name", "world") else f"{key}={words[value] if isinstance(value, bool) else value}"
        for key, value in chosen.items()
    )
