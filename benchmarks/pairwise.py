"""Speed of PairRank and PDGD on a LETOR dataset against plain NumPy and SciPy, in one run.

    python benchmarks/pairwise.py FOLDER [STEPS [SEEDS]]

The plain versions run one seed, one step after the other: PairRank with all widths by one product of matrices, M⁻¹ by
rank-one updates and eq. 1 minimised by SciPy's L-BFGS-B over all pairs, from the last θ̂; PDGD with the weights of all
pairs by NumPy; λ and α are the same on both sides. Prints lane-steps per second of both in the first 200 steps, up to
step 1,000 and after (eq. 1 has more pairs at every step), their ratio, and the peak memory of the process.
"""

import itertools
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
    def __init__(self, d, rng, lam=10.0, alpha=0.1):
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


def plain(make, environment, marks):
    """Steps per second of one seed, up to each of the ``marks``."""
    rng = np.random.default_rng(0)
    queries, user = environment.queries, environment.user
    X, grades, starts = (np.asarray(x) for x in (queries.features, queries.grades, queries.starts))
    X, click, stop = X.astype(np.float64), np.asarray(user.click), np.asarray(user.stop)
    policy = make(X.shape[1], rng)
    times = [time.perf_counter()]
    for step in range(1, marks[-1] + 1):
        q = rng.integers(queries.num_queries)
        documents = X[starts[q] : starts[q + 1]]
        ranking = policy.rank(documents, environment.list_size)
        clicks = np.zeros(len(ranking), bool)
        for k, grade in enumerate(grades[starts[q] + ranking]):
            clicks[k] = rng.random() < click[grade]
            if clicks[k] and rng.random() < stop[grade]:
                break
        policy.update(documents, ranking, clicks)
        if step in marks:
            times.append(time.perf_counter())
    return np.diff([0, *marks]) / np.diff(times)


def simulated(policy, environment, marks, seeds, look=lambda step: None):
    """Lane-steps per second, likewise; calls ``look`` at the marks."""
    times = {}

    def passed(step):
        times.setdefault(step, time.perf_counter())
        look(step)

    run = {"num_seeds": seeds, "metrics": ("cndcg",), "call_intervals": 1}  # so the program is the same in all calls
    jr.simulate(policy, environment, 1, **run, progress=False)  # compiles
    times[0] = time.perf_counter()
    options = {"record_at": marks, "progress": passed}
    jr.simulate(policy, environment, marks[-1], **run, **options)
    return seeds * np.diff([0, *marks]) / np.diff([times[mark] for mark in (0, *marks)])


def main(folder: str, steps: int = 2_000, seeds: int = 20) -> None:
    queries = jr.datasets.letor(folder).train
    environment = jr.QueryStream(queries, jr.click_models.graded_user("perfect"))
    sizes = np.diff(np.asarray(queries.starts))
    print(f"{len(sizes)} queries of {sizes.mean():.0f} documents ({sizes.max()} at most), d = {queries.num_features}")
    marks = [mark for mark in (200, 1_000) if mark < steps] + [steps]
    for name, policy, reference in (("PDGD", jr.PDGD(), PDGD), ("PairRank", jr.PairRank(horizon=steps), PairRank)):
        ours, theirs = simulated(policy, environment, marks, seeds), plain(reference, environment, marks)
        for (first, last), rate, one in zip(itertools.pairwise([0, *marks]), ours, theirs, strict=True):
            print(
                f"{name}, steps {first + 1:,} to {last:,}: {rate:,.0f} lane-steps/s, {seeds} seeds; plain {one:,.0f}; "
                f"ratio {rate / one:.1f}",
                flush=True,
            )
        print(f"{name}: peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
