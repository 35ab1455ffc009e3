"""Click logs: what was shown for a query, and what was clicked.

Two formats, both plain or gzipped, both read one line at a time:

- ``load_sessions``: a table with the columns split, query_region, docs, clicked_positions0;
- ``load_yandex_log``: the log of the Yandex Relevance Prediction Challenge (WSCD 2012).
"""

import dataclasses
import os
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxrank.core.checks import integer
from jaxrank.datasets._lines import each_line, integers

_COLUMNS = ["split", "query_region", "docs", "clicked_positions0"]
_SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class QuerySessions:
    """The sessions of one query. Items are numbered so that the most frequent list is 0, 1, 2, …, K − 1."""

    documents: np.ndarray  # int64[L], the log's id of each item
    rankings: np.ndarray  # int32[sessions, K], items as shown, top first
    clicks: np.ndarray  # bool[sessions, K]
    is_test: np.ndarray | None  # bool[sessions], if the log is split
    base_ranking: np.ndarray  # int32[K], R₀: the list shown most often; of equals, the earliest


class Sessions(NamedTuple):
    """The sessions of several queries in one table, as ``fit`` takes them."""

    queries: np.ndarray  # int32[sessions], 0 … num_queries − 1
    rankings: np.ndarray  # int32[sessions, K]
    clicks: np.ndarray  # bool[sessions, K]


@dataclasses.dataclass(frozen=True)
class SessionLog:
    """A click log, query by query."""

    queries: dict[str, QuerySessions]  # by "<query id>_<region id>"

    @property
    def num_items(self) -> int:
        """L of the query with the most documents."""
        return max(len(query.documents) for query in self.queries.values())

    def most_frequent(self, num_queries: int) -> "SessionLog":
        """The queries with the most sessions, most frequent first, equals as in the log."""
        num_queries = integer("num_queries", num_queries, 1, len(self.queries))
        by_size = sorted(self.queries, key=lambda name: -len(self.queries[name].rankings))
        return SessionLog({name: self.queries[name] for name in by_size[:num_queries]})

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
            parts.append(Sessions(owner, query.rankings[chosen], query.clicks[chosen]))
        return Sessions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def load_sessions(path: str | os.PathLike[str], *, list_size: int = 10) -> SessionLog:
    """Reads a table of sessions, tab-separated, with a header.

    Args:
      path: a .tsv or .tsv.gz file. Its columns: ``split``, train or test; ``query_region``, the query; ``docs``,
        document ids from the top, comma-separated; ``clicked_positions0``, positions from 0, comma-separated, or
        nothing.
      list_size: K, the number of documents in every line.
    """
    collected: dict[str, _Collected] = {}

    def read_header(fields: list[str]) -> None:
        if fields != _COLUMNS:
            raise ValueError(f"the header must be {' '.join(_COLUMNS)}; got {' '.join(fields)!r:.80}")

    def read_session(fields: list[str]) -> None:
        if len(fields) != len(_COLUMNS):
            raise ValueError(f"expected {len(_COLUMNS)} tab-separated columns; got {len(fields)}")
        split, query, docs, clicked = fields
        if split not in _SPLITS:
            raise ValueError(f"split must be train or test; got {split!r:.40}")
        documents = integers("docs", docs.split(","))
        if len(documents) != list_size:
            raise ValueError(f"expected {list_size} docs; got {len(documents)}")
        clicks = bytearray(list_size)
        for position in integers("clicked_positions0", clicked.split(",") if clicked else []):
            if position >= list_size:
                raise ValueError(f"clicked position {position} was not shown; positions are 0 to {list_size - 1}")
            clicks[position] = 1
        collected.setdefault(query, _Collected()).add(documents, clicks, split == "test")

    each_line(path, read_session, header=read_header)
    return _session_log(path, collected, list_size, is_split=True)


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
    session: list[tuple[str, list[int], bytearray]] = []  # the lists that the current session was shown
    current = -1

    def end_session() -> None:
        for query, documents, clicks in session:
            if kept is None or query in kept:
                collected.setdefault(query, _Collected()).add(documents, clicks, False)
        session.clear()

    def read_action(fields: list[str]) -> None:
        nonlocal current
        is_query, session_id, values = _yandex_action(fields, list_size)
        if session_id != current:
            end_session()
            current = session_id
        if is_query:
            session.append((f"{values[0]}_{values[1]}", values[2:], bytearray(list_size)))
            return
        for _, documents, clicks in reversed(session):
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
        self.items: dict[int, int] = {}  # document id -> item, in order of appearance
        self.rankings = array("i")
        self.clicks = bytearray()
        self.is_test = bytearray()

    def add(self, documents: Sequence[int], clicks: bytearray, is_test: bool) -> None:
        self.rankings.extend(self.items.setdefault(document, len(self.items)) for document in documents)
        self.clicks += clicks
        self.is_test.append(is_test)

    def finish(self, list_size: int, is_split: bool) -> QuerySessions:
        rankings = np.frombuffer(self.rankings, np.int32).reshape(-1, list_size)
        lists, first, counts = np.unique(rankings, axis=0, return_index=True, return_counts=True)
        base = lists[np.lexsort((first, -counts))[0]].tolist()
        order = np.array(list(dict.fromkeys(base + list(range(len(self.items))))))  # R₀ first, then as they appeared
        renumbered = np.argsort(order).astype(np.int32)
        return QuerySessions(
            documents=np.array(list(self.items), np.int64)[order],
            rankings=renumbered[rankings],
            clicks=np.frombuffer(self.clicks, bool).reshape(-1, list_size),
            is_test=np.frombuffer(self.is_test, bool) if is_split else None,
            base_ranking=renumbered[base],
        )


def _session_log(
    path: str | os.PathLike[str], collected: dict[str, _Collected], list_size: int, is_split: bool
) -> SessionLog:
    if not collected:
        raise ValueError(f"{path}:1: no sessions in this file")
    return SessionLog({name: query.finish(list_size, is_split) for name, query in collected.items()})
