"""Click logs: what was shown for a query, and what was clicked.

All files are plain or gzipped, and read one line at a time:

- ``load_sessions``: a table of sessions, tab-separated, with columns of any names;
- ``load_yandex_log``: the log of the Yandex Relevance Prediction Challenge (WSCD 2012);
- ``load_features`` and ``load_lists``: tables of the documents' features, and of the lists that a ranker may show.
"""

import dataclasses
import itertools
import os
from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxrank.core.checks import choice, integer, open_probability, real
from jaxrank.datasets._lines import each_line, integers
from jaxrank.datasets.queries import QuerySet

_CLICKS = ("clicked_positions0", "clicked_positions1", "clicked_docs", "clicks")
_COLUMNS = ("split", "query_region", "docs", *_CLICKS, "probability", "prefix")
_SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class QuerySessions:
    """The sessions of one query. Items are numbered so that the most frequent list is 0, 1, 2, …, K − 1."""

    documents: np.ndarray  # int64[L] or text, the log's id of each item
    rankings: np.ndarray  # int32[sessions, K], items as shown, top first
    clicks: np.ndarray  # bool[sessions, K]
    is_test: np.ndarray | None  # bool[sessions], if the log is split
    base_ranking: np.ndarray  # int32[K], R₀: the list shown most often; of equals, the earliest
    probability: np.ndarray | None = None  # float64[sessions], of the list, if the log has it
    prefix: np.ndarray | None = None  # float64[sessions, K], of the first k positions together, if the log has it
    first_shown: np.ndarray | None = None  # int64[L], the line of the file that shows the item first


class Sessions(NamedTuple):
    """The sessions of several queries in one table, as ``fit`` takes them."""

    queries: np.ndarray  # int32[sessions], 0 … num_queries − 1
    rankings: np.ndarray  # int32[sessions, K]
    clicks: np.ndarray  # bool[sessions, K]
    probability: np.ndarray | None = None  # float64[sessions], if the log has it
    prefix: np.ndarray | None = None  # float64[sessions, K], if the log has it


@dataclasses.dataclass(frozen=True)
class SessionLog:
    """A click log, query by query."""

    queries: dict[str, QuerySessions]  # by "<query id>_<region id>"
    path: str = ""  # the file that it was read from

    @property
    def num_items(self) -> int:
        """L of the query with the most documents."""
        return max(len(query.documents) for query in self.queries.values())

    def most_frequent(self, num_queries: int) -> "SessionLog":
        """The queries with the most sessions, most frequent first, equals as in the log."""
        num_queries = integer("num_queries", num_queries, 1, len(self.queries))
        by_size = sorted(self.queries, key=lambda name: -len(self.queries[name].rankings))
        return SessionLog({name: self.queries[name] for name in by_size[:num_queries]}, self.path)

    def validation(self, fraction: float, seed: int = 0) -> "SessionLog":
        """The training sessions (all, if the log is not split) with a new split: ``fraction`` of them, at random, test.

        Models and their options can be compared on these, so that the test sessions are left for the end.
        """
        fraction = real("fraction", fraction, open_probability)
        rng = np.random.default_rng(integer("seed", seed, 0))
        queries = {}
        for name, query in self.queries.items():
            kept = np.ones(len(query.rankings), bool) if query.is_test is None else ~query.is_test
            is_test = rng.random(np.count_nonzero(kept)) < fraction
            rankings, clicks = query.rankings[kept], query.clicks[kept]
            shown = dataclasses.replace(query, rankings=rankings, clicks=clicks, is_test=is_test)
            probability, prefix = _taken(query.probability, kept), _taken(query.prefix, kept)
            queries[name] = dataclasses.replace(shown, probability=probability, prefix=prefix)
        return SessionLog(queries, self.path)

    def stacked(self, split: str | None = None) -> Sessions:
        """All sessions, or those of the "train" or "test" split; query i is the i-th of ``queries``."""
        if split not in (None, *_SPLITS):
            raise ValueError(f"split must be None, 'train' or 'test'; got {split!r}")
        parts = []
        for index, (name, query) in enumerate(self.queries.items()):
            chosen = np.ones(len(query.rankings), bool)
            if split is not None:
                if query.is_test is None:
                    raise ValueError(f"split must be None, as this log is not split; got {split!r} for query {name}")
                chosen = query.is_test == (split == "test")
            owner = np.full(np.count_nonzero(chosen), index, np.int32)
            shown = _taken(query.probability, chosen), _taken(query.prefix, chosen)
            parts.append(Sessions(owner, query.rankings[chosen], query.clicks[chosen], *shown))
        queries, rankings, clicks, probability, prefix = (list(column) for column in zip(*parts, strict=True))
        return Sessions(
            *(np.concatenate(column) for column in (queries, rankings, clicks)),
            *(None if column[0] is None else np.concatenate(column) for column in (probability, prefix)),
        )


