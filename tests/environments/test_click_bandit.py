"""The stochastic click bandit and its metrics, against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr
from jaxrank.core.pytrees import take_instances

ATTRACTION = np.array([[0.3, 0.5, 0.1, 0.5, 0.9, 0.2], [0.6, 0.1, 0.2, 0.4, 0.05, 0.8]])
MODEL = jr.PositionBasedModel(ATTRACTION, [0.9, 1.0, 0.5, 0.6, 0.3, 0.2])


def inversions(attraction):
    K = len(attraction)
    return sum(attraction[i] < attraction[j] for i in range(K) for j in range(i + 1, K))


@pytest.mark.parametrize("query", [0, 1])
def test_metrics_are_what_the_papers_define(query):
    base = [[5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5]]
    environment = take_instances(jr.ClickBandit(MODEL, base_ranking=base, list_size=5, top=3), query)
    alpha, chi = ATTRACTION[query], np.asarray(MODEL.examination)
    rng = np.random.default_rng(query)
    violations = 0
    for _ in range(200):
        ranking = rng.permutation(6)[:5]
        got = {name: float(v) for name, v in environment.metrics(None, jnp.asarray(ranking)).items()}
        shown = alpha[ranking]
        ideal = -np.sort(-alpha)[:5]
        discount = 1 / np.log2(np.arange(5) + 2)
        weights = -np.sort(-chi[:3])
        optimum = (weights * ideal[:3]).sum()
        assert got["reward"] == pytest.approx((chi[:3] * shown[:3]).sum(), rel=1e-5)
        assert got["regret"] == pytest.approx(optimum - (chi[:3] * shown[:3]).sum(), abs=1e-6)
        assert got["clicks"] == pytest.approx((chi[:5] * shown).sum(), rel=1e-5)
        assert got["misordered"] == inversions(shown)
        unsafe = inversions(shown) > inversions(alpha[np.array(base[query])[:5]]) + 5 / 2
        assert got["violations"] == unsafe
        violations += unsafe
        for k in range(1, 6):
            ndcg = (shown * discount)[:k].sum() / (ideal * discount)[:k].sum()
            assert got[f"ndcg@{k}"] == pytest.approx(ndcg, rel=1e-5)
        assert got["ndcg"] == got["ndcg@3"]
    assert query == 0 or violations > 0, "the test has seen unsafe lists"


def test_the_base_list_is_item_order_unless_given():
    environment = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3]), list_size=2)
    np.testing.assert_array_equal(environment.base_ranking, [0, 1, 2])


def test_a_base_list_of_the_shown_items_is_completed():
    environment = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3, 0.4]), list_size=2, base_ranking=[3, 1])
    np.testing.assert_array_equal(environment.base_ranking, [3, 1, 0, 2])
    again = jr.ClickBandit(jr.CascadeModel(ATTRACTION), list_size=2, base_ranking=[[3, 1], [0, 5]])
    np.testing.assert_array_equal(again.base_ranking, [[3, 1, 0, 2, 4, 5], [0, 5, 1, 2, 3, 4]])


def test_a_query_tells_what_a_policy_may_see():
    environment = take_instances(jr.ClickBandit(MODEL, list_size=4), 0)
    query = environment.query(jax.random.key(0), jnp.int32(3))
    assert (query.step, query.num_items, query.list_size) == (3, 6, 4)
    np.testing.assert_array_equal(query.examination, MODEL.examination[:4])
    assert take_instances(jr.ClickBandit(jr.CascadeModel(ATTRACTION)), 0).query(None, jnp.int32(1)).examination is None


def test_nothing_attractive_gives_no_nan():
    environment = jr.ClickBandit(jr.CascadeModel([0.0, 0.0]))
    metrics = environment.metrics(None, jnp.array([1, 0]))
    assert all(np.isfinite(float(v)) for v in metrics.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"list_size": 7}, "ClickBandit.list_size must be an integer from 1 to 6 items; got 7"),
        ({"list_size": 0}, "ClickBandit.list_size must be an integer from 1 to 6 items; got 0"),
        ({"list_size": 2.5}, "ClickBandit.list_size must be an integer from 1 to 6 items; got 2.5"),
        ({"list_size": 3, "top": 4}, "ClickBandit.top must be an integer from 1 to 3 positions of the list; got 4"),
        ({"base_ranking": [0, 1, 2, 3, 4, 4]}, r"distinct items from 0 to 5; got \[0, 1, 2, 3, 4, 4\]"),
        ({"base_ranking": [0, 1, 2, 3, 4, 6]}, "distinct items from 0 to 5"),
        ({"base_ranking": [0, 1, 2, 3, 4, -1]}, "base_ranking must be non-negative and finite; got -1"),
        ({"base_ranking": [0, 1]}, r"must rank the 6 shown or all 6 items; got shape \(2,\)"),
        ({"base_ranking": [0.5] * 6}, "base_ranking must hold integers"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        jr.ClickBandit(jr.CascadeModel(ATTRACTION), **options)


def test_lists_longer_than_the_examined_positions_are_refused():
    model = jr.PositionBasedModel([0.1, 0.2, 0.3], [1.0, 0.5])
    with pytest.raises(ValueError, match=r"at most the 2 positions of PositionBasedModel\.examination"):
        jr.ClickBandit(model)
    assert jr.ClickBandit(model, list_size=2).list_size == 2


def test_what_is_no_click_model_is_named_in_one_line():
    class Plain:
        attraction = np.array([0.1, 0.2])
        sample = click_probability = examination_probability = reward = optimal_ranking = log_likelihood = None

    for model, message in (
        (jr.CascadeModel, r"click_model must be an instance; got the class CascadeModel: write CascadeModel\(…\)"),
        (jr.BubbleRank(), r"click_model must have the members sample, .*; BubbleRank has no sample, click_prob"),
        (Plain(), r"click_model must be a pytree; got a Plain, which is not one: put @jr.pytree above"),
    ):
        with pytest.raises(ValueError, match=r"ClickBandit\." + message):
            jr.ClickBandit(model)


def test_regret_against_attraction_is_zero_for_the_list_that_sorts_by_it():
    """In DCM with a termination that rises, the best pairing is another list, and its regret is then negative."""
    users = jr.DependentClickModel([0.3, 0.9, 0.6], [0.1, 0.5, 0.9])
    by_attraction = jr.ClickBandit(users, list_size=3, reference="attraction")
    best = jr.ClickBandit(users, list_size=3)
    assert by_attraction.optimal_ranking.tolist() == [1, 2, 0] != best.optimal_ranking.tolist()
    query = best.query(None, 1)
    gap = float(best.metrics(query, by_attraction.optimal_ranking)["regret"])
    assert gap > 0
    assert float(by_attraction.metrics(query, by_attraction.optimal_ranking)["regret"]) == 0
    assert float(by_attraction.metrics(query, best.optimal_ranking)["regret"]) == pytest.approx(-gap, rel=1e-5)
