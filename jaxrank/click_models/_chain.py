"""What the dynamic Bayesian and the click chain model share: a user who walks down the list and may leave anywhere.

At position k the user clicks with α_k and goes on to k + 1 with a probability that depends on the click. So being
there is a Markov chain with two states, and everything about it is a product or a linear recursion over positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.numerics import any_above, ordered_sum, product_above, safe_log
from jaxrank.core.ranking import is_soft, lookup, top_items
from jaxrank.core.types import Array, Key

UNROLL = 16  # positions of a recursion written out before it becomes a loop: twice as fast for ten


class Chain(NamedTuple):
    """A list, or the items, as the user meets them."""

    attraction: Array  # float[K], α: a click, if looked at
    after_skip: Array  # float[K], goes on after no click
    after_click: Array  # float[K], goes on after a click

    @property
    def going_on(self) -> Array:
        """float[K]: P(k + 1 is looked at | k is)."""
        return self.attraction * self.after_click + (1 - self.attraction) * self.after_skip

    @property
    def leaving(self) -> Array:
        """float[K]: 1 − going_on, without cancellation."""
        return self.attraction * (1 - self.after_click) + (1 - self.attraction) * (1 - self.after_skip)

    def silence_below(self) -> Array:
        """float[K]: P(no click below k | k + 1 is looked at), 1 at the last position."""
        skip = 1 - self.attraction
        return from_below(skip * (1 - self.after_skip), skip * self.after_skip, end=1)


def from_below(constant: Array, factor: Array, end: float) -> Array:
    """float[K, …]: x_{k+1} at position k, of the recursion x_k = constant_k + factor_k·x_{k+1} with x_K = end."""

    def step(below, terms):
        constant, factor = terms
        return constant + factor * below, below

    last = jnp.full(constant.shape[1:], end, constant.dtype)
    return jax.lax.scan(step, last, (constant, factor), reverse=True, unroll=UNROLL)[1]


class ChainModel:
    """The methods of a click model, for one that says how its users meet a list: ``_chain(ranking)``."""

    attraction: Array

    def _chain(self, ranking: Array) -> Chain:
        raise NotImplementedError

    def sample(self, key: Key, ranking: Array) -> Array:
        """One uniform u a position decides both coins.

        [0, α) is a click, and its part [0, α·after_click) a click after which the user goes on; [α, 1) is none, and
        its upper part, (1−α)·(1−after_skip) long, is where the user leaves.
        """
        u = jax.random.uniform(key, ranking.shape)
        chain = self._chain(ranking)
        clicked = u < chain.attraction
        stays_if_skipped = u < 1 - (1 - chain.attraction) * (1 - chain.after_skip)
        leaves = ~jnp.where(clicked, u < chain.attraction * chain.after_click, stays_if_skipped)
        return clicked & ~any_above(leaves)

    def _met(self, ranking: Array) -> tuple[Array, Array]:
        """float[K] twice: P(click) and P(going on) of every position that is looked at, also of a soft ranking."""
        if not is_soft(ranking):
            chain = self._chain(ranking)
            return chain.attraction, chain.going_on
        items = self._chain(jnp.arange(ranking.shape[1], dtype=jnp.int32))
        return lookup(items.attraction, ranking), lookup(items.going_on, ranking)

    def click_probability(self, ranking: Array) -> Array:
        attraction, going_on = self._met(ranking)
        return product_above(going_on) * attraction

    def examination_probability(self, ranking: Array) -> Array:
        return product_above(self._met(ranking)[1])

    def reward(self, ranking: Array, top: int | None = None) -> Array:
        """The expected number of clicks."""
        return ordered_sum(self.click_probability(ranking[:top]))

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        """reward(better) − reward(worse), to the last digits.

        Σ_k χ(better, k)·(Δα_k + Δgoing_on_k·V_{k+1}), V_k the clicks expected from k on in ``worse``: each term is
        what the better list gains by its item at k alone, and exactly 0 where both lists have the same item.
        """
        better, worse = better[:top], worse[:top]
        gains, loses = self._chain(better), self._chain(worse)
        clicks_below = from_below(loses.attraction, loses.going_on, end=0)
        step = gains.attraction - loses.attraction + (gains.going_on - loses.going_on) * clicks_below
        return ordered_sum(self.examination_probability(better) * jnp.where(better == worse, 0, step))

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """Exact for any size: α / P(leaving) descending over the best choice of ``top`` items, the rest α descending.

        Exchanging the neighbours i above j gains α_i·leaving_j − α_j·leaving_i, so any set of items is best shown in
        the order of α/leaving; which set, a dynamic programme over the items in that order finds, as in sponsored
        search with Markovian users (Aggarwal et al., WINE 2008; Kempe and Mahdian, WINE 2008).
        """
        top = list_size if top is None else min(top, list_size)
        num_items = self.attraction.shape[0]
        items = self._chain(jnp.arange(num_items, dtype=jnp.int32))
        worth = items.attraction / jnp.maximum(items.leaving, 1e-30)
        order = top_items(worth, num_items)

        def take_or_leave(best, item):  # best[n]: the clicks on at most n of the items below
            attraction, going_on = item
            taken = attraction + going_on * best[:-1]
            return jnp.maximum(best, jnp.pad(taken, (1, 0))), taken >= best[1:]

        nothing = jnp.zeros(top + 1, self.attraction.dtype)
        by_worth = (items.attraction[order], items.going_on[order])
        takes = jax.lax.scan(take_or_leave, nothing, by_worth, reverse=True)[1]

        def choose(places, takes):
            chosen = (places > 0) & takes[places - 1]
            return places - chosen, chosen

        chosen = jax.lax.scan(choose, top, takes)[1]
        by_attraction = jnp.argsort(top_items(self.attraction, num_items))[order]
        return order[jnp.argsort(jnp.where(chosen, jnp.arange(num_items), num_items + by_attraction))][:list_size]

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        """The user went on from everything above the last click; below it, left or found nothing attractive."""
        chain = self._chain(ranking)
        silence_below = chain.silence_below()
        clicks_from_here = jnp.cumsum(clicks[::-1])[::-1]
        last = clicks & (clicks_from_here == 1)
        at = jnp.where(clicks, safe_log(chain.attraction), safe_log(1 - chain.attraction))
        onward = jnp.where(clicks, safe_log(chain.after_click), safe_log(chain.after_skip))
        ending = safe_log((1 - chain.after_click) + chain.after_click * silence_below)
        down_to_last = jnp.where(clicks_from_here > 0, at + jnp.where(last, ending, onward), 0)
        silence = (1 - chain.attraction[0]) * (1 - chain.after_skip[0] + chain.after_skip[0] * silence_below[0])
        return jnp.where(clicks_from_here[0] > 0, jnp.sum(down_to_last), safe_log(silence))
