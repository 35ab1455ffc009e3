"""A click model of one's own, written from the protocol and the public names alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr

TRUST = {"examination": [1.0, 0.7, 0.5, 0.4], "trusted": [0.98, 0.9, 0.85, 0.8], "clicked_anyway": [0.6, 0.4, 0.2, 0.1]}


@jr.pytree
class TrustBias:
    """Position bias with trust: an examined item is clicked with ε⁺_k·α + ε⁻_k·(1 − α) (Agarwal et al., WWW 2019)."""

    attraction: Any = jr.array(ndim=1, check=jr.checks.probability)
    examination: Any = jr.array(ndim=1, check=jr.checks.probability)
    trusted: Any = jr.array(ndim=1, check=jr.checks.probability)  # ε⁺
    clicked_anyway: Any = jr.array(ndim=1, check=jr.checks.probability)  # ε⁻

    def sample(self, key, ranking):
        return jax.random.uniform(key, ranking.shape) < self.click_probability(ranking)

    def click_probability(self, ranking):
        K = ranking.shape[0]
        alpha = jr.lookup(self.attraction, ranking)
        return self.examination[:K] * (self.trusted[:K] * alpha + self.clicked_anyway[:K] * (1 - alpha))

    def examination_probability(self, ranking):
        return self.examination[: ranking.shape[0]]

    def reward(self, ranking, top=None):
        return jnp.sum(self.click_probability(ranking[:top]))

    def optimal_ranking(self, list_size, top=None):
        top = list_size if top is None else top
        weight = (self.examination * (self.trusted - self.clicked_anyway))[:top]
        items = jr.top_items(self.attraction, list_size)
        return items.at[jr.top_items(weight, top)].set(items[:top])

    def log_likelihood(self, ranking, clicks):
        p = jnp.clip(self.click_probability(ranking), 1e-6, 1 - 1e-6)
        return jnp.sum(jnp.where(clicks, jnp.log(p), jnp.log(1 - p)))


def test_it_conforms_and_is_a_click_model():
    model = TrustBias([0.2, 0.5, 0.1, 0.9, 0.3], **TRUST)
    assert isinstance(model, jr.ClickModel) and not hasattr(model, "reward_gap")
    jr.testing.check_click_model(model, list_size=4)


def test_it_runs_in_a_click_bandit_where_regret_is_the_difference_of_rewards():
    attraction = np.array([[0.2, 0.5, 0.1, 0.9], [0.3, 0.3, 0.6, 0.1]])
    environment = jr.ClickBandit(TrustBias(attraction, **TRUST), top=2)
    jr.testing.check_environment(environment)
    policies = {"BubbleRank": jr.BubbleRank(), "production": jr.StaticRanking()}
    regret = jr.compare(policies, environment, 4_000, num_seeds=5, progress=False)["regret"].isel(step=-1).mean("seed")
    assert (regret.sel(policy="BubbleRank") < regret.sel(policy="production")).all()
    one = TrustBias(attraction[0], **TRUST)
    slope = float(one.reward(one.optimal_ranking(4, 2), 2) - one.reward(jnp.arange(4), 2))
    assert float(regret.sel(policy="production")[0]) == pytest.approx(4_000 * slope, rel=1e-4)


def test_a_list_has_no_more_positions_than_the_model():
    with pytest.raises(ValueError, match=r"list_size must be at most the 4 positions of TrustBias.examination; got 5"):
        jr.ClickBandit(TrustBias([0.2, 0.5, 0.1, 0.9, 0.3], **TRUST))


def test_the_suite_catches_a_model_that_knows_hard_rankings_only():
    @jr.pytree
    class Hard(jr.PositionBasedModel):
        def click_probability(self, ranking):
            return self.examination[: ranking.shape[0]] * self.attraction[ranking]

    with pytest.raises(AssertionError, match=r"click_probability takes soft rankings, float\[K, L\], too"):
        jr.testing.check_click_model(Hard([0.2, 0.5, 0.1, 0.9], [1.0, 0.5, 0.5, 0.2]))


def test_the_suite_catches_a_gap_that_is_not_one():
    @jr.pytree
    class Doubles(jr.CascadeModel):
        def reward_gap(self, better, worse, top=None):
            return 2 * jr.CascadeModel.reward_gap(self, better, worse, top)

    with pytest.raises(AssertionError, match="reward_gap is the difference of two rewards"):
        jr.testing.check_click_model(Doubles([0.2, 0.5, 0.1, 0.9]), list_size=3)
