"""How a step of one lane becomes fast code over many lanes on a CPU.

A policy is plain one-lane code; what XLA:CPU needs to run it well over lanes is decided here. ``ForCpu`` traces the
code to a jaxpr and evaluates it again, so that under vmap

- operations along short axes are arithmetic: reductions, sorts, loops and writes at computed places are written out
  entry by entry, in the order of the entries. XLA fuses arithmetic and runs it as vector code over lanes;
- what is stored has the lanes next to each other in memory (``lanes_minor``);
- a value is stored if it is read more than once and costs more to compute again than to load. XLA:CPU would otherwise
  compute it again in every fusion that reads it;
- what depends on the policy's and the environment's parameters alone is computed once for many steps.

Integers are exactly, and floats to rounding, those of plain vmap. Code with matrix products stays as it is.

``as_one_kernel`` compiles a loop of such steps into one function. XLA:CPU otherwise calls every fusion of a step
through its runtime, which pays only with many lanes in each call. In one function a few vectors of lanes are enough,
and these stay in the fastest cache from one fusion to the next. A rare branch, in which lanes scatter their results,
cannot be in such a function. If a step ends with one, the loop of the function ends at every step in which some lane
takes the branch (``ForCpu.common``), which comes behind it (``ForCpu.rare_branch``).
"""

import itertools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Literal
from jax.lax import GatherScatterMode

from jaxrank.core.batching import RARELY, lanes_minor
from jaxrank.core.types import Array
from jaxrank.engine.jaxprs import CALLS, needed_equations, opened, primitives, scan_sizes

_SHORT = 32  # entries of an axis, and rounds of a loop, that are written out
_WRITTEN_OUT = 2048  # equations that a loop may become
_SELECTS = 8192  # entries to select for a write at computed places
_WORTH = 3  # what computing a value again must cost, in operations, for storing it to be faster
_COST = {  # of an operation, where it is not 1
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tanh", "pow", "erf_inv"), 10),
    **dict.fromkeys(("random_bits", "threefry2x32"), 12),
    **dict.fromkeys(("div", "sqrt", "rem", "concatenate"), 4),
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "slice", "transpose", "iota", "copy", "rev"), 0),
    **dict.fromkeys(("random_wrap", "random_unwrap", "convert_element_type"), 0),
}
_FOLDS = {
    "reduce_sum": lax.add,
    "reduce_prod": lax.mul,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_and": lax.bitwise_and,
    "reduce_or": lax.bitwise_or,
}
_EMPTY = {"reduce_sum": 0, "reduce_prod": 1, "reduce_and": True, "reduce_or": False}  # of nothing
_SCANS = {"cumsum": lax.add, "cumprod": lax.mul, "cummax": lax.max, "cummin": lax.min}
_WRITES = {"scatter": lambda old, new: new, "scatter-add": lax.add, "scatter_add": lax.add}
_CONTROL = frozenset({"scan", "while", "cond", "custom_vmap_call"})
_READ_STORED = frozenset({"argmax", "argmin", "gather", "sort", *_FOLDS, *_SCANS})  # what is left of them
# XLA:CPU cannot compile these into one function, or only as code that is not vectorised over lanes.
_NOT_IN_A_KERNEL = frozenset(
    {*_READ_STORED, "top_k", "approx_top_k", "fft", "conv_general_dilated", "dot_general", "ragged_dot_general"}
    | {"cholesky", "triangular_solve", "lu", "qr", "eigh", "eig", "svd", "schur", "tridiagonal", "householder_product"}
    | {"custom_call", "ffi_call", "pure_callback", "io_callback", "debug_callback", "rng_bit_generator"}
)


