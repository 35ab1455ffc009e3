"""Losses against closed forms on small cases, written out, and their gradients against slopes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxrank as jr
from jaxrank.learning import losses, relax

SCORES = [0.5, -0.2, 1.1]
LABELS = [1, 0, 2]
USER = jr.click_models.graded_user("navigational", num_grades=3)
ALL = {
    "ranknet": losses.ranknet,
    "softmax": losses.softmax,
    "approx_ndcg": losses.approx_ndcg,
    "lambda_loss": losses.lambda_loss,
    "lambdarank": partial(losses.lambda_loss, mu=0.0),
    "expected_ndcg": losses.expected_ndcg(list_size=2, temperature=0.7),
    "clicks_graded": losses.expected_clicks(USER, list_size=2, temperature=0.7),
    "clicks_soft_sort": losses.expected_clicks(USER, list_size=2, relaxation=relax.soft_sort),
    "clicks_sampled": losses.expected_clicks(USER, list_size=2, relaxation=None),
}


def log_loss(x):
    """−log σ(x)"""
    return np.log(1 + np.exp(-x))


def test_ranknet_is_the_mean_over_pairs():
    expected = (log_loss(0.5 + 0.2) + log_loss(1.1 + 0.2) + log_loss(1.1 - 0.5)) / 3
    assert losses.ranknet(jnp.array(SCORES), jnp.array(LABELS)) == pytest.approx(expected, rel=1e-6)
    assert losses.ranknet(jnp.array(SCORES), jnp.array([1, 1, 1])) == 0


def test_softmax_is_the_cross_entropy_of_the_labels():
    total = np.log(np.exp(SCORES).sum())
    expected = 1 * (total - 0.5) + 0 + 2 * (total - 1.1)
    assert losses.softmax(jnp.array(SCORES), jnp.array(LABELS)) == pytest.approx(expected, rel=1e-6)


def test_approx_ndcg_is_ndcg_at_approximate_ranks():
    def sigmoid(x):
        return 1 / (1 + np.exp(-x / 0.1))

    first = 1 + sigmoid(-0.2 - 0.5) + sigmoid(1.1 - 0.5)
    third = 1 + sigmoid(0.5 - 1.1) + sigmoid(-0.2 - 1.1)
    expected = -(1 / np.log2(1 + first) + 3 / np.log2(1 + third)) / (3 + 1 / np.log2(3))
    assert losses.approx_ndcg(jnp.array(SCORES), jnp.array(LABELS)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("mu", [0.0, 10.0])
def test_lambda_loss_weighs_pairs_by_what_their_exchange_and_distance_cost(mu):
    """Ranks 2, 3, 1 of the three documents; gains 1, 0, 3."""
    ideal = 3 + 1 / np.log2(3)
    at = {1: 1, 2: 1 / np.log2(3), 3: 1 / 2}
    one, two = 1 - 1 / np.log2(3), 1 / np.log2(3) - 1 / 2  # δ of neighbours, and of two apart
    expected = (at[2] - at[3] + mu * one) * 1 * log_loss(0.5 + 0.2)
    expected += (at[1] - at[3] + mu * two) * 3 * log_loss(1.1 + 0.2)
    expected += (at[1] - at[2] + mu * one) * 2 * log_loss(1.1 - 0.5)
    found = losses.lambda_loss(jnp.array(SCORES), jnp.array(LABELS), mu=mu)
    assert found == pytest.approx(expected / ideal, rel=1e-5)


def test_expected_clicks_are_those_of_the_soft_ranking():
    """One position: weights softmax(−|s_(1) − s|) on P(click | grade); then a hard ranking, by straight-through."""
    weights = np.exp(-np.abs(1.1 - np.array(SCORES)))
    click = np.asarray(USER.click)[LABELS]
    one = losses.expected_clicks(USER, list_size=1, relaxation=relax.soft_sort)
    assert one(jnp.array(SCORES), jnp.array(LABELS)) == pytest.approx(-weights @ click / weights.sum(), rel=1e-6)
    hard = losses.expected_clicks(jr.CascadeModel(np.zeros(3)), list_size=2, hard=True)
    assert hard(jnp.array(SCORES), jnp.array([0.3, 0.9, 0.2])) == pytest.approx(-(1 - 0.7 * 0.8), rel=1e-6)


def test_expected_ndcg_becomes_ndcg_as_the_temperature_falls():
    found = losses.expected_ndcg(list_size=2, temperature=1e-3)(jnp.array(SCORES), jnp.array([2, 1, 0]))
    assert found == pytest.approx(-(3 / np.log2(3)) / (3 + 1 / np.log2(3)), rel=1e-6)


@pytest.mark.parametrize("name", [name for name in ALL if name != "clicks_sampled"])
def test_gradients_are_the_slopes(name):
    """Float64, with one document that is not there. (Of sampled rankings: tests/test_relax.py.)"""
    with jax.enable_x64(True):
        labels, where = jnp.array([1, 0, 2, 1]), jnp.array([True, True, True, False])
        value = jax.jit(lambda scores: ALL[name](scores, labels, where, None))
        check_grads(value, (jnp.array([*SCORES, 9.0]),), 1, modes=["rev"], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_documents_that_are_not_there_do_not_matter(name):
    scores = jnp.array([0.5, 7.0, -0.2, 1.1])
    where, key = jnp.array([True, False, True, True]), jax.random.key(0)
    value, slope = jax.jit(jax.value_and_grad(ALL[name]))(scores, jnp.array([1, 2, 0, 2]), where, key)
    assert slope[1] == 0 and np.isfinite(slope).all() and np.abs(slope).max() > 1e-4
    if name != "clicks_sampled":
        assert value == pytest.approx(float(ALL[name](jnp.array(SCORES), jnp.array(LABELS), None, key)), rel=1e-5)


def test_a_loss_that_samples_asks_for_its_key():
    with pytest.raises(ValueError, match="key must be given"):
        ALL["clicks_sampled"](jnp.array(SCORES), jnp.array(LABELS))
