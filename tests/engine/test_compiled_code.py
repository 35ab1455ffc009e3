"""Forgetting compiled code."""

import jax
import jax.numpy as jnp

from jaxrank.engine import compiled_code


def test_compiled_code_is_forgotten_only_if_it_is_much(tmp_path):
    twice = jax.jit(lambda x: 2 * x)
    twice(jnp.ones(2))
    maps = tmp_path / "maps"
    for count, kept in ((compiled_code.MOST_MAPS, 1), (compiled_code.MOST_MAPS + 1, 0)):
        maps.write_bytes(b"a map\n" * count)
        compiled_code.forget_if_much(maps)
        assert twice._cache_size() == kept
