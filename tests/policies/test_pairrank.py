"""PairRank against its plain reference, networkx and SciPy."""

import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from driver import record
from reference import pairrank as reference
from scipy.stats import chi2
from streams import documents, indices, stream

import jaxrank as jr
from jaxrank.policies import _blocks
from jaxrank.policies._pairwise_estimate import _add_to_m, initial_estimate, projected

STEPS = 600


def inverse_of(state):
    return state.estimate.root @ state.estimate.root.T


def follow(policy, environment, num_steps, seed=0):
    """A run, and the reference that has seen the same lists and clicks."""
    run = record(
        policy,
        environment,
        num_steps,
        seed=seed,
        draws=lambda rank_key, update_key: jax.random.bits(
            rank_key,
            (environment.queries.max_documents,)
            if policy.exploration == "random"
            else (environment.list_size, environment.queries.max_documents),
            jnp.uint32,
        ),
        statistics=lambda policy, state: (state.estimate.theta, inverse_of(state), state.estimate.log_det),
    )
    run.indices = indices(environment, num_steps, seed)
    return run


def plain(policy, environment):
    return reference.PairRank(
        environment.queries.num_features, float(policy.regularization), float(policy.alpha), policy.exploration
    )


@pytest.mark.parametrize("exploration", ["random", "conservative"])
def test_lists_and_statistics_equal_the_reference(exploration):
    policy, environment = jr.PairRank(exploration=exploration, alpha=0.3, regularization=0.1), stream("perfect")
    run = follow(policy, environment, STEPS)
    expected = plain(policy, environment)
    sizes = set()
    for t in range(STEPS):
        X, _ = documents(environment, run.indices[t])
        ranking = expected.rank(X, run.draws[t].tolist(), environment.list_size)
        assert run.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        assert not run.clicks[t][len(X) :].any(), "nobody looks below the last document"
        expected.update(X, run.rankings[t].tolist(), run.clicks[t])
        expected.theta = run.statistics[0][t].astype(np.float64)  # of the run: the next test holds it to SciPy
        certain = reference.certain_orders(X, expected.theta, expected.M, expected.alpha)
        sizes.add(len(reference.ordered_blocks(len(X), certain)))
        np.testing.assert_allclose(run.statistics[1][t], np.linalg.inv(expected.M), rtol=1e-3, atol=1e-4)
    assert max(sizes) >= 4 and min(sizes) == 1, f"blocks are many and few: {sizes}"
    grown = np.linalg.slogdet(expected.M)[1] - len(expected.M) * np.log(expected.lam)
    assert run.statistics[2][-1] == pytest.approx(grown, rel=1e-4)


@pytest.mark.parametrize("user", ["perfect", "navigational", "informational"])
def test_the_estimate_is_scipys_minimiser_of_equation_1(user):
    """In every coordinate to 1e-3 after 500 rounds and at other anchors, and to 5 % of the way from them between."""
    policy, environment = jr.PairRank(regularization=0.1), stream(user, list_size=6)
    run = follow(policy, environment, 1000)
    expected = plain(policy, environment)
    for t in range(1000):
        expected.update(documents(environment, run.indices[t])[0], run.rankings[t].tolist(), run.clicks[t])
        step, estimate = t + 1, run.statistics[0][t]
        if step in (1, 2, 5, 10, 20, 50, 100, 127, 200, 256, 400, 500, 512, 752, 1000):
            anchor = expected.estimate()
            np.testing.assert_allclose(estimate, anchor, atol=1e-3, err_msg=f"step {step}")
        if step in (255, 507, 511, 759, 999):
            exact = expected.estimate()
            tolerance = 1e-3 + 0.05 * np.abs(exact - anchor).max()
            np.testing.assert_allclose(estimate, exact, atol=tolerance, err_msg=f"step {step}")
    assert len(expected.pairs) > 500
    assert np.abs(expected.estimate()).max() > 0.5, "there is something to estimate"


