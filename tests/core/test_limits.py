"""Limits: what is too large is refused before the work, by a line that says how to allow more."""

import gzip
import os
import tracemalloc
import zlib

import pytest

import jaxrank as jr
from jaxrank.core import limits
from jaxrank.studies import sweep_files


def bomb(path, megabytes):
    """A line of this length, in a gzipped file of a thousandth of its size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(packer.compress(b"0" * 2**20))
        file.write(packer.flush())


def refused(call, *words):
    """The call is refused with these words, and without ever holding 100 MB."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as error:
            call()
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    for word in words:
        assert word in str(error.value), error.value


def test_a_line_that_never_ends_is_refused(tmp_path):
    bomb(tmp_path / "log.tsv.gz", 200)
    refused(
        lambda: jr.datasets.load_sessions(tmp_path / "log.tsv.gz"),
        "log.tsv.gz: a line must be at most 16,777,216 bytes; got",
        "to allow more, set the environment variable JAXRANK_MAX_LINE_BYTES",
    )
    with open(tmp_path / "ratings.csv", "wb") as file:
        file.truncate(10 * 2**30)  # zeros that take no room on the disk
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n")
    refused(lambda: jr.datasets.movielens(tmp_path), "JAXRANK_MAX_LINE_BYTES")


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch):
    (tmp_path / "log.tsv.gz").write_bytes(gzip.compress(b"0\n" * 2_000_000))
    monkeypatch.setattr("jaxrank.datasets._lines._SMALL", 2**20)
    with pytest.raises(ValueError, match=r"log\.tsv\.gz: what it unpacks to must be at most 200 times its size"):
        list(jr.datasets.sessions.each_line(tmp_path / "log.tsv.gz", lambda fields: None))


def test_features_that_are_nearly_all_zero_are_not_spread_out(tmp_path):
    for name in ("train", "test"):
        lines = [f"{i % 3} qid:{i // 10} 1:{i}\n" for i in range(9_000)] + ["1 qid:x 1:1 100000:1\n"]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    refused(
        lambda: jr.datasets.letor(tmp_path, cache=False),
        "100,000 features of all documents must be at most 1,073,741,824 bytes; got 7,200,800,000",
        "JAXRANK_MAX_DENSE_BYTES",
    )


def test_a_limit_is_raised_by_its_environment_variable(monkeypatch):
    with pytest.raises(ValueError, match=r"num_items must be at most 20,000; got 20,001: .* JAXRANK_MAX_ITEMS"):
        jr.datasets.synthetic("cm", 1, 20_001)
    monkeypatch.setenv("JAXRANK_MAX_ITEMS", "3e4")
    assert jr.datasets.synthetic("cm", 1, 20_001).attraction.shape == (1, 20_001)
    monkeypatch.setenv("JAXRANK_MAX_ITEMS", "many")
    with pytest.raises(ValueError, match="JAXRANK_MAX_ITEMS must be a number; got 'many'"):
        limits.limit("JAXRANK_MAX_ITEMS")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: jr.datasets.synthetic("cm", 10**9, 10), "JAXRANK_MAX_SYNTHETIC"),
        (lambda: jr.datasets.synthetic_ratings(10**6, 10**4), "JAXRANK_MAX_SYNTHETIC"),
        (lambda: jr.datasets.synthetic_letor(10**9), "JAXRANK_MAX_SYNTHETIC"),
        (lambda: jr.MGD(num_candidates=100_000_000), "JAXRANK_MAX_SIZE"),
        (lambda: jr.PairRank(window=99_999_999_999), "JAXRANK_MAX_SIZE"),
        (lambda: sweep_files._product({key: range(199) for key in "abcd"}), "JAXRANK_MAX_CELLS"),
        (lambda: sweep_files._product({key: range(199) for key in "abcd"}, "JAXRANK_MAX_SETTINGS"), "MAX_SETTINGS"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_made(call, name):
    refused(call, name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--items", "100000"], "--items must be at most 20,000; got 100,000: to allow more, set"),
        (["--items", "5000"], "--list-size, the number of items unless given, must be at most 1,000; got 5,000"),
        (["--list-size", "5000"], "--list-size must be at most 1,000; got 5,000"),
        (["--queries", "1000000000"], "queries × items must be at most 16,777,216; got 10,000,000,000"),
        (["--seeds", "2147483647"], "there must be fewer than 2**31 lanes"),
        (["--seeds", "2147483647", "--queries", "1", "--records", "1"], "the curves must fit in memory"),
        (["--policy", "mgd:num_candidates=100000000"], "MGD.num_candidates must be at most 100,000; got 100,000,000"),
        (["--data", "/dev/zero"], "/dev/zero is a folder, a pipe or a device"),
    ],
)
def test_the_command_refuses_what_is_too_large(arguments, message, refusal):
    assert message in refusal(["run", *arguments])


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_is_no_file_is_not_read(kind, tmp_path, refusal):
    names = ("train.txt", "result", "log.tsv", "sweep.toml", "run.json", "ratings.csv", "manifest.json")
    for name in names:
        if kind == "fifo":
            os.mkfifo(tmp_path / name)
        else:
            os.symlink("/dev/zero", tmp_path / name)
    (tmp_path / "test.txt").write_text("1 qid:1 1:1\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n")
    for call in (
        lambda: jr.datasets.letor(tmp_path, cache=False),
        lambda: jr.load(tmp_path / "result"),
        lambda: jr.datasets.load_sessions(tmp_path / "log.tsv"),
        lambda: jr.datasets.yandex(tmp_path / "run.json"),
        lambda: jr.datasets.movielens(tmp_path),
        lambda: sweep_files.read_sweep(tmp_path / "sweep.toml"),
    ):
        with pytest.raises(ValueError, match=r"a folder, a pipe or a device|there is none"):
            call()
    assert "is a folder, a pipe or a device" in refusal(["resume", str(tmp_path)])
