"""The stochastic click bandit: one query, the same items at every step, clicks from a click model."""

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxrank.core.checks import integer, non_negative
from jaxrank.core.metrics import dcg, violation
from jaxrank.core.pytrees import array, derived, num_instances, over_instances, pytree, static
from jaxrank.core.ranking import complete, inversions, lookup, top_items
from jaxrank.core.types import Array, Key, Query, by_position, require, reward_gap


@pytree
class ClickBandit:
    """A stochastic click bandit (Zoghi et al., ICML 2017; BubbleRank, Sec. 2.2).

    Metrics, all expected values of the displayed list:

    - ``regret``: the reward of the ``reference`` minus the list's, in the first ``top`` positions;
    - ``reward``: the click model's reward of the first ``top`` positions;
    - ``violations``: 1 if the list has more than K/2 inversions more than the base list (BubbleRank, eq. 7);
    - ``misordered``: the number of pairs of displayed items in the wrong order (ties are never wrong);
    - ``ndcg``: NDCG at ``top`` with attraction as gain, and ``ndcg@1``, …, ``ndcg@K`` at every cutoff (App. B);
    - ``clicks``: the expected number of clicks on all K positions.

    Args:
      click_model: how the user clicks; its leaves may have a leading query axis.
      base_ranking: the production ranker's order: all L items, or the K shown ones (the others follow in item
        order). [L] or [queries, L]; 0, 1, 2, … by default.
      list_size: K, the number of positions; all L items by default.
      top: the number of positions that count for reward and regret (the papers measure the top 5 of 10); K by default.
      reference: the list that regret is measured against, and that OracleRanking shows: the click model's "optimal" one
        or the K items of the highest "attraction", best first. In the dependent click model the optimum pairs the best
        items with the positions at which users leave most often. If these are not the first ones, policies that sort
        by attraction have regret against it forever: on 60 Yandex queries 46 in a million steps.
    """

    instance_dim: ClassVar[str] = "query"
    stationary: ClassVar[bool] = True  # the same query at every step

    click_model: Any
    base_ranking: Any = array(ndim=1, dtype=jnp.int32, check=non_negative, default=None)
    list_size: int = static(default=None)
    top: int = static(default=None)
    reference: str = static(default="optimal", choices=("optimal", "attraction"))
    optimal_ranking: Array = derived(ndim=1)  # int32[K]
    base_inversions: Array = derived(ndim=0)  # int32[], |V(R₀)|
    ideal_dcg: Array = derived(ndim=1)  # float[K]

    @property
    def num_items(self) -> int:
        return self.click_model.attraction.shape[-1]

    def _validate(self) -> None:
        require("click_model", self.click_model, "ClickBandit.click_model")
        L = self.num_items
        size = integer("ClickBandit.list_size", L if self.list_size is None else self.list_size, 1, L, " items")
        top = integer("ClickBandit.top", size if self.top is None else self.top, 1, size, " positions of the list")
        object.__setattr__(self, "list_size", size)
        object.__setattr__(self, "top", top)
        for name in ("examination", "termination"):
            positions = by_position(self.click_model, name)
            if positions is not None and positions.shape[-1] < size:
                raise ValueError(
                    f"ClickBandit.list_size must be at most the {positions.shape[-1]} positions of "
                    f"{type(self.click_model).__name__}.{name}; got {size}"
                )
        if self.base_ranking is not None:
            self._validate_base_ranking(self.base_ranking)

    def _validate_base_ranking(self, base: Array) -> None:
        if base.shape[-1] not in (self.list_size, self.num_items):
            raise ValueError(
                f"ClickBandit.base_ranking must rank the {self.list_size} shown or all {self.num_items} items; "
                f"got shape {base.shape}"
            )
        ordered = jnp.sort(base, axis=-1)
        if not ((ordered[..., 1:] != ordered[..., :-1]).all() and (ordered < self.num_items).all()):
            raise ValueError(
                f"ClickBandit.base_ranking must hold distinct items from 0 to {self.num_items - 1}; "
                f"got {base.tolist() if base.ndim == 1 else 'repeated or unknown items in shape ' + str(base.shape)}"
            )

    def _derive(self) -> dict[str, Array]:
        def truth(env: "ClickBandit") -> dict[str, Array]:
            given = jnp.arange(env.num_items, dtype=jnp.int32) if env.base_ranking is None else env.base_ranking
            base = complete(given, env.num_items)
            attraction = env.click_model.attraction
            return {
                "base_ranking": base,
                "optimal_ranking": (
                    env.click_model.optimal_ranking(env.list_size, env.top)
                    if env.reference == "optimal"
                    else top_items(attraction, env.list_size)
                ),
                "base_inversions": inversions(lookup(attraction, base[: env.list_size])),
                "ideal_dcg": dcg(lookup(attraction, top_items(attraction, env.list_size))),
            }

        return over_instances(truth, self)

    def query(self, key: Key, step: Array) -> Query:
        examination = by_position(self.click_model, "examination")
        return Query(
            step=step,
            base_ranking=self.base_ranking,
            optimal_ranking=self.optimal_ranking,
            examination=None if examination is None else examination[: self.list_size],
            num_items=self.num_items,
            list_size=self.list_size,
        )

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        return self.click_model.sample(key, ranking)

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        attraction = lookup(self.click_model.attraction, ranking)
        ndcg = dcg(attraction) / jnp.maximum(self.ideal_dcg, 1e-30)  # if no item is attractive, NDCG is 0
        return {
            "regret": reward_gap(self.click_model, self.optimal_ranking, ranking, self.top),
            "reward": self.click_model.reward(ranking, self.top),
            "violations": violation(attraction, self.base_inversions),
            "misordered": inversions(attraction),
            "ndcg": ndcg[self.top - 1],
            "clicks": jnp.sum(self.click_model.click_probability(ranking)),
            **{f"ndcg@{k + 1}": ndcg[k] for k in range(ranking.shape[0])},
        }

    @property
    def num_queries(self) -> int | None:
        return num_instances(self)
