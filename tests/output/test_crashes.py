"""Crashes after every operation on the disk, operations that fail, and flipped bits: nothing is lost, nothing believed.

A run with checkpoints and a sweep are recorded once. Then they are continued from every disk that a crash could have
left (``crashes.py``). Pictures are left out, for they take longer than all the rest; a file stands in for each.
"""

import contextlib
import errno
import io
import json
import os
import shutil
import warnings

import numpy as np
import pytest
from crashes import WAYS, Failing, Recorder, different, lay_out

import jaxrank as jr
from jaxrank.command import commands
from jaxrank.command.cli import main
from jaxrank.output import files
from jaxrank.output.arrays import load_arrays
from jaxrank.studies import sweeps
from jaxrank.studies.folders import stored_manifest

WORLD = ["--policy", "bubblerank:delta=0.1", "--policy", "static", "--queries", "2", "--items", "3", "--seeds", "2"]
SIZE = ["--steps", "6000", "--records", "4", "--checkpoint-every", "1 call", "--devices", "1", "--quiet"]
SWEEP = """
steps = 60
seeds = 2
records = 3
[[policy]]
name = "bubblerank"
delta = 0.1
[[policy]]
name = "static"
[[environment]]
queries = 2
items = 3
"""


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch):
    monkeypatch.setattr(commands, "plot_result", lambda result, metric, path, **_: files.write_text(path, "drawn"))
    monkeypatch.setattr(sweeps, "_picture", lambda finished, metric, path: files.write_text(path, "drawn"))


