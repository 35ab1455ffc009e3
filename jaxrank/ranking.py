"""Small operations on rankings: look-ups, sorting, counting.

Lists are short, so comparing everything with everything, one item after the other over whole vectors, beats gathers,
sorts and reductions: it is elementwise, XLA fuses it, and it runs as vector code over lanes. Long ones gather and sort.
"""

from functools import reduce

import jax.numpy as jnp

from jaxrank.batching import lane_vector
from jaxrank.numerics import SHORT, ordered_sum
from jaxrank.types import Array


def lookup(values: Array, index: Array) -> Array:
    """values[index] for ``values`` [L] and ``index`` of any shape."""
    if values.shape[0] > SHORT:
        return values[index]
    found = jnp.zeros(index.shape, values.dtype)
    for i in range(values.shape[0]):
        found = jnp.where(index == i, values[i], found)
    return lane_vector(found)


def top_items(scores: Array, list_size: int, words: Array | None = None) -> Array:
    """int32[list_size]: the items of the highest scores [L], best first; equal scores in item order.

    With random ``words`` uint32[L], ties are broken at random: the larger word comes first (short lists compare their
    upper 27 bits and then the item).
    """
    num_items = scores.shape[0]
    if num_items > SHORT and list_size > SHORT:
        if words is None:
            return jnp.argsort(scores, descending=True, stable=True)[:list_size].astype(jnp.int32)
        return jnp.lexsort((~words, -scores))[:list_size].astype(jnp.int32)
    if num_items > SHORT:
        return _select(scores, list_size, words)
    items = jnp.arange(num_items, dtype=jnp.int32)
    scores = lane_vector(scores)
    if words is not None:
        words = lane_vector((words & ~jnp.uint32(SHORT - 1)) | (SHORT - 1 - items).astype(jnp.uint32))  # all different
    place = jnp.zeros(num_items, jnp.int32)
    for i in range(num_items):
        wins_tie = i < items if words is None else words[i] > words
        place += ((scores[i] > scores) | ((scores[i] == scores) & wins_tie)).astype(jnp.int32)
    return items_by_place(place, list_size)


def _select(scores: Array, list_size: int, words: Array | None) -> Array:
    """``top_items`` by taking the best item so many times: for a few of many, far cheaper than sorting them all."""
    num_items = scores.shape[0]
    items, left = jnp.arange(num_items, dtype=jnp.int32), jnp.ones(num_items, bool)
    lowest = -jnp.inf if jnp.issubdtype(scores.dtype, jnp.floating) else jnp.iinfo(scores.dtype).min
    scores = lane_vector(scores)
    ranking = []
    for _ in range(list_size):
        equal = left & (scores == _largest(jnp.where(left, scores, lowest)))
        if words is not None:
            equal &= words == _largest(jnp.where(equal, words, 0))
        item = num_items - 1 - _largest(jnp.where(equal, num_items - 1 - items, -1))  # the first of them
        left = lane_vector(left & (items != item))
        ranking.append(item)
    return lane_vector(jnp.stack(ranking))


def _largest(values: Array) -> Array:
    """The maximum, a piece at a time: XLA splits longer reductions its own way, which is not over lanes."""
    values = lane_vector(values)
    return reduce(jnp.maximum, (jnp.max(values[i : i + SHORT]) for i in range(0, values.shape[0], SHORT)))


def best_item(scores: Array, words: Array) -> Array:
    """int32[K]: in each row of ``scores`` [K, L] the item of the highest score; of equals, that of the larger word."""
    scores, words = lane_vector(scores), lane_vector(words)
    best, score, word = jnp.zeros(scores.shape[0], jnp.int32), scores[:, 0], words[:, 0]
    for i in range(1, scores.shape[1]):
        better = (scores[:, i] > score) | ((scores[:, i] == score) & (words[:, i] > word))
        best = jnp.where(better, i, best)
        score, word = jnp.where(better, scores[:, i], score), jnp.where(better, words[:, i], word)
    return lane_vector(best)


def items_by_place(place: Array, list_size: int) -> Array:
    """int32[list_size]: the items in the order of their places [L]; those of place list_size and more are left out."""
    place = lane_vector(place)
    positions = jnp.arange(list_size, dtype=jnp.int32)
    ranking = jnp.zeros(list_size, jnp.int32)
    for i in range(place.shape[0]):
        ranking = jnp.where(place[i] == positions, i, ranking)
    return lane_vector(ranking)


def shuffle(words: Array, group: Array, num_groups: int, list_size: int) -> Array:
    """int32[list_size]: the first items in the order of their groups [L], each group in the order of random ``words``.

    The group fills the highest bits of a word and the item's random word the others: one comparison per pair, where
    breaking ties takes three.
    """
    bits = num_groups.bit_length()
    order = (group.astype(jnp.uint32) << (32 - bits)) | (words >> bits)
    return top_items(~order, list_size)


def by_item(ranking: Array, values: Array, num_items: int) -> Array:
    """[num_items]: the values [K] of the items in the ranking [K], 0 for the others."""
    found = jnp.zeros(num_items, values.dtype)
    if num_items > SHORT:
        return found.at[ranking].set(values)
    items = jnp.arange(num_items, dtype=jnp.int32)
    for k in range(ranking.shape[0]):
        found = jnp.where(items == ranking[k], values[k], found)
    return lane_vector(found)


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
