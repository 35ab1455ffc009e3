"""Speed of PairRank and PDGD on a LETOR dataset against plain NumPy and SciPy, in one run.

    python benchmarks/pairwise.py FOLDER [STEPS [SEEDS]]

The plain versions run one seed, one step after the other: PairRank with all widths by one product of matrices, M⁻¹ by
rank-one updates and eq. 1 minimised by SciPy's L-BFGS-B over all pairs, from the last θ̂; PDGD with the weights of all
pairs by NumPy. Prints lane-steps per second of both, their ratio, and the peak memory of the process.
"""

import resource
import sys
import time

import numpy as np
from scipy.optimize import minimize

import jaxrank as jr


def eq1(theta, pairs, lam):
    z = pairs @ theta
    return np.logaddexp(0, -z).sum() + lam / 2 * theta @ theta, lam * theta - (1 / (1 + np.exp(z))) @ pairs


class PairRank:
    def __init__(self, d, rng, lam=0.1, alpha=0.1):
        self.rng, self.lam, self.alpha = rng, lam, alpha
        self.theta, self.inverse, self.pairs = np.zeros(d), np.eye(d) / lam, []

    def rank(self, X, K):
        s, g = X @ self.theta, X @ self.inverse @ X.T
        diagonal = np.diag(g)
        width = np.sqrt(np.maximum(diagonal[:, None] + diagonal[None, :] - 2 * g, 0))
        certain = np.tanh((s[:, None] - s[None, :]) / 2) / 2 - self.alpha * width > 0
        waiting, left, ranking = certain.sum(axis=0), np.ones(len(X), bool), []
        for _ in range(min(K, len(X))):
            chosen = self.rng.choice(np.flatnonzero(left & (waiting == 0)))
            ranking.append(chosen)
            left[chosen] = False
            waiting -= certain[chosen]
        return np.array(ranking)

    def update(self, X, ranking, clicks):
        if not clicks.any():
            return
        end = min(np.flatnonzero(clicks)[-1] + 2, len(ranking))
        new = [(k, k + 1) if clicks[k] else (k + 1, k) for k in range(0, end - 1, 2) if clicks[k] != clicks[k + 1]]
        for k, m in new:
            x = X[ranking[k]] - X[ranking[m]]
            self.pairs.append(x)
            v = self.inverse @ x
            self.inverse -= np.outer(v, v) / (1 + x @ v)
        if new:
            self.theta = minimize(eq1, self.theta, (np.array(self.pairs), self.lam), "L-BFGS-B", jac=True).x


class PDGD:
    def __init__(self, d, rng, learning_rate=0.1):
        self.rng, self.learning_rate, self.theta = rng, learning_rate, np.zeros(d)

    def rank(self, X, K):
        return np.argsort(-(X @ self.theta + self.rng.gumbel(size=len(X))))[:K]

    def update(self, X, ranking, clicks):
        if not clicks.any():
            return
        end = min(np.flatnonzero(clicks)[-1] + 2, len(ranking))
        up, down = np.flatnonzero(clicks[:end]), np.flatnonzero(~clicks[:end])
        s = X @ self.theta
        worth = np.exp(s - s.max())
        placed = worth[ranking]
        remaining = worth.sum() - np.concatenate([[0], np.cumsum(placed)[:-1]])
        weights = np.zeros(len(ranking))
        for k in up:
            for m in down:
                a, b = min(k, m), max(k, m)
                between = remaining[a + 1 : b + 1]
                odds = np.prod(between / (between + placed[a] - placed[b]))
                w = odds / (1 + odds) * placed[k] * placed[m] / (placed[k] + placed[m]) ** 2
                weights[k] += w
                weights[m] -= w
        self.theta = self.theta + self.learning_rate * weights @ X[ranking]


def plain(make, environment, steps):
    """Steps per second of one seed."""
    rng = np.random.default_rng(0)
    queries, user = environment.queries, environment.user
    X, grades, starts = (np.asarray(x) for x in (queries.features, queries.grades, queries.starts))
    X, click, stop = X.astype(np.float64), np.asarray(user.click), np.asarray(user.stop)
    policy = make(X.shape[1], rng)
    started = time.perf_counter()
    for _ in range(steps):
        q = rng.integers(queries.num_queries)
        documents = X[starts[q] : starts[q + 1]]
        ranking = policy.rank(documents, environment.list_size)
        clicks = np.zeros(len(ranking), bool)
        for k, grade in enumerate(grades[starts[q] + ranking]):
            clicks[k] = rng.random() < click[grade]
            if clicks[k] and rng.random() < stop[grade]:
                break
        policy.update(documents, ranking, clicks)
    return steps / (time.perf_counter() - started)


def main(folder: str, steps: int = 2_000, seeds: int = 20) -> None:
    queries = jr.datasets.letor(folder).train
    environment = jr.QueryStream(queries, jr.click_models.graded_user("perfect"))
    sizes = np.diff(np.asarray(queries.starts))
    print(f"{len(sizes)} queries of {sizes.mean():.0f} documents ({sizes.max()} at most), d = {queries.num_features}")
    for name, policy, reference in (("PDGD", jr.PDGD(), PDGD), ("PairRank", jr.PairRank(), PairRank)):
        run = {"num_seeds": seeds, "num_records": 1, "metrics": ("cndcg",), "progress": False, "chunk_intervals": 5}
        jr.simulate(policy, environment, 1, **run)  # compiles; as many intervals a call, so the program is the same
        rate = jr.simulate(policy, environment, steps, **run).attrs["lane_steps_per_second"]
        one = plain(reference, environment, steps)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name}: {rate:,.0f} lane-steps/s, {seeds} seeds; plain {one:,.0f}; ratio {rate / one:.1f}; {peak:,.0f} MB"
        )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
