"""Frozen dataclasses that are pytrees: the common form of click models, policies and environments.

A field is one of

- ``array(ndim)``: a leaf. ``ndim`` is its number of dimensions in ONE lane. A value with one more, leading axis holds
  several instances (queries of an environment, settings of a policy); ``leaf_axes`` says which leaves have this axis.
- ``static()``: a shape or a switch, part of the tree's structure.
- ``derived(ndim)``: a leaf computed from the others when the object is made.
- anything else: a child pytree. A bare number, switch or text, as in ``epsilon: float = 0.1``, is refused when the
  class is made: a leaf that can be swept and a part of the structure look the same there, and the author has to choose.

Values are checked and converted on the host, once, when the user makes an object. Unflattening (what jit, vmap, grad
and pickle do) never runs the checks, so that the leaves may also be gradients or tracers.
"""

import dataclasses
import html
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import Check, choice, finite, integer, rectangular, switch
from jaxrank.core.limits import refuse_beyond

T = TypeVar("T")


def array(ndim: int, dtype: Any = float, check: Check = finite, default: Any = dataclasses.MISSING) -> Any:
    """A leaf of ``ndim`` dimensions in one lane. ``dtype=float`` is JAX's default: float32, or float64 under x64.

    Otherwise ``dtype`` is an integer type, or bool.
    """
    return dataclasses.field(default=default, metadata={"ndim": ndim, "dtype": dtype, "check": check})


def static(
    default: Any = dataclasses.MISSING, *, choices: tuple[str, ...] | None = None, minimum: int | None = None
) -> Any:
    """A shape or a switch: hashable, part of the structure.

    Args:
      default: the value if none is given. If it is a boolean, every value must be one.
      choices: the names that are allowed, for a field that holds a name.
      minimum: the smallest integer allowed, for a field that holds an integer.
    """
    metadata = {"static": True, "choices": choices, "minimum": minimum}
    return dataclasses.field(default=default, metadata=metadata)


def derived(ndim: int, *, init: Literal[False] = False) -> Any:
    """A leaf that ``_derive`` computes when the object is made."""
    return dataclasses.field(init=init, default=None, metadata={"ndim": ndim})


@dataclass_transform(frozen_default=True, eq_default=True, field_specifiers=(array, static, derived))
def pytree(cls: type[T]) -> type[T]:
    """Makes ``cls`` a frozen dataclass and a pytree.

    The class may have two methods: ``_validate(self)`` checks fields against each other; ``_derive(self)``, which is
    compiled, returns a dict of the derived leaves.
    """
    cls.__post_init__ = _post_init  # type: ignore[attr-defined]
    cls.__repr__ = _repr  # type: ignore[method-assign]
    cls._repr_html_ = _repr_html  # type: ignore[attr-defined]
    cls.__eq__ = _eq  # type: ignore[method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    cls.__getitem__ = _getitem  # type: ignore[index]
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    _refuse_bare(cls.__name__, fields)
    data = tuple(f.name for f in fields if not f.metadata.get("static"))
    meta = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in data]
        return children, tuple(getattr(tree, name) for name in meta)

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> T:
        tree = object.__new__(cls)
        tree.__dict__.update(zip(meta, aux, strict=True))
        tree.__dict__.update(zip(data, children, strict=True))
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    return cls


def _refuse_bare(name: str, fields: Iterable[dataclasses.Field[Any]]) -> None:
    """A number, a switch or text must say whether it is a leaf or a part of the structure."""
    for f in fields:
        shown = f.type.__name__ if isinstance(f.type, type) else str(f.type).replace("typing.", "")
        kinds = {part.strip(" ]") for part in shown.replace("Optional[", "").split("|")}
        kinds |= {type(f.default).__name__}
        if f.metadata or not kinds & {"float", "int", "bool", "str"}:
            continue
        default = [] if f.default is dataclasses.MISSING else [f"default={f.default!r}"]
        dtype = ["dtype=jnp.int32"] if "int" in kinds else []
        leaf = f"jr.array({', '.join(['ndim=0', *dtype, *default])}) for a number that can be swept, or "
        raise ValueError(
            f"{name}.{f.name} must say what it is; got a bare {shown}: write {f.name}: {shown} = "
            f"{'' if kinds & {'bool', 'str'} else leaf}jr.static({', '.join(default)}) for a shape or a switch"
        )


