"""What the click models have in common: their methods are those of one query, and take lists of its items.

A click model with a query axis holds many queries. Its methods would mix queries with items, and an index beyond the
last item would be clipped, both without a word. So the methods check their arguments before anything is computed. Under
``jit`` and ``vmap`` these checks cost nothing; values that are not known while tracing are not checked.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import integer, rectangular
from jaxrank.core.pytrees import array, derived, num_instances, pytree, static, take_instances
from jaxrank.core.types import Array

T = TypeVar("T")

_TAKES_SOFT = ("click_probability", "examination_probability", "reward")
_METHODS = ("sample", *_TAKES_SOFT, "reward_gap", "optimal_ranking", "log_likelihood")


@dataclass_transform(frozen_default=True, eq_default=True, field_specifiers=(array, static, derived))
def click_model(cls: type[T]) -> type[T]:
    """Makes ``cls`` a pytree whose methods refuse a query axis, and rankings that are not of its items."""
    made = pytree(cls)
    for name in _METHODS:
        setattr(made, name, _checked(getattr(made, name), name))
    return made


def _checked(method: Callable[..., Array], name: str) -> Callable[..., Array]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(*args: Any, **options: Any) -> Array:
        bound = signature.bind(*args, **options)
        given = bound.arguments
        given["self"] = _without_axis(given["self"], name)
        num_items = given["self"].attraction.shape[-1]
        for ranking in ("ranking", "better", "worse"):
            if ranking in given:
                given[ranking] = _ranking(ranking, given[ranking], num_items, soft=name in _TAKES_SOFT)
        if "clicks" in given:
            shown = given["ranking"].shape[:1]
            clicks = given["clicks"] = _array("clicks", given["clicks"], "bool[K]")
            if clicks.shape != shown:
                raise ValueError(f"clicks must be one for each of the {shown[0]} items shown; got {list(clicks.shape)}")
            if not isinstance(clicks, jax.core.Tracer):
                host = np.asarray(clicks)
                other = host[(host != 0) & (host != 1)]
                if other.size:
                    raise ValueError(f"clicks must be 0 or 1 at every position; got {other[0]}")
        if "list_size" in given:
            given["list_size"] = integer("list_size", given["list_size"], 1, num_items, " items")
        if given.get("top") is not None:
            given["top"] = integer("top", given["top"])
        return method(*bound.args, **bound.kwargs)

    return checked


def _without_axis(model: Any, method: str) -> Any:
    """``model``, which must hold one query, without a query axis."""
    queries = num_instances(model)
    if queries == 1:
        return take_instances(model, 0)
    if queries is not None:
        raise ValueError(
            f"{type(model).__name__}.{method} is that of one query, and this model holds {queries}: take one (model[0])"
            f", map over all (jr.over_instances(lambda one: one.{method}(…), model)), or put them into a jr.ClickBandit"
        )
    return model


def _ranking(name: str, ranking: Any, num_items: int, soft: bool) -> Array:
    """``ranking`` as an array: items int[K] or, if that is allowed, weights of items float[K, L]."""
    allowed = f"items int[K]{f' or weights float[K, {num_items}]' if soft else ''}"
    ranking = _array(name, ranking, allowed)
    if jnp.issubdtype(ranking.dtype, jnp.integer) and ranking.ndim == 1:
        if not isinstance(ranking, jax.core.Tracer):
            items = np.asarray(ranking)
            outside = items[(items < 0) | (items >= num_items)]
            if outside.size:
                raise ValueError(f"{name} must hold items from 0 to {num_items - 1}; got {outside[0]}")
            seen, times = np.unique(items, return_counts=True)
            if (times > 1).any():
                raise ValueError(f"{name} must hold each item at most once; got item {seen[times > 1][0]} again")
        return ranking
    weights = jnp.issubdtype(ranking.dtype, jnp.floating) and ranking.ndim == 2 and ranking.shape[1] == num_items
    if not (soft and weights):
        raise ValueError(f"{name} must be {allowed}; got {ranking.dtype}{list(ranking.shape)}")
    return ranking


def _array(name: str, value: Any, allowed: str) -> Array:
    """``value``, an array or lists of numbers, as an array."""
    if isinstance(value, jax.Array):
        return value
    host = rectangular(name, value)
    if host.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be {allowed}; got {value!r:.60}")
    return jnp.asarray(host)