def _taken(values: np.ndarray | None, where: np.ndarray) -> np.ndarray | None:
    return None if values is None else values[where]


def load_sessions(
    path: str | os.PathLike[str],
    *,
    list_size: int | None = None,
    columns: Mapping[str, str] | None = None,
    text_ids: bool = False,
) -> SessionLog:
    """Reads a table of sessions, tab-separated, with a header.

    Its columns, in any order, others being left out:

    - ``query_region``: the query;
    - ``docs``: document ids from the top, comma-separated;
    - one of ``clicked_positions0`` (positions from 0), ``clicked_positions1`` (positions from 1), ``clicked_docs``
      (document ids), all comma-separated or nothing, and ``clicks`` (0 or 1 for every position, comma-separated);
    - ``split``, if there is one: train or test;
    - ``probability``, if there is one: how probable the logging ranker was to show this list;
    - ``prefix``, if there is one: how probable it was to show the first k documents, for every k, comma-separated.

    Args:
      path: a .tsv or .tsv.gz file.
      list_size: K, the number of documents in every line; that of the first line by default.
      columns: the file's names of these columns, where they are others: ``{"query_region": "QueryID"}``.
      text_ids: document ids are any text, not integers.
    """
    names = {choice("columns", name, _COLUMNS): column for name, column in (columns or {}).items()}
    collected: dict[str, _Collected] = {}
    places: dict[str, int] = {}  # of the columns that are read
    width, K, number = 0, list_size, 1

    def read_header(fields: list[str]) -> None:
        nonlocal width
        width = len(fields)
        for name in _COLUMNS:
            column = names.get(name, name)
            if name not in names and name in names.values():
                continue  # the file's column of this name is another one here
            if fields.count(column) > 1:
                raise ValueError(f"the header must have each column once; got {column!r:.40} twice")
            if column in fields:
                places[name] = fields.index(column)
            elif name in names or name in ("query_region", "docs"):
                raise ValueError(f"the header must have a column {column}; got {' '.join(fields)!r:.80}")
        if sum(name in places for name in _CLICKS) != 1:
            found = [name for name in _CLICKS if name in places]
            got = (
                f"{' and '.join(found)}: rename those that are not to be read" if found else f"{' '.join(fields)!r:.80}"
            )
            raise ValueError(f"the header must have one of {', '.join(_CLICKS)}; got {got}")

    def read_session(fields: list[str]) -> None:
        nonlocal K, number
        number += 1
        if len(fields) != width:
            raise ValueError(f"expected {width} tab-separated columns; got {len(fields)}")
        read = {name: fields[place] for name, place in places.items()}
        split = read.get("split", "train")
        if split not in _SPLITS:
            raise ValueError(f"split must be train or test; got {split!r:.40}")
        documents = _ids("docs", read["docs"], text_ids)
        K = len(documents) if K is None else K
        if len(documents) != K or not documents:
            raise ValueError(f"expected {K} docs; got {len(documents)}")
        clicks = _clicks(read, documents, text_ids)
        shown = _probabilities("probability", read["probability"], 1) if "probability" in read else ()
        prefix = _probabilities("prefix", read["prefix"], K) if "prefix" in read else ()
        if any(more > less for less, more in itertools.pairwise(prefix)):
            raise ValueError(f"prefix must not rise: more positions are less probable; got {read['prefix']!r:.60}")
        sessions = collected.setdefault(read["query_region"], _Collected())
        sessions.add(documents, clicks, split == "test", number, shown, prefix)

    each_line(path, read_session, header=read_header)
    return _session_log(path, collected, K or 1, is_split="split" in places)


def _ids(name: str, text: str, text_ids: bool) -> Sequence[Hashable]:
    parts = text.split(",") if text else []
    return parts if text_ids else integers(name, parts)


