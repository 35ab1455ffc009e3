"""PairRank's certain orders, blocks and lists of a query, and the independent pairs of the clicks on a list.

OLRankNet and P2NeurRank share them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.types import Array, Key
from jaxrank.policies._online import examined

_SMALLEST = 32  # documents; padding is not cut below this size
_AT_ONCE = 4  # lanes with queries of one size that are computed together


def by_size(
    choose: Callable[..., Array], list_size: int, mask: Array, features: Array, words: Array, *args: Any
) -> Array:
    """int32[K]: ``choose(mask, features, words, *args)`` with the query's padding cut down to L, L/2, L/4, … documents.

    The cost of a list grows with the square of the number of documents, and few queries have as many as the largest
    one. In a sample of MSLR-WEB, with 116 documents on average and 308 at most, this takes a third of the time.
    """
    L = mask.shape[0]
    sizes = [L]
    while sizes[-1] // 2 >= max(_SMALLEST, list_size):
        sizes.append(-(-sizes[-1] // 2))
    if len(sizes) == 1:
        return choose(mask, features, words, *args)
    end = jnp.max(jnp.where(mask, jnp.arange(1, L + 1), 0))

    def first(size: int, ranking: Array, mask: Array, features: Array, words: Array, *args: Any) -> Array:
        return choose(mask[:size], features[:size], words[..., :size], *args)

    ranking = jnp.zeros(list_size, jnp.int32)
    for size, smaller in zip(sizes, [*sizes[1:], -1], strict=True):
        takes = (smaller < end) & (end <= size)
        ranking = rarely(takes, partial(first, size), ranking, mask, features, words, *args, at_once=_AT_ONCE)
    return ranking


def independent_pairs(listed: Array, clicks: Array, shown: Array) -> Array:
    """float[K/2, d]: x_clicked − x_unclicked of positions (1, 2), (3, 4), …; 0 where they are no such pair."""
    n = clicks.shape[0] // 2
    read = examined(clicks, shown)[: 2 * n].reshape(n, 2)
    clicked = clicks[: 2 * n].reshape(n, 2)
    sign = jnp.where(clicked[:, 0], 1.0, -1.0) * (read.all(axis=1) & (clicked[:, 0] != clicked[:, 1]))
    x = listed[: 2 * n].reshape(n, 2, -1)
    return (x[:, 0] - x[:, 1]) * sign[:, None]


def matched_pairs(words: Array, listed: Array, clicks: Array, shown: Array) -> Array:
    """float[K/2, d]: x_clicked − x_unclicked of clicked and unclicked documents in random order, one with one.

    The order of each kind is that of ``words`` uint32[K], smaller ones first; 0 where a kind has no document left.
    """
    n, read = clicks.shape[0] // 2, examined(clicks, shown)

    def in_random_order(chosen: Array) -> tuple[Array, Array]:
        order = jnp.lexsort((words, ~chosen))[:n]
        return listed[order], chosen[order]

    clicked, is_clicked = in_random_order(read & clicks)
    unclicked, is_unclicked = in_random_order(read & ~clicks)
    return (clicked - unclicked) * (is_clicked & is_unclicked)[:, None]


def widths(features: Array, root: Array) -> Array:
    """float[L, L]: ‖x_ij‖² in the norm of M⁻¹ = SSᵀ, for S [d, d] or a diagonal S [d], without differences x_ij."""
    spread = features @ root if root.ndim == 2 else features * root[None, :]
    g = spread @ spread.T
    diagonal = jnp.diagonal(g)
    return jnp.maximum(diagonal[:, None] + diagonal[None, :] - 2 * g, 0)


def certain_orders(scores: Array, squared_widths: Array, alpha: Array, mask: Array) -> Array:
    """bool[L, L]: is i certainly above j (line 3)? From scores [L] and ‖x_ij‖² [L, L]; always false for padding.

    With σ(s) − ½ = ½·tanh(s/2), line 3 compares ½·tanh(s/2) with α·‖x_ij‖. Their squares are compared, which needs no
    square root. As ½·tanh(s/2) must be positive, at most one of (i, j) and (j, i) is certain.
    """
    margin = jnp.tanh((scores[:, None] - scores[None, :]) / 2) / 2
    wins = (margin > 0) & (margin * margin > alpha**2 * squared_widths)
    return wins & mask[:, None] & mask[None, :]


def blocks(scores: Array, certain: Array, mask: Array) -> Array:
    """int32[L]: the number of each document's block, 0 for the top one; padding comes after all documents."""
    L = scores.shape[0]
    order = jnp.argsort(jnp.where(mask, scores, -jnp.inf), descending=True, stable=True)
    place = jnp.zeros(L, jnp.int32).at[order].set(jnp.arange(L, dtype=jnp.int32))
    uncertain = ~certain & (place[:, None] < place[None, :]) & mask[None, :]
    reach = jnp.min(jnp.where(uncertain, place[:, None], L), axis=0)  # the topmost place that is uncertain with j
    reach = jax.lax.cummin(reach[order], reverse=True)  # … with any document from here down
    starts = reach >= jnp.arange(L)  # a block starts here: no uncertain pair crosses the boundary above this place
    starts = starts.at[0].set(False)
    return jnp.cumsum(starts, dtype=jnp.int32)[place]


def random_words(key: Key, exploration: str, list_size: int, num_documents: int) -> Array:
    """uint32[K, L] or uint32[L]: the random numbers of ``explored_list``."""
    shape = (list_size, num_documents) if exploration == "conservative" else (num_documents,)
    return jax.random.bits(key, shape, jnp.uint32)


def explored_list(words: Array, scores: Array, certain: Array, mask: Array, list_size: int, exploration: str) -> Array:
    """int32[K]: a list in which only uncertain orders are random (line 6).

    ``exploration``: "conservative" keeps all certain orders, and so needs no blocks; "random" shuffles whole blocks.
    """
    if exploration == "conservative":
        return conservative_list(words, certain, mask)
    return shuffled_blocks(words, blocks(scores, certain, mask), mask, list_size)


def shuffled_blocks(words: Array, block: Array, mask: Array, list_size: int) -> Array:
    """int32[K]: block after block, each in the random order of ``words`` uint32[L], smaller ones first."""
    rank = jnp.lexsort((words, jnp.where(mask, block, block.shape[0])))
    return rank[:list_size].astype(jnp.int32)


def conservative_list(words: Array, certain: Array, mask: Array) -> Array:
    """int32[K]: at each position, uniformly chosen, one of the documents with no certain predecessor left.

    The choice at position p is the document with the largest random word in row p of ``words`` uint32[K, L].
    """
    waiting_for = jnp.sum(certain, axis=0, dtype=jnp.int32)
    left = jnp.ones_like(mask)
    ranking = []
    for p in range(words.shape[0]):
        allowed = left & mask & (waiting_for == 0)
        # Padding comes after all documents: as long as a document is left, at least one is allowed.
        lot = jnp.where(allowed, (words[p] >> 1) + 2, jnp.where(left & ~mask, jnp.uint32(1), jnp.uint32(0)))
        chosen = jnp.argmax(lot).astype(jnp.int32)
        ranking.append(chosen)
        left = left.at[chosen].set(False)
        waiting_for -= certain[chosen].astype(jnp.int32)
    return jnp.stack(ranking)
