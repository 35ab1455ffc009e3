"""Learning-to-rank datasets in the LETOR format (SVMlight with query ids), and a synthetic one.

A line is a document, ``<grade> qid:<query> <index>:<value> <index>:<value> … # comment``; indices count from 1 and
increase, features that are missing are 0, the lines of a query are together. Plain or gzipped. Where lines have no
qid, a group file beside it (``<file>.query``) has the number of documents of each query, one per line (as LightGBM's).

| dataset | layout of ``path`` |
|---|---|
| MSLR-WEB10K, MSLR-WEB30K | ``Fold1`` … ``Fold5``, each with train.txt, vali.txt, test.txt; 136 features, grades 0–4 |
| Yahoo! LTRC | set1.train.txt, set1.valid.txt, set1.test.txt (or set2.…); 700 features, grades 0–4 |
| Istella, Istella-S, Istella-X | train.txt, (vali.txt,) test.txt; 220 features, grades 0–4 |
| LightGBM's example | rank.train, rank.train.query, rank.test, rank.test.query; 300 features, grades 0–4 |

Each query's features are scaled to [0, 1] by its own minima and maxima, and those that are then 0 in all of the
training queries are dropped, as in the online-LTR papers.
"""

import hashlib
import json
import os
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrank.core.checks import integer
from jaxrank.core.limits import refuse_beyond
from jaxrank.datasets._lines import lines
from jaxrank.datasets.queries import QuerySet
from jaxrank.output.arrays import load_arrays, save_arrays
from jaxrank.output.files import UnwritableError

_SPLITS = {"train": ("train",), "validation": ("vali", "valid", "validation"), "test": ("test",)}
_CACHE_VERSION = 2
_FEATURE = re.compile(r"\d{1,9}:[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|\d{1,9}:[-+]?(inf|nan)")
_MAX_FEATURES = 100_000  # they are kept dense


class LetorData(NamedTuple):
    """The queries of a dataset, by split."""

    train: QuerySet
    validation: QuerySet | None
    test: QuerySet


class _Split(NamedTuple):
    """A split on the host."""

    features: np.ndarray  # float32[documents, d]
    grades: np.ndarray  # int32[documents]
    starts: np.ndarray  # int32[queries + 1]


def letor(
    path: str | os.PathLike[str],
    *,
    fold: int = 1,
    num_grades: int = 5,
    normalize: bool = True,
    cache: bool | str | os.PathLike[str] = True,
) -> LetorData:
    """Reads the training, validation (if there is one) and test queries of a dataset.

    After the first read the arrays are kept as a binary file, which is used as long as sizes and times of the text
    files and the options are the same.

    Args:
      path: a folder with the files of one of the layouts above.
      fold: which ``Fold``, if there are folds.
      num_grades: grades are 0 to num_grades − 1.
      normalize: scale by query and drop constant features; False keeps the numbers of the file.
      cache: the folder of the binary copies; True for $JAXRANK_CACHE, or ~/.cache/jaxrank without it; False for none.
    """
    folder = Path(path)
    if (folder / f"Fold{fold}").is_dir():
        folder = folder / f"Fold{fold}"
    files = _find(folder)
    options = {"version": _CACHE_VERSION, "num_grades": num_grades, "normalize": normalize}
    copy = _cache_file(folder, options, cache)
    stamp = _stamp(files)
    splits = _load_copy(copy, stamp, list(files))
    if splits is None:
        splits = _dense(folder, {name: _read(file, num_grades) for name, file in files.items()})
        try:
            splits = _normalized(splits) if normalize else splits
        except ValueError as error:
            raise ValueError(f"{files['train']}: {error}") from None
        _save_copy(copy, stamp, splits)
    sets = {name: QuerySet(*split) for name, split in splits.items()}
    return LetorData(sets["train"], sets.get("validation"), sets["test"])