def _clicks(read: Mapping[str, str], documents: Sequence[Hashable], text_ids: bool) -> bytearray:
    """0 or 1 for every position, whichever of the columns has the clicks."""
    clicks, K = bytearray(len(documents)), len(documents)
    (kind,) = (name for name in _CLICKS if name in read)
    if kind == "clicked_docs":
        for document in _ids(kind, read[kind], text_ids):
            if document not in documents:
                raise ValueError(f"clicked document {document!s:.40} was not shown")
            clicks[documents.index(document)] = 1
        return clicks
    values = integers(kind, read[kind].split(",") if read[kind] else [])
    if kind == "clicks":
        if len(values) != K or max(values) > 1:
            raise ValueError(f"clicks must be 0 or 1 for each of {K} documents; got {read[kind]!r:.60}")
        return bytearray(values)
    first = int(kind[-1])
    for position in values:
        if not first <= position < K + first:
            raise ValueError(f"clicked position {position} was not shown; positions are {first} to {K - 1 + first}")
        clicks[position - first] = 1
    return clicks


def _probabilities(name: str, text: str, num: int) -> list[float]:
    """``num`` comma-separated probabilities of what was shown, which are never 0."""
    values = _numbers(name, text.split(","))
    if len(values) != num:
        raise ValueError(f"{name} must have {num} values; got {len(values)}")
    for value in values:
        if not 0 < value <= 1:
            raise ValueError(f"{name} must be above 0 and at most 1, as the list was shown; got {value}")
    return values


def _numbers(name: str, texts: Sequence[str]) -> list[float]:
    try:
        values = [float(text) for text in texts]
    except ValueError:
        raise ValueError(f"{name} must be numbers; got {','.join(texts)!r:.60}") from None
    if not (np.abs(values) < 1e38).all():  # NaN too; differences of two values must fit float32
        rule = "between -1e38 and 1e38" if np.isfinite(values).all() else "finite"
        raise ValueError(f"{name} must be {rule}; got {','.join(texts)!r:.60}")
    return values


def load_yandex_log(path: str | os.PathLike[str], *, list_size: int = 10, num_queries: int | None = None) -> SessionLog:
    """Reads the raw log of the Yandex Relevance Prediction Challenge.

    Its lines are ``SessionID TimePassed Q QueryID RegionID URL1 … URL10`` and ``SessionID TimePassed C URLID``,
    tab-separated, the lines of a session together. A click counts for the session's most recent query that showed the
    document, at its highest position. A query is a pair of query and region: the same words in another region are
    another query.

    Args:
      path: the file, plain or gzipped.
      list_size: K, the number of documents that every query shows.
      num_queries: the number of queries to keep, the most frequent ones. The file is then read twice, and memory holds
        what is kept and, while queries are counted, at most 80 bytes for every list shown.
    """
    kept = None if num_queries is None else _most_frequent_keys(path, num_queries, list_size)
    collected: dict[str, _Collected] = {}
    session: list[tuple[str, list[int], bytearray, int]] = []  # the lists that the current session was shown
    current, number = -1, 0

    def end_session() -> None:
        for query, documents, clicks, line in session:
            if kept is None or query in kept:
                collected.setdefault(query, _Collected()).add(documents, clicks, False, line)
        session.clear()

    def read_action(fields: list[str]) -> None:
        nonlocal current, number
        number += 1
        is_query, session_id, values = _yandex_action(fields, list_size)
        if session_id != current:
            end_session()
            current = session_id
        if is_query:
            session.append((f"{values[0]}_{values[1]}", values[2:], bytearray(list_size), number))
            return
        for _, documents, clicks, _ in reversed(session):
            if values[0] in documents:
                clicks[documents.index(values[0])] = 1
                return
        raise ValueError(f"click on document {values[0]}, which session {session_id} was not shown")

    each_line(path, read_action)
    end_session()
    log = _session_log(path, collected, list_size, is_split=False)
    return log if num_queries is None else log.most_frequent(num_queries)


