"""Damaged files for every loader: all that it may do is read them, or say in one line what is wrong with which file.

    python tests/fuzz.py [EXAMPLES [LOADER …]]

runs this number of examples of each loader (10,000 if not given) and prints the messages that came up, digits as N, to
be read as a user would, the longest CPU time of an example and the most memory that the process has had.
``test_fuzz.py`` runs the same with fewer.

A damaged file is a valid one with a few things done to it: bytes flipped, cut off, fields swapped, lines repeated,
numbers replaced by other words, gzip in whole or in part, or nothing of it left.
"""

import contextlib
import gzip
import importlib
import io
import os
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxrank as jr
import jaxrank.bench
import jaxrank.command.cli
from jaxrank.datasets import letor_files
from jaxrank.studies import sweeps
from jaxrank.studies.folders import stored_manifest
from jaxrank.studies.sweep_files import read_sweep

_WORDS = [
    *("", "0", "1", "-1", "7", "0.5", "-0", "1e308", "1e-320", "1e999", "nan", "-inf", "NaN", "Infinity", "null"),
    *("2147483647", "2147483648", "9223372036854775808", "1" + "0" * 30, "9" * 5_000, "1_0", "0x10", "²", "١٢", "½"),
    *("\x00", "\r\n", "\n", "\n\n", "\r", "\t", " ", ",", ":", "::", "|", "#", '"', "'", "\\", "\\ud800", "{}", "[["),
    *("\ufeff", "é", "日本", "💥", "a" * 200_000, "[" * 3_000, "qid:", "qid:1", "1:1", "\x1a", "%s", "=", "[x]\n"),
]  # fmt: skip


class Loader(NamedTuple):
    """A valid example, and what reads it."""

    files: dict[str, bytes]  # name -> content
    load: Callable[[Path], object]  # of the folder they are in


class Damage(NamedTuple):
    """What is done to one of the files; numbers are taken modulo whatever there is."""

    how: str
    file: int
    place: int
    what: int


def _flip(content: bytes, place: int, what: int) -> bytes:
    place %= max(len(content), 1)
    return content[:place] + bytes([b ^ (1 << what % 8) for b in content[place : place + 1]]) + content[place + 1 :]


def _cut(content: bytes, place: int, what: int) -> bytes:
    return content[: place % (len(content) + 1)]


def _remove(content: bytes, place: int, what: int) -> bytes:
    place %= len(content) + 1
    return content[:place] + content[place + 1 + what % 40 :]


def _insert(content: bytes, place: int, what: int) -> bytes:
    place %= len(content) + 1
    return content[:place] + _WORDS[what % len(_WORDS)].encode() + content[place:]


def _renumber(content: bytes, place: int, what: int) -> bytes:
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", content))
    if not numbers:
        return content
    found = numbers[place % len(numbers)]
    return content[: found.start()] + _WORDS[what % len(_WORDS)].encode() + content[found.end() :]


def _swap(content: bytes, place: int, what: int) -> bytes:
    fields = re.split(rb"([\t\n,:| ]+)", content)
    i, j = place % len(fields), what % len(fields)
    fields[i], fields[j] = fields[j], fields[i]
    return b"".join(fields)


def _repeat(content: bytes, place: int, what: int) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    lines.insert(what % (len(lines) + 1), lines[place % len(lines)])
    return b"".join(lines)


def _whole(content: bytes, place: int, what: int) -> bytes:
    noise = np.random.default_rng(place).bytes(what % 300)
    packed = gzip.compress(content)
    return (
        b"",
        noise,
        packed,
        packed[: place % len(packed)],
        packed[:20] + noise,
        content.replace(b"\n", b"\r\n"),
        content.decode("latin-1").encode("utf-16"),
        content * (1 + place % 3),
    )[what % 8]


_HOW = {f.__name__: f for f in (_flip, _cut, _remove, _insert, _renumber, _renumber, _swap, _repeat, _whole)}
DAMAGES = st.lists(
    st.builds(
        Damage,
        st.sampled_from([*_HOW, "_lost", "_folder"]),
        st.integers(0, 9),
        st.integers(0, 9999),
        st.integers(0, 999),
    ),
    min_size=1,
    max_size=3,
)


