"""OLRankNet, OLLambdaRank and P2NeurRank in plain NumPy: every pair by itself, gradients by the chain rule.

The network has one hidden layer with tanh. θ is a vector: biases, weights, output bias, output weights. Blocks, pairs
and lists are those of ``reference.pairrank``. Training is mini-batch gradient descent from the last θ on the lists of
the last ``window`` steps, as in jaxrank.
"""

import math

import numpy as np

from reference.pairrank import examined, independent_pairs, matched_pairs, ordered_blocks, sigma


class Network:
    def __init__(self, theta, num_features, hidden):
        self.d, self.h = num_features, hidden
        self.theta = np.array(theta, np.float64)
        self.initial = self.theta.copy()

    def parts(self):
        h, d = self.h, self.d
        return self.theta[:h], self.theta[h : h + d * h].reshape(d, h), self.theta[-h - 1], self.theta[-h:]

    def score(self, x):
        bias, weight, output_bias, output = self.parts()
        return float(np.tanh(x @ weight + bias) @ output + output_bias)

    def gradient(self, x):
        """∇f(x; θ)."""
        bias, weight, _, output = self.parts()
        hidden = np.tanh(x @ weight + bias)
        back = output * (1 - hidden**2)
        return np.concatenate([back, np.outer(x, back).ravel(), [1.0], hidden])


def list_pairs(ranking, clicks, num_documents, words):
    """(clicked, unclicked) positions of the list: neighbours, or, given ``words``, matched."""
    positions = list(range(len(ranking)))
    if words is None:
        return independent_pairs(positions, clicks, num_documents)
    return matched_pairs(positions, clicks, num_documents, words)


def explored(n, certain, exploration, words, list_size):
    """PairRank's list (line 6): whole blocks shuffled, or at each position a document with nothing certain above it."""
    if exploration == "random":
        shuffled = [sorted(block, key=lambda k: words[k]) for block in ordered_blocks(n, certain)]
        return [k for block in shuffled for k in block][:list_size]
    ranking = []
    for p in range(min(list_size, n)):
        left = [k for k in range(n) if k not in ranking]
        free = [j for j in left if not any((i, j) in certain for i in left)]
        ranking.append(max(free, key=lambda k: (words[p][k] >> 1, -k)))
    return ranking


class Pairwise:
    """What the policies share: the lists so far, and gradient descent on their pairs."""

    def __init__(self, networks, lam, learning_rate, window, exploration):
        self.networks, self.lam, self.learning_rate = networks, lam, learning_rate
        self.window, self.exploration = window, exploration
        self.lists, self.num_pairs = [], 0

    def rank(self, X, words, list_size):
        return explored(len(X), self.certain(X), self.exploration, words, list_size)

    def remember(self, X, ranking, clicks, words=None, noise=None):
        """Stores the list of a step; returns the pairs of documents."""
        o = examined(clicks, len(X))
        pairs = list_pairs(ranking, clicks, len(X), words)
        self.lists.append(([X[k] for k in ranking[:o]], [bool(c) for c in clicks[:o]], pairs, noise))
        self.num_pairs += len(pairs)
        return [(X[ranking[i]], X[ranking[j]]) for i, j in pairs]

    def stored(self, row):
        """The list in a row of the window: that of the last step t with t mod window = row."""
        t = len(self.lists)
        while t % self.window != row:
            t -= 1
        assert t > max(0, len(self.lists) - self.window), "rows without a list are never drawn"
        return self.lists[t - 1]

    def train(self, batches):
        for number, network in enumerate(self.networks):
            for rows in batches:
                slope, count = np.zeros_like(network.theta), 0
                for row in rows:
                    documents, clicks, pairs, noise = self.stored(row)
                    scores = [network.score(x) for x in documents]
                    for place, (i, j) in enumerate(pairs):
                        z = scores[i] - scores[j]
                        gamma = 0.0 if noise is None else noise[number][self.pair_place(pairs, place)]
                        # of −(1 + γ)·log σ(z) + γ·log(1 − σ(z)), or of the weighted −log σ(z)
                        pull = -(1 + gamma) * (1 - sigma(z)) + -gamma * sigma(z)
                        pull *= self.pair_weight(scores, clicks, i, j)
                        slope += pull * (network.gradient(documents[i]) - network.gradient(documents[j]))
                        count += 1
                slope = slope / max(count, 1) + self.lam / max(self.num_pairs, 1) * (network.theta - network.initial)
                network.theta = network.theta - self.learning_rate * slope

    def pair_place(self, pairs, place):
        """Which of the step's noises is that of a pair: the positions (2k, 2k + 1) have the k-th."""
        return min(pairs[place]) // 2

    def pair_weight(self, scores, clicks, i, j):
        return 1.0


class OLRankNet(Pairwise):
    def __init__(self, network, lam, alpha, learning_rate, window, exploration, full):
        super().__init__([network], lam, learning_rate, window, exploration)
        self.alpha, self.full = alpha, full
        self.A = lam * np.eye(len(network.theta))

    def certain(self, X):
        """(i, j) with σ(f_i − f_j) − α·‖g_ij‖ > ½ in the norm of A⁻¹, or of its diagonal's inverse."""
        (network,) = self.networks
        inverse = np.linalg.inv(self.A if self.full else np.diag(np.diag(self.A)))
        scores, slopes = [network.score(x) for x in X], [network.gradient(x) for x in X]
        found = set()
        for i in range(len(X)):
            for j in range(len(X)):
                g = slopes[i] - slopes[j]
                if i != j and sigma(scores[i] - scores[j]) - self.alpha * math.sqrt(max(g @ inverse @ g, 0)) > 0.5:
                    found.add((i, j))
        return found

    def update(self, X, ranking, clicks, batches, words=None):
        (network,) = self.networks
        for up, down in self.remember(X, ranking, clicks, words):
            g = network.gradient(up) - network.gradient(down)
            self.A += np.outer(g, g)
        self.train(batches)


class OLLambdaRank(OLRankNet):
    def pair_weight(self, scores, clicks, i, j):
        """|ΔNDCG|: what NDCG of the clicks changes if documents i and j change places in the order of scores."""

        def ndcg(order):
            gains = [clicks[k] / math.log2(2 + place) for place, k in enumerate(order)]
            ideal = [1 / math.log2(2 + place) for place in range(sum(clicks))]
            return sum(gains) / sum(ideal)

        order = sorted(range(len(scores)), key=lambda k: -scores[k])
        exchanged = [j if k == i else i if k == j else k for k in order]
        return abs(ndcg(order) - ndcg(exchanged))


class P2NeurRank(Pairwise):
    def certain(self, X):
        """(i, j) that all networks agree on: min over n of σ(f_n(i) − f_n(j)) > ½."""
        scores = [[network.score(x) for x in X] for network in self.networks]
        return {
            (i, j)
            for i in range(len(X))
            for j in range(len(X))
            if i != j and min(sigma(own[i] - own[j]) for own in scores) > 0.5
        }

    def update(self, X, ranking, clicks, batches, noise):
        self.remember(X, ranking, clicks, noise=noise)
        self.train(batches)
