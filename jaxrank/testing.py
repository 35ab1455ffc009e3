"""The conformance suite: what every policy and click model must do. Use it on your own.

    jr.testing.check_policy(MyPolicy())
    jr.testing.check_click_model(MyModel(attraction=[0.2, 0.5, 0.1, 0.3]))

Each check raises an AssertionError that says which claim failed.
"""

import contextlib
import dataclasses
import itertools
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.core import random
from jaxrank.core.pytrees import leaf_axes, num_instances, pytree, take_instances
from jaxrank.core.types import ClickModel, Environment, Policy
from jaxrank.engine.simulation import simulate
from jaxrank.environments.click_bandit import ClickBandit

_STEPS = 40
_ATTRACTION = ((0.9, 0.1, 0.5, 0.3, 0.7), (0.2, 0.6, 0.4, 0.8, 0.05), (0.3, 0.3, 0.0, 1.0, 0.6))
_EXAMINATION = (1.0, 0.8137, 0.6129, 0.4771, 0.3579)  # no two sums are equal: vmap may round ties otherwise


def check_policy(policy: Policy, environment: Environment | None = None) -> None:
    """Checks a policy in ``environment``: by default in two small position-based worlds, K = L and K < L.

    Valid lists; states of stable shape and type, and finite; jit = eager; vmap = loop; one compilation for all runs
    of a shape; a run in many calls, and one that was stopped and resumed, = a straight one, bit for bit;
    a lane alone = that lane among many.
    """
    if getattr(policy, "horizon", _STEPS) is None:
        policy = dataclasses.replace(policy, horizon=_STEPS)  # type: ignore[type-var]
    model = PositionBasedModel(_ATTRACTION, _EXAMINATION)
    worlds = [environment] if environment is not None else [ClickBandit(model), ClickBandit(model, list_size=3)]
    for world in worlds:
        _check_steps(policy, world)
    _check_runs(policy, worlds[0])


