"""The cascade, dependent-click and position-based models against their own stories, told by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import jaxrank as jr

ATTRACTION = [0.35, 0.8, 0.15, 0.5, 0.6]
TERMINATION = [0.3, 0.9, 0.6, 0.1, 0.7]
EXAMINATION = [0.7, 1.0, 0.4, 0.9, 0.2]
MODELS = {
    "cm": jr.CascadeModel(ATTRACTION),
    "dcm": jr.DependentClickModel(ATTRACTION, TERMINATION),
    "pbm": jr.PositionBasedModel(ATTRACTION, EXAMINATION),
}
RANKING = [4, 1, 0, 2]
each_model = pytest.mark.parametrize("name", MODELS)


def story(name, ranking):
    """{(clicks, examined): probability}, by following the user down the list, branch by branch."""
    K = len(ranking)
    outcomes = {}

    def add(clicks, examined, probability):
        outcomes[clicks, examined] = outcomes.get((clicks, examined), 0) + probability

    def look(k, clicks, examined, probability):
        if k == K:
            add(clicks, examined, probability)
            return
        alpha = ATTRACTION[ranking[k]]
        if name == "pbm":
            chi = EXAMINATION[k]
            look(k + 1, (*clicks, 0), (*examined, 0), probability * (1 - chi))
            look(k + 1, (*clicks, 0), (*examined, 1), probability * chi * (1 - alpha))
            look(k + 1, (*clicks, 1), (*examined, 1), probability * chi * alpha)
            return
        leave = 1.0 if name == "cm" else TERMINATION[k]
        rest = (0,) * (K - k - 1)
        look(k + 1, (*clicks, 0), (*examined, 1), probability * (1 - alpha))
        add((*clicks, 1, *rest), (*examined, 1, *rest), probability * alpha * leave)
        look(k + 1, (*clicks, 1), (*examined, 1), probability * alpha * (1 - leave))

    look(0, (), (), 1.0)
    return outcomes


def pattern_probabilities(name, ranking):
    probabilities = dict.fromkeys(itertools.product((0, 1), repeat=len(ranking)), 0.0)
    for (clicks, _), probability in story(name, ranking).items():
        probabilities[clicks] += probability
    return probabilities


@each_model
def test_sampled_click_patterns_follow_the_story(name):
    """Chi-square over all patterns, at p = 1e-6."""
    count = 100_000
    keys = jax.random.split(jax.random.key(7), count)
    clicks = np.asarray(jax.jit(jax.vmap(MODELS[name].sample, in_axes=(0, None)))(keys, jnp.array(RANKING)))
    codes = clicks @ (1 << np.arange(4)[::-1])
    observed = np.bincount(codes, minlength=16)
    expected = count * np.array(list(pattern_probabilities(name, RANKING).values()))
    assert (observed[expected < 1e-9] == 0).all()
    possible = expected >= 1e-9
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    assert statistic < chi2.isf(1e-6, possible.sum() - 1)


@each_model
def test_click_and_examination_probabilities_follow_the_story(name):
    outcomes = story(name, RANKING)
    clicks = sum(p * np.array(c) for (c, _), p in outcomes.items())
    examined = sum(p * np.array(e) for (_, e), p in outcomes.items())
    model, ranking = MODELS[name], jnp.array(RANKING)
    assert sum(outcomes.values()) == pytest.approx(1)
    np.testing.assert_allclose(model.click_probability(ranking), clicks, rtol=1e-5)
    np.testing.assert_allclose(model.examination_probability(ranking), examined, rtol=1e-5)


@each_model
def test_likelihood_is_the_probability_of_the_pattern(name):
    for clicks, probability in pattern_probabilities(name, RANKING).items():
        likelihood = np.exp(float(MODELS[name].log_likelihood(jnp.array(RANKING), jnp.array(clicks, bool))))
        assert likelihood == pytest.approx(probability, rel=1e-4, abs=1e-9)


@each_model
@pytest.mark.parametrize("top", [None, 1, 3])
def test_reward_of_the_first_positions(name, top):
    model, shown = MODELS[name], RANKING[:top]
    if name == "pbm":
        expected = sum(EXAMINATION[k] * ATTRACTION[i] for k, i in enumerate(shown))
    else:
        leave = np.ones(5) if name == "cm" else np.array(TERMINATION)
        expected = 1 - np.prod([1 - leave[k] * ATTRACTION[i] for k, i in enumerate(shown)])
    assert model.reward(jnp.array(RANKING), top) == pytest.approx(expected, rel=1e-6)


@each_model
@pytest.mark.parametrize(("list_size", "top"), [(5, None), (5, 3), (4, 2), (3, None), (1, 1)])
def test_no_permutation_beats_the_optimal_ranking(name, list_size, top):
    rng = np.random.default_rng(list_size)
    for _ in range(5):
        parameters = {
            "attraction": rng.random(5),
            "termination": rng.random(5),
            "examination": rng.random(5),
        }
        parameters["attraction"][1] = parameters["attraction"][3]  # a tie
        fields = {"cm": ("attraction",), "dcm": ("attraction", "termination"), "pbm": ("attraction", "examination")}
        model = jr.make(name, kind="click_model", **{f: parameters[f] for f in fields[name]})
        lists = jnp.array(list(itertools.permutations(range(5), list_size)))
        rewards = jax.vmap(lambda r, model=model: model.reward(r, top))(lists)
        best = model.optimal_ranking(list_size, top)
        assert sorted(set(best.tolist())) == sorted(best.tolist())
        assert float(model.reward(best, top)) == pytest.approx(float(rewards.max()), rel=1e-6)


@each_model
def test_reward_gap_is_the_difference_of_rewards(name):
    model = MODELS[name]
    best, ranking = model.optimal_ranking(4), jnp.array(RANKING)
    for top in (None, 2):
        gap = float(model.reward(best, top) - model.reward(ranking, top))
        assert model.reward_gap(best, ranking, top) == pytest.approx(gap, abs=1e-6)
    assert model.reward_gap(ranking, ranking) == 0


@each_model
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_gradients_of_the_likelihood_are_finite_at_0_and_1(name, value):
    model = jax.tree.map(lambda x: jnp.full_like(x, value), MODELS[name])
    for clicks in itertools.product((False, True), repeat=4):
        value_and_grad = jax.value_and_grad(lambda m, c=clicks: m.log_likelihood(jnp.array(RANKING), jnp.array(c)))
        likelihood, gradient = value_and_grad(model)
        assert np.isfinite(likelihood)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@each_model
def test_gradient_of_the_likelihood_is_its_slope(name):
    """Central differences in float64."""
    with jax.enable_x64(True):
        model = jax.tree.map(lambda x: x.astype(jnp.float64), MODELS[name])
        ranking, clicks = jnp.array(RANKING), jnp.array([False, True, False, False])
        leaves, structure = jax.tree.flatten(model)
        gradient = jax.tree.leaves(jax.grad(lambda m: m.log_likelihood(ranking, clicks))(model))
        for which, leaf in enumerate(leaves):
            for i in range(leaf.shape[0]):

                def at(shift, which=which, leaf=leaf, i=i):
                    moved = [*leaves[:which], leaf.at[i].add(shift), *leaves[which + 1 :]]
                    return float(jax.tree.unflatten(structure, moved).log_likelihood(ranking, clicks))

                assert float(gradient[which][i]) == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, abs=1e-5)


def test_a_second_click_is_next_to_impossible_in_the_cascade_model():
    clicks = jnp.array([True, False, True, False])
    assert MODELS["cm"].log_likelihood(jnp.array(RANKING), clicks) < -20


def test_a_cascade_model_is_a_dependent_click_model_that_always_stops():
    dcm = jr.DependentClickModel(ATTRACTION, jnp.ones(5))
    ranking = jnp.array(RANKING)
    np.testing.assert_allclose(dcm.click_probability(ranking), MODELS["cm"].click_probability(ranking), rtol=1e-6)
    assert dcm.reward(ranking) == pytest.approx(float(MODELS["cm"].reward(ranking)))
