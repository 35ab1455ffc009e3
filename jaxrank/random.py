"""Keys and draws.

A lane's key depends on the root seed, its instance and its seed alone, a step's key on the lane and the step: no
lane's numbers depend on its neighbours, on the chunking, on the devices or on a restart.

``threefry2x32`` here gives the same bits as JAX's generator of that name, with the 20 rounds written out instead of
rolled into a loop, so that XLA fuses them with what uses the bits (42 against 101 ns for ten draws, DESIGN.md).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from jaxrank.types import Array, Key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(key: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al., SC 2011): two words from a key [2] and a counter of two words."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation)))
        x0 = x0 + schedule[(block + 1) % 3]
        x1 = x1 + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def _seed(seed: Array) -> Array:
    high = seed >> 32 if seed.dtype.itemsize == 8 else jnp.zeros_like(seed)
    return jnp.stack([high.astype(jnp.uint32), seed.astype(jnp.uint32)])


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    if math.prod(shape) >= 2**32:
        raise ValueError(f"at most 2**32 - 1 numbers can be drawn from one key; got shape {shape}")
    low = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return jnp.zeros_like(low), low


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_threefry(key, *_counters(shape)), axis=-1)


def _fold_in(key: Array, data: Any) -> Array:
    return jnp.stack(_threefry(key, *_seed(data)))


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    x0, x1 = _threefry(key, *_counters(shape))
    if bit_width == 64:
        return (x0.astype(jnp.uint64) << 32) | x1.astype(jnp.uint64)
    return (x0 ^ x1).astype(jnp.dtype(f"uint{bit_width}"))


THREEFRY = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="jaxrank_threefry2x32",
    tag="jrfry",
)


def root_key(seed: int) -> Key:
    return jax.random.key(seed, impl=THREEFRY)


def lane_key(root: Key, instance: Array, seed: Array) -> Key:
    return jax.random.fold_in(jax.random.fold_in(root, instance), seed)


def step_keys(lane: Key, step: Array) -> tuple[Key, Key, Key, Key]:
    """The four keys of a step: query, rank, clicks, update. Those not used cost nothing: XLA drops them."""
    key = jax.random.fold_in(lane, step)
    query, rank, clicks, update = (jax.random.fold_in(key, use) for use in range(4))
    return query, rank, clicks, update


def coin_flips(key: Key, num: int) -> Array:
    """bool[num]: fair flips, 32 to a word."""
    words = jax.random.bits(key, (math.ceil(num / 32),), jnp.uint32)
    flips = [words[i] >> jnp.arange(min(32, num - 32 * i), dtype=jnp.uint32) for i in range(words.shape[0])]
    return (jnp.concatenate(flips) & 1).astype(bool)
