"""The worked examples run, at smoke size, and print what they are for."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "scripts" / "examples"
SIZES = {
    "unbiased": ("--sessions 300 --seeds 2 --epochs 2", "IPW, χ fitted"),
    "gradients": ("--items 4 --steps 5 --models PBM", "off finite differences by"),
    "meta": ("--users 4 --items 12 --steps 20 --seeds 2 --generations 1", "BubbleRank, most rated items → learnt list"),
}


def test_every_example_has_a_size():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SIZES)


SLOW = ("unbiased", "meta")  # half a minute each, nearly all of it compilation


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SIZES])
def test_example_runs(name, monkeypatch, capsys):
    size, expected = SIZES[name]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *size.split()])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert expected in printed and "nan" not in printed
