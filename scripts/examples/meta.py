"""Meta-learn exploration: tune what a policy starts with in some worlds, and measure the gain in others.

1. The learning rate of PDGD, 0.1 in its paper. PDGD samples its lists from its scores, so the rate also sets how fast
   it stops exploring. Tuned by evolution over simulations side by side on training queries, tested on held-out queries.
2. The initial list of BubbleRank, the production ranker's in its paper. Learnt by the gradient of the expected clicks
   of some users with respect to the scores of a soft ranking, tested on other users.

    python scripts/examples/meta.py --data MSLR-WEB --ratings ml-latest-small --steps 1000 --seeds 40 --users 40
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrank as jr
from jaxrank.core.pytrees import over_instances, take_instances


def report(what: str, default: np.ndarray, tuned: np.ndarray, over: str) -> None:
    """Two ways to start, under the same random numbers: the paired gain."""
    gain = tuned - default
    error = 1.96 * gain.std(ddof=1) / np.sqrt(gain.size)
    print(f"{what}: {default.mean():.1f} → {tuned.mean():.1f}, held out")
    print(f"  gain {gain.mean():.1f} ± {error:.1f} (95 %, paired over {gain.size} {over})")
    found = "makes no difference that shows" if abs(gain.mean()) <= error else "helps" if gain.mean() > 0 else "hurts"
    print(f"  conclusion: tuning {found} on what was held out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of a LETOR dataset; synthetic queries without it")
    parser.add_argument("--ratings", help="the folder of a MovieLens dataset; synthetic ratings without it")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--generations", type=int, default=5)
    parser.add_argument("--users", type=int, default=20, help="users to learn the list from, and to test it on")
    parser.add_argument("--items", type=int, default=50, help="items that are ranked")
    options = parser.parse_args()
    run = {"num_steps": options.steps, "num_seeds": options.seeds, "progress": False}

    data = jr.datasets.letor(options.data) if options.data else jr.datasets.synthetic_letor(60)
    some, others = (
        jr.QueryStream(queries, jr.click_models.graded_user("navigational")) for queries in (data.train, data.test)
    )
    search = {"metric": "ndcg", "maximize": True, "num_generations": options.generations, "population": 8}
    found = jr.tune(jr.PDGD(), some, names=("learning_rate",), **search, **run)
    print("learning rate by generation: " + ", ".join(f"{g['learning_rate']:.3g}" for g in found.history))
    both = {"default": jr.PDGD(), "tuned": found.policy}
    ndcg = jr.compare(both, others, metrics=("ndcg",), seed=1, num_records=1, **run)["ndcg"].values[..., -1]
    report(f"PDGD, sum of NDCG@10 in {options.steps} steps", *ndcg, over="seeds")

    raters = 4 * options.users  # half of them make the world, the others click
    if options.ratings:
        ratings = jr.datasets.movielens(options.ratings, raters, options.items)
    else:
        ratings = jr.datasets.synthetic_ratings(raters, options.items)
    users = jr.datasets.topic_bandit(ratings, num_features=5, list_size=5)

    def by_itself(user: jr.TopicBandit) -> jax.Array:
        return jax.vmap(lambda item: user.attraction(item[None])[0])(jnp.arange(options.items))

    models = jr.PositionBasedModel(over_instances(by_itself, users), 1 / jnp.arange(1.0, 6))
    some, others = (take_instances(models, slice(start, None, 2)) for start in (0, 1))

    def no_clicks(scores: jax.Array) -> jax.Array:
        ranking = jr.relax.sinkhorn_sort(scores, temperature=10.0, list_size=5)
        return -jnp.mean(over_instances(lambda model: model.reward(ranking), some))

    optimizer = optax.adam(0.03)

    def step(carry, _):
        scores, state = carry
        updates, state = optimizer.update(jax.grad(no_clicks)(scores), state)
        return (optax.apply_updates(scores, updates), state), None

    scores = jnp.zeros(options.items)
    scores = jax.lax.scan(step, (scores, optimizer.init(scores)), length=500)[0][0]
    clicks = [
        jr.simulate(jr.BubbleRank(), jr.ClickBandit(others, base, list_size=5), metrics=("reward",), seed=1, **run)
        for base in (None, jnp.argsort(-scores))
    ]
    by_user = (result["reward"].isel(step=-1).mean("seed").values for result in clicks)
    report(f"BubbleRank, most rated items → learnt list, clicks in {options.steps} steps", *by_user, over="users")


if __name__ == "__main__":
    main()
