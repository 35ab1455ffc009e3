"""Probabilistic topic coverage (CascadeHybrid, Sec. 2.3): how much of each topic a list covers, and what an item adds.

x_a(j) is the probability that item a covers topic j. A list S leaves Π_{a ∈ S} (1 − x_a(j)) of topic j uncovered, and
the gain of one more item, eq. 5, is Δ_j(a | S) = x_a(j)·Π_{b ∈ S} (1 − x_b(j)).
"""

import jax.numpy as jnp

from jaxrank.core.types import Array


def coverage(shown: Array) -> Array:
    """float[d]: g(S) of eq. 4, from the topics x [K, d] of a list's items."""
    return 1 - jnp.prod(1 - shown, axis=0)


def coverage_gains(shown: Array) -> Array:
    """float[K, d]: Δ(R(k) | R(1), …, R(k − 1)) of every position, from the topics x [K, d] in list order."""
    uncovered = jnp.cumprod(1 - shown, axis=0)
    above = jnp.concatenate([jnp.ones_like(shown[:1]), uncovered[:-1]])
    return shown * above


def intra_list_similarity(shown: Array) -> Array:
    """float[]: the mean cosine between the topics x [K, d] of two items of a list; 0 for a list of one.

    An item without topics has cosine 0 with every other. (Ziegler et al., WWW 2005, with the mean instead of the sum.)
    """
    K = shown.shape[0]
    length = jnp.sqrt(jnp.sum(shown**2, axis=1, keepdims=True))
    unit = shown / jnp.maximum(length, 1e-30)
    together = jnp.sum(jnp.sum(unit, axis=0) ** 2) - jnp.sum(unit**2)  # Σ_{i ≠ j} cos(i, j)
    return together / max(1, K * (K - 1))
