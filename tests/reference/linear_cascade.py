"""Cascading bandits with features, from their papers, one item at a time.

CascadeHybrid is Algorithm 1 of Li, Feng and de Rijke (2019), CascadeLinUCB Algorithm 1 of Zong et al. (UAI 2016)
without its cap of indices at 1, CascadeLSB Algorithm 1 of Hiranandani et al. (UAI 2019).
"""

import numpy as np

TIE = 1e-6  # scores this close to the highest, relative to it, are equal; the largest word decides


def coverage(x, items, j):
    """g_j(S) = 1 − Π_{a ∈ S} (1 − x_a(j)), eq. 4."""
    product = 1.0
    for a in items:
        product *= 1 - x[a, j]
    return 1 - product


def gain(x, a, above):
    """Δ(a | S), eq. 5."""
    return np.array([coverage(x, [*above, a], j) - coverage(x, above, j) for j in range(x.shape[1])])


def argmax(scores, words):
    """The item of the highest of ``scores`` {item: score}; of equals, the one with the larger random word."""
    highest = max(scores.values())
    equals = [a for a in scores if scores[a] >= highest - TIE * abs(highest)]
    return max(equals, key=lambda a: words[a])


def margin(scores, words):
    """How far the choice is from another one: a float32 score may err by less than this, and must not by more."""
    chosen = argmax(scores, words)
    highest = max(scores.values())
    bar = highest - TIE * abs(highest)
    return min([abs(scores[a] - bar) for a in scores if a != chosen] + [np.inf])


class Greedy:
    """Lines 7 to 17 of Algorithm 1, for any index μ_a."""

    def rank(self, words):
        ranking, self.margin = [], np.inf
        for _ in range(self.K):
            scores = {a: self.index(a, ranking) for a in range(self.L) if a not in ranking}
            self.margin = min(self.margin, margin(scores, words))
            ranking.append(argmax(scores, words))
        return ranking


class CascadeHybrid(Greedy):
    """Algorithm 1, line by line: H, M, B, u, y."""

    def __init__(self, x, z, list_size, gamma=1.0):
        self.x, self.z, self.K, self.gamma = x, z, list_size, gamma
        self.L, d, m = len(x), x.shape[1], z.shape[1]
        self.H, self.u = np.eye(d), np.zeros(d)  # line 2
        self.M, self.y = np.eye(m), np.zeros(m)
        self.B = np.zeros((d, m))
        self.estimate()

    def estimate(self):
        self.Hi, self.Mi = np.linalg.inv(self.H), np.linalg.inv(self.M)
        self.theta = self.Hi @ self.u  # line 5
        self.beta = self.Mi @ (self.y - self.B.T @ self.theta)

    @property
    def weights(self):
        return np.concatenate([self.theta, self.beta])

    def index(self, a, above):
        w, z = gain(self.x, a, above), self.z[a]  # line 10
        Hi, Mi, B = self.Hi, self.Mi, self.B
        s = (  # line 11, eq. 14
            w @ Hi @ w - 2 * w @ Hi @ B @ Mi @ z + z @ Mi @ z + z @ Mi @ B.T @ Hi @ B @ Mi @ z
        )
        return w @ self.theta + z @ self.beta + self.gamma * np.sqrt(s)  # line 12, eq. 13

    def update(self, ranking, clicks):
        clicked = [k for k in range(self.K) if clicks[k]]
        c = clicked[0] if clicked else self.K  # c_t − 1: positions count from 0 here
        Mi = np.linalg.inv(self.M)
        self.H = self.H + self.B @ Mi @ self.B.T  # line 21
        self.u = self.u + self.B @ Mi @ self.y
        for k in range(min(self.K, c + 1)):  # line 22
            w, z = gain(self.x, ranking[k], ranking[:k]), self.z[ranking[k]]
            self.M = self.M + np.outer(z, z)  # line 23
            self.B = self.B + np.outer(w, z)
            self.H = self.H + np.outer(w, w)
        if c < self.K:  # line 25
            self.y = self.y + self.z[ranking[c]]
            self.u = self.u + gain(self.x, ranking[c], ranking[:c])
        Mi = np.linalg.inv(self.M)
        self.H = self.H - self.B @ Mi @ self.B.T  # line 28
        self.u = self.u - self.B @ Mi @ self.y
        self.estimate()


class Ridge(Greedy):
    """What CascadeLinUCB and CascadeLSB share: M, B and θ̂ = M⁻¹B of features φ(a | S)."""

    def __init__(self, features, list_size, gamma=1.0):
        self.f, self.K, self.gamma = features, list_size, gamma
        self.L, p = features.shape
        self.M, self.B = np.eye(p), np.zeros(p)
        self.estimate()

    def estimate(self):
        self.Mi = np.linalg.inv(self.M)
        self.weights = self.Mi @ self.B

    def index(self, a, above):
        phi = self.phi(a, above)
        return phi @ self.weights + self.gamma * np.sqrt(phi @ self.Mi @ phi)

    def update(self, ranking, clicks):
        clicked = [k for k in range(self.K) if clicks[k]]
        last = clicked[0] if clicked else self.K - 1
        for k in range(last + 1):
            phi = self.phi(ranking[k], ranking[:k])
            self.M = self.M + np.outer(phi, phi)
            self.B = self.B + phi * clicks[k]
        self.estimate()


class CascadeLinUCB(Ridge):
    def phi(self, a, above):
        return self.f[a]


class CascadeLSB(Ridge):
    def phi(self, a, above):
        return gain(self.f, a, above)