def check_click_model(model: ClickModel, list_size: int | None = None, samples: int = 40_000) -> None:
    """Checks a click model of one query, with ``attraction`` [L], on lists of ``list_size`` (at most 6) items.

    Probabilities in [0, 1] and summing to 1; click and examination probabilities, reward and samples that agree with
    the likelihood of all click patterns (samples by chi-square at p = 1e-6); an optimal ranking that no list beats;
    finite gradients, also at attraction 0 and 1; jit = eager; vmap = loop.
    """
    num_items = model.attraction.shape[-1]
    K = min(num_items, 5) if list_size is None else list_size
    ranking = jnp.asarray(np.random.default_rng(0).permutation(num_items)[:K], jnp.int32)
    patterns = jnp.asarray(list(itertools.product([False, True], repeat=K)))
    likelihood = np.exp(np.asarray(jax.vmap(lambda c: model.log_likelihood(ranking, c))(patterns), np.float64))
    _claim(
        abs(likelihood.sum() - 1) < 1e-4,
        f"the likelihoods of all click patterns sum to 1, not {likelihood.sum()}",
    )

    clicks, examined = model.click_probability(ranking), model.examination_probability(ranking)
    for name, value in (("click_probability", clicks), ("examination_probability", examined)):
        _claim(value.shape == (K,) and value.dtype == jnp.zeros(()).dtype, f"{name} is float[K], not {value}")
        _claim(bool(((value >= 0) & (value <= 1 + 1e-6)).all()), f"{name} lies in [0, 1]: {value}")
    expected = likelihood @ np.asarray(patterns, np.float64)
    _claim(
        np.allclose(clicks, expected, atol=1e-4),
        f"click_probability {clicks} is that of the likelihood {expected}",
    )
    _claim(bool((clicks <= examined + 1e-6).all()), "only examined positions are clicked")

    sample = jax.jit(jax.vmap(model.sample, in_axes=(0, None)))
    sampled = sample(jax.random.split(jax.random.key(0), samples), ranking)
    _claim(sampled.shape == (samples, K) and sampled.dtype == bool, f"sample is bool[K], not {sampled.dtype}")
    codes = np.asarray(sampled) @ (1 << np.arange(K)[::-1])
    _check_frequencies(np.bincount(codes, minlength=2**K), likelihood)

    best = model.optimal_ranking(K)
    _check_ranking(best, num_items, K, "optimal_ranking")
    highest = float(model.reward(best))
    lists = np.array(list(itertools.islice(itertools.permutations(range(num_items), K), 5_040)), np.int32)
    rewards = jax.vmap(model.reward)(jnp.asarray(lists))
    _claim(
        float(rewards.max()) <= highest + 1e-5,
        f"no list is better than the optimum {highest}: {rewards.max()}",
    )

    for attraction in (model.attraction, jnp.zeros(num_items), jnp.ones(num_items)):
        at = dataclasses.replace(model, attraction=attraction)  # type: ignore[type-var]
        gradients = jax.vmap(jax.grad(lambda m, c: m.log_likelihood(ranking, c)), in_axes=(None, 0))(at, patterns)
        _claim(_all_finite(gradients), f"gradients of log_likelihood are finite at attraction {attraction}")

    some = jnp.asarray(lists[:: max(1, len(lists) // 7)][:7])
    for name in ("click_probability", "examination_probability", "reward"):
        method = getattr(model, name)
        looped = jnp.stack([method(r) for r in some])
        _claim(np.allclose(jax.jit(jax.vmap(method))(some), looped, atol=1e-6), f"{name}: jit(vmap) = loop")


@pytree
class _CountsTraces:
    """Counts how often Python runs a policy's ``rank``: once per trace."""

    policy: Any
    traces = 0

    def init(self, *args):
        return self.policy.init(*args)

    def rank(self, *args):
        _CountsTraces.traces += 1
        return self.policy.rank(*args)

    def update(self, *args):
        return self.policy.update(*args)


def _check_steps(policy: Policy, environment: Environment) -> None:
    lanes = num_instances(environment) or 1
    leaves, structure = jax.tree.flatten(environment)
    axes = leaf_axes(environment)

    def offer(leaves, key):
        return jax.tree.unflatten(structure, leaves).query(random.step_keys(key, jnp.int32(0))[0], jnp.int32(0))

    @jax.jit
    def init(leaves, key):
        return policy.init(random.step_keys(key, jnp.int32(0))[3], offer(leaves, key))

    def step(leaves, key, state, t):
        query_key, rank_key, click_key, update_key = random.step_keys(key, t)
        env = jax.tree.unflatten(structure, leaves)
        query = env.query(query_key, t)
        ranking = policy.rank(rank_key, state, query)
        clicks = env.clicks(click_key, query, ranking)
        return policy.update(update_key, state, query, ranking, clicks), ranking

    keys = jax.vmap(lambda i: random.lane_key(random.root_key(0), i, jnp.int32(0)))(jnp.arange(lanes))
    one_lane = [jax.tree.leaves(take_instances(environment, i)) for i in range(lanes)]
    size = jax.eval_shape(offer, one_lane[0], keys[0])

    jit_step, jit_vmap_step = jax.jit(step), jax.jit(jax.vmap(step, in_axes=(axes, 0, 0, None)))
    batch = jax.vmap(init, in_axes=(axes, 0))(leaves, keys)
    single = [init(one_lane[i], keys[i]) for i in range(lanes)]
    eager = single[0]
    for number in range(1, _STEPS + 1):
        t = jnp.int32(number)
        before = single[0]
        batch, rankings = jit_vmap_step(leaves, keys, batch, t)
        for i in range(lanes):
            single[i], ranking = jit_step(one_lane[i], keys[i], single[i], t)
            _check_ranking(ranking, size.num_items, size.list_size, f"the list at step {number}")
            _claim(np.array_equal(ranking, rankings[i]), f"vmap = loop: the lists of lane {i} at step {number}")
            _claim_equal(_lane(batch, i), single[i], f"vmap = loop: the states of lane {i} after step {number}")
        _claim(_types(single[0]) == _types(before), f"the state keeps its shapes and types at step {number}")
        if number <= 3:
            eager, ranking = step(one_lane[0], keys[0], eager, t)
            _claim(np.array_equal(ranking, rankings[0]), f"jit = eager: the lists at step {number}")
            _claim_equal(eager, single[0], f"jit = eager: the states after step {number}")
    _claim(_all_finite(single), "the state stays finite")


def _check_runs(policy: Policy, environment: Environment) -> None:
    counted: Any = _CountsTraces(policy)
    options: dict[str, Any] = {"num_seeds": 2, "num_records": 7, "progress": False, "metrics": ("regret",)}
    options["skip_settled"] = False  # the wrapper that counts knows of none
    straight = simulate(counted, environment, _STEPS, **options)["regret"]
    traces = _CountsTraces.traces
    simulate(counted, environment, 2 * _STEPS, **options | {"seed": 1, "num_records": 9})
    _claim(_CountsTraces.traces == traces, "runs of the same shape share one compilation")

    in_calls = simulate(policy, environment, _STEPS, **options, call_intervals=1)["regret"]
    _claim(np.array_equal(in_calls.values, straight.values), "a run in many calls equals one in few, bit for bit")

    def stop(step: int) -> None:
        if step >= _STEPS // 2:
            raise _StoppedError

    steps: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        saving: dict[str, Any] = {"call_intervals": 1, "checkpoint_dir": folder, "checkpoint_every": "1 call"}
        with contextlib.suppress(_StoppedError):
            simulate(policy, environment, _STEPS, **options | saving | {"progress": stop})
        resumed = simulate(policy, environment, _STEPS, **options | saving | {"progress": steps.append}, resume=True)[
            "regret"
        ]
    _claim(steps[0] >= _STEPS // 2, "a run goes on from its checkpoint")
    _claim(np.array_equal(resumed.values, straight.values), "a resumed run equals a straight one, bit for bit")

    dim = environment.instance_dim
    instances = None if dim not in straight.dims else [straight.sizes[dim] - 1]
    alone = simulate(policy, environment, _STEPS, **options, instances=instances, seeds=[1])["regret"]
    among = straight.sel({"seed": [1]} | ({} if instances is None else {dim: instances}))
    _claim(np.allclose(alone, among, rtol=1e-6, atol=1e-6), "a lane alone equals that lane among many")


class _StoppedError(Exception):
    """Ends a run half-way."""


def _check_ranking(ranking: Any, num_items: int, list_size: int, what: str) -> None:
    ranking = np.asarray(ranking)
    _claim(
        ranking.shape == (list_size,) and ranking.dtype == np.int32,
        f"{what} is int32[{list_size}], not {ranking!r}",
    )
    _claim(len(set(ranking.tolist())) == list_size, f"{what} holds distinct items: {ranking}")
    _claim(
        ranking.min() >= 0 and ranking.max() < num_items,
        f"{what} holds items 0 to {num_items - 1}: {ranking}",
    )


def _check_frequencies(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square at p = 1e-6 over the outcomes expected 5 times or more, the others pooled."""
    from scipy.stats import chi2

    expected = counts.sum() * probabilities
    pooled = expected < 5
    observed = np.append(counts[~pooled], counts[pooled].sum())
    expected = np.append(expected[~pooled], expected[pooled].sum())
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-9))[expected > 1e-3].sum()
    limit = chi2.isf(1e-6, max(1, (expected > 1e-3).sum() - 1))
    _claim(statistic <= limit, f"samples follow the likelihood: chi-square {statistic:.1f}, limit {limit:.1f}")
    _claim(counts[probabilities < 1e-9].sum() == 0, "nothing impossible is sampled")


def _lane(batch: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], batch)


def _types(tree: Any) -> Any:
    return jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), tree)


def _all_finite(tree: Any) -> bool:
    return all(bool(np.isfinite(np.asarray(x)).all()) for x in jax.tree.leaves(tree))


def _claim_equal(left: Any, right: Any, claim: str) -> None:
    """Integers exactly, floats to float32 rounding."""
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        close = (
            np.allclose(a, b, rtol=1e-5, atol=1e-6) if jnp.issubdtype(a.dtype, jnp.floating) else np.array_equal(a, b)
        )
        if not close:  # saying what differs takes longer than looking
            raise AssertionError(f"{claim}: {a} and {b}")


def _claim(holds: Any, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)
