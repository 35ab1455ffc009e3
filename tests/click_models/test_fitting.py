"""Fitted click models: simulated sessions of known parameters, the maximum of the likelihood, real sessions, speed."""

import time
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import click_model_fits as plain

import jaxrank as jr
from jaxrank.click_models import fitting
from jaxrank.click_models.cascade import CascadeModel
from jaxrank.click_models.click_chain import ClickChainModel
from jaxrank.click_models.dependent_click import DependentClickModel
from jaxrank.click_models.dynamic_bayesian import DynamicBayesianModel, SimplifiedDynamicBayesianModel
from jaxrank.click_models.fitting import evaluate, fit, fit_to_features
from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.click_models.trust_bias import TrustBiasModel
from jaxrank.click_models.user_browsing import UserBrowsingModel
from jaxrank.core.pytrees import leaf_axes
from jaxrank.datasets.sessions import load_sessions

L, K, QUERIES = 8, 5, 2
NAMES = ("cm", "dcm", "pbm", "ubm", "dbn", "ccm", "sdbn", "trust")
RATES = ("gctr", "rctr", "dctr", "rdctr")
SHRINKAGE = 2.0  # the default


def truth(name):
    rng = np.random.default_rng(0)
    attraction, satisfaction = rng.uniform(0.1, 0.7, (2, QUERIES, L))
    after = rng.uniform(0.4, 0.9, (K, K))
    after[0] = 1
    return {
        "cm": lambda: CascadeModel(attraction),
        "dcm": lambda: DependentClickModel(attraction, np.linspace(0.7, 0.3, K)),
        "pbm": lambda: PositionBasedModel(attraction, np.linspace(1, 0.3, K)),
        "ubm": lambda: UserBrowsingModel(attraction, after),
        "dbn": lambda: DynamicBayesianModel(attraction, satisfaction, 0.85),
        "ccm": lambda: ClickChainModel(attraction, 0.9, 0.8, 0.3),
        "sdbn": lambda: SimplifiedDynamicBayesianModel(attraction, satisfaction),
        "trust": lambda: TrustBiasModel(attraction, np.linspace(1, 0.3, K), np.linspace(0.4, 0, K)),
    }[name]()


def of_query(model, query):
    leaves, tree = jax.tree.flatten(model)
    axes = leaf_axes(model)
    return jax.tree.unflatten(tree, [x if axis is None else x[query] for x, axis in zip(leaves, axes, strict=True)])


def simulate_sessions(model, sessions, seed=0):
    """Random lists, as many for each query: queries [sessions], rankings [sessions, K], clicks [sessions, K]."""
    rng = np.random.default_rng(seed)
    each = sessions // QUERIES
    rankings = rng.permuted(np.tile(np.arange(L, dtype=np.int32), (sessions, 1)), axis=1)[:, :K]
    keys = jax.random.split(jax.random.key(seed), sessions)
    sample = jax.jit(jax.vmap(lambda model, key, ranking: model.sample(key, ranking), in_axes=(None, 0, 0)))
    parts = [slice(q * each, (q + 1) * each) for q in range(QUERIES)]
    clicks = [sample(of_query(model, q), keys[part], rankings[part]) for q, part in enumerate(parts)]
    return np.repeat(np.arange(QUERIES), each), rankings, np.concatenate(clicks)


def identified(field, values):
    """The parameters that leave a trace in the log: not v of the last position, nor γ after a click further down."""
    if field == "termination":
        return values[:-1]
    if field == "examination_after":
        k, r = np.indices((K, K))
        return values[(r < k) | (r == K - 1)]
    return values


@lru_cache
def simulated_and_fitted(name, sessions=20_000, seed=0):
    """Sessions, and the model fitted to them for one item more, which is never shown."""
    queries, rankings, clicks = simulate_sessions(truth(name), sessions, seed)
    return queries, rankings, clicks, fit(name, rankings, clicks, L + 1, queries=queries)


def recovery_errors(name, sessions, seed):
    """The largest error of each field."""
    model, fitted = truth(name), simulated_and_fitted(name, sessions, seed)[-1]
    errors = {}
    for field, values in vars(model).items():
        found = np.asarray(getattr(fitted, field))
        error = np.abs((found[:, :L] if field in ("attraction", "satisfaction") else found) - np.asarray(values))
        errors[field] = float(identified(field, error).max())
    return errors


