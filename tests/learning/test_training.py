"""Training finds what its loss asks for, one seed or many."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from streams import data

import jaxrank as jr

QUERIES = data().train


def mean_loss(params, loss, ranker=jr.rankers.linear):
    def of_query(index):
        features, where = QUERIES.documents(index)
        return loss(ranker.apply(params, features), QUERIES.grades[QUERIES.rows(index)[0]], where, jax.random.key(0))

    return float(jnp.mean(jax.jit(jax.vmap(of_query))(jnp.arange(QUERIES.num_queries))))


@pytest.mark.parametrize("sampled", [False, True])
def test_expected_clicks_rise_under_both_kinds_of_gradient(sampled):
    user = jr.click_models.graded_user("perfect")
    options = {"relaxation": None, "num_samples": 4} if sampled else {"temperature": 1.0}
    loss = jr.losses.expected_clicks(user, list_size=3, **options)
    hard = jr.losses.expected_clicks(user, list_size=3, hard=True)
    params = jr.train(QUERIES, loss, num_epochs=40, learning_rate=0.05)
    assert mean_loss(params, hard) < mean_loss(jnp.zeros(QUERIES.num_features), hard) - 0.05


def test_plain_gradient_descent_on_all_queries_is_what_numpy_does():
    """One batch of all queries, so that no order matters: softmax loss with λ, five steps of SGD."""
    batch = QUERIES.num_queries
    found = jr.train(
        QUERIES, num_epochs=5, batch_size=batch, optimizer=optax.sgd(0.1), regularization=0.3, labels=QUERIES.grades
    )
    X, y, starts = (np.asarray(a, np.float64) for a in (QUERIES.features, QUERIES.grades, QUERIES.starts))
    theta = np.zeros(X.shape[1])
    for _ in range(5):
        gradient = 0.3 * theta
        for a, b in zip(starts[:-1].astype(int), starts[1:].astype(int), strict=True):
            p = np.exp(X[a:b] @ theta)
            gradient = gradient + (y[a:b].sum() * p / p.sum() - y[a:b]) @ X[a:b] / batch
        theta -= 0.1 * gradient
    np.testing.assert_allclose(found, theta, atol=1e-5)


def test_seeds_side_by_side_are_those_alone_and_may_have_labels_of_their_own():
    ranker = jr.rankers.mlp(4)
    labels = np.stack([np.asarray(QUERIES.grades), np.asarray(QUERIES.grades)[::-1]]).astype(float)
    # Not Adam: the output's bias has no gradient but rounding, which Adam would blow up.
    options = {"ranker": ranker, "num_epochs": 3, "batch_size": 5, "optimizer": optax.sgd(0.1)}
    both = jr.train(QUERIES, labels=labels, num_seeds=2, seed=7, **options)
    alone = jr.train(QUERIES, labels=labels[1], seed=8, **options)
    for leaf, one in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
        assert leaf.shape[0] == 2
        np.testing.assert_allclose(leaf[1], one, atol=1e-5)
    weights = both[0]["weight"]
    assert not np.allclose(weights[0], weights[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_epochs": 0}, "num_epochs must be a positive integer; got 0"),
        ({"batch_size": 1.5}, "batch_size must be a positive integer; got 1.5"),
        ({"labels": np.zeros(3)}, r"labels must be one for each of \d+ documents; got shape \(3,\)"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        jr.train(QUERIES, **options)
