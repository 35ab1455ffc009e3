"""UBM, DBN and CCM against their stories, told coin by coin: probabilities, samples, optima, gradients."""

import itertools
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import click_models as reference
from scipy import stats

import jaxrank as jr
from jaxrank.click_models import user_browsing
from jaxrank.click_models.click_chain import ClickChainModel
from jaxrank.click_models.dynamic_bayesian import DynamicBayesianModel
from jaxrank.click_models.user_browsing import UserBrowsingModel

L, K = 6, 4
NAMES = ("ubm", "dbn", "ccm")
SHAPES = {
    "ubm": {"attraction": (L,), "examination_after": (K, K)},
    "dbn": {"attraction": (L,), "satisfaction": (L,), "continuation": ()},
    "ccm": {"attraction": (L,), "tau1": (), "tau2": (), "tau3": ()},
}
MAKE = {"ubm": UserBrowsingModel, "dbn": DynamicBayesianModel, "ccm": ClickChainModel}
STORY = {"ubm": reference.user_browsing, "dbn": reference.dynamic_bayesian, "ccm": reference.click_chain}


def case(name, seed, corners=False):
    """A model with random parameters, in the corners of [0, 1] if wanted; a list; and the story of that list."""
    rng = np.random.default_rng(seed)
    draws = {field: rng.uniform(0, 1, shape) for field, shape in SHAPES[name].items()}
    values = {field: np.round(draw) if corners else draw for field, draw in draws.items()}
    ranking = rng.permutation(L)[:K]
    return SimpleNamespace(
        model=MAKE[name](**values),
        ranking=jnp.asarray(ranking, jnp.int32),
        story=lambda ranking=ranking: STORY[name](list(ranking), *values.values()),
    )


@partial(jax.jit, static_argnames=("method", "top", "list_size"))
def call(model, method, *arguments, **static):
    """A method, compiled once for all models of a kind."""
    return getattr(model, method)(*arguments, **static)


@partial(jax.jit, static_argnums=2)
def sample_sessions(model, ranking, sessions, seed):
    return jax.jit(jax.vmap(model.sample, in_axes=(0, None)))(jax.random.split(jax.random.key(seed), sessions), ranking)


def best_reward(c, top):
    """By the story, over all ordered lists of ``top`` items."""
    return max(reference.marginals(c.story(r))[0].sum() for r in itertools.permutations(range(L), top))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_likelihoods_of_all_click_patterns_are_those_of_the_story_and_sum_to_1(name, seed):
    c = case(name, seed)
    patterns = reference.patterns(K)
    likelihoods = np.exp([call(c.model, "log_likelihood", c.ranking, jnp.asarray(clicks)) for clicks in patterns])
    np.testing.assert_allclose(likelihoods, reference.pattern_probabilities(c.story()), atol=1e-6, rtol=1e-5)
    assert likelihoods.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_click_and_examination_probabilities_and_reward_are_those_of_the_story(name, seed, corners):
    c = case(name, seed, corners)
    for length in (1, 3, K):
        clicks, examined = reference.marginals(c.story(c.ranking.tolist()[:length]))
        click, examination, reward = probabilities(c.model, c.ranking, length)
        np.testing.assert_allclose(click, clicks, atol=1e-6)
        np.testing.assert_allclose(examination, examined, atol=1e-6)
        assert reward == pytest.approx(clicks.sum(), abs=1e-5)


@partial(jax.jit, static_argnums=2)
def probabilities(model, ranking, top):
    shown = ranking[:top]
    return model.click_probability(shown), model.examination_probability(shown), model.reward(ranking, top)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_sampled_click_patterns_have_the_frequencies_of_the_story(name, seed):
    """Chi-square at p = 1e-3 with 200,000 sessions; patterns expected less than 5 times are put together."""
    c, sessions = case(name, seed), 200_000
    clicks = np.asarray(sample_sessions(c.model, c.ranking, sessions, seed))
    observed = np.bincount(clicks @ (1 << np.arange(K)[::-1]), minlength=2**K)
    expected = sessions * reference.pattern_probabilities(c.story())
    rare = expected < 5
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_certain_coins_give_certain_clicks(name, seed):
    c = case(name, seed, corners=True)
    clicks = np.asarray(sample_sessions(c.model, c.ranking, 500, seed))
    certain = reference.patterns(K)[np.argmax(reference.pattern_probabilities(c.story()))]
    assert (clicks == certain).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("top", [1, 3, None])
