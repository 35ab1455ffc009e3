"""Cascading bandits: Algorithm 1 of Kveton et al. (ICML 2015) and of Katariya et al. (ICML 2016)."""

import math


def kl(p, q):
    """KL(p ‖ q) of two Bernoulli distributions."""
    divergence = 0.0
    if p > 0:
        divergence += math.inf if q == 0 else p * math.log(p / q)
    if p < 1:
        divergence += math.inf if q == 1 else (1 - p) * math.log((1 - p) / (1 - q))
    return divergence


def kl_ucb(successes, trials, t, level="loglog"):
    """max{q ≥ ŵ : trials·KL(ŵ ‖ q) ≤ log t + 3 log log t}, the level floored at 0; or ≤ log t."""
    if trials == 0:
        return math.inf
    w = successes / trials
    more = 3 * math.log(math.log(t)) if t > 1 and level == "loglog" else 0.0
    level = max(0.0, math.log(t) + more)
    low, high = w, 1.0
    if trials * kl(w, high) <= level:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        if trials * kl(w, middle) <= level:
            low = middle
        else:
            high = middle
    return low


def ucb1(successes, trials, t, width):
    """ŵ + sqrt(width·log t / trials)."""
    if trials == 0:
        return math.inf
    return successes / trials + math.sqrt(width * math.log(t) / trials)


def best_first(index, words, list_size):
    """The items of the highest index; of equals, the one with the larger random word."""
    items = sorted(range(len(index)), key=lambda e: (index[e], words[e]), reverse=True)
    return items[:list_size]


class Cascade:
    """``index`` is "klucb", "ucb1" or "ts"; ``feedback`` is "first", "last" or "full"."""

    def __init__(self, num_items, list_size, index, feedback, level="loglog", initial="unseen"):
        self.L = num_items
        self.K = list_size
        self.kind = index
        self.feedback = feedback
        self.level = level
        self.initial = initial
        self.observed = [0] * num_items  # T_e
        self.clicks = [0] * num_items
        self.t = 1

    def index(self):
        if self.initial == "each" and self.t <= self.L:
            return [int(e + 1 == self.t) for e in range(self.L)]
        if self.kind == "klucb":
            return [kl_ucb(self.clicks[e], self.observed[e], self.t, self.level) for e in range(self.L)]
        return [ucb1(self.clicks[e], self.observed[e], self.t, 1.5) for e in range(self.L)]

    def rank(self, words):
        return best_first(self.index(), words, self.K)

    def rank_samples(self, samples):
        """Thompson sampling: ``samples`` are the draws from Beta(1 + clicks, 1 + T_e − clicks)."""
        return best_first(samples, [0] * self.L, self.K)

    def update(self, ranking, clicks):
        clicked = [k for k in range(self.K) if clicks[k]]
        if not clicked or self.feedback == "full":
            stop = self.K - 1  # no click: the user has read everything
        elif self.feedback == "first":
            stop = clicked[0]
        else:
            stop = clicked[-1]
        for k in range(stop + 1):
            self.observed[ranking[k]] += 1
            if clicks[k]:
                self.clicks[ranking[k]] += 1
        self.t += 1
