"""Which assumptions of BubbleRank (A1–A5) and BatchRank (1–6) a click model violates, and by how much.

| BubbleRank | BatchRank | for all lists R |
|---|---|---|
| product: eq. 3 | 2 | P(click at position k) = χ(R, k)·α(R(k)), which trust bias, for one, violates |
| A1 | Sec. 2 | the list by attraction R* has the most clicks |
| A2 | 3 | χ(R, k) depends on which items are above k, not on their order |
| A3 | 4 | χ(R, k) does not rise with k |
| A4 | 5 | exchanging R(i) and a more attractive R(j) below it does not raise χ(·, j) |
| A5 | 6 | χ(R, k) ≥ χ(R*, k) |

A4 says "if and only if", which no model with equal examinations meets, the position-based one among them; it is
checked as BatchRank's Assumption 5 is. BatchRank's Assumption 1, that items attract independently, is not checked.
A1 is about clicks, also where a click model's reward is something else, as in the dependent click model.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import integer
from jaxrank.core.pytrees import over_instances
from jaxrank.core.ranking import top_items
from jaxrank.core.types import BY_POSITION, Array, ClickModel, by_position, require

NAMES = ("product", "A1", "A2", "A3", "A4", "A5")  # of BubbleRank; 2 to 6 of BatchRank, but for A1


def assumptions(
    click_model: ClickModel, list_size: int | None = None, *, num_lists: int = 100, seed: int = 0
) -> dict[str, np.ndarray]:
    """The largest violation of each assumption that was found, for each query; about 0 if none.

    It is looked for in random lists, in the click model's optimum, and in the list by attraction with two items
    exchanged: few random lists are better than the latter, which is A1. A violation of A1 is in clicks, those of A2 to
    A5 are in probabilities of examination, and that of the product in probabilities of clicks. That none was found is
    no proof; float32 alone is worth up to 1e-6.

    Args:
      click_model: a click model, or several along a query axis, fitted ones for example.
      list_size: K; all items by default.
      num_lists: how many random lists are looked at.
      seed: of these lists.

    Example:
      >>> import jaxrank as jr
      >>> users = jr.PositionBasedModel(attraction=[0.5, 0.2, 0.1], examination=[0.9, 0.3, 0.6])
      >>> {name: round(float(most), 3) for name, most in jr.click_models.assumptions(users).items()}
      {'product': 0.0, 'A1': 0.03, 'A2': 0.0, 'A3': 0.3, 'A4': 0.0, 'A5': 0.0}
    """
    require("click_model", click_model)
    num_items = click_model.attraction.shape[-1]
    size = integer("list_size", num_items if list_size is None else list_size, 1, num_items, " items")
    for name in BY_POSITION:
        positions = by_position(click_model, name)
        if positions is not None and positions.shape[-1] < size:
            of = f"{positions.shape[-1]} positions of {type(click_model).__name__}.{name}"
            raise ValueError(f"list_size must be at most the {of}; got {size}")
    rng = np.random.default_rng(integer("seed", seed, 0))
    shuffled = rng.permuted(np.tile(np.arange(num_items), (integer("num_lists", num_lists), 1)), axis=1)
    lists = jnp.asarray(shuffled[:, :size], jnp.int32)

    def of_query(model: Any) -> dict[str, Array]:
        return _of_query(model, lists)

    found = over_instances(of_query, click_model)
    return {name: np.asarray(found[name]) for name in NAMES}


def _of_query(model: Any, lists: Array) -> dict[str, Array]:
    K = lists.shape[1]
    best = top_items(model.attraction, K)
    lists = jnp.concatenate([lists, model.optimal_ranking(K)[None], *_exchanges(best)])
    examination = jax.vmap(model.examination_probability)
    chi, alpha = examination(lists), model.attraction[lists]
    clicks = jax.vmap(model.click_probability)(lists)
    best_chi = model.examination_probability(best)
    most = jnp.sum(model.click_probability(best))
    zero = jnp.zeros(())
    found = {"A1": jnp.max(jnp.sum(clicks, axis=1)) - most, "A2": zero, "A4": zero}
    found["product"] = jnp.max(jnp.abs(clicks - chi * alpha))
    found["A3"] = jnp.max(chi[:, 1:] - chi[:, :-1]) if K > 1 else zero
    found["A5"] = jnp.max(best_chi[None, :] - chi)
    for k in range(2, K):
        other_order = jnp.concatenate([lists[:, :k][:, ::-1], lists[:, k:]], axis=1)
        found["A2"] = jnp.maximum(found["A2"], jnp.max(jnp.abs(examination(other_order)[:, k] - chi[:, k])))
    for i, j in itertools.combinations(range(K), 2):
        exchanged = lists.at[:, i].set(lists[:, j]).at[:, j].set(lists[:, i])
        rise = jnp.where(alpha[:, i] <= alpha[:, j], examination(exchanged)[:, j] - chi[:, j], 0)
        found["A4"] = jnp.maximum(found["A4"], jnp.max(rise))
    return {name: jnp.maximum(found[name], 0) for name in NAMES}


def _exchanges(ranking: Array) -> list[Array]:
    """int32[1, K] each: the list with two of its items exchanged."""
    pairs = itertools.combinations(range(ranking.shape[0]), 2)
    return [ranking.at[i].set(ranking[j]).at[j].set(ranking[i])[None] for i, j in pairs]
