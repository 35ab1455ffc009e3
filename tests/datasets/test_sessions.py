"""Click logs: what the two loaders read, and what they say about files that they cannot read."""

import gzip
import tracemalloc

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.datasets.sessions import load_features, load_lists, load_sessions, load_yandex_log

TABLE = """split\tquery_region\tdocs\tclicked_positions0
train\t7_0\t40,30,20\t0,2
train\t7_0\t10,20,30\t
test\t7_0\t10,20,30\t1
train\t8_0\t10,20,30\t2
"""

# Session 1 asks query 7 twice, with document 20 in both lists and 40 in the first alone; then session 2 asks it.
RAW = """1\t0\tQ\t7\t0\t40\t30\t20
1\t3\tC\t20
1\t9\tQ\t7\t0\t10\t20\t30
1\t11\tC\t40
1\t12\tC\t20
1\t13\tC\t20
2\t0\tQ\t7\t0\t10\t20\t30
2\t5\tQ\t8\t0\t50\t60\t70
2\t6\tC\t10
3\t0\tQ\t8\t1\t50\t60\t70
3\t1\tC\t70
"""


def write(folder, content, name="log.tsv"):
    path = folder / name
    path.write_text(content)
    return path


def test_a_table_gives_items_rankings_clicks_and_split_of_every_query(tmp_path):
    log = load_sessions(write(tmp_path, TABLE), list_size=3)
    assert list(log.queries) == ["7_0", "8_0"]
    query = log.queries["7_0"]
    assert query.documents.tolist() == [10, 20, 30, 40], "the most frequent list first"
    assert query.base_ranking.tolist() == [0, 1, 2]
    assert query.rankings.tolist() == [[3, 2, 1], [0, 1, 2], [0, 1, 2]]
    assert query.clicks.tolist() == [[True, False, True], [False] * 3, [False, True, False]]
    assert query.is_test.tolist() == [False, False, True]
    assert (query.rankings.dtype, query.clicks.dtype, query.documents.dtype) == (np.int32, bool, np.int64)
    assert log.num_items == 4


def test_stacked_sessions_carry_their_query_and_can_be_one_split(tmp_path):
    log = load_sessions(write(tmp_path, TABLE), list_size=3)
    assert log.stacked().queries.tolist() == [0, 0, 0, 1]
    train, test = log.stacked("train"), log.stacked("test")
    assert train.queries.tolist() == [0, 0, 1]
    assert train.rankings.tolist() == [[3, 2, 1], [0, 1, 2], [0, 1, 2]]
    assert train.clicks.tolist() == [[True, False, True], [False] * 3, [False, False, True]]
    assert test.queries.tolist() == [0]
    with pytest.raises(ValueError, match="split must be None, 'train' or 'test'; got 'dev'"):
        log.stacked("dev")


@pytest.mark.parametrize(
    ("column", "clicks"),
    [
        ("pos", ["0,2", "", "1"]),
        ("clicked_positions1", ["1,3", "", "2"]),
        ("clicked_docs", ["40,20", "", "20"]),
        ("clicks", ["1,0,1", "0,0,0", "0,1,0"]),
    ],
)
def test_other_peoples_tables_are_the_same_log(column, clicks, tmp_path):
    """Columns of other names, in another order, with some in between; four ways to write clicks; no split."""
    header = f"session\turls\tquery_region\t{column}"
    lists = ["40,30,20", "10,20,30", "10,20,30"]
    lines = [f"{i}\t{docs}\t7_0\t{clicked}" for i, (docs, clicked) in enumerate(zip(lists, clicks, strict=True))]
    names = {"docs": "urls"} | ({"clicked_positions0": column} if column == "pos" else {})
    log = load_sessions(write(tmp_path, "\n".join([header, *lines]) + "\n"), columns=names)
    query, expected = log.queries["7_0"], load_sessions(write(tmp_path, TABLE)).queries["7_0"]
    for field in ("documents", "rankings", "clicks", "base_ranking"):
        np.testing.assert_array_equal(getattr(query, field), getattr(expected, field))
    assert query.is_test is None


