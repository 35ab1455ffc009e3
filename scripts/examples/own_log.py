"""From a log to a decision: fit a click model, evaluate candidate rankers, learn a better one, simulate it online.

A log is a table of sessions with what was shown, what was clicked and how probable the logging ranker was to show the
first k documents (``jr.datasets.load_sessions``); a second table has the features of the documents. Without them, both
are generated, and then the truth is known and printed beside the estimates.

The log is split at random. One half chooses a click model and teaches the rankers; the other half, which none of them
has seen, evaluates them off-policy: the expected clicks of a list, had it been shown by them. Candidates are the
columns of the feature table given by --candidates, and the ranker that is learnt. Last, the click model simulates what
follows if the learnt list is deployed, alone or as the start of a bandit.

    python scripts/examples/own_log.py --log log.tsv --features features.tsv --candidates bm25 freshness
"""

import argparse
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrank as jr

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FEATURES = ("bm25", "freshness", "length", "popularity")
WEIGHTS = np.array([1.2, 0.5, -0.3, 0.9])


def generate(folder, num_sessions, num_queries=12, num_items=7, list_size=4, seed=0):
    """Writes log.tsv and features.tsv; returns the users' true click model, items in the order of ``documents``."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_queries, num_items, len(FEATURES)))
    attraction = 1 / (1 + np.exp(1.0 - features @ WEIGHTS))
    truth = jr.DynamicBayesianModel(attraction, rng.uniform(0.2, 0.6, attraction.shape), 0.85)
    production = jr.off_policy.PlackettLuce(0.8 * features[..., 1], list_size)  # freshness, with some randomness
    log = jr.off_policy.simulate_log(
        jax.random.key(seed), truth, production, num_sessions=num_sessions, with_placed=False
    )
    documents = np.arange(num_queries * num_items).reshape(num_queries, num_items) + 1000
    lines = ["query_region\tdocs\tclicked_docs\tprefix"]
    for query, ranking, clicks, prefix in zip(
        *map(np.asarray, (log.query, log.rankings, log.clicks, log.prefix)), strict=True
    ):
        ids = documents[query][ranking]
        cells = (",".join(map(str, values)) for values in (ids, ids[clicks], prefix))
        lines.append(f"q{query}\t" + "\t".join(cells))
    (folder / "log.tsv").write_text("\n".join(lines) + "\n")
    rows = ["query_region\tdoc\t" + "\t".join(FEATURES)]
    for query, item in np.ndindex(documents.shape):
        rows.append(f"q{query}\t{documents[query, item]}\t" + "\t".join(f"{x:.6g}" for x in features[query, item]))
    (folder / "features.tsv").write_text("\n".join(rows) + "\n")
    return truth, {f"q{query}": documents[query] for query in range(num_queries)}


def in_order_of(log, truth, documents):
    """The true click model with the queries and items in the log's order."""
    queries = [list(documents).index(name) for name in log.queries]
    items = [[documents[name].tolist().index(d) for d in query.documents] for name, query in log.queries.items()]
    rows, columns = np.array(queries)[:, None], np.array(items)
    return jr.DynamicBayesianModel(truth.attraction[rows, columns], truth.satisfaction[rows, columns], 0.85)


def choose_model(log, names):
    """The click model that predicts held-out sessions best, fitted to the training half, and the table."""
    train, test = log.stacked("train"), log.stacked("test")
    models, likelihood = {}, {}
    for name in names:
        models[name] = jr.click_models.fit(
            name, train.rankings, train.clicks, log.num_items, queries=train.queries,
            num_queries=len(log.queries), progress=False,
        )  # fmt: skip
        found = jr.click_models.evaluate(models[name], test.rankings, test.clicks, queries=test.queries)
        likelihood[name] = found.log_likelihood
        print(f"  {name:6} log-likelihood {found.log_likelihood:.4f}, perplexity {found.perplexity:.4f}")
    best = max(likelihood, key=likelihood.get)
    return best, models[best]


def learn(queries, sessions):
    """A linear ranker by doubly robust labels: a regression on features, and the clicks beyond what it predicts."""
    counts = jr.counterfactual.count_sessions(queries, sessions.queries, sessions.rankings, sessions.clicks)
    regression = jr.unbiased.regression_em(jax.random.key(0), queries, counts)
    owner = np.repeat(np.arange(queries.num_queries), np.diff(np.asarray(queries.starts)))
    of_document = np.bincount(sessions.queries, minlength=queries.num_queries)[owner]
    sessions_of = jnp.asarray(of_document, float)
    labels = jr.unbiased.doubly_robust_relevance(counts, regression.bias, regression.relevance, sessions_of)
    return jr.train(queries, labels=labels, num_epochs=100)


def lists_of(queries, scores, list_size):
    """Plackett–Luce lists of the scores [documents], scaled to a standard deviation of 2: nearly sorted."""
    table = jax.vmap(lambda index: jnp.where(queries.rows(index)[1], scores[queries.rows(index)[0]], -jnp.inf))(
        jnp.arange(queries.num_queries)
    )
    scaled = 2 * (table - jnp.mean(scores)) / jnp.maximum(jnp.std(scores), 1e-9)
    return jr.off_policy.PlackettLuce(jnp.maximum(scaled, -1e4), list_size)