# What 20,000 sessions allow: 1.25 times the largest error seen with 25 other seeds.
ALLOWED = {
    "cm": {"attraction": 0.034},
    "dcm": {"attraction": 0.029, "termination": 0.037},
    "pbm": {"attraction": 0.039, "examination": 0.027},
    "ubm": {"attraction": 0.034, "examination_after": 0.064},
    "dbn": {"attraction": 0.031, "satisfaction": 0.158, "continuation": 0.0078},
    "ccm": {"attraction": 0.041, "tau1": 0.0093, "tau2": 0.036, "tau3": 0.046},
    "sdbn": {"attraction": 0.035, "satisfaction": 0.118},
    "trust": {"attraction": 0.054, "examination": 0.049, "trust": 0.061},
}


@pytest.mark.parametrize("name", NAMES)
def test_fit_recovers_the_parameters_that_generated_20_000_sessions(name):
    for field, error in recovery_errors(name, sessions=20_000, seed=0).items():
        assert error < ALLOWED[name][field], field


@pytest.mark.parametrize("name", NAMES)
def test_fit_is_where_the_smoothed_likelihood_has_no_slope(name):
    """d/dθ of Σ log P(session) + Σ log prior(θ) is 0: what smoothing and shrinking maximise, checked by autodiff.

    The prior of a parameter of documents is θ^(s·m)·(1 − θ)^(s·(1 − m)), where m is what an item that is never shown
    gets; that of the others is θ·(1 − θ), as if s = 2 and m = 1/2. Below 1e-5 by session, in θ(1 − θ) d/dθ: about what
    moving α by 1e-4 makes of it.
    """
    queries, rankings, clicks, fitted = simulated_and_fitted(name)
    leaves, tree = jax.tree.flatten(fitted)
    of_documents = [field in ("attraction", "satisfaction") for field in vars(fitted)]
    pseudo = [
        (SHRINKAGE * x[0, L], SHRINKAGE * (1 - x[0, L])) if by else (1, 1)
        for x, by in zip(leaves, of_documents, strict=True)
    ]

    @jax.jit
    def slope(leaves):
        def log_posterior(leaves):
            model = jax.tree.unflatten(tree, leaves)
            likelihood = jax.jit(jax.vmap(lambda q, r, c: of_query(model, q).log_likelihood(r, c)))(
                queries, rankings, clicks
            )
            priors = ((a * jnp.log(x) + b * jnp.log1p(-x)).sum() for x, (a, b) in zip(leaves, pseudo, strict=True))
            return likelihood.sum() + sum(priors)

        return [x * (1 - x) * d for x, d in zip(leaves, jax.grad(log_posterior)(leaves), strict=True)]

    first, last = slice(1), slice(-1, None)
    by_convention = {"examination": first, "examination_after": first, "termination": last, "trust": last}
    for field, slopes in zip(vars(fitted), slope(leaves), strict=True):
        slopes = np.atleast_1d(slopes).copy()
        slopes[by_convention.get(field, slice(0))] = 0
        assert np.abs(slopes).max() / len(rankings) < 1e-5, field


def test_cascade_and_dependent_click_counts_are_those_of_a_small_log():
    rankings = np.array([[0, 1, 2], [0, 1, 2], [2, 1, 0], [2, 1, 0]])
    clicks = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 1], [0, 1, 0]], bool)
    cascade = fit("cm", rankings, clicks, 3)
    # 0/2, 2/3 and 1/3, each with two more of the mean 4/10.
    np.testing.assert_allclose(cascade.attraction, [0.8 / 4, 2.8 / 5, 1.8 / 5], rtol=1e-6)
    counted = fit("dcm", rankings, clicks, 3, num_iterations=0)
    # 1/3, 2/4 and 2/4, each with two more of the mean 6/13.
    np.testing.assert_allclose(counted.attraction, (np.array([1, 2, 2]) + 12 / 13) / [5, 6, 6], rtol=1e-6)
    np.testing.assert_allclose(counted.termination, [1 / 3, 2 / 4, 3 / 4], rtol=1e-6)  # 0/1, 1/2, 2/2


