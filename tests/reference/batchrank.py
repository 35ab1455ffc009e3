"""BatchRank, Algorithms 1-4 of Zoghi et al. (ICML 2017), with the correction that no split means the next stage."""

import math
from collections import defaultdict


class BatchRank:
    def __init__(self, num_items, list_size, horizon):
        self.L = num_items
        self.T = horizon
        self.c = defaultdict(lambda: [0] * num_items)  # c[b, l][d], lines 2-5
        self.n = defaultdict(lambda: [0] * num_items)
        self.A = [1]  # line 6
        self.b_max = 1
        self.I = {1: (1, list_size)}  # line 7
        self.B = {(1, 0): list(range(num_items))}
        self.l = {1: 0}

    def length(self, b):
        return self.I[b][1] - self.I[b][0] + 1

    def n_stage(self, stage):
        delta = 2.0**-stage
        return math.ceil(16 * delta**-2 * math.log(self.T))

    def rank(self, order_words, position_words):
        """order_words[d] orders items of equal count; position_words[k] permutes the positions of a batch."""
        ranking = {}
        for b in self.A:  # lines 9-10
            self.display_batch(b, ranking, order_words, position_words)
        return [ranking[k] for k in sorted(ranking)]

    def update(self, ranking, clicks):
        for b in self.A:  # lines 11-12
            self.collect_clicks(b, ranking, clicks)
        for b in list(self.A):  # lines 13-14
            self.update_batch(b)

    def display_batch(self, b, ranking, order_words, position_words):  # Algorithm 2
        stage = self.l[b]  # line 2
        n = self.n[b, stage]
        d = sorted(self.B[b, stage], key=lambda item: (n[item], order_words[item]))  # line 3
        first, last = self.I[b]
        pi = sorted(range(self.length(b)), key=lambda i: position_words[first - 1 + i])  # line 4
        for k in range(first, last + 1):  # lines 5-6
            ranking[k] = d[pi[k - first]]

    def collect_clicks(self, b, ranking, clicks):  # Algorithm 3
        stage = self.l[b]  # line 2
        n, c = self.n[b, stage], self.c[b, stage]
        n_min = min(n[d] for d in self.B[b, stage])
        first, last = self.I[b]
        for k in range(first, last + 1):  # line 3
            d = ranking[k - 1]
            if n[d] == n_min:  # lines 4-6
                c[d] += int(clicks[k - 1])
                n[d] += 1

    def update_batch(self, b):  # Algorithm 4
        stage = self.l[b]  # line 3
        B, n, c = self.B[b, stage], self.n[b, stage], self.c[b, stage]
        n_stage, length = self.n_stage(stage), self.length(b)
        if len(B) == 1:  # a batch of one item is done
            return
        if min(n[d] for d in B) != n_stage:  # line 4
            return
        delta_T = max(math.log(self.T) + 3 * math.log(math.log(self.T)), 0)
        U = {d: kl_bound(c[d] / n_stage, delta_T / n_stage, 1) for d in B}  # lines 5-6
        Lo = {d: kl_bound(c[d] / n_stage, delta_T / n_stage, 0) for d in B}
        order = sorted(B, key=lambda d: (-Lo[d], d))  # line 7
        B_plus, B_minus = {}, {}
        for k in range(1, length + 1):  # lines 8-10
            B_plus[k] = order[:k]
            B_minus[k] = order[k:]
        s = 0  # line 12
        for k in range(1, length):  # lines 13-15
            if Lo[order[k - 1]] > max(U[d] for d in B_minus[k]):
                s = k
        if s == 0:  # line 16, without its |B| > len(b)
            self.B[b, stage + 1] = [d for d in B if U[d] >= Lo[order[length - 1]]]  # line 18
            self.l[b] = stage + 1  # line 19
        else:
            first, last = self.I[b]
            self.A.remove(b)  # line 22
            self.A += [self.b_max + 1, self.b_max + 2]
            self.I[self.b_max + 1] = (first, first + s - 1)  # line 23
            self.B[self.b_max + 1, 0] = B_plus[s]  # line 24
            self.l[self.b_max + 1] = 0
            self.I[self.b_max + 2] = (first + s, last)  # line 25
            self.B[self.b_max + 2, 0] = B_minus[s]  # line 26
            self.l[self.b_max + 2] = 0
            self.b_max += 2  # line 27

    def statistics(self):
        """Per item: the interval (from 0), stage, observations and clicks of its batch; L and 0 if eliminated."""
        rows = [(self.L, self.L, 0, 0, 0)] * self.L
        for b in self.A:
            first, last = self.I[b]
            stage = self.l[b]
            for d in self.B[b, stage]:
                rows[d] = (first - 1, last - 1, stage, self.n[b, stage][d], self.c[b, stage][d])
        columns = [list(column) for column in zip(*rows, strict=True)]
        return dict(zip(("first", "last", "stage", "n", "c"), columns, strict=True))

    def settled(self):
        return all(len(self.B[b, self.l[b]]) == 1 for b in self.A)


