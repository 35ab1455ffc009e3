"""Graded users: the tables, and probabilities by enumeration of what a user may do."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import jaxrank as jr
from jaxrank.click_models.graded import PRESETS, GradedUser, graded_user

GRADES = [2, 0, 1, 2]


def enumerate_clicks(user, grades):
    """{clicks: probability}, by following every user down the list."""
    click, stop = np.asarray(user.click, np.float64), np.asarray(user.stop, np.float64)
    found = dict.fromkeys(itertools.product([False, True], repeat=len(grades)), 0.0)

    def read(k, clicks, p):
        if k == len(grades):
            found[tuple(clicks)] += p
            return
        for clicked, q in ((True, click[grades[k]]), (False, 1 - click[grades[k]])):
            leaves = stop[grades[k]] if clicked or user.stop_at == "view" else 0.0
            found[(*clicks, clicked, *[False] * (len(grades) - k - 1))] += p * q * leaves
            read(k + 1, [*clicks, clicked], p * q * (1 - leaves))

    read(0, [], 1.0)
    return found


@pytest.mark.parametrize("stop_at", ["click", "view"])
@pytest.mark.parametrize("name", ["perfect", "navigational", "informational", "almost_random"])
def test_samples_and_probabilities_are_those_of_the_enumeration(name, stop_at):
    """Samples by chi-square at p = 1e-6."""
    draws = 20_000
    user = graded_user(name, num_grades=3, stop_at=stop_at)
    expected = enumerate_clicks(user, GRADES)
    model = GradedUser(user.click, user.stop, GRADES, stop_at)
    ranking = jnp.arange(4)
    patterns, p = np.array(list(expected)), np.array(list(expected.values()))
    np.testing.assert_allclose(model.click_probability(ranking), p @ patterns, atol=1e-6)
    likelihood = jnp.exp(jax.jit(jax.vmap(lambda clicks: model.log_likelihood(ranking, clicks)))(jnp.asarray(patterns)))
    np.testing.assert_allclose(likelihood, p, atol=1e-4)
    keys = jax.random.split(jax.random.key(0), draws)
    samples = np.asarray(jax.jit(jax.vmap(lambda key: model.sample(key, ranking)))(keys))
    counts = np.array([(samples == pattern).all(axis=1).sum() for pattern in patterns])
    possible = p > 1e-12
    assert counts[~possible].sum() == 0
    statistic = ((counts - draws * p) ** 2)[possible] / (draws * p[possible])
    often = draws * p[possible] >= 5
    assert statistic[often].sum() < chi2.isf(1e-6, max(1, often.sum() - 1))


def test_presets_are_the_tables():
    """Table 1 of PairRank; users are ordered by grade, and the outer grades of 2 are those of 3."""
    table = PRESETS[3]
    assert table["perfect"] == ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0))
    assert table["navigational"] == ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9))
    assert table["informational"] == ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5))
    for num_grades, presets in PRESETS.items():
        assert list(presets) == ["perfect", "navigational", "informational", "almost_random"]
        for click, stop in presets.values():
            assert len(click) == len(stop) == num_grades
            assert list(click) == sorted(click) and list(stop) == sorted(stop)
    for name, (click, stop) in PRESETS[2].items():
        assert (click, stop) == tuple((row[0], row[-1]) for row in table[name])


def test_several_presets_are_one_user_with_an_instance_axis():
    users = graded_user("perfect", "informational")
    assert users.click.shape == (2, 5)
    assert jr.GradedUser(users.click[1], users.stop[1]) == graded_user("informational")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graded_user("lazy"), "a graded user must be one of perfect, .*; got 'lazy'"),
        (lambda: graded_user(), "a graded user must be one of perfect, .*; got ''"),
        (lambda: graded_user("perfect", num_grades=4), "num_grades must be one of 2, 3, 5; got 4"),
        (lambda: GradedUser([0.1, 0.2], [0.1]), r"GradedUser\.stop must have one probability for each"),
        (
            lambda: GradedUser([0.1, 1.2], [0.1, 0.1]),
            r"GradedUser\.click must be in \[0, 1\]; got 1\.2 at index \(1,\)",
        ),
        (lambda: GradedUser([0.1], [0.1], stop_at="end"), r"GradedUser\.stop_at must be 'click' or 'view'; got 'end'"),
    ],
)
def test_bad_options_name_the_field_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
