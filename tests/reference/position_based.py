"""PBM-UCB, PBM-TS and PBM-PIE of Lagrée et al. (NIPS 2016)."""

import math

import numpy as np

from reference.cascade import best_first, kl


class PositionBased:
    """What the three share. N[l][k]: how often item k was shown at position l; S[l][k]: and clicked."""

    def __init__(self, num_items, chi, epsilon=None):
        self.L = num_items
        self.K = len(chi)
        self.chi = list(chi)
        self.epsilon = epsilon
        self.N = [[0] * num_items for _ in chi]
        self.S = [[0] * num_items for _ in chi]
        self.t = 1

    def examined(self, k):
        return sum(self.chi[p] * self.N[p][k] for p in range(self.K))

    def clicks(self, k):
        return sum(self.S[p][k] for p in range(self.K))

    def estimate(self, k):
        return self.clicks(k) / self.examined(k) if self.examined(k) > 0 else math.inf

    def delta(self):
        return (1 + self.epsilon) * math.log(self.t)

    def place(self, items):
        """The l-th item goes to the l-th most examined position."""
        positions = sorted(range(self.K), key=lambda p: self.chi[p], reverse=True)  # stable
        ranking = [None] * self.K
        for item, position in zip(items, positions, strict=True):
            ranking[position] = item
        return ranking

    def update(self, ranking, clicks):
        for p in range(self.K):
            self.N[p][ranking[p]] += 1
            self.S[p][ranking[p]] += int(clicks[p])
        self.t += 1


class PBMUCB(PositionBased):
    def index(self, k):
        examined = self.examined(k)
        if examined == 0:
            return math.inf
        shown = sum(self.N[p][k] for p in range(self.K))
        return self.estimate(k) + math.sqrt(shown / examined) * math.sqrt(self.delta() / (2 * examined))

    def rank(self, words):
        return self.place(best_first([self.index(k) for k in range(self.L)], words, self.K))


class PBMTS(PositionBased):
    def rank(self, samples):
        return self.place(best_first(samples, [0] * self.L, self.K))


class PBMPIE(PositionBased):
    def divergence(self, k, q):
        """Φ_k(q)."""
        total = 0.0
        for p in range(self.K):
            if self.N[p][k] > 0:
                total += self.N[p][k] * kl(self.S[p][k] / self.N[p][k], self.chi[p] * q)
        return total

    def maximum_likelihood(self, k):
        """Where Φ_k is least, by golden-section search on [0, 1]."""
        ratio = (math.sqrt(5) - 1) / 2
        low, high = 0.0, 1.0
        for _ in range(45):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            if self.divergence(k, left) <= self.divergence(k, right):
                high = right
            else:
                low = left
        return (low + high) / 2

    def upper_bound(self, k):
        """U_k(t) = sup{q in [θ_k, 1] : Φ_k(q) ≤ δ_t}."""
        low = self.maximum_likelihood(k)
        if self.divergence(k, low) > self.delta():
            return low
        high = 1.0
        if self.divergence(k, high) <= self.delta():
            return high
        for _ in range(40):
            middle = (low + high) / 2
            if self.divergence(k, middle) <= self.delta():
                low = middle
            else:
                high = middle
        return low

    def candidates(self, leaders):
        last = self.estimate(leaders[-1])
        others = [k for k in range(self.L) if k not in leaders]
        if last > 1:  # no attraction reaches it
            return []
        return [k for k in others if self.upper_bound(k) >= last]

    def rank(self, words, explorer_word):
        """The lowest bit of ``explorer_word`` is the coin, the others choose the candidate."""
        leaders = best_first([self.estimate(k) for k in range(self.L)], words, self.K)
        self.set_of_candidates = self.candidates(leaders)
        if self.set_of_candidates and explorer_word % 2 == 1:
            number = (explorer_word // 2) % len(self.set_of_candidates)
            leaders = [*leaders[:-1], self.set_of_candidates[number]]
        return self.place(leaders)


def posterior_cdf(theta, clicks, skips, chi, cells=20_000):
    """P(θ_k ≤ theta) under the density ∝ θ^clicks·Π_l (1 − χ_l θ)^skips_l on [0, 1], by the trapezoidal rule.

    The rule runs over the part of [0, 1] in which the log density is within 40 of its greatest value.
    """

    def log_density(x):
        with np.errstate(divide="ignore"):
            total = clicks * np.log(x) if clicks > 0 else np.zeros_like(x)
            for skipped, c in zip(skips, chi, strict=True):
                if skipped > 0:
                    total = total + skipped * np.log1p(-c * x)
        return total

    low, high = 0.0, 1.0
    for _ in range(12):  # zoom in
        x = np.linspace(low, high, 1001)
        value = log_density(x)
        inside = np.flatnonzero(value > value.max() - 40)
        first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, 1000)
        low, high = x[first], x[last]
    x = np.linspace(low, high, cells + 1)
    value = log_density(x)
    density = np.exp(value - value.max())
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return np.interp(theta, x, mass / mass[-1])