def paired_difference(log, one, other, model):
    """The difference of two values on the same sessions, and the ends of its 95 % interval."""
    parts = [jr.off_policy.estimate_value(log, t, "cascade_dr", click_model=model)[1] for t in (one, other)]
    difference = np.asarray(parts[0] - parts[1], np.float64)
    half = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    return difference.mean(), difference.mean() - half, difference.mean() + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="a table of sessions with the column prefix; generated without it")
    parser.add_argument("--features", type=Path, help="a table of the documents' features")
    parser.add_argument("--candidates", nargs=2, default=["bm25", "freshness"], help="two columns of that table")
    parser.add_argument("--models", nargs="+", default=["pbm", "dcm", "sdbn", "dbn"], help="click models to fit")
    parser.add_argument("--sessions", type=int, default=20_000, help="generated sessions")
    parser.add_argument("--steps", type=int, default=20_000, help="simulated sessions of every query, online")
    parser.add_argument("--out", type=Path, default=Path("own_log.png"), help="the picture")
    options = parser.parse_args()

    truth = None
    with tempfile.TemporaryDirectory() as folder:
        if options.log is None:
            truth, documents = generate(Path(folder), options.sessions)
            options.log, options.features = Path(folder) / "log.tsv", Path(folder) / "features.tsv"
        try:
            log = jr.datasets.load_sessions(options.log).validation(0.5)
            queries = jr.datasets.load_features(options.features, log)
        except ValueError as error:
            raise SystemExit(f"own_log.py: error: {error}") from None
        columns = options.features.read_text().split("\n", 1)[0].split("\t")[2:]
    train, test = log.stacked("train"), log.stacked("test")
    K = train.rankings.shape[1]
    print(
        f"{len(train.queries):,} sessions to learn from and {len(test.queries):,} to evaluate on, of "
        f"{len(log.queries)} queries"
    )

    print("Click models on the sessions held out:")
    name, model = choose_model(log, options.models)

    scores = {column: queries.features[:, columns.index(column)] for column in options.candidates}
    scores["learnt"] = queries.features @ learn(queries, train)
    targets = {label: lists_of(queries, values, K) for label, values in scores.items()}
    held_out = jr.off_policy.Log(test.rankings, test.clicks, test.queries, prefix=test.prefix)
    print(f"Expected clicks of a list, evaluated off-policy by cascade DR with {name}:")
    values = {
        "the log": (
            float(test.clicks.sum(axis=1).mean()),
            1.96 * test.clicks.sum(axis=1).std() / np.sqrt(len(test.clicks)),
        )
    }
    print(f"  {'the log':10} {values['the log'][0]:.4f} ± {values['the log'][1]:.4f}")
    for label, target in targets.items():
        found = jr.evaluate(held_out, target, "cascade_dr", click_model=model)
        values[label] = (found.value, found.high - found.value)
        known = (
            ""
            if truth is None
            else (f", in truth {float(jr.off_policy.expected_clicks(in_order_of(log, truth, documents), target)):.4f}")
        )
        print(
            f"  {label:10} {found.value:.4f} ± {values[label][1]:.4f}, effective sample size "
            f"{found.effective_sample_size:,.0f}{known}"
        )

    rivals = sorted(options.candidates, key=lambda label: -values[label][0])
    gap, low, high = paired_difference(held_out, targets["learnt"], targets[rivals[0]], model)

    orders = {label: np.asarray(jnp.argsort(-target.scores, axis=-1)) for label, target in targets.items()}
    bandits = {label: jr.ClickBandit(model, order, list_size=K) for label, order in orders.items()}
    runs = {f"{label}, fixed": (jr.StaticRanking(), bandit) for label, bandit in bandits.items()}
    runs["learnt, then TopRank"] = (jr.TopRank(), bandits["learnt"])
    regret = {
        label: jr.simulate(policy, bandit, options.steps, num_seeds=2, num_records=30, progress=False)["regret"]
        for label, (policy, bandit) in runs.items()
    }
    last = {label: float(curve.isel(step=-1).mean()) for label, curve in regret.items()}
    print(f"Regret of {options.steps:,} sessions of a query, simulated by {name}:")
    for label, value in last.items():
        print(f"  {label:22} {value:,.1f}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.errorbar(
        list(values), [v for v, _ in values.values()], yerr=[h for _, h in values.values()], fmt="o", capsize=4
    )
    left.set(ylabel="Expected clicks of a list", title="Off-policy, held-out sessions")
    for label, curve in regret.items():
        right.plot(curve["step"], curve.mean(("query", "seed")), label=label)
    right.set(xlabel="Step", ylabel="Regret", title=f"Online, simulated by {name}")
    right.legend()
    figure.savefig(options.out)
    print(f"wrote {options.out}")

    print("Conclusion:")
    found = "not distinguishable from" if low <= 0 <= high else "better than" if gap > 0 else "worse than"
    print(
        f"  the learnt ranker is {found} {rivals[0]}, the better candidate: {gap:+.4f} clicks [{low:+.4f}, {high:+.4f}]"
    )
    fixed = min((label for label in last if label.endswith("fixed")), key=last.get)
    more = "less" if last["learnt, then TopRank"] < last[fixed] else "no less"
    print(
        f"  of the fixed lists, {fixed.split(',')[0]} has the least regret; learning on from the learnt one has {more}"
    )


if __name__ == "__main__":
    main()
