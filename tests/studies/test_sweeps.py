"""Sweeps: cells, restarts, failures, bad configs."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.studies import sweep_files, sweeps
from jaxrank.studies.sweep_files import read_sweep

EXAMPLE = Path(jr.__file__).parent / "skeletons" / "sweep.toml"
CONFIG = """
steps = 60
seeds = 2
records = 3
metrics = ["regret", "violations"]

[[policy]]
name = "bubblerank"
grid.delta = [0.5, 0.01]

[[policy]]
name = "static"

[[environment]]
queries = 2
items = 4
grid.click_model = ["cm", "pbm"]
"""
CELLS = [
    f"queries=2 items=4 click_model={model}, {policy}" for model in ("cm", "pbm") for policy in ("bubblerank", "static")
]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(CONFIG)
    return path


def states(out):
    cells = json.loads((out / "manifest.json").read_text())["cells"]
    return {name: cell["state"] for name, cell in cells.items()}


def test_a_sweep_leaves_every_cell_a_manifest_a_table_and_pictures(config, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", str(config), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert states(out) == dict.fromkeys(CELLS, "done")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["jaxrank"] == jr.__version__ and manifest["cells"][CELLS[0]]["configuration"]["steps"] == 60
    assert "| queries=2 items=4 click_model=pbm | bubblerank delta=0.01 |" in printed.out
    assert printed.out.split("wrote")[0].strip() in (out / "summary.md").read_text()
    assert printed.err.splitlines()[3].startswith(f"[4/4] {CELLS[3]}: ")
    for metric in ("regret", "violations"):
        assert (out / f"{metric}.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "checkpoints").exists() and not (out / ".lock").exists()

    # A grid of numbers ran as one policy, and each setting is what simulate says of it.
    swept = jr.load(out / manifest["cells"][CELLS[2]]["file"])
    assert swept["regret"].dims == ("delta", "query", "seed", "step")
    world = jr.ClickBandit(jr.datasets.synthetic("pbm", 2, 4), top=2)
    policy = jr.BubbleRank(delta=[0.5, 0.01])
    alone = jr.simulate(policy, world, 60, num_seeds=2, num_records=3, progress=False)
    np.testing.assert_allclose(swept["regret"], alone["regret"], rtol=1e-6)


def test_a_restart_runs_only_what_has_not_finished(config, tmp_path, monkeypatch, capsys):
    run, ran = sweeps._run, []

    def failing(cell, *arguments):
        ran.append(cell.name)
        if "pbm" in cell.name and "bubblerank" in cell.name:
            raise RuntimeError("the machine is on fire\nand more")
        run(cell, *arguments)

    monkeypatch.setattr(sweeps, "_run", failing)
    out = tmp_path / "out"
    assert main(["sweep", str(config), "--out", str(out), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"1 cell failed: {CELLS[2]}: RuntimeError: the machine is on fire" in error
    assert ran == CELLS, "the others were not stopped"
    assert states(out)[CELLS[2]] == "failed" and list(states(out).values()).count("done") == 3
    assert "failed: RuntimeError: the machine is on fire" in (out / "summary.md").read_text()

    ran.clear()
    monkeypatch.setattr(sweeps, "_run", lambda cell, *arguments: ran.append(cell.name) or run(cell, *arguments))
    (out / json.loads((out / "manifest.json").read_text())["cells"][CELLS[0]]["file"]).write_bytes(b"half a file")
    report = jr.sweep(config, out, progress=False)
    assert ran == [CELLS[0], CELLS[2]], "the failed one, and the one whose file was damaged"
    assert report.skipped == 2 and not report.failed and set(states(out).values()) == {"done"}


def test_a_finished_cell_refuses_another_configuration_and_new_cells_are_added(config, tmp_path, capsys):
    out = tmp_path / "out"
    small = CONFIG.replace('["cm", "pbm"]', '["cm"]').replace(
        'name = "bubblerank"\ngrid.delta = [0.5, 0.01]', 'name = "random"'
    )
    config.write_text(small)
    jr.sweep(config, out, progress=False)
    config.write_text(small.replace("steps = 60", "steps = 70"))
    assert main(["sweep", str(config), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "a finished cell must keep its configuration" in error and "steps was 60 and is 70" in error
    config.write_text(small + '\n[[policy]]\nname = "oracle"\n')
    report = jr.sweep(config, out, progress=False)
    assert report.skipped == 2 and len(states(out)) == 3
    (out / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"manifest\.json: not a manifest of a sweep"):
        jr.sweep(config, out, progress=False)


def test_an_interrupted_cell_goes_on_from_its_checkpoint(config, tmp_path, monkeypatch, capsys):
    config.write_text(CONFIG.replace("steps = 60", "steps = 3_000").replace('["cm", "pbm"]', '["cm"]'))
    whole = jr.sweep(config, tmp_path / "whole", progress=False)
    simulate = sweeps.simulate

    def interrupted(*arguments, **options):
        options["progress"] = lambda step: signal.raise_signal(signal.SIGTERM) if step > 100 else None
        return simulate(*arguments, **options)

    out = tmp_path / "out"
    monkeypatch.setattr(sweeps, "simulate", interrupted)
    assert main(["sweep", str(config), "--out", str(out), "--quiet"]) == 75
    assert "continue with: the same command" in capsys.readouterr().err
    assert set(states(out).values()) == {"waiting"} and list(out.glob("checkpoints/*/*/step-*.arrays"))
    steps = []
    monkeypatch.setattr(
        sweeps,
        "simulate",
        lambda *a, **options: simulate(*a, **options | {"progress": lambda step: steps.append(step)}),
    )
    report = jr.sweep(config, out, progress=False)
    assert steps[0] > 100, "not from the beginning"
    assert report.table == whole.table and not (out / "checkpoints").exists()


def test_force_removes_what_the_sweep_has_left_and_nothing_else(config, tmp_path, capsys):
    out = tmp_path / "out"
    small = CONFIG.replace('["cm", "pbm"]', '["cm"]').replace('"bubblerank"\ngrid.delta = [0.5, 0.01]', '"random"')
    config.write_text(small)
    assert main(["sweep", str(config), "--out", str(out), "--quiet"]) == 0
    (out / "mine.png").write_text("mine")
    config.write_text(small.replace('["regret", "violations"]', '["clicks"]').replace('"random"', '"oracle"'))
    assert main(["sweep", str(config), "--out", str(out), "--quiet"]) == 2
    assert "run all cells again (--force" in capsys.readouterr().err
    assert main(["sweep", str(config), "--out", str(out), "--quiet", "--force"]) == 0
    others = {"manifest.json", "summary.md", "report.html", "mine.png", "clicks.png"}
    assert {file.name for file in out.iterdir() if file.suffix != ".nc"} == others
    assert len(list(out.glob("*.nc"))) == len(states(out)) == 2
    assert (out / "mine.png").read_text() == "mine"


def test_a_sweep_does_not_write_into_a_folder_of_other_results(config, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "regret.png").write_text("of jaxrank run")
    for force in ([], ["--force"]):
        assert main(["sweep", str(config), "--out", str(tmp_path / "out"), *force]) == 2
        error = capsys.readouterr().err
        assert "--out must not hold other results; there is" in error and error.count("\n") == 1
    assert (tmp_path / "out" / "regret.png").read_text() == "of jaxrank run"


def test_dry_runs_try_one_of_the_cells_that_are_alike(config, monkeypatch):
    config.write_text(CONFIG.replace("steps = 60", "steps = 2_000_000_000"))
    tried = []

    def estimate(policy, environment, **options):
        tried.append((type(policy).__name__, environment.click_model))
        return jr.Estimate(8, 1_000, 1, 1.0, 1.0, 3.0, 8_000e-6, 1_000)

    monkeypatch.setattr(sweeps, "estimate", estimate)
    estimates = dict(sweeps.estimate_sweep(config))
    assert list(estimates) == CELLS and [name for name, _ in tried] == ["BubbleRank", "StaticRanking"]
    assert [one.calibrated_steps for one in estimates.values()] == [1_000, 1_000, 0, 0]
    assert estimates[CELLS[2]].step_seconds == pytest.approx(8 * 2e9 * 1e-6), "lane-steps at the pace of the trial"
    assert "8 lanes × 2,000,000,000 steps" in str(estimates[CELLS[2]]) and "not tried" in str(estimates[CELLS[2]])
    tried.clear()
    sweeps.estimate_sweep(config, seconds=0)
    assert len(tried) == 1, "one, even if there is no time"


def test_switches_are_cells_and_numbers_are_settings(config):
    config.write_text(
        CONFIG.replace("grid.delta", "horizon = 80\ngrid.doubling = [false, true]\ngrid.delta").replace(', "pbm"', "")
    )
    cells = read_sweep(config).cells
    assert [cell.label for cell in cells] == [
        "bubblerank horizon=80 doubling=false", "bubblerank horizon=80 doubling=true", "static"
    ]  # fmt: skip
    assert cells[1].policy == jr.BubbleRank(delta=[0.5, 0.01], horizon=80, doubling=True)
    assert cells[1].settings == ({"delta": 0.5}, {"delta": 0.01}) and cells[2].settings == ({},)


def test_the_example_and_the_documented_config_can_be_read():
    sweep = read_sweep(EXAMPLE)
    assert len(sweep.cells) == 6 and sum(cell.task().num_lanes for cell in sweep.cells) == 500


def test_the_documented_config_can_be_read(tmp_path):

    text = re.search(r"\n\n((    .*\n|\n)+)", sweep_files.__doc__)[1]
    (tmp_path / "sweep.toml").write_text("\n".join(line[4:] for line in text.splitlines()))
    assert len(read_sweep(tmp_path / "sweep.toml").cells) == 6


def test_the_example_runs_at_a_smaller_size(tmp_path):
    small = EXAMPLE.read_text().replace("20_000", "20").replace("queries = 10", "queries = 2\nitems = 4")
    small = small.replace('["cm", "pbm"]', '["cm"]')
    (tmp_path / "sweep.toml").write_text(small)
    report = jr.sweep(tmp_path / "sweep.toml", tmp_path / "out", progress=False)
    assert not report.failed and report.table.count("\n") == 6


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("steps = 60", "stesp = 60", "keys must be among out, steps, seeds, .*; got 'stesp'; did you mean 'steps'"),
        ("grid.delta", "horizon = 9\ngrid.delta", "BubbleRank.horizon must be at least steps = 60; got 9"),
        ("steps = 60", 'steps = "60"', "steps must be an integer from 1 to .*; got '60'"),
        ("steps = 60", "steps = 0", "steps must be an integer from 1 to .*; got 0"),
        ("steps = 60", "steps = true", "steps must be an integer from 1 to .*; got True"),
        ("records = 3", "records = 10_000_000", "records must be an integer from 1 to 1000000; got 10000000"),
        ('["regret", "violations"]', '["regert"]', "metrics must be among regret, .*; got 'regert'"),
        ('["regret", "violations"]', "[3]", r"metrics must be a sequence of at least one name; got \[3\]"),
        (
            '["regret", "violations"]',
            '"regret,clicks"',
            r"metrics must be .*: write \['regret', 'clicks'\]",
        ),
        ("queries = 2", 'data = "/nowhere"', "data must be a JSON file or a folder"),
        ('"bubblerank"', '"bubblesort"', "policy.name must be one of static, .*; got 'bubblesort'"),
        ('name = "static"', "", "policy.name must be text; got None"),
        ("grid.delta", "grid.detla", "policy bubblerank: keys must be among delta, horizon, doubling, .*; got 'detla'"),
        ("[0.5, 0.01]", "[0.5, 2]", "BubbleRank.delta must be in \\(0, 1\\); got 2.0"),
        ("grid.delta", "delta", "policy bubblerank: delta must be one value, or several as grid.delta; got"),
        ("[0.5, 0.01]", "0.5", "grid.delta must be a list of at least one value; got 0.5"),
        ("[0.5, 0.01]", "[0.5, 0.5]", "grid.delta must not repeat; got 0.5 twice"),
        ("[0.5, 0.01]", "[0.5, 0.01]\ndelta = 0.1", "policy bubblerank: delta must be given once"),
        ('name = "static"', 'name = "bubblerank"', "policy must not repeat; got bubblerank twice"),
        ("queries = 2", "querys = 2", "environment click: keys must be among data, .*; got 'querys'"),
        ("queries = 2", 'world = "moon"', "environment.world must be one of click, topics, letor; got 'moon'"),
        ("queries = 2", 'world = "letor"', "environment letor: keys must be among .*; got 'items'"),
        ("queries = 2", "queries = 0", "environment.queries must be a positive integer; got 0"),
        ("queries = 2", "queries = 2.5", "environment.queries must be a positive integer; got 2.5"),
        ('"cm", "pbm"', '"cm", "xyz"', "click_model must be one of cm, dcm, .*; got 'xyz'"),
        ("[[environment]]", "[environment]", "environment must be at least one table"),
        ("steps = 60", "steps = ", "not a TOML file"),
    ],
)
def test_bad_configs_are_refused_before_anything_runs(before, after, message, config, monkeypatch):
    monkeypatch.setattr(sweeps, "simulate", lambda *_, **__: pytest.fail("nothing is simulated"))
    config.write_text(CONFIG.replace(before, after, 1))
    with pytest.raises(ValueError, match=rf"sweep\.toml: .*{message}"):
        jr.sweep(config, config.parent / "out")
    assert not (config.parent / "out").exists()


def test_dry_runs_say_what_it_takes_and_leave_nothing(config, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config.write_text(CONFIG.replace(', "pbm"', ""))
    assert main(["sweep", str(config), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert f"{CELLS[0]}: 8 lanes × 60 steps: about" in printed and "2 cells: about" in printed
    assert main(["run", "--policy", "static", "--queries", "2", "--items", "4", "--steps", "50", "--dry-run"]) == 0
    assert "StaticRanking: 20 lanes × 50 steps: about" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]
