"""The trust-bias model, the simplified DBN and click rates against their stories, told coin by coin."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import click_models as reference

import jaxrank as jr

L, K = 5, 3
RNG = np.random.default_rng(0)
ALPHA, SIGMA, CHI, TRUST, RATE = (RNG.uniform(0, 1, shape) for shape in (L, L, K, K, (L, K)))
MEAN = np.full(L, ALPHA.mean())
ALWAYS = np.ones(K)
CASES = {  # the model, and the story of a list
    "sdbn": (
        jr.SimplifiedDynamicBayesianModel(ALPHA, SIGMA),
        lambda ranking: reference.dynamic_bayesian(ranking, ALPHA, SIGMA, 1.0),
    ),
    "trust": (jr.TrustBiasModel(ALPHA, CHI, TRUST), lambda r: reference.trust_bias(r, ALPHA, CHI, TRUST)),
    "gctr": (jr.GlobalClickRate(ALPHA), lambda r: reference.trust_bias(r, MEAN, ALWAYS, 0 * ALWAYS)),
    "rctr": (jr.RankClickRate(ALPHA, CHI), lambda r: reference.trust_bias(r, MEAN, CHI, 0 * CHI)),
    "dctr": (jr.DocumentClickRate(ALPHA), lambda r: reference.trust_bias(r, ALPHA, ALWAYS, 0 * ALWAYS)),
    "rdctr": (jr.RankDocumentClickRate(ALPHA, RATE), lambda r: reference.rank_document_rate(r, ALPHA, RATE)),
}
LISTS = list(itertools.permutations(range(L), K))


@pytest.mark.parametrize("name", CASES)
def test_probabilities_likelihoods_and_optimum_are_those_of_the_story(name):
    model, story = CASES[name]
    patterns = reference.patterns(K)

    @partial(jax.jit, static_argnames="top")
    def of_lists(lists, top):
        likelihood = jax.vmap(lambda ranking: jax.vmap(partial(model.log_likelihood, ranking))(jnp.asarray(patterns)))
        of_list = jax.vmap(lambda r: (model.click_probability(r), model.examination_probability(r), model.reward(r)))
        return *of_list(lists), likelihood(lists), model.optimal_ranking(K, top)

    rewards = [reference.marginals(story(ranking))[0].sum() for ranking in LISTS]
    some = LISTS[::7]
    clicks, examined, reward, logs, best = of_lists(jnp.array(some, jnp.int32), K)
    for i, ranking in enumerate(some):
        expected_clicks, expected_examined = reference.marginals(story(ranking))
        np.testing.assert_allclose(clicks[i], expected_clicks, atol=1e-6)
        np.testing.assert_allclose(examined[i], expected_examined, atol=1e-6)
        assert reward[i] == pytest.approx(expected_clicks.sum(), abs=1e-5)
        np.testing.assert_allclose(np.exp(logs[i]), reference.pattern_probabilities(story(ranking)), atol=1e-6)
    assert rewards[LISTS.index(tuple(best.tolist()))] == pytest.approx(max(rewards), abs=1e-5)


def test_the_best_assignment_is_found_among_many_items_and_for_the_top_alone():
    """Against all lists of the top 2 of 40 items, and against greedy choice, which is worse."""
    rng = np.random.default_rng(1)
    alpha, rate = rng.uniform(0.2, 0.9, 40), rng.uniform(0, 1, (40, 4))
    model = jr.RankDocumentClickRate(alpha, rate)
    best = np.asarray(model.optimal_ranking(4, 2))
    assert len(set(best.tolist())) == 4
    clicks = alpha[:, None] * rate
    pairs = clicks[:, 0][:, None] + clicks[:, 1][None, :]
    np.fill_diagonal(pairs, 0)
    assert clicks[best[0], 0] + clicks[best[1], 1] == pytest.approx(pairs.max(), rel=1e-6)
    rest = [item for item in np.argsort(-alpha) if item not in best[:2]]
    assert best[2:].tolist() == rest[:2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jr.TrustBiasModel(ALPHA, CHI, [0.1]), r"trust must have one value for each of the 3 positions"),
        (lambda: jr.SimplifiedDynamicBayesianModel(ALPHA, [0.1]), r"SimplifiedDynamicBayesianModel.satisfaction must"),
        (lambda: jr.RankDocumentClickRate(ALPHA, RATE[:2]), r"relative_rate must have a row for each of the 5 items"),
    ],
)
def test_parameters_of_other_items_or_positions_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
