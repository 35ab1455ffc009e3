"""A policy of your own: Thompson sampling for every item, on what a cascade of clicks tells about it.

A policy is three pure functions of ONE lane, one query under one seed; jaxrank maps them over thousands. K is the
number of positions of a list (``query.list_size``), L the number of items (``query.num_items``).

    jaxrank run --policy my_policies.py:ItemTS --policy bubblerank     # beside another one
    jaxrank run --policy my_policies.py:ItemTS:prior=5                 # with an option
    pytest test_my_policies.py
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

import jaxrank as jr


class State(NamedTuple):
    """What the next step needs, and nothing else: arrays whose shapes and types never change."""

    clicks: jax.Array  # int32[L], how often each item was clicked
    skips: jax.Array  # int32[L], how often it was seen and not clicked


@jr.pytree
class ItemTS:
    """Draws every item's attraction θ from what is believed about it, and shows the items of the highest θ.

    The belief is Beta(a, b) with a = prior + clicks and b = prior + skips, drawn as a normal of its mean and variance:
    that is a few operations, where a Beta draw is a loop.

    Args:
      prior: how many clicks and skips of each item count as seen before the first step.
    """

    per_item: ClassVar[bool] = True  # it keeps statistics of items, so these must stay the same from step to step

    # A field is a leaf, jr.array(…), or a switch, jr.static(…). A leaf can be swept: ItemTS(prior=[1, 5, 25]).
    prior: float = jr.array(ndim=0, check=jr.checks.positive, default=1.0)

    def init(self, key, query):
        """The state before the first step."""
        nothing = jnp.zeros(query.num_items, jnp.int32)
        return State(clicks=nothing, skips=nothing)

    def rank(self, key, state, query):
        """int32[K]: the list to show, best first."""
        a, b = self.prior + state.clicks, self.prior + state.skips
        mean = a / (a + b)
        deviation = jnp.sqrt(mean * (1 - mean) / (a + b + 1))
        theta = mean + deviation * jax.random.normal(key, mean.shape)
        return jr.top_items(theta, query.list_size)

    def update(self, key, state, query, ranking, clicks):
        """The state after the user clicked, bool[K], on ``ranking``."""
        # In a cascade the user reads down to the first click and leaves: nothing is known about the items below.
        clicks_above = jnp.cumsum(clicks) - clicks
        seen = clicks_above == 0
        return State(
            clicks=state.clicks.at[ranking].add(seen & clicks),
            skips=state.skips.at[ranking].add(seen & ~clicks),
        )
