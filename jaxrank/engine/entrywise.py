"""One-lane code, evaluated entry by entry over vectors of lanes.

vmap makes [lanes, K] of a lane's [K]; this makes K vectors [lanes] of it (``entries.py``). What is left of the code is
arithmetic of whole vectors: nothing is laid out, gathered or reduced, so that XLA fuses a step into a few kernels, and
a Pallas kernel can keep the state of a block of lanes in registers. It is meant for small arrays: a matrix of L × L
items has L² entries, and a look-up in it costs as many selects.

``entry_by_entry`` traces the function to a jaxpr and evaluates its equations: most by the rules of ``entry_rules.py``,
and here those that hold other jaxprs, and random keys. Operations and their order are those of one lane's code, so
integers are exactly, and floats to rounding, those of ``jax.vmap``.

- A loop of known length is written out if that makes few entries, and otherwise stays a loop that carries entries.
- A while loop whose condition differs from lane to lane runs while any lane continues; lanes that have ended keep
  their values. Of a conditional, both branches are evaluated and selected from.
- A branch that is taken ``rarely`` is evaluated in all lanes, and selected from, if any lane takes it.
- What cannot be taken apart is evaluated by vmap on whole arrays, but only for a caller who counts it.
"""

import math
from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from jaxrank.core.batching import RARELY
from jaxrank.core.types import Array
from jaxrank.engine.entries import (
    Entries,
    Entry,
    KeptEntries,
    NumLanes,
    OpenEntries,
    TouchedError,
    fold,
    is_constant,
    is_entries,
    is_key,
    is_vector,
    key_implementation,
    operate,
    select,
    spread,
    unstacked,
)
from jaxrank.engine.entry_rules import IDENTITY, IN_MEMORY, RULES, elementwise
from jaxrank.engine.jaxprs import CALLS, needed_equations, opened, primitives, scan_sizes

# Entries that a loop of known length may make, over all its rounds, to be written out. In a kernel's rare branch, code
# that stays short compiles faster: BatchRank's kernel in 39 s instead of 66.
_WRITTEN_OUT, _WRITTEN_OUT_RARELY = 4096, 256
_OF_A_WORD = 50  # operations for a random word
_READ = 32  # the most operations that a look-up is counted as: larger arrays may be kept in memory


class NotEntrywiseError(ValueError):
    """The code has an operation that cannot be evaluated entry by entry."""


def entry_by_entry(
    function: Callable[..., Any],
    num_lanes: NumLanes,
    *,
    whole_arrays: Counter[str] | None = None,
    in_place: bool = False,
) -> Callable[..., Any]:
    """``function`` of one lane as a function of the entries of all lanes.

    Args:
      function: one-lane code: a function of pytrees of arrays that returns one.
      num_lanes: the length of the vectors, or their shape.
      whole_arrays: counts, by primitive, what was evaluated on whole arrays because it cannot be taken apart. Without
        it, that is a NotEntrywiseError.
      in_place: make a rare branch a loop of one round at most instead of a conditional: XLA changes what a loop carries
        in place, and copies what goes through a conditional.

    Returns:
      A function of the same arguments with ``Entries`` for the arrays of a lane; other arrays and scalars among them
      are the same in all lanes. It returns ``Entries``.

    Example:
      >>> import jax.numpy as jnp
      >>> x = Entries.of_lanes(jnp.array([[3, 1, 2], [1, 5, 4]]))  # two lanes
      >>> entry_by_entry(jnp.argmax, 2)(x).lanes(2).tolist()
      [0, 1]
    """

    def of_entries(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args, is_leaf=is_entries)
        entries = [leaf if is_entries(leaf) else Entries.shared(leaf) for leaf in leaves]
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in entries]
        one_lane = jax.tree.unflatten(structure, shapes)
        jaxpr, result = jax.make_jaxpr(function, return_shape=True)(*one_lane)
        results = _Evaluation(num_lanes, whole_arrays, in_place).of(jaxpr, entries)
        return jax.tree.unflatten(jax.tree.structure(result), results)

    return of_entries


