"""Click rates as click models: the baselines that every other model has to beat (Chuklin et al., 2015, Sec. 3.2).

P(click) depends on nothing (GCTR), on the rank (RCTR), on the document (DCTR), or on both without any structure
(RDCTR). Every position counts as examined as far as the rate does not depend on it.

Reference: Chuklin, Markov, de Rijke: Click models for web search. Morgan & Claypool 2015.
"""

from typing import Any

import jax.numpy as jnp
import optax

from jaxrank.click_models._one_query import click_model
from jaxrank.click_models.position_based import IndependentClicks
from jaxrank.core.checks import probability
from jaxrank.core.numerics import ordered_sum
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup, lookup_by_position, top_items
from jaxrank.core.types import Array


class _ClickRate(IndependentClicks):
    """Rates that are no better in one order of the items than in another, unless a subclass says so."""

    attraction: Array

    def examination_probability(self, ranking: Array) -> Array:
        return jnp.ones(ranking.shape[0])

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        return ordered_sum(self.click_probability(better[:top]) - self.click_probability(worse[:top]))

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """α descending, ties in item order."""
        return top_items(self.attraction, list_size)


@click_model
class GlobalClickRate(_ClickRate):
    """Every item is clicked at every position with the same probability, the mean of α.

    Args:
      attraction: α [L], or [queries, L].
    """

    attraction: Any = array(ndim=1, check=probability)

    def click_probability(self, ranking: Array) -> Array:
        return jnp.full(ranking.shape[0], jnp.mean(self.attraction))


@click_model
class RankClickRate(_ClickRate):
    """Position k is clicked with probability χ_k times the mean of α, whatever is there.

    Args:
      attraction: α [L], or [queries, L].
      examination: χ [K], or [queries, K].
    """

    attraction: Any = array(ndim=1, check=probability)
    examination: Any = array(ndim=1, check=probability)

    def click_probability(self, ranking: Array) -> Array:
        return self.examination_probability(ranking) * jnp.mean(self.attraction)

    def examination_probability(self, ranking: Array) -> Array:
        return self.examination[: ranking.shape[0]]


@click_model
class DocumentClickRate(_ClickRate):
    """Item i is clicked with probability α_i wherever it is shown.

    Args:
      attraction: α [L], or [queries, L].
    """

    attraction: Any = array(ndim=1, check=probability)

    def click_probability(self, ranking: Array) -> Array:
        return lookup(self.attraction, ranking)


@click_model
class RankDocumentClickRate(_ClickRate):
    """Item i is clicked at position k with probability α_i·ρ_ik. The reward is the expected number of clicks.

    Args:
      attraction: α [L], or [queries, L]: the item's rate at its best position.
      relative_rate: ρ [L, K], or [queries, L, K]: the rate at a position, relative to that.
    """

    attraction: Any = array(ndim=1, check=probability)
    relative_rate: Any = array(ndim=2, check=probability)

    def _validate(self) -> None:
        if self.relative_rate.shape[-2] != self.attraction.shape[-1]:
            raise ValueError(
                f"RankDocumentClickRate.relative_rate must have a row for each of the {self.attraction.shape[-1]} "
                f"items of attraction; got shape {self.relative_rate.shape}"
            )

    def _read(self, values: Array, ranking: Array) -> Array:
        """float[K]: values [L, K] of the item at each position."""
        return lookup_by_position(values[:, : ranking.shape[0]], ranking)

    def click_probability(self, ranking: Array) -> Array:
        return self._read(self.attraction[:, None] * self.relative_rate, ranking)

    def examination_probability(self, ranking: Array) -> Array:
        return self._read(self.relative_rate, ranking)

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """The best assignment of items to the first ``top`` positions, then the rest, α descending."""
        top = list_size if top is None else min(top, list_size)
        rates = self.attraction[:, None] * self.relative_rate[:, :top]
        items, positions = optax.assignment.hungarian_algorithm(-rates)
        best = jnp.zeros(top, jnp.int32).at[positions].set(items.astype(jnp.int32))
        shown = jnp.any(best[:, None] == jnp.arange(rates.shape[0])[None, :], axis=0)
        return jnp.concatenate([best, top_items(jnp.where(shown, -1, self.attraction), list_size - top)])
