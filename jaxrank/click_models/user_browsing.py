"""The user browsing model (UBM): examination depends on the last click above (Dupret and Piwowarski, SIGIR 2008)."""

import itertools
import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.click_models._chain import from_below
from jaxrank.click_models._one_query import click_model
from jaxrank.core.checks import probability
from jaxrank.core.numerics import exclusive, ordered_sum, safe_log
from jaxrank.core.pytrees import array
from jaxrank.core.ranking import lookup, top_items
from jaxrank.core.types import Array, Key

_MOST_LISTS = 30_240  # the number of lists of 5 of 10 items, as in the papers
_LISTS_AT_ONCE = 5_040


@lru_cache(maxsize=8)
def _ordered_lists(num_items: int, top: int) -> np.ndarray:
    """int32[lists, top]: all lists of ``top`` different items, in lexicographic order."""
    return np.array(list(itertools.permutations(range(num_items), top)), np.int32)


@click_model
class UserBrowsingModel:
    """Position k is examined with probability γ[k, r], where r is the position of the last click above k.

    An examined item i is clicked with probability α_i. The reward is the expected number of clicks, Σ P(click at k).

    Args:
      attraction: α [L], or [queries, L].
      examination_after: γ [K, K], or [queries, K, K]. Row k is the position. Column r < k is the position of the last
        click above it. The LAST column, K − 1, means that there is no click above (the last position is never above
        another). The entries in between, k ≤ r < K − 1, are never read.
    """

    attraction: Array = array(ndim=1, check=probability)
    examination_after: Array = array(ndim=2, check=probability)

    def _validate(self) -> None:
        shape = self.examination_after.shape
        if shape[-1] != shape[-2]:
            raise ValueError(
                "UserBrowsingModel.examination_after must have a row and a column for every position; "
                f"got shape {shape}"
            )

    def _positions(self, num: int) -> Array:
        """int32[num]: 0, 1, …, num − 1; an error if the model has fewer positions."""
        known = self.examination_after.shape[-1]
        if num > known:
            raise ValueError(f"UserBrowsingModel.examination_after has {known} positions; got a list of {num}")
        return jnp.arange(num, dtype=jnp.int32)

    def _click_after(self, ranking: Array) -> Array:
        """float[num, K]: γ[k, r]·α(R_k)."""
        return self.examination_after[: ranking.shape[0]] * lookup(self.attraction, ranking)[:, None]

    def sample(self, key: Key, ranking: Array) -> Array:
        """One uniform u for each position: a click if u < γ[k, r]·α(R_k)."""
        positions = self._positions(ranking.shape[0])
        would_click = jax.random.uniform(key, ranking.shape)[:, None] < self._click_after(ranking)
        columns = jnp.arange(would_click.shape[1])

        def step(last: Array, here: tuple[Array, Array]) -> tuple[Array, Array]:
            position, would_click = here
            clicked = jnp.any(would_click & (columns == last))
            return jnp.where(clicked, position, last), clicked

        return jax.lax.scan(step, columns[-1], (positions, would_click))[1]

    def _quiet(self, ranking: Array) -> Array:
        """float[num, K]: P(no click between r and k), 0 where r is not above k."""
        columns = jnp.arange(self.examination_after.shape[-1])[None, :]
        above = (columns < self._positions(ranking.shape[0])[:, None]) | (columns == columns[:, -1:])
        quiet = jnp.cumprod(jnp.where(above, 1 - self._click_after(ranking), 1), axis=0)
        return jnp.where(above, jnp.pad(quiet[:-1], ((1, 0), (0, 0)), constant_values=1), 0)

    def _last_click(self, ranking: Array) -> Array:
        """float[num, K]: P(r is the last click above k).

        From the top, by P(click at k) = Σ_r P(click at r)·P(k is the next click after r).
        """
        quiet = self._quiet(ranking)
        is_next = quiet * self._click_after(ranking)
        click = is_next[:, -1]
        for k in range(ranking.shape[0] - 1):
            click = click + is_next[:, k] * click[k]
        clicked = jnp.pad(click, (0, quiet.shape[1] - click.shape[0]))
        return quiet * clicked.at[-1].set(1)[None, :]  # at the top it is certain that no click is above

    def _click_worth(self, ranking: Array) -> Array:
        """float[num]: 1 for a click at k plus the expected clicks below it, 1 + Σ_j P(j is next after k)·worth_j."""
        num = ranking.shape[0]
        is_next = self._quiet(ranking) * self._click_after(ranking)
        worth = jnp.ones(num, is_next.dtype)
        for k in reversed(range(1, num)):
            worth = worth + jnp.where(jnp.arange(num) < k, is_next[k, :num] * worth[k], 0)
        return worth

    def click_probability(self, ranking: Array) -> Array:
        return self.examination_probability(ranking) * lookup(self.attraction, ranking)

    def examination_probability(self, ranking: Array) -> Array:
        return ordered_sum((self._last_click(ranking) * self.examination_after[: ranking.shape[0]]).T)

    def reward(self, ranking: Array, top: int | None = None) -> Array:
        """The expected number of clicks."""
        return ordered_sum(self.click_probability(ranking[:top]))

    def reward_gap(self, better: Array, worse: Array, top: int | None = None) -> Array:
        """reward(better) − reward(worse), to full precision.

        Σ_{k,r} P(r is the last click above k in better)·γ[k, r]·Δα_k·(worth_k − V[k+1, r]), where V[k, r] is the
        expected number of clicks in ``worse`` from position k down, with the last click above at r. Each term is the
        better list's gain from its item at k alone, and exactly 0 where both lists have the same item.
        """
        better, worse = better[:top], worse[:top]
        worth, click_after = self._click_worth(worse)[:, None], self._click_after(worse)
        advantage = worth - from_below(click_after * worth, 1 - click_after, end=0)
        examined = self._last_click(better) * self.examination_after[: better.shape[0]]
        gap = lookup(self.attraction, better) - lookup(self.attraction, worse)
        return ordered_sum(gap * ordered_sum((examined * advantage).T))

    def optimal_ranking(self, list_size: int, top: int | None = None) -> Array:
        """The best list of ``top`` items, then the rest, α descending.

        If there are at most 30,240 ordered lists (the top 5 of 10 items, or 7 of 7), all are tried, and the result is
        exact. Otherwise the list starts as α descending, and the best exchange of two items is made until no exchange
        improves it. (Of the 60 Yandex queries, with top 5 of 10, α descending is best for 8; exchanging found the
        optimum of all 60.)
        """
        top = list_size if top is None else min(top, list_size)
        self._positions(list_size)
        num_items = self.attraction.shape[0]
        if math.perm(num_items, top) <= _MOST_LISTS:
            lists = jnp.asarray(_ordered_lists(num_items, top))
            best = lists[jnp.argmax(self._rewards(lists))]
        else:
            best = self._exchanged(top_items(self.attraction, num_items), top)[:top]
        shown = jnp.any(best[:, None] == jnp.arange(num_items)[None, :], axis=0)
        rest = top_items(jnp.where(shown, -1, self.attraction), list_size - top)
        return jnp.concatenate([best, rest])

    def _rewards(self, lists: Array) -> Array:
        return jax.lax.map(self.reward, lists, batch_size=_LISTS_AT_ONCE)

    def _exchanged(self, items: Array, top: int) -> Array:
        """int32[L]: ``items`` after exchanges of one of the first ``top`` with one below it, each time the best one."""
        upper, lower = (jnp.asarray(places) for places in np.triu_indices(top, 1, items.shape[0]))

        def exchange(upper: Array, lower: Array, items: Array) -> Array:
            return items.at[upper].set(items[lower]).at[lower].set(items[upper])

        def improve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            items, reward, _ = state
            lists = jax.vmap(lambda i, j: exchange(i, j, items)[:top])(upper, lower)
            rewards = self._rewards(lists)
            best = jnp.argmax(rewards)
            better = rewards[best] > reward
            return jnp.where(better, exchange(upper[best], lower[best], items), items), rewards[best], better

        start = (items, self.reward(items[:top]), jnp.bool_(True))
        return jax.lax.while_loop(lambda state: state[2], improve, start)[0]

    def log_likelihood(self, ranking: Array, clicks: Array) -> Array:
        """The sum over positions of log γ·α, if clicked, or log (1 − γ·α), given the clicks above."""
        positions = self._positions(ranking.shape[0])
        no_click = self.examination_after.shape[-1] - 1
        above = exclusive(jax.lax.cummax(jnp.where(clicks, positions, -1)), -1)
        last = jnp.where(above < 0, no_click, above)
        p = jnp.take_along_axis(self._click_after(ranking), last[:, None], axis=1)[:, 0]
        return jnp.sum(jnp.where(clicks, safe_log(p), safe_log(1 - p)))
