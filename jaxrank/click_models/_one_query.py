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

from jaxrank.core.checks import integer
from jaxrank.core.pytrees import array, derived, num_instances, pytree, static
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
        num_items = _num_items(given["self"], name)
        for ranking in ("ranking", "better", "worse"):
            if ranking in given:
                given[ranking] = _ranking(ranking, given[ranking], num_items, soft=name in _TAKES_SOFT)
        if "list_size" in given:
            given["list_size"] = integer("list_size", given["list_size"], 1, num_items, " items")
        if given.get("top") is not None:
            given["top"] = integer("top", given["top"])
        return method(*bound.args, **bound.kwargs)

    return checked


def _num_items(model: Any, method: str) -> int:
    """The number of items of ``model``, which must hold one query."""
    queries = num_instances(model)
    if queries is not None:
        raise ValueError(
            f"{type(model).__name__}.{method} is that of one query, and this model holds {queries}: take one (model[0])"
            f", map over all (jr.over_instances(lambda one: one.{method}(…), model)), or put them into a jr.ClickBandit"
        )
    return model.attraction.shape[-1]


def _ranking(name: str, ranking: Any, num_items: int, soft: bool) -> Array:
    """``ranking`` as an array: items int[K] or, if that is allowed, weights of items float[K, L]."""
    ranking = ranking if isinstance(ranking, jax.Array) else jnp.asarray(ranking)
    if jnp.issubdtype(ranking.dtype, jnp.integer) and ranking.ndim == 1:
        if not isinstance(ranking, jax.core.Tracer):
            items = np.asarray(ranking)
            outside = items[(items < 0) | (items >= num_items)]
            if outside.size:
                raise ValueError(f"{name} must hold items from 0 to {num_items - 1}; got {outside[0]}")
        return ranking
    weights = jnp.issubdtype(ranking.dtype, jnp.floating) and ranking.ndim == 2 and ranking.shape[1] == num_items
    if not (soft and weights):
        allowed = f"items int[K]{f' or weights float[K, {num_items}]' if soft else ''}"
        raise ValueError(f"{name} must be {allowed}; got {ranking.dtype}{list(ranking.shape)}")
    return ranking
