"""The operations of core do the same compiled, uncompiled and mapped over lanes (chex's variants)."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core import metrics, numerics, ranking

RNG = np.random.default_rng(0)
LANES, L, K = 5, 7, 4
LISTS = np.stack([RNG.permutation(L)[:K] for _ in range(LANES)]).astype(np.int32)
SCORES = RNG.random((LANES, L)).astype(np.float32)
FLAGS = RNG.random((LANES, K)) < 0.4
OPERATIONS = {  # one lane's function, and the arguments of all lanes
    "lookup": (ranking.lookup, SCORES, LISTS),
    "top_items": (lambda scores: ranking.top_items(scores, K), SCORES),
    "by_item": (lambda items, values: ranking.by_item(items, values, L), LISTS, FLAGS.astype(np.int32)),
    "complete": (lambda items: ranking.complete(items, L), LISTS),
    "inversions": (ranking.inversions, SCORES),
    "best_documents": (lambda scores: ranking.best_documents(scores, scores > 0.2, K), SCORES),
    "product_above": (numerics.product_above, SCORES),
    "any_above": (numerics.any_above, FLAGS),
    "ordered_sum": (numerics.ordered_sum, SCORES),
    "kl_upper": (lambda p: numerics.kl_upper(p, jnp.full_like(p, 0.3)), SCORES),
    "kl_lower": (lambda p: numerics.kl_lower(p, jnp.full_like(p, 0.3)), SCORES),
    "dcg": (metrics.dcg, SCORES),
    "ndcg": (metrics.ndcg, LISTS, SCORES),
}


class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)
    def test_every_operation_mapped_over_lanes_is_a_loop_over_them(self):
        for name, (function, *arguments) in OPERATIONS.items():
            mapped = self.variant(jax.vmap(function))(*arguments)
            looped = np.stack([np.asarray(function(*map(jnp.asarray, lane))) for lane in zip(*arguments, strict=True)])
            chex.assert_shape(mapped, looped.shape)
            chex.assert_trees_all_close(np.asarray(mapped), looped, rtol=1e-6, atol=1e-6, custom_message=name)
