"""GRAB: the leader by an assignment, its neighbours by optimism (Gauthier et al., ICML 2021)."""

import math

import numpy as np

from reference.cascade import kl


def assignment(value):
    """Kuhn's method with shortest augmenting paths: an item for each position, with the highest sum of ``value``.

    In float32, one operation after the other, as in the policy: ties of sums of fractions are then ties in both.
    """
    value = np.asarray(value, np.float32)
    K, L = value.shape
    far = np.finfo(np.float32).max
    u, v = np.zeros(K, np.float32), np.zeros(L, np.float32)
    holder = [-1] * L
    for number in range(K):
        price, before, reached, tree = np.full(L, far, np.float32), [-1] * L, [False] * L, []
        position, item = number, -1
        while True:
            if item >= 0:
                reached[item] = True
            tree.append(position)
            for j in range(L):
                if not reached[j]:
                    reduced = -value[position, j] - u[position] - v[j]
                    if reduced < price[j]:
                        price[j], before[j] = reduced, item
            nearest = min((j for j in range(L) if not reached[j]), key=lambda j: price[j])
            step = price[nearest]
            for k in tree:
                u[k] += step
            for j in range(L):
                if reached[j]:
                    v[j] -= step
                else:
                    price[j] -= step
            item, position = nearest, holder[nearest]
            if position < 0:
                break
        while item >= 0:
            previous = before[item]
            holder[item] = holder[previous] if previous >= 0 else number
            item = previous
    return [holder.index(k) for k in range(K)]


def upper_bound(mean, trials, level):
    """max{q ≥ mean : trials·KL(mean ‖ q) ≤ level}; 1 without trials."""
    if trials == 0 or trials * kl(mean, 1.0) <= level:
        return 1.0
    low, high = mean, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if trials * kl(mean, middle) <= level else (low, middle)
    return low


class GRAB:
    def __init__(self, list_size, leader, horizon, period):
        self.K, self.L = list_size, len(leader)
        self.leader, self.led, self.period, self.level = list(leader), 0, period, math.log(horizon)
        self.shown, self.clicks = np.zeros((2, self.K, self.L), int)

    def mean(self, k, i):
        return self.clicks[k, i] / max(self.shown[k, i], 1)

    def bound(self, k, i):
        return upper_bound(self.mean(k, i), self.shown[k, i], self.level)

    def rank(self):
        a = self.leader
        if self.led % self.period == 0:
            return a[: self.K]
        pi = sorted(range(self.K), key=lambda k: -self.mean(k, a[k]))
        best, gain = a[: self.K], 0.0
        neighbours = [(pi[n], pi[n + 1]) for n in range(self.K - 1)] + [(pi[-1], m) for m in range(self.K, self.L)]
        for k, m in neighbours:
            neighbour = list(a)
            neighbour[k], neighbour[m] = a[m], a[k]
            value = self.bound(k, a[m]) - self.bound(k, a[k])
            if m < self.K:
                value += self.bound(m, a[k]) - self.bound(m, a[m])
            if value > gain + 1e-6:
                best, gain = neighbour[: self.K], value
        return best

    def update(self, ranking, clicks):
        for k, item in enumerate(ranking):
            self.shown[k, item] += 1
            self.clicks[k, item] += clicks[k]
        value = self.clicks.astype(np.float32) / np.maximum(self.shown, 1).astype(np.float32)
        leader = assignment(value)
        self.led = self.led + 1 if leader == self.leader[: self.K] else 0
        self.leader = leader + [i for i in range(self.L) if i not in leader]
