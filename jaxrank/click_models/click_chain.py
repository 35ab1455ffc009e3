"""The click chain model (CCM): the clicked items decide whether the user continues (Guo et al., WWW 2009)."""

import jax.numpy as jnp

from jaxrank.click_models._chain import Chain, ChainModel
from jaxrank.click_models._one_query import click_model
from jaxrank.core.checks import probability
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup
from jaxrank.core.types import Array


@click_model
class ClickChainModel(ChainModel):
    """The user clicks every attractive item; P(continues) is τ1 after no click and τ2·(1−α) + τ3·α after a click.

    χ(R, k) = Π_{i<k} ((1−α)·τ1 + α·(τ2·(1−α) + τ3·α)) with α = α(R_i), and the reward is the expected number of
    clicks, Σ χ(R, k)·α(R_k).

    Args:
      attraction: α [L], or [queries, L].
      tau1: P(continues) after no click; a number, or [queries].
      tau2: P(continues) after a click on an item that turned out irrelevant; a number, or [queries].
      tau3: P(continues) after a click on an item that turned out relevant; a number, or [queries].
    """

    attraction: Array = array(ndim=1, check=probability)
    tau1: Array = array(ndim=0, check=probability)
    tau2: Array = array(ndim=0, check=probability)
    tau3: Array = array(ndim=0, check=probability)

    def _chain(self, ranking: Array) -> Chain:
        attraction = lookup(self.attraction, ranking)
        return Chain(
            attraction=attraction,
            after_skip=jnp.broadcast_to(self.tau1, ranking.shape),
            after_click=self.tau2 * (1 - attraction) + self.tau3 * attraction,
        )
