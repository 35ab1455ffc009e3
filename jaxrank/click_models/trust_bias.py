"""The trust-bias model: high positions are trusted, and clicked for it (Agarwal et al., WWW 2019)."""

from typing import Any

from jaxrank.click_models._one_query import click_model
from jaxrank.click_models.position_based import IndependentClicks, pair_best
from jaxrank.core.checks import probability
from jaxrank.core.numerics import ordered_sum
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup
from jaxrank.core.types import Array


@click_model
class TrustBiasModel(IndependentClicks):
    """Position k is examined with probability χ_k; an examined item that is not attractive is clicked with t_k.

    P(click at k) = χ_k·(α + t_k·(1 − α)) with α = α(R_k): a position-based model with noise that is highest where users
    trust the ranker most. In the paper's terms, χ_k = θ_k·ε⁺_k and t_k = ε⁻_k/ε⁺_k: clicks depend on nothing else. The
    reward is the expected number of clicks.

    Args:
      attraction: α [L], or [queries, L].
      examination: χ [K], or [queries, K].
      trust: t [K], or [queries, K].
    """

    attraction: Any = array(ndim=1, check=probability)
    examination: Any = array(ndim=1, check=probability)
    trust: Any = array(ndim=1, check=probability)

    def _validate(self) -> None:
        if self.trust.shape[-1] != self.examination.shape[-1]:
            raise ValueError(
                f"TrustBiasModel.trust must have one value for each of the {self.examination.shape[-1]} positions of "
                f"examination; got shape {self.trust.shape}"
            )

    def click_probability(self, ranking: Array) -> Array:
        alpha, trust = lookup(self.attraction, ranking), self.trust[: ranking.shape[0]]
        return self.examination_probability(ranking) * (alpha + trust * (1 - alpha))

    def examination_probability(self, ranking: Array) -> Array:
        return self.examination[: ranking.shape[0]]

    def _weight(self) -> Array:
        """float[K]: what a unit of attraction is worth at each position, in clicks."""
        return self.examination * (1 - self.trust)

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        """reward(better) − reward(worse), to full precision."""
        gap = lookup(self.attraction, better[:top]) - lookup(self.attraction, worse[:top])
        return ordered_sum(self._weight()[: gap.shape[0]] * gap)

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """The k-th largest α at the k-th largest χ·(1 − t) (rearrangement inequality)."""
        return pair_best(self.attraction, self._weight(), list_size, top)
