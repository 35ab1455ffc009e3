"""UniRank: the leader partition, merges from the top, one item that is not shown (Gauthier et al., ICML 2022)."""

import itertools
import math

import numpy as np

from reference.cascade import kl


def leader_partition(s):
    """Parts of items: again and again the smallest set that beats all other remaining items, by trying all sets."""
    remaining, parts = list(range(len(s))), []
    while remaining:
        for size in range(1, len(remaining) + 1):
            found = [
                part
                for part in itertools.combinations(remaining, size)
                if all(s[i][j] > 0 for i in part for j in remaining if j not in part)
            ]
            if found:
                break
        parts.append(list(found[0]))
        remaining = [i for i in remaining if i not in found[0]]
    return parts


class UniRank:
    def __init__(self, num_items, list_size):
        self.L, self.K, self.t = num_items, list_size, 1
        self.wins = np.zeros((num_items, num_items), int)
        self.parts = [list(range(num_items))]
        self.merges = self.joins = 0

    def rank(self, words):
        """Each part in the order of its random words, the largest last."""
        return [i for part in self.parts for i in sorted(part, key=lambda i: words[i])][: self.K]

    def may_be_better(self, j, i, level):
        T = self.wins[i, j] + self.wins[j, i]
        p = self.wins[j, i] / max(T, 1)
        return T == 0 or p > 0.5 or T * kl(p, 0.5) < level

    def update(self, ranking, clicks, words):
        C = [0] * self.L
        for k, item in enumerate(ranking):
            C[item] = int(clicks[k])
        for part in self.parts:
            for i, j in itertools.product(part, part):
                self.wins[i, j] += C[i] > C[j]
        self.t += 1
        self.parts = self.partition(words)

    def partition(self, words):
        level = max(0.0, math.log(self.t) + 3 * math.log(math.log(self.t)))
        leader = leader_partition(self.wins - self.wins.T)
        displayed, start = [], 0
        for part in leader:
            if start < self.K:
                displayed.append(part)
            start += len(part)
        hidden = [i for part in leader[len(displayed) :] for i in part]
        parts, c = [], 0
        while c < len(displayed):
            upper = displayed[c]
            if c + 1 < len(displayed) and any(self.may_be_better(j, i, level) for i in upper for j in displayed[c + 1]):
                parts.append(upper + displayed[c + 1])
                self.merges += 1
                c += 2
            else:
                parts.append(list(upper))
                c += 1
                if c == len(displayed):  # the last one is alone: a promising hidden item joins, the largest word's
                    promising = [j for j in hidden if any(self.may_be_better(j, i, level) for i in upper)]
                    if promising:
                        parts[-1].append(max(promising, key=lambda j: words[j]))
                        self.joins += 1
        return parts
