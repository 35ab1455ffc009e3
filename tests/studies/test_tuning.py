"""Evolution over simulations finds the better hyper-parameter of a world in which it is known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from streams import stream
from worlds import topic_bandit

import jaxrank as jr
from jaxrank.core.checks import positive
from jaxrank.core.pytrees import array, pytree
from jaxrank.studies.tuning import best_on_grid


@pytree
class Shuffles:
    """Shows the items in order if |log x/3| is small, otherwise the reverse, more and more often: best at x = 3."""

    x: object = array(ndim=0, check=positive, default=20.0)
    y: object = array(ndim=0, check=positive, default=1.0)

    def init(self, key, query):
        return ()

    def rank(self, key, state, query):

        wrong = jax.random.uniform(key) < jnp.abs(jnp.log(self.x / 3)) / 3
        return jnp.where(wrong, query.base_ranking[::-1], query.base_ranking)[: query.list_size]

    def update(self, key, state, query, ranking, clicks):
        return state


WORLD = jr.ClickBandit(jr.PositionBasedModel([0.9, 0.5, 0.1], [1.0, 0.5, 0.2]))


@pytest.mark.parametrize("metric", ["regret", "reward"])
def test_the_best_setting_is_found_by_either_sign_of_a_metric(metric):
    found = jr.tune(
        Shuffles(), WORLD, 300, ("x",), metric=metric, maximize=metric == "reward", num_generations=10, population=8
    )
    assert found.values["x"] == pytest.approx(3, rel=0.15)
    assert float(found.policy.x) == pytest.approx(found.values["x"], rel=1e-6) and float(found.policy.y) == 1
    assert [h["x"] for h in found.history][-1] == found.values["x"] and len(found.history) == 10


def test_settings_of_a_generation_share_their_random_numbers():
    sweep = dataclasses.replace(Shuffles(), x=np.full(3, 7.0))
    regret = jr.simulate(sweep, WORLD, 50, progress=False)["regret"].values
    assert (regret == regret[:1]).all() and regret[0, 0, -1] > 0


@pytest.mark.parametrize(
    ("policy", "world", "names"),
    [
        (jr.CascadeHybrid(), lambda: topic_bandit(num_items=9, num_users=3), {"gamma": 2.0}),
        (jr.PairRank(window=64), lambda: stream(list_size=4), ("alpha", "regularization")),
        (jr.PDGD(), lambda: stream(list_size=4), ("learning_rate",)),
    ],
)
def test_the_papers_hyper_parameters_can_be_tuned(policy, world, names):
    found = jr.tune(policy, world(), 12, names, num_generations=1, population=4)
    assert set(found.values) == set(names) and all(np.isfinite(v) and v > 0 for v in found.values.values())
    assert all(found.values[name] != float(getattr(policy, name)) for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ("z",)}, "names must be real scalar leaves of Shuffles; got 'z'"),
        ({"names": ()}, "names must name at least one"),
        ({"names": {"x": -1.0}}, "names must start at positive values; got x = -1.0"),
        ({"population": 5}, "population must be an even number; got 5"),
        ({"num_generations": 0}, "num_generations must be a positive integer; got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        jr.tune(Shuffles(), WORLD, 10, **{"names": ("x",), **arguments})


def test_tune_names_what_it_cannot_take():
    environment = jr.ClickBandit(jr.CascadeModel([0.1, 0.2]))
    for policy, names, options, message in (
        (jr.BubbleRank, ("delta",), {}, "policy must be an instance; got the class BubbleRank"),
        (jr.BubbleRank(delta=0.1), "delta", {}, r"names must be a sequence of names, .*: write \('delta',\)"),
        (jr.BubbleRank(delta=0.1), ("detla",), {}, "got 'detla'; did you mean 'delta'"),
        (jr.BubbleRank(delta=0.1), ("delta",), {"seed": -1}, "seed must be an integer from 0 to .*; got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            jr.tune(policy, environment, 10, names, **options)


def test_a_grid_is_widened_while_its_edge_is_best():
    asked = []

    def score(values):
        asked.extend(values)
        return [-abs(np.log2(value) - 5) for value in values]

    assert best_on_grid(score, (1.0, 2.0, 4.0)) == (32.0, [1, 2, 4, 8, 16, 32, 64])
    assert asked == [1, 2, 4, 8, 16, 32, 64], "and no further"
    assert best_on_grid(score, (1.0, 2.0), most=1) == (4.0, [1, 2, 4])
    assert best_on_grid(score, (2.0**6, 2.0**7, 2.0**8)) == (32.0, [16, 32, 64, 128, 256])
    assert best_on_grid(list, (0.2, 0.4), highest=1.0) == (1.0, [0.2, 0.4, 0.8, 1.0]), "ε is a probability"
