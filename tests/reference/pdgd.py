"""PDGD, line by line from Algorithm 1 of Oosterhuis and de Rijke (CIKM 2018): probabilities of lists as products."""

import math

from reference.pairrank import examined


def list_probability(scores, ranking):
    """P(R) of the Plackett–Luce model: document after document, each in proportion to exp f among what is left."""
    left = list(range(len(scores)))
    probability = 1.0
    for document in ranking:
        probability *= math.exp(scores[document]) / sum(math.exp(scores[other]) for other in left)
        left.remove(document)
    return probability


def pair_weight(scores, ranking, k, m):
    """ρ(d_k, d_l, R)·P(d_k ≻ d_l)·P(d_l ≻ d_k) for positions k and m."""
    exchanged = list(ranking)
    exchanged[k], exchanged[m] = ranking[m], ranking[k]
    p, p_star = list_probability(scores, ranking), list_probability(scores, exchanged)
    up, down = math.exp(scores[ranking[k]]), math.exp(scores[ranking[m]])
    return p_star / (p + p_star) * up * down / (up + down) ** 2


def preferences(clicks, num_documents):
    """(k, m): k clicked, l examined and not clicked."""
    o = examined(clicks, num_documents)
    return [(k, m) for k in range(o) for m in range(o) if clicks[k] and not clicks[m]]


class PDGD:
    def __init__(self, num_features, learning_rate):
        self.theta = [0.0] * num_features
        self.learning_rate = learning_rate

    def scores(self, X):
        return [sum(a * b for a, b in zip(x, self.theta, strict=True)) for x in X]

    def rank(self, X, gumbel, list_size):
        keys = [s + g for s, g in zip(self.scores(X), gumbel, strict=False)]
        return sorted(range(len(X)), key=lambda i: -keys[i])[:list_size]

    def update(self, X, ranking, clicks):
        scores = self.scores(X)
        gradient = [0.0] * len(self.theta)
        for k, m in preferences(clicks, len(X)):
            weight = pair_weight(scores, ranking[: len(X)], k, m)
            for f in range(len(gradient)):
                gradient[f] += weight * (X[ranking[k]][f] - X[ranking[m]][f])
        self.theta = [t + self.learning_rate * g for t, g in zip(self.theta, gradient, strict=True)]
