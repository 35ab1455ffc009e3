"""The query stream: what it offers, who clicks, and its metrics against pytrec_eval and plain counting."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import pytrec_eval
from scipy.stats import chi2
from streams import data, documents, indices, stream

import jaxrank as jr
from jaxrank.core.pytrees import leaf_axes, pytree


def test_a_query_shows_its_documents_and_zeros_below():
    environment = stream()
    offer = jax.jit(environment.offer)
    for index in range(environment.queries.num_queries):
        X, grades = documents(environment, index)
        query = offer(jnp.int32(index), jnp.int32(1))
        assert query.mask.tolist() == [True] * len(X) + [False] * (environment.queries.max_documents - len(X))
        np.testing.assert_allclose(query.features[: len(X)], X, atol=1e-6)
        assert not np.asarray(query.features[len(X) :]).any()
        shown = min(len(X), environment.list_size)
        assert grades[query.optimal_ranking[:shown]].tolist() == sorted(grades.tolist(), reverse=True)[:shown]


def test_queries_are_uniform():
    """Chi-square at p = 1e-6."""
    environment = stream()
    draws, n = 12_000, environment.queries.num_queries
    counts = np.bincount(indices(environment, draws), minlength=n)
    assert ((counts - draws / n) ** 2 / (draws / n)).sum() < chi2.isf(1e-6, n - 1)


@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_ndcg_equals_pytrec_eval_on_random_lists(gain):
    """pytrec_eval's gain is linear: it gets the grade itself, or 2^grade − 1 as the grade."""
    environment = jr.QueryStream(data().train, jr.click_models.graded_user("perfect"), list_size=5, gain=gain)
    L = environment.queries.max_documents
    rng = np.random.default_rng(0)

    @jax.jit
    def measure(index, ranking):
        return environment.metrics(environment.offer(index, jnp.int32(3)), ranking)

    for index in list(range(environment.queries.num_queries)) * 2:
        _, grades = documents(environment, index)
        order = np.concatenate([rng.permutation(len(grades)), np.arange(len(grades), L)])
        found = measure(jnp.int32(index), jnp.asarray(order[:5], jnp.int32))
        gains = grades if gain == "linear" else 2**grades - 1
        judged = {"q": {f"d{k}": int(g) for k, g in enumerate(gains)}}
        scored = {"q": {f"d{k}": float(L - place) for place, k in enumerate(order) if k < len(grades)}}
        expected = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.5"}).evaluate(scored)["q"]["ndcg_cut_5"]
        assert float(found["ndcg"]) == pytest.approx(expected, abs=1e-5)
        assert float(found["cndcg"]) == pytest.approx(expected * 0.9995**2, abs=1e-5)


def test_regret_counts_the_pairs_in_the_wrong_order():
    environment = stream()
    rng = np.random.default_rng(1)
    measure = jax.jit(lambda index, ranking: environment.metrics(environment.offer(index, jnp.int32(1)), ranking))
    for index in range(environment.queries.num_queries):
        _, grades = documents(environment, index)
        order = np.concatenate(
            [rng.permutation(len(grades)), np.arange(len(grades), environment.queries.max_documents)]
        )
        shown = order[:5]
        placed = [k for k in shown if k < len(grades)]
        unshown = [k for k in range(len(grades)) if k not in placed]
        wrong = sum(grades[a] < grades[b] for a, b in itertools.combinations(placed, 2))
        wrong += sum(grades[a] < grades[b] for a in placed for b in unshown)
        found = measure(jnp.int32(index), jnp.asarray(shown, jnp.int32))
        assert int(found["regret"]) == wrong
        best = measure(jnp.int32(index), environment.offer(jnp.int32(index), jnp.int32(1)).optimal_ranking)
        assert int(best["regret"]) == 0


def test_the_dataset_is_shared_by_all_lanes_and_users_are_an_axis():
    users = jr.click_models.graded_user("perfect", "navigational")
    environment = jr.QueryStream(data().train, users, list_size=5)
    by_leaf = dict(zip(map(id, jax.tree.leaves(environment)), leaf_axes(environment), strict=True))
    assert by_leaf[id(environment.queries.features)] is None
    assert by_leaf[id(environment.user.click)] == 0
    result = jr.simulate(jr.SGDRankNet(), environment, 50, num_seeds=2, metrics=("clicks", "ndcg"), progress=False)
    assert dict(result["clicks"].sizes) == {"user": 2, "seed": 2, "step": 50}


class Count(NamedTuple):
    step: jax.Array


@pytree
class Counting(jr.StaticRanking):
    """Knows how many steps there were."""

    def init(self, key, query):
        return Count(jnp.int32(0))

    def update(self, key, state, query, ranking, clicks):
        return Count(state.step + 1)


