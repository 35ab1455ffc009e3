"""TopRank: a partial order of the items, learnt inside blocks (Lattimore et al., NeurIPS 2018, Algorithm 1).

Where the paper leaves a choice, or this file reads differently:

- G holds "i beats j" as G[i, j]; the paper writes the pair (j, i).
- Items that are not displayed have C = 0 (line 8), also in line 10: if position K cuts a block, all items of the block
  are compared.
- S(i, j) and N(i, j) are kept as wins: the steps in which i was clicked and j was not. S is i's wins minus j's, N their
  sum, and a step changes the rows of the clicked items only.
- G is not kept. Once i beats j they never share a block again, so S(i, j) and N(i, j) no longer change and the
  condition of line 12 remains true: G is always {(i, j) : N > 0, S ≥ sqrt(2·N·log(c·sqrt(N)/δ))}.
- G has no cycles, whatever the clicks. Relations that are in G before a step lead from a block to a later one. Those
  that the step adds lead from a clicked item to one that is not clicked, in the same block. So a cycle would stay in
  one block and consist of new relations, but no two of those follow each other. Still, lines 3–6 peel off at most
  L − 1 blocks: this ends for any G, and items on a cycle would make up one last block.
"""

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.batching import rarely
from jaxrank.core.checks import open_probability, positive
from jaxrank.core.pytrees import array, pytree
from jaxrank.core.ranking import Rows, by_item, shuffle
from jaxrank.core.types import Array, Key, Query

_LOG_C = math.log(4 * math.sqrt(2 / math.pi) / math.erf(math.sqrt(2)))  # line 1: c ≈ 3.34


class TopRankState(NamedTuple):
    wins: Array  # int32[L, L], steps in which i was clicked and j was not, while both were in one block
    block: Array  # int32[L], d − 1 for the items of P_d
    settled: Array  # bool[], does each of P_1, …, P_K have one item?


@pytree
class TopRank:
    """Shows blocks of items, best block first and each in random order, and splits them when an item beats another.

    Item i beats j once S(i, j) ≥ sqrt(2·N(i, j)·log(c·sqrt(N(i, j))/δ)), where S counts the clicks on i minus those
    on j in the N steps in which exactly one of them was clicked while they were in the same block.

    Args:
      delta: δ, in (0, 1). By default 1/n for the horizon n, as in the paper's experiments.
      horizon: n, at least the number of steps of the run, which it is by default.
    """

    per_item: ClassVar[bool] = True

    delta: Any = array(ndim=0, check=open_probability, default=None)
    horizon: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)

    def init(self, key: Key, query: Query) -> TopRankState:
        L = query.num_items
        return TopRankState(jnp.zeros((L, L), jnp.int32), block=jnp.zeros(L, jnp.int32), settled=jnp.bool_(L == 1))

    def rank(self, key: Key, state: TopRankState, query: Query) -> Array:
        K, words = query.list_size, jax.random.bits(key, (query.num_items,), jnp.uint32)
        return shuffle(words, jnp.minimum(state.block, K), num_groups=K, list_size=K)  # line 7

    def update(self, key: Key, state: TopRankState, query: Query, ranking: Array, clicks: Array) -> TopRankState:
        block, log_inverse_delta = state.block, self._log_inverse_delta()
        C = by_item(ranking, clicks, query.num_items)  # line 8
        rows = Rows.shown(ranking, query.num_items)  # others are not clicked
        together = rows.of(block)[:, None] == block[None, :]
        won = together & rows.of(C)[:, None] & ~C[None, :]  # line 10, where U = 1
        wins = rows.add(state.wins, won)  # line 11; read the wins only after this: otherwise XLA copies the matrix
        beats = _beats(rows.of(wins), rows.of_transpose(wins), log_inverse_delta)  # line 12
        found = jnp.any(together & beats)
        # Lines 3–6, if this step adds to G.
        return rarely(found, partial(_partition, query.list_size), state._replace(wins=wins), log_inverse_delta)

    def statistics(self, state: TopRankState) -> dict[str, Array]:
        """The paper's S, N and G over pairs of items, and each item's block, for probes and tests."""
        wins, losses = state.wins, state.wins.T
        G = _beats(wins, losses, self._log_inverse_delta())
        return {"S": wins - losses, "N": wins + losses, "G": G, "block": state.block}

    def settled(self, state: TopRankState) -> Array:
        """bool[]: will the displayed list stay the same forever?

        Yes, if and only if each of P_1, …, P_K has one item. Then no displayed item shares its block with another, and
        the other items are never clicked, so S, N, G and the blocks no longer change. Otherwise a displayed block has
        two or more items, which are shuffled, and clicks on them can split it.
        """
        return state.settled

    def _log_inverse_delta(self) -> Array:
        if self.delta is not None:
            return -jnp.log(self.delta)
        if self.horizon is None:
            raise ValueError("TopRank.horizon must be given outside of simulate, which fills it in; got None")
        return jnp.log(self.horizon.astype(float))


def _beats(wins: Array, losses: Array, log_inverse_delta: Array) -> Array:
    """Line 12, elementwise: is the first item of the pair more attractive? Never if N = 0, as then S = 0."""
    s, n = wins - losses, jnp.maximum(wins + losses, 1).astype(log_inverse_delta.dtype)
    return s >= jnp.sqrt(2 * n * (_LOG_C + jnp.log(n) / 2 + log_inverse_delta))


def _partition(list_size: int, state: TopRankState, log_inverse_delta: Array) -> TopRankState:
    """Lines 3–6: P_d are the remaining items that no remaining item beats."""
    L = state.block.shape[0]
    G = _beats(state.wins, state.wins.T, log_inverse_delta)

    def some_remain(carry: tuple[Array, Array, Array]) -> Array:
        d, _, remaining = carry
        return (d < L) & jnp.any(remaining)

    def peel(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        d, block, remaining = carry
        remaining &= jnp.any(G & remaining[:, None], axis=0)
        return d + 1, block + remaining, remaining

    _, block, _ = jax.lax.while_loop(some_remain, peel, (jnp.int32(1), jnp.zeros(L, jnp.int32), jnp.ones(L, bool)))
    sizes = jnp.sum(block[None, :] == jnp.arange(list_size)[:, None], axis=1)
    return state._replace(block=block, settled=jnp.all(sizes == 1))