def synthetic_letor(
    num_queries: int = 100, num_features: int = 20, mean_documents: int = 20, seed: int = 0
) -> LetorData:
    """A learning-to-rank world with graded labels, for when there is no data.

    Documents have features uniform in [0, 1]; each query shifts some features of all its documents alike. Grades 0–4
    have the proportions of MSLR-WEB (56, 29, 13, 1.5 and 0.5 %): they are quantiles, over all queries, of a linear
    utility of the document with as much noise as signal. So a linear ranker is the right model, but cannot be perfect.
    The validation and the test split have a third as many queries each.

    Args:
      num_queries: the number of queries of the training split.
      num_features: d.
      mean_documents: of a query; the numbers are geometric, at least 2 and at most 5·mean_documents.
      seed: of NumPy's generator.
    """
    num_queries, num_features = integer("num_queries", num_queries), integer("num_features", num_features)
    mean_documents = integer("mean_documents", mean_documents, 3)
    size = num_queries * mean_documents * num_features
    refuse_beyond("JAXRANK_MAX_SYNTHETIC", "queries × documents × features", size)
    rng = np.random.default_rng(integer("seed", seed, 0))
    weights = rng.standard_normal(num_features)
    held_out = max(2, num_queries // 3)
    splits = {}
    for name, count in (("train", num_queries), ("validation", held_out), ("test", held_out)):
        sizes = np.clip(2 + rng.geometric(1 / (mean_documents - 2), count), 2, 5 * mean_documents)
        query = np.repeat(np.arange(count), sizes)
        features = rng.random((sizes.sum(), num_features))
        signal = features @ weights
        utility = signal + signal.std() * rng.standard_normal(len(signal))
        cuts = np.quantile(utility, [0.56, 0.85, 0.98, 0.995])
        shift = rng.random((count, num_features)) * (rng.random(num_features) < 0.3)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        splits[name] = _Split(
            (features + shift[query]).astype(np.float32), np.searchsorted(cuts, utility).astype(np.int32), starts
        )
    sets = {name: QuerySet(*split) for name, split in _normalized(splits).items()}
    return LetorData(sets["train"], sets["validation"], sets["test"])


def _find(folder: Path) -> dict[str, Path]:
    """{split: file}."""
    if not folder.is_dir():
        raise ValueError(f"path must be a folder with the files of a LETOR dataset; there is none at {folder}")
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        words = file.name.removesuffix(".gz").removesuffix(".txt").split(".")
        for split, names in _SPLITS.items():
            if words[-1] in names and split not in found:
                found[split] = file
    for split in ("train", "test"):
        if split not in found:
            raise ValueError(f"path must hold a {split} file, as {split}.txt or {split}.txt.gz; got {folder}")
    return found


def _read(file: Path, num_grades: int) -> "_Reader":
    groups = _read_groups(file.with_name(f"{file.name.removesuffix('.gz')}.query"))
    reader = _Reader(num_grades, grouped=groups is not None)
    for number, line in lines(file):
        try:
            reader.add(line)
        except ValueError as error:
            raise ValueError(f"{file}:{number}: {error}") from None
    if not reader.grades:
        raise ValueError(f"{file}:1: no documents in this file")
    reader.sizes = reader.sizes if groups is None else groups
    if (total := sum(reader.sizes)) != len(reader.grades):
        raise ValueError(f"{file}.query: the groups must add up to {len(reader.grades)} documents; got {total}")
    return reader


def _dense(folder: Path, readers: dict[str, "_Reader"]) -> dict[str, _Split]:
    """The splits with all features, those that are 0 too: all of one width."""
    width = max(max(reader.columns, default=0) for reader in readers.values())
    size = 4 * width * sum(len(reader.grades) for reader in readers.values())
    if size > 64 * 4 * sum(len(reader.columns) for reader in readers.values()):  # hardly any feature is not 0
        refuse_beyond("JAXRANK_MAX_DENSE_BYTES", f"{folder}: {width:,} features of all documents", size, " bytes")
    return {name: reader.finish(width) for name, reader in readers.items()}


def _read_groups(file: Path) -> list[int] | None:
    if not file.is_file():
        return None
    sizes = []
    for number, line in lines(file):
        text = line.strip()
        if not text.isdecimal() or len(text) > 9 or int(text) < 1:
            raise ValueError(f"{file}:{number}: must be the number of documents of a query; got {text!r:.40}")
        sizes.append(int(text))
    return sizes


class _Reader:
    """The documents of a file while they are read: sparse and flat."""

    def __init__(self, num_grades: int, grouped: bool) -> None:
        self.num_grades, self.grouped = num_grades, grouped
        self.grades = array("i")
        self.sizes: list[int] = []
        self.seen: set[str] = set()
        self.query: str | None = None
        self.columns, self.values, self.ends = array("i"), array("f"), array("q", [0])

    def add(self, line: str) -> None:
        words = line.partition("#")[0].split()
        if not words:
            return
        grade = _grade(words[0], self.num_grades)
        has_query = len(words) > 1 and words[1].startswith("qid:")
        if has_query:
            query = words[1][4:]
            if not query:
                raise ValueError("qid must not be empty")
            if query != self.query:
                if query in self.seen:
                    raise ValueError(f"the lines of qid {query:.40} must be together; others come in between")
                self.seen.add(query)
                self.query = query
                self.sizes.append(0)
            self.sizes[-1] += 1
        elif not self.grouped:
            raise ValueError(f"the second word must be qid:<query>; got {' '.join(words[1:2])!r:.40}")
        columns, values = _features(words[2 if has_query else 1 :])
        self.grades.append(grade)
        self.columns.extend(columns)
        self.values.extend(values)
        self.ends.append(len(self.columns))

    def finish(self, width: int) -> _Split:
        columns = np.frombuffer(self.columns, np.int32)
        ends = np.array(self.ends, np.int64)
        rows = np.repeat(np.arange(len(self.grades)), ends[1:] - ends[:-1])
        features = np.zeros((len(self.grades), width), np.float32)
        features[rows, columns - 1] = np.frombuffer(self.values, np.float32)
        starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int32)
        return _Split(features, np.array(self.grades, np.int32), starts)


