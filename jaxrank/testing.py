"""The conformance suite: what every policy, click model and environment must do. Use it on your own.

    jr.testing.check_policy(MyPolicy())
    jr.testing.check_click_model(MyModel(attraction=[0.2, 0.5, 0.1, 0.3]))
    jr.testing.check_environment(MyEnvironment(…))

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
from jaxrank.core.types import ClickModel, Environment, Policy, is_stationary, reward_gap, with_horizon
from jaxrank.engine.request import Request
from jaxrank.engine.simulation import simulate
from jaxrank.engine.task import prepare, require
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.policies.baselines import OracleRanking, StaticRanking

_STEPS = 40
_ATTRACTION = ((0.9, 0.1, 0.5, 0.3, 0.7), (0.2, 0.6, 0.4, 0.8, 0.05), (0.3, 0.3, 0.0, 1.0, 0.6))
_EXAMINATION = (1.0, 0.8137, 0.6129, 0.4771, 0.3579)  # no two sums are equal: vmap may round ties otherwise


def check_policy(policy: Policy, environment: Environment | None = None) -> None:
    """Checks a policy in ``environment``: by default in two small position-based worlds, K = L and K < L.

    Valid lists; states of stable shape and type, and finite; jit = eager; vmap = loop; one compilation for all runs
    of a shape; a run in many calls, and one that was stopped and resumed, = a straight one, bit for bit;
    a lane alone = that lane among many.
    """
    require("policy", policy)
    policy = with_horizon(policy, _STEPS)
    model = PositionBasedModel(_ATTRACTION, _EXAMINATION)
    worlds = [environment] if environment is not None else [ClickBandit(model), ClickBandit(model, list_size=3)]
    for world in worlds:
        _check_steps(policy, world)
    _check_runs(policy, worlds[0])


def check_click_model(model: ClickModel, list_size: int | None = None, samples: int = 40_000) -> None:
    """Checks a click model of one query, with ``attraction`` [L], on lists of ``list_size`` (at most 6) items.

    Probabilities in [0, 1] and summing to 1; click and examination probabilities, reward and samples that agree with
    the likelihood of all click patterns (samples by chi-square at p = 1e-6); an optimal ranking that no list beats, of
    the whole list and of its top; a reward gap that is the difference of two rewards; soft rankings treated as
    independent draws; finite gradients, also at attraction 0 and 1; jit = eager; vmap = loop.
    """
    num_items = model.attraction.shape[-1]
    _claim(np.ndim(model.attraction) == 1, f"attraction is that of one query, [L], not {np.shape(model.attraction)}")
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

    lists = jnp.asarray(list(itertools.islice(itertools.permutations(range(num_items), K), 5_040)), jnp.int32)
    for top in {K, max(1, K // 2)}:
        best = model.optimal_ranking(K, top)
        _check_ranking(best, num_items, K, "optimal_ranking")
        highest = float(model.reward(best, top))
        rewards = jax.vmap(lambda ranking, top=top: model.reward(ranking, top))(lists)
        _claim(
            float(rewards.max()) <= highest + 1e-5,
            f"no list is better in its first {top} positions than the optimum {highest}: {rewards.max()}",
        )
        gaps = jax.vmap(lambda ranking, best=best, top=top: reward_gap(model, best, ranking, top))(lists)
        _claim(np.allclose(gaps, highest - rewards, atol=1e-5), "reward_gap is the difference of two rewards")
    _check_soft_rankings(model, num_items, min(K, 3))

    for attraction in (model.attraction, jnp.zeros(num_items), jnp.ones(num_items)):
        at = dataclasses.replace(model, attraction=attraction)  # type: ignore[type-var]
        gradients = jax.vmap(jax.grad(lambda m, c: m.log_likelihood(ranking, c)), in_axes=(None, 0))(at, patterns)
        _claim(_all_finite(gradients), f"gradients of log_likelihood are finite at attraction {attraction}")

    some = lists[:: max(1, len(lists) // 7)][:7]
    for name in ("click_probability", "examination_probability", "reward"):
        method = getattr(model, name)
        looped = jnp.stack([method(r) for r in some])
        _claim(np.allclose(jax.jit(jax.vmap(method))(some), looped, atol=1e-6), f"{name}: jit(vmap) = loop")


def check_environment(environment: Environment, policy: Policy | None = None, num_steps: int = 1_500) -> None:
    """Checks an environment by itself, and with ``policy`` in it: the production list and the optimum by default.

    Queries, clicks and metrics of the right shapes and types, and finite; jit = eager; vmap = loop. If it is
    stationary: metrics that depend neither on the step nor on the random numbers of a query. Runs that skip settled
    lanes = runs that simulate them; a lane alone = that lane among many; a run in many calls = one in few.

    Args:
      environment: with or without an instance axis.
      policy: who is asked for lists in the runs.
      num_steps: how long the runs are. What changes only later is seen by no run.
    """
    _claim(isinstance(environment.instance_dim, str), "instance_dim is what the instance axis is called")
    lanes = num_instances(environment) or 1
    for number in {0, lanes - 1}:
        _check_offers(take_instances(environment, number))
    asked: list[Policy] = [StaticRanking(), OracleRanking()] if policy is None else [policy]
    for one in asked:
        _check_skipping(one, environment, num_steps)


def _check_offers(environment: Environment) -> None:
    """One lane: what a query, clicks and metrics look like, at many steps."""

    def offer(key: Any, step: Any) -> Any:
        query_key, list_key, click_key, _ = random.step_keys(key, step)
        query = environment.query(query_key, step)
        ranking = jax.random.permutation(list_key, query.num_items)[: query.list_size].astype(jnp.int32)
        clicks = environment.clicks(click_key, query, ranking)
        return query, ranking, clicks, environment.metrics(query, ranking)

    keys = jax.vmap(lambda i: random.lane_key(random.root_key(0), i, jnp.int32(0)))(jnp.arange(24))
    steps = jnp.asarray([*(2**i for i in range(12)), *range(3, 12), 4_096, 65_535, 2**24 + 1], jnp.int32)
    one, many = jax.jit(offer), jax.jit(jax.vmap(offer))(keys, steps)
    queries, rankings, clicks, measured = many
    L, K = queries.num_items, queries.list_size
    _claim(1 <= K <= L, f"a list has from 1 to {L} positions, not {K}")
    _claim(clicks.shape == (24, K) and clicks.dtype == bool, f"clicks are bool[{K}], not {clicks.dtype}")
    for i in range(24):
        _check_ranking(queries.base_ranking[i], L, L, "query.base_ranking")
        _check_ranking(queries.optimal_ranking[i], L, K, "query.optimal_ranking")
    for name, values in measured.items():
        _claim(bool(np.isfinite(values).all()), f"metric {name} is finite, not {values}")
    for i in (0, 23):
        single = one(keys[i], steps[i])
        _claim_equal(_lane(many, i), single, f"vmap = loop: queries, clicks and metrics at step {steps[i]}")
        _claim_equal(offer(keys[i], steps[i]), single, f"jit = eager: queries, clicks and metrics at step {steps[i]}")

    if is_stationary(environment):
        ranking = rankings[0]

        def measure(key: Any, step: Any) -> Any:
            return environment.metrics(environment.query(key, step), ranking)

        for name, values in jax.jit(jax.vmap(measure))(keys, steps).items():
            changed = np.flatnonzero(~np.isclose(values, values[0], rtol=1e-5, atol=1e-6))
            if changed.size:
                at = changed[0]
                raise AssertionError(
                    f"a stationary environment measures a list alike at every step; {name} is {values[0]} at step "
                    f"{steps[0]} and {values[at]} at step {steps[at]}"
                )


def _check_skipping(policy: Policy, environment: Environment, num_steps: int) -> None:
    """Curves do not depend on what is skipped, on the other lanes or on the calls."""
    metrics = tuple(jax.eval_shape(_first_metrics, environment))
    options: dict[str, Any] = {"num_seeds": 2, "num_records": 6, "progress": False, "metrics": metrics}
    name, dim = type(policy).__name__, environment.instance_dim
    straight = simulate(policy, environment, num_steps, **options, skip_settled=False)
    instances = None if dim not in straight.dims else [straight.sizes[dim] - 1]
    at = {"seed": [1]} | ({} if instances is None else {dim: instances})
    others = {
        "a run that skips settled lanes equals one that simulates them": simulate(
            policy, environment, num_steps, **options
        ),
        "a run in many calls equals one in few": simulate(
            policy, environment, num_steps, **options, skip_settled=False, call_intervals=1
        ),
    }
    alone = simulate(
        policy,
        environment,
        num_steps,
        **options | {"num_seeds": None},
        skip_settled=False,
        instances=instances,
        seeds=[1],
    )
    for metric in metrics:
        for claim, run in others.items():
            _claim_curve(run[metric], straight[metric], f"{claim}: {metric} of {name}")
        claim = f"a lane alone equals that lane among many: {metric} of {name}"
        _claim_curve(alone[metric], straight[metric].sel(at), claim)


def _first_metrics(environment: Environment) -> Any:
    one = take_instances(environment, 0)
    query = one.query(random.root_key(0), jnp.int32(1))
    return one.metrics(query, query.base_ranking[: query.list_size])


def _claim_curve(curve: Any, expected: Any, claim: str) -> None:
    differs = ~np.isclose(curve.values, expected.values, rtol=1e-5, atol=1e-5)
    if differs.any():
        index = tuple(int(i) for i in np.argwhere(differs)[0])
        got, wanted = curve.values[index], expected.values[index]
        raise AssertionError(f"{claim}, but at step {int(curve['step'][index[-1]])} it is {got} and not {wanted}")


def _check_soft_rankings(model: ClickModel, num_items: int, list_size: int) -> None:
    """A soft ranking float[K, L] is a list whose positions draw their items independently."""
    lists = np.array(list(itertools.product(range(num_items), repeat=list_size)), np.int32)
    soft = np.random.default_rng(1).dirichlet(np.ones(num_items), list_size)
    weight = np.prod(soft[np.arange(list_size), lists], axis=1)
    hard = jnp.asarray(np.random.default_rng(0).permutation(num_items)[:list_size], jnp.int32)
    one_hot = jax.nn.one_hot(hard, num_items)
    for name in ("click_probability", "examination_probability", "reward"):
        method = getattr(model, name)
        try:
            of_soft, of_one_hot = method(jnp.asarray(soft, one_hot.dtype)), method(one_hot)
        except (TypeError, IndexError, ValueError) as error:
            raise AssertionError(
                f"{name} takes soft rankings, float[K, L], too (jr.lookup reads both): {error}"
            ) from None
        _claim(np.allclose(of_one_hot, method(hard), atol=1e-5), f"{name} of one-hot rows is that of the hard ranking")
        expected = np.tensordot(weight, np.asarray(jax.vmap(method)(jnp.asarray(lists)), np.float64), axes=1)
        _claim(
            np.allclose(of_soft, expected, atol=1e-4),
            f"{name} of a soft ranking is the mean over independent draws of its positions, {expected}, not {of_soft}",
        )


@pytree
class _CountsTraces:
    """Counts how often Python runs a policy's ``rank``: once per trace."""

    policy: Any
    traces = 0

    def init(self, *args: Any) -> Any:
        return self.policy.init(*args)

    def rank(self, *args: Any) -> Any:
        _CountsTraces.traces += 1
        return self.policy.rank(*args)

    def update(self, *args: Any) -> Any:
        return self.policy.update(*args)