@pytest.mark.parametrize("user", ["perfect", "informational"])
def test_the_estimate_as_released_is_scipys_minimiser_of_the_mean_loss(user):
    """Matched pairs and the mean loss plus λ‖θ‖², in every coordinate to 5e-4 at every step that is looked at."""
    policy, environment = jr.PairRank.released(regularization=0.1), stream(user, list_size=6)
    run = record(
        policy,
        environment,
        600,
        draws=lambda rank_key, update_key: jax.random.bits(update_key, (6,), jnp.uint32),
        statistics=lambda policy, state: (state.estimate.theta, inverse_of(state), state.estimate.num_pairs),
    )
    numbers = indices(environment, 600, 0)
    expected = reference.PairRank(environment.queries.num_features, 0.1, 0.01, "conservative", mean=True)
    unlike = 0
    for t in range(600):
        X, _ = documents(environment, numbers[t])
        ranking, clicks = run.rankings[t].tolist(), run.clicks[t]
        pairs = reference.matched_pairs(ranking, clicks, len(X), run.draws[t])
        unlike += sorted(pairs) != sorted(reference.independent_pairs(ranking, clicks, len(X)))
        expected.update(X, ranking, clicks, run.draws[t])
        assert run.statistics[2][t] == len(expected.pairs), "documents of these queries all differ"
        np.testing.assert_allclose(run.statistics[1][t], np.linalg.inv(expected.M), rtol=1e-3, atol=0.2)
        if t + 1 in (1, 2, 5, 10, 50, 127, 128, 200, 255, 256, 400, 507, 599, 600):
            np.testing.assert_allclose(run.statistics[0][t], expected.estimate(), atol=5e-4, err_msg=f"step {t + 1}")
    assert unlike > 100 and np.abs(expected.estimate()).max() > 0.1


def test_the_estimate_with_old_pairs_expanded_is_scipys_minimiser():
    """With a window of 64 of 1,000 steps: of eq. 1 with the expansions, to 1e-3; of eq. 1, as close as Taylor says.

    Let e_i be what the derivative of an old pair's loss changes by, when the loss is expanded. As the third derivative
    is at most 1/(6√3), |e_i| ≤ (z_i − z_i0)²/(12√3), for the logits z_i at θ̂ and z_i0 where it is expanded. Let H be
    the mean Hessian of eq. 1 between θ̂ and its minimiser: they are H⁻¹·Σ e_i·x_i apart.
    """
    policy, environment = jr.PairRank(window=64, regularization=0.1), stream("perfect", list_size=6)
    for seed in range(3):
        run = follow(policy, environment, 1000, seed=seed)
        d = environment.queries.num_features
        expected = reference.PairRank(d, 0.1, float(policy.alpha), policy.exploration, window=64)
        for t in range(1000):
            expected.update(documents(environment, run.indices[t])[0], run.rankings[t].tolist(), run.clicks[t])
            expected.theta = found = run.statistics[0][t].astype(np.float64)
            if t + 1 not in (64, 65, 128, 200, 400, 1000):
                continue
            label = f"seed {seed}, step {t + 1}"
            np.testing.assert_allclose(found, expected.windowed_estimate(), atol=1e-3, err_msg=label)
            exact, pairs, old = expected.estimate(), np.array(expected.pairs), len(expected.around)
            z, change = pairs @ found, pairs @ (found - exact)
            steep = np.where(np.abs(change) > 1e-6, np.tanh(z / 2) - np.tanh((z - change) / 2), 0) / 2
            curvature = np.divide(steep, change, out=1 / (2 + 2 * np.cosh(z)), where=np.abs(change) > 1e-6)
            hessian = 0.1 * np.eye(d) + (pairs * curvature[:, None]).T @ pairs
            drift = z[:old] - (pairs[:old] * np.array(expected.around).reshape(-1, d)).sum(axis=1)
            limit = np.abs(np.linalg.solve(hessian, pairs[:old].T)) @ (drift**2 / (12 * np.sqrt(3)))
            assert (np.abs(found - exact) <= limit + 1e-3).all(), label
        assert np.abs(found - exact).max() > 0.01, "the expansions matter, so that the first assertion can fail"


def test_the_inverse_of_m_stays_accurate_when_m_is_ill_conditioned():
    """λ = 0.001 and pairs along a few directions: all widths to 1e-3 of those by NumPy's inverse in float64.

    In float32, M⁻¹ itself with Newton's iteration for inverses at every step was NaN from step 5 on; without the
    iteration it was wrong by up to 5e-3.
    """
    d, n, steps, lam = 120, 5, 400, 1e-3
    rng = np.random.default_rng(0)
    factors = rng.random((6, d)) * (0.5 ** np.arange(6))[:, None]

    def differences(count):
        return (rng.normal(size=(count, 6)) @ factors + 5e-3 * rng.normal(size=(count, d))).astype(np.float32)

    pairs, others = differences(steps * n), differences(200).astype(np.float64)
    first = initial_estimate(d, n, 64, jnp.float32(lam))
    add = jax.jit(lambda e, x: jax.lax.scan(lambda e, x: (_add_to_m(e, x), _add_to_m(e, x).root), e, x)[1])
    roots = np.asarray(add(first, jnp.asarray(pairs).reshape(steps, n, d)), np.float64)
    M = lam * np.eye(d) + np.cumsum(np.einsum("tnd,tne->tde", *[pairs.reshape(steps, n, d).astype(np.float64)] * 2), 0)
    assert np.linalg.cond(M[-1]) > 1e6
    for t in range(0, steps, 57):
        exact = np.einsum("bd,de,be->b", others, np.linalg.inv(M[t]), others)
        np.testing.assert_allclose(((others @ roots[t]) ** 2).sum(axis=1), exact, rtol=1e-3, err_msg=f"step {t + 1}")