def write(folder: Path, files: dict[str, bytes], damages: Sequence[Damage] = ()) -> None:
    contents: dict[str, bytes | None] = dict(files)
    for how, file, *numbers in damages:
        place, what = (number * 2_654_435_761 % 2**32 for number in numbers)  # Hypothesis likes small ones, we do not
        name = list(files)[file % len(files)]
        content = contents[name]
        if how == "_lost":
            contents.pop(name)
            files = {key: value for key, value in files.items() if key != name} or {"other": b""}
            contents = contents or {"other": b""}
        elif how == "_folder":
            contents[name] = None
        elif content is not None:
            contents[name] = _HOW[how](content, place, what)
    for name, content in contents.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def complaint(loader: Loader, damages: Sequence[Damage]) -> str | None:
    """What the loader says about the damaged files; None if it reads them. Any other exception comes through."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        write(Path(folder), loader.files, damages)
        try:
            loader.load(Path(folder))
        except ValueError as error:
            message = str(error)
            assert folder in message, f"which file? {message!r:.300}"
            assert len(message) < 800 + 2 * len(folder), f"too long: {message!r}"
            return message.replace(folder, "…")
    return None


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 1_000,  # the suite: the same examples every time
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


_longest = [0.0]  # CPU seconds of an example: a busy machine does not count


@contextlib.contextmanager
def timed() -> Iterator[None]:
    started = time.process_time()
    yield
    _longest[0] = max(_longest[0], time.process_time() - started)


def fuzz(loader: Loader, examples: int) -> Counter[str]:
    """Runs this number of examples; returns how often each message came up, without its digits."""
    messages: Counter[str] = Counter()

    @_settings(examples)
    @given(DAMAGES)
    def run(damages: list[Damage]) -> None:
        with timed():
            message = complaint(loader, damages)
        messages["(read)" if message is None else re.sub(r"\d+", "N", message)] += 1

    run()
    return messages


def _yandex(folder: Path) -> None:
    """Each model in turn, by the size of the file."""
    file = folder / "params.json"
    names = ("cm", "dcm", "pbm", "ubm", "dbn", "ccm")
    jr.datasets.yandex(file, names[file.stat().st_size % 6 if file.is_file() else 0])


def _logged(folder: Path) -> None:
    """A log with propensities, its documents' features and a ranker's lists."""
    log = jr.datasets.load_sessions(folder / "logged.tsv")
    jr.datasets.load_features(folder / "features.tsv", log)
    jr.datasets.load_lists(folder / "lists.tsv", log)


def _log(folder: Path) -> None:
    """With and without counting first."""
    file = folder / "log.txt"
    size = file.stat().st_size if file.is_file() else 0
    jr.datasets.load_yandex_log(file, list_size=3, num_queries=1 if size % 2 else None)


def _letor(folder: Path) -> None:
    data = jr.datasets.letor(folder, cache=False)
    assert all(np.isfinite(split.features).all() for split in (data.train, data.test))


def _letor_copy(folder: Path) -> None:
    """Whatever has become of the copy, the queries are those of the text."""
    source = folder / "source"
    source.mkdir()
    write(source, LETOR)
    for file in source.iterdir():
        os.utime(file, ns=(1, 1))  # as when the copy was made
    options = {"version": letor_files._CACHE_VERSION, "num_grades": 5, "normalize": True}
    if (folder / "copy").exists():
        (folder / "copy").rename(letor_files._cache_file(source, options, folder))
    assert jr.datasets.letor(source, cache=folder).train == jr.datasets.letor(source, cache=False).train


def _made_copy() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), LETOR)
        for file in Path(folder).iterdir():
            os.utime(file, ns=(1, 1))
        jr.datasets.letor(folder, cache=Path(folder) / "copies")
        (copy,) = (Path(folder) / "copies").iterdir()
        return copy.read_bytes()


def _saved_run() -> dict[str, bytes]:
    """run.json and a checkpoint of a run of the command, their folders left out."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        words = "run --policy random --queries 2 --items 3 --seeds 2 --steps 20 --records 2 --devices 1 --quiet"
        assert (
            jaxrank.command.cli.main([*words.split(), "--out", f"{folder}/out", "--checkpoint", f"{folder}/saved"]) == 0
        )
        saved = Path(folder) / "saved"
        (step,) = saved.rglob("step-*")
        return {"run.json": (saved / "run.json").read_bytes(), step.name: step.read_bytes()}