def _check_steps(policy: Policy, environment: Environment) -> None:
    """Lanes one by one = all of them under vmap, and in the first steps = eager, operation by operation."""
    lanes = num_instances(environment) or 1
    leaves, structure = jax.tree.flatten(environment)
    axes = leaf_axes(environment)

    def offer(leaves: Any, key: Any) -> Any:
        return jax.tree.unflatten(structure, leaves).query(random.step_keys(key, jnp.int32(0))[0], jnp.int32(0))

    @jax.jit
    def init(leaves: Any, key: Any) -> Any:
        return policy.init(random.step_keys(key, jnp.int32(0))[3], offer(leaves, key))

    def step(leaves: Any, key: Any, state: Any, t: Any) -> tuple[Any, Any]:
        query_key, rank_key, click_key, update_key = random.step_keys(key, t)
        env = jax.tree.unflatten(structure, leaves)
        query = env.query(query_key, t)
        ranking = policy.rank(rank_key, state, query)
        clicks = env.clicks(click_key, query, ranking)
        return policy.update(update_key, state, query, ranking, clicks), ranking

    keys = _lane_keys(jnp.arange(lanes))
    on_host = jax.device_get(environment)  # what is taken apart there needs no compilation
    one_lane = [[jnp.asarray(leaf) for leaf in jax.tree.leaves(take_instances(on_host, i))] for i in range(lanes)]
    size = jax.eval_shape(offer, one_lane[0], keys[0])

    jit_step, jit_vmap_step = jax.jit(step), jax.jit(jax.vmap(step, in_axes=(axes, 0, 0, None)))
    batch = jax.vmap(init, in_axes=(axes, 0))(leaves, keys)
    single = [init(one_lane[i], keys[i]) for i in range(lanes)]
    eager = single[0]
    for number in range(1, _STEPS + 1):
        t = jnp.int32(number)
        before = single[0]
        batch, rankings = jit_vmap_step(leaves, keys, batch, t)
        states_of_batch, lists_of_batch = jax.device_get((batch, rankings))
        for i in range(lanes):
            single[i], ranking = jit_step(one_lane[i], keys[i], single[i], t)
            _check_ranking(ranking, size.num_items, size.list_size, f"the list at step {number}")
            _claim(np.array_equal(ranking, lists_of_batch[i]), f"vmap = loop: the lists of lane {i} at step {number}")
            state_of_batch = _lane(states_of_batch, i)
            _claim_equal(state_of_batch, single[i], f"vmap = loop: the states of lane {i} after step {number}")
        _claim(_types(single[0]) == _types(before), f"the state keeps its shapes and types at step {number}")
        if number <= 3:
            eager, ranking = step(one_lane[0], keys[0], eager, t)
            _claim(np.array_equal(ranking, lists_of_batch[0]), f"jit = eager: the lists at step {number}")
            _claim_equal(eager, single[0], f"jit = eager: the states after step {number}")
    _claim(_all_finite(single), "the state stays finite")


