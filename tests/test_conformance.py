"""Everything that is registered passes the public conformance suite."""

import dataclasses

import jax
import numpy as np
import pytest
from streams import data
from worlds import topic_bandit

import jaxrank as jr
from jaxrank.core.pytrees import pytree
from jaxrank.core.registry import factory

OPTIONS = [
    *((name, {}) for name in jr.available()),
    pytest.param("bubblerank", {"doubling": True, "horizon": 8}, marks=pytest.mark.slow),
    pytest.param("cascade_hybrid", {"exploration": "ts"}, marks=pytest.mark.slow),
]
WITH_FEATURES = ("cascade_lin_ucb", "cascade_lin_ts", "cascade_lsb", "cascade_hybrid")
PARAMETERS = {
    "examination_after": np.linspace(0.95, 0.2, 25).reshape(5, 5),
    "satisfaction": [0.5, 0.1, 0.9, 0.3, 0.6],
    "continuation": 0.8,
    "tau1": 0.9,
    "tau2": 0.7,
    "tau3": 0.4,
    "attraction": [0.2, 0.5, 0.1, 0.9, 0.3],
    "examination": [1.0, 0.2, 0.6, 0.9, 0.3],
    "termination": [0.3, 0.9, 0.1, 1.0, 0.0],
}
MODELS = {
    name: [f.name for f in dataclasses.fields(factory(name, "click_model"))] for name in jr.available("click_model")
}


RANKERS = ("pairrank", "pdgd", "dbgd", "mgd", "epsilon_greedy", "sgd_ranknet")


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_policy_conforms(name, options):
    world = None
    if name in WITH_FEATURES:
        world = topic_bandit(num_items=9, num_users=3)
    if name in RANKERS:  # users as instances; some queries have fewer documents than the list has positions
        users = jr.click_models.graded_user("perfect", "informational")
        world = jr.QueryStream(data().train, users, list_size=5)
    jr.testing.check_policy(jr.make(name, **options), world)


@pytest.mark.parametrize("name", jr.available("click_model"))
def test_click_model_conforms(name):
    jr.testing.check_click_model(jr.make(name, kind="click_model", **{p: PARAMETERS[p] for p in MODELS[name]}))


def test_the_suite_catches_a_list_with_a_repeated_item():
    @pytree
    class Repeats(jr.StaticRanking):
        def rank(self, key, state, query):
            return query.base_ranking[: query.list_size] * 0

    with pytest.raises(AssertionError, match="distinct items"):
        jr.testing.check_policy(Repeats())


def test_the_suite_catches_a_policy_that_reads_its_neighbours():
    @pytree
    class PeeksAtLane(jr.StaticRanking):
        """Asks how large the batch is: jit of one lane and vmap of many disagree."""

        def rank(self, key, state, query):
            batched = isinstance(key, jax.core.Tracer) and "BatchTracer" in type(key).__name__
            ranking = query.base_ranking[: query.list_size]
            return ranking[::-1] if batched else ranking

    with pytest.raises(AssertionError, match=r"vmap = loop"):
        jr.testing.check_policy(PeeksAtLane())


def test_the_suite_catches_samples_that_do_not_follow_the_likelihood():
    @pytree
    class ClicksTooMuch(jr.CascadeModel):
        def sample(self, key, ranking):
            return jr.CascadeModel.sample(self, key, ranking[::-1])[::-1]

    with pytest.raises(AssertionError, match=r"samples follow the likelihood|nothing impossible"):
        jr.testing.check_click_model(ClicksTooMuch([0.2, 0.5, 0.1, 0.9, 0.3]))
