"""Shared set-up: real data where there is some, strict JAX."""

import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def real_data():
    """The folder of real data, or a skip that says how to get it."""
    folder = os.environ.get("JAXRANK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set JAXRANK_DATA to the folder that holds yandex-click-models and the others")
    return Path(folder)


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_functions():
    """Compiled code stays mapped until JAX forgets it, and Linux allows a process 65,530 maps: the suite needs more."""
    yield
    jax.clear_caches()