@pytest.mark.parametrize("seed", range(4))
def test_optimal_ranking_has_the_highest_reward_of_all_lists(name, top, seed):
    c = case(name, seed)
    best = call(c.model, "optimal_ranking", list_size=K, top=top).tolist()
    assert len(set(best)) == K
    assert set(best) <= set(range(L))
    reward = reference.marginals(c.story(best[:top]))[0].sum()
    assert reward == pytest.approx(best_reward(c, top or K), abs=1e-6)
    rest = best[top:] if top else []
    hidden = sorted(set(range(L)) - set(best[:top]), key=lambda item: -c.model.attraction[item])
    assert rest == hidden[: len(rest)], "below the top, α descending"


def test_optimal_ranking_of_a_chain_skips_an_attractive_item_that_ends_the_session():
    model = DynamicBayesianModel([0.9, 0.5, 0.5], [1.0, 0.0, 0.0], 1.0)
    assert model.optimal_ranking(2).tolist() == [1, 0], "0.5 + 0.9, better than 0.9 + 0.1·0.5"
    assert DynamicBayesianModel([0.6, 0.5, 0.5], [1.0, 0.0, 0.0], 1.0).optimal_ranking(3).tolist() == [
        1,
        2,
        0,
    ]


def test_user_browsing_exchanges_end_at_the_exact_optimum_of_models_like_fitted_ones(monkeypatch):
    """Examination falls with the position and with the distance from the last click, as it does in fitted models."""
    k, r = np.indices((7, 7))
    models, exact = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        after = np.where(r == 6, 1 / (1 + k), rng.uniform(0.5, 1, (7, 7)) / np.maximum(k - r, 1))
        models.append(UserBrowsingModel(rng.uniform(0, 0.6, 7), after))
        exact.append(call(models[-1], "reward", call(models[-1], "optimal_ranking", list_size=5)))
    monkeypatch.setattr(user_browsing, "_MOST_LISTS", 0)
    by_exchange = jax.jit(lambda model: model.optimal_ranking(5))
    for model, reward in zip(models, exact, strict=True):
        ranking = by_exchange(model)
        assert len(set(ranking.tolist())) == 5
        assert call(model, "reward", ranking) == pytest.approx(float(reward), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_reward_gap_is_the_difference_of_rewards_and_exactly_0_for_equal_lists(name):
    lists = jnp.asarray(list(itertools.permutations(range(L), K)), jnp.int32)
    equal = jax.jit(jax.vmap(lambda model, r: model.reward_gap(r, r), in_axes=(None, 0)))
    for seed in range(5):
        c = case(name, seed)
        other = jnp.asarray(np.random.default_rng(seed + 100).permutation(L)[:K], jnp.int32)
        for top in (1, K):
            stories = [reference.marginals(c.story(r.tolist()[:top]))[0].sum() for r in (c.ranking, other)]
            gap = call(c.model, "reward_gap", c.ranking, other, top=top)
            assert gap == pytest.approx(stories[0] - stories[1], abs=1e-6)
        assert (equal(c.model, lists) == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_the_likelihood_are_finite_at_0_and_1(name):
    patterns = jnp.asarray(reference.patterns(K))
    gradient = jax.jit(jax.vmap(jax.grad(lambda m, r, c: m.log_likelihood(r, c)), in_axes=(None, None, 0)))
    for seed in range(5):
        c = case(name, seed, corners=True)
        for leaf in jax.tree.leaves(gradient(c.model, c.ranking, patterns)):
            assert jnp.isfinite(leaf).all()
    for value in (0.0, 1.0):
        at = jax.tree.map(lambda leaf, value=value: jnp.full_like(leaf, value), c.model)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient(at, c.ranking, patterns)))