def test_a_column_that_is_read_as_another_one_is_not_read_as_itself(tmp_path):
    """A column called clicks that holds positions."""
    table = TABLE.replace("clicked_positions0", "clicks")
    log = load_sessions(write(tmp_path, table), columns={"clicked_positions0": "clicks"})
    expected = load_sessions(write(tmp_path, TABLE))
    np.testing.assert_array_equal(log.queries["7_0"].clicks, expected.queries["7_0"].clicks)


def test_document_ids_may_be_text(tmp_path):
    log = load_sessions(write(tmp_path, TABLE.replace("40,", "a.org,")), text_ids=True)
    assert log.queries["7_0"].documents.tolist() == ["10", "20", "30", "a.org"]


def test_a_validation_split_is_of_the_training_sessions(tmp_path):
    lines = [f"{'test' if i % 4 == 0 else 'train'}\tq{i % 2}\t{i},{i + 1}\t0\t{0.5}" for i in range(800)]
    header = TABLE.splitlines()[0] + "\tprobability"
    log = load_sessions(write(tmp_path, "\n".join([header, *lines]) + "\n"))
    split = log.validation(0.25, seed=1)
    train, held = split.stacked("train"), split.stacked("test")
    assert len(train.queries) + len(held.queries) == 600 and 100 < len(held.queries) < 200
    assert len(held.probability) == len(held.queries)
    for name, query in split.queries.items():
        ids = query.documents[query.rankings[:, 0]]
        assert (ids % 4 != 0).all() and list(split.queries) == list(log.queries), name
    again, other = log.validation(0.25, seed=1), log.validation(0.25, seed=2)
    assert (again.queries["q1"].is_test == split.queries["q1"].is_test).all()
    assert (other.queries["q1"].is_test != split.queries["q1"].is_test).any()
    assert len(load_yandex_log(write(tmp_path, RAW), list_size=3).validation(0.5).stacked().queries) == 5
    with pytest.raises(ValueError, match=r"fraction must be in \(0, 1\); got 1.0"):
        log.validation(1.0)


LOGGED = """query_region\tdocs\tclicks\tprobability\tprefix
q\t4,3\t0,1\t0.25\t0.5,0.25
q\t3,4\t0,0\t0.5\t0.5,0.5
r\t4,5\t1,0\t1\t1,1
"""
FEATURES = """query_region\tdoc\tbm25\tclicks
q\t3\t0.5\t1
q\t4\t1.5\t-2
q\t99\t7\t7
r\t5\t2\t0
r\t4\t3e-1\t0
"""
LISTS = """query_region\tdocs\tprobability
q\t3,4\t0.75
r\t5,4\t1
q\t4,3\t0.25
other\t1,2\t0.5
"""


def test_a_log_has_the_probabilities_of_what_was_shown(tmp_path):
    sessions = load_sessions(write(tmp_path, LOGGED)).stacked()
    assert sessions.probability.tolist() == [0.25, 0.5, 1]
    assert sessions.prefix.tolist() == [[0.5, 0.25], [0.5, 0.5], [1, 1]]
    log = jr.off_policy.Log(sessions.rankings, sessions.clicks, sessions.queries, sessions.probability, sessions.prefix)
    assert log.rankings.shape == (3, 2)


def test_features_and_lists_are_those_of_the_logs_items(tmp_path):
    log = load_sessions(write(tmp_path, LOGGED))
    assert [query.documents.tolist() for query in log.queries.values()] == [[4, 3], [4, 5]]
    queries = load_features(write(tmp_path, FEATURES, "features.tsv"), log)
    np.testing.assert_allclose(queries.features, [[1.5, -2], [0.5, 1], [0.3, 0], [2, 0]], rtol=1e-6)
    assert queries.starts.tolist() == [0, 2, 4]
    lists = load_lists(write(tmp_path, LISTS, "lists.tsv"), log)
    assert lists.rankings.tolist() == [[[1, 0], [0, 1]], [[1, 0], [1, 0]]]
    assert lists.probabilities.tolist() == [[0.75, 0.25], [1, 0]]
    target = jr.off_policy.Lists(*lists, items=2)
    assert target.marginals is not None