class _Evaluation:
    """Evaluates jaxprs on entries."""

    def __init__(self, num_lanes: NumLanes, whole_arrays: Counter[str] | None, in_place: bool) -> None:
        self.num_lanes: Any = num_lanes
        self.whole_arrays, self.in_place = whole_arrays, in_place
        self.written_out = _WRITTEN_OUT

    def of(self, closed: Any, operands: list[Entries], rare: bool = False) -> list[Entries]:
        """The results of a jaxpr; if it is ``rare``, its conditional is a rare one."""
        jaxpr, consts = opened(closed), getattr(closed, "consts", ())
        values: dict[Any, Entries] = {}
        values.update(zip(jaxpr.constvars, map(Entries.shared, consts), strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def read(var: Any) -> Entries:
            if isinstance(var, Literal):
                return Entries.shared(np.asarray(var.val, var.aval.dtype))  # type: ignore[attr-defined]
            return values[var]

        for eqn in needed_equations(jaxpr):
            inputs, avals = [read(var) for var in eqn.invars], [var.aval for var in eqn.outvars]
            if rare and eqn.primitive.name == "cond":
                results = self._cond(eqn, inputs, rare=True)
            else:
                results = self._equation(eqn, inputs, avals)
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _any_lane(self, flag: Entry) -> Entry:
        """bool[]: is the flag set in any lane?"""
        if not is_vector(flag):
            return flag
        return jnp.any(flag) if self.in_place else jnp.max(flag.astype(jnp.int32)) > 0  # as Pallas lowers it for GPUs

    def _rarely(self) -> "_Evaluation":
        """The evaluation of a rare branch."""
        evaluation = copy(self)
        evaluation.written_out = _WRITTEN_OUT if self.in_place else _WRITTEN_OUT_RARELY
        return evaluation

    def _equation(self, eqn: Any, operands: list[Entries], avals: list[Any]) -> list[Entries]:
        name = eqn.primitive.name
        if name in CALLS:
            rare = eqn.params.get("name") == RARELY
            evaluation = self._rarely() if rare else self
            return evaluation.of(eqn.params[CALLS[name]], operands, rare)
        if name in IDENTITY:
            return operands
        if name == "cond":
            return self._cond(eqn, operands)
        if name == "while":
            return self._while(eqn, operands)
        if name == "scan":
            return self._scan(eqn, operands)
        if name.startswith("random_"):
            return self._random(eqn, operands, avals)
        rules = [IN_MEMORY] if operands and isinstance(operands[0], OpenEntries) else []
        for known in [*rules, RULES]:
            if name in known and (results := known[name](eqn, operands, avals, self.num_lanes)) is not None:
                return results
        if all(x.known for x in operands):
            made = fold(eqn.primitive, [x.array() for x in operands], eqn.params)
            return [Entries.shared(x) for x in (made if eqn.primitive.multiple_results else [made])]
        return self._whole(eqn, operands)

    def _whole(self, eqn: Any, operands: list[Entries]) -> list[Entries]:
        """What has no rule: on whole arrays [lanes, …], as vmap does it."""
        self._count(eqn.primitive.name)
        arrays = [x.whole(self.num_lanes) for x in operands]

        def of_arrays(*arrays: Any) -> list[Any]:
            results = eqn.primitive.bind(*arrays, **eqn.params)
            return list(results) if eqn.primitive.multiple_results else [results]

        axes = [0 if x.vary else None for x in operands]
        if all(axis is None for axis in axes):
            return [Entries.shared(x) for x in of_arrays(*arrays)]
        return [Entries.of_lanes(x) for x in jax.vmap(of_arrays, in_axes=axes)(*arrays)]

    def _count(self, name: str) -> None:
        if self.whole_arrays is None:
            raise NotEntrywiseError(
                f"every operation must be one that can be evaluated entry by entry; got {name!r}, which cannot"
            )
        self.whole_arrays[name] += 1

    # Conditionals.

    def _cond(self, eqn: Any, operands: list[Entries], rare: bool = False) -> list[Entries]:
        index, branches = operands[0].flat[0], eqn.params["branches"]
        if is_constant(index):
            return self.of(branches[int(index)], operands[1:])
        if not is_vector(index):
            return self._alike(lambda pick: lax.switch(index, pick), [self._branch(b, operands) for b in branches])

        def choose_from(arguments: list[Entries]) -> list[Entries]:
            results = self.of(branches[0], arguments)
            for number, branch in enumerate(branches[1:], 1):
                taken = operate("ge", index, np.asarray(number, index.dtype)[()])
                results = _selected(taken, self.of(branch, arguments), results)
            return results

        def choose() -> list[Entries]:
            return choose_from(operands[1:])

        if not rare:
            return choose()
        anyone = self._any_lane(operate("gt", index, np.zeros((), index.dtype)[()]))
        if any(isinstance(x, KeptEntries) for x in operands):
            taken = operate("gt", index, np.zeros((), index.dtype)[()])
            usual, rare_branch = branches  # a rare branch is taken or not
            return self._with_kept(taken, usual, rare_branch, operands[1:], anyone)
        if self.in_place and (carried := _passed_through(branches[0])) is not None:
            return self._at_most_once(anyone, choose_from, operands[1:], carried)
        usual = self._branch(branches[0], operands)
        return self._alike(lambda pick: lax.cond(anyone, pick[1], pick[0]), [usual, choose])

    def _at_most_once(
        self, anyone: Entry, choose: Callable[[Any], Any], arguments: list[Entries], carried: list[int]
    ) -> list[Entries]:
        """``choose(arguments)`` if ``anyone``, else the arguments numbered ``carried``: a loop that carries these."""

        def once(entries: list[Entries]) -> list[Entries]:
            own = dict(zip(carried, entries, strict=True))
            return choose([own.get(i, argument) for i, argument in enumerate(arguments)])

        form = self._stable(once, [arguments[i] for i in carried])
        state = (jnp.asarray(anyone), form)
        return lax.while_loop(lambda s: s[0], lambda s: (jnp.bool_(False), self._in_form(once(s[1]), form)), state)[1]

    def _with_kept(
        self, taken: Entry, usual: Any, branch: Any, arguments: list[Entries], anyone: Entry
    ) -> list[Entries]:
        """A rare branch with arguments that are kept in memory: it reads and writes them there."""
        kept = {i: x for i, x in enumerate(arguments) if isinstance(x, KeptEntries)}
        carried = _passed_through(usual)
        if carried is None:
            raise TouchedError(next(iter(kept.values())))
        others = [j for j, i in enumerate(carried) if i not in kept]

        def leave() -> list[Entries]:
            return [arguments[carried[j]] for j in others]

        def take(changed: list[Entries]) -> list[Entries]:
            opened = {i: OpenEntries(x, taken) for i, x in kept.items()}
            own = {carried[j]: x for j, x in zip(others, changed, strict=True)} | opened
            results = self.of(branch, [own.get(i, x) for i, x in enumerate(arguments)])
            for j, i in enumerate(carried):
                if i in opened:
                    opened[i].store(results[j])
            return _selected(taken, [results[j] for j in others], changed)

        if self.in_place:
            changed = self._in_arrays(anyone, take, leave(), [x.memory for x in kept.values()])
        else:
            changed = self._alike(lambda pick: lax.cond(anyone, pick[1], pick[0]), [leave, lambda: take(leave())])
        results = dict(zip(others, changed, strict=True))
        return [results[j] if j in results else arguments[i] for j, i in enumerate(carried)]

    def _in_arrays(
        self, anyone: Entry, take: Callable[[Any], Any], entries: list[Entries], memories: list[Any]
    ) -> list[Entries]:
        """``take(entries)`` if ``anyone``, else ``entries``: a loop that carries them and the memories' arrays."""

        def once(arrays: list[Array], entries: list[Entries]) -> tuple[list[Array], list[Entries]]:
            before = [memory.array for memory in memories]
            for memory, array in zip(memories, arrays, strict=True):
                memory.array = array
            results = take(entries)
            after = [memory.array for memory in memories]
            for memory, array in zip(memories, before, strict=True):
                memory.array = array
            return after, results

        arrays = [memory.array for memory in memories]
        form = self._stable(lambda entries: once(arrays, entries)[1], entries)

        def body(state: Any) -> Any:
            after, results = once(state[1], state[2])
            return jnp.bool_(False), after, self._in_form(results, form)

        _, arrays, results = lax.while_loop(lambda state: state[0], body, (jnp.asarray(anyone), arrays, form))
        for memory, array in zip(memories, arrays, strict=True):
            memory.array = array
        return results

    def _branch(self, branch: Any, operands: list[Entries]) -> Callable[[], list[Entries]]:
        return lambda: self.of(branch, operands[1:])

    def _alike(
        self, run: Callable[[list[Callable[[], Any]]], Any], branches: list[Callable[[], list[Entries]]]
    ) -> list[Entries]:
        """Runs branches whose results have one form: an entry that is a vector in one of them is one in all."""
        forms = [jax.eval_shape(branch) for branch in branches]
        form = jax.tree.map(lambda *entries: max(entries, key=lambda x: len(x.shape)), *forms)
        return run([lambda branch=branch: self._in_form(branch(), form) for branch in branches])  # type: ignore[misc]

    # Loops.

    def _in_form(self, entries: Any, form: Any) -> Any:
        """Entries with vectors wherever ``form`` has vectors, and JAX scalars elsewhere."""

        def fitted(entry: Entry, like: Any) -> Any:
            return spread(entry, self.num_lanes) if len(like.shape) else jnp.asarray(entry, entry.dtype)

        return jax.tree.map(fitted, entries, form)

    def _stable(self, body: Callable[[Any], Any], carry: Any) -> Any:
        """The carry in a form that the body keeps: entries are vectors if the body makes them differ."""
        carry = [Entries(x.shape, x.dtype, x.flat) for x in carry]  # no loop carries what is open in memory
        while True:
            carry = self._in_form(carry, carry)
            after = jax.eval_shape(body, carry)
            wider = jax.tree.map(lambda x, y: len(y.shape) > x.ndim, carry, after)
            if not any(jax.tree.leaves(wider)):
                return carry
            carry = jax.tree.map(lambda x, w: spread(x, self.num_lanes) if w else x, carry, wider)

    def _while(self, eqn: Any, operands: list[Entries]) -> list[Entries]:
        of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        cond_consts, body_consts = operands[:of_cond], operands[of_cond : of_cond + of_body]

        def continues(carry: list[Entries]) -> Entry:
            return self.of(eqn.params["cond_jaxpr"], [*cond_consts, *carry])[0].flat[0]

        def body(carry: list[Entries]) -> list[Entries]:
            return self.of(eqn.params["body_jaxpr"], [*body_consts, *carry])

        carry = self._stable(body, operands[of_cond + of_body :])
        if not jax.eval_shape(lambda c: jnp.asarray(continues(c)), carry).shape:
            return lax.while_loop(lambda c: jnp.asarray(continues(c)), lambda c: self._in_form(body(c), carry), carry)

        def some_continue(state: tuple[Entry, list[Entries]]) -> tuple[Entry, list[Entries]]:
            going, carry = state
            carry = _selected(going, body(carry), carry)
            return spread(continues(carry), self.num_lanes), carry

        going = spread(continues(carry), self.num_lanes)
        carry = self._stable(lambda c: some_continue((going, c))[1], carry)
        state = (spread(continues(carry), self.num_lanes), carry)

        def any_continues(state: tuple[Entry, list[Entries]]) -> Entry:
            return self._any_lane(state[0])

        return lax.while_loop(any_continues, lambda s: self._in_form(some_continue(s), state), state)[1]

    def _scan(self, eqn: Any, operands: list[Entries]) -> list[Entries]:
        params, length = eqn.params, eqn.params["length"]
        num_consts, num_carry = scan_sizes(eqn)
        consts, carry = operands[:num_consts], operands[num_consts : num_consts + num_carry]
        sequences = operands[num_consts + num_carry :]

        def body(carry: list[Entries], here: list[Entries]) -> tuple[list[Entries], list[Entries]]:
            results = self.of(params["jaxpr"], [*consts, *carry, *here])
            return results[:num_carry], results[num_carry:]

        if length == 0:
            return [*carry, *(Entries(var.aval.shape, var.aval.dtype, []) for var in eqn.outvars[num_carry:])]
        counts = len(eqn.outvars) == num_carry and all(map(_counts, sequences))
        # A loop around loops stays one: written out, it would take long to compile.
        stays = counts and "while" in primitives(params["jaxpr"])
        if not stays and length * num_operations(params["jaxpr"]) <= self.written_out:
            made: list[Any] = [None] * length
            for i in reversed(range(length)) if params["reverse"] else range(length):
                carry, made[i] = body(carry, [x.take(x.places()[i]) for x in sequences])
            return [*carry, *(_stacked(series, length) for series in zip(*made, strict=True))]
        if counts:
            return self._count_through(body, carry, sequences, length, params["reverse"])
        self._count("scan")  # it reads or makes an array [length, lanes] of every entry
        carry = self._stable(lambda c: body(c, [x.take(x.places()[0]) for x in sequences])[0], carry)

        def step(carry: list[Entries], here: list[Entries]) -> tuple[list[Entries], Any]:
            after, made = body(carry, here)
            return self._in_form(after, carry), self._in_form(made, made)

        inputs = [_in_series(x, self.num_lanes) for x in sequences]
        carry, series = lax.scan(step, carry, inputs, length=length, reverse=params["reverse"])
        rows = zip(*(unstacked(entry) for entry in jax.tree.leaves(series)), strict=True)
        made = [jax.tree.unflatten(jax.tree.structure(series), row) for row in rows]
        return [*carry, *(_stacked(items, length) for items in zip(*made, strict=True))]

    def _count_through(
        self, body: Any, carry: list[Entries], sequences: list[Entries], length: int, reverse: bool
    ) -> list[Entries]:
        """A scan that makes no sequence and whose input sequences count: nothing but the carry is kept."""

        def here(i: Any) -> list[Entries]:
            i = length - 1 - i if reverse else i
            return [
                Entries((), x.dtype, [(x.flat[0] + i * (x.flat[1] - x.flat[0])).astype(x.dtype)]) for x in sequences
            ]

        form = self._stable(lambda c: body(c, here(jnp.int32(0)))[0], carry)
        return lax.fori_loop(0, length, lambda i, c: self._in_form(body(c, here(i))[0], form), form)

    # Random keys.

    def _random(self, eqn: Any, operands: list[Entries], avals: list[Any]) -> list[Entries]:
        """By the functions of the key's implementation, which are code of key data."""
        name, params, x = eqn.primitive.name.removeprefix("random_"), eqn.params, operands[0]
        if name == "wrap":
            return [x.wrapped(avals[0].dtype)]
        if name == "unwrap":
            return [x.words()]
        if name not in ("seed", "bits", "split", "fold_in") or (name == "fold_in" and operands[1].shape != x.shape):
            return self._whole(eqn, operands)
        implementation = key_implementation(avals[0].dtype if name == "seed" else x.dtype)

        def of_one(x: Any, *data: Any) -> Any:
            if name == "bits":
                return implementation.random_bits(x, params["bit_width"], params["shape"])
            if name == "split":
                return implementation.split(x, tuple(params["shape"]))
            return implementation.seed(x) if name == "seed" else implementation.fold_in(x, *data)

        run = entry_by_entry(of_one, self.num_lanes, whole_arrays=self.whole_arrays, in_place=self.in_place)
        results = []
        for i in map(np.asarray, range(len(x.flat))):
            first, *others = [y.take(i) for y in operands]
            results.append(run(first.words() if is_key(x.dtype) else first, *others))
        flat = [entry for result in results for entry in result.flat]
        if name == "bits":
            return [Entries(avals[0].shape, avals[0].dtype, flat)]
        words = Entries((*avals[0].shape, len(flat) // max(int(np.prod(avals[0].shape)), 1)), np.dtype(np.uint32), flat)
        return [words.wrapped(avals[0].dtype)]


def _passed_through(branch: Any) -> list[int] | None:
    """The numbers of the arguments that a branch returns as its results; None if it does anything else."""
    jaxpr = opened(branch)
    numbers = {var: i for i, var in enumerate(jaxpr.invars)}
    found = [numbers.get(var) if not isinstance(var, Literal) else None for var in jaxpr.outvars]
    return None if None in found or len(set(found)) < len(found) else found  # type: ignore[return-value]


def num_operations(closed: Any) -> int:
    """About as many operations on vectors as an evaluation makes."""
    total = 0
    for eqn in opened(closed).eqns:
        name, params = eqn.primitive.name, eqn.params
        made, given = _size(eqn.outvars), _size(eqn.invars[:1])
        if name in CALLS:
            total += num_operations(params[CALLS[name]])
        elif name == "cond":
            total += sum(map(num_operations, params["branches"]))
        elif name == "while":
            total += num_operations(params["cond_jaxpr"]) + num_operations(params["body_jaxpr"])
        elif name == "scan":
            each = num_operations(params["jaxpr"])
            total += params["length"] * each if params["length"] * each <= _WRITTEN_OUT else each
        elif name == "random_bits":
            total += _OF_A_WORD * made
        elif name == "sort":
            total += 2 * made * eqn.invars[0].aval.shape[params["dimension"]]
        elif name in ("gather", "dynamic_slice"):
            total += made * min(given, _READ)
        elif name.startswith("scatter") or name == "dynamic_update_slice":
            total += min(given, _READ) * _size(eqn.invars[-1:])
        elif name in RULES:
            total += made if RULES[name] is elementwise else given if name.startswith(("reduce", "arg", "cum")) else 0
    return total


def _size(variables: Any) -> int:
    return sum(math.prod(var.aval.shape) for var in variables)


def _selected(flag: Entry, yes: list[Entries], no: list[Entries]) -> list[Entries]:
    return [
        Entries(y.shape, y.dtype, [select(flag, *pair) for pair in zip(y.flat, n.flat, strict=True)])
        for y, n in zip(yes, no, strict=True)
    ]


def _stacked(series: Any, length: int) -> Entries:
    first = series[0]
    return Entries((length, *first.shape), first.dtype, [entry for x in series for entry in x.flat])


def _counts(x: Entries) -> bool:
    """Is it a known sequence of integers in equal steps?"""
    if len(x.shape) != 1 or len(x.flat) < 2 or not x.known or not np.issubdtype(x.dtype, np.integer):
        return False
    return bool((np.diff(x.array().astype(np.int64), 2) == 0).all())


def _in_series(x: Entries, num_lanes: int) -> Entries:
    """Of a sequence [length, …]: entries that are sequences, for a scan to go through."""
    rows = [x.take(places).flat for places in x.places()]
    columns = zip(*rows, strict=True)
    flat = [jax.tree.map(lambda *entries: _series(entries, num_lanes), *column) for column in columns]
    return Entries(x.shape[1:], x.dtype, flat)


def _series(entries: tuple[Entry, ...], num_lanes: int) -> Any:
    vary = any(map(is_vector, entries))
    return jnp.stack([spread(e, num_lanes) if vary else jnp.asarray(e, e.dtype) for e in entries])
