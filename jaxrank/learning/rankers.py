"""Rankers: functions that score documents by their features. Any ``Ranker(init, apply)`` will do."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.checks import integer
from jaxrank.core.types import Array, Key

Params = Any  # a pytree of arrays


class Ranker(NamedTuple):
    """A pair of pure functions. It is a static field of policies, so keep one object: a new one is compiled again."""

    init: Callable[[Key, int], Params]  # key, number of features d -> parameters
    apply: Callable[[Params, Array], Array]  # parameters, features [..., d] -> scores [...]


def _linear_init(key: Key, num_features: int) -> Array:
    return jnp.zeros(num_features)


def _linear_apply(params: Array, features: Array) -> Array:
    return features @ params


linear = Ranker(_linear_init, _linear_apply)  # scores xᵀθ, θ = 0 at first, as in the papers


@cache
def mlp(*hidden: int) -> Ranker:
    """A multi-layer perceptron with ``hidden`` units in each layer and tanh between layers, e.g. ``mlp(64)``."""
    if not hidden:
        raise ValueError("hidden must have the units of at least one layer; got none")
    return Ranker(partial(_mlp_init, tuple(integer("hidden", units) for units in hidden)), _mlp_apply)


def _mlp_init(hidden: tuple[int, ...], key: Key, num_features: int) -> Params:
    sizes = (num_features, *hidden, 1)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"weight": jax.random.normal(k, (m, n)) / jnp.sqrt(m), "bias": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def _mlp_apply(params: Params, features: Array) -> Array:
    x = features
    for number, layer in enumerate(params):
        x = x @ layer["weight"]
        x = x + jnp.broadcast_to(layer["bias"], x.shape)
        x = jnp.tanh(x) if number < len(params) - 1 else x
    return x[..., 0]
