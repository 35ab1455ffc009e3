"""Learn a ranker from clicks with position bias, and recover the one that labels would have given.

A production ranker, trained on very few of the queries, shows lists to users who look at position k with probability
(1/k)^η. The naive learner takes click rates for relevance; inverse propensity weighting (IPW) divides every click by
the probability that its position was looked at, known or fitted to the same log. All train the same ranker by the same
loss, on independent logs, and are compared on held-out queries.

The bias is in the log only as far as the production ranker prefers some documents: with --sharpness 0 it shows them in
random order, every document is at every position equally often, and click rates are as good as IPW.

    python scripts/examples/unbiased.py --data MSLR-WEB --sessions 2000000 --seeds 3
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from jaxrank.core.metrics import ndcg, relevance_gain
from jaxrank.core.ranking import best_documents
from jaxrank.learning.counterfactual import fit_examination, log_clicks, relevance


@jax.jit
def ndcg_by_query(queries, params):
    """float[seeds, queries]: NDCG@10 of linear rankers; NaN for a query without a relevant document."""
    gains = relevance_gain(queries.grades)
    K = min(10, queries.max_documents)

    def one(theta, index):
        (features, where), rows = queries.documents(index), queries.rows(index)[0]
        value = ndcg(best_documents(features @ theta, where, K), gains[rows], where)
        return jnp.where(jnp.any(where & (gains[rows] > 0)), value, jnp.nan)

    return jax.vmap(lambda theta: jax.lax.map(partial(one, theta), jnp.arange(queries.num_queries)))(params)


def mean_and_interval(values: np.ndarray) -> tuple[float, float]:
    """The mean over queries, and half of its 95 % interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(values.size))


def verdict(what: str, gain: np.ndarray, than: str) -> str:
    """Better, worse or not apart, as the 95 % interval of the paired gain says."""
    mean, half = mean_and_interval(gain)
    found = "not apart from" if abs(mean) <= half else "better than" if mean > 0 else "worse than"
    return f"{what} is {found} {than}: {mean:+.4f} ± {half:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of a LETOR dataset; synthetic queries without it")
    parser.add_argument(
        "--queries", type=int, default=600, help="synthetic queries to train on; two thirds as many are held out"
    )
    parser.add_argument("--world", type=int, default=0, help="the seed of the synthetic queries")
    parser.add_argument("--sessions", type=int, default=300_000, help="the number of sessions of every log")
    parser.add_argument("--seeds", type=int, default=3, help="independent logs and rankers")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--bias", type=float, default=1.0, help="η, the strength of the position bias")
    parser.add_argument("--noise", type=float, default=0.1, help="P(click) of an irrelevant document that is looked at")
    parser.add_argument("--sharpness", type=float, default=1.0, help="standard deviation of the production scores")
    options = parser.parse_args()
    data = (
        jr.datasets.letor(options.data)
        if options.data
        else jr.datasets.synthetic_letor(options.queries, seed=options.world)
    )
    train, K = data.train, data.train.max_documents

    gains = relevance_gain(train.grades) / relevance_gain(train.grades).max()
    attraction = options.noise + (1 - options.noise) * gains
    examination = (1 / jnp.arange(1.0, K + 1)) ** options.bias
    model = jr.PositionBasedModel(jnp.zeros(K), examination)  # a query's attraction is filled in
    few = train.take(range(max(2, train.num_queries // 20)))
    start = jr.offline_ranknet(few, num_epochs=20)  # better than chance, and far from good
    scores = train.features @ start
    scores *= options.sharpness / jnp.std(scores)
    logs = [
        log_clicks(key, train, model, attraction, scores, num_sessions=options.sessions, list_size=K)
        for key in jax.random.split(jax.random.key(1), options.seeds)
    ]
    fitted = [fit_examination(log) for log in logs]
    of_clicks = partial(relevance, noise=options.noise)
    labels = {
        "labels": [gains for _ in logs],
        "naive": [relevance(log) for log in logs],
        "IPW, χ known": [of_clicks(log, examination) for log in logs],
        "IPW, χ fitted": [of_clicks(log, chi) for log, chi in zip(logs, fitted, strict=True)],
    }

    clicks = np.mean([np.asarray(log.clicked).sum() for log in logs])
    print(f"{train.num_queries} queries, {len(gains)} documents, {options.sessions:,} sessions, {clicks:,.0f} clicks")
    print(f"χ_10 = {examination[9]:.4f}, fitted {np.mean([chi[9] for chi in fitted]):.4f}")
    held_out = [split for split in (data.validation, data.test) if split is not None]
    by_query: dict[str, np.ndarray] = {}  # on held-out queries, the mean over seeds
    for name, relevances in labels.items():
        params = jr.train(train, labels=jnp.stack(relevances), num_epochs=options.epochs, num_seeds=options.seeds)
        by_query[name] = np.concatenate([ndcg_by_query(split, params).mean(axis=0) for split in held_out])
    by_query["production"] = np.concatenate([ndcg_by_query(split, start[None])[0] for split in held_out])
    relevant = np.isfinite(by_query["labels"])
    by_query = {name: values[relevant] for name, values in by_query.items()}

    print(f"NDCG@10 on {relevant.sum()} held-out queries, means of {options.seeds} seeds, 95 % intervals over queries:")
    for name, values in by_query.items():
        cells = [values] + [values - by_query["labels"]] * (name != "labels")
        print(
            f"{name:14}"
            + "".join("{:>10.4f} ± {:.4f}".format(*mean_and_interval(cell)) for cell in cells)
            + "  (minus labels)" * (name != "labels")
        )
    print("Conclusion, paired by query:")
    for name in ("IPW, χ known", "IPW, χ fitted"):
        print("  " + verdict(name, by_query[name] - by_query["naive"], "naive"))
    for name in ("naive", "IPW, χ fitted"):
        print("  " + verdict(name, by_query[name] - by_query["labels"], "labels"))


if __name__ == "__main__":
    main()