def leaf_axes(tree: Any) -> list[int | None]:
    """For every leaf, in the order of ``jax.tree.leaves``: 0 if it has an instance axis, None if it is shared."""
    if not dataclasses.is_dataclass(tree) or isinstance(tree, type):
        return [None] * len(jax.tree.leaves(tree))
    axes: list[int | None] = []
    for f in dataclasses.fields(tree):
        value = getattr(tree, f.name)
        if f.metadata.get("static") or value is None:
            continue
        if "ndim" in f.metadata:
            axes.append(0 if jnp.ndim(value) == f.metadata["ndim"] + 1 else None)
        else:
            axes.extend(leaf_axes(value))
    return axes


def take_instances(tree: T, index: Any) -> T:
    """The tree with ``leaf[index]`` of the leaves that have an instance axis.

    A number as ``index`` takes one instance; a slice or an array takes several.
    """
    leaves, structure = jax.tree.flatten(tree)
    axes = leaf_axes(tree)
    taken = [leaf if axis is None else leaf[index] for leaf, axis in zip(leaves, axes, strict=True)]
    return jax.tree.unflatten(structure, taken)


def num_instances(tree: Any) -> int | None:
    """The size of the instance axis; None if no leaf has one."""
    name = type(tree).__name__
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    sizes = {
        f"{name}{jax.tree_util.keystr(path)}": leaf.shape[0]
        for (path, leaf), axis in zip(leaves, leaf_axes(tree), strict=True)
        if axis == 0
    }
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{key} has {size}" for key, size in sizes.items())
        raise ValueError(f"{name}: leading (instance) axes must have one length; {listing}")
    return next(iter(sizes.values()), None)


def over_instances(function: Callable[[Any], Any], tree: Any) -> Any:
    """``function(tree)``, mapped over the instance axis if there is one; ``function`` is written for one instance."""
    leaves, treedef = jax.tree.flatten(tree)
    axes = leaf_axes(tree)
    if num_instances(tree) is None:
        return function(tree)
    return jax.vmap(lambda leaves: function(jax.tree.unflatten(treedef, leaves)), in_axes=(axes,))(leaves)


def _post_init(self: Any) -> None:
    if jax.tree_util.all_leaves([self]):
        raise ValueError(f"{type(self).__name__} must be a pytree, as its base class is: put @jr.pytree above it")
    for f in dataclasses.fields(self):
        value, name = getattr(self, f.name), f"{type(self).__name__}.{f.name}"
        if value is None and f.default is None:
            continue
        if "check" in f.metadata:
            object.__setattr__(self, f.name, _checked_array(name, value, f.metadata))
        elif f.metadata.get("static"):
            object.__setattr__(self, f.name, _checked_static(name, value, f))
        elif isinstance(value, type):
            raise ValueError(f"{name} must be an instance; got the class {value.__name__}: write {value.__name__}(…)")
    num_instances(self)
    if hasattr(self, "_validate"):
        self._validate()
    if hasattr(self, "_derive"):
        for name, value in _compiled_derive(type(self))(self).items():  # type: ignore[arg-type]
            object.__setattr__(self, name, value)


@cache
def _compiled_derive(cls: Any) -> Callable[[Any], dict[str, Any]]:
    """``_derive`` as one program, which JAX can cache between processes. Run eagerly, it would be about a hundred."""
    return jax.jit(cls._derive)


