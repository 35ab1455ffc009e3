"""The position-based model (PBM): positions decide examination, items clicks (Richardson et al., WWW 2007)."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrank.click_models._one_query import click_model
from jaxrank.core.checks import probability
from jaxrank.core.numerics import ordered_sum, safe_log
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup, top_items
from jaxrank.core.types import Array, Key


def pair_best(attraction: Array, weight: Array, list_size: int, top: int | None = None) -> Array:
    """int32[list_size]: the k-th largest α at the k-th largest of the first ``top`` weights, the rest α descending.

    Fitted weights need not decrease with the position, so α descending is not always optimal.
    """
    top = list_size if top is None else min(top, list_size)
    items = top_items(attraction, list_size)
    positions = top_items(weight[:top], top)
    return items.at[positions].set(items[:top])


class IndependentClicks:
    """The methods of a click model whose positions are clicked independently, from ``click_probability``."""

    def click_probability(self, ranking: Array) -> Array:
        raise NotImplementedError

    def sample(self, key: Key, ranking: Array) -> Array:
        return jax.random.uniform(key, ranking.shape) < self.click_probability(ranking)

    def reward(self, ranking: Array, top: int | None = None) -> Array:
        """The expected number of clicks."""
        return ordered_sum(self.click_probability(ranking[:top]))

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        p = self.click_probability(ranking)
        return jnp.sum(jnp.where(clicks, safe_log(p), safe_log(1 - p)))


@click_model
class PositionBasedModel(IndependentClicks):
    """Position k is examined with probability χ_k; an examined item i is clicked with probability α_i, independently.

    The reward is the expected number of clicks, Σ χ_k·α(R_k) (BubbleRank, Sec. 2.1).

    Args:
      attraction: α [L], or [queries, L].
      examination: χ [K], or [queries, K].
    """

    attraction: Any = array(ndim=1, check=probability)
    examination: Any = array(ndim=1, check=probability)

    def click_probability(self, ranking: Array) -> Array:
        return self.examination_probability(ranking) * lookup(self.attraction, ranking)

    def examination_probability(self, ranking: Array) -> Array:
        return self.examination[: ranking.shape[0]]

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        """reward(better) − reward(worse), to full precision."""
        gap = lookup(self.attraction, better[:top]) - lookup(self.attraction, worse[:top])
        return ordered_sum(self.examination_probability(better[:top]) * gap)

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """The k-th largest α at the k-th largest χ (rearrangement inequality)."""
        return pair_best(self.attraction, self.examination, list_size, top)