class ForCpu:
    """A step of one lane, to be mapped over lanes on a CPU: a function of the lane, ``fixed(lane)``, and the rest.

    What depends on the first leaves of the lane alone, ``num_constant`` in number, is the same in all steps. ``fixed``
    computes it once for many of them.
    """

    def __init__(self, function: Callable[..., Any], num_constant: int) -> None:
        self.function, self.num_constant = function, num_constant

    def fixed(self, lane: Any, *rest: Any) -> list[Any]:
        """What does not change from step to step; of ``rest`` only shapes and types matter."""
        code, args = self._code(lane, *rest)
        return [] if code is None else _Stored().of(_split(code, self.num_constant)[0], args)

    def __call__(self, lane: Any, fixed: list[Any], *rest: Any) -> Any:
        code, args = self._code(lane, *rest)
        if code is None:
            return self.function(lane, *rest)
        results = _Stored().of(_split(code, self.num_constant)[1], [*args, *fixed])
        return jax.tree.unflatten(code.structure, results)

    def common(self, lane: Any, fixed: list[Any], *rest: Any) -> tuple[Any, list[Any]]:
        """A step as if no lane took its rare branch, and what the branch reads, first of all whether it is taken."""
        code, args = self._code(lane, *rest)
        code = _split(code, self.num_constant)[1]
        rare = _last_rarely(code)
        unchanged = dict(zip(rare.outvars, rare.invars[1:], strict=False))
        kept = [var if isinstance(var, Literal) else unchanged.get(var, var) for var in code.outvars]
        read = [rare.invars[0], *rare.invars[1 + len(rare.outvars) :]]
        eqns = [eqn for eqn in code.eqns if eqn is not rare]
        results = _Stored().of(code._replace(outvars=[*kept, *read], eqns=eqns), [*args, *fixed])
        return jax.tree.unflatten(code.structure, results[: len(kept)]), results[len(kept) :]

    def rare_branch(self, *args: Any) -> Callable[[Any, list[Any]], Any] | None:
        """A function of the new state that ``common`` returns and of what the branch reads, of one lane: the new state.

        None if a step does not end with one rare branch, which makes the new state or a part of it.
        """
        code, _ = self._code(*args)
        rare = None if code is None else _last_rarely(code)
        if rare is None:
            return None
        made = code.outvars[: code.structure.children()[0].num_leaves]
        places = [made.index(var) for var in rare.outvars]

        def branch(state: Any, read: list[Any]) -> Any:
            leaves, structure = jax.tree.flatten(state)
            new = rare.primitive.bind(read[0], *(leaves[i] for i in places), *read[1:], **rare.params)
            for i, leaf in zip(places, new, strict=True):
                leaves[i] = leaf
            return jax.tree.unflatten(structure, leaves)

        return branch

    def _code(self, *args: Any) -> tuple[Any, list[Any]]:
        """The code, written out, and its arguments; no code if it has matrix products, and stays as it is."""
        flat, structure = jax.tree.flatten(args)

        def of_flat(*flat: Any) -> Any:
            return self.function(*jax.tree.unflatten(structure, flat))

        jaxpr, result = jax.make_jaxpr(of_flat, return_shape=True)(*flat)
        if "dot_general" in set(primitives(jaxpr)):
            return None, flat
        written = jax.make_jaxpr(lambda *x: _WrittenOut().of(jaxpr, x))(*flat)
        code = opened(written)
        invars, outvars = list(code.invars), list(code.outvars)
        return _Code(code.constvars, written.consts, invars, outvars, code.eqns, jax.tree.structure(result)), flat


