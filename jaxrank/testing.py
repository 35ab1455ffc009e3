"""The conformance suite: what every policy, click model and environment must do. Use it on your own.

    jr.testing.check_policy(MyPolicy())
    jr.testing.check_click_model(MyModel(attraction=[0.2, 0.5, 0.1, 0.3]))
    jr.testing.check_environment(MyEnvironment(…))

Each check raises an AssertionError that says which claim failed, at which step and in which field, and how to see it
again.
"""

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.core import random
from jaxrank.core.pytrees import leaf_axes, num_instances, pytree, strongly_typed, take_instances
from jaxrank.core.types import ClickModel, Environment, Policy, is_stationary, require, reward_gap, with_horizon
from jaxrank.engine.request import Request
from jaxrank.engine.simulation import simulate
from jaxrank.engine.task import prepare
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.policies.baselines import OracleRanking, StaticRanking

_STEPS = 40
_ATTRACTION = ((0.9, 0.1, 0.5, 0.3, 0.7), (0.2, 0.6, 0.4, 0.8, 0.05), (0.3, 0.3, 0.0, 1.0, 0.6))
_EXAMINATION = (1.0, 0.8137, 0.6129, 0.4771, 0.3579)  # no two sums are equal: vmap may round ties otherwise


def check_policy(
    policy: Policy, environment: Environment | None = None, *, num_steps: int = _STEPS, seed: int = 0
) -> None:
    """Checks a policy in ``environment``: by default in two small position-based worlds, K = L and K < L.

    Valid lists; states of stable shape and type, and finite; jit = eager; vmap = loop; one compilation for all runs
    of a shape; a run in many calls, and one that was stopped and resumed, = a straight one, bit for bit;
    a lane alone = that lane among many.

    Args:
      policy: the policy.
      environment: where it runs, with the metric ``regret``.
      num_steps: the number of steps of a run, and the horizon if the policy has none.
      seed: the root of all random numbers.
    """
    require("policy", policy)
    policy = with_horizon(policy, num_steps)
    model = PositionBasedModel(_ATTRACTION, _EXAMINATION)
    worlds = [environment] if environment is not None else [ClickBandit(model), ClickBandit(model, list_size=3)]
    given = "" if environment is None else ", environment"
    with _seen_again(f"check_policy({policy!r}{given}, num_steps={num_steps}, seed={seed})"):
        for world in worlds:
            with _in_world(world if environment is None else None):
                _check_steps(policy, world, num_steps, seed)
        _check_runs(policy, worlds[0], num_steps, seed)


def check_click_model(model: ClickModel, list_size: int | None = None, samples: int = 40_000, *, seed: int = 0) -> None:
    """Checks a click model of one query, with ``attraction`` [L], on lists of ``list_size`` (at most 6) items.

    Probabilities in [0, 1] and summing to 1; click and examination probabilities, reward and samples that agree with
    the likelihood of all click patterns (samples by chi-square at p = 1e-6); an optimal ranking that no list beats, of
    the whole list and of its top; a reward gap that is the difference of two rewards; soft rankings treated as
    independent draws; finite gradients, also at attraction 0 and 1; jit = eager; vmap = loop.

    Args:
      model: the click model.
      list_size: K; all items, at most 5, by default.
      samples: the number of lists that are clicked.
      seed: of the list and of the samples.
    """
    require("click_model", model)
    num_items = model.attraction.shape[-1]
    _claim(np.ndim(model.attraction) == 1, f"attraction is that of one query, [L], not {np.shape(model.attraction)}")
    K = min(num_items, 5) if list_size is None else list_size
    with _seen_again(f"check_click_model({model!r}, list_size={K}, samples={samples}, seed={seed})"):
        _check_click_model(model, num_items, K, samples, seed)