def _checked_array(name: str, value: Any, metadata: Any) -> Any:
    ndim, dtype, check = metadata["ndim"], metadata["dtype"], metadata["check"]
    if isinstance(value, jax.core.Tracer):
        return value
    host = rectangular(name, value)
    allowed_kinds, kind = {float: ("iuf", "real numbers"), bool: ("b", "booleans")}.get(dtype, ("iu", "integers"))
    if kind == "integers" and host.dtype.kind == "f" and (host == np.floor(host)).all():  # such as 5e6
        value = host = np.clip(host, -(2.0**62), 2.0**62).astype(np.int64)
    if host.dtype.kind not in allowed_kinds:
        raise ValueError(f"{name} must hold {kind}; got {value!r}")
    if host.ndim not in (ndim, ndim + 1):
        raise ValueError(
            f"{name} must have {ndim} dimensions, or {ndim + 1} with an instance axis; got shape {host.shape}"
        )
    if 0 in host.shape:
        raise ValueError(f"{name} must not be empty; got shape {host.shape}")
    allowed, rule = check(host)
    if not np.all(allowed):
        index = tuple(int(i) for i in np.argwhere(~np.asarray(allowed))[0])
        where = f" at index {index}" if index else ""
        raise ValueError(f"{name} must be {rule}; got {host[index]}{where}")
    if kind == "integers" and (host.max() > np.iinfo(dtype).max or host.min() < np.iinfo(dtype).min):
        raise ValueError(f"{name} must fit {np.dtype(dtype)}; got {host.max()}")
    return jnp.asarray(value, dtype)


def _checked_static(name: str, value: Any, f: dataclasses.Field[Any]) -> Any:
    if f.metadata["choices"] is not None:
        return choice(name, value, f.metadata["choices"])
    if f.metadata["minimum"] is not None:
        size = integer(name, value, f.metadata["minimum"])
        refuse_beyond("JAXRANK_MAX_SIZE", name, size)
        return size
    if isinstance(f.default, bool):
        return switch(name, value)
    if isinstance(value, str) and "str" not in str(f.type):
        kind = f.type.__name__ if isinstance(f.type, type) else "an object"
        raise ValueError(f"{name} must be {kind}, not text; got {value!r:.60}")
    return value


def _repr(self: Any) -> str:
    shown = []
    for f in dataclasses.fields(self):
        value = getattr(self, f.name)
        if f.init and not (f.default is value or (f.metadata.get("static") and f.default == value)):
            shown.append(f"{f.name}={_short(value)}")
    return f"{type(self).__name__}({', '.join(shown)})"


def _repr_html(self: Any) -> str:
    """What a notebook shows: the first line of the docstring, and every field, given or not, with its value."""
    about = (type(self).__doc__ or "").strip().partition("\n")[0]
    rows = []
    for f in dataclasses.fields(self):
        value = getattr(self, f.name)
        if f.init:
            shown = (
                value._repr_html_()
                if hasattr(value, "_repr_html_")
                else f"<code>{html.escape(_short(value)[:200])}</code>"
            )
            rows.append(f'<tr><td style="text-align:left">{f.name}</td><td style="text-align:left">{shown}</td></tr>')
    table = f"<table>{''.join(rows)}</table>" if rows else ""
    return f"<div><b>{type(self).__name__}</b> {html.escape(about)}{table}</div>"


def _short(value: Any) -> str:
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return repr(value)
    if value.ndim == 0:
        return f"{value.item():.7g}"
    if value.size <= 10 and value.ndim == 1:
        return "[" + ", ".join(f"{v:.4g}" for v in value.tolist()) + "]"
    return f"{value.dtype}{list(value.shape)}"


def _getitem(self: T, index: Any) -> T:
    """The instance of this number, or several by a slice or a list of numbers."""
    count = num_instances(self)
    if count is None:
        raise TypeError(f"{type(self).__name__} has no instance axis to index: it holds a single one")
    if isinstance(index, int | np.integer) and not -count <= index < count:
        raise IndexError(f"{type(self).__name__} has {count} instances; got {index}")
    return take_instances(self, index if isinstance(index, slice) else np.asarray(index))


def _eq(self: Any, other: Any) -> bool:
    if type(self) is not type(other):
        return NotImplemented
    (mine, my_tree), (theirs, their_tree) = jax.tree.flatten(self), jax.tree.flatten(other)
    same_structure: bool = my_tree == their_tree  # type: ignore[operator]
    return same_structure and all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def strongly_typed(tree: Any) -> Any:
    """The tree without weak types, which arrays have that are made of Python numbers, and no loop returns."""
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype) if jax.typeof(leaf).weak_type else leaf, tree)
