"""Off-policy estimators against those of ``obp`` (Open Bandit Pipeline) on the same logs, if it is installed.

Shared definitions, equal to rounding: list, cascade (reward-interaction) and independent IPS, each self-normalised too,
and cascade DR. obp normalises the weights of list IPS over all positions at once, jaxrank by position: the same, as
they do not depend on the position. Its cascade DR takes any Q̂, the predicted clicks from a position on; jaxrank's come
from a click model, so these are given to obp, computed list by list. obp has no position-based IPS, no direct method
and no doubly robust estimator over lists for rankings, and its intervals are bootstrapped: those are not compared.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr
from jaxrank.learning.list_distributions import prefix_probabilities
from jaxrank.learning.off_policy import probabilities_of

slate = pytest.importorskip("obp.ope.estimators_slate")

L, K, SESSIONS = 4, 3, 200
MODEL = jr.DynamicBayesianModel([0.6, 0.3, 0.5, 0.2], [0.5, 0.3, 0.7, 0.4], 0.9)
GUESS = jr.PositionBasedModel([0.5, 0.4, 0.4, 0.3], [1.0, 0.6, 0.4])
LOGGER = jr.off_policy.EpsilonGreedy([0.1, 0.4, 0.2, 0.3], 0.7, K)
TARGET = jr.off_policy.PlackettLuce([1.0, 0.2, 0.6, -0.4], K)


@pytest.fixture(scope="module")
def log():
    return jr.off_policy.simulate_log(jax.random.key(0), MODEL, LOGGER, num_sessions=SESSIONS)


def flat(values):
    return np.asarray(values, np.float64).reshape(-1)


@pytest.mark.parametrize(
    ("estimator", "plain", "normalised", "given"),
    [
        ("ips", "SlateStandardIPS", "SelfNormalizedSlateStandardIPS", "pscore"),
        ("cascade_ips", "SlateRewardInteractionIPS", "SelfNormalizedSlateRewardInteractionIPS", "pscore_cascade"),
        ("independent_ips", "SlateIndependentIPS", "SelfNormalizedSlateIndependentIPS", "pscore_item_position"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the log contradicts what independent IPS assumes
def test_inverse_propensity_estimates_are_those_of_obp(log, estimator, plain, normalised, given):
    prefix, placed = probabilities_of(TARGET, jnp.zeros(SESSIONS, jnp.int32), log.rankings)
    shown = {
        "pscore": (log.prefix[:, -1:] + 0 * log.prefix, prefix[:, -1:] + 0 * prefix),
        "pscore_cascade": (log.prefix, prefix),
        "pscore_item_position": tuple(jnp.diagonal(p, axis1=-2, axis2=-1) for p in (log.placed, placed)),
    }[given]
    arguments = {given: flat(shown[0]), f"evaluation_policy_{given}": flat(shown[1])}
    arguments |= {"slate_id": np.repeat(np.arange(SESSIONS), K), "position": np.tile(np.arange(K), SESSIONS)}
    for name, self_normalized in ((plain, False), (normalised, True)):
        expected = getattr(slate, name)(len_list=K).estimate_policy_value(reward=flat(log.clicks), **arguments)
        found = jr.evaluate(log, TARGET, estimator, self_normalized=self_normalized).value
        assert found == pytest.approx(expected, rel=1e-5)


def test_cascade_doubly_robust_estimates_are_those_of_obp(log):
    prefix, _ = probabilities_of(TARGET, jnp.zeros(SESSIONS, jnp.int32), log.rankings, with_placed=False)

    lists = jr.off_policy.all_lists(L, K)
    share = np.asarray(jax.vmap(lambda ranking: prefix_probabilities(TARGET, ranking)[-1])(lists), np.float64)
    clicks = np.asarray(jax.vmap(GUESS.click_probability)(lists), np.float64)

    def from_here_on(above, item):
        """The clicks that GUESS predicts from a position on, given the items above it and the one there."""
        k = len(above)
        same = (lists[:, : k + 1] == [*above, item]).all(axis=1)
        return share[same] @ clicks[same, k:].sum(axis=1) / share[same].sum() if same.any() else 0.0

    q_hat = [[from_here_on(row[:k], item) for k in range(K) for item in range(L)] for row in log.rankings.tolist()]
    expected = slate.SlateCascadeDoublyRobust(len_list=K, n_unique_action=L).estimate_policy_value(
        slate_id=np.repeat(np.arange(SESSIONS), K),
        action=np.asarray(log.rankings).reshape(-1),
        reward=flat(log.clicks),
        position=np.tile(np.arange(K), SESSIONS),
        pscore_cascade=flat(log.prefix),
        evaluation_policy_pscore_cascade=flat(prefix),
        q_hat=flat(q_hat),
        evaluation_policy_action_dist=flat(jax.vmap(TARGET.conditionals)(log.rankings)),
    )
    found = jr.evaluate(log, TARGET, "cascade_dr", click_model=GUESS).value
    assert found == pytest.approx(expected, rel=1e-5)