def test_the_projection_is_the_minimiser_of_the_linearised_equation_4():
    """Into a ball of half the length of θ̂, against SciPy's minimiser of (θ − θ̂)ᵀHM⁻¹H(θ − θ̂) there."""
    rng = np.random.default_rng(0)
    pairs, theta = rng.normal(size=(60, 5)), rng.normal(size=5)
    curvature = 1 / (2 + 2 * np.cosh(pairs @ theta))
    losses = (pairs * curvature[:, None]).T @ pairs
    inverse = np.linalg.inv(0.1 * np.eye(5) + pairs.T @ pairs)
    hessian, radius = losses + 0.1 * np.eye(5), np.linalg.norm(theta) / 2

    def distance(inside):
        apart = hessian @ (inside - theta)
        return apart @ inverse @ apart

    ball = {"type": "ineq", "fun": lambda x: radius**2 - x @ x}
    best = scipy.optimize.minimize(distance, theta / 2, constraints=[ball], options={"ftol": 1e-14, "maxiter": 1_000})
    estimate = initial_estimate(5, 3, 64, 0.1)._replace(
        theta=jnp.asarray(theta, jnp.float32),
        root=jnp.asarray(np.linalg.cholesky(inverse), jnp.float32),
        hessian=jnp.asarray(losses, jnp.float32),
    )
    found = projected(estimate, jnp.float32(0.1), "sum", jnp.float32(radius))
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    assert np.abs(found - theta / 2).max() > 0.01, "it is not merely shortened"
    within = projected(estimate, jnp.float32(0.1), "sum", jnp.float32(4 * radius))
    np.testing.assert_array_equal(within, estimate.theta)


def components_merged_and_sorted(n, certain):
    """Blocks by networkx: components of the uncertain orders, merged by strong connection, topologically sorted."""
    uncertain = nx.Graph()
    uncertain.add_nodes_from(range(n))
    pairs = itertools.combinations(range(n), 2)
    uncertain.add_edges_from((i, j) for i, j in pairs if not certain[i, j] and not certain[j, i])
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(map(tuple, np.argwhere(certain)))
    for component in nx.connected_components(uncertain):  # members of one block reach each other
        nx.add_cycle(graph, sorted(component)) if len(component) > 1 else None
    merged = nx.condensation(graph)
    return [sorted(merged.nodes[b]["members"]) for b in nx.topological_sort(merged)]


def test_blocks_are_components_merged_and_sorted_on_1000_random_instances():
    rng = np.random.default_rng(0)
    n, d, count = 9, 3, 1000
    real = rng.integers(1, n + 1, count)
    X = rng.random((count, n, d)).astype(np.float32)
    theta = rng.normal(0, 2, (count, d)).astype(np.float32)
    A = rng.normal(size=(count, d, d))
    M = np.eye(d) + np.einsum("bij,bkj->bik", A, A) * rng.exponential(30, (count, 1, 1))
    alpha = rng.choice([0.1, 0.3, 1.0], count).astype(np.float32)
    mask = np.arange(n) < real[:, None]

    def solve(X, theta, root, alpha, mask):
        certain = _blocks.certain_orders(X @ theta, _blocks.widths(X, root), alpha, mask)
        return certain, _blocks.blocks(X @ theta, certain, mask)

    certain, block = jax.jit(jax.vmap(solve))(
        X, theta, np.linalg.cholesky(np.linalg.inv(M)).astype(np.float32), alpha, mask
    )
    certain, block = np.asarray(certain), np.asarray(block)
    counts = []
    for b in range(count):
        k = real[b]
        expected = components_merged_and_sorted(k, certain[b][:k, :k])
        assert reference.ordered_blocks(k, set(map(tuple, np.argwhere(certain[b])))) == expected
        assert [np.flatnonzero(block[b][:k] == i).tolist() for i in range(len(expected))] == expected, f"instance {b}"
        counts.append(len(expected) / k)
    assert np.mean(np.array(counts) == 1) > 0.05 and np.mean(np.array(counts) < 0.5) > 0.2, "of all kinds"