class ReleasedBatchRank:
    """As in the program that drew the paper's figures: groups are lists of items, in the order of their positions."""

    def __init__(self, num_items, list_size, horizon):
        self.L, self.K = num_items, list_size
        self.log_LT = math.log(num_items * horizon)
        self.clicks = [0] * num_items
        self.views = [0] * num_items
        self.groups = [list(range(num_items))]
        self.halvings = [0]  # of a group's resolution, which is 1/2 at first

    def rank(self, words):
        """words[d] is the random place of item d in its group."""
        return [d for group in self.groups for d in sorted(group, key=lambda d: words[d])][: self.K]

    def update(self, ranking, clicks):
        for d, click in zip(ranking, clicks, strict=True):
            self.clicks[d] += int(click)
            self.views[d] += 1
        groups, halvings, above = [], [], 0
        for group, halved in zip(self.groups, self.halvings, strict=True):
            parts, number = self.test(group, halved, above)
            groups += parts
            halvings += [number] * len(parts)
            above += len(group)
        self.groups, self.halvings = groups, halvings

    def test(self, group, halved, above):
        """The groups that this one becomes, and how often their resolution has been halved."""
        resolution = 0.5 ** (halved + 1)
        if len(group) == 1 or any(self.views[d] < self.log_LT / resolution**2 for d in group):
            return [group], halved
        means = {d: self.clicks[d] / self.views[d] for d in group}
        upper = {d: kl_bound(means[d], self.log_LT / self.views[d], 1) for d in group}
        lower = {d: kl_bound(means[d], self.log_LT / self.views[d], 0) for d in group}
        order = sorted(group, key=lambda d: (-lower[d], d))
        last = self.K - above  # the group's items at positions up to K
        kept = order[:last] + [d for d in order[last:] if upper[d] >= lower[order[last - 1]]]
        cuts = [i for i in range(1, len(kept)) if min(lower[d] for d in kept[:i]) > max(upper[d] for d in kept[i:])]
        if len(kept) == len(group) and not cuts:
            return [group], halved + 1
        for d in group:
            self.clicks[d] = self.views[d] = 0
        return [kept[i:j] for i, j in zip([0, *cuts], [*cuts, len(kept)], strict=True)], 0

    def statistics(self):
        """As ``BatchRank.statistics``."""
        rows, above = [(self.L, self.L, 0, 0, 0)] * self.L, 0
        for group, halved in zip(self.groups, self.halvings, strict=True):
            for d in group:
                last = min(above + len(group), self.K) - 1
                rows[d] = (above, last, halved, self.views[d], self.clicks[d])
            above += len(group)
        columns = [list(column) for column in zip(*rows, strict=True)]
        return dict(zip(("first", "last", "stage", "n", "c"), columns, strict=True))

    def settled(self):
        return all(len(group) == 1 for group in self.groups)


def kl_bound(p, level, far):
    """The q between p and ``far`` that is farthest from p with KL(p, q) <= level."""
    near = p
    for _ in range(100):
        q = (near + far) / 2
        if kl(p, q) <= level:
            near = q
        else:
            far = q
    return near


def kl(p, q):
    total = 0.0
    if p > 0:
        total += p * math.log(p / q) if q > 0 else math.inf
    if p < 1:
        total += (1 - p) * math.log((1 - p) / (1 - q)) if q < 1 else math.inf
    return total
