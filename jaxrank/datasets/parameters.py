"""Click-model parameters of real queries, as JSON: query → model → parameters.

The layout is that of the 60 frequent Yandex queries of the BatchRank and BubbleRank experiments, documents in the
order of a real result page; ``jaxrank fit`` writes it too:

    {"<query>": {"CM":  {"attraction": [10 numbers]},
                 "DCM": {"attraction": …, "stop_after_click_by_rank": [10 numbers]},
                 "PBM": {"attraction": …, "examination": [10 numbers]},
                 "UBM": {"attraction": …, "examination_rank_by_prevclick": [10 × 10 numbers, last column: no click]},
                 "DBN": {"attraction": …, "satisfaction": [10 numbers], "abandon": 1 − γ},
                 "CCM": {"attraction": …, "cont_noclick": τ1, "cont_click_nonrel": τ2, "cont_click_rel": τ3}}}

The other models have the names of their fields. What ``jaxrank fit`` writes has ``"documents"`` too, the ids of a
query's items; queries may then have different numbers of them.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrank.core.checks import integer
from jaxrank.core.pytrees import take_instances
from jaxrank.core.registry import available, make, required_fields
from jaxrank.core.types import ClickModel
from jaxrank.datasets.sessions import SessionLog
from jaxrank.output.files import read_small, write_text

_FILE = "click_models_60Q.json"
_KEYS = {  # our field -> the file's key
    "cm": {"attraction": "attraction"},
    "dcm": {"attraction": "attraction", "termination": "stop_after_click_by_rank"},
    "pbm": {"attraction": "attraction", "examination": "examination"},
    "ubm": {"attraction": "attraction", "examination_after": "examination_rank_by_prevclick"},
    "dbn": {"attraction": "attraction", "satisfaction": "satisfaction", "continuation": "abandon"},
    "ccm": {
        "attraction": "attraction",
        "tau1": "cont_noclick",
        "tau2": "cont_click_nonrel",
        "tau3": "cont_click_rel",
    },
}
_PER_ITEM = ("attraction", "satisfaction", "relative_rate")


def _layout(model: str) -> tuple[str, dict[str, str]]:
    """The section of a click model in the file, and {our field: the file's key}; a field with a default is not read."""
    if model in _KEYS:
        return model.upper(), _KEYS[model]
    section = model.upper() if model in available("click_model") else model.rpartition(":")[2]
    return section, {field: field for field in required_fields(model, kind="click_model")}


def yandex(
    path: str | os.PathLike[str], model: str = "cm", *, num_items: int | None = None, **given: Any
) -> ClickModel:
    """The click model of every query in a file, items in production order: the base list R₀ is 0, 1, 2, ….

    Args:
      path: the JSON file, the folder that holds click_models_60Q.json, or a folder with yandex-click-models in it.
      model: the name of a click model as in ``jr.make``. The parameters of one of your own are in the file under its
        own name, without the file or module that it is in, and the names of its fields; a field with a default is not
        read.
      num_items: L, the number of items of every query, the first ones; by default, as many as every query has.
      given: parameters of the click model that are not read from the file.
    """
    section, keys = _layout(model)
    file = _find(Path(path))
    queries = _read(file)
    fewest = min(len(ids) for ids in _documents(file, queries)) if _has_documents(queries) else None
    if num_items is not None:
        num_items = integer("num_items", num_items, 1, fewest, " items, which every query has")
    parameters = dict(given)
    for field, key in keys.items():
        if field in given:
            continue
        rows = [_numbers(file, queries, query, section, key) for query in queries]
        if field in _PER_ITEM and (num_items or fewest):
            rows = [row[: num_items or fewest] for row in rows]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(f"{file}: {section} {key} must have one shape in all queries")
        parameters[field] = _complement(key, np.stack(rows))
    return _made(file, model, parameters)


def fitted_to(path: str | os.PathLike[str], model: str, log: SessionLog) -> ClickModel:
    """The click model of a file for the queries and items of a log, as ``evaluate`` takes it.

    A pair of query and document that the file does not have gets the mean of all that it has.

    Args:
      path: a file with the ids of documents, as ``jaxrank fit`` writes it.
      model: the name of a click model.
      log: the log.
    """
    section, keys = _layout(model)
    file = _find(Path(path))
    queries = _read(file)
    if not _has_documents(queries):
        raise ValueError(f"{file}: must have the documents of every query, as jaxrank fit writes them")
    items = {
        query: {document: item for item, document in enumerate(map(str, ids))}
        for query, ids in zip(queries, _documents(file, queries), strict=True)
    }
    parameters = {}
    for field, key in keys.items():
        rows = {query: _numbers(file, queries, query, section, key) for query in queries}
        if field not in _PER_ITEM:
            parameters[field] = _complement(key, next(iter(rows.values())))  # one for all queries
            continue
        mean = np.concatenate(list(rows.values())).mean(axis=0)
        table = np.broadcast_to(mean, (len(log.queries), log.num_items, *mean.shape)).copy()
        for index, (query, shown) in enumerate(log.queries.items()):
            for item, document in enumerate(map(str, shown.documents)):
                if document in items.get(query, {}):
                    table[index, item] = rows[query][items[query][document]]
        parameters[field] = table
    return _made(file, model, parameters)


def save_parameters(
    path: str | os.PathLike[str], models: Mapping[str, ClickModel], documents: Mapping[str, Sequence[Any]]
) -> None:
    """Writes click models of several queries in the layout of ``yandex``.

    Args:
      path: the JSON file.
      models: click models with a query axis, by their names.
      documents: the ids of every query's items, by the name of the query, in the order of the query axis.
    """
    content: dict[str, dict[str, Any]] = {}
    for row, (query, ids) in enumerate(documents.items()):
        content[query] = {"documents": np.asarray(ids).tolist()}
        for name, model in models.items():
            section, keys = _layout(name)
            one = take_instances(model, row)
            parameters = content[query][section] = {}
            for field, key in keys.items():
                values = _complement(key, np.asarray(getattr(one, field), np.float64))
                parameters[key] = np.round(values[: len(ids)] if field in _PER_ITEM else values, 7).tolist()
    write_text(path, json.dumps(content, indent=1))


def parameter_sections(path: str | os.PathLike[str]) -> list[str]:
    """The names of the registered click models that a file has parameters of."""
    file = _find(Path(path))
    first = next(iter(_read(file).values()))
    return [name for name in available("click_model") if isinstance(first, dict) and _layout(name)[0] in first]


def _made(file: Path, model: str, parameters: dict[str, Any]) -> ClickModel:
    try:
        return make(model, kind="click_model", **parameters)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        text = read_small(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from None
    try:
        queries = json.loads(text)
    except (ValueError, RecursionError) as error:  # also by numbers of thousands of digits, and by deep nesting
        raise ValueError(f"{file}: not a JSON file: {error}") from None
    if not isinstance(queries, dict) or not queries:
        raise ValueError(f"{file}: must be an object of at least one query; got {type(queries).__name__}")
    return queries


def _has_documents(queries: dict[str, Any]) -> bool:
    return any(isinstance(of_query, dict) and "documents" in of_query for of_query in queries.values())


def _documents(file: Path, queries: dict[str, Any]) -> list[list[Any]]:
    """The ids of every query's items."""
    found = []
    for name, of_query in queries.items():
        ids = of_query.get("documents") if isinstance(of_query, dict) else None
        if not isinstance(ids, list) or not ids or any(isinstance(i, list | dict) for i in ids):
            raise ValueError(f"{file}: query {name!r:.60} must have documents, a list of ids; got {ids!r:.60}")
        found.append(ids)
    return found


def _complement(key: str, values: np.ndarray) -> np.ndarray:
    """The file stores the probability of leaving, the model that of continuing."""
    return 1 - values if key == "abandon" else values


def _find(path: Path) -> Path:
    for file in (path, path / _FILE, path / "yandex-click-models" / _FILE):
        if file.exists() and not file.is_dir():
            return file
    raise ValueError(f"path must be a JSON file or a folder with {_FILE}; there is none at {path}")


def _numbers(file: Path, queries: dict[str, Any], query: str, model: str, key: str) -> np.ndarray:
    try:
        of_query = queries[query]
        values = of_query[model][key]
    except (KeyError, TypeError):
        raise ValueError(f"{file}: query {query!r} has no {model} {key}") from None
    try:
        numbers = np.asarray(values)
    except ValueError:
        numbers = np.asarray("ragged")
    if numbers.dtype.kind not in "if":
        raise ValueError(f"{file}: query {query!r}: {model} {key} must be numbers; got {values!r:.60}")
    if key in _PER_ITEM and "documents" in of_query and numbers.shape[:1] != (len(of_query["documents"]),):
        raise ValueError(f"{file}: query {query!r}: {model} {key} must have one value for each of its documents")
    return numbers.astype(np.float64)
