"""A lane's array taken apart: each of its entries is one value over all lanes.

An entry is a NumPy scalar, which is known while the code is traced; a JAX scalar, the same in all lanes; or a vector
[lanes], which in a kernel may have another shape, as [8, 128]: ``num_lanes`` is then that shape. A typed random key is
one entry as well: the tuple of the words of its key data.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrank.core.types import Array

# Numbers that a lane may consist of, state and parameters together, to be taken apart: in a kernel, each is a register
# or a place in the cache of its core. ``benchmarks/accelerators.py`` shows what larger lanes compile to.
MOST_ENTRIES = 400
Entry = Any  # np.generic, Array [], Array [lanes], or for a key a tuple of such words
NumLanes = int | tuple[int, ...]


@jax.tree_util.register_pytree_node_class
class Entries:
    """The entries of one array of a lane, in row-major order. As a pytree, its leaves are the entries."""

    def __init__(self, shape: Sequence[int], dtype: Any, flat: Sequence[Entry]) -> None:
        self.shape, self.dtype, self.flat = tuple(shape), dtype, list(flat)

    @classmethod
    def of_lanes(cls, x: Array) -> "Entries":
        """From an array [lanes, …] that has an entry for every lane."""
        if is_key(x.dtype):
            words = cls.of_lanes(jax.random.key_data(x))
            return cls(x.shape[1:], x.dtype, _by_words(words.flat, math.prod(x.shape[1:])))
        rows = jnp.moveaxis(x, 0, -1).reshape(math.prod(x.shape[1:]), x.shape[0])
        return cls(x.shape[1:], x.dtype, unstacked(rows))

    @classmethod
    def shared(cls, x: Any) -> "Entries":
        """From an array that is the same in all lanes; if it is known, its entries are constants."""
        dtype = x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
        if is_key(dtype):
            return cls(x.shape, dtype, _by_words(cls.shared(jax.random.key_data(x)).flat, math.prod(x.shape)))
        if not isinstance(x, jax.core.Tracer):
            x = np.asarray(x, dtype)
            return cls(x.shape, dtype, [x[place] for place in np.ndindex(*x.shape)])
        return cls(x.shape, dtype, unstacked(x.reshape(-1)) if x.ndim else [x])

    def places(self) -> np.ndarray:
        """int[…]: the number of every entry, in the array's shape: index work on it is index work on the entries."""
        return np.arange(len(self.flat)).reshape(self.shape)

    def take(self, places: np.ndarray) -> "Entries":
        """The entries of these numbers, in their shape."""
        return Entries(places.shape, self.dtype, [self.flat[i] for i in places.ravel()])

    def reshaped(self, shape: Sequence[int]) -> "Entries":
        return Entries(shape, self.dtype, self.flat)

    def words(self) -> "Entries":
        """The key data of keys, as ``jax.random.key_data``."""
        words = [word for key in self.flat for word in key]
        shape = (*self.shape, len(words) // max(len(self.flat), 1))
        return Entries(shape, np.dtype(np.uint32), words)

    def wrapped(self, dtype: Any) -> "Entries":
        """Keys of this type from their key data, as ``jax.random.wrap_key_data``."""
        return Entries(self.shape[:-1], dtype, _by_words(self.flat, math.prod(self.shape[:-1])))

    def vectors(self, num_lanes: NumLanes) -> "Entries":
        """All entries as vectors over lanes: the form that a loop can carry."""
        return jax.tree.map(lambda entry: spread(entry, num_lanes), self)

    def whole(self, num_lanes: int) -> Array:
        """The array put together again: [lanes, …] if entries differ from lane to lane, else as in one lane."""
        if is_key(self.dtype):
            return jax.random.wrap_key_data(self.words().whole(num_lanes), impl=key_implementation(self.dtype))
        lanes = (num_lanes,) if any(is_vector(entry) for entry in self.flat) else ()
        if not self.flat:
            return jnp.zeros(self.shape, self.dtype)
        rows = jnp.stack([jnp.broadcast_to(jnp.asarray(entry, self.dtype), lanes) for entry in self.flat])
        rows = rows.reshape(*self.shape, *lanes)
        return jnp.moveaxis(rows, -1, 0) if lanes else rows

    def lanes(self, num_lanes: int) -> Array:
        """The array [lanes, …], whether its entries differ from lane to lane or not."""
        x = self.whole(num_lanes)
        return x if self.vary else jnp.broadcast_to(x, (num_lanes, *self.shape))

    @property
    def known(self) -> bool:
        """Are all entries constants?"""
        return all(is_constant(entry) for entry in self.flat)

    @property
    def vary(self) -> bool:
        """Does any entry differ from lane to lane?"""
        return any(is_vector(entry) for entry in jax.tree.leaves(self))

    def array(self) -> np.ndarray:
        """The array of known entries."""
        return np.array(self.flat, self.dtype).reshape(self.shape)

    def tree_flatten(self) -> tuple[tuple[Entry, ...], tuple[tuple[int, ...], Any]]:
        return tuple(self.flat), (self.shape, self.dtype)

    @classmethod
    def tree_unflatten(cls, form: tuple[tuple[int, ...], Any], flat: Sequence[Entry]) -> "Entries":
        return cls(*form, flat)


class Memory(Protocol):
    """Where a kernel keeps an array of its lanes."""

    def load(self) -> Entries: ...
    def store(self, entries: Entries) -> None: ...
    def read(self, place: Array) -> Array: ...  # in every lane, the entry of this number
    def write(self, writes: list["Write"]) -> None: ...  # likewise, one after the other


class Write(NamedTuple):
    """A write into a memory."""

    place: Array  # int32[lanes], the number of the entry
    value: Array  # [lanes]
    where: Entry  # bool[lanes], the lanes that write


class TouchedError(Exception):
    """Code needs the entries of an array that is kept in memory, in a way that only plain entries allow."""

    def __init__(self, entries: Entries) -> None:
        super().__init__("these entries cannot be kept in memory")
        self.entries = entries


@jax.tree_util.register_pytree_node_class
class KeptEntries(Entries):
    """An array that stays in memory because only rare branches use it. As a pytree, it has no leaves."""

    def __init__(self, shape: Sequence[int], dtype: Any, memory: Memory) -> None:
        self.shape, self.dtype, self.memory = tuple(shape), dtype, memory

    @property
    def flat(self) -> list[Entry]:  # type: ignore[override]
        raise TouchedError(self)

    def vectors(self, num_lanes: NumLanes) -> "KeptEntries":
        return self

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        return (), self

    @classmethod
    def tree_unflatten(cls, form: Any, flat: Any) -> "KeptEntries":
        return form


class OpenEntries(Entries):
    """An array in memory inside of a rare branch, as it is after some of the branch's writes.

    Entries are read and written where they lie. Whoever asks for all of them has them loaded. What has been written
    over cannot be read any more.
    """

    def __init__(self, kept: KeptEntries, where: Array) -> None:
        self.shape, self.dtype, self.kept, self.where = kept.shape, kept.dtype, kept, where
        self.latest: list[OpenEntries] = [self]  # shared by all versions
        self._flat: list[Entry] | None = None

    @property
    def flat(self) -> list[Entry]:  # type: ignore[override]
        if self._flat is None:
            self._require_latest()
            self._flat = self.kept.memory.load().flat
        return self._flat

    def read(self, place: Array) -> Array:
        self._require_latest()
        return self.kept.memory.read(place)

    def written(self, writes: list[Write]) -> "OpenEntries":
        """The array after these writes, in the lanes that take the branch."""
        self._require_latest()
        self.kept.memory.write([write._replace(where=operate("and", self.where, write.where)) for write in writes])
        after = OpenEntries(self.kept, self.where)
        after.latest, self.latest[0] = self.latest, after
        return after

    def store(self, entries: Entries) -> None:
        """Stores the results of a branch, in the lanes that take it."""
        if isinstance(entries, OpenEntries) and entries.latest is self.latest:
            return entries._require_latest()
        pairs = zip(entries.flat, self.flat, strict=True)
        selected = [select(self.where, new, old) for new, old in pairs]
        return self.kept.memory.store(Entries(self.shape, self.dtype, selected))

    def _require_latest(self) -> None:
        if self.latest[0] is not self:
            raise TouchedError(self.kept)


def is_entries(x: Any) -> bool:
    return isinstance(x, Entries)


def unstacked(x: Array) -> list[Array]:
    """[x[0], x[1], …]."""
    return [lax.index_in_dim(x, i, keepdims=False) for i in range(x.shape[0])]


def _by_words(words: list[Entry], num_keys: int) -> list[Entry]:
    size = len(words) // max(num_keys, 1)
    return [tuple(words[i * size : (i + 1) * size]) for i in range(num_keys)]


def is_key(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def key_implementation(dtype: Any) -> Any:
    """The functions of a key type: ``random_bits``, ``split``, ``fold_in`` and ``seed``, all on key data."""
    return dtype._impl  # JAX has no public way from a key's type to them


def is_constant(entry: Entry) -> bool:
    return isinstance(entry, np.generic)


def is_vector(entry: Entry) -> bool:
    return not is_constant(entry) and jnp.ndim(entry) > 0


def spread(entry: Entry, num_lanes: NumLanes) -> Array:
    """The entry as a vector over lanes."""
    shape = num_lanes if isinstance(num_lanes, tuple) else (num_lanes,)
    return entry if is_vector(entry) else lax.full(shape, entry, entry.dtype)


# Of the constants, NumPy computes what it computes to the same bits as XLA; anything else is left to JAX.
_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_LAX: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "mul": lax.mul,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "eq": lax.eq,
    "ne": lax.ne,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
}
# Elementwise primitives that accept scalars beside vectors.
_MIXED = {*_FOLDED, "div", "rem", "pow", "shift_left", "shift_right_logical", "shift_right_arithmetic"}


def fold(primitive: Any, operands: Sequence[np.ndarray], params: dict[str, Any]) -> Any:
    """A primitive of known arrays: its known result, or results."""
    name = primitive.name
    if name in _FOLDED:
        with np.errstate(all="ignore"):
            return np.asarray(_FOLDED[name](*operands))
    if name == "select_n" and operands[0].dtype == bool:
        flag, no, yes = operands
        return np.where(flag, yes, no)
    if name == "convert_element_type" and operands[0].dtype.kind in "biu":
        return operands[0].astype(params["new_dtype"])
    with jax.ensure_compile_time_eval():
        results = primitive.bind(*(jnp.asarray(x, x.dtype) for x in operands), **params)
    return [np.asarray(x) for x in results] if primitive.multiple_results else np.asarray(results)


def bind(primitive: Any, operands: Sequence[Entry], params: dict[str, Any], num_lanes: NumLanes) -> Any:
    """An elementwise primitive of one entry of each operand."""
    if all(is_constant(x) for x in operands):
        results = fold(primitive, [np.asarray(x) for x in operands], params)
        return [x[()] for x in results] if primitive.multiple_results else results[()]
    if primitive.name == "select_n" and len(operands) == 3:
        return select(operands[0], operands[2], operands[1])
    if (simpler := _simplified(primitive.name, operands)) is not None:
        return simpler
    if primitive.name not in _MIXED and any(is_vector(x) for x in operands):
        operands = [spread(x, num_lanes) for x in operands]
    return primitive.bind(*operands, **params)


def operate(name: str, *operands: Entry) -> Entry:
    """The primitive of this name, one of ``_LAX``, of entries."""
    if all(is_constant(x) for x in operands):
        with np.errstate(all="ignore"):
            return _FOLDED[name](*operands)
    simpler = _simplified(name, operands)
    return _LAX[name](*operands) if simpler is None else simpler


def _simplified(name: str, operands: Sequence[Entry]) -> Entry | None:
    """``and`` and ``or`` with a known flag; the maximum and minimum of flags, which Triton does not have."""
    if name in ("max", "min") and operands[0].dtype == np.bool_:
        return operate("or" if name == "max" else "and", *operands)
    if name in ("and", "or"):
        for flag, other in (operands, operands[::-1]):
            if isinstance(flag, np.bool_):
                return other if flag == (name == "and") else flag
    return None


def select(flag: Entry, yes: Entry, no: Entry) -> Entry:
    """``yes`` where ``flag``, else ``no``."""
    if isinstance(yes, tuple):
        return tuple(select(flag, *words) for words in zip(yes, no, strict=True))
    if yes is no or (is_constant(yes) and is_constant(no) and yes.tobytes() == no.tobytes()):
        return no
    if is_constant(flag):
        return yes if flag else no
    shape = next((x.shape for x in (flag, yes, no) if is_vector(x)), None)
    if shape is not None:
        yes, no = spread(yes, shape), spread(no, shape)
    return lax.select_n(flag, no, yes)


def constant(value: Any, dtype: Any) -> Entry:
    return np.asarray(value, dtype)[()]