def test_dependent_click_counts_overrate_what_em_recovers():
    model = truth("dcm")
    queries, rankings, clicks, _ = simulated_and_fitted("dcm")
    counted = fit("dcm", rankings, clicks, L, queries=queries, num_iterations=0)
    assert (np.asarray(counted.termination - model.termination)[:-1] > 0).all()
    assert float(counted.termination[-2] - model.termination[-2]) > 0.2
    assert float(jnp.mean(counted.attraction - model.attraction)) > 0.02


def test_scale_is_fixed_by_examination_of_the_first_position_and_trust_in_the_last():
    assert simulated_and_fitted("pbm")[-1].examination[0] == 1
    assert simulated_and_fitted("ubm")[-1].examination_after[0, -1] == 1
    trust = simulated_and_fitted("trust")[-1]
    assert trust.examination[0] == 1 and trust.trust[-1] == 0


def test_a_log_whose_first_rank_is_not_the_most_clicked_is_likelier_under_a_free_scale():
    model = PositionBasedModel(truth("pbm").attraction, [0.3, 0.9, 0.8, 0.5, 0.4])
    queries, rankings, clicks = simulate_sessions(model, 20_000)
    fixed, free = (fit("pbm", rankings, clicks, L, queries=queries, fix_scale=fix_scale) for fix_scale in (True, False))
    likelihood = [evaluate(one, rankings, clicks, queries=queries).log_likelihood for one in (fixed, free)]
    assert likelihood[1] > likelihood[0] + 0.01
    assert free.examination[1] == 1
    np.testing.assert_allclose(free.examination, model.examination / 0.9, atol=0.03)
    same = fit("ubm", *simulated_and_fitted("pbm")[1:3], L, fix_scale=False)
    assert same.examination_after[0, -1] == 1, "where the first position is the most examined, it stays so"


def test_one_query_gives_a_model_without_query_axis_and_unseen_items_get_the_mean():
    queries, rankings, clicks, _ = simulated_and_fitted("cm")
    model = fit("dbn", rankings, clicks, L + 2, num_iterations=20)
    assert model.attraction.shape == model.satisfaction.shape == (L + 2,)
    assert model.satisfaction[L] == model.satisfaction[L + 1]
    assert model.attraction[:L].min() < model.attraction[L] == model.attraction[L + 1] < model.attraction[:L].max()
    model = fit("cm", rankings, clicks, L, queries=queries, num_queries=3)
    assert model.attraction.shape == (3, L)
    assert (model.attraction[2] == model.attraction[2, 0]).all()
    examined = np.cumsum(clicks, axis=1) - clicks == 0
    assert model.attraction[2, 0] == pytest.approx((1 + clicks[examined].sum()) / (2 + examined.sum()), rel=1e-5)


def test_rare_items_are_shrunk_towards_the_mean_as_far_as_they_are_rare():
    rankings = np.array([[0, 1]] * 98 + [[0, 2]] * 2)
    clicks = np.zeros((100, 2), bool)
    clicks[:49, 1] = clicks[98:, 1] = True  # 1 is clicked half of the time, 2 both times
    mean = (1 + 51) / (2 + 200)
    for shrinkage in (0.1, 2.0, 50.0):
        alpha = fit("dctr", rankings, clicks, 4, shrinkage=shrinkage).attraction
        expected = [shrinkage * mean / (100 + shrinkage), (shrinkage * mean + 49) / (98 + shrinkage)]
        expected += [(shrinkage * mean + 2) / (2 + shrinkage), mean]
        np.testing.assert_allclose(alpha, expected, rtol=1e-5)


