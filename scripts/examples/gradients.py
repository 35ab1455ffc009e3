"""Differentiate expected clicks: which item is worth more attraction, and which way should the list change?

For one query under each click model: the gradient of the reward of the production list with respect to attraction, a
check of it by finite differences, and gradient ascent on the scores of a soft ranking, Sinkhorn's and NeuralSort's.
NeuralSort may show the best items at several positions: good for soft lists alone. The conclusion says where each ends
at a best list.

    python scripts/examples/gradients.py --items 8 --steps 300
"""

import argparse
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrank as jr


@partial(jax.jit, static_argnames="top")
def reward(attraction, model, ranking, top):
    return dataclasses.replace(model, attraction=attraction).reward(ranking, top)


@partial(jax.jit, static_argnames=("relaxation", "top"))
def ascend(model, relaxation, top, temperatures):
    """The order of the scores in which gradient ascent on expected clicks ends."""
    optimizer = optax.adam(0.03)

    def step(carry, temperature):
        scores, state = carry
        slope = jax.grad(lambda scores: -model.reward(relaxation(scores, temperature), top))(scores)
        updates, state = optimizer.update(slope, state)
        return (optax.apply_updates(scores, updates), state), None

    start = jnp.zeros(model.attraction.shape)
    return jnp.argsort(-jax.lax.scan(step, (start, optimizer.init(start)), temperatures)[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300, help="the number of steps of gradient ascent")
    names = ("CM", "DCM", "PBM", "UBM", "DBN", "CCM")
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="click models")
    options = parser.parse_args()
    L, rng = options.items, np.random.default_rng(0)
    attraction, satisfaction = rng.uniform(0.05, 0.6, L), rng.uniform(0.2, 0.8, L)
    models = {
        "CM": jr.CascadeModel(attraction),
        "DCM": jr.DependentClickModel(attraction, np.linspace(0.8, 0.3, L)),
        "PBM": jr.PositionBasedModel(attraction, 1 / np.arange(1, L + 1)),
        "UBM": jr.UserBrowsingModel(attraction, np.linspace(1, 0.2, L * L).reshape(L, L)),
        "DBN": jr.DynamicBayesianModel(attraction, satisfaction, 0.9),
        "CCM": jr.ClickChainModel(attraction, 0.9, 0.8, 0.4),
    }
    production, top = jnp.arange(L, dtype=jnp.int32), (L + 1) // 2
    print(f"{L} items, production list 0 … {L - 1}, reward of the top {top}")
    differences, found = [], {"Sinkhorn": [], "NeuralSort": []}
    for name in options.models:
        model = models[name]
        value = partial(reward, model=model, ranking=production, top=top)
        slope = np.asarray(jax.grad(value)(model.attraction))
        up, down = (np.array([value(model.attraction + h * e) for e in np.eye(L)]) for h in (1e-2, -1e-2))
        lists = {
            "production": production,
            "Sinkhorn": ascend(model, jr.relax.sinkhorn_sort, top, jnp.geomspace(10.0, 1.0, options.steps)),
            "NeuralSort": ascend(model, jr.relax.neural_sort, top, jnp.geomspace(10.0, 1.0, options.steps)),
            "best": model.optimal_ranking(L, top),
        }
        print(f"{name}: ∂/∂α = {np.array2string(slope, precision=2, suppress_small=True)}")
        differences.append(np.abs(slope - (up - down) / 2e-2).max())
        print(f"  off finite differences by {differences[-1]:.0e} at most; reward of")
        rewards = {what: float(value(model.attraction, ranking=ranking)) for what, ranking in lists.items()}
        print("  " + ", ".join(f"{what} {r:.4f}" for what, r in rewards.items()))
        for what, where in found.items():
            if rewards[what] >= rewards["best"] - 1e-4:
                where.append(name)
    agree = "agree" if max(differences) < 1e-4 else "do not agree"
    print(f"Conclusion: gradients and finite differences {agree}, {max(differences):.0e} apart at most.")
    for what, where in found.items():
        print(f"  Ascent by {what} ends at a best list in {', '.join(where) or 'none'} of {', '.join(options.models)}.")


if __name__ == "__main__":
    main()
