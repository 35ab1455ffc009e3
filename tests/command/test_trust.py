"""A stranger's folder: what it may make us do, which is to run what it says inside of it, and nothing else."""

import warnings

import pytest

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.engine.simulation import folder_of
from jaxrank.output import files

RUN = ["run", "--policy", "static", "--queries", "1", "--items", "3", "--seeds", "1", "--steps", "20", "--quiet"]


@pytest.fixture
def saved(tmp_path, capsys):
    """The checkpoints of a run whose results were to go to tmp_path/out."""
    folder = tmp_path / "saved"
    assert main([*RUN, "--out", str(tmp_path / "out"), "--checkpoint", str(folder)]) == 0
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    capsys.readouterr()
    return folder


def refused(capsys, *arguments):
    assert main(list(map(str, arguments))) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_resume_writes_into_its_folder_or_to_the_out_that_is_given_now(saved, tmp_path, capsys):
    assert main(["resume", str(saved), "--quiet"]) == 0
    assert f"the results go to {saved}; the run was started with --out {tmp_path / 'out'}" in capsys.readouterr().out
    assert (saved / "run.nc").exists() and (saved / "regret.png").exists() and not list((tmp_path / "out").iterdir())
    assert main(["resume", str(saved), "--quiet", "--out", str(tmp_path / "there")]) == 0
    assert jr.load(tmp_path / "there" / "run.nc")["regret"].equals(jr.load(saved / "run.nc")["regret"])


@pytest.mark.parametrize("what", ["StaticRanking", "StaticRanking/lanes-0-of-1", "StaticRanking/lanes-0-of-1/.lock"])
def test_links_do_not_lead_resume_outside(what, saved, tmp_path, capsys):
    target = tmp_path / "precious"
    if what.endswith(".lock"):
        target.write_text("mine")
        (saved / what).symlink_to(target)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            assert main(["resume", str(saved), "--quiet"]) == 0, "it continues without checkpoints"
        assert "checkpoint_dir must be writable" in capsys.readouterr().err
        assert target.read_text() == "mine"
        return
    (saved / what).rename(target)
    (saved / what).symlink_to(target)
    before = sorted(target.rglob("*"))
    assert f"{saved / what} is one" in refused(capsys, "resume", saved)
    assert sorted(target.rglob("*")) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"folder": 3, "arguments": ["--steps", "3"]}, "it is incomplete, or was not written by jaxrank run"),
        ({"folder": "/", "arguments": {"steps": 3}}, "it is incomplete, or was not written by jaxrank run"),
        ({"folder": "/", "arguments": ["--steps", 3]}, "it is incomplete, or was not written by jaxrank run"),
        (
            {"folder": "/", "arguments": ["--no-such-option"]},
            "must hold the options of a run; jaxrank run: error: unre",
        ),
        ({"folder": "/", "arguments": ["--help"]}, "must hold the options of a run; it asks for help"),
        ({"folder": "/", "arguments": ["--policy", "bubblerank:delta=nope"]}, "bubblerank:delta must be a number"),
        ({"folder": "/", "arguments": ["--policy", "os:system"]}, "--trust must name the code that a run imports"),
    ],
)
def test_any_run_json_is_read_as_if_it_had_been_typed(content, message, tmp_path, capsys):
    files.write_json(tmp_path / "saved" / "run.json", content)
    assert message in refused(capsys, "resume", tmp_path / "saved")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"options": {}, "folder": "/"}', "it is of jaxrank 0.1.0, which has to finish it"),
        ('{"arguments": [], "folder": "/"}', "it is incomplete, or was not written by jaxrank run"),
        ('{"arguments": [], "folder": "/", "sha256": "0"}', "it is damaged, or was edited"),
    ],
)
def test_a_run_json_that_is_none_is_refused(text, message, tmp_path, capsys):
    (tmp_path / "run.json").write_text(text)
    assert message in refused(capsys, "resume", tmp_path)


def test_checkpoints_of_the_first_version_are_refused(saved, capsys):
    for path in saved.rglob("step-*"):
        path.rename(path.with_suffix(".npz"))
    assert "are of jaxrank 0.1.0, whose damage cannot be told" in refused(capsys, "resume", saved)


@pytest.mark.parametrize("name", ["..", ".", "", "../../x", "/etc", "a/b", ".hidden", "%2E", "é"])
def test_a_policy_of_any_name_stays_in_the_folder(name, tmp_path):
    inside = folder_of(tmp_path, name)
    assert inside.parent == tmp_path and inside.resolve().parent == tmp_path.resolve() and inside != tmp_path


def test_names_of_policies_have_folders_of_their_own():
    names = ["..", "%2E.", ".", "%2E", "", "%", "a", "a/b", "a%2Fb"]
    assert len({folder_of(files.Path("x"), name) for name in names}) == len(names)


def test_a_hostile_manifest_removes_nothing_outside_of_its_checkpoints(tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(
        'steps = 5\n[[policy]]\nname = "static"\n[[environment]]\nqueries = 1\nitems = 3\n'
    )
    out = tmp_path / "out"
    cells = {
        name: {"state": "done", "file": name, "configuration": {"metrics": ["../precious"]}}
        for name in ("...nc", "../precious", ".nc", "/precious")
    }
    files.write_json(out / "manifest.json", {"jaxrank": "", "jax": "", "cells": cells})
    (out / "notes.txt").write_text("mine")
    for kind in ("png", "nc", "pdf"):
        (tmp_path / f"precious.{kind}").write_text("mine")
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(out), "--force", "--quiet"]) in (0, 2)
    assert (out / "notes.txt").exists() and len(list(tmp_path.glob("precious.*"))) == 3