def test_click_rates_and_simplified_dynamic_bayesian_counts_are_those_of_plain_loops():
    _, rankings, clicks, _ = simulated_and_fitted("dcm")
    rankings, clicks = rankings[:300], clicks[:300]
    log = rankings.tolist(), clicks.tolist(), L
    everywhere, by_rank, by_document, by_both = plain.click_rates(*log)
    found = {name: fit(name, rankings, clicks, L) for name in RATES}
    ranking = jnp.arange(K, dtype=jnp.int32)
    np.testing.assert_allclose(found["gctr"].click_probability(ranking), [everywhere] * K, rtol=1e-5)
    np.testing.assert_allclose(found["rctr"].click_probability(ranking), by_rank, rtol=1e-5)
    np.testing.assert_allclose(found["dctr"].click_probability(ranking), by_document[:K], rtol=1e-5)
    both = found["rdctr"]
    np.testing.assert_allclose(both.attraction[:, None] * both.relative_rate, by_both, rtol=1e-5)
    np.testing.assert_allclose(both.attraction, np.max(by_both, axis=1), rtol=1e-5)
    counted = fit("sdbn", rankings, clicks, L, num_iterations=0)
    alpha, sigma = plain.simplified_dynamic_bayesian_counts(*log)
    np.testing.assert_allclose(counted.attraction, alpha, rtol=1e-5)
    np.testing.assert_allclose(counted.satisfaction, sigma, rtol=1e-5)


def test_more_structure_predicts_the_clicks_of_its_own_users_better():
    """Held-out log-likelihood: the trust-bias model, the position-based model, the rates by rank and of all."""
    queries, rankings, clicks = simulate_sessions(truth("trust"), 20_000, seed=1)
    train = np.arange(20_000) % 2 == 0
    found = []
    for name in ("trust", "pbm", "rctr", "gctr"):
        model = fit(name, rankings[train], clicks[train], L, queries=queries[train])
        found.append(evaluate(model, rankings[~train], clicks[~train], queries=queries[~train]).log_likelihood)
    assert found == sorted(found, reverse=True) and found[0] > found[1] + 1e-3, found


def test_fit_says_if_it_has_not_converged(monkeypatch):
    _, rankings, clicks, _ = simulated_and_fitted("pbm")
    monkeypatch.setattr(fitting, "_MOST_ITERATIONS", 10)
    with pytest.warns(
        RuntimeWarning, match=r"pbm has not converged: iteration 10 changed a parameter by .*e-0\d, not at"
    ):
        fit("pbm", rankings, clicks, L)
    fit("pbm", rankings, clicks, L, num_iterations=10)  # as many as were asked for: no warning


def test_parameters_from_features_are_recovered_and_reach_documents_that_were_never_shown():
    """60 queries of 30 sessions each: too few for a table of 480 documents, enough for five weights."""
    rng = np.random.default_rng(0)
    theta, bias, num_queries = np.array([1.2, -0.8, 0.5, 0.0]), -0.5, 60
    features = rng.normal(size=(num_queries, L, 4))
    alpha = 1 / (1 + np.exp(-features @ theta - bias))
    chi = np.linspace(1, 0.3, K)
    queries = np.repeat(np.arange(num_queries), 30)
    # The last two items of every query are never shown.
    rankings = rng.permuted(np.tile(np.arange(L - 2), (len(queries), 1)), axis=1)[:, :K]
    clicks = rng.random(rankings.shape) < chi * alpha[queries[:, None], rankings]
    model, found = fit_to_features("pbm", rankings, clicks, features, jr.rankers.linear, queries=queries)
    # Three times the standard errors of a logistic regression of 9,000 examples, of which half are examined.
    np.testing.assert_allclose(found["attraction"]["ranker"], theta, atol=0.15)
    assert found["attraction"]["bias"] == pytest.approx(bias, abs=0.15)
    np.testing.assert_allclose(model.examination, chi, atol=0.06)
    table = fit("pbm", rankings, clicks, L, queries=queries)
    errors = [np.abs(np.asarray(one.attraction) - alpha) for one in (model, table)]
    assert errors[0].mean() < 0.03 < 0.06 < errors[1][:, : L - 2].mean()
    assert errors[0][:, L - 2 :].mean() < 0.03 < 0.15 < errors[1][:, L - 2 :].mean()
    np.testing.assert_allclose(
        model.attraction,
        jax.nn.sigmoid(features @ found["attraction"]["ranker"] + found["attraction"]["bias"]),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "cm"}, "name must be one of dcm, pbm, ubm, dbn, ccm, sdbn, trust; got 'cm'"),
        ({"features": [[1.0], [np.nan]]}, r"features must be finite numbers \[L, d\], or .*; got float64 \(2, 1\)"),
        ({"features": [1.0, 2.0]}, r"features must be .*; got float64 \(2,\)"),
        ({"learning_rate": 0}, "learning_rate must be positive and finite; got 0"),
    ],
)
def test_bad_arguments_of_fit_to_features_are_named(changed, message):
    good = {"name": "pbm", "rankings": [[0, 1]], "clicks": [[True, False]], "features": [[1.0], [2.0]]}
    with pytest.raises(ValueError, match=message):
        fit_to_features(**{**good, **changed}, ranker=jr.rankers.linear)


