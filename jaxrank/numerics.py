"""Float arithmetic that has to be careful."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.batching import lane_vector
from jaxrank.types import Array

_SMALLEST = 1e-10  # what probability 0 counts as under a logarithm


def safe_log(probability: Array) -> Array:
    """log p, with p floored at 1e-10 in value and in gradient: finite, and still pointing uphill, at p = 0."""
    floored = jnp.maximum(probability, _SMALLEST)
    return jnp.log(probability + jax.lax.stop_gradient(floored - probability))


def ordered_sum(terms: Array) -> Array:
    """The sum of a short vector from the first term to the last: the same bits on any number of devices."""
    total = terms[0]
    for k in range(1, terms.shape[0]):
        total = total + terms[k]
    return total


def exclusive(cumulative: Array, first: float | int | bool) -> Array:
    """Shifts a cumulative sum, product or any by one: position k holds what the positions above it add up to."""
    return lane_vector(jnp.pad(lane_vector(cumulative)[:-1], (1, 0), constant_values=first))


def product_gap(better: Array, worse: Array) -> Array:
    """(1 − Π(1 − better)) − (1 − Π(1 − worse)), without cancellation.

    The difference of two products telescopes into Σ_k Π_{i<k}(1−worse_i)·(better_k − worse_k)·Π_{i>k}(1−better_i).
    Equal lists give exactly 0 and close ones keep their digits, so regret adds up over millions of float32 steps.
    """
    above = exclusive(jnp.cumprod(1 - worse), 1)
    below = exclusive(jnp.cumprod(1 - better[::-1]), 1)[::-1]
    return ordered_sum(above * (better - worse) * below)


class CompensatedSum(NamedTuple):
    """Kahan's running sum: the error does not grow with the number of terms."""

    total: Array  # float[...]
    error: Array  # float[...], what total has too much

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: jnp.dtype) -> "CompensatedSum":
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def add(self, term: Array) -> "CompensatedSum":
        if not jnp.issubdtype(self.total.dtype, jnp.floating):
            return self._replace(total=self.total + term)
        corrected = term - self.error
        total = self.total + corrected
        return CompensatedSum(total, (total - self.total) - corrected)
