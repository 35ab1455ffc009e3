"""Keys, random words and coin flips.

A lane's key depends only on the root seed, its instance and its seed, and a step's words only on the lane's key and the
step. So no lane's random numbers depend on the other lanes, the calls, the devices or a restart.

In a cheap step, random numbers are the most expensive part. So there are two generators, both JAX key types:

- "jaxrank", the default: Threefry-2x32 with 20 rounds makes 64 random bits for each step of each lane. The step's
  random words are a Weyl sequence that starts from these bits, passed through a 32-bit mixer. Seeds, lanes, steps,
  splits and fold-ins use Threefry. ``tests/core/test_random.py`` has the statistical tests of the resulting words.
- "threefry2x32": every word comes from Threefry, and the bits are those of JAX's generator of that name. The rounds are
  written out instead of rolled into a loop, so that XLA can fuse them.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from jaxrank.core.checks import choice, integer
from jaxrank.core.types import Array, Key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_WEYL = 0x9E3779B9  # makes the words of one key differ
_USE_HIGH, _USE_LOW = 0x85EBCA6B, 0xC2B2AE35  # make the keys of one step differ


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


def _mixed_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    """Words from a key that is itself random: a Weyl sequence from key[0], mixed, and then XORed with key[1]."""
    if bit_width == 64:
        halves = _mixed_bits(key, 32, (*shape, 2)).astype(jnp.uint64)
        return (halves[..., 0] << 32) | halves[..., 1]
    count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    word = key[0] + count * np.uint32(_WEYL)
    word = (word ^ (word >> np.uint32(16))) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> np.uint32(15))) * np.uint32(0x846CA68B)
    word = (word ^ (word >> np.uint32(16))) ^ key[1]
    return word.astype(jnp.dtype(f"uint{bit_width}"))


def _implementation(name: str, tag: str, random_bits: Any) -> Any:
    return define_prng_impl(
        key_shape=(2,), seed=_seed, split=_split, random_bits=random_bits, fold_in=_fold_in, name=name, tag=tag
    )


PRNG = {
    "jaxrank": _implementation("jaxrank", "jr", _mixed_bits),
    "threefry2x32": _implementation("jaxrank_threefry2x32", "jrfry", _random_bits),
}


def root_key(seed: int, prng: str = "jaxrank") -> Key:
    """The key from which all other keys of a run are derived."""
    seed = integer("seed", seed, 0, 2**64 - 1)  # all 64 bits count
    data = jnp.asarray(np.array([seed >> 32, seed & (2**32 - 1)], np.uint32))
    return jax.random.wrap_key_data(data, impl=PRNG[choice("prng", prng, PRNG)])


def lane_key(root: Key, instance: Array, seed: Array) -> Key:
    return jax.random.fold_in(jax.random.fold_in(root, instance), seed)


class StepWords(NamedTuple):
    """The random words from which a step's keys are made. The loop carries them, so that they are computed once."""

    high: Array  # uint32[]
    low: Array  # uint32[]


def step_words(lane: Array, step: Array) -> StepWords:
    """The words of a step, from a lane's key data [2]."""
    return StepWords(*_threefry(lane, jnp.uint32(0), step.astype(jnp.uint32)))


def keys_of(words: StepWords, prng: str) -> tuple[Key, Key, Key, Key]:
    """The four keys of a step: query, rank, clicks, update. Unused ones cost nothing, because XLA removes them."""

    def key(use: int) -> Key:
        high = words.high + np.uint32(use * _USE_HIGH % 2**32)
        low = words.low ^ np.uint32(use * _USE_LOW % 2**32)
        return jax.random.wrap_key_data(jnp.stack([high, low]), impl=PRNG[prng])

    return key(0), key(1), key(2), key(3)


def step_keys(lane: Key, step: Array) -> tuple[Key, Key, Key, Key]:
    """The four keys of a step, from the lane's key."""
    prng = next(name for name, impl in PRNG.items() if jax.random.key_impl(lane) == impl)
    return keys_of(step_words(jax.random.key_data(lane), step), prng)


def number_below(key: Key, end: int) -> Array:
    """int32[]: a number from 0 to ``end`` − 1, all of the same probability up to a factor of 1 + end/2³².

    ``jax.random.randint`` splits its key and draws two words, which a step feels.
    """
    return (jax.random.bits(key, (), jnp.uint32) % np.uint32(end)).astype(jnp.int32)


def coin_flips(key: Key, num: int) -> Array:
    """bool[num]: fair coin flips, 32 from each random word."""
    words = jax.random.bits(key, (math.ceil(num / 32),), jnp.uint32)
    flips = [words[i] >> jnp.arange(min(32, num - 32 * i), dtype=jnp.uint32) for i in range(words.shape[0])]
    return (jnp.concatenate(flips) & 1).astype(bool)
