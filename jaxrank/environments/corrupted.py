"""Corrupted clicks: an adversary between the users and the policy, in any environment.

In the stochastic bandits with adversarial corruptions of Lykouris, Mirrokni and Paes Leme (STOC 2018), rewards are
drawn as ever, and an adversary who sees them may change some before the policy does. What it spends, summed over the
steps, is the corruption C. Here it flips at most one click in a step: C is at most the number of attacked steps.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrank.core.checks import non_negative, probability
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array, Key, Query, require

_ATTACK = 0xC0  # makes the adversary's key from that of the clicks


@pytree
class Corrupted:
    """An environment whose clicks an adversary changes before the policy sees them.

    A step is attacked with probability ``fraction``, and with certainty if it is among the first ``budget`` steps. The
    adversary of the lower bounds spends its budget at the start, where it does most harm; and so no count of what it
    has left is needed. Metrics are those of the environment: what the users really do. With fraction 0 and budget 0
    clicks are those of the environment, bit for bit.

    Args:
      environment: any environment.
      fraction: the probability, in [0, 1], that a step is attacked.
      budget: the number of steps, from the first one on, that are attacked in any case.
      target: what an attack does: "random" flips the click, or the missing click, at a random position; "best" hides
        the click on the best item, if it has one.
    """

    environment: Any
    fraction: Any = array(ndim=0, check=probability, default=0.0)
    budget: Any = array(ndim=0, dtype=jnp.int32, check=non_negative, default=0)
    target: str = static(default="random", choices=("random", "best"))

    instance_dim: ClassVar[Any] = property(lambda self: self.environment.instance_dim)

    def _validate(self) -> None:
        require("environment", self.environment, "Corrupted.environment")

    def query(self, key: Key, step: Array) -> Query:
        return self.environment.query(key, step)

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        clicks = self.environment.clicks(key, query, ranking)
        words = jax.random.bits(jax.random.fold_in(key, _ATTACK), (2,), jnp.uint32)
        attacked = (query.step <= self.budget) | (_uniform(words[0]) < self.fraction)
        position = jnp.arange(clicks.shape[0], dtype=jnp.uint32)
        if self.target == "random":
            return clicks ^ (attacked & (position == words[1] % clicks.shape[0]))
        return clicks & ~(attacked & (ranking == query.optimal_ranking[0]))

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        return self.environment.metrics(query, ranking)


def _uniform(word: Array) -> Array:
    """float[]: uniform in [0, 1), from 24 bits of a word."""
    return (word >> 8).astype(jnp.zeros(()).dtype) * 2.0**-24