BAD_LOGS = {  # file, what is replaced by what, the message
    "a click on an unseen position": (
        "log",
        ("4,5\t1,0", "4,5\t1,0,1"),
        r"log\.tsv:4: clicks must be 0 or 1 for each of 2 documents; got '1,0,1'",
    ),
    "propensity 0 of a logged list": (
        "log",
        ("\t0.5\t0.5,0.5", "\t0\t0.5,0.5"),
        r"log\.tsv:3: probability must be above 0 and at most 1, as the list was shown; got 0\.0",
    ),
    "propensity 0 of a prefix": ("log", ("0.5,0.25", "0.5,0"), r"log\.tsv:2: prefix must be above 0 and .*; got 0\.0"),
    "a propensity above 1": ("log", ("\t0.25\t", "\t1.25\t"), r"log\.tsv:2: probability must be above 0 .*; got 1\.25"),
    "a propensity that is no number": ("log", ("\t0.25\t", "\tnan\t"), r"log\.tsv:2: probability must be finite; got"),
    "prefixes that rise": ("log", ("0.5,0.25", "0.2,0.25"), r"log\.tsv:2: prefix must not rise: .*; got '0\.2,0\.25'"),
    "a prefix cut off": ("log", ("0.5,0.25", "0.5"), r"log\.tsv:2: prefix must have 2 values; got 1"),
    "two columns of clicks": (
        "log",
        ("probability\tprefix", "probability\tclicked_docs"),
        r"log\.tsv:1: the header must have one of clicked_positions0, .*; got clicked_docs and clicks: rename",
    ),
    "a column twice": ("log", ("docs\tclicks", "docs\tdocs"), r"log\.tsv:1: .* each column once; got 'docs' twice"),
    "a missing feature row": (
        "features",
        ("r\t4\t3e-1\t0\n", ""),
        r"log\.tsv:4: document 4 of query r has no row of features in .*features\.tsv",
    ),
    "a feature row twice": ("features", ("q\t99", "q\t3"), r"features\.tsv:4: document 3 of query q has a row already"),
    "a feature that is no number": ("features", ("1.5", "x"), r"features\.tsv:3: features must be numbers; got 'x,-2'"),
    "a feature beyond float32": ("features", ("1.5", "1e308"), r"features\.tsv:3: features must be between -1e38 and"),
    "probabilities that do not sum to 1": (
        "lists",
        ("4,3\t0.25", "4,3\t0.5"),
        r"lists\.tsv:4: the probabilities of query q must sum to 1; got 1\.25",
    ),
    "a list of something else": (
        "lists",
        ("5,4\t1", "5,6\t1"),
        r"lists\.tsv:3: document 6 of query r is not in .*log\.tsv",
    ),
    "no list of a query": ("lists", ("r\t5,4\t1\n", ""), r"lists\.tsv:4: no list of query r, which .*log\.tsv has"),
}


@pytest.mark.parametrize("bad", BAD_LOGS)
def test_a_bad_log_for_off_policy_evaluation_is_refused_with_file_and_line(bad, tmp_path):
    damaged, (old, new), message = BAD_LOGS[bad]
    files = {"log": LOGGED, "features": FEATURES, "lists": LISTS}
    assert files[damaged].count(old) == 1
    files[damaged] = files[damaged].replace(old, new)
    paths = {name: write(tmp_path, content, f"{name}.tsv") for name, content in files.items()}
    with pytest.raises(ValueError, match=message) as error:
        log = load_sessions(paths["log"])
        load_features(paths["features"], log)
        load_lists(paths["lists"], log)
    assert "\n" not in str(error.value)


def test_of_lists_shown_equally_often_the_first_is_the_base_list(tmp_path):
    header = TABLE.splitlines()[0]
    log = load_sessions(write(tmp_path, f"{header}\ntrain\tq\t9,8\t\ntrain\tq\t1,2\t0\n"), list_size=2)
    assert log.queries["q"].documents.tolist() == [9, 8, 1, 2]