def test_widths_are_those_of_every_difference():
    rng = np.random.default_rng(0)
    X, A = rng.random((30, 12)), rng.normal(size=(12, 40))
    M = 0.1 * np.eye(12) + A @ A.T
    x = X[:, None] - X[None, :]
    explicit = np.einsum("ijd,de,ije->ij", x, np.linalg.inv(M), x)
    np.testing.assert_allclose(_blocks.widths(X, np.linalg.cholesky(np.linalg.inv(M))), explicit, rtol=1e-3, atol=1e-5)


def test_conservative_lists_are_uniform_over_the_allowed_choices():
    """Chi-square at p = 1e-6 over all lists, against the probabilities of choosing one position after the other."""
    n, draws = 5, 40_000
    certain = np.zeros((n, n), bool)
    for i, j in [(0, 2), (1, 2), (0, 3), (3, 4), (0, 4)]:
        certain[i, j] = True
    probability = {}

    def choose(ranking, p):
        left = [k for k in range(n) if k not in ranking]
        if len(ranking) == 4:
            probability[tuple(ranking)] = p
            return
        free = [j for j in left if not any(certain[i, j] for i in left)]
        for j in free:
            choose([*ranking, j], p / len(free))

    choose([], 1.0)
    words = jax.random.bits(jax.random.key(0), (draws, 4, n), jnp.uint32)
    mask = jnp.ones(n, bool)
    lists = np.asarray(jax.jit(jax.vmap(lambda w: _blocks.conservative_list(w, jnp.asarray(certain), mask)))(words))
    found = {
        tuple(map(int, key)): count for key, count in zip(*np.unique(lists, axis=0, return_counts=True), strict=True)
    }
    assert set(found) == set(probability), "all allowed lists and no other"
    statistic = sum((found[k] - draws * p) ** 2 / (draws * p) for k, p in probability.items())
    assert statistic < chi2.isf(1e-6, len(probability) - 1)


def test_shuffled_blocks_are_uniform_within_blocks():
    draws = 24_000
    block, mask = jnp.array([1, 0, 1, 0, 1, 2]), jnp.array([True] * 5 + [False])
    words = jax.random.bits(jax.random.key(1), (draws, 6), jnp.uint32)
    lists = np.asarray(jax.jit(jax.vmap(lambda w: _blocks.shuffled_blocks(w, block, mask, 6)))(words))
    assert (lists[:, 5] == 5).all() and (np.sort(lists[:, :2]) == [1, 3]).all()
    _, counts = np.unique(lists, axis=0, return_counts=True)
    assert len(counts) == 12
    assert ((counts - draws / 12) ** 2 / (draws / 12)).sum() < chi2.isf(1e-6, 11)


@pytest.mark.parametrize("exploration", ["random", "conservative"])
def test_lists_of_queries_of_all_sizes_are_those_of_whole_padding(exploration):
    """Queries of 2 to 150 documents, in lanes side by side: each gets the list that all 150 rows would give it."""
    rng = np.random.default_rng(0)
    sizes = np.array([2, 5, 30, 37, 38, 39, 60, 75, 76, 110, 149, 150])
    n, d, K = len(sizes), 4, 5
    queries = jr.datasets.QuerySet(rng.random((sizes.sum(), d)), np.arange(sizes.sum()) % 3, [0, *sizes.cumsum()])
    environment = jr.QueryStream(queries, jr.click_models.graded_user("perfect"), list_size=K)
    policy = jr.PairRank(exploration=exploration, alpha=0.2, horizon=10, window=1)
    state = policy.init(jax.random.key(0), environment.offer(jnp.int32(0), jnp.int32(1)))
    estimate = state.estimate._replace(theta=jnp.asarray(rng.normal(0, 2, d), jnp.float32))
    state = state._replace(estimate=estimate)

    def whole(key, index):
        query = environment.offer(index, jnp.int32(1))
        scores = query.features @ estimate.theta
        certain = _blocks.certain_orders(
            scores, _blocks.widths(query.features, estimate.root), policy.alpha, query.mask
        )
        if exploration == "conservative":
            return _blocks.conservative_list(jax.random.bits(key, (K, 150), jnp.uint32), certain, query.mask)
        blocks = _blocks.blocks(scores, certain, query.mask)
        return _blocks.shuffled_blocks(jax.random.bits(key, (150,), jnp.uint32), blocks, query.mask, K)

    def by_size(key, index):
        return policy.rank(key, state, environment.offer(index, jnp.int32(1)))

    keys, index = jax.random.split(jax.random.key(1), n), jnp.arange(n, dtype=jnp.int32)
    expected = np.asarray(jax.jit(jax.vmap(whole))(keys, index))
    found = np.asarray(jax.jit(jax.vmap(by_size))(keys, index))
    shown = np.arange(K) < sizes[:, None]  # below a query's last document there is padding in any order
    assert (found == expected)[shown].all()
    alone = np.stack([jax.jit(by_size)(keys[q], index[q]) for q in range(n)])
    assert (alone == found).all()


