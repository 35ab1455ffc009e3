"""How each primitive acts on entries: index work, elementwise arithmetic, look-ups, reductions and sorting.

A rule takes the operands, the equation's parameters, what the results must look like, and the number of lanes. Index
work is done while tracing, on numbers of entries, and leaves nothing to compute. A look-up at a place that differs from
lane to lane is a chain of selects over all places. Reductions follow the order of the entries. A rule returns None for
a form of its primitive that it does not know.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from jaxrank.engine.entries import (
    Entries,
    Entry,
    Write,
    bind,
    constant,
    fold,
    is_constant,
    operate,
    select,
    spread,
)

Rule = Callable[[Any, list[Entries], list[Any], int], list[Entries] | None]  # (equation, operands, avals, lanes)

# fmt: off
ELEMENTWISE = (
    "abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "bitcast_convert_type",
    "cbrt", "ceil", "clamp", "clz", "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma", "div",
    "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite",
    "le", "lgamma", "log", "log1p", "log2", "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg",
    "nextafter", "not", "or", "population_count", "pow", "reduce_precision", "rem", "round", "rsqrt",
    "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt",
    "square", "stop_gradient", "sub", "tan", "tanh", "threefry2x32", "xor",
)
# fmt: on
IDENTITY = frozenset({"optimization_barrier", "layout_constraint", "sharding_constraint", "reshard", "pvary"})


def elementwise(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    primitive, params, shape = eqn.primitive, eqn.params, avals[0].shape
    if primitive.name == "bitcast_convert_type" and shape != operands[0].shape:
        return None  # one number becomes several, or several one
    if all(x.known for x in operands):
        results = fold(primitive, [x.array() for x in operands], params)
        return [Entries.shared(x) for x in (results if primitive.multiple_results else [results])]
    columns = [x.take(np.broadcast_to(x.places(), shape)).flat for x in operands]  # they may have axes of length 1
    done: dict[Any, Any] = {}  # equal operands have equal results: what is broadcast is computed once
    flat = []
    for row in zip(*columns, strict=True):
        name = tuple(_name(entry) for entry in row)
        if name not in done:
            done[name] = bind(primitive, row, params, num_lanes)
        flat.append(done[name])
    if primitive.multiple_results:
        return [Entries(a.shape, a.dtype, entries) for a, entries in zip(avals, zip(*flat, strict=True), strict=True)]
    return [Entries(shape, avals[0].dtype, flat)]


def _name(entry: Entry) -> Any:
    return (entry.dtype, entry.tobytes()) if is_constant(entry) else id(entry)


# Index work.


def _rearranged(places: Callable[[np.ndarray, dict[str, Any]], np.ndarray]) -> Rule:
    """The rule of a primitive with one operand that puts entries elsewhere."""

    def rule(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
        return [operands[0].take(places(operands[0].places(), eqn.params))]

    return rule


def _reshape(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    return [operands[0].reshaped(avals[0].shape)]


def _broadcast_in_dim(places: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    shape, dimensions = params["shape"], params["broadcast_dimensions"]
    aligned = [1] * len(shape)
    for size, dimension in zip(places.shape, dimensions, strict=True):
        aligned[dimension] = size
    return np.broadcast_to(places.reshape(aligned), shape)


def _slice(places: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    strides = params["strides"] or [1] * places.ndim
    return places[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]


def _concatenate(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    joined = Entries((), avals[0].dtype, [entry for x in operands for entry in x.flat])
    firsts = np.cumsum([0, *(len(x.flat) for x in operands)])
    parts = [x.places() + first for x, first in zip(operands, firsts, strict=False)]
    if eqn.primitive.name == "stack":
        return [joined.take(np.stack(parts, axis=eqn.params["axis"]))]
    return [joined.take(np.concatenate(parts, axis=eqn.params["dimension"]))]


def _split(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    ends = np.cumsum(eqn.params["sizes"])[:-1]
    return [operands[0].take(part) for part in np.split(operands[0].places(), ends, axis=eqn.params["axis"])]


def _unstack(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    return [operands[0].take(part) for part in np.moveaxis(operands[0].places(), eqn.params["axis"], 0)]


def _pad(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    x, padding = operands
    places = np.full(avals[0].shape, len(x.flat))
    for number, place in enumerate(np.ndindex(*x.shape)):
        config = zip(place, eqn.params["padding_config"], strict=True)
        target = tuple(low + i * (inner + 1) for i, (low, _, inner) in config)
        if all(0 <= t < size for t, size in zip(target, places.shape, strict=True)):
            places[target] = number
    return [Entries((), x.dtype, [*x.flat, *padding.flat]).take(places)]


def _iota(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    shape, dimension = avals[0].shape, eqn.params["dimension"]
    aligned = [1] * len(shape)
    aligned[dimension] = shape[dimension]
    return [Entries.shared(np.broadcast_to(np.arange(shape[dimension]).reshape(aligned), shape).astype(avals[0].dtype))]


# Look-ups.


class _Tests:
    """Comparisons of indices with places, each made once."""

    def __init__(self) -> None:
        self.made: dict[Any, Entry] = {}
        self.alive: list[Entry] = []  # an id names an entry only as long as it lives

    def __call__(self, name: str, index: Entry, place: int) -> Entry:
        key = (name, _name(index), place)
        if key not in self.made:
            self.alive.append(index)
            self.made[key] = operate(name, index, constant(place, index.dtype))
        return self.made[key]


def _read(tests: _Tests, flat: list[Entry], places: np.ndarray, starts: Sequence[Entry]) -> Entry:
    """flat[places[starts]], starts outside of ``places`` taken to its border."""
    if not starts:
        return flat[int(places)]
    start, *others = starts
    if is_constant(start):
        return _read(tests, flat, places[int(np.clip(int(start), 0, len(places) - 1))], others)
    found = _read(tests, flat, places[0], others)
    for place in range(1, len(places)):
        found = select(tests("ge", start, place), _read(tests, flat, places[place], others), found)
    return found


def _at(windows: np.ndarray, offset: Sequence[int]) -> np.ndarray:
    """int[start…]: the numbers at one place of windows [start…, offset…]."""
    starts: list[Any] = [slice(None)] * (windows.ndim - len(offset))
    return windows[(*starts, *offset)]


def _dynamic_slice(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    x, *starts = operands
    windows = np.lib.stride_tricks.sliding_window_view(x.places(), eqn.params["slice_sizes"])  # [start…, offset…]
    tests, at = _Tests(), [start.flat[0] for start in starts]
    flat = [_read(tests, x.flat, _at(windows, offset), at) for offset in np.ndindex(*avals[0].shape)]
    return [Entries(avals[0].shape, x.dtype, flat)]


def _gather(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    x, indices = operands
    numbers, sizes, mode = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], eqn.params["mode"]
    shape = avals[0].shape
    if len(x.flat) == 0:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(x.places(), sizes)
    in_window = [
        d for d in range(len(x.shape)) if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ]
    over_batch = [d for d in range(len(shape)) if d not in numbers.offset_dims]
    index, tests, flat = indices.places(), _Tests(), []
    for place in np.ndindex(*shape):
        batch = tuple(place[d] for d in over_batch)
        offset = [0] * len(x.shape)
        for d, out in zip(in_window, numbers.offset_dims, strict=True):
            offset[d] = place[out]
        starts: list[Entry] = [constant(0, indices.dtype)] * len(x.shape)
        for d, i in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            starts[d] = constant(batch[i], indices.dtype)
        for i, d in enumerate(numbers.start_index_map):
            starts[d] = indices.flat[index[(*batch, i)]]
        found = _read(tests, x.flat, _at(windows, offset), starts)
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside: Entry = np.bool_(True)
            for d in numbers.start_index_map:
                inside = operate("and", inside, tests("ge", starts[d], 0))
                inside = operate("and", inside, tests("le", starts[d], x.shape[d] - sizes[d]))
            found = select(inside, found, _filling(eqn.params["fill_value"], x.dtype))
        flat.append(found)
    return [Entries(shape, x.dtype, flat)]


def _filling(value: Any, dtype: Any) -> Entry:
    """What a look-up outside of an array gives: by default NaN, the smallest or the largest integer, or True."""
    if value is not None:
        return constant(value, dtype)
    if np.issubdtype(dtype, np.signedinteger):
        return constant(np.iinfo(dtype).min, dtype)
    if np.issubdtype(dtype, np.unsignedinteger):
        return constant(np.iinfo(dtype).max, dtype)
    return constant(np.nan, dtype)  # NaN as a boolean is True


def _write(
    tests: _Tests,
    flat: list[Entry],
    windows: np.ndarray,
    starts: Sequence[Entry],
    update: np.ndarray,
    combine: Callable[[Entry, Entry], Entry],
    clip: bool,
) -> None:
    """Combines ``update`` with the window of ``flat`` at ``starts``, in place; not if it lies outside, or clipped."""

    def candidates(start: Entry, count: int) -> list[tuple[int, Entry]]:
        if is_constant(start):
            at = int(np.clip(int(start), 0, count - 1)) if clip else int(start)
            return [(at, np.bool_(True))] if 0 <= at < count else []
        if clip and count == 1:
            return [(0, np.bool_(True))]
        names = ["eq"] * count
        if clip:
            names[0], names[-1] = "le", "ge"
        return [(at, tests(name, start, at)) for at, name in enumerate(names)]

    counts = windows.shape[: len(starts)]
    for choice in itertools.product(*map(candidates, starts, counts)):
        here: Entry = np.bool_(True)
        for _, flag in choice:
            here = operate("and", here, flag)
        window = windows[tuple(at for at, _ in choice)]
        for offset in np.ndindex(*window.shape):
            place = int(window[offset])
            flat[place] = select(here, combine(flat[place], update[offset]), flat[place])


def _in_grid(flat: Sequence[Entry], shape: Sequence[int]) -> np.ndarray:
    grid = np.empty(len(flat), object)
    for i, entry in enumerate(flat):
        grid[i] = entry
    return grid.reshape(shape)


def _dynamic_update_slice(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    x, update, *starts = operands
    windows = np.lib.stride_tricks.sliding_window_view(x.places(), update.shape)
    flat, at = list(x.flat), [start.flat[0] for start in starts]
    _write(_Tests(), flat, windows, at, _in_grid(update.flat, update.shape), lambda old, new: new, clip=True)
    return [Entries(x.shape, x.dtype, flat)]


def _scatter(combine: Callable[[Entry, Entry], Entry]) -> Rule:
    def rule(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
        x, indices, updates = operands
        numbers = eqn.params["dimension_numbers"]
        left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        in_window = [d for d in range(len(x.shape)) if d not in left_out]
        over_batch = [d for d in range(len(updates.shape)) if d not in numbers.update_window_dims]
        sizes = [1] * len(x.shape)
        for d, axis in zip(in_window, numbers.update_window_dims, strict=True):
            sizes[d] = updates.shape[axis]
        windows = np.lib.stride_tricks.sliding_window_view(x.places(), sizes)
        batches = [updates.shape[d] for d in over_batch]
        new = _in_grid(updates.flat, updates.shape).transpose(*over_batch, *numbers.update_window_dims)
        new = new.reshape(*batches, *sizes)
        index, tests, flat = indices.places(), _Tests(), list(x.flat)
        for batch in np.ndindex(*batches):
            starts: list[Entry] = [constant(0, indices.dtype)] * len(x.shape)
            for d, i in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
                starts[d] = constant(batch[i], indices.dtype)
            for i, d in enumerate(numbers.scatter_dims_to_operand_dims):
                starts[d] = indices.flat[index[(*batch, i)]]
            _write(tests, flat, windows, starts, new[batch], combine, eqn.params["mode"] == GatherScatterMode.CLIP)
        return [Entries(x.shape, x.dtype, flat)]

    return rule


# Look-ups in an array that a rare branch of a kernel finds in memory, one entry at a time.


def _address(x: Entries, starts: Sequence[Entry], num_lanes: int) -> Any:
    """int32[lanes]: the number of the entry at ``starts``, taken to the border of the array."""
    place: Entry = constant(0, np.int32)
    for start, size in zip(starts, x.shape, strict=True):
        inside = operate("min", operate("max", start, constant(0, start.dtype)), constant(size - 1, start.dtype))
        if not is_constant(inside):
            inside = inside.astype(np.int32)
        place = operate("add", operate("mul", place, constant(size, np.int32)), inside)
    return spread(place, num_lanes)


def _inside(x: Entries, starts: Sequence[Entry]) -> Entry:
    """Is the place ``starts`` in the array?"""
    inside: Entry = np.bool_(True)
    for start, size in zip(starts, x.shape, strict=True):
        inside = operate("and", inside, operate("ge", start, constant(0, start.dtype)))
        inside = operate("and", inside, operate("lt", start, constant(size, start.dtype)))
    return inside


def _starts(indices: Entries, index_map: Sequence[int], batch: tuple[int, ...]) -> list[Entry]:
    index = indices.places()
    return [indices.flat[index[(*batch, list(index_map).index(d))]] for d in range(len(index_map))]


def _gather_in_memory(eqn: Any, operands: list[Any], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    x, indices = operands
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    if any(size != 1 for size in eqn.params["slice_sizes"]) or numbers.operand_batching_dims or numbers.offset_dims:
        return None
    flat = []
    for batch in np.ndindex(*avals[0].shape):
        starts = _starts(indices, numbers.start_index_map, batch)
        found: Entry = x.read(_address(x, starts, num_lanes))
        if mode == GatherScatterMode.FILL_OR_DROP:
            found = select(_inside(x, starts), found, _filling(eqn.params["fill_value"], x.dtype))
        flat.append(found)
    return [Entries(avals[0].shape, x.dtype, flat)]


def _dynamic_slice_in_memory(eqn: Any, operands: list[Any], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    x, *starts = operands
    if any(size != 1 for size in eqn.params["slice_sizes"]):
        return None
    found = x.read(_address(x, [start.flat[0] for start in starts], num_lanes))
    return [Entries(avals[0].shape, x.dtype, [found])]


def _scatter_in_memory(eqn: Any, operands: list[Any], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    x, indices, updates = operands
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    if numbers.operand_batching_dims or numbers.update_window_dims:
        return None
    writes = []
    for batch, update in zip(np.ndindex(*updates.shape), updates.flat, strict=True):
        starts = _starts(indices, numbers.scatter_dims_to_operand_dims, batch)
        inside = np.bool_(True) if mode == GatherScatterMode.CLIP else _inside(x, starts)
        writes.append(Write(_address(x, starts, num_lanes), spread(update, num_lanes), inside))
    return [x.written(writes)]


# Reductions and sorting, in the order of the entries.


def _rows(x: Entries, axes: Sequence[int]) -> np.ndarray:
    """int[…, n]: numbers of entries, the reduced axes last and as one."""
    kept = [d for d in range(len(x.shape)) if d not in axes]
    shape = [x.shape[d] for d in kept]
    return x.places().transpose(*kept, *axes).reshape(*shape, int(np.prod([x.shape[d] for d in axes], dtype=int)))


def _reduce(name: str, of_nothing: Callable[[Any], Any]) -> Rule:
    def rule(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
        x, flat = operands[0], []
        rows = _rows(x, eqn.params["axes"])
        for place in np.ndindex(*rows.shape[:-1]):
            entries = [x.flat[i] for i in rows[place]]
            total = entries[0] if entries else constant(of_nothing(x.dtype), x.dtype)
            for entry in entries[1:]:
                total = operate(name, total, entry)
            flat.append(total)
        return [Entries(avals[0].shape, avals[0].dtype, flat)]

    return rule


def _smallest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def _largest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf


def _cumulative(name: str) -> Rule:
    def rule(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
        x, axis = operands[0], eqn.params["axis"]
        flat: list[Entry] = list(x.flat)
        for row in np.moveaxis(x.places(), axis, -1).reshape(-1, x.shape[axis]):
            order = row[::-1] if eqn.params["reverse"] else row
            for before, here in itertools.pairwise(order):
                flat[here] = operate(name, flat[before], flat[here])
        return [Entries(x.shape, x.dtype, flat)]

    return rule


def _is_nan(entry: Entry, dtype: Any) -> Entry:
    return operate("ne", entry, entry) if np.issubdtype(dtype, np.inexact) else np.bool_(False)


def _before(first: Entry, second: Entry, dtype: Any, compare: str) -> Entry:
    """Is the first strictly less ("lt") or greater ("gt") than the second? NaN is more extreme than any number."""
    nan = operate("and", _is_nan(first, dtype), operate("not", _is_nan(second, dtype)))
    return operate("or", operate(compare, first, second), nan)


def _arg(compare: str) -> Rule:
    def rule(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
        x, index_dtype, flat = operands[0], avals[0].dtype, []
        rows = _rows(x, eqn.params["axes"])
        for place in np.ndindex(*rows.shape[:-1]):
            best, found = x.flat[rows[place][0]], constant(0, index_dtype)
            for i, number in enumerate(rows[place][1:], 1):
                better = _before(x.flat[number], best, x.dtype, compare)
                best = select(better, x.flat[number], best)
                found = select(better, constant(i, index_dtype), found)
            flat.append(found)
        return [Entries(avals[0].shape, index_dtype, flat)]

    return rule


def _sorted(rows: list[list[Entry]], is_before: Callable[[int, int, list[list[Entry]]], Entry]) -> None:
    """Sorts columns of entries in place, stably, by exchanges of neighbours: rows[operand][position]."""
    for end in range(len(rows[0]) - 1, 0, -1):
        for i in range(end):
            swap = is_before(i + 1, i, rows)
            for row in rows:
                row[i], row[i + 1] = select(swap, row[i + 1], row[i]), select(swap, row[i], row[i + 1])


def _sort(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries]:
    axis, num_keys = eqn.params["dimension"], eqn.params["num_keys"]

    def is_before(first: int, second: int, rows: list[list[Entry]]) -> Entry:
        """Lexicographically by the keys; NaN comes last."""
        answer: Entry = np.bool_(False)
        for x, row in reversed([*zip(operands[:num_keys], rows, strict=False)]):
            a, b = row[first], row[second]
            less = operate("and", operate("not", _is_nan(a, x.dtype)), _before(b, a, x.dtype, "gt"))
            more = operate("and", operate("not", _is_nan(b, x.dtype)), _before(a, b, x.dtype, "gt"))
            answer = operate("or", less, operate("and", operate("not", more), answer))
        return answer

    results = [list(x.flat) for x in operands]
    for places in np.moveaxis(operands[0].places(), axis, -1).reshape(-1, operands[0].shape[axis]):
        rows = [[flat[i] for i in places] for flat in results]
        _sorted(rows, is_before)
        for flat, row in zip(results, rows, strict=True):
            for i, entry in zip(places, row, strict=True):
                flat[i] = entry
    return [Entries(x.shape, x.dtype, flat) for x, flat in zip(operands, results, strict=True)]


def _top_k(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    x, k = operands[0], eqn.params["k"]
    if len(avals[0].shape) != len(x.shape) or eqn.params.get("axis", len(x.shape) - 1) != len(x.shape) - 1:
        return None
    values, numbers = [], []
    for places in x.places().reshape(-1, x.shape[-1]):
        rows = [[x.flat[i] for i in places], [constant(i, avals[1].dtype) for i in range(len(places))]]
        _sorted(rows, lambda first, second, rows: _before(rows[0][first], rows[0][second], x.dtype, "gt"))
        values += rows[0][:k]
        numbers += rows[1][:k]
    return [Entries(a.shape, a.dtype, flat) for a, flat in zip(avals, (values, numbers), strict=True)]


def _dot_general(eqn: Any, operands: list[Entries], avals: list[Any], num_lanes: int) -> list[Entries] | None:
    (of_left, of_right), (batch_left, batch_right) = eqn.params["dimension_numbers"]
    left, right = operands
    if left.dtype != avals[0].dtype or right.dtype != avals[0].dtype:
        return None
    batch = tuple(left.shape[d] for d in batch_left)
    length = math.prod(left.shape[d] for d in of_left)

    def vectors(x: Entries, of: Sequence[int], batched: Sequence[int]) -> np.ndarray:
        """The places of [batch…, vectors, length]; an axis may be empty."""
        others = _others(x, of, batched)
        number = math.prod(x.shape[d] for d in others)
        return x.places().transpose(*batched, *others, *of).reshape(*batch, number, length)

    rows, columns = vectors(left, of_left, batch_left), vectors(right, of_right, batch_right)
    flat = []
    for b in np.ndindex(*batch):
        for row in rows[b]:
            for column in columns[b]:
                terms = [operate("mul", left.flat[i], right.flat[j]) for i, j in zip(row, column, strict=True)]
                total = terms[0] if terms else constant(0, avals[0].dtype)
                for term in terms[1:]:
                    total = operate("add", total, term)
                flat.append(total)
    return [Entries(avals[0].shape, avals[0].dtype, flat)]


def _others(x: Entries, *used: Sequence[int]) -> list[int]:
    return [d for d in range(len(x.shape)) if not any(d in dimensions for dimensions in used)]


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _rearranged(_broadcast_in_dim),
    "transpose": _rearranged(lambda places, params: places.transpose(params["permutation"])),
    "rev": _rearranged(lambda places, params: np.flip(places, params["dimensions"])),
    "slice": _rearranged(_slice),
    "tile": _rearranged(lambda places, params: np.tile(places, params["reps"])),
    **dict.fromkeys(("concatenate", "stack"), _concatenate),
    "split": _split,
    "unstack": _unstack,
    "pad": _pad,
    "iota": _iota,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(lambda old, new: new),
    **{
        f"scatter{dash}{name}": _scatter(lambda old, new, name=name: operate(name, old, new))  # type: ignore[misc]
        for name in ("add", "mul", "min", "max")
        for dash in "-_"
    },
    "reduce_sum": _reduce("add", lambda dtype: 0),
    "reduce_prod": _reduce("mul", lambda dtype: 1),
    "reduce_max": _reduce("max", _smallest),
    "reduce_min": _reduce("min", _largest),
    "reduce_or": _reduce("or", lambda dtype: 0),
    "reduce_and": _reduce("and", lambda dtype: np.invert(np.zeros((), dtype))),
    "reduce_xor": _reduce("xor", lambda dtype: 0),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "cummin": _cumulative("min"),
    "argmax": _arg("gt"),
    "argmin": _arg("lt"),
    "sort": _sort,
    "top_k": _top_k,
    "dot_general": _dot_general,
}
IN_MEMORY: dict[str, Rule] = {
    "gather": _gather_in_memory,
    "dynamic_slice": _dynamic_slice_in_memory,
    "scatter": _scatter_in_memory,
}