def test_a_repeated_session_counts_as_often_as_it_occurred_wherever_it_stands():
    _, rankings, clicks, _ = simulated_and_fitted("dcm")
    rankings, clicks = rankings[:1_000], clicks[:1_000]
    straight = fit("dcm", np.repeat(rankings, 3, axis=0), np.repeat(clicks, 3, axis=0), L)
    shuffled = np.random.default_rng(0).permutation(np.tile(np.arange(1_000), 3))
    again = fit("dcm", rankings[shuffled], clicks[shuffled], L)
    once = fit("dcm", rankings, clicks, L)
    np.testing.assert_allclose(straight.attraction, again.attraction, atol=1e-6)
    assert jnp.abs(straight.attraction - once.attraction).max() > 1e-4, "smoothing weighs less"


def test_trust_bias_em_is_the_plain_loop():
    _, rankings, clicks, _ = simulated_and_fitted("trust")
    log = rankings[:300], clicks[:300]
    expected = plain.places_em(*(x.tolist() for x in log), L, 20, trusts=True)
    model = fit("trust", *log, L, num_iterations=20, tolerance=0)
    for found, values in zip(vars(model).values(), expected, strict=True):
        np.testing.assert_allclose(found, values, atol=1e-5)


def test_pbm_em_is_the_plain_loop_and_at_least_20_times_faster():
    """In session-passes a second, everything from the arrays on included, once compiled."""
    _, rankings, clicks, _ = simulated_and_fitted("pbm")
    started = time.perf_counter()
    alpha, chi, _ = plain.places_em(rankings[:2_000].tolist(), clicks[:2_000].tolist(), L, 10)
    plain_rate = 2_000 * 10 / (time.perf_counter() - started)
    model = fit("pbm", rankings[:2_000], clicks[:2_000], L, num_iterations=10, tolerance=0)
    np.testing.assert_allclose(model.attraction, alpha, atol=1e-5)
    np.testing.assert_allclose(model.examination, chi, atol=1e-5)

    fit("pbm", rankings, clicks, L, num_iterations=10, tolerance=0)
    started = time.perf_counter()
    fit("pbm", rankings, clicks, L, num_iterations=100, tolerance=-1)
    rate = 20_000 * 100 / (time.perf_counter() - started)
    assert rate / plain_rate > 20, f"{rate:.3g} against {plain_rate:.3g} session-passes/s"


def test_perplexity_is_2_to_the_mean_bits_a_click_costs():
    fair = PositionBasedModel([0.5, 0.5, 0.5], [1.0, 1.0, 1.0])
    result = evaluate(fair, [[0, 1, 2], [2, 1, 0]], [[True, False, True], [False, False, False]])
    np.testing.assert_allclose(result.perplexity_at, [2, 2, 2], rtol=1e-6)
    assert result.perplexity == pytest.approx(2)
    assert result.log_likelihood == pytest.approx(3 * np.log(0.5))

    cascade = CascadeModel([0.5, 0.25])  # P(click) is 1/2 at the first position, 1/8 at the second
    result = evaluate(cascade, [[0, 1]] * 2, [[True, False], [False, True]])
    bits = [np.mean(np.log2([1 / 2, 1 / 2])), np.mean(np.log2([7 / 8, 1 / 8]))]
    np.testing.assert_allclose(result.perplexity_at, 2.0 ** -np.array(bits), rtol=1e-6)
    assert result.log_likelihood == pytest.approx((np.log(1 / 2) + np.log(1 / 2 * 1 / 4)) / 2)


