"""Kernels for TPUs, by Pallas' Mosaic backend: every entry of a block of lanes is one vector register of 8 × 128.

Mosaic (JAX 0.10) fails on some code that XLA and Triton take; ``for_mosaic`` writes the same in a way that it compiles:

- booleans that a loop carries or a branch returns: as integers;
- the selection of booleans: by logical operations;
- vectors of equal entries that a loop carries or a branch returns, for which it chooses a layout that other values do
  not have: with zeros from memory added to them, of which it does not know that they are zeros.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu
from jax.extend.core import Literal

from jaxrank.core.types import Array
from jaxrank.engine.entries import Entries, Write
from jaxrank.engine.jaxprs import CALLS, opened, scan_sizes
from jaxrank.engine.kernel import Rows

_BLOCK = (8, 128)  # a vector register


class TpuBlocks:
    """What a kernel is made of on a TPU."""

    shape = _BLOCK

    def __init__(self) -> None:
        self.scratch = [tpu.VMEM(_BLOCK, jnp.int32)]
        self.compiler_params = tpu.CompilerParams(dimension_semantics=("parallel",))

    def words(self, leaves: Sequence[Any]) -> "RowWords":
        return RowWords(leaves)

    def scalars(self, shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec(memory_space=tpu.SMEM)

    def begin_with(self, given: Any, result: Any) -> None:
        result[...] = given[...]  # a program has each in a memory of its own

    def compilable(self, function: Callable[[Any], Any], scratch: Sequence[Any]) -> Callable[[Any], Any]:
        scratch[0][...] = jnp.zeros(_BLOCK, jnp.int32)
        return for_mosaic(function, lambda: scratch[0][...])


class RowWords:
    """Some arrays of the lanes, each as rows of vectors, one for every entry."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.leaves = [Rows(leaf.shape[1:], leaf.dtype, _BLOCK) for leaf in leaves]

    @property
    def specs(self) -> list[pl.BlockSpec]:
        return [rows.spec for rows in self.leaves if rows.size]

    def shapes(self, padded: int) -> list[jax.ShapeDtypeStruct]:
        return [rows.stored_shape(padded) for rows in self.leaves if rows.size]

    def pack(self, leaves: Sequence[Array], padded: int) -> list[Array]:
        return [rows.rows(leaf, padded) for rows, leaf in zip(self.leaves, leaves, strict=True) if rows.size]

    def unpack(self, arrays: Sequence[Array], num_lanes: int) -> list[Array]:
        given = iter(arrays)
        return [
            rows.array(next(given), num_lanes) if rows.size else jnp.zeros((num_lanes, *rows.shape), rows.dtype)
            for rows in self.leaves
        ]

    def load(self, refs: Sequence[Any]) -> list[Entries]:
        given = iter(refs)
        return [
            _loaded(rows, next(given)) if rows.size else Entries(rows.shape, rows.dtype, []) for rows in self.leaves
        ]

    def store(self, refs: Sequence[Any], leaves: Sequence[Entries]) -> None:
        filled = [entries for entries in leaves if entries.flat]
        for ref, entries in zip(refs, filled, strict=True):
            for i, entry in enumerate(entries.vectors(_BLOCK).flat):
                ref[i] = entry.astype(ref.dtype)

    def read(self, refs: Sequence[Any], place: Array) -> Array:
        (rows,), (ref,) = self.leaves, refs
        found = ref[0]
        for i in range(1, rows.size):
            found = jnp.where(place == i, ref[i], found)
        return found.astype(rows.dtype)

    def write(self, refs: Sequence[Any], writes: list[Write]) -> None:
        (rows,), (ref,) = self.leaves, refs
        for i in range(rows.size):
            row = ref[i]
            for place, value, where in writes:
                row = jnp.where((place == i) & where, value.astype(ref.dtype), row)
            ref[i] = row


def _loaded(rows: Rows, ref: Any) -> Entries:
    return Entries(rows.shape, rows.dtype, [ref[i].astype(rows.dtype) for i in range(rows.size)])


