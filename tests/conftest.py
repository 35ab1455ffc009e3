"""Shared set-up: real data where there is some, strict JAX, a compiler in a hurry."""

import os
from pathlib import Path

import jax
import jaxlib
import pytest

from jaxrank.command.cli import main

# The suite's time is XLA's, which compiles thousands of small programs. Unoptimised, they take half of it. To test the
# code that users run, give XLA_FLAGS a value of your own, or none: XLA_FLAGS= scripts/test. XLA reads it with its first
# program. jaxlib 0.12 does not know the second flag any more.
_IN_A_HURRY = ["--xla_backend_optimization_level=0"]
if jaxlib.__version__.startswith("0.10."):
    _IN_A_HURRY.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_IN_A_HURRY))

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
    """Compiled code stays mapped until JAX forgets it, and Linux allows a process 65,530 maps: the suite needs more."""
    yield
    jax.clear_caches()