def test_a_gzipped_table_is_the_same_table(tmp_path):
    path = tmp_path / "log.tsv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    assert load_sessions(path, list_size=3).stacked().rankings.tolist() == [
        [3, 2, 1],
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2],
    ]


def test_raw_clicks_go_to_the_most_recent_list_of_their_session_that_showed_the_document(tmp_path):
    log = load_yandex_log(write(tmp_path, RAW), list_size=3)
    assert list(log.queries) == ["7_0", "8_0", "8_1"], "a query in another region is another query"
    query = log.queries["7_0"]
    shown = query.documents[query.rankings]
    assert shown.tolist() == [[40, 30, 20], [10, 20, 30], [10, 20, 30]]
    assert query.documents[query.base_ranking].tolist() == [10, 20, 30]
    clicked = [shown[i][query.clicks[i]].tolist() for i in range(3)]
    assert clicked == [[40, 20], [20], [10]], "20 before the second list, 40 shown in the first alone, 10 two lists up"
    assert query.is_test is None
    assert not log.queries["8_0"].clicks.any()
    assert log.queries["8_1"].clicks.tolist() == [[False, False, True]]
    with pytest.raises(ValueError, match="this log is not split; got 'train'"):
        log.stacked("train")


def test_most_frequent_queries_come_first_and_equals_in_the_order_of_the_log(tmp_path):
    log = load_yandex_log(write(tmp_path, RAW), list_size=3)
    assert list(log.most_frequent(2).queries) == ["7_0", "8_0"]
    kept = load_yandex_log(write(tmp_path, RAW), list_size=3, num_queries=2)
    assert list(kept.queries) == ["7_0", "8_0"]
    assert kept.queries["7_0"].clicks.tolist() == log.queries["7_0"].clicks.tolist()
    for num_queries in (0, 4, 1.5):
        with pytest.raises(ValueError, match=rf"num_queries must be .*; got {num_queries}"):
            log.most_frequent(num_queries)
        with pytest.raises(ValueError, match=rf"num_queries must be .*; got {num_queries}"):
            load_yandex_log(tmp_path / "log.tsv", list_size=3, num_queries=num_queries)


