"""Cascading bandits for attractions that change: CascadeDUCB, CascadeSWUCB, GLRT-CascadeUCB and GLRT-CascadeKL-UCB.

Nothing is forgotten here: the whole history is kept, and everything is computed from it anew.
"""

import math

import numpy as np

from reference.cascade import Cascade, best_first, kl, kl_ucb, ucb1


def observed_and_clicked(ranking, clicks, num_items, feedback):
    """Two lists over items: was it observed, was it clicked while observed?"""
    one = Cascade(num_items, len(ranking), "klucb", feedback)
    one.update(ranking, clicks)
    return one.observed, one.clicks


class Forgetting:
    """CascadeDUCB with ``discount``, or CascadeSWUCB with ``window``."""

    def __init__(self, num_items, list_size, num_steps, epsilon, discount=None, window=None, feedback="first"):
        self.L, self.K, self.epsilon = num_items, list_size, epsilon
        self.discount, self.window, self.feedback = discount, window, feedback
        self.t = 1
        self.observations, self.rewards = np.zeros((2, num_steps, num_items))  # of each step, over items

    def counts(self):
        past = self.t - 1
        if self.window is None:
            weights = self.discount ** np.arange(past - 1, -1, -1.0)
        else:
            weights = (np.arange(past) >= past - self.window).astype(float)
        return weights @ self.observations[:past], weights @ self.rewards[:past]

    def index(self):
        t = self.t
        observed, clicks = self.counts()
        if self.window is None:
            steps = (1 - self.discount**t) / (1 - self.discount)
            level = 4 * self.epsilon * math.log(max(steps, 1))
        else:
            level = self.epsilon * math.log(min(t, self.window))
        return [
            clicks[e] / observed[e] + math.sqrt(level / observed[e]) if observed[e] > 0 else math.inf
            for e in range(self.L)
        ]

    def rank(self, words):
        return best_first(self.index(), words, self.K)

    def update(self, ranking, clicks):
        observed, clicked = observed_and_clicked(ranking, clicks, self.L, self.feedback)
        self.observations[self.t - 1], self.rewards[self.t - 1] = observed, clicked
        self.t += 1


class GLRT:
    """GLRT-CascadeUCB ("ucb1") or GLRT-CascadeKL-UCB ("klucb"), tested after every ``every``-th step.

    ``levels`` and ``per_level`` say which splits are tested: those at the last ``per_level`` tests whose number is an
    odd multiple of 2^level, or any multiple for the highest level. All splits are tested if they are None.
    """

    def __init__(self, num_items, list_size, index, horizon, delta, exploration, every, levels=None, per_level=None):
        self.L, self.K, self.kind, self.every = num_items, list_size, index, every
        self.delta, self.period = delta, max(math.floor(num_items / exploration), num_items + 1)
        self.levels, self.per_level = levels, per_level
        self.t, self.restarts = 1, []
        self.start_anew(0)

    def start_anew(self, step):
        self.restart = step
        self.X = [[] for _ in range(self.L)]  # the observations of each item
        self.at_test = {}  # the number of observations of each item after each test since the restart, by its number

    def index(self):
        since = self.t - self.restart
        if self.kind == "klucb":
            return [kl_ucb(sum(x), len(x), since) for x in self.X]
        return [ucb1(sum(x), len(x), since, 1.5) for x in self.X]

    def rank(self, words):
        turn = (self.t - self.restart) % self.period
        if 1 <= turn <= self.L:
            return best_first([float(e == turn - 1) for e in range(self.L)], words, self.K)
        return best_first(self.index(), words, self.K)

    def splits(self, e):
        if self.levels is None:
            return range(1, len(self.X[e]))
        kept = set()
        for level in range(self.levels):
            step = 2**level
            if level == self.levels - 1:
                numbers = range(step, self.t // self.every + 1, step)
            else:
                numbers = range(step, self.t // self.every + 1, 2 * step)
            kept |= set(numbers[-self.per_level :])
        return {self.at_test[number][e] for number in kept if number in self.at_test} - {0, len(self.X[e])}

    def changed(self, e):
        n = len(self.X[e])
        if n < 2:
            return False
        cumulative = np.cumsum(self.X[e])
        mean = cumulative[-1] / n
        threshold = math.log(3 * n**1.5 / self.delta)
        for s in self.splits(e):
            before, after = cumulative[s - 1] / s, (cumulative[-1] - cumulative[s - 1]) / (n - s)
            if s * kl(before, mean) + (n - s) * kl(after, mean) >= threshold:
                return True
        return False

    def update(self, ranking, clicks):
        observed, clicked = observed_and_clicked(ranking, clicks, self.L, "first")
        for e in range(self.L):
            if observed[e]:
                self.X[e].append(clicked[e])
        if self.t % self.every == 0:
            self.at_test[self.t // self.every] = [len(x) for x in self.X]
            if any(self.changed(e) for e in range(self.L)):
                self.restarts.append(self.t)
                self.start_anew(self.t)
        self.t += 1
