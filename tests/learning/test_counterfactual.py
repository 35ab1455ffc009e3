"""Logs of clicks as counts, and what they say about relevance and examination."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from streams import data

import jaxrank as jr
from jaxrank.learning.counterfactual import ClickCounts, count_sessions, fit_examination, log_clicks, relevance

QUERIES = data().train
K, SESSIONS = 4, 200_000
EXAMINATION = jnp.array([1.0, 0.5, 0.3, 0.2])
ATTRACTION = jnp.asarray(0.1 + 0.2 * np.asarray(QUERIES.grades), float)


@pytest.fixture(scope="module")
def logs():
    """Two simulated logs: lists around the order of some scores, and lists in uniformly random order."""
    scores = jnp.asarray(np.random.default_rng(0).normal(size=len(ATTRACTION)), float)
    model = jr.PositionBasedModel(jnp.zeros(QUERIES.max_documents), EXAMINATION)
    run = jax.jit(
        jax.jit(
            jax.vmap(
                lambda s: log_clicks(
                    jax.random.key(1), QUERIES, model, ATTRACTION, s, num_sessions=SESSIONS, list_size=K
                )
            )
        )
    )
    both = run(jnp.stack([scores, 0 * scores]))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in range(2)]


def test_a_log_is_counted_by_document_and_position():
    starts = np.asarray(QUERIES.starts)
    counts = count_sessions(QUERIES, [1, 1, 0], [[1, 0], [0, 1], [1, 0]], np.array([[1, 0], [1, 1], [0, 0]], bool))
    shown, clicked = np.zeros((2, starts[-1], 2), int)
    a, b = starts[1], starts[1] + 1
    shown[[a, a, b, b, 0, 1], [1, 0, 0, 1, 1, 0]] = 1
    clicked[[b, a, b], [0, 0, 1]] = 1
    assert (counts.shown == shown).all() and (counts.clicked == clicked).all()


def test_simulated_logs_show_whole_lists_and_click_as_the_model_says(logs):
    """All sessions counted; the click rate of every cell within five standard errors."""
    documents = np.diff(np.asarray(QUERIES.starts))
    for log in logs:
        shown, clicked = np.asarray(log.shown, float), np.asarray(log.clicked, float)
        assert shown[:, 0].sum() == -(-SESSIONS // 256) * 256
        assert documents.min() < K and shown[:, 3].sum() < shown[:, 0].sum()  # short queries leave places empty
        p = np.asarray(ATTRACTION)[:, None] * np.asarray(EXAMINATION)
        assert (np.abs(clicked - shown * p) <= 5 * np.sqrt(shown * p * (1 - p)) + 1e-9).all()


def test_inverse_propensity_weighting_is_unbiased_and_the_click_rate_is_not(logs):
    shown = np.asarray(logs[0].shown, float)
    chi, alpha = np.asarray(EXAMINATION), np.asarray(ATTRACTION)
    p = alpha[:, None] * chi
    error = np.sqrt((shown * p * (1 - p) / chi**2).sum(axis=1)) / np.maximum(shown.sum(axis=1), 1)
    estimate = np.asarray(relevance(logs[0], EXAMINATION))
    seen = shown.sum(axis=1) > 0
    assert (np.abs(estimate - alpha)[seen] <= 5 * error[seen]).all()
    assert (estimate[~seen] == 0).all()
    rate = np.asarray(relevance(logs[0]))
    assert np.mean((np.abs(rate - alpha) > 5 * error)[seen]) > 0.5
    noiseless = np.asarray(relevance(logs[0], EXAMINATION, noise=0.1))
    np.testing.assert_allclose(noiseless[seen], ((estimate - 0.1) / 0.9)[seen], atol=1e-6)


def test_weights_are_clipped_where_examination_is_small():
    counts = ClickCounts([[10, 0], [0, 10]], [[5, 0], [0, 5]])
    np.testing.assert_allclose(relevance(counts, [1.0, 0.01]), [0.5, 50.0], rtol=1e-5)
    np.testing.assert_allclose(relevance(counts, [1.0, 0.01], smallest=0.25), [0.5, 2.0], rtol=1e-6)


def test_examination_is_recovered_from_both_kinds_of_log(logs):
    np.testing.assert_allclose(fit_examination(logs[0]), EXAMINATION, atol=0.02)
    # By the ratio of click rates queries must fill the list: of short ones the lower positions have nothing.
    full = np.repeat(np.diff(np.asarray(QUERIES.starts)) >= K, np.diff(np.asarray(QUERIES.starts)))
    whole = ClickCounts(logs[1].shown[full], logs[1].clicked[full])
    np.testing.assert_allclose(fit_examination(whole, shuffled=True), EXAMINATION, atol=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: relevance(c, [1.0]), r"examination must have a value for each of 2 positions; got shape \(1,\)"),
        (lambda c: relevance(c, noise=1.0), r"noise must be in \[0, 1\); got 1.0"),
        (lambda c: relevance(c, smallest=0.0), r"smallest must be in \(0, 1\); got 0.0"),
        (lambda c: count_sessions(QUERIES, [99], [[0]], np.array([[True]])), "owner must hold queries from 0 to"),
        (lambda c: count_sessions(QUERIES, [0], [[99]], np.array([[True]])), "rankings must hold documents of their"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(ClickCounts([[1, 1]], [[0, 1]]))
