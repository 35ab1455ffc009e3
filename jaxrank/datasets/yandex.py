"""Click-model parameters of real queries, as JSON: query → model → parameter vectors.

The layout is that of the 60 frequent Yandex queries of the BatchRank and BubbleRank experiments, documents in the
order of a real result page:

    {"<query>": {"CM":  {"attraction": [10 numbers]},
                 "DCM": {"attraction": …, "stop_after_click_by_rank": […]},
                 "PBM": {"attraction": …, "examination": […]}}}
"""

import json
import os
from pathlib import Path
from typing import Any

from jaxrank.registry import make
from jaxrank.types import ClickModel

_FILE = "click_models_60Q.json"
_FIELDS = {  # our field -> the file's key
    "cm": {"attraction": "attraction"},
    "dcm": {"attraction": "attraction", "termination": "stop_after_click_by_rank"},
    "pbm": {"attraction": "attraction", "examination": "examination"},
}


def yandex(path: str | os.PathLike[str], model: str = "cm") -> ClickModel:
    """The click model of every query in a file, items in production order: the base list R₀ is 0, 1, 2, ….

    Args:
      path: the JSON file, the folder that holds click_models_60Q.json, or a folder with yandex-click-models in it.
      model: "cm", "dcm" or "pbm".
    """
    if model not in _FIELDS:
        raise ValueError(f"model must be one of {', '.join(_FIELDS)}; got {model!r}")
    file = _find(Path(path))
    try:
        queries = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not a JSON file: {error}") from None
    if not isinstance(queries, dict) or not queries:
        raise ValueError(f"{file}: must be an object of at least one query; got {type(queries).__name__}")
    parameters = {
        field: [_vector(file, queries, query, model.upper(), key) for query in queries]
        for field, key in _FIELDS[model].items()
    }
    for field, rows in parameters.items():
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"{file}: {model.upper()} {_FIELDS[model][field]} must have one length in all queries")
    try:
        return make(model, kind="click_model", **parameters)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _find(path: Path) -> Path:
    for file in (path, path / _FILE, path / "yandex-click-models" / _FILE):
        if file.is_file():
            return file
    raise ValueError(f"path must be a JSON file or a folder with {_FILE}; there is none at {path}")


def _vector(file: Path, queries: dict[str, Any], query: str, model: str, key: str) -> list[float]:
    try:
        values = queries[query][model][key]
    except (KeyError, TypeError):
        raise ValueError(f"{file}: query {query!r} has no {model} {key}") from None
    if not isinstance(values, list) or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise ValueError(f"{file}: query {query!r}: {model} {key} must be a list of numbers; got {values!r:.60}")
    return values
