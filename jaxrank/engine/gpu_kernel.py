"""Kernels for GPUs, by Pallas' Triton backend: a thread has one lane, in its registers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrank.core.types import Array
from jaxrank.engine.entries import Entries, Write

BLOCK = 128  # lanes of one program: a vector of Triton's must have a power of two of them
_SMALLEST_TILE, _TILE = 16, 64  # words that are loaded and stored together
_WARPS = 4  # so each of the 128 threads has one lane


class GpuBlocks:
    """What a kernel is made of on a GPU."""

    scratch: Sequence[Any] = ()

    def __init__(self, num_lanes: int = BLOCK) -> None:
        self.shape = (num_lanes,)
        self.compiler_params = triton.CompilerParams(num_warps=_WARPS, num_stages=1)

    def words(self, leaves: Sequence[Any]) -> "PackedWords":
        return PackedWords(leaves, self.shape[0])

    def scalars(self, shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec(shape, lambda i: (0,) * len(shape))

    def begin_with(self, given: Any, result: Any) -> None:
        pass  # they are in the same memory

    def compilable(self, function: Callable[[Any], Any], scratch: Sequence[Any]) -> Callable[[Any], Any]:
        return function


def tiles(num_words: int) -> list[int]:
    """The words of every tile, powers of two."""
    full, rest = divmod(max(num_words, 1), _TILE)
    return [_TILE] * full + [max(1 << (rest - 1).bit_length(), _SMALLEST_TILE)] * (rest > 0)


class PackedWords:
    """Some arrays of a lane as one row of 32-bit words: [lanes, words].

    A kernel loads and stores them in tiles of many words, which it splits and joins. For every load and store, Triton's
    pass "coalesce" compares all pairs of operations that they are connected with: in tiles of 16 words, a kernel of
    TopRank with 13 items was not compiled in 500 s, and in tiles of 64 words it is in 22 s.
    """

    def __init__(self, leaves: Sequence[Any], block: int) -> None:
        self.leaves = [(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        self.sizes = [math.prod(shape) for shape, _ in self.leaves]
        self.tiles = tiles(sum(self.sizes))
        self.width = sum(self.tiles)
        self.block = block

    @property
    def specs(self) -> list[pl.BlockSpec]:
        return [pl.BlockSpec((self.block, self.width), lambda i: (i, 0))]

    def shapes(self, padded: int) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct((padded, self.width), jnp.int32)]

    def pack(self, leaves: Sequence[Array], padded: int) -> list[Array]:
        rows = [_as_word(leaf).reshape(leaf.shape[0], -1) for leaf in leaves]
        words = jnp.concatenate(rows, axis=1)
        words = jnp.pad(words, ((0, 0), (0, self.width - words.shape[1])))
        return [jnp.pad(words, ((0, padded - words.shape[0]), (0, 0)), mode="edge")]

    def unpack(self, arrays: Sequence[Array], num_lanes: int) -> list[Array]:
        (words,) = arrays
        ends = np.cumsum(self.sizes)
        return [
            _from_word(words[:num_lanes, end - size : end], dtype).reshape(num_lanes, *shape)
            for end, size, (shape, dtype) in zip(ends, self.sizes, self.leaves, strict=True)
        ]

    def load(self, refs: Sequence[Any]) -> list[Entries]:
        words: list[Array] = []
        for size in self.tiles:
            parts = lax.split(refs[0][:, pl.ds(len(words), size)], [1] * size, axis=1)
            words += [part.reshape(self.block) for part in parts]
        return [
            Entries(shape, dtype, [_from_word(word, dtype) for word in words[end - size : end]])
            for end, size, (shape, dtype) in zip(np.cumsum(self.sizes), self.sizes, self.leaves, strict=True)
        ]

    def store(self, refs: Sequence[Any], leaves: Sequence[Entries]) -> None:
        words = [_as_word(entry) for leaf in leaves for entry in leaf.vectors(self.block).flat]
        words += [jnp.zeros(self.block, jnp.int32)] * (self.width - len(words))
        start = 0
        for size in self.tiles:
            refs[0][:, pl.ds(start, size)] = _joined(words[start : start + size])
            start += size

    def read(self, refs: Sequence[Any], place: Array) -> Array:
        return _from_word(triton.load(self._at(refs, place)), self.leaves[0][1])

    def write(self, refs: Sequence[Any], writes: list[Write]) -> None:
        for place, value, where in writes:
            triton.store(self._at(refs, place), _as_word(value), mask=where)

    def _at(self, refs: Sequence[Any], place: Array) -> Any:
        return refs[0].at[jnp.arange(self.block), place]


def _as_word(x: Array) -> Array:
    return x.astype(jnp.int32) if x.dtype == jnp.bool_ else lax.bitcast_convert_type(x, jnp.int32)


def _from_word(x: Array, dtype: Any) -> Array:
    return x.astype(dtype) if dtype == jnp.bool_ else lax.bitcast_convert_type(x, dtype)


def _joined(words: Sequence[Array]) -> Array:
    """[lanes, n] of n vectors [lanes], n a power of two, by joining pairs, which is all that Triton has."""
    bits = len(words).bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(len(words))] if bits else [0]
    parts = [words[i] for i in order]
    while len(parts) > 1:
        parts = [jnp.stack(pair, axis=-1) for pair in zip(parts[0::2], parts[1::2], strict=True)]
    return parts[0].reshape(-1, len(words))
