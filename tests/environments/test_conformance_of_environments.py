"""The public conformance suite of environments, and what a subclass may claim."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from streams import data
from worlds import click_model, topic_bandit

import jaxrank as jr

MODEL = click_model("pbm", 6, seed=0, num_queries=3)
ATTRACTION = np.asarray(MODEL.attraction)
CHANGE = 5_000


@jr.pytree
class Drifting(jr.ClickBandit):
    """From step 5,000 on, users like the items the other way round. It says nothing about being stationary."""

    def _now(self, query):
        later = jr.PositionBasedModel(self.click_model.attraction[::-1], self.click_model.examination)
        return query.step >= CHANGE, later

    def metrics(self, query, ranking):
        before = jr.ClickBandit.metrics(self, query, ranking)
        changed, later = self._now(query)
        regret = later.reward(later.optimal_ranking(self.list_size, self.top), self.top) - later.reward(
            ranking, self.top
        )
        return {**before, "regret": jnp.where(changed, regret, before["regret"])}


@jr.pytree
class WronglyStationary(Drifting):
    stationary: ClassVar[bool] = True


def drifting(cls=Drifting):
    return cls(MODEL, list_size=4, top=3)


@pytest.mark.parametrize(
    "environment",
    [
        jr.ClickBandit(MODEL, list_size=4, top=3),
        jr.ClickBandit(click_model("cm", 5, seed=1)),
        topic_bandit(num_items=9, num_users=3),
        pytest.param(
            jr.QueryStream(data().train, jr.click_models.graded_user("perfect", "informational"), list_size=5),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["click bandit", "one query", "topic bandit", "query stream"],
)
def test_environment_conforms(environment):
    jr.testing.check_environment(environment)


def test_a_subclass_that_changes_over_time_is_simulated_and_not_extrapolated():
    """What 0.1.0 got wrong: it took the base class's claim for the subclass's own."""
    steps = 8_000
    result = jr.simulate(jr.StaticRanking(), drifting(), steps, num_records=8, progress=False)["regret"].isel(seed=0)
    chi = np.asarray(MODEL.examination, np.float64)[:3]

    def slope(attraction):
        best = np.sort(np.sort(attraction)[::-1][:3] * 1)[::-1]
        return (np.sort(chi)[::-1] * best).sum() - (chi * attraction[:3]).sum()

    for query, attraction in enumerate(ATTRACTION.astype(np.float64)):
        before, after = slope(attraction), slope(attraction[::-1])
        expected = (CHANGE - 1) * before + (steps - CHANGE + 1) * after
        assert float(result[query, -1]) == pytest.approx(expected, rel=1e-5)
        assert abs(before - after) > 1e-3, "the change would be seen"


def test_the_suite_passes_a_subclass_that_claims_nothing_and_catches_one_that_claims_too_much():
    jr.testing.check_environment(drifting())
    with pytest.raises(AssertionError, match=r"measures a list alike at every step; regret is .* at step 1 and .* at"):
        jr.testing.check_environment(drifting(WronglyStationary))


def test_the_suite_catches_clicks_of_another_type():
    @jr.pytree
    class Counts(jr.ClickBandit):
        def clicks(self, key, query, ranking):
            return self.click_model.sample(key, ranking).astype(jnp.int32)

    with pytest.raises(AssertionError, match=r"clicks are bool\[6\], not int32"):
        jr.testing.check_environment(Counts(MODEL))


def test_the_suite_catches_metrics_of_neighbours():
    @jr.pytree
    class Leaks(jr.ClickBandit):
        """Its lanes read a value that depends on how many of them there are."""

        def metrics(self, query, ranking):
            batched = "BatchTracer" in type(ranking).__name__
            return {"regret": jnp.float32(1.0 if batched else 2.0)}

    with pytest.raises(AssertionError, match="vmap = loop"):
        jr.testing.check_environment(Leaks(MODEL))


def test_a_policy_that_overrides_rank_loses_the_claim_of_its_base_to_be_settled():
    @jr.pytree
    class Alternating(jr.StaticRanking):
        def rank(self, key, state, query):
            base = query.base_ranking[: query.list_size]
            return jnp.where(query.step <= 1_500, base, base[::-1])

    environment = jr.ClickBandit(MODEL)
    options = {"num_records": 2, "progress": False, "metrics": ("misordered",)}
    skipped = jr.simulate(Alternating(), environment, 3_000, **options)["misordered"]
    simulated = jr.simulate(Alternating(), environment, 3_000, skip_settled=False, **options)["misordered"]
    np.testing.assert_array_equal(skipped, simulated)
    assert (skipped[..., 1] != 2 * skipped[..., 0]).any(), "the list has changed"
