"""Runs a policy in an environment on one lane and keeps everything, so that a reference can be driven along."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core import random
from jaxrank.core.pytrees import num_instances, take_instances


def record(policy, environment, num_steps, *, seed=0, draws=None, statistics=None):
    """One lane, step by step, as ``simulate`` runs it.

    ``draws(rank_key, update_key)`` returns the random numbers that the policy draws in a step; ``statistics(policy,
    state)`` returns what to compare after it. Both are stacked over steps, as are rankings and clicks; ``first`` has
    the draws and statistics of ``init``.

    Runs of one shape share a compilation if these two functions are the same objects: define them in the module.
    """
    run = _run(policy, environment, random.root_key(seed), num_steps=num_steps, draws=draws, statistics=statistics)
    first, (rankings, clicks, drawn, stats) = jax.device_get(run)
    return SimpleNamespace(
        rankings=rankings, clicks=clicks, draws=drawn, statistics=stats, first=SimpleNamespace(**first)
    )


@partial(jax.jit, static_argnames=("num_steps", "draws", "statistics"))
def _run(policy, environment, root, *, num_steps, draws, statistics):
    draws = draws or (lambda rank_key, update_key: ())
    statistics = statistics or (lambda policy, state: ())
    lane = random.lane_key(root, jnp.int32(0), jnp.int32(0))

    def step(state, t):
        query_key, rank_key, click_key, update_key = random.step_keys(lane, t)
        query = environment.query(query_key, t)
        ranking = policy.rank(rank_key, state, query)
        clicks = environment.clicks(click_key, query, ranking)
        state = policy.update(update_key, state, query, ranking, clicks)
        return state, (ranking, clicks, draws(rank_key, update_key), statistics(policy, state))

    query_key, rank_key, _, init_key = random.step_keys(lane, jnp.int32(0))
    state = policy.init(init_key, environment.query(query_key, jnp.int32(0)))
    first = {"draws": draws(rank_key, init_key), "statistics": statistics(policy, state)}
    return first, jax.lax.scan(step, state, jnp.arange(1, num_steps + 1, dtype=jnp.int32))[1]


def learnt(policy, state):
    """The ``statistics`` of ``record`` that most tests compare."""
    return policy.statistics(state)


def run_lanes(policy, environment, num_steps):
    """The (states, lists) of all instances' lanes under one vmap, having seen that each does the same alone."""
    numbers = jnp.arange(num_instances(environment))

    def run(number):
        one = take_instances(environment, number)
        lane = random.lane_key(random.root_key(0), number, jnp.int32(0))

        def step(state, t):
            _, rank_key, click_key, update_key = random.step_keys(lane, t)
            query = one.query(None, t)
            ranking = policy.rank(rank_key, state, query)
            clicks = one.clicks(click_key, query, ranking)
            return policy.update(update_key, state, query, ranking, clicks), ranking

        state = policy.init(lane, one.query(None, jnp.int32(0)))
        return jax.lax.scan(step, state, jnp.arange(1, num_steps + 1, dtype=jnp.int32))

    vmapped = jax.jit(jax.vmap(run))(numbers)
    single = jax.tree.map(lambda *lanes: jnp.stack(lanes), *map(jax.jit(run), numbers))
    jax.tree.map(np.testing.assert_array_equal, vmapped, single)
    return vmapped