def test_a_raw_log_is_never_whole_in_memory(tmp_path):
    """One query of 10 sessions kept: at most 80 bytes for every list shown, in a file of 200 bytes for each."""
    shown = "\t".join(str(10**17 + i) for i in range(10))
    path = tmp_path / "raw.tsv"
    with path.open("w") as file:
        for session in range(20_000):
            file.write(f"{session}\t0\tQ\t{session if session % 2_000 else 0}\t0\t{shown}\n")
    tracemalloc.start()
    log = load_yandex_log(path, num_queries=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(log.stacked().queries) == 10
    assert path.stat().st_size > 200 * 20_000
    assert peak < 80 * 20_000


BAD_TABLES = {
    "a line cut off": ("train\t7_0\t10,20", r":6: expected 4 tab-separated columns; got 3"),
    "a list cut off": ("train\t7_0\t10,20\t", r":6: expected 3 docs; got 2"),
    "too many columns": ("train\t7_0\t10,20,30\t0\t1", r":6: expected 4 tab-separated columns; got 5"),
    "an unknown split": ("dev\t7_0\t10,20,30\t0", r":6: split must be train or test; got 'dev'"),
    "a document that is no number": ("train\t7_0\t10,x,30\t0", r":6: docs must be integers; got '10,x,30'"),
    "a position that is no number": (
        "train\t7_0\t10,20,30\t0,",
        r":6: clicked_positions0 must be integers; got '0,'",
    ),
    "a click below the list": (
        "train\t7_0\t10,20,30\t3",
        r":6: clicked position 3 was not shown; .* 0 to 2",
    ),
    "a negative position": ("train\t7_0\t10,20,30\t-1", r":6: clicked_positions0 must be from 0"),
    "an id too large": (f"train\t7_0\t10,20,{2**63}\t0", r":6: docs must be from 0 to 2\*\*63 - 1"),
    "an empty line": ("\n", r":6: expected 4 tab-separated columns; got 1"),
    "bytes of something else": ("\x00\x01\x02", r":6: expected 4 tab-separated columns; got 1"),
}


@pytest.mark.parametrize("bad", BAD_TABLES)
def test_a_bad_table_is_refused_with_file_and_line(bad, tmp_path):
    line, message = BAD_TABLES[bad]
    with pytest.raises(ValueError, match=r"log\.tsv" + message) as error:
        load_sessions(write(tmp_path, TABLE + line), list_size=3)
    assert "\n" not in str(error.value)


BAD_RAW = {
    "a query cut off": (
        "3\t2\tQ\t8\t1\t50\t60",
        r":12: expected 8 tab-separated columns in a line of kind Q; got 7",
    ),
    "a click cut off": ("3\t2\tC", r":12: expected 4 tab-separated columns in a line of kind C; got 3"),
    "a line cut off": ("3", r":12: the third of the tab-separated columns must be Q or C; got ''"),
    "another kind": ("3\t2\tX\t50", r":12: the third of the tab-separated columns must be Q or C; got 'X'"),
    "a session that is no number": (
        "s\t2\tC\t50",
        r":12: SessionID and TimePassed must be integers; got 's,2'",
    ),
    "a document that is no number": ("3\t2\tC\tu", r":12: ids must be integers; got 'u'"),
    "a click on something not shown": (
        "3\t2\tC\t99",
        r":12: click on document 99, which session 3 was not shown",
    ),
    "a click on another session's list": (
        "4\t0\tC\t50",
        r":12: click on document 50, which session 4 was not shown",
    ),
}


@pytest.mark.parametrize("bad", BAD_RAW)
@pytest.mark.parametrize("num_queries", [None, 1])
def test_a_bad_raw_log_is_refused_with_file_and_line(bad, num_queries, tmp_path):
    line, message = BAD_RAW[bad]
    with pytest.raises(ValueError, match=r"log\.tsv" + message) as error:
        load_yandex_log(write(tmp_path, RAW + line), list_size=3, num_queries=num_queries)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("load", [load_sessions, load_yandex_log])
def test_missing_empty_and_damaged_files_are_refused(load, tmp_path):
    with pytest.raises(ValueError, match=r"there is none at .*nowhere\.tsv"):
        load(tmp_path / "nowhere.tsv")
    with pytest.raises(ValueError, match=r"there is none at|is a folder"):
        load(tmp_path)
    with pytest.raises(ValueError, match=r"empty\.tsv:1: the file is empty"):
        load(write(tmp_path, "", "empty.tsv"))
    content = TABLE if load is load_sessions else RAW
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(content.encode())[:-12])
    with pytest.raises(ValueError, match=r"cut\.gz:\d+: cannot be read: Compressed file ended"):
        load(cut, list_size=3)


def test_a_table_without_its_header_or_without_sessions_is_refused(tmp_path):
    header, first, *_ = TABLE.splitlines()
    with pytest.raises(ValueError, match=r"log\.tsv:1: the header must have a column query_region; got"):
        load_sessions(write(tmp_path, first + "\n"), list_size=3)
    with pytest.raises(ValueError, match=r"log\.tsv:1: no sessions in this file"):
        load_sessions(write(tmp_path, header + "\n"), list_size=3)


def test_real_sessions_are_read_whole(real_data):
    log = load_sessions(real_data / "yandex-sessions" / "sessions.tsv.gz")
    everything, train, test = (log.stacked(split) for split in (None, "train", "test"))
    assert len(log.queries) == 20
    assert len(everything.queries) == len(train.queries) + len(test.queries) == 56_477
    assert everything.clicks.sum(axis=0).tolist() == [
        17360,
        14176,
        9993,
        8454,
        6086,
        4579,
        4142,
        3039,
        3191,
        2926,
    ]
    for query in log.queries.values():
        assert query.base_ranking.tolist() == list(range(10))
        assert np.unique(query.rankings).tolist() == list(range(len(query.documents)))
        counts = np.unique(query.rankings, axis=0, return_counts=True)[1]
        assert (query.rankings == query.base_ranking).all(axis=1).sum() == counts.max()
