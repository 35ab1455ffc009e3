"""BubbleRank, Algorithm 1 of Li et al. (UAI 2019), with the extensions of Sec. 4.3."""

import math


class BubbleRank:
    def __init__(self, base_ranking, list_size, horizon, delta=None, doubling=False, freeze_certain=False):
        self.initial = list(base_ranking)  # R0 over all L items; the first K are shown
        self.K = list_size
        self.L = len(self.initial)
        self.n_horizon = horizon
        self.delta = delta
        self.doubling = doubling
        self.freeze_certain = freeze_certain
        self.s = [[0] * self.L for _ in range(self.L)]  # line 2
        self.n = [[0] * self.L for _ in range(self.L)]
        self.base = list(self.initial)  # line 3
        self.t = 1
        self.challenger = None

    def log_inverse_delta(self):
        return math.log(1 / self.delta) if self.delta is not None else 4 * math.log(self.n_horizon)

    def certain(self, i, j):
        """Is i known to be more attractive than j?"""
        return self.s[i][j] > 2 * math.sqrt(self.n[i][j] * self.log_inverse_delta())

    def parity(self):
        return 0 if self.t % 2 == 1 else 1  # the text of Sec. 3.1: h = 0 at odd t

    def pairs(self):
        """Upper positions of the pairs of this step (lines 7-8)."""
        h = self.parity()
        return [2 * k + h for k in range((self.K - h) // 2)]

    def last_is_free(self):
        return self.L > self.K and (self.K - 1) not in [k + 1 for k in self.pairs()]

    def choose_challenger(self, uniform):
        """Sec. 4.3: a random item below K that has not been shown to be worse than the item at K."""
        last = self.base[self.K - 1]
        candidates = [j for j in self.base[self.K :] if not self.certain(last, j)]
        self.challenger = None
        if candidates:
            number = min(int(uniform * len(candidates)), len(candidates) - 1)
            self.challenger = candidates[number]

    def rank(self, coins):
        """coins[k]: would the pair (k, k+1) be exchanged? coins[K−1]: would the challenger enter?"""
        ranking = list(self.base[: self.K])  # line 6
        for k in self.pairs():  # line 7
            i, j = ranking[k], ranking[k + 1]  # line 8
            if not self.certain(i, j) and coins[k]:  # lines 9-10
                ranking[k], ranking[k + 1] = j, i
        if self.last_is_free() and self.challenger is not None and coins[self.K - 1]:
            ranking[self.K - 1] = self.challenger
        return ranking

    def update(self, ranking, clicks):
        for k in self.pairs():  # line 13
            self.observe(ranking[k], ranking[k + 1], int(clicks[k]), int(clicks[k + 1]))
        if self.last_is_free() and self.challenger is not None:
            last = self.base[self.K - 1]
            shown = int(clicks[self.K - 1])  # the item that is not displayed gets feedback 0
            if ranking[self.K - 1] == last:
                self.observe(last, self.challenger, shown, 0)
            else:
                self.observe(last, self.challenger, 0, shown)
        if self.doubling and self.t == self.n_horizon:  # Sec. 4.3: at time n + 1
            self.base = list(self.initial)
            self.n_horizon *= 2
        else:
            self.exchange()
        self.t += 1

    def observe(self, i, j, click_i, click_j):
        if self.freeze_certain and (self.certain(i, j) or self.certain(j, i)):
            return
        if abs(click_i - click_j) == 1:  # line 15
            self.s[i][j] += click_i - click_j  # lines 16-17
            self.n[i][j] += 1
            self.s[j][i] += click_j - click_i  # lines 18-19
            self.n[j][i] += 1

    def exchange(self):
        for k in range(self.K - 1):  # lines 21-24
            i, j = self.base[k], self.base[k + 1]
            if self.certain(j, i):
                self.base[k], self.base[k + 1] = j, i
        for m in range(self.K, self.L):  # L > K: the highest one below that is known to be better
            if self.certain(self.base[m], self.base[self.K - 1]):
                self.base[self.K - 1], self.base[m] = self.base[m], self.base[self.K - 1]
                break
