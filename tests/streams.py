"""Small query streams that several tests share, and what a lane's stream offers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from jaxrank.core import random


@cache
def data(num_queries=12, num_features=6, mean_documents=7, seed=1):
    """A few queries, one of them with two documents only."""
    made = jr.datasets.synthetic_letor(num_queries, num_features, mean_documents, seed)
    starts = np.asarray(made.train.starts)
    assert np.diff(starts).min() < 5 < np.diff(starts).max()
    return made


def stream(user="navigational", list_size=5, **options):
    return jr.QueryStream(data(**options).train, jr.click_models.graded_user(user), list_size=list_size)


def indices(environment, num_steps, seed=0):
    """Which query the lane of ``driver.record`` gets at steps 1, 2, …."""
    lane = random.lane_key(random.root_key(seed), jnp.int32(0), jnp.int32(0))

    def index(t):
        return environment.query(random.step_keys(lane, t)[0], t).index

    return np.asarray(jax.jit(jax.vmap(index))(jnp.arange(1, num_steps + 1, dtype=jnp.int32)))


def documents(environment, index):
    """float64[documents, d], int[documents]: features and grades of a query."""
    queries = environment.queries
    rows = slice(int(queries.starts[index]), int(queries.starts[index + 1]))
    return np.asarray(queries.features, np.float64)[rows], np.asarray(queries.grades)[rows]
