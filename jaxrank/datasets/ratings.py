"""Ratings of items that have topics, and the topic bandit made of them (CascadeHybrid, Sec. 5.1).

Four layouts, each a folder:

- MovieLens 20M, 25M, latest: ``ratings.csv`` (userId,movieId,rating,timestamp) and ``movies.csv`` (movieId,title,genres
  with "|" between genres), both with a header;
- MovieLens 1M, 10M: ``ratings.dat`` and ``movies.dat``, the same fields with "::" in between;
- MovieLens 100K: ``u.data`` (tab-separated), ``u.item`` (a flag for each genre, "|" in between) and ``u.genre``;
- Yahoo! Music R2: ``train*.txt`` and ``test*.txt`` (user, song, rating), ``song-attributes.txt`` (song, album, artist,
  genre) and ``genre-hierarchy.txt`` (genre, parent, level, name), all tab-separated. Topics are the top-level genres.

Files are read piece by piece and twice: first to count the ratings of each user and item, then to keep those of the
chosen ones. So memory does not grow with the number of ratings.
"""

import csv
import dataclasses
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrank.core.checks import integer, switch
from jaxrank.datasets._lines import Bounded
from jaxrank.environments.topic_bandit import TopicBandit
from jaxrank.output.files import open_regular

_PIECE = 4_000_000  # ratings read at a time
_ATTRACTIVE = 5  # the rating that counts as attraction


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Who finds what attractive: the most active users and the most rated items, in this order."""

    attractive: np.ndarray  # bool[users, items], F: rated 5
    topics: np.ndarray  # bool[items, topics], G; the topic of the most items first
    topic_names: tuple[str, ...]
    users: np.ndarray  # int64[users], the data's ids
    items: np.ndarray  # int64[items]


class _Layout(NamedTuple):
    """How the lines of a file of ratings look."""

    files: Sequence[Path]
    separator: str
    columns: tuple[int, int, int]  # of user, item and rating, when split at the separator
    header: bool


def movielens(path: str | os.PathLike[str], num_users: int = 1000, num_items: int = 1000) -> Ratings:
    """The ratings of a MovieLens data set, its genres as topics.

    Args:
      path: the folder of the files, or one with movielens-small in it.
      num_users: the number of users, those with the most ratings; all if there are fewer.
      num_items: the number of movies, the most rated; likewise.
    """
    folder = Path(path)
    for candidate in (folder, folder / "movielens-small"):
        if (candidate / "ratings.csv").is_file():
            layout = _Layout([candidate / "ratings.csv"], ",", (0, 1, 2), header=True)
            return _ratings(layout, _movies_csv(candidate / "movies.csv"), num_users, num_items)
        if (candidate / "ratings.dat").is_file():  # split at ":", "::" leaves an empty column between two
            layout = _Layout([candidate / "ratings.dat"], ":", (0, 2, 4), header=False)
            return _ratings(layout, _movies_dat(candidate / "movies.dat"), num_users, num_items)
        if (candidate / "u.data").is_file():
            layout = _Layout([candidate / "u.data"], "\t", (0, 1, 2), header=False)
            return _ratings(layout, _movies_flags(candidate), num_users, num_items)
    raise ValueError(f"path must be a folder with ratings.csv, ratings.dat or u.data; there is none in {folder}")


def yahoo_music(path: str | os.PathLike[str], num_users: int = 1000, num_items: int = 1000) -> Ratings:
    """The ratings of Yahoo! Music R2, its top-level genres as topics.

    Args:
      path: the folder of the files.
      num_users: the number of users, those with the most ratings; all if there are fewer.
      num_items: the number of songs, the most rated; likewise.
    """
    folder = Path(path)
    files = sorted([*folder.glob("train*.txt"), *folder.glob("test*.txt")])
    if not files:
        raise ValueError(f"path must be a folder with train*.txt or test*.txt; there is none in {folder}")
    return _ratings(_Layout(files, "\t", (0, 1, 2), header=False), _song_genres(folder), num_users, num_items)


def topic_bandit(
    ratings: Ratings,
    *,
    trade_off: Any = 0.5,
    list_size: int = 10,
    num_topics: int | None = None,
    num_features: int = 10,
    num_users: int | None = None,
    normalize_relevance: bool = True,
    seed: int = 0,
) -> TopicBandit:
    """The world of CascadeHybrid's experiments.

    Users are split at random into two halves, train and test. The policy sees the topic coverage x of eq. 18 and the
    relevance features z of the train half: the rows of VΣ of its truncated singular value decomposition UΣVᵀ, scaled
    to length 1 (the sign of each column is arbitrary, and matters to ``CascadeLSB(full=True)`` only); z = 0 of items
    that nobody there likes. The users of the test half click, according to the x of their own half, to θ* of eq. 19,
    and to β*, the least-squares solution of zᵀβ = F, scaled to length 1. Users who find nothing attractive in any topic
    are left out, because they have no θ*.

    Sec. 5.1 says that β* is normalised. But then the ten best items of a list are nearly always clicked for λ of 0.5 or
    more (on MovieLens 1M the benchmark's reward is 0.994 at λ = 0.5 and 1.000 at λ = 1), and at λ = 1 CascadeHybrid and
    CascadeLinUCB have nothing to lose: their regret is below 1 where the paper has 261 and 149. With β* as least
    squares gives it, it is 193 and 105, and the order of the policies is nearly the published one for all λ. So
    ``normalize_relevance=False`` is very likely what the paper ran. At λ = 0 β* plays no part. There CascadeHybrid has
    487 and CascadeLSB 325 where the paper has 903 and 751 on other data; on MovieLens small they have 722 and 700.

    Args:
      ratings: what ``movielens``, ``yahoo_music`` or ``synthetic_ratings`` returned.
      trade_off: λ: 0 is all diversity, 1 all relevance.
      list_size: K.
      num_topics: d, the number of topics, those with the most items; all if not given.
      num_features: m, the number of singular values.
      num_users: the number of users of the test half; all if not given.
      normalize_relevance: scale β* to length 1, as the text has it, or leave it as least squares gives it.
      seed: of the split.
    """
    if not isinstance(ratings, Ratings):
        raise ValueError(f"ratings must be what movielens, yahoo_music, … returned; got {ratings!r:.60}")
    available = ratings.topics.shape[1]
    d = available if num_topics is None else integer("num_topics", num_topics, 1, available)
    num_users = None if num_users is None else integer("num_users", num_users)
    normalize_relevance = switch("normalize_relevance", normalize_relevance)
    order = np.random.default_rng(integer("seed", seed, 0)).permutation(len(ratings.attractive))
    train, test = np.array_split(ratings.attractive[order].astype(np.float64), 2)
    most = min(train.shape)
    num_features = integer("num_features", num_features, 1, most, ", users or items")
    topics = ratings.topics[:, :d].astype(np.float64)

    by_topic = test @ topics  # the number of attractive items of each user in each topic
    test, by_topic = test[by_topic.sum(axis=1) > 0][:num_users], by_topic[by_topic.sum(axis=1) > 0][:num_users]
    if len(test) == 0:
        raise ValueError("ratings must have a user in the test half who finds something attractive; there is none")
    _, singular, factors = np.linalg.svd(train, full_matrices=False)
    features = _to_length_one(factors[:num_features].T * singular[:num_features])
    relevance = np.linalg.lstsq(features, test.T, rcond=None)[0].T
    relevance = _to_length_one(relevance) if normalize_relevance else relevance
    whole_test = np.array_split(ratings.attractive[order], 2)[1]
    return TopicBandit(
        topics=_topic_coverage(train, topics),
        features=features,
        preference=by_topic / by_topic.sum(axis=1, keepdims=True),
        relevance=relevance,
        trade_off=trade_off,
        true_topics=_topic_coverage(whole_test.astype(np.float64), topics),
        list_size=list_size,
    )


def _topic_coverage(attractive: np.ndarray, topics: np.ndarray) -> np.ndarray:
    """x, eq. 18: the fraction who like the item among users who like anything in the topic; 0 where nobody does."""
    interested = np.count_nonzero(attractive @ topics, axis=0)
    return attractive.sum(axis=0)[:, None] * topics / np.maximum(interested, 1)


def _to_length_one(rows: np.ndarray) -> np.ndarray:
    """Each row scaled to length 1; one that is 0 but for rounding errors is 0."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    some = length > 1e-9 * length.max()
    return np.where(some, rows / np.where(some, length, 1), 0)


def _ratings(layout: _Layout, topics: dict[int, list[str]], num_users: int, num_items: int) -> Ratings:
    num_users, num_items = integer("num_users", num_users), integer("num_items", num_items)
    counts = [_Counts(), _Counts()]
    for user, item, _ in _pieces(layout):
        counts[0].add(user)
        counts[1].add(item)
    users, items = counts[0].most(num_users), counts[1].most(num_items)
    unknown = [int(item) for item in items if int(item) not in topics]
    if unknown:
        raise ValueError(f"{layout.files[0].parent}: rated item {unknown[0]} is not in the file of items")

    attractive = np.zeros((len(users), len(items)), bool)
    for user, item, rating in _pieces(layout):
        likes = rating >= _ATTRACTIVE
        row, column = _index(users, user[likes]), _index(items, item[likes])
        kept = (row >= 0) & (column >= 0)
        attractive[row[kept], column[kept]] = True
    names = sorted({name for of_item in topics.values() for name in of_item})
    flags = np.array([[name in topics[int(item)] for name in names] for item in items])
    order = np.argsort(-flags.sum(axis=0), kind="stable")
    return Ratings(attractive, flags[:, order], tuple(names[j] for j in order), users, items)


def _index(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index of each of ``wanted`` in ``ids``, −1 if it is not there."""
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    return np.where(ids[order][place] == wanted, order[place], -1)


class _Counts:
    """The number of occurrences of each id."""

    def __init__(self) -> None:
        self.ids = np.empty(0, np.int64)
        self.counts = np.empty(0, np.int64)

    def add(self, ids: np.ndarray) -> None:
        new, counts = np.unique(ids, return_counts=True)
        self.ids, place = np.unique(np.concatenate([self.ids, new]), return_inverse=True)
        self.counts = np.bincount(place, np.concatenate([self.counts, counts])).astype(np.int64)

    def most(self, number: int) -> np.ndarray:
        """The most frequent ids, most frequent first, equals by id."""
        return self.ids[np.argsort(-self.counts, kind="stable")[:number]]


def _pieces(layout: _Layout) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Users, items and ratings, some millions at a time."""
    import pandas

    types = dict(zip(layout.columns, ("int64", "int64", "float32"), strict=True))
    found = False
    for file in layout.files:
        options: dict[str, Any] = {"sep": layout.separator, "header": None, "skiprows": int(layout.header)}
        try:
            with (
                open_regular(file) as raw,
                pandas.read_csv(
                    io.BufferedReader(Bounded(raw, file), 2**18),
                    usecols=list(layout.columns),
                    dtype=types,
                    chunksize=_PIECE,
                    quoting=csv.QUOTE_NONE,
                    **options,
                ) as pieces,
            ):
                while True:
                    with np.errstate(invalid="ignore", over="ignore"):  # pandas casts before it checks
                        piece = next(pieces, None)
                    if piece is None:
                        break
                    user, item, rating = (piece[column].to_numpy() for column in layout.columns)
                    if not ((rating >= 0) & (rating <= 5)).all():
                        raise ValueError("ratings must be from 0 to 5")
                    found = True
                    yield user, item, rating
        except pandas.errors.EmptyDataError:
            continue
        except Exception as error:  # pandas raises many kinds
            _complain(file, layout)
            raise ValueError(f"{file}: cannot be read: {str(error)!r:.80}") from None
    if not found:
        raise ValueError(f"{layout.files[0]}:1: no ratings in this file")


def _complain(file: Path, layout: _Layout) -> None:
    """Raises an error that names the first bad line."""
    for number, line in enumerate(_text(file), start=1):
        fields = line.split(layout.separator)
        if (layout.header and number == 1) or not line:
            continue
        if len(fields) <= max(layout.columns):
            raise ValueError(f"{file}:{number}: must have a user, an item and a rating; got {line!r:.80}")
        user, item, rating = (fields[column] for column in layout.columns)
        for name, text in (("user", user), ("item", item)):
            _id(file, number, name, text.strip())
        try:
            allowed = rating.isascii() and "_" not in rating and 0 <= float(rating) <= 5  # as pandas reads numbers
        except ValueError:
            allowed = False
        if not allowed:
            raise ValueError(f"{file}:{number}: the rating must be a number from 0 to 5; got {rating!r:.40}")


def _text(file: Path, encoding: str = "utf-8") -> Iterator[str]:
    if not file.exists():
        raise ValueError(f"path must be a folder with {file.name}; there is none at {file}")
    with open_regular(file) as raw:
        for line in io.TextIOWrapper(io.BufferedReader(Bounded(raw, file)), encoding, errors="replace"):
            yield line.rstrip("\r\n")


def _id(file: Path, number: int, name: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(f"{file}:{number}: the {name} must be an integer of at most 18 digits; got {text!r:.40}")
    return int(text)


def _movies_csv(file: Path) -> dict[int, list[str]]:
    rows = csv.reader(_text(file))
    topics = {}
    try:
        next(rows, None)
        for row in rows:
            if len(row) != 3:
                raise ValueError(f"{file}:{rows.line_num}: must be movieId,title,genres; got {len(row)} columns")
            topics[_id(file, rows.line_num, "item", row[0])] = row[2].split("|")
    except csv.Error as error:
        raise ValueError(f"{file}:{rows.line_num}: cannot be read: {error}") from None
    return topics


def _movies_dat(file: Path) -> dict[int, list[str]]:
    topics = {}
    for number, line in enumerate(_text(file, "latin-1"), start=1):
        fields = line.split("::")
        if len(fields) < 3:
            raise ValueError(f"{file}:{number}: must be movie::title::genres; got {line!r:.80}")
        topics[_id(file, number, "item", fields[0])] = fields[-1].split("|")
    return topics


def _movies_flags(folder: Path) -> dict[int, list[str]]:
    genres = [line.split("|")[0] for line in _text(folder / "u.genre", "latin-1") if line]
    file, topics = folder / "u.item", {}
    for number, line in enumerate(_text(file, "latin-1"), start=1):
        fields = line.split("|")
        flags = fields[-len(genres) :]
        if len(fields) <= len(genres) or not set(flags) <= {"0", "1"}:
            raise ValueError(
                f"{file}:{number}: must end in {len(genres)} flags 0 or 1, one per line of u.genre; got {line!r:.80}"
            )
        topics[_id(file, number, "item", fields[0])] = [g for g, flag in zip(genres, flags, strict=True) if flag == "1"]
    return topics


def _song_genres(folder: Path) -> dict[int, list[str]]:
    parents, names = {}, {}
    file = folder / "genre-hierarchy.txt"
    for number, line in enumerate(_text(file), start=1):
        fields = line.split("\t")
        if len(fields) != 4:
            raise ValueError(f"{file}:{number}: must be genre, parent, level and name; got {line!r:.80}")
        genre, parent, level = (_id(file, number, "genre", text) for text in fields[:3])
        parents[genre] = genre if level <= 1 else parent
        names[genre] = fields[3]

    def top_level(genre: int) -> str:
        above = {genre}
        while parents[genre] != genre:
            genre = parents[genre]
            if genre not in parents or genre in above:
                raise ValueError(f"the genre's parents must lead to a top-level genre; got {genre}")
            above.add(genre)
        return names[genre]

    file, topics = folder / "song-attributes.txt", {}
    for number, line in enumerate(_text(file), start=1):
        fields = line.split("\t")
        if len(fields) != 4:
            raise ValueError(f"{file}:{number}: must be song, album, artist and genre; got {line!r:.80}")
        song, genre = _id(file, number, "song", fields[0]), _id(file, number, "genre", fields[3])
        if genre not in parents:
            raise ValueError(f"{file}:{number}: genre {genre} is not in genre-hierarchy.txt")
        try:
            topics[song] = [top_level(genre)]
        except ValueError as error:
            raise ValueError(f"{file}:{number}: {error}") from None
    return topics
