"""Whole files or none, full disks, folders in use."""

import errno
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.output import files
from jaxrank.output.files import locked, write_bytes, write_text


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 256 KB, where we may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("a tiny file system: needs the right to mount one")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "run.nc"
    path.write_text("old")
    with pytest.raises(TypeError):
        write_bytes(path, b"half", "not bytes")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.nc"]


def large_result():
    import xarray

    curve = np.random.default_rng(0).random((2, 100, 500))
    return xarray.Dataset({"regret": (("policy", "seed", "step"), curve)}, {"policy": ["a", "b"]})


def test_a_full_disk_is_named_and_leaves_the_old_file_and_nothing_else(tiny_disk):
    path = tiny_disk / "run.nc"
    path.write_text("old")
    with pytest.raises(ValueError, match=r"cannot write .*run\.nc: No space left on device"):
        jr.save(large_result(), path, overwrite=True)
    with pytest.raises(ValueError, match=r"cannot write .*notes\.md: No space left on device"):
        write_text(tiny_disk / "notes.md", "x" * 400_000)
    assert path.read_text() == "old" and os.listdir(tiny_disk) == ["run.nc"]


def test_the_command_says_in_one_line_that_the_disk_is_full(tmp_path, monkeypatch, capsys):
    class FullDisk(files.Disk):
        def create(self, path):
            if path.parent == tmp_path / "out":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().create(path)

    monkeypatch.setattr(files, "disk", FullDisk())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = ["run", "--policy", "static", "--queries", "2", "--items", "3", "--steps", "10", "--quiet"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert "StaticRanking" in printed.out and printed.err.count("\n") == 1
    found = re.search(r"run.nc: No space left on device; the results were written to (\S+) instead", printed.err)
    assert os.listdir(tmp_path / "out") == [] and jr.load(found[1])["regret"].sizes["query"] == 2


def test_a_folder_that_cannot_be_written_is_named_before_the_work(tmp_path, monkeypatch, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("a file, where a folder is wanted")
    monkeypatch.setattr("jaxrank.compare", lambda *_, **__: pytest.fail("nothing is simulated"))
    for out in (blocked, blocked / "below"):
        assert main(["run", "--queries", "2", "--out", str(out)]) == 2
        assert f"the output folder must be writable; cannot write {out}" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"path must be writable; cannot write .*below/run\.nc: Not a directory"):
        write_text(blocked / "below" / "run.nc", "")


HOLD = """
import sys
from jaxrank.output.files import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_runs_cannot_write_to_one_folder(tmp_path, capsys):
    pytest.importorskip("fcntl")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert main(["run", "--queries", "2", "--steps", "10", "--out", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert f"another run (process {holder.pid}) is writing to {tmp_path}" in error and error.count("\n") == 1
        assert os.listdir(tmp_path) == [".lock"]
        holder.kill()  # the lock dies with it, though the file stays
        holder.wait()
    assert os.listdir(tmp_path) == [".lock"]
    with locked(tmp_path), pytest.raises(ValueError, match="another run"), locked(tmp_path):
        pass
    assert os.listdir(tmp_path) == []
