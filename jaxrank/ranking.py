"""Small operations on rankings: look-ups, sorting, counting.

Lists are short, so comparing everything with everything, one item after the other over whole vectors, beats gathers,
sorts and reductions: it is elementwise, XLA fuses it, and it runs as vector code over lanes.
"""

import jax.numpy as jnp

from jaxrank.batching import lane_vector
from jaxrank.numerics import ordered_sum
from jaxrank.types import Array

_SMALL = 32  # up to here, compare all with all; beyond, gather and sort


def lookup(values: Array, index: Array) -> Array:
    """values[index] for ``values`` [L] and ``index`` of any shape."""
    if values.shape[0] > _SMALL:
        return values[index]
    found = jnp.zeros(index.shape, values.dtype)
    for i in range(values.shape[0]):
        found = jnp.where(index == i, values[i], found)
    return lane_vector(found)


def top_items(scores: Array, list_size: int) -> Array:
    """int32[list_size]: the items of the highest scores [L], best first; equal scores in item order."""
    num_items = scores.shape[0]
    if num_items > _SMALL:
        return jnp.argsort(scores, descending=True, stable=True)[:list_size].astype(jnp.int32)
    items = jnp.arange(num_items, dtype=jnp.int32)
    place = jnp.zeros(num_items, jnp.int32)
    for i in range(num_items):
        above = (scores[i] > scores) | ((scores[i] == scores) & (i < items))
        place += above.astype(jnp.int32)
    return _items_by_place(place, list_size)


def _items_by_place(place: Array, list_size: int) -> Array:
    """int32[list_size]: the items in the order of their places [L], a permutation."""
    positions = jnp.arange(list_size, dtype=jnp.int32)
    ranking = jnp.zeros(list_size, jnp.int32)
    for i in range(place.shape[0]):
        ranking = jnp.where(place[i] == positions, i, ranking)
    return ranking


def complete(ranking: Array, num_items: int) -> Array:
    """int32[num_items]: the ranking, then the items that are not in it in item order."""
    if ranking.shape[0] == num_items:
        return ranking
    place = jnp.full(num_items, num_items, jnp.int32).at[ranking].set(jnp.arange(ranking.shape[0], dtype=jnp.int32))
    return jnp.argsort(place, stable=True).astype(jnp.int32)


def inversions(values: Array) -> Array:
    """int32[]: pairs of positions whose lower one holds the larger value; ties never count."""
    total = jnp.int32(0)
    for distance in range(1, values.shape[0]):
        wrong = values[:-distance] < values[distance:]
        total += ordered_sum(lane_vector(wrong.astype(jnp.int32)))
    return total
