"""The dependent click model (DCM): a cascade that may continue after a click (Guo et al., WSDM 2009)."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.click_models._one_query import click_model
from jaxrank.click_models.position_based import pair_best
from jaxrank.core.checks import probability
from jaxrank.core.numerics import any_above, product_above, product_gap, safe_log
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup
from jaxrank.core.types import Array, Key


@click_model
class DependentClickModel:
    """The user scans down, clicks every attractive item, and after a click at k leaves with probability v_k.

    χ(R, k) = Π_{i<k} (1 − v_i·α(R_i)); BubbleRank's Sec. 5.1 misprints it as Π (1 − v_i)·α(R_i). The reward is the
    probability of an abandonment click, 1 − Π (1 − v_k·α(R_k)) (Katariya et al., ICML 2016).

    Args:
      attraction: α [L], or [queries, L].
      termination: v [K], or [queries, K].
    """

    attraction: Any = array(ndim=1, check=probability)
    termination: Any = array(ndim=1, check=probability)

    def _abandonment(self, ranking: Array) -> Array:
        """float[K]: v_k·α(R_k), the probability of clicking at k and leaving, given that k is examined."""
        return self.termination[: ranking.shape[0]] * lookup(self.attraction, ranking)

    def sample(self, key: Key, ranking: Array) -> Array:
        """One uniform u for each position: the user, if still there, clicks if u < α, and then leaves if u < v·α."""
        u = jax.random.uniform(key, ranking.shape)
        leaves = u < self._abandonment(ranking)
        return (u < lookup(self.attraction, ranking)) & ~any_above(leaves)

    def click_probability(self, ranking: Array) -> Array:
        return self.examination_probability(ranking) * lookup(self.attraction, ranking)

    def examination_probability(self, ranking: Array) -> Array:
        return product_above(1 - self._abandonment(ranking))

    def reward(self, ranking: Array, top: int | None = None) -> Array:
        return 1 - jnp.prod(1 - self._abandonment(ranking[:top]))

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        """reward(better) − reward(worse), to full precision."""
        better, worse = better[:top], worse[:top]
        gap = lookup(self.attraction, better) - lookup(self.attraction, worse)
        difference = self.termination[: better.shape[0]] * gap
        return product_gap(self._abandonment(better), self._abandonment(worse), difference)

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """The k-th largest α at the k-th largest v, which is best because −log(1 − vα) is supermodular."""
        return pair_best(self.attraction, self.termination, list_size, top)

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        """After the last click l the user either left, with probability v_l, or found nothing attractive below it."""
        attraction = lookup(self.attraction, ranking)
        termination = self.termination[: ranking.shape[0]]
        clicks_from_here = jnp.cumsum(clicks[::-1])[::-1]
        below = clicks_from_here == 0  # all of them if there is no click
        last = clicks & (clicks_from_here == 1)
        above = jnp.where(clicks, safe_log(attraction), safe_log(1 - attraction))
        went_on = jnp.where(clicks & ~last, safe_log(1 - termination), 0)
        nothing_more = jnp.prod(jnp.where(below, 1 - attraction, 1))
        left_at = jnp.sum(jnp.where(last, termination, 0))  # 0 if there is no click
        return jnp.sum(jnp.where(below, 0, above + went_on)) + safe_log(left_at + (1 - left_at) * nothing_more)
