"""The dynamic Bayesian model (DBN): clicks may satisfy, and satisfied users leave (Chapelle and Zhang, WWW 2009)."""

import jax.numpy as jnp

from jaxrank.click_models._chain import Chain, ChainModel
from jaxrank.click_models._one_query import click_model
from jaxrank.core.checks import probability
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup
from jaxrank.core.types import Array


def _one_satisfaction_each(model: "DynamicBayesianModel | SimplifiedDynamicBayesianModel") -> None:
    if model.satisfaction.shape[-1] != model.attraction.shape[-1]:
        raise ValueError(
            f"{type(model).__name__}.satisfaction must have one value for each of the {model.attraction.shape[-1]} "
            f"items of attraction; got shape {model.satisfaction.shape}"
        )


@click_model
class DynamicBayesianModel(ChainModel):
    """The user clicks every attractive item. A click satisfies with probability σ; satisfied users leave.

    A user who is not satisfied continues with probability γ, with or without a click. So
    χ(R, k) = Π_{i<k} γ·(1 − α(R_i)·σ(R_i)), and the reward is the expected number of clicks, Σ χ(R, k)·α(R_k). A
    satisfying item ends the session, so α descending is not optimal in general; ``optimal_ranking`` is exact.

    Args:
      attraction: α [L], or [queries, L].
      satisfaction: σ [L], or [queries, L]: P(satisfied | click).
      continuation: γ, a number, or [queries]: P(continues | not satisfied).
    """

    attraction: Array = array(ndim=1, check=probability)
    satisfaction: Array = array(ndim=1, check=probability)
    continuation: Array = array(ndim=0, check=probability)

    def _validate(self) -> None:
        _one_satisfaction_each(self)

    def _chain(self, ranking: Array) -> Chain:
        unsatisfied = 1 - lookup(self.satisfaction, ranking)
        return Chain(
            attraction=lookup(self.attraction, ranking),
            after_skip=jnp.broadcast_to(self.continuation, ranking.shape),
            after_click=self.continuation * unsatisfied,
        )


@click_model
class SimplifiedDynamicBayesianModel(ChainModel):
    """The dynamic Bayesian model whose users read on until they are satisfied: γ = 1 (Chapelle and Zhang, Sec. 5).

    χ(R, k) = Π_{i<k} (1 − α(R_i)·σ(R_i)), and the reward is the expected number of clicks.

    Args:
      attraction: α [L], or [queries, L].
      satisfaction: σ [L], or [queries, L]: P(satisfied | click).
    """

    attraction: Array = array(ndim=1, check=probability)
    satisfaction: Array = array(ndim=1, check=probability)

    def _validate(self) -> None:
        _one_satisfaction_each(self)

    def _chain(self, ranking: Array) -> Chain:
        attraction = lookup(self.attraction, ranking)
        return Chain(attraction, jnp.ones_like(attraction), 1 - lookup(self.satisfaction, ranking))