def _grade(word: str, num_grades: int) -> int:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < num_grades or value != int(value):
        raise ValueError(f"the grade must be an integer from 0 to {num_grades - 1}; got {word!r:.40}")
    return int(value)


def _features(words: list[str]) -> tuple[list[int], list[float]]:
    numbers = " ".join(words).replace(":", " ").split()
    try:
        columns, values = list(map(int, numbers[::2])), list(map(float, numbers[1::2]))
    except ValueError:
        columns, values = [], []
    if len(columns) != len(words) or len(values) != len(words):
        wrong = next((word for word in words if not _FEATURE.fullmatch(word)), " ".join(words))
        raise ValueError(f"features must be <index>:<value>; got {wrong!r:.60}")
    previous = 0
    for column, value in zip(columns, values, strict=True):
        if column <= previous:
            what = "count from 1" if column < 1 else f"increase; {previous} comes before it"
            raise ValueError(f"feature indices must {what}; got {column}")
        if column > _MAX_FEATURES:
            raise ValueError(f"feature indices must be at most {_MAX_FEATURES}; got {column!r:.40}")
        if not -1e38 < value < 1e38:  # NaN too; differences of two values must fit float32
            rule = "between -1e38 and 1e38" if np.isfinite(value) else "finite"
            raise ValueError(f"feature {column} must be {rule}; got {value}")
        previous = column
    return columns, values


def _normalized(splits: dict[str, _Split]) -> dict[str, _Split]:
    """Scaled to [0, 1] in each query; features that are constant in every training query dropped."""
    scaled = {name: split._replace(features=_min_max(split)) for name, split in splits.items()}
    varies = (scaled["train"].features != 0).any(axis=0)
    if not varies.any():
        raise ValueError("features must differ between documents of a query; in the training split none does")
    return {name: split._replace(features=split.features[:, varies]) for name, split in scaled.items()}


def _min_max(split: _Split) -> np.ndarray:
    first = split.starts[:-1]
    query = np.repeat(np.arange(len(first)), np.diff(split.starts))
    low = np.minimum.reduceat(split.features, first)
    span = np.maximum.reduceat(split.features, first) - low
    return ((split.features - low[query]) / np.where(span > 0, span, 1)[query]).astype(np.float32)


def _stamp(files: dict[str, Path]) -> str:
    """Names, sizes and times of all files that were read, group files too."""
    marks: dict[str, Any] = {}
    for split, file in files.items():
        for one in (file, file.with_name(f"{file.name.removesuffix('.gz')}.query")):
            if one.is_file():
                status = one.stat()
                marks[f"{split} {one.name}"] = [status.st_size, status.st_mtime_ns]
    return json.dumps(marks)


def _cache_file(folder: Path, options: dict[str, Any], cache: bool | str | os.PathLike[str]) -> Path | None:
    """One file for each folder and choice of options; it is overwritten when the text files have changed."""
    if cache is False:
        return None
    home = os.environ.get("JAXRANK_CACHE") or Path.home() / ".cache" / "jaxrank"
    key = json.dumps([str(folder.resolve()), options]).encode()
    return Path(home if cache is True else cache) / f"letor-{hashlib.sha256(key).hexdigest()[:20]}.arrays"


def _load_copy(file: Path | None, stamp: str, names: Sequence[str]) -> dict[str, _Split] | None:
    if file is None or not file.is_file():
        return None
    try:
        about, stored = load_arrays(file)
        if about != stamp:
            return None
        return {name: _Split(*(stored[f"{name}.{field}"] for field in _Split._fields)) for name in names}
    except (OSError, ValueError, KeyError):  # whatever is wrong with the copy, the text files are still there
        return None


def _save_copy(file: Path | None, stamp: str, splits: dict[str, _Split]) -> None:
    if file is None:
        return
    arrays = {f"{name}.{field}": getattr(split, field) for name, split in splits.items() for field in _Split._fields}
    try:
        save_arrays(file, stamp, arrays)
    except UnwritableError:  # the text files are read again next time
        return
