"""CascadeHybrid in jaxrank against Algorithm 1 in NumPy with Woodbury updates, in one run, and how cost grows.

    python benchmarks/linear.py [LANES [ROUNDS]]

L = 1,000 items, K = 10 positions, d = 20 topics, m = 10 features; synthetic ratings, one user per lane. The NumPy
version scores all items at once. It is timed twice: with eq. 14 evaluated at every position, as Algorithm 1 has it
(lines 9 to 13), and with the terms that do not depend on the position taken out of that loop. Rounds of the three
alternate, and the median of each counts; the ratio is that of lane-steps per second. The speed for other L and K
follows.
"""

import sys
import time

import numpy as np

import jaxrank as jr
from jaxrank.core.pytrees import take_instances


class NumpyHybrid:
    """Algorithm 1 with H⁻¹ and M⁻¹ kept by the Woodbury identity (Sec. 3.4), in float64."""

    def __init__(self, environment, hoisted):
        self.x, self.z = (np.asarray(a, np.float64) for a in (environment.topics, environment.features))
        self.K, self.hoisted = environment.list_size, hoisted
        (self.L, d), m = self.x.shape, self.z.shape[1]
        self.Hi, self.u = np.eye(d), np.zeros(d)
        self.M, self.Mi, self.y = np.eye(m), np.eye(m), np.zeros(m)
        self.B = np.zeros((d, m))

    def rank(self):
        Hi, Mi, B, x, z = self.Hi, self.Mi, self.B, self.x, self.z
        theta = Hi @ self.u
        beta = Mi @ (self.y - B.T @ theta)
        uncovered, ranking = np.ones(x.shape[1]), []
        if self.hoisted:
            BM = B @ Mi
            HBM, zBM, relevance = Hi @ BM, z @ BM.T, z @ beta
            modular = (z @ Mi * z).sum(1) + (zBM @ Hi * zBM).sum(1)
        for _ in range(self.K):
            w = x * uncovered
            if self.hoisted:
                s = (w @ Hi * w).sum(1) - 2 * (w @ HBM * z).sum(1) + modular
                mu = w @ theta + relevance + np.sqrt(np.maximum(s, 0))
            else:
                s = (w @ Hi * w).sum(1) - 2 * (w @ (Hi @ B @ Mi) * z).sum(1)
                s += (z @ Mi * z).sum(1) + (z @ (Mi @ B.T @ Hi @ B @ Mi) * z).sum(1)
                mu = w @ theta + z @ beta + np.sqrt(np.maximum(s, 0))
            mu[ranking] = -np.inf
            ranking.append(int(np.argmax(mu)))
            uncovered = uncovered * (1 - x[ranking[-1]])
        return ranking

    def update(self, ranking, click):
        last = min(click, self.K - 1)
        shown = self.x[ranking[: last + 1]]
        above = np.vstack([np.ones(shown.shape[1]), np.cumprod(1 - shown, axis=0)[:-1]])
        w, z = shown * above, self.z[ranking[: last + 1]]
        Hi = woodbury(self.Hi, self.B, self.M)  # line 21
        u = self.u + self.B @ self.Mi @ self.y
        self.M, self.Mi = self.M + z.T @ z, woodbury(self.Mi, z.T, np.eye(last + 1))  # line 23
        self.B = self.B + w.T @ z
        Hi = woodbury(Hi, w.T, np.eye(last + 1))
        if click < self.K:  # line 26
            self.y, u = self.y + z[-1], u + w[-1]
        self.Hi = woodbury(Hi, self.B, -self.M)  # line 28
        self.u = u - self.B @ self.Mi @ self.y


def woodbury(inverse, u, c_inverse):
    """(A + U·C·Uᵀ)⁻¹ from A⁻¹ and C⁻¹."""
    left = inverse @ u
    return inverse - left @ np.linalg.solve(c_inverse + u.T @ left, left.T)


def numpy_speed(environment, hoisted, num_steps, rng):
    policy = NumpyHybrid(environment, hoisted)
    x, theta = (np.asarray(a, np.float64) for a in (environment.true_topics, environment.preference))
    relevance = np.asarray(environment.features, np.float64) @ np.asarray(environment.relevance, np.float64)
    share = float(environment.trade_off)
    elapsed = 0.0
    for _ in range(num_steps):
        started = time.perf_counter()
        ranking = policy.rank()
        elapsed += time.perf_counter() - started
        shown = x[ranking]
        gains = shown * np.vstack([np.ones(shown.shape[1]), np.cumprod(1 - shown, axis=0)[:-1]])
        attraction = np.clip((1 - share) * gains @ theta + share * relevance[ranking], 0, 1)
        clicked = np.flatnonzero(rng.uniform(size=len(ranking)) < attraction)
        started = time.perf_counter()
        policy.update(ranking, int(clicked[0]) if len(clicked) else len(ranking))
        elapsed += time.perf_counter() - started
    return num_steps / elapsed


def jaxrank_speed(environment, num_steps, seed):
    run = jr.simulate(jr.CascadeHybrid(), environment, num_steps, num_records=1, seed=seed, progress=False)
    return run.attrs["lane_steps_per_second"]


def main(lanes: int = 100, rounds: int = 7) -> None:
    ratings = jr.datasets.synthetic_ratings(3 * lanes, 1_000)
    environment = jr.datasets.topic_bandit(ratings, num_users=lanes)
    one, rng = take_instances(environment, 0), np.random.default_rng(0)
    jaxrank_speed(environment, 10, 0)
    speeds = []
    for number in range(rounds):
        speeds.append(
            (
                jaxrank_speed(environment, 100, number),
                numpy_speed(one, False, 100, rng),
                numpy_speed(one, True, 100, rng),
            )
        )
    ours, literal, hoisted = np.median(speeds, axis=0)
    print(f"L = 1,000, K = 10, d = 20, m = 10, {lanes} lanes, median of {rounds} rounds, lane-steps/s:")
    print(f"jaxrank {ours:,.0f}; NumPy, eq. 14 as printed, {literal:,.0f}: ratio {ours / literal:.1f}")
    print(f"NumPy, terms without the position taken out of the loop, {hoisted:,.0f}: ratio {ours / hoisted:.1f}")
    ratios = np.array([[o / a, o / b] for o, a, b in speeds])
    print(f"ratios of the rounds: {ratios.min(axis=0).round(1)} to {ratios.max(axis=0).round(1)}")

    for num_items, list_size in ((100, 10), (1_000, 5), (1_000, 10), (1_000, 20), (10_000, 10)):
        ratings = jr.datasets.synthetic_ratings(3 * lanes, num_items)
        environment = jr.datasets.topic_bandit(ratings, num_users=lanes, list_size=list_size)
        jaxrank_speed(environment, 3, 0)
        num_steps = 200_000 // num_items + 5
        speed = max(jaxrank_speed(environment, num_steps, seed) for seed in (1, 2, 3))
        print(f"L = {num_items:,}, K = {list_size}: {speed:,.0f} lane-steps/s, {1e6 / speed:,.0f} µs each")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
