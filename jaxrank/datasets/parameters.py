"""Click-model parameters of real queries, as JSON: query → model → parameters.

The layout is that of the 60 frequent Yandex queries of the BatchRank and BubbleRank experiments, documents in the
order of a real result page; ``jaxrank fit`` writes it too:

    {"<query>": {"CM":  {"attraction": [10 numbers]},
                 "DCM": {"attraction": …, "stop_after_click_by_rank": [10 numbers]},
                 "PBM": {"attraction": …, "examination": [10 numbers]},
                 "UBM": {"attraction": …, "examination_rank_by_prevclick": [10 × 10 numbers, last column: no click]},
                 "DBN": {"attraction": …, "satisfaction": [10 numbers], "abandon": 1 − γ},
                 "CCM": {"attraction": …, "cont_noclick": τ1, "cont_click_nonrel": τ2, "cont_click_rel": τ3}}}
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrank.core.pytrees import take_instances
from jaxrank.core.registry import make, required_fields
from jaxrank.core.types import ClickModel
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
_PER_ITEM = ("attraction", "satisfaction")


def yandex(path: str | os.PathLike[str], model: str = "cm", **given: Any) -> ClickModel:
    """The click model of every query in a file, items in production order: the base list R₀ is 0, 1, 2, ….

    Args:
      path: the JSON file, the folder that holds click_models_60Q.json, or a folder with yandex-click-models in it.
      model: "cm", "dcm", "pbm", "ubm", "dbn" or "ccm", or another click model as in ``jr.make``. The parameters of
        that one are in the file under its own name, without the file or module that it is in, and the names of its
        fields; a field with a default is not read.
      given: parameters of the click model that are not read from the file.
    """
    section, keys = model.upper(), _KEYS.get(model)
    if keys is None:
        section = model.rpartition(":")[2]
        keys = {field: field for field in required_fields(model, kind="click_model")}
    file = _find(Path(path))
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
    parameters = dict(given)
    for field, key in keys.items():
        if field in given:
            continue
        rows = [_numbers(file, queries, query, section, key) for query in queries]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(f"{file}: {section} {key} must have one shape in all queries")
        parameters[field] = _complement(key, np.stack(rows))
    try:
        return make(model, kind="click_model", **parameters)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def save_parameters(
    path: str | os.PathLike[str], name: str, model: ClickModel, queries: Sequence[str], num_items: int
) -> None:
    """Writes a click model of several queries in the layout of ``yandex``: the first ``num_items`` items of each."""
    content: dict[str, dict[str, Any]] = {}
    for row, query in enumerate(queries):
        one = take_instances(model, row)
        parameters = {}
        for field, key in _KEYS[name].items():
            values = _complement(key, np.asarray(getattr(one, field), np.float64))
            parameters[key] = np.round(values[:num_items] if field in _PER_ITEM else values, 7).tolist()
        content[query] = {name.upper(): parameters}
    write_text(path, json.dumps(content, indent=1))


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
        values = queries[query][model][key]
    except (KeyError, TypeError):
        raise ValueError(f"{file}: query {query!r} has no {model} {key}") from None
    try:
        numbers = np.asarray(values)
    except ValueError:
        numbers = np.asarray("ragged")
    if numbers.dtype.kind not in "if":
        raise ValueError(f"{file}: query {query!r}: {model} {key} must be numbers; got {values!r:.60}")
    return numbers.astype(np.float64)