def test_lemma_1_by_hand_and_nothing_is_certain_with_it():
    """α_t by hand: 2k/c·(√(R² log(det M/(δ² det λI))) + √λ·Q), with c = σ'(Q√d)."""
    policy = jr.PairRank(confidence="lemma1", delta=0.1, regularization=0.1, norm_bound=2.0)
    environment = stream("perfect")
    state = record(policy, environment, 200, statistics=lambda policy, state: state).statistics
    state = jax.tree.map(lambda x: x[-1], state)
    d = environment.queries.num_features
    z = 2 * np.sqrt(d)
    c = np.exp(-z) / (1 + np.exp(-z)) ** 2
    log_det = -2 * np.linalg.slogdet(np.asarray(state.estimate.root, np.float64))[1] - d * np.log(0.1)
    alpha = 2 * 0.25 / c * (np.sqrt(0.25 * (log_det - 2 * np.log(0.1))) + np.sqrt(0.1) * 2)
    assert policy._alpha(state, d) == pytest.approx(alpha, rel=1e-3)
    query = environment.offer(jnp.int32(0), jnp.int32(1))
    assert np.asarray(policy.block_numbers(state, query))[np.asarray(query.mask)].max() == 0


def test_m_has_a_ridge_of_its_own():
    """M starts from it and θ̂ has the other one; Lemma 1's λ·θ* in the norm of M⁻¹ is at most λ/√λ_M·Q."""
    policy = jr.PairRank(regularization=10.0, confidence_regularization=0.1, alpha=0.3)
    environment = stream("perfect")
    run = follow(policy, environment, 200)
    expected = plain(policy, environment)
    expected.M *= 0.1 / 10
    for t in range(200):
        expected.update(documents(environment, run.indices[t])[0], run.rankings[t].tolist(), run.clicks[t])
    np.testing.assert_allclose(run.statistics[0][-1], expected.estimate(), atol=1e-3)
    np.testing.assert_allclose(run.statistics[1][-1], np.linalg.inv(expected.M), rtol=1e-3, atol=1e-4)

    d = environment.queries.num_features
    lemma = {"confidence": "lemma1", "delta": 0.1, "norm_bound": 2.0, "confidence_regularization": 0.1}
    state = policy.init(jax.random.key(0), environment.offer(jnp.int32(0), jnp.int32(1)))
    alphas = [float(jr.PairRank(regularization=lam, **lemma)._alpha(state, d)) for lam in (0.1, 10.0)]
    z = 2 * np.sqrt(d)
    more = 2 * 0.25 * (2 + 2 * np.cosh(z)) * 2 * (10 - 0.1) / np.sqrt(0.1)
    assert alphas[1] - alphas[0] == pytest.approx(more, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exploration": "bold"}, r"PairRank\.exploration must be 'random' or 'conservative'; got 'bold'"),
        ({"confidence": 0.1}, r"PairRank\.confidence must be 'constant' or 'lemma1'; got 0\.1"),
        ({"alpha": -1.0}, r"PairRank\.alpha must be positive and finite; got -1\.0"),
        ({"regularization": 0.0}, r"PairRank\.regularization must be positive and finite; got 0\.0"),
        ({"window": 0}, r"PairRank\.window must be a positive integer; got 0"),
    ],
)
def test_bad_options_name_the_field_and_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        jr.PairRank(**options)


def test_a_world_without_features_is_refused():
    environment = jr.ClickBandit(jr.CascadeModel([0.2, 0.5]))
    with pytest.raises(ValueError, match="PairRank needs an environment with features"):
        jr.simulate(jr.PairRank(), environment, 10)
