"""RecurRank: Algorithm 1 of Li, Lattimore and Szepesvári (ICML 2019), one object for each instance."""

import itertools
import math

import numpy as np


class Instance:
    """Phase ℓ on the items A, in order, at the positions from ``first`` on, ``size`` of them."""

    def __init__(self, phase, items, first, size, features, K, log_inverse_delta, design):
        self.phase, self.items, self.first, self.size = phase, items, first, size
        self.shown, self.clicks = dict.fromkeys(items, 0), dict.fromkeys(items, 0)
        d = features.shape[1]
        log_delta = log_inverse_delta + math.log(K * phase * (phase + 1))
        pi = design(items)
        total = d / 2 * 4.0**phase * (math.log(len(items)) + log_delta)
        self.left = {a: math.ceil(pi[a] * total - 1e-3) if len(items) > 1 else 0 for a in items}

    def turn(self):
        """The item whose turn it is at the first position; None if there is nothing to learn."""
        return next((a for a in self.items if self.left[a] > 0), None)

    def positions(self):
        a = self.turn()
        others = [b for b in self.items if b != a]
        return (([a] if a is not None else []) + others)[: self.size]


class RecurRank:
    """``design(items)`` returns the weights of a G-optimal design, by item."""

    def __init__(self, features, list_size, order, log_inverse_delta, design):
        self.features, self.K, self.log_inverse_delta, self.design = features, list_size, log_inverse_delta, design
        self.instances = [self.instance(1, list(order), 0, list_size)]
        self.splits = self.eliminated = 0

    def instance(self, phase, items, first, size):
        return Instance(phase, items, first, size, self.features, self.K, self.log_inverse_delta, self.design)

    def rank(self):
        return [a for one in sorted(self.instances, key=lambda one: one.first) for a in one.positions()]

    def update(self, ranking, clicks):
        for one in list(self.instances):
            a = one.turn()
            if a is None:
                continue
            one.left[a] -= 1
            one.shown[a] += 1
            one.clicks[a] += int(clicks[one.first])
            if one.turn() is None:
                self.instances.remove(one)
                self.instances += self.next_phase(one)

    def next_phase(self, one):
        X = self.features
        V = sum(one.shown[a] * np.outer(X[a], X[a]) for a in one.items) + 1e-4 * np.eye(X.shape[1])
        theta = np.linalg.solve(V, sum(one.clicks[a] * X[a] for a in one.items))
        ranked = sorted(one.items, key=lambda a: (-round(float(X[a] @ theta), 9), a))
        parts = [[ranked[0]]]
        for above, below in itertools.pairwise(ranked):
            if X[above] @ theta - X[below] @ theta >= 2 * 2.0**-one.phase:
                parts.append([])
            parts[-1].append(below)
        made, first = [], one.first
        for part in parts:
            if first < one.first + one.size:
                made.append(self.instance(one.phase + 1, part, first, min(len(part), one.first + one.size - first)))
            else:
                self.eliminated += len(part)
            first += len(part)
        self.splits += len(made) - 1
        return made
