"""An environment of your own: two kinds of users, who want different items.

An environment says what ONE lane's step offers: a query to rank, clicks on the list that was chosen, and metrics of
the list. K is the number of positions of a list, L the number of items.

    jaxrank run --world my_environments.py:TwoKinds --policy bubblerank --policy cascade_ts
    jaxrank run --world my_environments.py:TwoKinds:share=0.5,list_size=3 --policy bubblerank
    pytest test_my_environments.py
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

import jaxrank as jr


@jr.pytree
class TwoKinds:
    """A user of the first or of the second kind comes, unseen by the policy, and reads position k with chance 1/k.

    Metrics, expected values over both kinds of users: ``reward``, the number of clicks, and ``regret``, how much
    smaller it is than that of the best list.

    Args:
      attraction: [2, L], the probability that a user of each kind clicks an item that was read.
      share: of users of the second kind.
      list_size: K.
    """

    instance_dim: ClassVar[str] = "query"  # what an additional, leading axis of the leaves is called in results
    stationary: ClassVar[bool] = True  # every step has the same query, and the same metrics of a list

    attraction: Any = jr.array(
        ndim=2,
        check=jr.checks.probability,
        default=((0.1, 0.5, 0.3, 0.1, 0.6, 0.2), (0.6, 0.1, 0.1, 0.7, 0.1, 0.3)),
    )
    share: float = jr.array(ndim=0, check=jr.checks.probability, default=0.3)
    list_size: int = jr.static(default=4, minimum=1)

    def _validate(self):
        """Checks of fields against each other, when an object is made."""
        num_items = self.attraction.shape[-1]
        if self.list_size > num_items:
            raise ValueError(f"TwoKinds.list_size must be at most the {num_items} items; got {self.list_size}")

    def query(self, key, step):
        """All that a policy may see, and the best list for those who may know it."""
        num_items = self.attraction.shape[1]
        return jr.Query(
            step=step,
            base_ranking=jnp.arange(num_items, dtype=jnp.int32),  # the list before anything is learnt
            optimal_ranking=jr.top_items(self._mean_attraction(), self.list_size),
            num_items=num_items,
            list_size=self.list_size,
        )

    def clicks(self, key, query, ranking):
        """bool[K]: the clicks of one user, whose kind decides about all positions of the list."""
        kind_key, click_key = jax.random.split(key)
        kind = jax.random.bernoulli(kind_key, self.share).astype(jnp.int32)
        attraction = jr.lookup(self.attraction[kind], ranking)
        return jax.random.uniform(click_key, ranking.shape) < self._examination() * attraction

    def metrics(self, query, ranking):
        """Expected values of one step, float[] each; jaxrank sums them up."""
        reward = self._reward(ranking)
        return {"regret": self._reward(query.optimal_ranking) - reward, "reward": reward}

    def _mean_attraction(self):
        return (1 - self.share) * self.attraction[0] + self.share * self.attraction[1]

    def _examination(self):
        return 1 / jnp.arange(1, self.list_size + 1)

    def _reward(self, ranking):
        return jnp.sum(self._examination() * jr.lookup(self._mean_attraction(), ranking))