def test_sessions_are_evaluated_under_their_own_query():
    model = truth("dbn")
    queries, rankings, clicks = simulate_sessions(model, 1_000)
    together = evaluate(model, rankings, clicks, queries=queries)
    parts = [evaluate(of_query(model, q), rankings[queries == q], clicks[queries == q]) for q in range(QUERIES)]
    assert together.log_likelihood == pytest.approx(np.mean([part.log_likelihood for part in parts]), rel=1e-5)
    bits = np.mean([np.log(part.perplexity_at) for part in parts], axis=0)
    np.testing.assert_allclose(together.perplexity_at, np.exp(bits), rtol=1e-5)


def test_models_that_know_examination_predict_real_held_out_clicks_better_than_the_cascade(real_data):
    log = load_sessions(real_data / "yandex-sessions" / "sessions.tsv.gz")
    train, test = log.stacked("train"), log.stacked("test")
    perplexity = {}
    for name in ("cm", "pbm", "ubm", "dbn"):
        model = fit(
            name,
            train.rankings,
            train.clicks,
            log.num_items,
            queries=train.queries,
            num_queries=len(log.queries),
        )
        perplexity[name] = evaluate(model, test.rankings, test.clicks, queries=test.queries).perplexity
    for name in ("pbm", "ubm", "dbn"):
        assert perplexity[name] < perplexity["cm"] - 0.05, perplexity


GOOD = {"rankings": [[0, 1], [1, 0]], "clicks": [[True, False], [False, False]], "num_items": 2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "pmb"}, r"name must be one of cm, dcm, pbm, .*; got 'pmb'; did you mean 'pbm'"),
        ({"rankings": [0, 1]}, r"rankings must have shape \[sessions, K\], neither of them 0; got \(2,\)"),
        ({"rankings": np.zeros((0, 2), int)}, r"rankings must have shape .* got \(0, 2\)"),
        ({"rankings": [[0, -1], [1, 0]]}, r"rankings must be non-negative integers; got int64, least -1"),
        ({"rankings": [[0.0, 1.0], [1.0, 0.0]]}, r"rankings must be non-negative integers; got float64"),
        ({"clicks": [[True], [False]]}, r"clicks must be booleans of shape \(2, 2\); got bool \(2, 1\)"),
        ({"clicks": [[1, 0], [0, 0]]}, r"clicks must be booleans of shape \(2, 2\); got int64 \(2, 2\)"),
        ({"num_items": 1}, r"num_items must be an integer of at least 2, above the largest item; got 1"),
        ({"queries": [0]}, r"queries must have shape \(2,\); got \(1,\)"),
        ({"queries": [0, -3]}, r"queries must be non-negative integers; got int64, least -3"),
        (
            {"queries": [0, 3], "num_queries": 3},
            r"num_queries must be an integer of at least 4, above the largest of queries; got 3",
        ),
        (
            {"queries": [0, 1], "num_queries": 2**30},
            r"num_queries × num_items must be below 2\*\*31; got 2147483648",
        ),
        ({"num_queries": 3}, r"num_queries must be None where no queries are given; got 3"),
        ({"shrinkage": 0}, r"shrinkage must be positive and finite; got 0"),
        ({"num_iterations": -1}, r"num_iterations must be an integer of at least 0; got -1"),
    ],
)
def test_bad_arguments_of_fit_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        fit(**{"name": "pbm", **GOOD, **changed})


@pytest.mark.parametrize(
    ("model", "queries", "message"),
    [
        (CascadeModel([0.5]), None, r"rankings must hold items from 0 to 0; got 1"),
        (
            CascadeModel([0.5, 0.5]),
            [0, 0],
            r"queries must fit the model, which has no query axis; got up to 0",
        ),
        (
            CascadeModel([[0.5, 0.5]]),
            None,
            r"queries must fit the model, .* query axis of length 1; got None",
        ),
        (
            CascadeModel([[0.5, 0.5]]),
            [0, 1],
            r"queries must fit the model, .* query axis of length 1; got up to 1",
        ),
    ],
)
def test_bad_arguments_of_evaluate_are_named(model, queries, message):
    with pytest.raises(ValueError, match=message):
        evaluate(model, GOOD["rankings"], GOOD["clicks"], queries=queries)