def unrolled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with the rounds of its short loops written out.

    For GPUs, where every round of a loop launches kernels for its counter and its sequences, and where XLA leaves some
    loops inside of a loop out of CUDA graphs, so that the host waits in every round.
    """

    def call(*args: Any) -> Any:
        flat, structure = jax.tree.flatten(args)

        def of_flat(*flat: Any) -> Any:
            return function(*jax.tree.unflatten(structure, flat))

        jaxpr, result = jax.make_jaxpr(of_flat, return_shape=True)(*flat)
        return jax.tree.unflatten(jax.tree.structure(result), _Unrolled().of(jaxpr, flat))

    return call


class _Code(NamedTuple):
    """What ``_Evaluation`` needs of a jaxpr."""

    constvars: list[Any]
    consts: list[Any]
    invars: list[Any]
    outvars: list[Any]
    eqns: list[Any]
    structure: Any = None  # of the results


def _split(code: _Code, num_constant: int) -> tuple[_Code, _Code]:
    """The code of what depends on the first arguments alone and is worth keeping, and the code of the rest."""
    constant = {*code.constvars, *code.invars[:num_constant]}
    cost: dict[Any, float] = {}
    made_by: dict[Any, Any] = {}
    for eqn in code.eqns:
        inputs = _variables(eqn.invars)
        if constant.issuperset(inputs) and not eqn.effects and eqn.primitive.name not in _CONTROL:
            constant.update(eqn.outvars)
            again = _COST.get(eqn.primitive.name, 1) + sum(cost.get(var, 0) for var in inputs)
            cost.update(dict.fromkeys(eqn.outvars, again))
            made_by.update(dict.fromkeys(eqn.outvars, eqn))
    kept: list[Any] = []
    computed: set[int] = set()
    wanted = [var for eqn in code.eqns if not set(eqn.outvars) <= constant for var in _variables(eqn.invars)]
    wanted += _variables(code.outvars)
    while wanted:
        var = wanted.pop()
        if var not in made_by or var in kept or id(made_by[var]) in computed:
            continue
        small = var.aval.size <= _SHORT**2  # what all lanes share is kept for each of them
        if small and cost[var] >= _WORTH and not jnp.issubdtype(var.aval.dtype, jax.dtypes.extended):
            kept.append(var)
        else:
            computed.add(id(made_by[var]))
            wanted += _variables(made_by[var].invars)
    rest = [eqn for eqn in code.eqns if id(eqn) in computed or not set(eqn.outvars) <= constant]
    return code._replace(outvars=kept), code._replace(invars=[*code.invars, *kept], eqns=rest)


def _last_rarely(code: _Code) -> Any:
    """The equation of the only rare branch, if all that it makes goes into the new state and nowhere else."""
    rare = [eqn for eqn in code.eqns if _is_rarely(eqn)]
    if len(rare) != 1:
        return None
    made = set(rare[0].outvars)
    state = [var for var in code.outvars[: code.structure.children()[0].num_leaves] if not isinstance(var, Literal)]
    elsewhere = [var for eqn in code.eqns for var in _variables(eqn.invars)]
    elsewhere += _variables(code.outvars[code.structure.children()[0].num_leaves :])
    return rare[0] if made <= set(state) and made.isdisjoint(elsewhere) and len(state) == len(set(state)) else None


def _is_rarely(eqn: Any) -> bool:
    if eqn.primitive.name != "custom_vmap_call":
        return False
    return any(inner.params.get("name") == RARELY for inner in opened(eqn.params["call"]).eqns)


def fits_one_kernel(function: Callable[..., Any], *args: Any) -> bool:
    """Can ``as_one_kernel`` compile it? Not with a rare branch, whose lanes scatter their results."""
    found = set(primitives(jax.make_jaxpr(function)(*args)))
    return not any(name in _NOT_IN_A_KERNEL or name.startswith("scatter") for name in found)


def as_one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a call that XLA:CPU compiles into one function; elsewhere a call like any other."""

    def call(*args: Any) -> Any:
        flat, structure = jax.tree.flatten(args)

        def of_flat(*flat: Any) -> Any:
            return function(*jax.tree.unflatten(structure, flat))

        jaxpr, result = jax.make_jaxpr(jax.jit(of_flat), return_shape=True)(*flat)
        (eqn,) = jaxpr.eqns
        with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
            results = eqn.primitive.bind(*jaxpr.consts, *flat, **eqn.params)
        return jax.tree.unflatten(jax.tree.structure(result), results)

    return call


@custom_vmap
def _stored(x: Array) -> Array:
    """The identity for one lane; under vmap, [lanes, …] stored with the lanes next to each other."""
    return x


