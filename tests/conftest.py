"""Shared set-up: real data where there is some, strict JAX, a compiler in a hurry."""

import os
from pathlib import Path

import jax
import jaxlib
import pytest

from jaxrank.command.cli import main
from jaxrank.engine.compiled_code import forget_if_much

# The suite's time is that of XLA, which compiles thousands of small programs. Here they are not optimised, and jaxlib
# 0.10 makes them by its older code generator: half the time. Unoptimised code rounds x·y + z once in some places and
# twice in others, so that equal items would differ, unless the processor is said to have no such instruction. To test
# the code that users run, give XLA_FLAGS a value of your own, or none: XLA_FLAGS= scripts/test.
_FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_max_isa=SSE4_2"]
if jaxlib.__version__.startswith("0.10."):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def real_data():
    """The folder of real data, or a skip that says how to get it."""
    folder = os.environ.get("JAXRANK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set JAXRANK_DATA to the folder that holds yandex-click-models and the others")
    return Path(folder)


@pytest.fixture
def refusal(capsys, tmp_path, monkeypatch):
    """Runs the command, in a folder of its own, with arguments that it must refuse; returns the line that it says."""

    def refused(arguments):
        monkeypatch.chdir(tmp_path)
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
        error = capsys.readouterr().err
        assert code == 2
        assert error.count("\n") == 1 and error.startswith("jaxrank")
        assert not list(tmp_path.glob("**/*.nc"))
        return error

    return refused


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_functions():
    yield
    forget_if_much()
