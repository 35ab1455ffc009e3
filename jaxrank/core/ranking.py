"""Small operations on rankings: look-ups, sorting, counting.

A ranking is hard, int32[K], or soft, float[K, L] (``jr.relax``): row k has the weights of the items at position k.

For short lists, comparing every item with every other is faster than gathers, sorts and reductions: a Python loop over
items of elementwise operations, which XLA fuses and runs as vector code over lanes. Longer lists gather and sort.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.numerics import SHORT, ordered_sum
from jaxrank.core.types import Array


def is_soft(ranking: Array) -> bool:
    return jnp.issubdtype(ranking.dtype, jnp.floating)


def lookup(values: Array, index: Array) -> Array:
    """values[index] for ``values`` [L] and any ``index``; for a soft ranking [K, L], the mean under each row."""
    if is_soft(index):
        return jnp.dot(index, values, precision=jax.lax.Precision.HIGHEST)
    if values.shape[0] > SHORT:
        return values[index]
    found = jnp.zeros(index.shape, values.dtype)
    for i in range(values.shape[0]):
        found = jnp.where(index == i, values[i], found)
    return found


def lookup_by_position(values: Array, ranking: Array) -> Array:
    """float[K]: values[ranking[k], k] at every position k, for ``values`` [L, K]; for a soft ranking, their mean."""
    if is_soft(ranking):
        return jnp.sum(ranking * values.T, axis=1)
    if values.shape[0] > SHORT:
        return values[ranking, jnp.arange(ranking.shape[0])]
    found = jnp.zeros(ranking.shape, values.dtype)
    for i in range(values.shape[0]):
        found = jnp.where(ranking == i, values[i], found)
    return found


def top_items(scores: Array, list_size: int, words: Array | None = None) -> Array:
    """int32[list_size]: the items of the highest scores [L], best first; equal scores in item order.

    With random ``words`` uint32[L], ties are broken at random: the item of the larger word comes first. The fast paths,
    for up to 32 items or up to 32 positions, replace the words' lowest bits by the item's number, which decides between
    words that are otherwise equal.
    """
    num_items = scores.shape[0]
    is_word = scores.dtype.itemsize == 4
    if num_items > SHORT and (list_size > SHORT or not is_word):
        if words is None:
            return jnp.argsort(scores, descending=True, stable=True)[:list_size].astype(jnp.int32)
        return jnp.lexsort((~words, -scores))[:list_size].astype(jnp.int32)
    if list_size and num_items > min(SHORT, 2 * list_size) and is_word:
        return _select(scores, list_size, words)
    items = jnp.arange(num_items, dtype=jnp.int32)
    if words is not None:
        words = (words & ~jnp.uint32(SHORT - 1)) | (SHORT - 1 - items).astype(jnp.uint32)  # all different
    place = jnp.zeros(num_items, jnp.int32)
    for i in range(num_items):
        wins_tie = i < items if words is None else words[i] > words
        place += ((scores[i] > scores) | ((scores[i] == scores) & wins_tie)).astype(jnp.int32)
    return items_by_place(place, list_size)


def _select(scores: Array, list_size: int, words: Array | None) -> Array:
    """``top_items`` by taking the best remaining item ``list_size`` times: for a few of many, far cheaper than sorting.

    The scores are compared as integers, whose maximum is one instruction; that of floats has to handle NaN.
    """
    num_items = scores.shape[0]
    bits = num_items.bit_length()
    tie = num_items - jnp.arange(num_items, dtype=jnp.int32)  # all different and above 0, the item in the lowest bits
    if words is not None:
        tie |= (words >> (bits + 1) << bits).astype(jnp.int32)
    key = _ordered_integers(scores)
    taken = []
    for _ in range(list_size):
        best = jnp.max(jnp.where(tie > 0, key, jnp.iinfo(jnp.int32).min))
        taken.append(jnp.max(jnp.where(key == best, tie, 0)))
        tie = jnp.where(tie == taken[-1], 0, tie)  # 0: taken
    return num_items - (jnp.stack(taken) & (2**bits - 1))


def _ordered_integers(scores: Array) -> Array:
    """int32[L]: integers in the same order as the scores, which have 32 bits each, and equal where these are equal."""
    if scores.dtype == jnp.int32:
        return scores
    if scores.dtype == jnp.uint32:
        return jax.lax.bitcast_convert_type(scores ^ jnp.uint32(2**31), jnp.int32)
    bits = jax.lax.bitcast_convert_type(scores + 0.0, jnp.int32)  # + 0: −0 is 0
    return bits ^ ((bits >> 31) & (2**31 - 1))


def best_item(scores: Array, words: Array) -> Array:
    """int32[K]: in each row of ``scores`` [K, L] the item of the highest score; the larger word breaks ties."""
    best, score, word = jnp.zeros(scores.shape[0], jnp.int32), scores[:, 0], words[:, 0]
    for i in range(1, scores.shape[1]):
        better = (scores[:, i] > score) | ((scores[:, i] == score) & (words[:, i] > word))
        best = jnp.where(better, i, best)
        score, word = jnp.where(better, scores[:, i], score), jnp.where(better, words[:, i], word)
    return best


def best_documents(scores: Array, mask: Array, list_size: int) -> Array:
    """int32[list_size]: the documents of the highest scores [L], best first; equal scores in document order.

    Documents that are not there, where ``mask`` bool[L] is false, come last.
    """
    return jax.lax.top_k(jnp.where(mask, scores, -jnp.inf), list_size)[1].astype(jnp.int32)


def items_by_place(place: Array, list_size: int) -> Array:
    """int32[list_size]: the items in the order of their places [L]; those from place ``list_size`` on are left out."""
    positions = jnp.arange(list_size, dtype=jnp.int32)
    ranking = jnp.zeros(list_size, jnp.int32)
    for i in range(place.shape[0]):
        ranking = jnp.where(place[i] == positions, i, ranking)
    return ranking


def shuffle(words: Array, group: Array, num_groups: int, list_size: int) -> Array:
    """int32[list_size]: the first items in the order of their groups [L], each group in the order of random ``words``.

    The group, at most ``num_groups``, fills the highest bits of a word and the item's random word the others. So a pair
    of items takes one comparison instead of the three that breaking ties would take. If less than half of the items are
    taken, the item's number fills the lowest bits, as long as this leaves 16 bits for the random word.
    """
    num_items, bits = words.shape[0], num_groups.bit_length()
    order = ~((group.astype(jnp.uint32) << (32 - bits)) | (words >> bits))
    item_bits = num_items.bit_length()
    if num_items <= 2 * list_size or bits + item_bits > 16:
        return top_items(order, list_size)
    tie = num_items - jnp.arange(num_items, dtype=jnp.uint32)  # all different and above 0
    key = _ordered_integers(order & ~jnp.uint32(2**item_bits - 1) | tie)
    taken = []
    for _ in range(list_size):
        taken.append(jnp.max(key))
        key = jnp.where(key == taken[-1], jnp.iinfo(jnp.int32).min, key)
    return num_items - (jnp.stack(taken) & (2**item_bits - 1))


def by_item(ranking: Array, values: Array, num_items: int) -> Array:
    """[num_items]: the values [K] of the items in the ranking [K], 0 for the others."""
    found = jnp.zeros(num_items, values.dtype)
    if num_items > SHORT:
        return found.at[ranking].set(values)
    items = jnp.arange(num_items, dtype=jnp.int32)
    for k in range(ranking.shape[0]):
        found = jnp.where(items == ranking[k], values[k], found)
    return found


class Rows(NamedTuple):
    """Rows of tables over items [L, …]: those of the items of a list or, where a table is small anyway, all rows."""

    items: Array | None  # int32[K], the items of the list; None for all rows

    @classmethod
    def shown(cls, ranking: Array, num_items: int) -> "Rows":
        return cls(ranking if num_items > SHORT else None)

    def of(self, table: Array) -> Array:
        """These rows of ``table``."""
        return table if self.items is None else table[self.items]

    def of_transpose(self, matrix: Array) -> Array:
        """These rows of ``matrix.T``."""
        return matrix.T if self.items is None else matrix[:, self.items].T

    def add(self, matrix: Array, terms: Array) -> Array:
        """``matrix`` with ``terms`` added to these rows."""
        return matrix + terms if self.items is None else matrix.at[self.items].add(terms, unique_indices=True)


def complete(ranking: Array, num_items: int) -> Array:
    """int32[num_items]: the ranking, then the items that are not in it in item order."""
    if ranking.shape[0] == num_items:
        return ranking
    place = jnp.full(num_items, num_items, jnp.int32).at[ranking].set(jnp.arange(ranking.shape[0], dtype=jnp.int32))
    return jnp.argsort(place, stable=True).astype(jnp.int32)


def inversions(values: Array) -> Array:
    """int32[]: the number of pairs of positions whose lower one holds the larger value; ties do not count."""
    total = jnp.int32(0)
    for distance in range(1, values.shape[0]):
        wrong = values[:-distance] < values[distance:]
        total += ordered_sum(wrong.astype(jnp.int32))
    return total