def _yandex_action(fields: list[str], list_size: int) -> tuple[bool, int, list[int]]:
    """(is it a query, its session, values); values are the query, region and documents, or the clicked document."""
    kind = fields[2] if len(fields) > 2 else ""
    if kind not in ("Q", "C"):
        raise ValueError(f"the third of the tab-separated columns must be Q or C; got {kind!r:.40}")
    expected = 5 + list_size if kind == "Q" else 4
    if len(fields) != expected:
        raise ValueError(f"expected {expected} tab-separated columns in a line of kind {kind}; got {len(fields)}")
    session_id, _ = integers("SessionID and TimePassed", fields[:2])
    return kind == "Q", session_id, integers("ids", fields[3:])


def _most_frequent_keys(path: str | os.PathLike[str], num_queries: int, list_size: int) -> set[str]:
    num_queries = integer("num_queries", num_queries)
    shown = array("i")

    def count(fields: list[str]) -> None:
        is_query, _, values = _yandex_action(fields, list_size)
        if is_query:
            if max(values[:2]) > np.iinfo(np.int32).max:
                raise ValueError(f"QueryID and RegionID must fit int32; got {values[0]} and {values[1]}")
            shown.extend(values[:2])

    each_line(path, count)
    pairs = np.frombuffer(shown, np.int64)  # query and region as one number, quicker to sort
    different, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if len(different) < num_queries:
        raise ValueError(f"num_queries must be at most the {len(different)} queries of {path}; got {num_queries}")
    order = np.lexsort((first, -counts))[:num_queries]
    return {f"{query}_{region}" for query, region in different[order].view(np.int32).reshape(-1, 2)}


class _Collected:
    """The sessions of one query while they are read: flat, 5 bytes per position."""

    def __init__(self) -> None:
        self.items: dict[Hashable, int] = {}  # document id -> item, in order of appearance
        self.first_shown = array("q")
        self.rankings = array("i")
        self.clicks = bytearray()
        self.is_test = bytearray()
        self.probability = array("d")
        self.prefix = array("d")

    def add(
        self,
        documents: Sequence[Hashable],
        clicks: bytearray,
        is_test: bool,
        line: int,
        probability: Sequence[float] = (),
        prefix: Sequence[float] = (),
    ) -> None:
        self.rankings.extend(self.items.setdefault(document, len(self.items)) for document in documents)
        self.first_shown.extend([line] * (len(self.items) - len(self.first_shown)))
        self.clicks += clicks
        self.is_test.append(is_test)
        self.probability.extend(probability)
        self.prefix.extend(prefix)

    def finish(self, list_size: int, is_split: bool) -> QuerySessions:
        rankings = np.frombuffer(self.rankings, np.int32).reshape(-1, list_size)
        lists, first, counts = np.unique(rankings, axis=0, return_index=True, return_counts=True)
        base = lists[np.lexsort((first, -counts))[0]].tolist()
        order = np.array(list(dict.fromkeys(base + list(range(len(self.items))))))  # R₀ first, then as they appeared
        renumbered = np.argsort(order).astype(np.int32)
        return QuerySessions(
            documents=np.array(list(self.items))[order],
            rankings=renumbered[rankings],
            clicks=np.frombuffer(self.clicks, bool).reshape(-1, list_size),
            is_test=np.frombuffer(self.is_test, bool) if is_split else None,
            base_ranking=renumbered[base],
            probability=np.frombuffer(self.probability) if self.probability else None,
            prefix=np.frombuffer(self.prefix).reshape(-1, list_size) if self.prefix else None,
            first_shown=np.frombuffer(self.first_shown, np.int64)[order],
        )


def _session_log(
    path: str | os.PathLike[str], collected: dict[str, _Collected], list_size: int, is_split: bool
) -> SessionLog:
    if not collected:
        raise ValueError(f"{path}:1: no sessions in this file")
    queries = {name: query.finish(list_size, is_split) for name, query in collected.items()}
    return SessionLog(queries, os.fspath(path))


