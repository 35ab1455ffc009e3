"""Tuning a policy's continuous hyper-parameters by evolution over simulations side by side.

A policy's results are not smooth in its hyper-parameters, because lists are discrete. So this is an evolution
strategy: every generation simulates a population of settings as one sweep, all with the same random numbers, and moves
towards the best of them. Settings are positive and searched on a logarithmic scale.

A learnt initial list needs no evolution: expected clicks are smooth in the scores of a soft ranking
(``scripts/examples/meta.py`` has both).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrank.core.checks import did_you_mean, integer
from jaxrank.core.pytrees import num_instances
from jaxrank.core.types import Environment, Policy
from jaxrank.engine.simulation import simulate


class Tuned(NamedTuple):
    """What ``tune`` found."""

    policy: Policy  # with the tuned hyper-parameters
    values: dict[str, float]
    history: list[dict[str, float]]  # the centre after each generation, and the mean ``score`` of its population


def tune(
    policy: Policy,
    environment: Environment,
    num_steps: int,
    names: Mapping[str, float] | tuple[str, ...],
    *,
    metric: str = "regret",
    maximize: bool = False,
    num_generations: int = 8,
    population: int = 12,
    spread: float = 1.0,
    num_seeds: int = 1,
    seed: int = 0,
    **options: Any,
) -> Tuned:
    """Searches for the hyper-parameters of ``policy`` with the best mean of a metric, summed over the steps of a run.

    A generation draws log-normal settings around a centre, in pairs that mirror each other; the centre moves to the
    weighted mean of the better half (weights falling with the logarithm of the rank, as in CMA-ES), and the spread of
    each hyper-parameter moves halfway to theirs.

    Args:
      policy: where to start.
      environment: where to tune: training queries or users. Hold out others to measure the gain.
      num_steps: of each simulation.
      names: hyper-parameters, scalar leaves of the policy; a mapping starts each at a value of its own.
      metric: a metric of the environment.
      maximize: whether more of it is better.
      num_generations: the number of generations, simulated one after the other.
      population: the number of settings in a generation, simulated side by side; even.
      spread: standard deviation of the logarithms in the first generation.
      num_seeds: repetitions of every instance in each simulation.
      seed: of the search. Each generation has its own random numbers, which all its settings share.
      options: of ``simulate``.

    Reference: Hansen: The CMA evolution strategy: a tutorial. arXiv:1604.00772, 2016.
    """
    num_generations = integer("num_generations", num_generations)
    population = integer("population", population, 4)
    if population % 2:
        raise ValueError(f"population must be an even number; got {population!r}")
    seed = integer("seed", seed, 0, 2**64 - 1 - num_generations)
    if isinstance(policy, type):
        raise ValueError(f"policy must be an instance; got the class {policy.__name__}: write {policy.__name__}(…)")
    if isinstance(names, str):
        raise ValueError(f"names must be a sequence of names, not text; got {names!r}: write ({names!r},)")
    start = dict(names) if isinstance(names, Mapping) else {name: _value(policy, name) for name in names}
    if not start:
        raise ValueError("names must name at least one hyper-parameter; got none")
    for name, value in start.items():
        _value(policy, name)
        if not np.isfinite(value) or value <= 0:
            raise ValueError(f"names must start at positive values; got {name} = {value!r}")
    if num_instances(policy) is not None:
        raise ValueError("policy must be one setting, not a sweep")

    rng = np.random.default_rng(seed)
    centre, deviation = np.log(list(start.values())), np.full(len(start), float(spread))
    half = population // 2
    weights = np.log(half + 0.5) - np.log(np.arange(1, half + 1))
    weights /= weights.sum()
    history = []
    for generation in range(num_generations):
        noise = rng.standard_normal((half, len(start)))
        settings = centre + deviation * np.concatenate([noise, -noise])
        sweep = dataclasses.replace(policy, **dict(zip(start, np.exp(settings).T, strict=True)))  # type: ignore[type-var]
        run = simulate(
            sweep,
            environment,
            num_steps,
            metrics=(metric,),
            num_records=1,
            num_seeds=num_seeds,
            seed=seed + 1 + generation,
            **{"progress": False, **options},
        )[metric].isel(step=-1)
        scores = run.mean(run.dims[1:]).values
        best = settings[np.argsort(-scores if maximize else scores, kind="stable")[:half]]
        centre, before = weights @ best, centre
        deviation = (deviation + np.sqrt(weights @ (best - before) ** 2)) / 2
        history.append({**dict(zip(start, np.exp(centre).tolist(), strict=True)), "score": float(scores.mean())})
    values = dict(zip(start, np.exp(centre).tolist(), strict=True))
    return Tuned(dataclasses.replace(policy, **values), values, history)  # type: ignore[type-var]


def best_on_grid(
    score: Callable[[Sequence[float]], Sequence[float]], grid: Sequence[float], most: int = 4, highest: float = np.inf
) -> tuple[float, list[float]]:
    """The value of the highest score, and all values tried: those of ``grid``, and more beyond an edge that is best.

    Args:
      score: gives each of some values its score; higher is better.
      grid: ascending values in a geometric progression, at least two.
      most: how many values are added at most. The best one may then still be an edge.
      highest: what no value is above: 1 for a probability.
    """
    scores = dict(zip(grid, score(grid), strict=True))
    ratio = grid[1] / grid[0]
    for _ in range(most):
        best, values = max(scores, key=lambda value: scores[value]), sorted(scores)
        if best not in (values[0], values[-1]):
            break
        beyond = best / ratio if best == values[0] else min(best * ratio, highest)
        if beyond in scores:
            break
        scores[beyond] = score([beyond])[0]
    return max(scores, key=lambda value: scores[value]), sorted(scores)


def _value(policy: Policy, name: str) -> float:
    value = getattr(policy, name, None)
    if value is None or np.shape(value) or not np.issubdtype(np.asarray(value).dtype, np.floating):
        hint = did_you_mean(name, [field.name for field in dataclasses.fields(policy)])  # type: ignore[arg-type]
        raise ValueError(f"names must be real scalar leaves of {type(policy).__name__}; got {name!r}{hint}")
    return float(value)