def _check_click_model(model: ClickModel, num_items: int, K: int, samples: int, seed: int) -> None:
    ranking = jnp.asarray(np.random.default_rng(seed).permutation(num_items)[:K], jnp.int32)
    patterns = jnp.asarray(list(itertools.product([False, True], repeat=K)))
    logs = np.asarray(jax.jit(jax.vmap(lambda c: model.log_likelihood(ranking, c)))(patterns), np.float64)
    for clicks, log in zip(np.asarray(patterns, int), logs, strict=True):
        _claim(not np.isnan(log), f"log_likelihood is a number, but NaN for clicks {clicks} on the list {ranking}")
    likelihood = np.exp(logs)
    _claim(
        abs(likelihood.sum() - 1) < 1e-4,
        f"the likelihoods of all click patterns sum to 1, not {likelihood.sum()}",
    )

    clicks, examined = model.click_probability(ranking), model.examination_probability(ranking)
    for name, value in (("click_probability", clicks), ("examination_probability", examined)):
        _claim(value.shape == (K,) and value.dtype == jnp.zeros(()).dtype, f"{name} is float[K], not {value}")
        _claim_no_nan(value, f"{name} of the list {ranking}")
        _claim(bool(((value >= 0) & (value <= 1 + 1e-6)).all()), f"{name} lies in [0, 1]: {value}")
    expected = likelihood @ np.asarray(patterns, np.float64)
    _claim_close(clicks, expected, 1e-4, f"click_probability of the list {ranking} is that of the likelihood")
    _claim(
        bool((clicks <= examined + 1e-6).all()),
        f"only examined positions are clicked, but click_probability {clicks} exceeds examination {examined}",
    )

    sample = jax.jit(jax.vmap(model.sample, in_axes=(0, None)))
    sampled = sample(jax.random.split(jax.random.key(seed), samples), ranking)
    _claim(sampled.shape == (samples, K) and sampled.dtype == bool, f"sample is bool[K], not {sampled.dtype}")
    codes = np.asarray(sampled) @ (1 << np.arange(K)[::-1])
    _check_frequencies(np.bincount(codes, minlength=2**K), likelihood)

    lists = jnp.asarray(list(itertools.islice(itertools.permutations(range(num_items), K), 5_040)), jnp.int32)
    for top in {K, max(1, K // 2)}:
        best = model.optimal_ranking(K, top)
        _check_ranking(best, num_items, K, "optimal_ranking")
        highest = float(model.reward(best, top))
        rewards = jax.jit(jax.vmap(lambda ranking, top=top: model.reward(ranking, top)))(lists)
        _claim_no_nan(rewards, f"reward of the first {top} positions, over all lists,")
        winner = int(np.argmax(rewards))
        _claim(
            float(rewards[winner]) <= highest + 1e-5,
            f"no list is better in its first {top} positions than the optimum {best}, {highest}, but {lists[winner]} "
            f"has {rewards[winner]}",
        )
        gaps = jax.jit(jax.vmap(lambda ranking, best=best, top=top: reward_gap(model, best, ranking, top)))(lists)
        _claim_close(gaps, highest - rewards, 1e-5, "reward_gap is the difference of two rewards, list by list")
    _check_soft_rankings(model, num_items, min(K, 3), seed)

    gradients_of = jax.jit(jax.vmap(jax.grad(lambda m, c: m.log_likelihood(ranking, c)), in_axes=(None, 0)))
    for attraction in (model.attraction, jnp.zeros(num_items), jnp.ones(num_items)):
        gradients = gradients_of(dataclasses.replace(model, attraction=attraction), patterns)  # type: ignore[type-var]
        for name, gradient in _fields(gradients).items():
            broken = np.argwhere(~np.isfinite(gradient))
            if broken.size:
                index = tuple(int(i) for i in broken[0])
                raise AssertionError(
                    f"gradients of log_likelihood are finite, but that by {name} is {gradient[index]} at attraction "
                    f"{attraction}, for clicks {np.asarray(patterns, int)[index[0]]} on the list {ranking}"
                )

    some = lists[:: max(1, len(lists) // 7)][:7]
    for name in ("click_probability", "examination_probability", "reward"):
        method = getattr(model, name)
        looped = jnp.stack([method(r) for r in some])
        _claim_close(jax.jit(jax.vmap(method))(some), looped, 1e-6, f"{name}: jit(vmap) = loop")


def check_environment(
    environment: Environment, policy: Policy | None = None, num_steps: int = 1_500, *, seed: int = 0
) -> None:
    """Checks an environment by itself, and with ``policy`` in it: the production list and the optimum by default.

    Queries, clicks and metrics of the right shapes and types, and finite; jit = eager; vmap = loop. If it is
    stationary: metrics that depend neither on the step nor on the random numbers of a query. Runs that skip settled
    lanes = runs that simulate them; a lane alone = that lane among many; a run in many calls = one in few.

    Args:
      environment: with or without an instance axis.
      policy: who is asked for lists in the runs.
      num_steps: how long the runs are. What changes only later is seen by no run.
      seed: the root of all random numbers.
    """
    require("environment", environment)
    given = "" if policy is None else f", {policy!r}"
    with _seen_again(f"check_environment({environment!r}{given}, num_steps={num_steps}, seed={seed})"):
        _claim(isinstance(environment.instance_dim, str), "instance_dim is what the instance axis is called")
        lanes = num_instances(environment) or 1
        for number in {0, lanes - 1}:
            _check_offers(take_instances(environment, number), seed)
        asked: list[Policy] = [StaticRanking(), OracleRanking()] if policy is None else [policy]
        for one in asked:
            _check_skipping(one, environment, num_steps, seed)


def _check_offers(environment: Environment, seed: int) -> None:
    """One lane: what a query, clicks and metrics look like, at many steps."""

    def offer(key: Any, step: Any) -> Any:
        query_key, list_key, click_key, _ = random.step_keys(key, step)
        query = environment.query(query_key, step)
        ranking = jax.random.permutation(list_key, query.num_items)[: query.list_size].astype(jnp.int32)
        clicks = environment.clicks(click_key, query, ranking)
        measured = environment.metrics(query, ranking)
        return {"query": query, "ranking": ranking, "clicks": clicks, "metrics": measured}

    keys = _lane_keys(random.root_key(seed), jnp.arange(24))
    steps = jnp.asarray([*(2**i for i in range(12)), *range(3, 12), 4_096, 65_535, 2**24 + 1], jnp.int32)
    one, many = jax.jit(offer), jax.jit(jax.vmap(offer))(keys, steps)
    queries, rankings, clicks, measured = (many[name] for name in ("query", "ranking", "clicks", "metrics"))
    L, K = queries.num_items, queries.list_size
    _claim(1 <= K <= L, f"a list has from 1 to {L} positions, not {K}")
    _claim(clicks.shape == (24, K) and clicks.dtype == bool, f"clicks are bool[{K}], not {clicks.dtype}")
    for i in range(24):
        _check_ranking(queries.base_ranking[i], L, L, "query.base_ranking")
        _check_ranking(queries.optimal_ranking[i], L, K, "query.optimal_ranking")
    for name, values in _fields({"metric": measured, "query": queries}).items():
        broken = np.isnan(values) if name.startswith("query") else ~np.isfinite(values)
        for i in np.flatnonzero(broken.reshape(24, -1).any(axis=1))[:1]:
            raise AssertionError(f"{name} is finite, but {values[i]} at step {steps[i]}")
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


def _check_skipping(policy: Policy, environment: Environment, num_steps: int, seed: int) -> None:
    """Curves do not depend on what is skipped, on the other lanes or on the calls."""
    metrics = tuple(jax.eval_shape(_first_metrics, environment))
    options: dict[str, Any] = {"num_seeds": 2, "num_records": 6, "progress": False, "metrics": metrics, "seed": seed}
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


def _claim_curve(curve: Any, expected: Any, claim: str, tolerance: float = 1e-5) -> None:
    """The curves are equal, bit for bit if ``tolerance`` is 0; the first step at which one differs, of all of them."""
    differs = ~np.isclose(curve.values, expected.values, rtol=tolerance, atol=tolerance)
    if differs.any():
        index = min((tuple(int(i) for i in one) for one in np.argwhere(differs)), key=lambda index: index[-1])
        got, wanted = curve.values[index], expected.values[index]
        at = ", ".join(f"{dim} {curve[dim].values[i]}" for dim, i in zip(curve.dims, index, strict=True))
        raise AssertionError(f"{claim}, but at {at} it is {got} and not {wanted}")


def _check_soft_rankings(model: ClickModel, num_items: int, list_size: int, seed: int) -> None:
    """A soft ranking float[K, L] is a list whose positions draw their items independently."""
    lists = np.array(list(itertools.product(range(num_items), repeat=list_size)), np.int32)
    soft = np.random.default_rng(seed + 1).dirichlet(np.ones(num_items), list_size)
    weight = np.prod(soft[np.arange(list_size), lists], axis=1)
    hard = jnp.asarray(np.random.default_rng(seed).permutation(num_items)[:list_size], jnp.int32)
    one_hot = jax.nn.one_hot(hard, num_items)
    for name in ("click_probability", "examination_probability", "reward"):
        method = getattr(model, name)
        try:
            of_soft, of_one_hot = (jax.jit(method)(x) for x in (jnp.asarray(soft, one_hot.dtype), one_hot))
        except (TypeError, IndexError, ValueError) as error:
            raise AssertionError(
                f"{name} takes soft rankings, float[K, L], too (jr.lookup reads both): {error}"
            ) from None
        _claim_close(of_one_hot, method(hard), 1e-5, f"{name} of one-hot rows is that of the hard ranking {hard}")
        expected = np.tensordot(weight, np.asarray(jax.jit(jax.vmap(method))(lists), np.float64), axes=1)
        _claim_close(
            of_soft, expected, 1e-4, f"{name} of a soft ranking is the mean over independent draws of its items"
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


def _check_steps(policy: Policy, environment: Environment, num_steps: int, seed: int) -> None:
    """Lanes one by one = all of them under vmap, and in the first steps = eager, operation by operation."""
    lanes = num_instances(environment) or 1
    leaves, structure = jax.tree.flatten(environment)
    axes = leaf_axes(environment)

    def offer(leaves: Any, key: Any) -> Any:
        return jax.tree.unflatten(structure, leaves).query(random.step_keys(key, jnp.int32(0))[0], jnp.int32(0))

    @jax.jit
    def init(leaves: Any, key: Any) -> Any:
        return strongly_typed(policy.init(random.step_keys(key, jnp.int32(0))[3], offer(leaves, key)))

    def step(leaves: Any, key: Any, state: Any, t: Any) -> tuple[Any, Any]:
        query_key, rank_key, click_key, update_key = random.step_keys(key, t)
        env = jax.tree.unflatten(structure, leaves)
        query = env.query(query_key, t)
        ranking = policy.rank(rank_key, state, query)
        clicks = env.clicks(click_key, query, ranking)
        return policy.update(update_key, state, query, ranking, clicks), ranking

    keys = _lane_keys(random.root_key(seed), jnp.arange(lanes))
    on_host = jax.device_get(environment)  # what is taken apart there needs no compilation
    one_lane = [[jnp.asarray(leaf) for leaf in jax.tree.leaves(take_instances(on_host, i))] for i in range(lanes)]
    size = jax.eval_shape(offer, one_lane[0], keys[0])

    jit_step, jit_vmap_step = jax.jit(step), jax.jit(jax.vmap(step, in_axes=(axes, 0, 0, None)))
    batch = jax.jit(jax.vmap(init, in_axes=(axes, 0)))(leaves, keys)
    single = [init(one_lane[i], keys[i]) for i in range(lanes)]
    eager = single[0]
    _claim_no_nan(batch, "the state after init", "lane")
    for number in range(1, num_steps + 1):
        t = jnp.int32(number)
        before = single[0]
        batch, rankings = jit_vmap_step(leaves, keys, batch, t)
        states_of_batch, lists_of_batch = jax.device_get((batch, rankings))
        _claim_no_nan(states_of_batch, f"the state after step {number}", "lane")
        for i in range(lanes):
            single[i], ranking = jit_step(one_lane[i], keys[i], single[i], t)
            _check_ranking(ranking, size.num_items, size.list_size, f"the list of lane {i} at step {number}")
            _claim_equal(lists_of_batch[i], ranking, f"vmap = loop: the list of lane {i} at step {number}")
            state_of_batch = _lane(states_of_batch, i)
            _claim_equal(state_of_batch, single[i], f"vmap = loop: the state of lane {i} after step {number}")
        _claim_same_types(before, single[0], number)
        if number <= 2:
            eager, ranking = step(one_lane[0], keys[0], eager, t)
            _claim_equal(ranking, lists_of_batch[0], f"eager = jit: the list of lane 0 at step {number}")
            _claim_equal(eager, single[0], f"eager = jit: the state of lane 0 after step {number}")
    for name, values in _fields(single).items():
        _claim(
            np.isfinite(values).all(), f"the state stays finite, but its field {name} is {values} after the last step"
        )


@jax.jit
def _lane_keys(root: Any, numbers: Any) -> Any:
    return jax.jit(jax.vmap(lambda number: random.lane_key(root, number, jnp.int32(0))))(numbers)


def _check_runs(policy: Policy, environment: Environment, num_steps: int, seed: int) -> None:
    counted: Any = _CountsTraces(policy)
    options: dict[str, Any] = {"num_seeds": 2, "num_records": 7, "progress": False, "metrics": ("regret",)}
    options["seed"] = seed
    options["skip_settled"] = False  # the wrapper that counts knows of none
    straight = simulate(counted, environment, num_steps, **options)["regret"]
    traces = _CountsTraces.traces
    simulate(counted, environment, 2 * num_steps, **options | {"seed": seed + 1, "num_records": 9})
    _claim(_CountsTraces.traces == traces, "runs of the same shape share one compilation")

    in_calls = prepare(counted, environment, Request(num_steps, **options)).start(np.arange(straight[..., 0].size))
    while not in_calls.finished:
        in_calls.call_steps = 3  # as in a long run, where calls end inside of intervals
        in_calls.advance()
    values = straight.copy(data=in_calls.curves["regret"].reshape(straight.shape))
    _claim_curve(values, straight, "regret of a run in many calls equals that of one in few, bit for bit", 0)

    def stop(step: int) -> None:
        if step >= num_steps // 2:
            raise _StoppedError

    steps: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        saving: dict[str, Any] = {"checkpoint_dir": folder, "checkpoint_every": "1 call"}
        with contextlib.suppress(_StoppedError):
            simulate(counted, environment, num_steps, **options | saving | {"progress": stop})
        resuming: dict[str, Any] = {"progress": steps.append, "resume": True}
        resumed = simulate(counted, environment, num_steps, **options | saving | resuming)["regret"]
    _claim(steps[0] >= num_steps // 2, "a run goes on from its checkpoint")
    _claim_curve(resumed, straight, "regret of a resumed run equals that of a straight one, bit for bit", 0)

    dim = environment.instance_dim
    instances = None if dim not in straight.dims else [straight.sizes[dim] - 1]
    one: dict[str, Any] = options | {"num_seeds": None, "instances": instances, "seeds": [1]}
    alone = simulate(policy, environment, num_steps, **one)["regret"]
    among = straight.sel({"seed": [1]} | ({} if instances is None else {dim: instances}))
    _claim_curve(alone, among, "regret of a lane alone equals that of the lane among many", 1e-6)


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


def _fields(tree: Any) -> dict[str, np.ndarray]:
    """The leaves by name, on the host: "clicks", "query.features"; "itself" if the tree is one array."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "itself" for path, _ in leaves]
    return {name: np.asarray(leaf) for name, (_, leaf) in zip(names, leaves, strict=True)}


def _claim_no_nan(tree: Any, what: str, first_axis: str = "") -> None:
    """Names the first field with a NaN, and where it is. NaN is told as NaN, before anything is compared with it."""
    for name, values in _fields(tree).items():
        if jnp.issubdtype(values.dtype, jnp.floating) and np.isnan(values).any():
            index = tuple(int(i) for i in np.argwhere(np.isnan(values))[0])
            where = f" of {first_axis} {index[0]}" if first_axis else ""
            index = index[1:] if first_axis else index
            field = "" if name == "itself" else f" in its field {name}"
            raise AssertionError(f"{what}{where} has no NaN, but one{field}{f' at index {index}' if index else ''}")


def _claim_same_types(before: Any, after: Any, step: int) -> None:
    old, new = _fields(before), _fields(after)
    claim = f"the state keeps its fields, shapes and types, but after step {step}"
    _claim(list(old) == list(new), f"{claim} its fields are {', '.join(new)} and not {', '.join(old)}")
    for name in old:
        was, now = (f"{values.dtype}{list(values.shape)}" for values in (old[name], new[name]))
        _claim(was == now, f"{claim} its field {name} is {now} and not {was}")


def _claim_equal(left: Any, right: Any, claim: str) -> None:
    """Integers exactly, floats to float32 rounding; names the first field that differs."""
    for (name, a), b in zip(_fields(left).items(), _fields(right).values(), strict=True):
        field = "" if name == "itself" else f"its field {name} "
        _claim_close(a, b, 1e-6, f"{claim} is the same", field, 1e-5 if jnp.issubdtype(a.dtype, jnp.floating) else 0)


def _claim_close(
    got: Any, expected: Any, tolerance: float, claim: str, field: str = "", relative: float = 1e-5
) -> None:
    """Names the first entry that differs, or that is NaN on one side only."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise AssertionError(f"{claim}, but {field}has the shape {got.shape} and not {expected.shape}")
    numbers = jnp.issubdtype(got.dtype, jnp.floating) or jnp.issubdtype(expected.dtype, jnp.floating)
    same = np.isclose(got, expected, rtol=relative, atol=tolerance, equal_nan=True) if numbers else got == expected
    if not np.all(same):
        index = tuple(int(i) for i in np.argwhere(~same)[0])
        at = f"at index {index} " if index else ""
        raise AssertionError(f"{claim}, but {field}{at}is {got[index]} and not {expected[index]}")


def _claim(holds: Any, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)


@contextlib.contextmanager
def _seen_again(call: str) -> Iterator[None]:
    """Adds to a failed claim the call that shows it again."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}. To see it again: jr.testing.{call}") from None


@contextlib.contextmanager
def _in_world(environment: Any) -> Iterator[None]:
    """Adds to a failed claim which of the two default worlds it failed in."""
    try:
        yield
    except AssertionError as error:
        where = "" if environment is None else f" (lists of {environment.list_size} of {environment.num_items} items)"
        raise AssertionError(f"{error}{where}") from None