def test_probes_are_taken_at_recorded_steps_and_not_summed():
    environment = stream("perfect")

    def step_number(policy, state, environment):
        return jnp.stack([state.step, 2 * state.step])

    options = {"record_at": [3, 10, 1500], "num_seeds": 2, "metrics": ("ndcg",), "progress": False}
    run = jr.simulate(Counting(), environment, 1500, probes={"number": step_number}, **options)
    assert run["number"].dims == ("seed", "step", "number_0")
    assert run["number"].values.tolist() == [[[3, 6], [10, 20], [1500, 3000]]] * 2
    in_calls = jr.simulate(Counting(), environment, 1500, probes={"number": step_number}, **options, call_intervals=1)
    assert in_calls["number"].equals(run["number"])
    plain = jr.simulate(Counting(), environment, 1500, **options)
    assert plain["ndcg"].equals(run["ndcg"]), "a look changes nothing"
    with pytest.raises(ValueError, match="probes must not have the name of a metric; got 'ndcg'"):
        jr.simulate(Counting(), environment, 10, probes={"ndcg": step_number}, **options | {"record_at": [3]})
    with pytest.raises(ValueError, match=r"probes must be functions .*; got 3 for 'three'"):
        jr.simulate(Counting(), environment, 10, probes={"three": 3}, **options | {"record_at": [3]})


def test_offline_ndcg_leaves_out_queries_without_a_relevant_document():
    """By hand: query 0 has its best document second, query 1 nothing relevant, query 2 a perfect order."""
    queries = jr.datasets.QuerySet(
        [[0.9], [0.5], [0.1], [0.3], [0.2], [0.8], [0.1]], [0, 2, 0, 0, 0, 1, 0], [0, 3, 5, 7]
    )
    probe = jr.probes.OfflineNDCG(queries)
    found = probe(jr.FixedRanker(jnp.ones(1)), (), None)
    assert float(found) == pytest.approx((1 / np.log2(3) + 1) / 2)


def test_one_huge_query_costs_its_own_rows_and_no_more():
    """A query of 3,000 documents among 500 of 2: neither the dataset nor what a probe has at once is all padded."""
    sizes = np.array([2] * 499 + [3000, 2])
    rng = np.random.default_rng(0)
    queries = jr.datasets.QuerySet(rng.random((sizes.sum(), 3)), rng.integers(0, 5, sizes.sum()), [0, *sizes.cumsum()])
    environment = jr.QueryStream(queries, jr.click_models.graded_user("perfect"))
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(environment)) < 3 * (3 + 1) * 4 * sizes.sum()
    probe, padded = jr.probes.OfflineNDCG(queries), len(sizes) * 3000 * 4
    look = jax.jit(lambda params: probe(jr.FixedRanker(params), (), None))
    used = look.lower(jnp.ones(3)).compile().memory_analysis().temp_size_in_bytes
    assert used < padded / 2, f"{used} bytes at once; the whole dataset padded has {padded}"
    assert 0.3 < float(look(jnp.ones(3))) < 1


def test_cosine_and_block_probes():
    environment = stream("perfect")
    d = environment.queries.num_features
    query = environment.offer(jnp.int32(0), jnp.int32(0))
    policy = jr.PairRank()
    state = policy.init(jax.random.key(0), query)
    reference = np.arange(1.0, d + 1)
    cosine = jr.probes.Cosine(reference)
    assert float(cosine(policy, state, environment)) == 0
    learnt = state._replace(estimate=state.estimate._replace(theta=jnp.asarray(-2 * reference, jnp.float32)))
    assert float(cosine(policy, learnt, environment)) == pytest.approx(-1)
    sizes = np.diff(np.asarray(environment.queries.starts))[:3]
    blocks = np.asarray(jr.probes.BlockSizes(num_queries=3, top=5)(policy, state, environment))
    assert blocks[0] == 1, "nothing is certain: one block"
    assert blocks[1:] == pytest.approx([np.mean(sizes * (sizes > k)) for k in range(5)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stream(list_size=0), r"QueryStream\.list_size must be a positive integer; got 0"),
        (
            lambda: jr.QueryStream(data().train, jr.click_models.graded_user("perfect", num_grades=3)),
            r"QueryStream\.user must have a probability for each of the 5 grades; got 3",
        ),
        (
            lambda: jr.QueryStream(data().train, jr.click_models.graded_user("perfect"), gain="cubic"),
            r"QueryStream\.gain must be 'exponential' or 'linear'; got 'cubic'",
        ),
        (lambda: jr.datasets.QuerySet([[1.0], [2.0]], [0], [0, 2]), r"QuerySet\.grades must be one for each of 2"),
        (lambda: jr.datasets.QuerySet([[1.0], [2.0]], [0, 1], [0, 1]), r"QuerySet\.starts must increase from 0 to 2"),
        (
            lambda: jr.datasets.QuerySet([[1.0], [np.nan]], [0, 1], [0, 2]),
            r"QuerySet\.features must be finite; got nan",
        ),
    ],
)
def test_bad_options_name_the_field_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