def load_features(path: str | os.PathLike[str], log: SessionLog) -> QuerySet:
    """The features of a log's documents, as a ``QuerySet`` in the order of its queries and items, all of grade 0.

    Args:
      path: a tab-separated table with a header: ``query_region``, ``doc``, and one column for each feature. Rows of
        other queries and documents are left out; a document of the log without a row is an error.
      log: the log.
    """
    starts = np.cumsum([0, *(len(query.documents) for query in log.queries.values())])
    items = _items(log)
    table = np.full((starts[-1], 0), np.nan)
    number_of = {name: index for index, name in enumerate(log.queries)}

    def read_header(fields: list[str]) -> None:
        nonlocal table
        if fields[:2] != ["query_region", "doc"] or len(fields) < 3:
            raise ValueError(f"the header must be query_region doc and the features; got {' '.join(fields)!r:.80}")
        table = np.full((starts[-1], len(fields) - 2), np.nan, np.float32)

    def read_row(fields: list[str]) -> None:
        if len(fields) != table.shape[1] + 2:
            raise ValueError(f"expected {table.shape[1] + 2} tab-separated columns; got {len(fields)}")
        query, document, *values = fields
        numbers = _numbers("features", values)
        if (item := items.get(query, {}).get(document)) is None:
            return
        row = starts[number_of[query]] + item
        if not np.isnan(table[row, 0]):
            raise ValueError(f"document {document:.40} of query {query:.40} has a row already")
        table[row] = numbers

    each_line(path, read_row, header=read_header)
    for row in np.flatnonzero(np.isnan(table[:, 0])):
        index = int(np.searchsorted(starts, row, side="right")) - 1
        name, query = list(log.queries.items())[index]
        item = row - starts[index]
        line = "" if query.first_shown is None else f":{query.first_shown[item]}"
        raise ValueError(
            f"{log.path}{line}: document {query.documents[item]} of query {name} has no row of features in {path}"
        )
    return QuerySet(table, np.zeros(len(table), np.int32), starts)


class ListTable(NamedTuple):
    """The lists that a ranker may show for every query of a log: what ``jr.off_policy.Lists`` takes."""

    rankings: np.ndarray  # int32[queries, lists, K]; a query with fewer lists than others repeats its last one
    probabilities: np.ndarray  # float64[queries, lists]; 0 for these repetitions


def load_lists(path: str | os.PathLike[str], log: SessionLog) -> ListTable:
    """The lists that a ranker may show, and with which probability, for every query of a log.

    Args:
      path: a tab-separated table with the header query_region docs probability: document ids from the top,
        comma-separated. Every query of the log has at least one line, its probabilities sum to 1, and all documents
        are of the log.
      log: the log.
    """
    items = _items(log)
    found: dict[str, list[tuple[list[int], float, int]]] = {name: [] for name in log.queries}
    K, number = 0, 1

    def read_header(fields: list[str]) -> None:
        if fields != ["query_region", "docs", "probability"]:
            raise ValueError(f"the header must be query_region docs probability; got {' '.join(fields)!r:.80}")

    def read_list(fields: list[str]) -> None:
        nonlocal K, number
        number += 1
        if len(fields) != 3:
            raise ValueError(f"expected 3 tab-separated columns; got {len(fields)}")
        query, docs, text = fields
        (share,) = _numbers("probability", [text])
        if not 0 <= share <= 1:
            raise ValueError(f"probability must be in [0, 1]; got {share}")
        if query not in found:
            return
        documents = docs.split(",")
        unknown = [document for document in documents if document not in items[query]]
        if unknown:
            raise ValueError(f"document {unknown[0]:.40} of query {query:.40} is not in {log.path}")
        K = K or len(documents)
        if len(documents) != K or len(set(documents)) != K:
            raise ValueError(f"expected {K} different docs; got {docs!r:.60}")
        found[query].append(([items[query][document] for document in documents], share, number))

    each_line(path, read_list, header=read_header)
    for name, lists in found.items():
        if not lists:
            raise ValueError(f"{path}:{number}: no list of query {name}, which {log.path} has")
        total = sum(share for _, share, _ in lists)
        if abs(total - 1) > 1e-4:
            raise ValueError(f"{path}:{lists[-1][2]}: the probabilities of query {name} must sum to 1; got {total:.6g}")
    most = max(map(len, found.values()))
    padded = [lists + [(lists[-1][0], 0.0, 0)] * (most - len(lists)) for lists in found.values()]
    rankings = np.array([[ranking for ranking, _, _ in lists] for lists in padded], np.int32)
    return ListTable(rankings, np.array([[share for _, share, _ in lists] for lists in padded]))


def _items(log: SessionLog) -> dict[str, dict[str, int]]:
    """{query: {document id as text: item}}."""
    return {
        name: {str(document): item for item, document in enumerate(query.documents)}
        for name, query in log.queries.items()
    }
