"""The topic bandit against plain NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference.linear_cascade import coverage, gain
from worlds import topic_bandit

import jaxrank as jr
from jaxrank.core.bounds import cascadehybrid_bound, cascadehybrid_eta
from jaxrank.core.pytrees import take_instances


def attraction(environment, ranking):
    """Eq. 20 with the gains of eq. 5, one item at a time."""
    x, z = np.asarray(environment.true_topics, np.float64), np.asarray(environment.features, np.float64)
    theta, beta = np.asarray(environment.preference, np.float64), np.asarray(environment.relevance, np.float64)
    share = float(environment.trade_off)
    return np.array(
        [
            min(1, max(0, (1 - share) * gain(x, a, ranking[:k]) @ theta + share * z[a] @ beta))
            for k, a in enumerate(ranking)
        ]
    )


def reward(environment, ranking):
    return 1 - np.prod(1 - attraction(environment, ranking))


def small_world(**options):
    true = np.random.default_rng(5).uniform(0, 0.7, (6, 4))
    return topic_bandit(num_items=6, list_size=3, num_users=3, true_topics=true, **options)


@pytest.mark.parametrize("user", [0, 2])
def test_metrics_are_those_of_the_true_topics(user):
    environment = take_instances(small_world(trade_off=[0.0, 0.3, 1.0]), user)
    x = np.asarray(environment.true_topics, np.float64)
    best = reward(environment, environment.optimal_ranking.tolist())
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for ranking in itertools.permutations(range(6), 3):
        got = {name: float(v) for name, v in environment.metrics(None, jnp.asarray(ranking)).items()}
        np.testing.assert_allclose(
            environment.attraction(jnp.asarray(ranking)), attraction(environment, ranking), atol=1e-6
        )
        assert got["reward"] == pytest.approx(reward(environment, ranking), abs=1e-6)
        assert got["regret"] == pytest.approx(best - reward(environment, ranking), abs=1e-6)
        assert got["coverage"] == pytest.approx(np.mean([coverage(x, ranking, j) for j in range(4)]), abs=1e-6)
        cosines = [unit[i] @ unit[j] for i, j in itertools.combinations(ranking, 2)]
        assert got["similarity"] == pytest.approx(np.mean(cosines), abs=1e-6)


def test_clicks_are_those_of_the_cascade():
    """20,000 sessions: the frequency of a click at each position and of none, within 4.5 standard errors."""
    environment = topic_bandit(num_items=8, list_size=4)
    ranking = jnp.asarray([5, 2, 7, 1])
    keys = jax.random.split(jax.random.key(0), 20_000)
    clicks = np.asarray(jax.jit(jax.vmap(lambda key: environment.clicks(key, None, ranking)))(keys))
    alpha = attraction(environment, ranking.tolist())
    assert (alpha > 0).sum() >= 3
    expected = alpha * np.append(1, np.cumprod(1 - alpha)[:-1])
    assert clicks.sum(axis=1).max() == 1
    error = np.sqrt(expected * (1 - expected) / 20_000)
    assert (np.abs(clicks.mean(axis=0) - expected) <= 4.5 * error).all(), (clicks.mean(axis=0), expected)


def test_the_benchmark_is_greedy_for_every_one_of_many_users():
    """100 users and 1,000 items: sizes at which XLA has got sums of products wrong (see topic_bandit._dot)."""
    environment = topic_bandit(num_items=1_000, list_size=4, num_users=100, trade_off=np.linspace(0, 1, 100))
    for user in range(0, 100, 11):
        one = take_instances(environment, user)
        x, theta = np.asarray(one.true_topics, np.float64), np.asarray(one.preference, np.float64)
        relevance = np.asarray(one.features, np.float64) @ np.asarray(one.relevance, np.float64)
        share, uncovered, taken = float(one.trade_off), np.ones(4), []
        for chosen in one.optimal_ranking.tolist():
            alpha = (1 - share) * (x * uncovered) @ theta + share * relevance
            alpha[taken] = -np.inf
            assert alpha[chosen] >= alpha.max() - 1e-6
            taken.append(chosen)
            uncovered *= 1 - x[chosen]
        assert float(one.metrics(None, one.optimal_ranking)["regret"]) == pytest.approx(0, abs=1e-6)


def test_the_optimum_is_the_best_of_all_lists_and_the_greedy_list_within_eta_of_it():
    options = {"num_items": 6, "list_size": 3, "num_users": 12, "trade_off": 0.0}
    greedy, optimum = topic_bandit(**options), topic_bandit(**options, benchmark="optimum")
    for user in range(12):
        one, best = take_instances(greedy, user), take_instances(optimum, user)
        highest = max(reward(one, list(ranking)) for ranking in itertools.permutations(range(6), 3))
        assert reward(best, best.optimal_ranking.tolist()) == pytest.approx(highest, abs=1e-6)
        assert reward(one, one.optimal_ranking.tolist()) >= greedy.eta()[user] * highest


def test_the_greedy_list_may_be_beaten():
    """One item covers 0.6 of both topics, two cover one each: 1 − 0.4·0.8 against 1 − 0.5·0.5."""
    items = {"topics": [[0.6, 0.6], [1, 0], [0, 1]], "features": np.zeros((3, 1))}
    user = {"preference": [0.5, 0.5], "relevance": [1.0], "trade_off": 0.0, "list_size": 2}
    greedy, optimum = jr.TopicBandit(**items, **user), jr.TopicBandit(**items, **user, benchmark="optimum")
    assert greedy.optimal_ranking[0] == 0 and set(optimum.optimal_ranking.tolist()) == {1, 2}
    gap = float(greedy.metrics(None, optimum.optimal_ranking)["regret"])
    assert gap == pytest.approx(0.68 - 0.75, abs=1e-6)


def test_eta_and_the_bound_are_those_of_section_4():
    """Worked out by hand: K = 4, α_max = 0.2 and 0.9; m + d = 2, K = 1, n = 2."""
    np.testing.assert_allclose(cascadehybrid_eta(np.array([0.2, 0.9]), 4), (1 - 1 / np.e) * np.array([0.7, 0.25]))
    gamma = np.sqrt(2 * np.log(2) + 2 * np.log(2)) + 1
    expected = 2 * gamma * np.sqrt(2 * 2 * 1 * 2 * np.log(2)) + 1
    assert cascadehybrid_bound(2, 1, np.array([2]))[0] == pytest.approx(expected)
    environment = small_world()
    highest = max(attraction(take_instances(environment, 0), [a])[0] for a in range(6))
    assert environment.eta()[0] == pytest.approx(cascadehybrid_eta(highest, 3), rel=1e-5)


def test_a_sweep_of_the_trade_off_is_one_environment():
    users = small_world()
    sweep = jr.sweep_trade_off(users, [0.0, 0.5, 1.0])
    assert sweep.num_users == 9 and sweep.topics.ndim == 2, "items are shared"
    for i, share in enumerate((0.0, 0.5, 1.0)):
        for user in range(3):
            one = take_instances(sweep, i * 3 + user)
            alone = take_instances(small_world(trade_off=share), user)
            assert float(one.trade_off) == pytest.approx(share)
            np.testing.assert_array_equal(one.preference, alone.preference)
            np.testing.assert_array_equal(one.optimal_ranking, alone.optimal_ranking)
    single = jr.sweep_trade_off(take_instances(users, 1), [0.2, 0.4])
    np.testing.assert_allclose(single.trade_off, [0.2, 0.4])


def test_a_query_tells_what_a_policy_may_see():
    environment = take_instances(small_world(), 0)
    query = environment.query(None, jnp.int32(3))
    assert (query.step, query.num_items, query.list_size) == (3, 6, 3)
    np.testing.assert_array_equal(query.topics, environment.topics)
    assert (query.topics != environment.true_topics).any(), "not the user's own view of them"
    np.testing.assert_array_equal(query.features, environment.features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": np.full((5, 2), 1.5)}, r"TopicBandit.topics must be in \[0, 1\]; got 1.5 at index \(0, 0\)"),
        ({"features": np.ones((4, 3))}, r"TopicBandit.features must have the shape \[5, 3\] of 5 items"),
        ({"preference": [0.5, 0.3, 0.2]}, r"TopicBandit.preference must have the shape \[2\].*got \[3\]"),
        ({"relevance": [1.0]}, r"TopicBandit.relevance must have the shape \[3\]"),
        ({"true_topics": np.ones((5, 3))}, r"TopicBandit.true_topics must have the shape \[5, 2\]"),
        ({"preference": [0.5, -0.1]}, r"TopicBandit.preference must be non-negative and finite; got -0.1"),
        ({"trade_off": 1.2}, r"TopicBandit.trade_off must be in \[0, 1\]; got 1.2"),
        ({"list_size": 6}, "TopicBandit.list_size must be an integer from 1 to 5 items; got 6"),
        ({"benchmark": "best"}, "TopicBandit.benchmark must be 'greedy' or 'optimum'; got 'best'"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    good = {
        "topics": np.full((5, 2), 0.5),
        "features": np.ones((5, 3)),
        "preference": [0.5, 0.5],
        "relevance": [1, 0, 0],
    }
    with pytest.raises(ValueError, match=message):
        jr.TopicBandit(**good | options)


def test_too_many_lists_to_enumerate_are_refused():
    with pytest.raises(ValueError, match=r"TopicBandit\.benchmark must be 'greedy' for 5 of 15 items"):
        topic_bandit(benchmark="optimum")


def test_a_sweep_of_trade_offs_names_what_it_cannot_take():
    with pytest.raises(ValueError, match=r"environment must be a TopicBandit, .*; got the class ClickBandit"):
        jr.sweep_trade_off(jr.ClickBandit, [0.1])
    with pytest.raises(ValueError, match=r"environment must be a TopicBandit, .*; got a ClickBandit"):
        jr.sweep_trade_off(jr.ClickBandit(jr.CascadeModel([0.1, 0.2])), [0.1])