@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_the_likelihood_is_its_slope(name):
    c = case(name, 3)
    clicks = jnp.asarray([True, False, True, False])
    leaves, tree = jax.tree.flatten(c.model)

    @jax.jit
    def likelihood(leaves):
        return jax.tree.unflatten(tree, leaves).log_likelihood(c.ranking, clicks)

    gradient = jax.grad(likelihood)(leaves)
    for i, leaf in enumerate(leaves):
        direction = jnp.asarray(np.random.default_rng(i).uniform(-1, 1, leaf.shape), leaf.dtype)
        moved = [[*leaves[:i], leaf + step * direction, *leaves[i + 1 :]] for step in (1e-2, -1e-2)]
        slope = (likelihood(moved[0]) - likelihood(moved[1])) / 2e-2
        assert slope == pytest.approx(float(jnp.sum(gradient[i] * direction)), rel=0.02, abs=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_jit_is_eager_and_vmap_is_a_loop(name):
    c = case(name, 0)
    lists = jnp.asarray([np.random.default_rng(i).permutation(L)[:K] for i in range(5)], jnp.int32)
    clicks = jnp.asarray(reference.patterns(K)[3:8])
    keys = jax.random.split(jax.random.key(0), 5)

    def everything(model, key, ranking, other, clicks):
        return {
            "sample": model.sample(key, ranking),
            "click_probability": model.click_probability(ranking),
            "examination_probability": model.examination_probability(ranking),
            "reward": model.reward(ranking),
            "reward_gap": model.reward_gap(ranking, other),
            "log_likelihood": model.log_likelihood(ranking, clicks),
        }

    rows = (keys, lists, lists[::-1], clicks)
    mapped = jax.jit(jax.vmap(everything, in_axes=(None, 0, 0, 0, 0)))(c.model, *rows)
    looped = [jax.jit(everything)(c.model, *row) for row in zip(*rows, strict=True)]
    eager = everything(c.model, *(row[0] for row in rows))
    for method, values in mapped.items():
        np.testing.assert_allclose(values, [row[method] for row in looped], atol=1e-6, err_msg=method)
        np.testing.assert_allclose(values[0], eager[method], atol=1e-6, err_msg=method)


@pytest.mark.parametrize("name", NAMES)
def test_a_click_bandit_of_several_queries_has_each_one_s_optimum(name):
    models = [case(name, seed).model for seed in range(3)]
    environment = jr.ClickBandit(jax.tree.map(lambda *leaves: jnp.stack(leaves), *models), list_size=K, top=3)
    best = [call(model, "optimal_ranking", list_size=K, top=3) for model in models]
    assert environment.optimal_ranking.tolist() == [ranking.tolist() for ranking in best]


def test_the_oracle_has_no_regret_at_all():
    model = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(case("dbn", seed).model for seed in range(3)))
    environment = jr.ClickBandit(model, list_size=K, top=3)
    result = jr.simulate(jr.OracleRanking(), environment, num_steps=20, num_seeds=2, progress=False)
    assert (result["regret"] == 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: UserBrowsingModel([0.5, 1.5], [[1.0]]),
            r"UserBrowsingModel\.attraction must be in \[0, 1\]; got 1\.5 at index \(1,\)",
        ),
        (
            lambda: UserBrowsingModel([0.5], [[1.0, np.nan], [0.0, 0.0]]),
            r"UserBrowsingModel\.examination_after must be in \[0, 1\]; got nan at index \(0, 1\)",
        ),
        (
            lambda: UserBrowsingModel([0.5], [[1.0, 0.5]]),
            r"UserBrowsingModel\.examination_after must have a row and a column for every position; got shape \(1, 2\)",
        ),
        (
            lambda: jr.ClickBandit(UserBrowsingModel([0.5, 0.5, 0.5], [[1.0, 0.5], [1.0, 0.5]])),
            r"UserBrowsingModel\.examination_after has 2 positions; got a list of 3",
        ),
        (
            lambda: DynamicBayesianModel([0.5], [-0.1], 0.5),
            r"DynamicBayesianModel\.satisfaction must be in \[0, 1\]; got -0\.1 at index \(0,\)",
        ),
        (
            lambda: DynamicBayesianModel([0.5, 0.5], [0.1], 0.5),
            r"DynamicBayesianModel\.satisfaction must have one value for each of the 2 items .* got shape \(1,\)",
        ),
        (
            lambda: DynamicBayesianModel([0.5], [0.1], 2),
            r"DynamicBayesianModel\.continuation must be in \[0, 1\]; got 2",
        ),
        (
            lambda: ClickChainModel([0.5], 0.5, 1.01, 0.5),
            r"ClickChainModel\.tau2 must be in \[0, 1\]; got 1\.01",
        ),
        (
            lambda: ClickChainModel("0.5", 0.5, 0.5, 0.5),
            r"ClickChainModel\.attraction must hold real numbers",
        ),
    ],
)
def test_bad_parameters_name_the_field_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