def command(*arguments):
    """(exit code, what it said besides warnings) of the command; no exception comes through."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("default")  # a line for users, where the suite has an error
        code = main(list(map(str, arguments)))
    lines = [line for line in said.getvalue().splitlines() if not line.startswith("jaxrank: warning: ")]
    return code, "".join(f"{line}\n" for line in lines)


def go_on(folder):
    """Runs in ``folder`` what a user would: begins, or resumes if that has begun."""
    saved, out = folder / "saved", folder / "out"
    if (saved / "run.json").exists():
        return command("resume", saved, "--out", out, "--quiet", "--force")
    return command("run", *WORLD, *SIZE, "--out", out, "--checkpoint", saved, "--force")


def go_on_sweeping(folder):
    config = folder.parent / "sweep.toml"
    config.write_text(SWEEP)
    return command("sweep", config, "--out", folder / "out", "--quiet")


def curves(folder):
    """{file: values} of the results in ``folder``."""
    return {path.name: jr.load(path)["regret"].values for path in sorted((folder / "out").glob("*.nc"))}


def assert_same(folder, expected):
    found = curves(folder)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def no_temporary_files(folder):
    return not list(folder.rglob("*.part"))


JOBS = {"run": go_on, "sweep": go_on_sweeping}


@pytest.fixture(scope="module", params=JOBS)
def recorded(request, tmp_path_factory):
    """(job, log, curves) of an undisturbed run."""
    folder = tmp_path_factory.mktemp("recorded") / "disk"
    folder.mkdir()
    job = JOBS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "plot_result", lambda result, metric, path, **_: files.write_text(path, "drawn"))
        patch.setattr(sweeps, "_picture", lambda finished, metric, path: files.write_text(path, "drawn"))
        recorder = Recorder(folder)
        patch.setattr(files, "disk", recorder)
        assert job(folder) == (0, "")
    return job, recorder.log, curves(folder)


def test_a_run_and_a_sweep_go_on_after_a_crash_at_any_operation(recorded, tmp_path, capsys):
    job, log, expected = recorded
    disks = different(log)
    for number, (count, way, left) in enumerate(disks):
        folder = tmp_path / str(number)
        lay_out(folder, left)
        code, said = job(folder)
        assert (code, said) == (0, ""), (count, way)
        assert_same(folder, expected)
        assert no_temporary_files(folder), (count, way)
        shutil.rmtree(folder)
    assert len(disks) > 30
    with capsys.disabled():
        print(
            f"\n{job.__name__}: {len(log)} operations, crashes after {len(log) + 1} of them × {len(WAYS)} ways to lose "
            f"what was not synced = {len(disks)} different disks: 0 refused, 0 lost"
        )


@pytest.mark.parametrize(
    ("code", "first", "every"),
    [
        (errno.ENOSPC, 1, 9),
        (errno.EIO, 5, 9),
        pytest.param(errno.ENOSPC, 0, 1, marks=pytest.mark.slow),
        pytest.param(errno.EIO, 0, 1, marks=pytest.mark.slow),
    ],
)
def test_an_operation_that_fails_costs_no_numbers(recorded, code, first, every, tmp_path, monkeypatch, capsys):
    """Every operation, one run for each; in the default suite, every ninth."""
    job, log, expected = recorded
    failures, refused = 0, 0
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for number in range(first, 2 * len(log), every):
        folder = tmp_path / str(number)
        folder.mkdir()
        disk = Failing(folder, number, code)
        monkeypatch.setattr(files, "disk", disk)
        exit_code, said = job(folder)
        monkeypatch.setattr(files, "disk", files.Disk())
        if not disk.failed:
            break
        failures += 1
        if exit_code != 0:
            refused += 1
            assert exit_code == 2 and "Traceback" not in said, (number, disk.failed, said)
            assert job(folder)[0] == 0, (number, disk.failed)
        assert_same(folder, expected)
        shutil.rmtree(folder)
    else:
        pytest.fail("it never ran undisturbed")
    assert failures > 60 // every
    with capsys.disabled():
        print(
            f"\n{job.__name__}, {errno.errorcode[code]}: {failures} operations failed, {failures - refused} runs wrote "
            f"their results all the same, {refused} said what could not be written and did so when run again"
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "disk"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "plot_result", lambda result, metric, path, **_: None)
        assert go_on(folder) == (0, "")
    return folder


def flipped(path, places):
    """Flips one bit of the file after the other, and back."""
    with open(path, "r+b", buffering=0) as file:
        content = file.read()
        for place in places:
            os.pwrite(file.fileno(), bytes([content[place // 8] ^ 1 << place % 8]), place // 8)
            yield place
            os.pwrite(file.fileno(), content[place // 8 : place // 8 + 1], place // 8)


def test_no_bit_of_a_checkpoint_a_result_or_a_json_file_can_flip_unseen(finished, tmp_path, capsys):
    """Every bit of headers, seals and JSON files, and 500 bits of the data between."""
    rng = np.random.default_rng(0)
    checkpoint = max((finished / "saved").glob("BubbleRank/*/step-*"))
    header = checkpoint.read_bytes().split(b"\n", 2)
    told = []
    for path, load, size in (
        (checkpoint, load_arrays, len(header[0]) + len(header[1]) + 2),
        (finished / "out" / "run.nc", jr.load, 512),
    ):
        copy = tmp_path / path.name
        shutil.copy(path, copy)
        bits = 8 * copy.stat().st_size
        places = {*range(8 * size), *range(bits - 8 * 47, bits), *rng.integers(0, bits, 500).tolist()}
        for place in flipped(copy, sorted(places)):
            with pytest.raises(ValueError, match=r"damaged|incomplete"):
                load(copy)
                pytest.fail(f"bit {place} of {path.name}")
        told.append(f"{len(places)} bits of {path.name}")

    copy = tmp_path / "run.json"
    shutil.copy(finished / "saved" / "run.json", copy)
    whole, same = files.read_json(copy), 0
    bits = range(8 * copy.stat().st_size)
    for place in flipped(copy, bits):
        with contextlib.suppress(ValueError):
            found, sealed = files.read_json(copy)
            assert (found, sealed) == whole or not sealed, f"bit {place}"
            same += sealed  # white space; a file whose seal is gone is refused by whoever reads it
    with capsys.disabled():
        print(f"\n{', '.join(told)}: all refused; {len(bits)} of run.json: {same} say the same, the others are refused")


def test_a_run_with_a_flipped_bit_goes_on_or_is_refused(finished, tmp_path):
    expected = curves(finished)
    rng = np.random.default_rng(1)
    outcomes = set()
    for name in ("saved/run.json", "out/run.nc", max(p for p in (finished / "saved").rglob("step-*"))):
        for _ in range(4):
            folder = tmp_path / "disk"
            shutil.copytree(finished, folder)
            path = folder / (name if isinstance(name, str) else name.relative_to(finished))
            content = bytearray(path.read_bytes())
            content[rng.integers(len(content))] ^= 1 << rng.integers(8)
            path.write_bytes(content)
            code, said = go_on(folder)
            outcomes.add((path.name, code))
            if code == 0:
                assert_same(folder, expected)
            else:
                assert code == 2 and said.count("\n") == 1, said
            shutil.rmtree(folder)
    assert {code for _, code in outcomes} == {0, 2}, "a damaged checkpoint is left out; a damaged run.json is refused"


def test_a_manifest_with_a_flipped_bit_is_refused_or_says_the_same(tmp_path):
    folder = tmp_path / "disk"
    (folder / "out").mkdir(parents=True)
    content = {
        "jaxrank": "x",
        "jax": "y",
        "cells": {"a": {"state": "done", "file": "a.nc", "configuration": {"metrics": []}}},
    }
    sweeps._write_manifest(folder / "out", content)
    path = folder / "out" / "manifest.json"
    bits = range(8 * path.stat().st_size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stored_manifest(folder / "out") == content
        for place in flipped(path, bits):
            with contextlib.suppress(ValueError):
                assert stored_manifest(folder / "out") == content, f"bit {place}"
        path.write_text(json.dumps(content))
        with pytest.raises(RuntimeWarning, match=r"is of jaxrank 0\.1\.0, and has no checksum"):
            stored_manifest(folder / "out")
