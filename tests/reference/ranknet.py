"""RankNet online: a gradient step on −log σ(f_k − f_l) for the preferences of each list."""

import math

from reference.pairrank import independent_pairs
from reference.pdgd import preferences


class RankNet:
    def __init__(self, num_features, learning_rate, pairs):
        self.theta = [0.0] * num_features
        self.learning_rate, self.pairs = learning_rate, pairs

    def score(self, x):
        return sum(a * b for a, b in zip(x, self.theta, strict=True))

    def best(self, X, order):
        """By score; equal scores as in ``order``."""
        return sorted([k for k in order if k < len(X)], key=lambda k: -self.score(X[k]))

    def epsilon_greedy(self, X, order, explore, coins, epsilon):
        exploit, explore = self.best(X, order), [k for k in explore if k < len(X)]
        ranking = []
        for coin in coins[: len(X)]:
            source = explore if coin < epsilon else exploit
            ranking.append(next(k for k in source if k not in ranking))
        return ranking

    def update(self, X, ranking, clicks):
        if self.pairs == "independent":
            pairs = independent_pairs(ranking, clicks, len(X))
        else:
            pairs = [(ranking[k], ranking[m]) for k, m in preferences(clicks, len(X))]
        gradient = [0.0] * len(self.theta)
        for i, j in pairs:
            pull = 1 / (1 + math.exp(self.score(X[i]) - self.score(X[j])))
            for f in range(len(gradient)):
                gradient[f] += pull * (X[i][f] - X[j][f])
        self.theta = [t + self.learning_rate * g for t, g in zip(self.theta, gradient, strict=True)]
