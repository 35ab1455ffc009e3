"""A click model's methods are those of one query and of rankings of its items; anything else is an error."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr

ALPHA = np.array([[0.2, 0.5, 0.1], [0.9, 0.3, 0.4]])
MODELS = {
    "cm": jr.CascadeModel(ALPHA),
    "dcm": jr.DependentClickModel(ALPHA, [0.5, 0.3, 1.0]),
    "pbm": jr.PositionBasedModel(ALPHA, [1.0, 0.5, 0.2]),
    "ubm": jr.UserBrowsingModel(ALPHA, np.full((3, 3), 0.5)),
    "dbn": jr.DynamicBayesianModel(ALPHA, ALPHA, 0.9),
    "ccm": jr.ClickChainModel(ALPHA, 0.9, 0.7, 0.4),
    "sdbn": jr.SimplifiedDynamicBayesianModel(ALPHA, ALPHA),
    "trust": jr.TrustBiasModel(ALPHA, [1.0, 0.5, 0.2], [0.3, 0.2, 0.1]),
    "gctr": jr.GlobalClickRate(ALPHA),
    "rctr": jr.RankClickRate(ALPHA, [1.0, 0.5, 0.2]),
    "dctr": jr.DocumentClickRate(ALPHA),
    "rdctr": jr.RankDocumentClickRate(ALPHA, np.full((3, 3), 0.5)),
}
RANKING = jnp.arange(3)
CALLS = {
    "sample": lambda model: model.sample(jax.random.key(0), RANKING),
    "click_probability": lambda model: model.click_probability(RANKING),
    "examination_probability": lambda model: model.examination_probability(RANKING),
    "reward": lambda model: model.reward(RANKING),
    "reward_gap": lambda model: model.reward_gap(RANKING, RANKING),
    "optimal_ranking": lambda model: model.optimal_ranking(2),
    "log_likelihood": lambda model: model.log_likelihood(RANKING, jnp.zeros(3, bool)),
}


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_a_query_axis_refuses_and_says_the_way_out(name, method):
    model, call = MODELS[name], CALLS[method]
    with pytest.raises(ValueError, match=rf"{method} is that of one query, and this model holds 2: take one \(model"):
        call(model)
    mapped = jr.over_instances(call, model)
    np.testing.assert_allclose(mapped, [call(one) for one in model], rtol=1e-6)


def test_users_with_an_axis_refuse_too():
    users = jr.click_models.graded_user("perfect", "navigational")
    with pytest.raises(ValueError, match=r"GradedUser.reward is that of one query, and this model holds 2"):
        users.reward(RANKING)


@pytest.mark.parametrize("name", MODELS)
def test_lists_of_any_kind_are_rankings(name):
    model = MODELS[name][0]
    expected = float(model.reward(jnp.array([2, 0])))
    for ranking in ([2, 0], (2, 0), np.array([2, 0]), np.array([2, 0], np.uint8)):
        assert float(model.reward(ranking)) == expected
    assert float(model.reward(np.eye(3)[[2, 0]])) == pytest.approx(expected, rel=1e-6), (
        "one-hot rows are a soft ranking"
    )


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        ([0.0, 1.0, 2.0], r"ranking must be items int\[K\] or weights float\[K, 3\]; got float\d\d\[3\]"),
        ([0, 1, 7], "ranking must hold items from 0 to 2; got 7"),
        ([-1, 1], "ranking must hold items from 0 to 2; got -1"),
        ([1, 2, 1], "ranking must hold each item at most once; got item 1 again"),
        ([[0, 1], [1, 2]], r"ranking must be items .*; got int\d\d\[2, 2\]"),
        (np.eye(4), r"ranking must be .*; got float\d\d\[4, 4\]"),
        ([True, False], r"ranking must be .*; got bool\[2\]"),
        (1, r"ranking must be .*; got int\d\d\[\]"),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_no_ranking_of_the_items_is_refused(name, ranking, message):
    with pytest.raises(ValueError, match=message):
        MODELS[name][0].reward(ranking)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="list_size must be an integer from 1 to 3 items; got 4"):
        MODELS["cm"][0].optimal_ranking(4)
    with pytest.raises(ValueError, match="top must be a positive integer; got 0"):
        MODELS["cm"][0].reward(RANKING, 0)
    with pytest.raises(ValueError, match=r"ranking must be items int\[K\]; got float\d\d\[3, 3\]"):
        MODELS["cm"][0].sample(jax.random.key(0), np.eye(3))


@pytest.mark.parametrize("name", MODELS)
def test_clicks_are_0_or_1(name):
    model, key = MODELS[name][0], jax.random.key(0)
    clicks = model.sample(key, RANKING)
    assert np.isfinite(model.log_likelihood(RANKING, clicks.astype(int).tolist()))
    with pytest.raises(ValueError, match="clicks must be 0 or 1 at every position; got 2"):
        model.log_likelihood(RANKING, [0, 2, 0])


def test_instances_are_taken_by_number_slice_or_list():
    model = MODELS["pbm"]
    assert model[1] == model[-1] == jr.PositionBasedModel(ALPHA[1], [1.0, 0.5, 0.2])
    assert model[:1] == model[[0]] == jr.PositionBasedModel(ALPHA[:1], [1.0, 0.5, 0.2])
    with pytest.raises(IndexError, match="PositionBasedModel has 2 instances; got 2"):
        model[2]
    with pytest.raises(TypeError, match="PositionBasedModel has no instance axis to index"):
        model[0][0]
    assert len(list(model)) == 2, "iteration ends"


def test_the_example_of_the_readme_runs_for_one_query():
    model = jr.datasets.synthetic("cm", num_queries=4)[0]
    scores = jnp.linspace(1, 0, 10)
    slope = jax.grad(lambda scores: model.reward(jr.relax.sinkhorn_sort(scores, list_size=3)))(scores)
    assert np.isfinite(slope).all() and np.abs(slope).max() > 0


def test_lists_are_taken_for_arrays():
    model = jr.CascadeModel([0.2, 0.5, 0.1])
    assert float(model.reward([0, 1, 2])) == pytest.approx(1 - 0.8 * 0.5 * 0.9)
    expected = float(model.log_likelihood(np.array([1, 0]), np.array([False, True])))
    assert expected == pytest.approx(np.log(0.5 * 0.2))
    for clicks in ([False, True], [0, 1]):
        assert float(model.log_likelihood([1, 0], clicks)) == pytest.approx(expected)


def test_a_query_axis_of_one_is_one_query():
    model = jr.CascadeModel([[0.2, 0.5, 0.1]])
    assert float(model.reward([0, 1, 2])) == float(model[0].reward([0, 1, 2]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.reward([[0], [0, 1]]), r"ranking must have rows of one length; got lengths \[1, 2\]"),
        (lambda m: m.reward(None), r"ranking must be items int\[K\] or weights float\[K, 3\]; got None"),
        (lambda m: m.reward("ab"), "ranking must be items .*; got 'ab'"),
        (lambda m: m.log_likelihood([0, 1], [True]), r"clicks must be one for each of the 2 items shown; got \[1\]"),
        (lambda m: m.log_likelihood([0, 1], [[1], [1, 0]]), "clicks must have rows of one length"),
        (lambda m: jr.CascadeModel([[0.5], [0.2, 0.1]]), r"attraction must have rows of one length; got .* \[1, 2\]"),
        (lambda m: jr.ClickBandit(m, base_ranking=[[0, 1], [1]]), "base_ranking must have rows of one length"),
        (lambda m: jr.click_models.fit("cm", [[0, 1], [1]], [[0, 1], [1]], 2), "rankings must have rows of one length"),
        (lambda m: jr.ClickBandit(jr.CascadeModel), r"must be an instance; got the class CascadeModel: write Cascade"),
        (
            lambda m: jr.ClickBandit([0.1, 0.2]),
            "ClickBandit.click_model must have the members sample, .*; list has no sample",
        ),
    ],
)
def test_what_is_no_list_of_items_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(jr.CascadeModel([0.2, 0.5, 0.1]))
