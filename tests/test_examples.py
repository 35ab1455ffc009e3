"""The worked examples run, at smoke size, and print what they are for."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "scripts" / "examples"
SIZES = {
    "unbiased": ("--queries 30 --sessions 300 --seeds 2 --epochs 2", "IPW, χ fitted is "),
    "gradients": ("--items 4 --steps 5 --models PBM", "Conclusion: gradients and finite differences agree"),
    "own_log": ("--sessions 1000 --steps 50 --models pbm dcm --out {tmp}/own_log.png", "the learnt ranker is "),
    "meta": ("--users 4 --items 12 --steps 20 --seeds 2 --generations 1", "conclusion: tuning "),
}


def test_every_example_has_a_size():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SIZES)


SLOW = ("unbiased", "meta", "own_log")  # half a minute each, nearly all of it compilation


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SIZES])
def test_example_runs(name, monkeypatch, capsys, tmp_path):
    size, expected = SIZES[name]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *size.format(tmp=tmp_path).split()])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert expected in printed and "nan" not in printed
