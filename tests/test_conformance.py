"""Everything that is registered passes the public conformance suite."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from streams import data
from worlds import topic_bandit

import jaxrank as jr
from jaxrank.core.pytrees import pytree
from jaxrank.core.registry import factory

# They share their code with others of their families, which are always checked.
SLOW = (
    *("ranked_klucb", "ranked_ucb1", "glrt_cascade_klucb", "cascade_ducb", "pbm_pie"),
    *("cascade_lin_ts", "cascade_lsb", "dbgd", "sgd_ranknet", "neural_pdgd", "ol_lambdarank"),
)
OPTIONS = [
    *(pytest.param(name, {}, marks=[pytest.mark.slow] * (name in SLOW)) for name in jr.available()),
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
    "trust": [0.4, 0.1, 0.3, 0.0, 0.2],
    "relative_rate": np.linspace(0.1, 1.0, 25).reshape(5, 5) % 0.37 + 0.6,
    "termination": [0.3, 0.9, 0.1, 1.0, 0.0],
}
MODELS = {
    name: [f.name for f in dataclasses.fields(factory(name, "click_model"))] for name in jr.available("click_model")
}


RANKERS = (
    *("pairrank", "pdgd", "dbgd", "mgd", "epsilon_greedy", "sgd_ranknet"),
    *("neural_pdgd", "p2neurrank", "ol_ranknet", "ol_lambdarank"),
)


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


class Mean(NamedTuple):
    shown: jax.Array  # int32[]
    mean: jax.Array  # float[L]


@pytree
class Divides(jr.StaticRanking):
    """Divides by 0 when ``steps`` lists were shown."""

    steps: int = jr.static(default=2)

    def init(self, key, query):
        return Mean(jnp.int32(0), jnp.zeros(query.num_items))

    def update(self, key, state, query, ranking, clicks):
        left = (self.steps - state.shown).astype(state.mean.dtype)
        return Mean(state.shown + 1, state.mean.at[1].set(left / left * 0))


def test_the_suite_calls_nan_by_its_name_and_says_where_it_is_and_how_to_see_it_again():
    with pytest.raises(AssertionError) as failed:
        jr.testing.check_policy(Divides(), num_steps=5, seed=3)
    message = str(failed.value)
    assert message.startswith("the state after step 3 of lane 0 has no NaN, but one in its field mean at index (1,)")
    assert " (lists of 5 of 5 items). To see it again: " in message
    call = message.split("To see it again: ")[1]
    assert call == "jr.testing.check_policy(Divides(), num_steps=5, seed=3)"
    with pytest.raises(AssertionError) as again:
        eval(call)
    assert str(again.value) == message


def test_the_suite_names_the_step_and_the_field_that_differ():
    @pytree
    class Peeks(Divides):
        def update(self, key, state, query, ranking, clicks):
            batched = "BatchTracer" in type(ranking).__name__
            return Mean(state.shown + 1, state.mean + jnp.where(batched & (state.shown == 1), 0.5, 0))

    message = (
        r"vmap = loop: the state of lane 0 after step 2 is the same, but its field mean at index \(0,\) is 0\.5 and"
    )
    with pytest.raises(AssertionError, match=message):
        jr.testing.check_policy(Peeks(), num_steps=3)


def test_the_suite_names_the_field_of_a_state_that_changes_its_type():
    @pytree
    class Grows(Divides):
        def update(self, key, state, query, ranking, clicks):
            return Mean(state.shown + 1, jnp.append(state.mean, 0))

    message = r"the state keeps its fields, shapes and types, but after step 1 its field mean is float\d\d\[6\] and not"
    with pytest.raises(AssertionError, match=message):
        jr.testing.check_policy(Grows(), num_steps=3)


def test_the_suite_says_what_a_plain_class_lacks():
    class Plain:
        def init(self, key, query): ...

        rank = update = init

    with pytest.raises(ValueError, match=r"policy must be a pytree; got a Plain, .*: put @jr\.pytree above its class"):
        jr.testing.check_policy(Plain())


def test_the_suite_names_the_clicks_of_a_likelihood_that_is_nan():
    @pytree
    class Divides(jr.CascadeModel):
        def log_likelihood(self, ranking, clicks):
            return jnp.where(clicks[0] & ~clicks[1], jnp.nan, 0.0)

    message = r"but NaN for clicks \[1 0\] on the list \[.*\]\. To see it again: jr\.testing\.check_click_model\("
    with pytest.raises(
        AssertionError, match=message + r"Divides\(attraction=\[0\.2, 0\.5, 0\.1\]\), list_size=2, samples="
    ):
        jr.testing.check_click_model(Divides([0.2, 0.5, 0.1]), list_size=2)


def test_the_suite_names_the_list_and_the_position_of_a_wrong_probability():
    @pytree
    class Doubts(jr.CascadeModel):
        def click_probability(self, ranking):
            return jr.CascadeModel.click_probability(self, ranking).at[1].multiply(0.5)

    message = (
        r"click_probability of the list \[.*\] is that of the likelihood, but at index \(1,\) is 0\.\d+ and not 0\.\d+"
    )
    with pytest.raises(AssertionError, match=message):
        jr.testing.check_click_model(Doubts([0.2, 0.5, 0.1]), list_size=2)


def test_the_suite_names_the_metric_and_the_step_that_are_nan():
    @pytree
    class Breaks(jr.ClickBandit):
        def metrics(self, query, ranking):
            return {"regret": jnp.where(query.step > 100, jnp.nan, 0.0)}

    with pytest.raises(AssertionError, match=r"metric\.regret is finite, but nan at step 128\. To see it again: jr\."):
        jr.testing.check_environment(Breaks(jr.CascadeModel([0.2, 0.5])))


def test_the_suite_catches_samples_that_do_not_follow_the_likelihood():
    @pytree
    class ClicksTooMuch(jr.CascadeModel):
        def sample(self, key, ranking):
            return jr.CascadeModel.sample(self, key, ranking[::-1])[::-1]

    with pytest.raises(AssertionError, match=r"samples follow the likelihood|nothing impossible"):
        jr.testing.check_click_model(ClicksTooMuch([0.2, 0.5, 0.1, 0.9, 0.3]))