def _resume(folder: Path) -> None:
    """Continues the run: what it says on standard error, or a damaged checkpoint that is left out, is a complaint."""
    own = folder / "RandomRanking" / "lanes-0-of-1"
    own.mkdir(parents=True)
    for path in list(folder.iterdir()):
        if path.name.startswith("step-"):
            path.rename(own / path.name)
    said = io.StringIO()
    quiet = contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO())
    with (
        quiet[0],
        quiet[1],
        warnings.catch_warnings(action="ignore"),
        mock.patch("jaxrank.command.commands.plot_result"),
    ):
        code = jaxrank.command.cli.main(["resume", str(folder), "--quiet"])
    assert code in (0, 2) and "Traceback" not in said.getvalue(), (code, said.getvalue())
    if code == 2:
        raise ValueError(said.getvalue().splitlines()[-1])
    found = jr.load(folder / "run.nc")["regret"].values
    _REGRET.append(found)
    np.testing.assert_array_equal(found, _REGRET[0], "another number")
    del _REGRET[1:]


_REGRET: list[np.ndarray] = []


def _manifest(folder: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        stored_manifest(folder)


def _made_manifest() -> bytes:
    entry = {"state": "done", "file": "a.nc", "configuration": {"metrics": ["regret"], "steps": 10}, "error": None}
    with tempfile.TemporaryDirectory() as folder:
        sweeps._write_manifest(Path(folder), {"jaxrank": "1", "jax": "1", "cells": {"a, b": entry}})
        return (Path(folder) / "manifest.json").read_bytes()


def _made_result() -> bytes:
    import xarray

    curve = xarray.DataArray(np.arange(24.0).reshape(2, 3, 4), dims=("policy", "seed", "step"))
    result = xarray.Dataset({"regret": curve}, {"policy": ["a", "b"], "step": [1, 2, 3, 4]}, {"policy": "{}"})
    with tempfile.TemporaryDirectory() as folder:
        return jr.save(result, Path(folder) / "run.nc").read_bytes()


PARAMETERS = b"""{"q1": {"CM": {"attraction": [0.1, 0.5, 0.25]},
 "DCM": {"attraction": [0.1, 0.5, 0.25], "stop_after_click_by_rank": [0.5, 0.6, 0.7]},
 "PBM": {"attraction": [0.1, 0.5, 0.25], "examination": [1.0, 0.6, 0.3]},
 "UBM": {"attraction": [0.1, 0.5, 0.25], "examination_rank_by_prevclick": [[0, 0, 0.9], [0.5, 0, 0.8], [0.4, 0.3, 1]]},
 "DBN": {"attraction": [0.1, 0.5, 0.25], "satisfaction": [0.3, 0.3, 0.1], "abandon": 0.2},
 "CCM": {"attraction": [0.1, 0.5, 0.25], "cont_noclick": 0.9, "cont_click_nonrel": 0.8, "cont_click_rel": 0.2}}}
"""
TABLE = b"""split\tquery_region\tdocs\tclicked_positions0
train\t7_0\t40,30,20\t0,2
train\t7_0\t10,20,30\t
test\t7_0\t10,20,30\t1
train\t8_0\t10,20,30\t2
"""
LOG = b"""1\t0\tQ\t7\t0\t40\t30\t20
1\t3\tC\t20
1\t9\tQ\t7\t0\t10\t20\t30
1\t11\tC\t40
2\t0\tQ\t8\t1\t50\t60\t70
2\t6\tC\t50
"""
LOGGED = {
    "logged.tsv": b"query_region\tdocs\tclicks\tprobability\tprefix\nq\t4,3\t0,1\t0.2\t0.5,0.2\nr\t4,5\t1,0\t1\t1,1\n",
    "features.tsv": b"query_region\tdoc\tx\ty\nq\t3\t0.5\t1\nq\t4\t1.5\t-2\nr\t5\t2\t0\nr\t4\t3e-1\t0\n",
    "lists.tsv": b"query_region\tdocs\tprobability\nq\t3,4\t0.75\nr\t5,4\t1\nq\t4,3\t0.25\n",
}
LETOR = {
    "train.txt": b"2 qid:10 1:1.0 2:5 4:7 # first\n0 qid:10 1:3.0 2:5 3:2 4:7\n\n1 qid:7 1:-1 3:4\n0 qid:7 3:8 4:8\n",
    "test.txt": b"1 qid:1 1:0 5:2\n0 qid:1 1:10 3:1\n",
}
GROUPS = {
    "rank.train": b"2 1:1.0 2:5 4:7\n0 1:3.0 2:5 3:2 4:7\n1 1:-1 3:4\n0 3:8 4:8\n",
    "rank.train.query": b"2\n2\n",
    "rank.test": b"1 1:0 5:2\n0 1:10 3:1\n",
    "rank.test.query": b"2\n",
}
CSV = {
    "ratings.csv": b"userId,movieId,rating,timestamp\n7,10,5.0,100\n7,20,4.0,101\n3,10,3.5,102\n3,20,5.0,103\n",
    "movies.csv": b'movieId,title,genres\n10,"A, B (1995)",Comedy|Drama\n20,Film,War\n',
}
DAT = {
    "ratings.dat": b"7::10::5::99\n7::20::4::99\n3::10::3::99\n3::20::5::99\n",
    "movies.dat": b"10::Episode I: Caf\xe9 (1995)::Comedy|Drama\n20::Film::War\n",
}
FLAGS = {
    "u.data": b"7\t10\t5\t99\n7\t20\t4\t99\n3\t10\t3\t99\n3\t20\t5\t99\n",
    "u.genre": b"Comedy|0\nDrama|1\n\n",
    "u.item": b"10|Film|01-Jan-1995||http://x|1|0\n20|Film|01-Jan-1995||http://x|0|1\n",
}
YAHOO = {
    "train_0.txt": b"7\t10\t5\n7\t20\t4\n3\t10\t3\n",
    "test_0.txt": b"3\t20\t5\n",
    "genre-hierarchy.txt": b"0\t0\t1\tWar\n1\t1\t1\tComedy\n2\t1\t2\tSatire\n",
    "song-attributes.txt": b"10\t5\t6\t2\n20\t5\t6\t0\n",
}
SWEEP = b"""steps = 60
seeds = 2
seed = 0
records = 3
spacing = "log"
metrics = ["regret"]

[[policy]]
name = "bubblerank"
horizon = 60
grid.delta = [0.5, 0.01]
grid.doubling = [false, true]

[[policy]]
name = "static"

[[environment]]
world = "click"
queries = 2
grid.list_size = [2, 3]
items = 4
"""
LOADERS = {
    "yandex": Loader({"params.json": PARAMETERS}, _yandex),
    "sessions": Loader({"log.tsv": TABLE}, lambda folder: jr.datasets.load_sessions(folder / "log.tsv", list_size=3)),
    "yandex_log": Loader({"log.txt": LOG}, _log),
    "logged": Loader(LOGGED, _logged),
    "letor": Loader(LETOR, _letor),
    "letor_groups": Loader(GROUPS, _letor),
    "letor_copy": Loader({"copy": _made_copy()}, _letor_copy),
    "movielens_csv": Loader(CSV, jr.datasets.movielens),
    "movielens_dat": Loader(DAT, jr.datasets.movielens),
    "movielens_100k": Loader(FLAGS, jr.datasets.movielens),
    "yahoo_music": Loader(YAHOO, jr.datasets.yahoo_music),
    "sweep": Loader({"sweep.toml": SWEEP}, lambda folder: read_sweep(folder / "sweep.toml")),
    "resume": Loader(_saved_run(), _resume),
    "manifest": Loader({"manifest.json": _made_manifest()}, _manifest),
    "results": Loader({"run.nc": _made_result()}, lambda folder: jr.load(folder / "run.nc")),
}


_FLAGS = {
    "run": ["--policy", "--world", "--data", "--queries", "--items", "--list-size", "--click-model", "--top",
            "--trade-off", "--user", "--grades", "--steps", "--seeds", "--seed", "--metrics", "--records", "--spacing",
            "--out", "--force", "--format"],
    "plot": ["--metric", "--per-step", "--log", "--out", "--format"],
    "reproduce": ["--scale", "--data", "--bound", "--out", "--format"],
    "fit": ["--format", "--model", "--queries", "--iterations", "--columns", "--validation", "--shrinkage", "--out"],
    "bench": ["--policy", "--click-model", "--lanes", "--items", "--list-size", "--devices", "--repeat", "--out"],
    "sweep": ["--out", "--dry-run", "--force", "--format"],
    "list": [],
    "fly": ["--steps"],
}  # fmt: skip
_VALUES = st.sampled_from(
    [word for word in _WORDS if len(word) < 40 and "\x00" not in word]  # the system lets no NUL through
    + ["bubblerank", "bubblerank:delta=0.1", "bubblerank:delta=2", "bubblerank:x=1", "static", "pairrank", "toprank:a"]
    + ["bubblerank:doubling=false", "bubblerank:doubling=maybe", "pdgd:ranker=x", "pairrank:window=99999999999"]
    + ["bubblerank:name=x", "cm:kind='click_model'", "mgd:num_candidates=100000000", "bubblerank:delta=[0.1,[]]"]
    + ["2147483647", "100000", "9223372036854775808", "-" * 3_000 + "1", "bubblerank:delta=" + "-" * 3_000, "/dev/zero"]
    + [
        "cm",
        "pbm",
        "ubm",
        "letor",
        "topics",
        "regret",
        "ndcg@3",
        "3",
        "4",
        "log",
        "smoke",
        "moon",
        "1.5",
        "nowhere/at/all",
    ]
    + ["params.json", "log.tsv", "run.nc", "sweep.toml", "train.txt", ".", "bubblerank-fig1", "perfect", "--steps"]
)
_USUAL = {
    "--policy": "static bubblerank toprank:delta=0.1 pdgd cascade_hybrid",
    "--world": "click topics letor",
    "--data": "params.json . run.nc",
    "--click-model": "cm pbm",
    "--metrics": "regret ndcg",
    "--metric": "regret ndcg",
    "--spacing": "log",
    "--scale": "smoke",
    "--format": "table yandex png svg bmp",
    "--model": "cm pbm",
    "--user": "perfect",
    "--out": "a b.png",
}
_OPERANDS = {"plot": "run.nc", "reproduce": "bubblerank-fig1", "fit": "log.tsv", "sweep": "sweep.toml"}


def _pairs(command: str) -> st.SearchStrategy[tuple[str, str]]:
    return st.sampled_from(_FLAGS[command] or ["--help"]).flatmap(
        lambda flag: st.tuples(st.just(flag), st.one_of(_VALUES, st.sampled_from(_USUAL.get(flag, "1 2 3").split())))
    )


COMMANDS = st.sampled_from([*_FLAGS, "run", "run", "run"]).flatmap(
    lambda command: st.tuples(
        st.just(command),
        st.one_of(st.just([_OPERANDS[command]] if command in _OPERANDS else []), st.lists(_VALUES, max_size=2)),
        st.lists(_pairs(command), max_size=5, unique_by=lambda pair: pair[0]),
    )
)


class ReachedTheEngineError(BaseException):
    """What was asked for is fine; it would run now. No cell of a sweep may take it for a failure of its own."""


def complaint_of_command(command: tuple[str, list[str], list[tuple[str, str]]]) -> str:
    """What the command prints about bad arguments, in one line; "(runs)" if it has none to complain about."""
    from jaxrank.command.cli import main as run

    def reached(*_: object, **__: object) -> None:
        raise ReachedTheEngineError

    name, words, flags = command
    arguments = [name, *words, *(word for pair in flags for word in pair)]
    output = io.StringIO()
    engine = {
        "jaxrank.engine.task": "make_lanes",
        "jaxrank.studies.papers": "reproduce",
        "jaxrank.bench": "measure",
        "jaxrank.click_models": "fit",
    }
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-"))
        stack.enter_context(contextlib.chdir(folder))
        for loader in ("yandex", "sessions", "letor", "results", "sweep"):
            write(Path(folder), LOADERS[loader].files)
        for module, function in engine.items():
            stack.enter_context(mock.patch.object(importlib.import_module(module), function, reached))
        stack.enter_context(contextlib.redirect_stderr(output))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        try:
            code = run(arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except ReachedTheEngineError:
            return "(runs)"
    said = output.getvalue()
    assert code in (0, 2), (arguments, code, said)
    if code == 2:
        assert said.count("\n") == 1 and said.startswith("jaxrank"), (arguments, said)
        assert len(said) < 1_500, (arguments, said)
        return said.strip()
    return "(done)"


def fuzz_commands(examples: int) -> Counter[str]:
    messages: Counter[str] = Counter()

    @_settings(examples)
    @given(COMMANDS)
    def run(command: tuple[str, list[str], list[tuple[str, str]]]) -> None:
        with timed():
            message = complaint_of_command(command)
        messages[re.sub(r"\d+", "N", message)] += 1

    run()
    return messages


def main(examples: int = 10_000, *names: str) -> None:
    for name in names or [*LOADERS, "commands"]:
        try:
            messages = fuzz_commands(examples) if name == "commands" else fuzz(LOADERS[name], examples)
        except BaseException:
            traceback.print_exc()
            print(f"{name}: FAILED", flush=True)
            continue
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{name}: {sum(messages.values()):,} examples, {len(messages)} messages, longest {_longest[0]:.2f} CPU s, "
            f"peak memory {peak} MB",
            flush=True,
        )
        _longest[0] = 0.0
        for message, count in sorted(messages.items()):
            print(f"{count:8,}  {message}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, *sys.argv[2:])
