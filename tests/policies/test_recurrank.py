"""RecurRank against its plain reference, step by step; its design against the theorem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import learnt, record
from reference.recurrank import RecurRank as Reference
from worlds import any_users, topic_bandit

import jaxrank as jr
from jaxrank.policies.recurrank import g_optimal_design

STEPS = 6_000


def designs(features):
    """The policy's own G-optimal design as a function of a list of items: what it is worth is tested by itself."""
    find = jax.jit(g_optimal_design)
    features = jnp.asarray(features, jnp.float32)
    return lambda items: np.asarray(find(features, jnp.isin(jnp.arange(features.shape[0]), jnp.asarray(items)))).astype(
        float
    )


def follow(policy, environment, features, num_steps, log_inverse_delta):
    run = record(policy, environment, num_steps, statistics=learnt)
    order = np.argsort(run.first.statistics["order"]).tolist()
    features = np.asarray(features, float)
    reference = Reference(features, run.rankings.shape[1], order, log_inverse_delta, designs(features))
    for t in range(num_steps):
        assert reference.rank() == run.rankings[t].tolist(), f"list at step {t + 1}"
        reference.update(run.rankings[t].tolist(), run.clicks[t])
        for one in reference.instances:
            assert all(run.statistics["first"][t][a] == one.first for a in one.items), f"parts after step {t + 1}"
            assert all(run.statistics["left"][t][a] == one.left[a] for a in one.items), f"T(a) after step {t + 1}"
    return reference


@pytest.mark.parametrize(("model", "size"), [("pbm", (5, 3)), pytest.param("cm", (4, 4), marks=pytest.mark.slow)])
def test_recurrank_equals_the_reference_without_features(model, size):
    L, K = size
    environment = jr.ClickBandit(any_users(model, L, seed=0), list_size=K)
    reference = follow(jr.RecurRank(delta=0.9), environment, np.eye(L), STEPS, -np.log(0.9))
    assert reference.splits >= 1, "parts were split"
    assert reference.eliminated >= (K < L), "and items eliminated"
    assert max(one.phase for one in reference.instances) >= 4


def test_recurrank_equals_the_reference_with_features():
    environment = topic_bandit(num_items=8, list_size=3, trade_off=1.0)
    reference = follow(jr.RecurRank(delta=0.9), environment, environment.features, 3_000, -np.log(0.9))
    assert max(one.phase for one in reference.instances) >= 4


def test_the_design_is_nearly_g_optimal():
    """max aᵀV⁻¹a is at most 1.3·d, where d is the optimum, on random items of d = 4 and on some of them."""
    rng = np.random.default_rng(0)
    find = jax.jit(g_optimal_design)
    for number in range(10):
        x = rng.normal(size=(30, 4))
        allowed = rng.random(30) < (1 if number % 2 else 0.4)
        weight = np.asarray(find(jnp.asarray(x, jnp.float32), jnp.asarray(allowed)), float)
        assert weight.sum() == pytest.approx(1, abs=1e-5) and (weight[~allowed] == 0).all()
        inverse = np.linalg.inv((x * weight[:, None]).T @ x)
        assert np.einsum("ij,jk,ik->i", x[allowed], inverse, x[allowed]).max() < 1.3 * 4


def test_the_horizon_must_be_known():
    with pytest.raises(ValueError, match=r"RecurRank\.horizon must be given outside of simulate"):
        jr.RecurRank().init(jax.random.key(0), topic_bandit().query(None, jnp.int32(1)))
