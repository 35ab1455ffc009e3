"""What the dynamic Bayesian, the click chain and the graded model share: a user who may leave after any position.

At position k the user clicks with probability α_k, and continues to k + 1 with a probability that depends on the click.
So the user's presence is a Markov chain with two states, still there or gone, and every quantity of the model is a
product or a linear recursion over positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrank.core.numerics import any_above, ordered_sum, product_above, safe_log
from jaxrank.core.ranking import is_soft, lookup, top_items
from jaxrank.core.types import Array, Key


class Chain(NamedTuple):
    """The user's probabilities at each position of a list, or for each item."""

    attraction: Array  # float[K], α: P(click | examined)
    after_skip: Array  # float[K], P(continues | no click)
    after_click: Array  # float[K], P(continues | click)

    @property
    def going_on(self) -> Array:
        """float[K]: P(k + 1 is examined | k is examined)."""
        return self.attraction * self.after_click + (1 - self.attraction) * self.after_skip

    @property
    def leaving(self) -> Array:
        """float[K]: 1 − going_on, without cancellation."""
        return self.attraction * (1 - self.after_click) + (1 - self.attraction) * (1 - self.after_skip)

    def silence_below(self) -> Array:
        """float[K]: P(no click below k | k + 1 is examined), 1 at the last position."""
        skip = 1 - self.attraction
        return from_below(skip * (1 - self.after_skip), skip * self.after_skip, end=1)


def from_below(constant: Array, factor: Array, end: float) -> Array:
    """float[K, …]: entry k is x_{k+1} of the recursion x_k = constant_k + factor_k·x_{k+1}, from x_K = end upwards."""

    def step(below: Array, terms: tuple[Array, Array]) -> tuple[Array, Array]:
        constant, factor = terms
        return constant + factor * below, below

    last = jnp.full(constant.shape[1:], end, constant.dtype)
    return jax.lax.scan(step, last, (constant, factor), reverse=True)[1]


class ChainModel:
    """The methods of a click model, for a subclass that defines ``_chain(ranking)``."""

    attraction: Array

    def _chain(self, ranking: Array) -> Chain:
        raise NotImplementedError

    def sample(self, key: Key, ranking: Array) -> Array:
        """One uniform u for each position decides both whether the user clicks and whether the user continues.

        u in [0, α) is a click, after which the user continues if u < α·after_click. u in [α, 1) is no click, and the
        user leaves if u is in the upper part of that interval, which has length (1−α)·(1−after_skip).
        """
        u = jax.random.uniform(key, ranking.shape)
        chain = self._chain(ranking)
        clicked = u < chain.attraction
        stays_if_skipped = u < 1 - (1 - chain.attraction) * (1 - chain.after_skip)
        leaves = ~jnp.where(clicked, u < chain.attraction * chain.after_click, stays_if_skipped)
        return clicked & ~any_above(leaves)

    def _met(self, ranking: Array) -> tuple[Array, Array]:
        """float[K] twice: P(click) and P(continues) at every position, if examined; also for a soft ranking."""
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
        """reward(better) − reward(worse), to full precision.

        Σ_k χ(better, k)·(Δα_k + Δgoing_on_k·V_{k+1}), where V_k is the expected number of clicks in ``worse`` from
        position k down. Each term is the better list's gain from its item at k alone, and exactly 0 where both lists
        have the same item.
        """
        better, worse = better[:top], worse[:top]
        gains, loses = self._chain(better), self._chain(worse)
        clicks_below = from_below(loses.attraction, loses.going_on, end=0)
        step = gains.attraction - loses.attraction + (gains.going_on - loses.going_on) * clicks_below
        return ordered_sum(self.examination_probability(better) * jnp.where(better == worse, 0, step))

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """The best ``top`` items in the order of α / P(leaving), then the rest, α descending. Exact for any size.

        Of two neighbours that are examined, i above j has α_i·leaving_j − α_j·leaving_i more clicks than j above i, so
        any set of items is best shown in the order of α/leaving, highest first. A dynamic programme over the items in
        that order finds the best set, as in sponsored search with Markovian users (Aggarwal et al., WINE 2008; Kempe
        and Mahdian, WINE 2008).
        """
        top = list_size if top is None else min(top, list_size)
        num_items = self.attraction.shape[0]
        items = self._chain(jnp.arange(num_items, dtype=jnp.int32))
        worth = items.attraction / jnp.maximum(items.leaving, 1e-30)
        order = top_items(worth, num_items)

        # best[n]: the expected number of clicks on the best choice of at most n of the items below.
        def take_or_leave(best: Array, item: tuple[Array, Array]) -> tuple[Array, Array]:
            attraction, going_on = item
            taken = attraction + going_on * best[:-1]
            return jnp.maximum(best, jnp.pad(taken, (1, 0))), taken >= best[1:]

        nothing = jnp.zeros(top + 1, self.attraction.dtype)
        by_worth = (items.attraction[order], items.going_on[order])
        takes = jax.lax.scan(take_or_leave, nothing, by_worth, reverse=True)[1]

        def choose(places: Array, takes: Array) -> tuple[Array, Array]:
            chosen = (places > 0) & takes[places - 1]
            return places - chosen, chosen

        chosen = jax.lax.scan(choose, jnp.int32(top), takes)[1]
        by_attraction = jnp.argsort(top_items(self.attraction, num_items))[order]
        return order[jnp.argsort(jnp.where(chosen, jnp.arange(num_items), num_items + by_attraction))][:list_size]

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        """The user continued from every position above the last click; below it, left or found nothing attractive."""
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