def for_mosaic(function: Callable[[Any], Any], zeros: Callable[[], Array]) -> Callable[[Any], Any]:
    """A function of a pytree of vectors, written in a way that Mosaic compiles; ``zeros`` loads a vector of zeros."""

    def run(argument: Any) -> Any:
        code, result = jax.make_jaxpr(function, return_shape=True)(argument)
        results = _Rewriting(zeros).of(code, jax.tree.leaves(argument))
        return jax.tree.unflatten(jax.tree.structure(result), results)

    return run


class _Rewriting:
    """Evaluates jaxprs."""

    def __init__(self, zeros: Callable[[], Array]) -> None:
        self.zeros = zeros

    def of(self, closed: Any, operands: Sequence[Any]) -> list[Any]:
        jaxpr, consts = opened(closed), getattr(closed, "consts", ())
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def read(var: Any) -> Any:
            return var.val if isinstance(var, Literal) else values[var]

        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [read(var) for var in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[Any]) -> Sequence[Any]:
        name, params = eqn.primitive.name, eqn.params
        if name in CALLS:
            return self.of(params[CALLS[name]], operands)
        if name == "cond":
            branches = params["branches"]
            results = lax.switch(operands[0], [partial(self._returned, branch, operands[1:]) for branch in branches])
            return _restored(results, branches[0])
        if name == "while":
            return self._while(params, operands)
        if name == "scan":  # a fori_loop of known length
            num_consts, num_carry = scan_sizes(eqn)
            assert num_consts + num_carry == len(operands) and num_carry == len(eqn.outvars)
            consts, first = operands[:num_consts], self._first(operands[num_consts:])
            body = params["jaxpr"]
            carry = lax.fori_loop(
                0, params["length"], lambda _, c: self._returned(body, [*consts, *_restored(c, body)]), first
            )
            return _restored(carry, body)
        if name == "select_n" and operands[1].dtype == jnp.bool_ and len(operands) == 3:
            flag, no, yes = operands
            return [(flag & yes) | (~flag & no)]
        results = eqn.primitive.bind(*operands, **params)
        return results if eqn.primitive.multiple_results else [results]

    def _while(self, params: dict[str, Any], operands: list[Any]) -> list[Any]:
        of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts = operands[:of_cond], operands[of_cond : of_cond + of_body]
        cond, body = params["cond_jaxpr"], params["body_jaxpr"]
        carry = lax.while_loop(
            lambda c: self.of(cond, [*cond_consts, *_restored(c, body)])[0],
            lambda c: self._returned(body, [*body_consts, *_restored(c, body)]),
            self._first(operands[of_cond + of_body :]),
        )
        return _restored(carry, body)

    def _first(self, values: list[Any]) -> list[Any]:
        """What a loop starts with."""
        return [self._carried(x, equal=jnp.ndim(x) > 0) for x in values]

    def _returned(self, closed: Any, operands: Sequence[Any]) -> list[Any]:
        """The results of a loop's body or of a branch."""
        results = zip(self.of(closed, operands), _are_equal(closed), strict=True)
        return [self._carried(x, equal) for x, equal in results]

    def _carried(self, x: Any, equal: bool) -> Any:
        x = x.astype(jnp.int32) if jnp.ndim(x) and x.dtype == jnp.bool_ else x
        return x + self.zeros().astype(x.dtype) if equal else x


def _restored(values: Sequence[Any], closed: Any) -> list[Any]:
    """What a loop carries or a branch returns, as its code has it."""
    kinds = [var.aval.dtype for var in opened(closed).outvars]
    return [x != 0 if jnp.ndim(x) and kind == jnp.bool_ else x for x, kind in zip(values, kinds, strict=True)]


def _are_equal(closed: Any) -> list[bool]:
    """For each result of a jaxpr: is it a vector of one scalar?"""
    jaxpr = opened(closed)
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}

    def of(var: Any) -> bool:
        if isinstance(var, Literal) or var not in makers or not var.aval.shape:
            return bool(var.aval.shape) and isinstance(var, Literal)
        maker = makers[var]
        return maker.primitive.name == "broadcast_in_dim" and not maker.invars[0].aval.shape

    return [of(var) for var in jaxpr.outvars]
