"""Soft rankings, Plackett–Luce, and click models between hard rankings."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxrank as jr
from jaxrank.core.metrics import dcg, ndcg
from jaxrank.learning import relax

RELAXATIONS = {"soft_sort": relax.soft_sort, "neural_sort": relax.neural_sort, "sinkhorn_sort": relax.sinkhorn_sort}
ATTRACTION = np.array([0.35, 0.8, 0.15, 0.5, 0.6])
GRADES = np.array([2, 0, 1, 2, 1])
MODELS = {
    "cm": lambda: jr.CascadeModel(ATTRACTION),
    "dcm": lambda: jr.DependentClickModel(ATTRACTION, [0.3, 0.9, 0.6, 0.1, 0.7]),
    "pbm": lambda: jr.PositionBasedModel(ATTRACTION, [0.7, 1.0, 0.4, 0.9, 0.2]),
    "ubm": lambda: jr.UserBrowsingModel(ATTRACTION, np.linspace(0.95, 0.2, 25).reshape(5, 5)),
    "dbn": lambda: jr.DynamicBayesianModel(ATTRACTION, [0.5, 0.1, 0.9, 0.3, 0.6], 0.8),
    "ccm": lambda: jr.ClickChainModel(ATTRACTION, 0.9, 0.7, 0.4),
    "graded": lambda: jr.GradedUser([0.1, 0.5, 0.9], [0.2, 0.4, 0.7], GRADES),
    "graded_view": lambda: jr.GradedUser([0.1, 0.5, 0.9], [0.2, 0.4, 0.7], GRADES, stop_at="view"),
}
SCORES = np.array([0.3, 1.2, -0.4, 0.7, 0.1])
ORDER = [1, 3, 0, 4, 2]
each_relaxation = pytest.mark.parametrize("name", RELAXATIONS)
each_model = pytest.mark.parametrize("name", MODELS)


def mixed(seed=0, shape=(4, 5)):
    """Soft rankings that no relaxation made: any rows that sum to 1."""
    return np.random.default_rng(seed).dirichlet(np.ones(shape[1]), shape[0])


@each_relaxation
def test_gradients_are_the_slopes(name):
    """Float64, through both the whole and the masked ranking; also with respect to the temperature."""
    with jax.enable_x64(True):
        weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 5)))
        where = jnp.array([True, True, False, True, True])

        @jax.jit
        def projected(scores, temperature):
            whole = RELAXATIONS[name](scores, temperature, list_size=3)
            return jnp.sum(weights * jnp.stack([whole, RELAXATIONS[name](scores, temperature, where=where)[:3]]))

        check_grads(projected, (jnp.asarray(SCORES), jnp.asarray(0.7)), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


@each_relaxation
def test_soft_rankings_become_the_hard_one_as_the_temperature_falls(name):
    one_hot, scores = np.eye(5)[ORDER], jnp.asarray(SCORES, jnp.float32)
    soft = jax.jit(RELAXATIONS[name])
    errors = [np.abs(soft(scores, t) - one_hot).max() for t in (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.3 and errors[-1] < 1e-6


@each_relaxation
def test_straight_through_is_hard_forward_and_soft_backward(name):
    scores = jnp.asarray(SCORES, jnp.float32)
    where = jnp.array([True, True, False, True, True])
    cube = jnp.asarray(np.random.default_rng(1).normal(size=(5, 5)), jnp.float32)

    def value(scores, hard):
        ranking = RELAXATIONS[name](scores, where=where, hard=hard)
        return jnp.sum(cube * ranking), ranking

    (_, ranking), gradient = jax.value_and_grad(value, has_aux=True)(scores, True)
    expected = np.eye(5)[ORDER]
    expected[4] = 0  # the item that is not there
    np.testing.assert_array_equal(ranking, expected)
    np.testing.assert_allclose(gradient, jax.grad(lambda s: value(s, False)[0])(scores), rtol=1e-6)
    assert gradient[2] == 0


@each_relaxation
def test_masked_items_do_not_matter(name):
    """As if they were not there, whatever their scores."""
    where = jnp.array([True, False, True, True, False, True])
    scores = jnp.array([0.3, jnp.nan, -0.4, 0.7, jnp.inf, 0.1])
    found, gradient = jax.jit(
        lambda s: (RELAXATIONS[name](s, where=where), jax.grad(lambda s: RELAXATIONS[name](s, where=where)[0, 0])(s))
    )(scores)
    np.testing.assert_allclose(found[:4][:, where], RELAXATIONS[name](scores[where]), atol=1e-6)
    assert not found[:, ~where].any() and not found[4:].any()
    assert np.isfinite(gradient).all() and gradient[0] != 0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "sinkhorn_sort")) for name in RELAXATIONS]
)
def test_a_thousand_items_at_any_temperature_and_scale_stay_finite_in_float32(name):
    rng = np.random.default_rng(0)
    run = jax.jit(
        lambda scores, t: (
            RELAXATIONS[name](scores, t, list_size=10),
            jax.grad(lambda s: relax_reward(name, s, t))(scores),
        )
    )
    for scores in (rng.normal(size=1000), 1e6 * rng.normal(size=1000), np.zeros(1000), np.eye(1000)[7] * 1e8):
        for temperature in (1e-6, 1e-2, 1e4):
            ranking, gradient = run(jnp.asarray(scores, jnp.float32), jnp.float32(temperature))
            assert ranking.dtype == jnp.float32 and (ranking >= 0).all()
            np.testing.assert_allclose(ranking.sum(axis=1), 1, atol=1e-5)
            assert np.isfinite(gradient).all()


def relax_reward(name, scores, temperature):
    gains = jnp.linspace(0, 1, scores.shape[0])
    return jnp.sum(RELAXATIONS[name](scores, temperature, list_size=10) @ gains)


def test_soft_sort_and_neural_sort_are_their_formulas():
    s, n, t = SCORES, 5, 0.6
    soft, neural = np.zeros((5, 5)), np.zeros((5, 5))
    for k in range(n):
        soft[k] = np.exp(-np.abs(np.sort(s)[::-1][k] - s) / t)
        neural[k] = np.exp(((n + 1 - 2 * (k + 1)) * s - np.abs(s[:, None] - s[None, :]).sum(1)) / t)
    for found, expected in ((relax.soft_sort, soft), (relax.neural_sort, neural)):
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found(jnp.asarray(s, jnp.float32), t), expected, atol=1e-6)


def test_sinkhorn_is_the_entropic_transport_plan():
    """Doubly stochastic, and logits/τ − log P is a constant of the row plus a constant of the column."""
    scores = jnp.asarray(SCORES, jnp.float32)
    plan = np.asarray(relax.sinkhorn_sort(scores, 2.0, num_iterations=200), np.float64)
    np.testing.assert_allclose(plan.sum(axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(plan.sum(axis=1), 1, atol=1e-5)
    residual = np.outer(4 - 2 * np.arange(5), SCORES) / 2.0 - np.log(plan)
    residual -= residual.mean(axis=0, keepdims=True)
    assert np.ptp(residual, axis=1).max() < 1e-3


@each_model
def test_gradients_of_a_click_model_are_the_slopes(name):
    """Float64: of reward and click probabilities, with respect to a soft ranking and to every parameter, and at a
    hard ranking; and of the reward of relaxed scores."""
    with jax.enable_x64(True):
        weights = jnp.asarray([0.4, -1.0, 0.7, 2.0])
        ranking, hard = jnp.asarray(mixed()), jnp.asarray(ORDER[:4], jnp.int32)
        leaves, structure = jax.tree.flatten(MODELS[name]())
        is_real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

        @jax.jit
        def value(ranking, parameters, scores):
            left = iter(parameters)
            model = jax.tree.unflatten(
                structure, [next(left) if real else leaf for real, leaf in zip(is_real, leaves, strict=True)]
            )
            relaxed = model.reward(relax.neural_sort(scores, 0.5, list_size=4), 3)
            clicks = sum(weights @ model.click_probability(r) for r in (ranking, hard))
            return clicks + model.reward(ranking, 3) + 2 * model.reward(hard, 3) + relaxed

        parameters = [leaf for real, leaf in zip(is_real, leaves, strict=True) if real]
        arguments = (ranking, parameters, jnp.asarray(SCORES))
        check_grads(value, arguments, order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


@each_model
def test_a_soft_ranking_is_one_that_draws_every_position_by_itself(name):
    """The multilinear extension, by enumeration of all lists, repeated items included; at one-hot rows, itself."""
    model, soft = MODELS[name](), mixed(shape=(3, 5))
    lists = np.array(list(itertools.product(range(5), repeat=3)), np.int32)
    probability = np.prod(soft[np.arange(3), lists], axis=1)
    for measure in (model.click_probability, model.examination_probability, model.reward):
        of_lists = np.asarray(jax.jit(jax.vmap(measure))(jnp.asarray(lists)))
        np.testing.assert_allclose(
            measure(jnp.asarray(soft, jnp.float32)), np.tensordot(probability, of_lists, 1), atol=1e-6
        )
        hard = jnp.asarray(ORDER[:3])
        np.testing.assert_allclose(measure(jnp.eye(5)[hard]), measure(hard), atol=1e-6)


def test_the_position_based_model_is_exact_for_any_distribution_over_rankings():
    """Plackett–Luce, whose marginals are no product: by enumeration."""
    model, lists = MODELS["pbm"](), np.array(list(itertools.permutations(range(5), 3)), np.int32)
    p = np.exp(
        jax.jit(jax.vmap(lambda r: relax.log_probability(jnp.asarray(SCORES, jnp.float32), r)))(jnp.asarray(lists))
    )
    marginals = sum(q * np.eye(5)[r] for q, r in zip(p, lists, strict=True))
    expected = p @ np.asarray(jax.jit(jax.vmap(model.reward))(jnp.asarray(lists)))
    assert model.reward(jnp.asarray(marginals, jnp.float32)) == pytest.approx(expected, rel=1e-5)


def test_ndcg_of_soft_rankings_lies_between_the_hard_ones_and_has_its_slope():
    gains = np.array([3.0, 0.0, 1.0, 7.0, 0.0])
    ideal = 7 + 3 / np.log2(3) + 1 / 2
    assert ndcg(jnp.array([0, 3, 1]), jnp.asarray(gains)) == pytest.approx((3 + 7 / np.log2(3)) / ideal)
    assert ndcg(jnp.array([0, 3, 1]), jnp.zeros(5)) == 0
    assert ndcg(jnp.array([0, 1, 2]), jnp.asarray(gains), jnp.arange(5) < 3) == pytest.approx(
        3.5 / (3 + 1 / np.log2(3)), rel=1e-6
    )
    soft = mixed(shape=(3, 5))
    expected = dcg(jnp.asarray(soft @ gains))[-1] / ideal
    assert ndcg(jnp.asarray(soft), jnp.asarray(gains)) == pytest.approx(float(expected), rel=1e-6)
    with jax.enable_x64(True):
        for f in RELAXATIONS.values():
            value = jax.jit(lambda s, g, f=f: ndcg(f(s, 0.5, list_size=3), g))
            check_grads(value, (jnp.asarray(SCORES), jnp.asarray(gains)), 1, modes=["rev"], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("list_size", [2, 5])
def test_plackett_luce_probabilities_are_the_product_of_choices(list_size):
    """Written out, over all rankings; with one of the items not there, positions beyond the others add nothing."""
    where = np.array([True, True, False, True, True])
    for mask in (None, where):
        there = np.arange(5) if mask is None else np.flatnonzero(mask)
        total = 0.0
        for ranking in itertools.permutations(there, min(list_size, len(there))):
            left, p = list(there), 1.0
            for item in ranking:
                p *= np.exp(SCORES[item]) / np.exp(SCORES[left]).sum()
                left.remove(item)
            padded = [*ranking, *([2] * (list_size - len(ranking)))]
            found = _log_probability(jnp.asarray(SCORES, jnp.float32), jnp.array(padded, jnp.int32), mask)
            assert found == pytest.approx(np.log(p), abs=1e-5)
            total += p
        assert total == pytest.approx(1)


_log_probability = jax.jit(lambda scores, ranking, where: relax.log_probability(scores, ranking, where=where))


def test_plackett_luce_samples_put_each_item_on_top_as_often_as_its_weight():
    """Five standard errors, and never an item that is not there above one that is."""
    where = jnp.array([True, True, False, True, True])
    keys = jax.random.split(jax.random.key(0), 20_000)
    scores = jnp.asarray(SCORES, jnp.float32)
    lists = np.asarray(jax.jit(jax.vmap(lambda key: relax.plackett_luce(key, scores, where=where)))(keys))
    assert (lists[:, 4] == 2).all()
    p = np.where(where, np.exp(SCORES), 0)
    p /= p.sum()
    found = np.bincount(lists[:, 0], minlength=5) / len(lists)
    assert (np.abs(found - p) <= 5 * np.sqrt(p * (1 - p) / len(lists))).all()


def test_the_log_probability_of_a_thousand_extreme_scores_is_finite_and_right():
    rng, run = np.random.default_rng(0), jax.jit(jax.value_and_grad(relax.log_probability))
    for scale in (1.0, 1e4):
        scores = scale * rng.normal(size=1000)
        ranking = rng.permutation(1000)[:300]
        rest = np.concatenate([ranking, np.setdiff1d(np.arange(1000), ranking)])
        remaining = np.logaddexp.accumulate(scores[rest][::-1])[::-1]
        expected = (scores[rest] - remaining)[:300].sum()
        value, gradient = run(jnp.asarray(scores, jnp.float32), jnp.asarray(ranking, jnp.int32))
        assert value == pytest.approx(expected, rel=1e-5)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["cm", "ubm"])
def test_the_score_function_gradient_has_the_exact_gradient_as_its_mean(name):
    """By enumeration of all lists of 3 of 5; every coordinate within 4 standard errors. Likewise the value, and the
    gradient with respect to attraction."""
    lists, scores = jnp.asarray(list(itertools.permutations(range(5), 3)), jnp.int32), jnp.asarray(SCORES, jnp.float32)
    model = MODELS[name]()

    def exact(scores, attraction):
        changed = jax.tree.unflatten(jax.tree.structure(model), [attraction, *jax.tree.leaves(model)[1:]])
        p = jnp.exp(jax.vmap(lambda r: relax.log_probability(scores, r))(lists))
        return jnp.dot(p, jax.vmap(changed.reward)(lists))

    def sampled(key, scores, attraction):
        changed = jax.tree.unflatten(jax.tree.structure(model), [attraction, *jax.tree.leaves(model)[1:]])
        return relax.expected_reward(key, changed.reward, scores, num_samples=4, list_size=3)

    expected = jax.jit(jax.value_and_grad(exact, argnums=(0, 1)))(scores, model.attraction)
    keys = jax.random.split(jax.random.key(3), 20_000)
    found = jax.jit(jax.vmap(jax.value_and_grad(sampled, argnums=(1, 2)), in_axes=(0, None, None)))(
        keys, scores, model.attraction
    )
    for samples, target in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        error = np.std(samples, axis=0) / np.sqrt(len(keys))
        assert (np.abs(np.mean(samples, axis=0) - target) <= 4 * error + 1e-7).all()
        assert (np.abs(target) > 4 * error).any(), "the test can tell the gradient from 0"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: relax.soft_sort(s, 0.0), "temperature must be positive and finite; got 0.0"),
        (lambda s: relax.neural_sort(s, list_size=6), "list_size must be an integer from 1 to 5 items; got 6"),
        (lambda s: relax.sinkhorn_sort(s[None]), r"scores must be floats of shape \[items\]; got float32"),
        (lambda s: relax.soft_sort(s, where=jnp.ones(4, bool)), r"where must be booleans of shape \(5,\)"),
        (
            lambda s: relax.expected_reward(jax.random.key(0), jnp.sum, s, num_samples=1),
            "num_samples must be an integer of at least 2, for a baseline; got 1",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.asarray(SCORES, jnp.float32))