@_stored.def_vmap
def _stored_lanes(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    if not in_batched[0]:
        return x, False
    return (lanes_minor(x) if x.ndim > 1 else lax.optimization_barrier(x)), True


class _Evaluation:
    """Evaluates a jaxpr, and what it calls."""

    def of(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        jaxpr, consts = opened(closed), getattr(closed, "consts", ())
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))

        def read(var: Any) -> Any:
            return var.val if isinstance(var, Literal) else values[var]

        equations = needed_equations(jaxpr)
        store = self.to_store(jaxpr, equations)
        for eqn in equations:
            results = self.equation(eqn, [read(var) for var in eqn.invars])
            values.update((var, _stored(x) if var in store else x) for var, x in zip(eqn.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def to_store(self, jaxpr: Any, equations: list[Any]) -> set[Any]:
        return set()

    def carried(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        name, params = eqn.primitive.name, eqn.params
        if name == "scan":
            return self.scan(eqn, args)
        if name == "while":
            return self.loop(eqn, args)
        if name == "cond":
            return lax.switch(args[0], [self.function(branch) for branch in params["branches"]], *args[1:])
        results = eqn.primitive.bind(*args, **params)
        return list(results) if eqn.primitive.multiple_results else [results]

    def function(self, closed: Any) -> Callable[..., Any]:
        return lambda *args: self.of(closed, args)

    def loop(self, eqn: Any, args: list[Any]) -> list[Any]:
        n, m = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        condition, body = self.function(eqn.params["cond_jaxpr"]), self.function(eqn.params["body_jaxpr"])
        return lax.while_loop(
            lambda carry: condition(*args[:n], *carry)[0],
            lambda carry: self.carried(body(*args[n : n + m], *carry)),
            self.carried(args[n + m :]),
        )

    def scan(self, eqn: Any, args: list[Any]) -> list[Any]:
        body, first, sequences = self.parts_of_scan(eqn, args)
        length, reverse = eqn.params["length"], eqn.params["reverse"]
        carry, made = lax.scan(body, self.carried(first), sequences, length=length, reverse=reverse)
        return [*carry, *made]

    def parts_of_scan(self, eqn: Any, args: list[Any]) -> tuple[Callable[..., Any], list[Any], list[Any]]:
        """The body, what it carries at first, and the sequences that it reads."""
        num_consts, num_carry = scan_sizes(eqn)

        def body(carry: Sequence[Any], here: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            results = self.of(eqn.params["jaxpr"], [*args[:num_consts], *carry, *here])
            return self.carried(results[:num_carry]), results[num_carry:]

        return body, args[num_consts : num_consts + num_carry], args[num_consts + num_carry :]


class _Unrolled(_Evaluation):
    """Writes out the rounds of short loops of known length, and puts the equations of calls in their place."""

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if name in CALLS and name != "custom_vmap_call":
            return self.of(eqn.params[CALLS[name]], args)
        return super().equation(eqn, args)

    def scan(self, eqn: Any, args: list[Any]) -> list[Any]:
        length = eqn.params["length"]
        if not 0 < length <= _SHORT or length * len(list(primitives(eqn.params["jaxpr"]))) > _WRITTEN_OUT:
            return super().scan(eqn, args)
        body, carry, sequences = self.parts_of_scan(eqn, args)
        made: list[Any] = [None] * length
        for i in reversed(range(length)) if eqn.params["reverse"] else range(length):
            carry, made[i] = body(carry, [x[i] for x in sequences])
        return [*carry, *(jnp.stack(rows) for rows in zip(*made, strict=True))]


class _WrittenOut(_Unrolled):
    """Also writes out what goes along short axes."""

    def __init__(self) -> None:
        self.stacks: dict[int, tuple[Array, list[Array]]] = {}  # by identity: an array, and what it was stacked from

    def stacked(self, rows: list[Array]) -> Array:
        made = jnp.stack(rows)
        self.stacks[id(made)] = (made, rows)
        return made

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        name, params = eqn.primitive.name, eqn.params
        shape: tuple[int, ...] = eqn.invars[0].aval.shape if eqn.invars else ()
        if name in _EMPTY and not all(shape[axis] for axis in params["axes"]):
            aval = eqn.outvars[0].aval
            return [jnp.full(aval.shape, _EMPTY[name], aval.dtype)]
        if name in _FOLDS and all(shape[axis] for axis in params["axes"]):
            for axis in sorted(params["axes"], reverse=True):
                args[0] = _folded(eqn, args[0], axis)
            return args
        if name in _SCANS and 0 < shape[params["axis"]] <= _SHORT:
            order = -1 if params["reverse"] else 1
            made = list(itertools.accumulate(_rows(args[0], params["axis"])[::order], _SCANS[name]))
            return [jnp.stack(made[::order], params["axis"])]
        if name == "sort" and len(args) == 1 and len(shape) == 1 and shape[0] <= _SHORT:
            return [self.stacked(_sorted(_rows(args[0], 0)))]
        if name in ("rev", "slice", "squeeze") and id(args[0]) in self.stacks:
            stack = self.stacks[id(args[0])][1]
            if name == "rev" and params["dimensions"] == (0,):
                return [self.stacked(stack[::-1])]
            if name == "slice" and eqn.outvars[0].aval.shape[1:] == shape[1:] and params["strides"] is None:
                return [self.stacked(stack[params["start_indices"][0] : params["limit_indices"][0]])]
            if name == "squeeze" and params["dimensions"] == (0,):
                return stack
        if name in _WRITES and (result := _written(eqn, *args)) is not None:
            return [result]
        return super().equation(eqn, args)


class _Stored(_Evaluation):
    """Stores what loops carry, and what is read often and costs much to compute again."""

    def carried(self, values: Sequence[Any]) -> list[Any]:
        return [_stored(x) if jnp.ndim(x) else x for x in values]

    def to_store(self, jaxpr: Any, equations: list[Any]) -> set[Any]:
        reads: dict[Any, float] = {}  # of an entry, on average
        stored_for: set[Any] = set()
        for eqn in equations:
            for var in _variables(eqn.invars):
                repeats = (
                    eqn.outvars[0].aval.size / max(var.aval.size, 1) if eqn.primitive.name == "broadcast_in_dim" else 1
                )
                reads[var] = reads.get(var, 0) + repeats
                if eqn.primitive.name in _READ_STORED:
                    stored_for.add(var)
        for var in _variables(jaxpr.outvars):
            reads[var] = reads.get(var, 0) + 1
        cost: dict[Any, float] = {}  # of what is not stored, from what is
        store = set()
        for eqn in equations:
            if eqn.primitive.name in _CONTROL:
                continue
            again = _COST.get(eqn.primitive.name, 1) + sum(cost.get(var, 0) for var in _variables(eqn.invars))
            for var in eqn.outvars:
                worth = again * (reads.get(var, 0) - 1) > _WORTH or (var in stored_for and again and var.aval.shape)
                if worth and not jnp.issubdtype(var.aval.dtype, jax.dtypes.extended):
                    store.add(var)
                else:
                    cost[var] = again
        return store


def _variables(atoms: Sequence[Any]) -> list[Any]:
    """The variables among them, each once, in their order: what is kept must have the same order in every tracing."""
    return list(dict.fromkeys(var for var in atoms if not isinstance(var, Literal)))


def _rows(x: Array, axis: int) -> list[Array]:
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]


def _folded(eqn: Any, x: Array, axis: int) -> Array:
    """A reduction over one axis; over a long one in pieces, as XLA does not vectorise longer ones over lanes."""
    operate = _FOLDS[eqn.primitive.name]
    if x.shape[axis] <= _SHORT:
        return reduce(operate, _rows(x, axis))
    pieces = [
        lax.slice_in_dim(x, i, min(i + _SHORT, x.shape[axis]), axis=axis) for i in range(0, x.shape[axis], _SHORT)
    ]
    return reduce(operate, [eqn.primitive.bind(piece, **{**eqn.params, "axes": (axis,)}) for piece in pieces])


def _sorted(x: list[Array]) -> list[Array]:
    """In ascending order, by Batcher's odd-even merge network (Knuth, TAOCP vol. 3, Sec. 5.2.2, Algorithm M)."""
    p = top = 1 << (len(x) - 1).bit_length() >> 1
    while p > 0:
        q, r, d = top, 0, p
        while True:
            for i in range(len(x) - d):
                if i & p == r:
                    x[i], x[i + d] = lax.min(x[i], x[i + d]), lax.max(x[i], x[i + d])
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return x


def _written(eqn: Any, x: Array, indices: Array, updates: Array) -> Array | None:
    """A write of whole rows or of single entries, by selects; None if it is of another kind, or of too many entries."""
    numbers, mode = eqn.params["dimension_numbers"], GatherScatterMode.from_any(eqn.params["mode"])
    places = numbers.scatter_dims_to_operand_dims
    window = [d for d in range(x.ndim) if d not in places]
    over = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
    if tuple(sorted(places)) != numbers.inserted_window_dims or numbers.operand_batching_dims:
        return None
    if any(updates.shape[a] != x.shape[d] for a, d in zip(numbers.update_window_dims, window, strict=True)):
        return None
    indices = indices.reshape(-1, len(places))
    rows = lax.transpose(updates, (*over, *numbers.update_window_dims)).reshape(-1, *(x.shape[d] for d in window))
    if indices.shape[0] * x.size > _SELECTS:
        return None
    for index, row in zip(indices, rows, strict=True):
        here = jnp.ones((1,) * x.ndim, bool)
        for number, d in enumerate(places):
            at = jnp.clip(index[number], 0, x.shape[d] - 1) if mode == GatherScatterMode.CLIP else index[number]
            here &= lax.broadcasted_iota(indices.dtype, [n if e == d else 1 for e, n in enumerate(x.shape)], d) == at
        x = jnp.where(here, _WRITES[eqn.primitive.name](x, jnp.expand_dims(row, places)), x)
    return x
