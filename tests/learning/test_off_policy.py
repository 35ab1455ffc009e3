"""Off-policy evaluation: estimators are unbiased where they say so, biased where not, and agree with plain loops."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr
from jaxrank.learning import off_policy as op

L, K = 4, 3
ALPHA = [0.7, 0.45, 0.3, 0.1]
CHI = [1.0, 0.6, 0.35]
LOGGER = op.EpsilonGreedy([0.0, 1.0, 2.0, 3.0], 0.6, K)
UNIFORM = op.Uniform(L, K)
TARGET = op.PlackettLuce([2.0, 1.0, 0.5, 0.0], K)
MODELS = {
    "cm": jr.CascadeModel(ALPHA),
    "dcm": jr.DependentClickModel(ALPHA, [0.8, 0.5, 0.3]),
    "pbm": jr.PositionBasedModel(ALPHA, CHI),
}


def plain_probability(distribution, ranking):
    """The probability of a list, item by item, written from the definitions."""
    left, probability = list(range(L)), 1.0
    scores = np.asarray(distribution.scores, float)
    for item in ranking:
        if isinstance(distribution, op.EpsilonGreedy):
            best = max(left, key=lambda i: (scores[i], -i))
            epsilon = float(distribution.epsilon)
            probability *= epsilon / len(left) + (1 - epsilon) * (item == best)
        else:
            probability *= math.exp(scores[item]) / sum(math.exp(scores[i]) for i in left)
        left.remove(item)
    return probability


@pytest.mark.parametrize("distribution", [LOGGER, TARGET], ids=["epsilon_greedy", "plackett_luce"])
def test_probabilities_of_lists_and_places_equal_a_sum_over_all_lists(distribution):
    lists = list(itertools.permutations(range(L), K))
    assert sorted(map(tuple, op.all_lists(L, K).tolist())) == sorted(lists)
    expected = np.array([plain_probability(distribution, ranking) for ranking in lists])
    np.testing.assert_allclose(expected.sum(), 1, rtol=1e-6)
    rankings = jnp.asarray(lists, jnp.int32)
    prefix, placed = op.probabilities_of(distribution, jnp.zeros(len(lists), jnp.int32), rankings)
    np.testing.assert_allclose(prefix[:, -1], expected, rtol=1e-5)
    for row, ranking in enumerate(lists):
        for k in range(K):
            above = sum(p for p, other in zip(expected, lists, strict=True) if other[: k + 1] == ranking[: k + 1])
            np.testing.assert_allclose(prefix[row, k], above, rtol=1e-5)
            for position in range(K):
                there = sum(p for p, other in zip(expected, lists, strict=True) if other[position] == ranking[k])
                np.testing.assert_allclose(placed[row, k, position], there, rtol=1e-5)


def test_samples_have_the_probabilities_of_the_lists():
    lists = op.all_lists(L, K)
    expected = np.array([plain_probability(TARGET, ranking) for ranking in lists])
    found = op.Lists.sampled(jax.random.key(1), TARGET, num_samples=20_000)
    counts = {tuple(r): p for r, p in zip(found.rankings.tolist(), found.probabilities.tolist(), strict=True)}
    observed = np.array([counts.get(tuple(r), 0) for r in lists.tolist()]) * 20_000
    chi_square = ((observed - 20_000 * expected) ** 2 / (20_000 * expected)).sum()
    assert chi_square < 23 + 5 * math.sqrt(2 * 23)  # 23 degrees of freedom, five standard deviations
    np.testing.assert_allclose(found.marginals(), TARGET.marginals(), atol=0.02)
    np.testing.assert_allclose(found.conditionals(found.rankings[0]).sum(axis=1), 1, rtol=1e-5)


def values_of_logs(model, estimator, num_logs=10_000, num_sessions=20, **options):
    """The estimates of many small logs."""

    def one(key):
        log = op.simulate_log(key, model, LOGGER, num_sessions=num_sessions)
        return op.estimate_value(log, TARGET, estimator, **options)[0]

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), num_logs)), np.float64)


def bias(model, estimator, **options):
    """The mean error over 10,000 logs in its standard errors, and as a number."""
    error = values_of_logs(model, estimator, **options) - float(op.expected_clicks(model, TARGET))
    return error.mean() / (error.std() / math.sqrt(error.size)), error.mean()


WRONG = jr.PositionBasedModel([0.2, 0.5, 0.6, 0.4], [0.9, 0.9, 0.9])  # predictions that are off
UNBIASED = [
    ("ips", "cm", {}),
    ("cascade_ips", "cm", {}),
    ("cascade_ips", "dcm", {}),
    ("cascade_ips", "pbm", {}),
    ("independent_ips", "pbm", {}),
    ("position_ips", "pbm", {"examination": jnp.array(CHI)}),
    ("doubly_robust", "cm", {"click_model": WRONG}),
    ("cascade_dr", "dcm", {"click_model": WRONG}),
]


@pytest.mark.parametrize(("estimator", "model", "options"), UNBIASED, ids=[f"{e}-{m}" for e, m, _ in UNBIASED])
def test_an_estimator_is_unbiased_where_its_assumption_holds(estimator, model, options):
    z, _ = bias(MODELS[model], estimator, **options)
    assert abs(z) < 4


@pytest.mark.parametrize(
    ("estimator", "options"), [("independent_ips", {}), ("position_ips", {"examination": jnp.array(CHI)})]
)
def test_position_wise_weights_are_biased_in_a_cascade(estimator, options):
    z, size = bias(MODELS["cm"], estimator, **options)
    assert abs(z) > 10
    assert abs(size) > 0.01


@jr.pytree
class LooksBelow:
    """Clicks at the first position depend on the item below it: no cascade."""

    attraction: Any = jr.array(ndim=1)

    def click_probability(self, ranking):
        alpha = self.attraction[ranking] * jnp.array([1.0, 0.5, 0.5])
        return alpha.at[0].multiply(1 - self.attraction[ranking[1]])

    def sample(self, key, ranking):
        return jax.random.uniform(key, (K,)) < self.click_probability(ranking)


@pytest.mark.parametrize("estimator", ["ips", "doubly_robust", "cascade_ips", "cascade_dr"])
def test_weights_of_prefixes_are_biased_where_users_look_below_and_weights_of_lists_are_not(estimator):
    options = {} if "ips" in estimator else {"click_model": WRONG}
    z, size = bias(LooksBelow(ALPHA), estimator, **options)
    if "cascade" in estimator:
        assert abs(z) > 10
        assert abs(size) > 0.01
    else:
        assert abs(z) < 4


def test_the_direct_method_is_exact_with_the_true_model_and_off_with_a_wrong_one():
    model = MODELS["dcm"]
    log = op.simulate_log(jax.random.key(0), model, LOGGER, num_sessions=10)
    lists = op.all_lists(L, K)
    exact = sum(plain_probability(TARGET, r) * float(model.click_probability(r).sum()) for r in lists)
    assert jr.evaluate(log, TARGET, "direct", click_model=model).value == pytest.approx(exact, rel=1e-5)
    assert abs(jr.evaluate(log, TARGET, "direct", click_model=WRONG).value - exact) > 0.1


def test_fewer_assumptions_cost_variance_and_a_model_saves_it():
    spread = {
        name: values_of_logs(MODELS["pbm"], name, num_logs=2_000).std()
        for name in ("ips", "cascade_ips", "independent_ips")
    }
    spread["position_ips"] = values_of_logs(
        MODELS["pbm"], "position_ips", num_logs=2_000, examination=jnp.array(CHI)
    ).std()
    spread["cascade_dr"] = values_of_logs(MODELS["pbm"], "cascade_dr", num_logs=2_000, click_model=MODELS["pbm"]).std()
    assert spread["position_ips"] < spread["independent_ips"] < spread["cascade_ips"] < spread["ips"]
    assert spread["cascade_dr"] < 0.8 * spread["cascade_ips"]


@pytest.mark.parametrize("estimator", ["ips", "cascade_ips", "independent_ips", "position_ips"])
def test_estimators_equal_a_plain_loop_over_sessions(estimator):
    """The definitions, one session after the other; SlateStandardIPS, SlateIndependentIPS and
    SlateRewardInteractionIPS of the public package obp average the same products."""
    log = op.simulate_log(jax.random.key(3), MODELS["pbm"], UNIFORM, num_sessions=50)
    lists = list(itertools.permutations(range(L), K))
    mass = {d: [plain_probability(dist, r) for r in lists] for d, dist in (("log", UNIFORM), ("target", TARGET))}

    def of(which, event):
        return sum(p for p, other in zip(mass[which], lists, strict=True) if event(other))

    def examined(which, item):
        return sum(CHI[at] * of(which, lambda other, at=at: other[at] == item) for at in range(K))

    total = 0.0
    for ranking, clicks in zip(log.rankings.tolist(), log.clicks.tolist(), strict=True):
        for k in range(K):
            events = {
                "ips": lambda other: list(other) == ranking,  # noqa: B023
                "cascade_ips": lambda other: list(other[: k + 1]) == ranking[: k + 1],  # noqa: B023
                "independent_ips": lambda other: other[k] == ranking[k],  # noqa: B023
            }
            if estimator == "position_ips":
                weight = examined("target", ranking[k]) / examined("log", ranking[k])
            else:
                weight = of("target", events[estimator]) / of("log", events[estimator])
            total += weight * clicks[k]
    options = {"examination": CHI} if estimator == "position_ips" else {}
    found = jr.evaluate(log, TARGET, estimator, **options)
    assert found.value == pytest.approx(total / 50, rel=1e-4)
    assert found.low < found.value < found.high
    assert found.effective_sample_size <= 50 + 1e-3


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    exact, sessions = float(op.expected_clicks(MODELS["cm"], TARGET)), 200

    def covered(key):
        log = op.simulate_log(key, MODELS["cm"], LOGGER, num_sessions=sessions, with_placed=False)
        found = [op.estimate_value(log, TARGET, "cascade_ips", self_normalized=normalized) for normalized in (0, 1)]
        return jnp.array(
            [jnp.abs(value - exact) < 1.96 * jnp.std(parts, ddof=1) / math.sqrt(sessions) for value, parts, _ in found]
        )

    share = jax.jit(jax.vmap(covered))(jax.random.split(jax.random.key(5), 1_000)).mean(axis=0)
    assert np.all((share > 0.92) & (share < 0.98))  # 95 %, four standard errors of 0.7 %


def test_gradients_with_respect_to_the_target_equal_finite_differences():
    log = op.simulate_log(jax.random.key(3), MODELS["pbm"], LOGGER, num_sessions=40)
    scores, step = jnp.array([2.0, 1.0, 0.5, 0.0]), 1e-2
    options = {"position_ips": {"examination": jnp.array(CHI)}, "cascade_dr": {"click_model": WRONG}}
    options |= {"direct": {"click_model": WRONG}, "doubly_robust": {"click_model": WRONG}}
    for estimator in op.ESTIMATORS:

        @jax.jit
        def value(scores, estimator=estimator):
            return op.estimate_value(log, op.PlackettLuce(scores, K), estimator, **options.get(estimator, {}))[0]

        gradient = jax.jit(jax.grad(value))(scores)
        move = jnp.array([1.0, -0.5, 0.25, -1.0])
        difference = (value(scores + step * move) - value(scores - step * move)) / (2 * step)
        assert float(gradient @ move) == pytest.approx(float(difference), rel=1e-2, abs=1e-3), estimator


def test_clipping_and_normalising_do_what_they_say():
    log = op.simulate_log(jax.random.key(3), MODELS["pbm"], LOGGER, num_sessions=40)
    _, _, weights = op.estimate_value(log, TARGET, "ips", clip=0.5)
    assert float(weights.max()) == 0.5
    value, parts, weights = op.estimate_value(log, TARGET, "ips", self_normalized=True)
    clicks, weights = np.asarray(log.clicks, float), np.asarray(weights, float)
    assert float(value) == pytest.approx((weights * clicks).sum() / weights[:, 0].sum(), rel=1e-5)
    assert float(parts.mean()) == pytest.approx(float(value), rel=1e-5)


def test_several_queries_are_weighed_by_their_own_lists():
    model = jr.CascadeModel([ALPHA, ALPHA[::-1]])
    target = op.PlackettLuce([[2.0, 1.0, 0.5, 0.0], [0.0, 0.5, 1.0, 2.0]], K)
    exact = float(op.expected_clicks(model, target))
    assert exact == pytest.approx(float(op.expected_clicks(model[0], TARGET)), rel=1e-5)  # the second is the mirror
    log = op.simulate_log(jax.random.key(0), model, UNIFORM, num_sessions=20_000)
    for estimator in ("ips", "cascade_ips"):
        found = jr.evaluate(log, target, estimator)
        assert abs(found.value - exact) < 4 * found.error


@pytest.mark.parametrize("estimator", ["direct", "doubly_robust", "cascade_dr"])
def test_queries_count_as_often_as_they_are_in_the_log(estimator):
    """Three sessions in four are of a query with few clicks: so is the value, as that of inverse propensity weights."""
    model = jr.CascadeModel([[0.1, 0.1, 0.1, 0.1], [0.8, 0.7, 0.6, 0.5]])
    exact = [float(op.expected_clicks(one, TARGET)) for one in (model[0], model[1])]
    log = op.simulate_log(jax.random.key(0), model[jnp.array([0, 0, 0, 1])], UNIFORM, num_sessions=4_000)
    log = op.Log(log.rankings, log.clicks, log.query // 3, prefix=log.prefix)
    found = jr.evaluate(log, TARGET, estimator, click_model=model)
    expected = 0.75 * exact[0] + 0.25 * exact[1]
    assert abs(found.value - expected) < 1e-5 + (0 if estimator == "direct" else 4 * found.error)


def test_predictions_are_of_sampled_lists_where_there_are_too_many(monkeypatch):
    log = op.simulate_log(jax.random.key(3), MODELS["dcm"], LOGGER, num_sessions=40, with_placed=False)
    move = jnp.array([1.0, -0.5, 0.25, -1.0])

    def value(scores):
        return op.estimate_value(log, op.PlackettLuce(scores, K), "cascade_dr", click_model=WRONG)[0]

    exact = jax.value_and_grad(value)(TARGET.scores)
    monkeypatch.setattr(op, "MOST_LISTS", 0)
    sampled = jax.value_and_grad(value)(TARGET.scores)
    assert float(sampled[0]) != float(exact[0])
    assert float(sampled[0]) == pytest.approx(float(exact[0]), abs=0.01)  # four standard errors of 10,000 lists
    assert float(sampled[1] @ move) == pytest.approx(float(exact[1] @ move), abs=0.03)


def test_a_policy_of_jaxrank_is_a_logger():
    environment = jr.ClickBandit(MODELS["cm"], list_size=K)
    query = environment.query(jax.random.key(0), jnp.int32(1))
    policy = jr.RandomRanking()
    lists = op.Lists.of_policy(jax.random.key(1), policy, policy.init(jax.random.key(0), query), query)
    assert lists.rankings.shape == (math.perm(L, K), K)
    np.testing.assert_allclose(lists.marginals(), 1 / L, atol=0.03)


def test_the_lists_of_pdgd_are_plackett_luce_and_those_of_a_certain_policy_are_exact():
    features = jnp.asarray(np.random.default_rng(0).normal(size=(L, 3)), float)
    items = jnp.arange(L, dtype=jnp.int32)
    query = jr.Query(jnp.int32(1), items, items[:K], features=features, mask=items >= 0, num_items=L, list_size=K)
    for policy, certain in ((jr.PDGD(), False), (jr.SGDRankNet(), True)):
        state = policy.init(jax.random.key(0), query)
        state = state._replace(params=jnp.array([1.0, -0.5, 0.3]))
        exact = op.PlackettLuce(policy.score(state, features), K)
        found = op.Lists.of_policy(jax.random.key(1), policy, state, query, num_samples=20_000)
        if certain:
            assert found.probabilities.tolist() == [1.0]
        else:
            np.testing.assert_allclose(found.marginals(), exact.marginals(), atol=0.02)  # five standard errors


def test_a_log_that_contradicts_the_estimator_is_warned_of():
    cascade = op.simulate_log(jax.random.key(0), MODELS["cm"], UNIFORM, num_sessions=4_000)
    positions = op.simulate_log(jax.random.key(0), MODELS["pbm"], UNIFORM, num_sessions=4_000)
    below = op.simulate_log(jax.random.key(0), LooksBelow(ALPHA), UNIFORM, num_sessions=4_000)
    with pytest.warns(UserWarning, match="independent"):
        jr.evaluate(cascade, TARGET, "independent_ips")
    jr.evaluate(positions, TARGET, "independent_ips")  # warnings are errors
    jr.evaluate(cascade, TARGET, "cascade_ips")
    with pytest.warns(UserWarning, match="depends on the item below"):
        jr.evaluate(below, TARGET, "cascade_ips")
    jr.evaluate(below, TARGET, "ips")
    always = op.simulate_log(
        jax.random.key(0), MODELS["cm"], op.Lists([[0, 1, 2], [1, 0, 2]], [0.5, 0.5], L), num_sessions=1_000
    )
    with pytest.warns(UserWarning, match="not have enough"):
        jr.evaluate(always, TARGET, "ips")


def a_log(**changed):
    fields = {
        "rankings": [[0, 1], [1, 0]],
        "clicks": [[True, False], [False, False]],
        "prefix": [[0.5, 0.5], [0.5, 0.5]],
    }
    return op.Log(**fields | changed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: a_log(rankings=[[0, 0], [1, 0]]), "at most once"),
        (lambda: a_log(rankings=[[0, -1], [1, 0]]), "from 0 on"),
        (lambda: a_log(clicks=[[True], [False]]), "Log.clicks must have the shape"),
        (lambda: a_log(prefix=[[0.5, 0.0], [0.5, 0.5]]), "Log.prefix must be above 0"),
        (lambda: a_log(prefix=[[0.5, 0.6], [0.5, 0.5]]), "must not rise"),
        (lambda: a_log(prefix=[[1.5, 0.5], [0.5, 0.5]]), "prefix"),
        (lambda: op.Lists([[0, 1]], [0.9], 2), "must sum to 1"),
        (lambda: op.PlackettLuce([0.0, 1.0], 3), "list_size must be from 1 to the 2 items"),
        (lambda: jr.evaluate(a_log(), op.Uniform(2), "independent_ips"), "log must have placed"),
        (lambda: jr.evaluate(a_log(), op.Uniform(3), "ips"), "target must be of lists of 2"),
        (lambda: jr.evaluate(a_log(), op.Uniform(3, 2), "direct"), "click_model must be given"),
        (lambda: jr.evaluate(a_log(), op.Uniform(3, 2), "ips", examination=[1, 1]), "examination must be left out"),
        (lambda: jr.evaluate(a_log(), op.Uniform(3, 2), "dr"), "estimator"),
        (lambda: op.Uniform(20, 3).marginals(), "at most 14 items"),
        (lambda: op.all_lists(20, 10), "more than 200,000"),
        (lambda: op.expected_clicks(jr.CascadeModel([ALPHA] * 2), op.PlackettLuce([ALPHA] * 3)), "of the same queries"),
        (lambda: op.expected_clicks(MODELS["cm"], op.Uniform(5, 2)), "of the 5 items"),
        (
            lambda: jr.evaluate(
                a_log(query=[0, 5]), op.Uniform(3, 2), "direct", click_model=jr.CascadeModel([[0.5] * 3] * 2)
            ),
            "log.query must hold queries from 0 to 1; got 5",
        ),
        (
            lambda: jr.evaluate(
                op.Log([[[0, 1]]] * 2, [[[True, False]]] * 2, prefix=[[[0.5, 0.5]]] * 2), op.Uniform(3, 2), "ips"
            ),
            "log must be one log",
        ),
    ],
)
def test_bad_logs_and_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_log_or_no_distribution_over_lists_is_refused():
    model = jr.CascadeModel([0.5, 0.3, 0.1])
    log = jr.off_policy.simulate_log(jax.random.key(0), model, jr.off_policy.Uniform(3, 2), num_sessions=4)
    with pytest.raises(
        ValueError, match=r"target must be a distribution over lists; got BubbleRank: write .*of_policy"
    ):
        jr.evaluate(log, jr.BubbleRank(), "ips")
    with pytest.raises(
        ValueError, match=r"distribution must be .*; got PlackettLuce: write jr.off_policy.PlackettLuce"
    ):
        jr.off_policy.expected_clicks(model, jr.off_policy.PlackettLuce)
    with pytest.raises(ValueError, match=r"log must be a jr.off_policy.Log; got NoneType"):
        jr.evaluate(None, jr.off_policy.Uniform(3, 2))
