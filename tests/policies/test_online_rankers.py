"""PDGD, RankNet, DBGD and MGD against their plain references and against what their papers prove."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from driver import record
from reference import dueling, pdgd, ranknet
from scipy.stats import chi2
from streams import data, documents, indices, stream

import jaxrank as jr
from jaxrank.policies._online import shuffle
from jaxrank.policies.dueling import draft_turns
from jaxrank.policies.pdgd import pair_weights

STEPS = 150


def follow(policy, environment, draws, statistics=lambda policy, state: policy.weights(state)):
    run = record(policy, environment, STEPS, draws=draws, statistics=statistics)
    run.indices = indices(environment, STEPS)
    return run


def test_pdgd_lists_and_parameters_equal_the_reference():
    environment = stream("navigational", list_size=6)
    size = environment.queries.max_documents
    run = follow(jr.PDGD(learning_rate=0.5), environment, lambda rank_key, _: jax.random.gumbel(rank_key, (size,)))
    expected = pdgd.PDGD(environment.queries.num_features, 0.5)
    for t in range(STEPS):
        X, _ = documents(environment, run.indices[t])
        ranking = expected.rank(X, run.draws[t].tolist(), 6)
        assert run.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        expected.update(X, run.rankings[t].tolist(), run.clicks[t])
        np.testing.assert_allclose(run.statistics[t], expected.theta, atol=1e-4, err_msg=f"step {t + 1}")
    assert np.abs(expected.theta).max() > 0.5


def test_pdgd_lists_follow_plackett_luce():
    """All ordered pairs of 4 documents by enumeration; chi-square at p = 1e-6."""
    theta, draws = np.array([1.0, -0.5, 0.3]), 40_000
    environment = jr.QueryStream(
        jr.datasets.QuerySet(np.eye(4, 3), [0, 1, 2, 1], [0, 4]), jr.click_models.graded_user("perfect"), list_size=2
    )
    query = environment.offer(jnp.int32(0), jnp.int32(1))
    state = jr.PDGD().init(jax.random.key(0), query)._replace(params=jnp.asarray(theta, jnp.float32))
    keys = jax.random.split(jax.random.key(1), draws)
    lists = np.asarray(jax.jit(jax.vmap(lambda key: jr.PDGD().rank(key, state, query)))(keys))
    scores = np.eye(4, 3) @ theta
    every = list(itertools.permutations(range(4), 2))
    expected = draws * np.array([pdgd.list_probability(scores, ranking) for ranking in every])
    found = np.array([(lists == ranking).all(axis=1).sum() for ranking in every])
    assert ((found - expected) ** 2 / expected).sum() < chi2.isf(1e-6, len(every) - 1)


@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0])
def test_pdgd_pair_weights_are_the_closed_form(scale):
    rng = np.random.default_rng(0)
    weights = jax.jit(pair_weights)
    for _ in range(20):
        scores = rng.normal(0, scale, 7)
        ranking = rng.permutation(7)[:5]
        found = np.asarray(weights(jnp.asarray(scores, jnp.float32), jnp.asarray(ranking, jnp.int32)))
        for k, m in itertools.permutations(range(5), 2):
            assert found[k, m] == pytest.approx(pdgd.pair_weight(scores, ranking, k, m), rel=2e-3, abs=1e-6)


def test_pdgd_gradient_is_unbiased_with_respect_to_pairwise_preferences():
    """Theorem of the PDGD paper: of documents alike in relevance, the expected weight of the pair is 0; otherwise it
    has the sign of the difference in relevance. By enumeration of all lists and clicks of independent users."""
    scores = np.array([1.5, -0.7, 0.4, 0.0])
    click = np.array([0.9, 0.3, 0.3, 0.6])  # documents 1 and 2 are alike
    expected = np.zeros((4, 4))
    for ranking in itertools.permutations(range(4)):
        p = pdgd.list_probability(scores, ranking)
        weights = np.asarray(pair_weights(jnp.asarray(scores, jnp.float32), jnp.asarray(ranking, jnp.int32)))
        for k, m in itertools.permutations(range(4), 2):  # everything examined, as the theorem assumes
            i, j = ranking[k], ranking[m]
            expected[i, j] += p * click[i] * (1 - click[j]) * weights[k, m]
    net = expected - expected.T
    assert net[1, 2] == pytest.approx(0, abs=1e-6)
    for i, j in itertools.permutations(range(4), 2):
        if click[i] > click[j]:
            assert net[i, j] > 1e-3


@pytest.mark.parametrize("pairs", ["independent", "all"])
def test_ranknet_lists_and_parameters_equal_the_reference(pairs):
    environment = stream("perfect", list_size=5)
    size, epsilon = environment.queries.max_documents, 0.4
    mask = jnp.ones(size, bool)

    def draws(rank_key, _):
        order_key, coin_key = jax.random.split(rank_key)
        return (
            shuffle(order_key, mask),
            shuffle(jax.random.fold_in(order_key, 1), mask),
            jax.random.uniform(coin_key, (5,)),
        )

    greedy = follow(jr.EpsilonGreedy(epsilon=epsilon, pairs=pairs), environment, draws)
    expected = ranknet.RankNet(environment.queries.num_features, 0.1, pairs)
    for t in range(STEPS):
        X, _ = documents(environment, greedy.indices[t])
        order, explore, coins = (d[t].tolist() for d in greedy.draws)
        ranking = expected.epsilon_greedy(X, order, explore, coins, epsilon)
        assert greedy.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        expected.update(X, greedy.rankings[t].tolist(), greedy.clicks[t])
        np.testing.assert_allclose(greedy.statistics[t], expected.theta, atol=1e-4, err_msg=f"step {t + 1}")

    plain = follow(jr.SGDRankNet(pairs=pairs), environment, lambda rank_key, _: shuffle(rank_key, mask))
    expected = ranknet.RankNet(environment.queries.num_features, 0.1, pairs)
    for t in range(STEPS):
        X, _ = documents(environment, plain.indices[t])
        ranking = expected.best(X, plain.draws[t].tolist())[:5]
        assert plain.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        expected.update(X, plain.rankings[t].tolist(), plain.clicks[t])
    np.testing.assert_allclose(plain.statistics[-1], expected.theta, atol=1e-4)


@pytest.mark.parametrize("policy", [jr.DBGD(learning_rate=0.1), jr.MGD(num_candidates=3, learning_rate=0.1)])
def test_dueling_lists_and_parameters_equal_the_reference(policy):
    environment = stream("navigational", list_size=5)
    mask = jnp.ones(environment.queries.max_documents, bool)
    run = follow(policy, environment, lambda rank_key, _: shuffle(rank_key, mask), lambda policy, state: state)
    expected = dueling.MGD(np.zeros(environment.queries.num_features), 1.0, 0.1)
    rankers = policy.num_candidates + 1
    for t in range(1, STEPS):  # the candidates and the draft of step t + 1 are in the state after step t
        directions = run.statistics.directions[t - 1].tolist()
        turns = run.statistics.turns[t - 1].tolist()
        assert np.linalg.norm(directions, axis=1) == pytest.approx(1, abs=1e-5)
        rounds = [turns[i : i + rankers] for i in range(0, 5, rankers)]
        assert all(len(set(r)) == len(r) for r in rounds), "nobody picks twice in a round"
        X, _ = documents(environment, run.indices[t])
        expected.weights = run.statistics.weights[t - 1].tolist()
        lists = expected.lists(X, directions, run.draws[t].tolist())
        ranking, teams = dueling.team_draft(lists, rounds, 5)
        assert run.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        expected.update(directions, teams, run.clicks[t])
        np.testing.assert_allclose(run.statistics.weights[t], expected.weights, atol=1e-5, err_msg=f"step {t + 1}")
    assert np.abs(run.statistics.weights[-1]).max() > 0.1


@pytest.mark.parametrize("policy", [jr.DBGD(learning_rate=0.1), jr.MGD(num_candidates=2, learning_rate=0.1)])
def test_released_interleaving_equals_the_reference(policy):
    policy = dataclasses.replace(policy, distance=0.3, interleaving="released")
    environment = stream("navigational", list_size=5)
    run = follow(policy, environment, lambda rank_key, _: (), lambda policy, state: state)
    expected = dueling.MGD(np.zeros(environment.queries.num_features), 0.3, 0.1)
    rankers, uncredited = policy.num_candidates + 1, 0
    for t in range(1, STEPS):
        before = jax.tree.map(lambda leaf, t=t: leaf[t - 1], run.statistics)
        rounds = [before.turns[i : i + rankers].tolist() for i in range(0, 5, rankers)]
        X, _ = documents(environment, run.indices[t])
        expected.weights = before.weights.tolist()
        order = sorted(range(len(X)), key=lambda k, words=before.ties: words[k] >> 1)
        lists = expected.lists(X, before.directions.tolist(), order)
        ranking, teams = dueling.released_draft(lists, rounds, 5)
        assert run.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        expected.update(before.directions.tolist(), teams, run.clicks[t])
        np.testing.assert_allclose(run.statistics.weights[t], expected.weights, atol=1e-5, err_msg=f"step {t + 1}")
        uncredited += sum(bool(click) for team, click in zip(teams, run.clicks[t], strict=False) if team == -1)
    assert uncredited > 5 and np.abs(run.statistics.weights[-1]).max() > 0.1


def test_team_drafts_are_uniform_over_orders():
    """Two rankers, four positions: the four drafts of two rounds, chi-square at p = 1e-6."""
    draws = 20_000
    turns = jax.jit(jax.vmap(lambda key: draft_turns(key, 2, 4)))(jax.random.split(jax.random.key(0), draws))
    drafts, counts = np.unique(np.asarray(turns), axis=0, return_counts=True)
    assert drafts.tolist() == [[0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0]]
    assert ((counts - draws / 4) ** 2 / (draws / 4)).sum() < chi2.isf(1e-6, 3)


def test_any_ranker_and_any_optimizer_work():
    environment = stream("perfect", list_size=5)
    ranker = jr.rankers.mlp(8)
    options = {"num_seeds": 2, "num_records": 2, "progress": False, "metrics": ("ndcg",)}
    probe = {"learnt": jr.probes.OfflineNDCG(environment.queries)}
    policies = [jr.PDGD(ranker=ranker, optimizer=optax.adam(0.05)), jr.MGD(num_candidates=2, ranker=ranker)]
    for policy in policies:
        run = jr.simulate(policy, environment, 800, probes=probe, **options)
        assert np.isfinite(run["learnt"]).all()
        if isinstance(policy, jr.PDGD):
            assert float(run["learnt"][:, -1].mean()) > 0.7, "an MLP learns the training queries"


def test_offline_ranknet_learns_from_the_labels():
    """It orders unseen queries better than chance by 0.1 of NDCG, and is a policy of a stream like any other."""
    made = data(num_queries=60, num_features=8, mean_documents=10, seed=3)
    params = jr.offline_ranknet(made.train, num_epochs=20)
    probe = jr.probes.OfflineNDCG(made.test)
    bound = float(probe(jr.FixedRanker(params), (), None))
    chance = float(probe(jr.FixedRanker(jnp.zeros(8)), (), None))
    environment = jr.QueryStream(made.train, jr.click_models.graded_user("perfect"))
    run = jr.simulate(
        jr.FixedRanker(params), environment, 50, probes={"offline": probe}, progress=False, metrics=("ndcg", "regret")
    )
    assert bound > chance + 0.1
    assert float(run["offline"][0, -1]) == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jr.EpsilonGreedy(epsilon=1.5), r"EpsilonGreedy\.epsilon must be in \[0, 1\]; got 1\.5"),
        (lambda: jr.SGDRankNet(pairs="some"), r"SGDRankNet\.pairs must be 'all' or 'independent'; got 'some'"),
        (lambda: jr.PDGD(learning_rate=0.0), r"PDGD\.learning_rate must be positive and finite; got 0\.0"),
        (lambda: jr.MGD(num_candidates=0), r"MGD\.num_candidates must be a positive integer; got 0"),
        (lambda: jr.rankers.mlp(0), r"hidden must be a positive integer; got 0"),
    ],
)
def test_bad_options_name_the_field_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
