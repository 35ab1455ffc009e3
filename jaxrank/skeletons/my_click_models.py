"""A click model of your own: users who read on with a fixed persistence, whatever they have seen.

A click model says how ONE query's list is clicked; jaxrank maps it over queries and seeds. A ranking is hard, int32[K]
items, or soft, float[K, L] weights of the items at every position; ``jr.lookup`` reads both.

    jaxrank run --click-model my_click_models.py:RankBiasedModel --policy bubblerank
    jaxrank run --click-model my_click_models.py:RankBiasedModel:persistence=0.5 --policy bubblerank
    pytest test_my_click_models.py
"""

from typing import Any

import jax
import jax.numpy as jnp

import jaxrank as jr


@jr.pytree
class RankBiasedModel:
    """Position k = 1, 2, … is examined with probability p^(k−1); an examined item i is clicked with probability α_i.

    The expected number of clicks, Σ p^(k−1)·α, is rank-biased precision up to the factor 1 − p (Moffat and Zobel, ACM
    TOIS 2008).

    Args:
      attraction: α [L], or [queries, L]. Synthetic queries fill it in.
      persistence: p, the probability of reading on.
    """

    # ndim is that of one query; a value with one more axis holds many. The check runs when an object is made.
    attraction: Any = jr.array(ndim=1, check=jr.checks.probability)
    persistence: float = jr.array(ndim=0, check=jr.checks.probability, default=0.8)

    def examination_probability(self, ranking):
        """float[K]."""
        return self.persistence ** jnp.arange(ranking.shape[0])

    def click_probability(self, ranking):
        """float[K]."""
        return self.examination_probability(ranking) * jr.lookup(self.attraction, ranking)

    def sample(self, key, ranking):
        """bool[K]: the clicks of one user."""
        return jax.random.uniform(key, ranking.shape) < self.click_probability(ranking)

    def reward(self, ranking, top=None):
        """float[]: the expected number of clicks on the first ``top`` positions."""
        return jnp.sum(self.click_probability(ranking[:top]))

    def optimal_ranking(self, list_size, top=None):
        """int32[list_size]: the best list. Examination falls with the position, so the best item comes first."""
        return jr.top_items(self.attraction, list_size)

    def log_likelihood(self, ranking, clicks):
        """float[]: log P(clicks). The clip keeps gradients finite where a click is certain or impossible."""
        p = jnp.clip(self.click_probability(ranking), 1e-7, 1 - 1e-7)
        return jnp.sum(jnp.where(clicks, jnp.log(p), jnp.log1p(-p)))
