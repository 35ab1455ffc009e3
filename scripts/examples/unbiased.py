"""Learn a ranker from clicks with position bias, and recover the one that labels would have given.

A production ranker, trained on very few of the queries, shows lists to users who look at position k with probability
(1/k)^η. The naive learner takes click rates for relevance; inverse propensity weighting (IPW) divides every click by
the probability that its position was looked at, known or fitted to the same log. All train the same ranker by the same
loss.

    python scripts/examples/unbiased.py --data MSLR-WEB --sessions 2000000 --seeds 3
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from jaxrank.core.metrics import relevance_gain
from jaxrank.learning.counterfactual import fit_examination, log_clicks, relevance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of a LETOR dataset; synthetic queries without it")
    parser.add_argument("--sessions", type=int, default=100_000, help="the number of sessions of every log")
    parser.add_argument("--seeds", type=int, default=4, help="independent logs and rankers, at least 2")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--bias", type=float, default=1.0, help="η, the strength of the position bias")
    parser.add_argument("--noise", type=float, default=0.1, help="P(click) of an irrelevant document that is looked at")
    options = parser.parse_args()
    data = jr.datasets.letor(options.data) if options.data else jr.datasets.synthetic_letor(60)
    train, K = data.train, data.train.max_documents

    gains = relevance_gain(train.grades) / relevance_gain(train.grades).max()
    attraction = options.noise + (1 - options.noise) * gains
    examination = (1 / jnp.arange(1.0, K + 1)) ** options.bias
    model = jr.PositionBasedModel(jnp.zeros(K), examination)  # a query's attraction is filled in
    few = train.take(range(max(2, train.num_queries // 20)))
    start = jr.offline_ranknet(few, num_epochs=20)  # better than chance, and far from good
    scores = train.features @ start
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
    print(f"{'NDCG@10':14} {'train':>16} {'test':>16} {'train − labels':>17} {'test − labels':>17}")
    splits = [jr.probes.OfflineNDCG(queries) for queries in (train, data.test)]
    rows: dict[str, np.ndarray] = {}
    for name, relevances in labels.items():
        params = jr.train(train, labels=jnp.stack(relevances), num_epochs=options.epochs, num_seeds=options.seeds)
        rows[name] = np.array([[split(jr.FixedRanker(theta), (), None) for theta in params] for split in splits])
        both = np.concatenate([rows[name], rows[name] - rows["labels"]])
        cells = [f"{row.mean():.4f} ± {row.std(ddof=1) / np.sqrt(row.size):.4f}" for row in both]
        print(f"{name:14} {cells[0]:>16} {cells[1]:>16} {cells[2]:>17} {cells[3]:>17}")
    production = [float(split(jr.FixedRanker(start), (), None)) for split in splits]
    print(f"{'production':14} {production[0]:16.4f} {production[1]:16.4f}")


if __name__ == "__main__":
    main()
