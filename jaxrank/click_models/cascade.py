"""The cascade model (CM): scan down, click the first attractive item and leave (Craswell et al., WSDM 2008)."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.click_models._one_query import click_model
from jaxrank.core.checks import probability
from jaxrank.core.numerics import any_above, product_above, product_gap, safe_log
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup, top_items
from jaxrank.core.types import Array, Key


def first_click(key: Key, attraction: Array) -> Array:
    """bool[K]: the click of a user who scans down a list with ``attraction`` [K] by position.

    One uniform u decides a session: the click is on the first k with Π_{i≤k} (1 − α(R_i)) ≤ u.
    """
    u, passed = jax.random.uniform(key), 1 - attraction
    reached = product_above(passed)
    return (u < reached) & (reached * passed <= u)


@click_model
class CascadeModel:
    """The user clicks the first attractive item and then leaves.

    χ(R, k) = Π_{i<k} (1 − α(R_i)), and the reward is the probability of a click, 1 − Π (1 − α(R_k))
    (BubbleRank, Sec. 2.1).

    Args:
      attraction: α [L], or [queries, L].
    """

    attraction: Any = array(ndim=1, check=probability)

    def sample(self, key: Key, ranking: Array) -> Array:
        return first_click(key, lookup(self.attraction, ranking))

    def click_probability(self, ranking: Array) -> Array:
        return self.examination_probability(ranking) * lookup(self.attraction, ranking)

    def examination_probability(self, ranking: Array) -> Array:
        return product_above(1 - lookup(self.attraction, ranking))

    def reward(self, ranking: Array, top: int | None = None) -> Array:
        return 1 - jnp.prod(1 - lookup(self.attraction, ranking[:top]))

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        """reward(better) − reward(worse), to full precision.

        The reward does not depend on the order within a list, so both lists are sorted by attraction. If ``better`` is
        the optimum, it is then at least as attractive at every position, so that no two terms of the gap cancel.
        """
        high = jnp.sort(lookup(self.attraction, better)[:top], descending=True)
        low = jnp.sort(lookup(self.attraction, worse)[:top], descending=True)
        return product_gap(high, low, high - low)

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """α descending, ties in item order. (Any order of the same first ``top`` items is as good.)"""
        return top_items(self.attraction, list_size)

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        """Clicks after the first have probability 0 in this model: each adds log 1e-10."""
        attraction = lookup(self.attraction, ranking)
        examined = ~any_above(clicks)
        if_examined = jnp.where(clicks, safe_log(attraction), safe_log(1 - attraction))
        return jnp.sum(jnp.where(examined, if_examined, jnp.where(clicks, safe_log(jnp.zeros(())), 0)))