@jax.jit
def _lane_keys(numbers: Any) -> Any:
    return jax.vmap(lambda number: random.lane_key(random.root_key(0), number, jnp.int32(0)))(numbers)


def _check_runs(policy: Policy, environment: Environment) -> None:
    counted: Any = _CountsTraces(policy)
    options: dict[str, Any] = {"num_seeds": 2, "num_records": 7, "progress": False, "metrics": ("regret",)}
    options["skip_settled"] = False  # the wrapper that counts knows of none
    straight = simulate(counted, environment, _STEPS, **options)["regret"]
    traces = _CountsTraces.traces
    simulate(counted, environment, 2 * _STEPS, **options | {"seed": 1, "num_records": 9})
    _claim(_CountsTraces.traces == traces, "runs of the same shape share one compilation")

    in_calls = prepare(counted, environment, Request(_STEPS, **options)).start(np.arange(straight[..., 0].size))
    while not in_calls.finished:
        in_calls.call_steps = 3  # as in a long run, where calls end inside of intervals
        in_calls.advance()
    values = in_calls.curves["regret"].reshape(straight.shape)
    _claim(np.array_equal(values, straight.values), "a run in many calls equals one in few, bit for bit")

    def stop(step: int) -> None:
        if step >= _STEPS // 2:
            raise _StoppedError

    steps: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        saving: dict[str, Any] = {"checkpoint_dir": folder, "checkpoint_every": "1 call"}
        with contextlib.suppress(_StoppedError):
            simulate(counted, environment, _STEPS, **options | saving | {"progress": stop})
        resuming: dict[str, Any] = {"progress": steps.append, "resume": True}
        resumed = simulate(counted, environment, _STEPS, **options | saving | resuming)["regret"]
    _claim(steps[0] >= _STEPS // 2, "a run goes on from its checkpoint")
    _claim(np.array_equal(resumed.values, straight.values), "a resumed run equals a straight one, bit for bit")

    dim = environment.instance_dim
    instances = None if dim not in straight.dims else [straight.sizes[dim] - 1]
    alone = simulate(policy, environment, _STEPS, **options | {"num_seeds": None}, instances=instances, seeds=[1])[
        "regret"
    ]
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
