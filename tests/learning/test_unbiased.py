"""Unbiased learning from clicks: each method against plain loops, its estimates against the truth."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import unbiased as plain
from streams import data

import jaxrank as jr
from jaxrank.learning import unbiased
from jaxrank.learning.counterfactual import count_sessions, fit_examination, fitted_examination, log_lists

QUERIES, K = data().train, 4
DOCUMENTS = QUERIES.features.shape[0]
ALPHA = jnp.asarray(0.9 * np.asarray(QUERIES.grades) / QUERIES.grades.max(), float)
CHI, TRUST = np.array([1.0, 0.6, 0.5, 0.4]), np.array([0.4, 0.3, 0.2, 0.0])
BIAS = unbiased.AffineBias(jnp.asarray(CHI * (1 - TRUST), float), jnp.asarray(CHI * TRUST, float))


@lru_cache
def logged(num_sessions):
    """A log under trust bias, of lists around the order of some scores."""
    scores = jnp.asarray(np.random.default_rng(0).normal(size=DOCUMENTS), float)
    model = jr.TrustBiasModel(jnp.zeros(QUERIES.max_documents), CHI, TRUST)
    return log_lists(jax.random.key(1), QUERIES, model, ALPHA, scores, num_sessions=num_sessions, list_size=K)


def sessions_of(lists):
    """[(rows, clicks)] without the empty places of short lists."""
    rows, shown, clicks = (np.asarray(values) for values in lists)
    return [(rows[i][shown[i]].tolist(), clicks[i][shown[i]].tolist()) for i in range(len(rows))]


def query_of_documents():
    return np.repeat(np.arange(QUERIES.num_queries), np.diff(np.asarray(QUERIES.starts)))


def sessions_by_document(lists):
    query_of = query_of_documents()
    return np.bincount(query_of[np.asarray(lists.rows)[:, 0]], minlength=QUERIES.num_queries)[query_of]


def batches_of(key, lists, num_epochs, batch_size):
    """The sessions in the order in which the methods take them: the same keys, the same permutations."""
    sessions, batches = sessions_of(lists), []
    for epoch_key in jax.random.split(jax.random.split(key)[1], num_epochs):
        order = np.asarray(jax.random.permutation(epoch_key, len(sessions)))
        whole = order[: len(order) // batch_size * batch_size].reshape(-1, batch_size)
        batches += [[sessions[i] for i in batch] for batch in whole]
    return batches


def test_logged_lists_are_counted_by_document_and_position():
    lists = logged(300)
    assert not np.asarray(lists.shown).all(), "some queries have fewer documents than positions"
    counts, starts = lists.counts(DOCUMENTS), np.asarray(QUERIES.starts)
    full = np.asarray(lists.shown).all(axis=1)
    query_of = query_of_documents()[np.asarray(lists.rows)[:, 0]][full]
    rankings, clicks = np.asarray(lists.rows)[full] - starts[query_of][:, None], np.asarray(lists.clicks)[full]
    expected = count_sessions(QUERIES, query_of, rankings, clicks)
    kept = np.isin(query_of_documents(), np.unique(query_of))
    assert (counts.shown[kept] == expected.shown[kept]).all() and (counts.clicked[kept] == expected.clicked[kept]).all()
    np.testing.assert_allclose(fit_examination(counts, num_iterations=9), fitted_examination(counts, 9), rtol=1e-6)


def test_affine_and_doubly_robust_relevance_are_those_of_plain_loops():
    lists = logged(300)
    counts = lists.counts(DOCUMENTS)
    prediction = np.random.default_rng(2).uniform(size=DOCUMENTS)
    found = unbiased.affine_relevance(counts, BIAS)
    np.testing.assert_allclose(found, plain.affine_relevance(sessions_of(lists), *BIAS, DOCUMENTS), atol=1e-5)
    found = unbiased.doubly_robust_relevance(counts, BIAS, prediction, sessions_by_document(lists), smallest=0.2)
    expected = plain.doubly_robust_relevance(
        sessions_of(lists), query_of_documents(), *map(np.asarray, BIAS), prediction, 0.2
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_dual_learning_is_the_plain_loop():
    lists, key = logged(300), jax.random.key(4)
    options = {"num_epochs": 2, "batch_size": 50, "largest": 1.5, "optimizer": optax.sgd(0.5)}
    theta, propensity = jax.jit(partial(unbiased.dual_learning, **options))(key, QUERIES, lists)
    batches = batches_of(key, lists, 2, 50)
    expected = plain.dual_learning(batches, np.asarray(QUERIES.features, np.float64), K, 0.5, 1.5)
    np.testing.assert_allclose(theta, expected[0], atol=1e-5)
    np.testing.assert_allclose(propensity, expected[1], atol=1e-5)


def test_pairwise_debiasing_is_the_plain_loop():
    lists, key = logged(300), jax.random.key(5)
    options = {"num_epochs": 2, "batch_size": 50, "exponent": 0.7, "step_size": 0.3, "smallest": 0.2}
    method = partial(unbiased.pairwise_debiasing, **options, optimizer=optax.sgd(0.2))
    found = jax.jit(method)(key, QUERIES, lists)
    batches = batches_of(key, lists, 2, 50)
    expected = plain.pairwise_debiasing(batches, np.asarray(QUERIES.features, np.float64), K, 0.2, 0.7, 0.3, 0.2)
    for got, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, values, atol=1e-4)


def test_regression_em_is_the_plain_loop():
    lists = logged(300)
    counts = lists.counts(DOCUMENTS)
    options = {"num_iterations": 20, "learning_rate": 0.1, "regularization": 0.01}
    found = unbiased.regression_em(jax.random.key(0), QUERIES, counts, **options)
    features = np.asarray(QUERIES.features, np.float64)
    expected = plain.regression_em(sessions_of(lists), features, K, *options.values())
    for got, values in zip(found[:3], expected, strict=True):
        np.testing.assert_allclose(got, values, atol=1e-4)
    np.testing.assert_allclose(found.bias.slope, found.examination)
    assert (found.bias.offset == 0).all()


def test_affine_and_doubly_robust_relevance_are_unbiased_where_inverse_propensity_weighting_is_not():
    """Means over 400 logs of 500 sessions, documents that every log shows: within five standard errors."""
    every = logged(200_000)
    logs = jax.tree.map(lambda values: values.reshape(400, 500, K), every)

    @jax.jit
    @jax.vmap
    def estimates(lists):
        counts = lists.counts(DOCUMENTS)
        query_of = jnp.asarray(query_of_documents())
        sessions = jnp.zeros(QUERIES.num_queries).at[query_of[lists.rows[:, 0]]].add(1)[query_of]
        shown = counts.shown.sum(axis=1)
        robust = partial(unbiased.doubly_robust_relevance, counts, BIAS, sessions=sessions, smallest=1e-3)
        weighted = jr.counterfactual.relevance(counts, BIAS.slope + BIAS.offset)
        wrong, right = jnp.full(DOCUMENTS, 0.9), ALPHA
        return shown, unbiased.affine_relevance(counts, BIAS), robust(wrong), robust(right), weighted

    shown, *found = (np.asarray(values, np.float64) for values in estimates(logs))
    often = shown.min(axis=0) > 0
    assert often.sum() >= 10
    for name, values in zip(("affine", "wrong prediction", "right prediction", "IPW"), found, strict=True):
        values = values[:, often]
        wrong = np.abs(values.mean(axis=0) - np.asarray(ALPHA)[often]) / (values.std(axis=0, ddof=1) / np.sqrt(400))
        assert (wrong.max() < 5) == (name != "IPW"), (name, wrong.max())
    _, wrong, right, _ = (values[:, often].std(axis=0).mean() for values in found)
    assert right < wrong, "the better the prediction, the less variance"


def test_a_document_that_was_never_shown_has_the_prediction_or_nothing():
    counts = jr.counterfactual.ClickCounts([[0, 0], [3, 1]], [[0, 0], [2, 0]])
    bias = unbiased.AffineBias(jnp.array([0.5, 0.25]), jnp.array([0.1, 0.0]))
    found = unbiased.doubly_robust_relevance(counts, bias, jnp.array([0.7, 0.2]), jnp.array([4.0, 4.0]))
    by_hand = 0.2 + (2 - 0.2 * 1.75 - 0.3) / 1.75
    np.testing.assert_allclose(found, [0.7, by_hand], rtol=1e-6)
    np.testing.assert_allclose(
        unbiased.affine_relevance(counts, bias), [0, ((2 - 0.3) / 0.5 + 0 / 0.25) / 4], rtol=1e-6
    )


def test_the_affine_bias_is_recovered_up_to_scale_and_origin():
    """χ_1 = 1 and t_4 = 0 are the truth here: the true slopes and offsets, within 0.03."""
    bias = unbiased.fit_affine(logged(200_000).counts(DOCUMENTS))
    np.testing.assert_allclose(bias.slope, BIAS.slope, atol=0.03)
    np.testing.assert_allclose(bias.offset, BIAS.offset, atol=0.03)


@pytest.mark.parametrize("method", ["dual_learning", "pairwise_debiasing", "regression_em"])
def test_methods_that_estimate_examination_order_positions_as_users_do(method):
    """Users of a position-based model look at lower positions less: so do propensities, χ and t⁺."""
    scores = jnp.asarray(np.random.default_rng(0).normal(size=DOCUMENTS), float)
    model = jr.PositionBasedModel(jnp.zeros(QUERIES.max_documents), [1.0, 0.5, 0.25, 0.12])
    attraction = jnp.asarray(0.1 + 0.2 * np.asarray(QUERIES.grades), float)
    lists = log_lists(jax.random.key(1), QUERIES, model, attraction, scores, num_sessions=20_000, list_size=K)
    log = lists.counts(DOCUMENTS) if method == "regression_em" else lists
    examination = np.asarray(jax.jit(getattr(unbiased, method))(jax.random.key(0), QUERIES, log)[1])
    assert examination[0] == 1 and (np.diff(examination) < -0.02).all() and examination[-1] < 0.4, examination
