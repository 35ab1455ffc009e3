"""Sorting with ties broken at random.

The draws are given, one word an item, so that whoever sorts decides what they cost and a test can see them.
"""

import jax.numpy as jnp

from jaxrank.ranking import _SMALL, _items_by_place
from jaxrank.types import Array


def top_items_random_ties(scores: Array, words: Array, list_size: int) -> Array:
    """int32[list_size]: the items of the highest scores [L], best first; equal scores by random ``words`` uint32[L].

    The larger word comes first; equal words, which are one in 2³², in item order.
    """
    num_items = scores.shape[0]
    if num_items > _SMALL:
        return jnp.lexsort((~words, -scores))[:list_size].astype(jnp.int32)
    items = jnp.arange(num_items, dtype=jnp.int32)
    place = jnp.zeros(num_items, jnp.int32)
    for i in range(num_items):
        wins_tie = (words[i] > words) | ((words[i] == words) & (i < items))
        above = (scores[i] > scores) | ((scores[i] == scores) & wins_tie)
        place += above.astype(jnp.int32)
    return _items_by_place(place, list_size)
