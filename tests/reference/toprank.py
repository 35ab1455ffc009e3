"""TopRank, Algorithm 1 of Lattimore et al. (NeurIPS 2018)."""

import math


class TopRank:
    def __init__(self, num_items, list_size, delta):
        self.L = num_items
        self.K = list_size
        self.delta = delta
        self.G = set()  # line 1; (i, j): i beats j
        self.c = 4 * math.sqrt(2 / math.pi) / math.erf(math.sqrt(2))
        self.S = [[0] * self.L for _ in range(self.L)]
        self.N = [[0] * self.L for _ in range(self.L)]
        self.partition()

    def partition(self):
        self.blocks = []  # line 3
        remaining = list(range(self.L))
        while remaining:  # line 4
            block = [j for j in remaining if not any((i, j) in self.G for i in remaining)]  # line 6
            assert block, "G has no cycle"
            self.blocks.append(block)  # line 5
            remaining = [j for j in remaining if j not in block]

    def rank(self, words):
        """words[i]: the random number that orders item i inside its block."""
        ranking = []
        for block in self.blocks:  # line 7
            ranking += sorted(block, key=lambda i: words[i])
        return ranking[: self.K]

    def update(self, ranking, clicks):
        C = [0] * self.L  # line 8: an item that is not displayed is not clicked
        for k in range(self.K):
            C[ranking[k]] = int(clicks[k])
        for block in self.blocks:  # lines 9-11
            for i in block:
                for j in block:
                    self.S[i][j] += C[i] - C[j]
                    self.N[i][j] += abs(C[i] - C[j])
        for i in range(self.L):  # line 12
            for j in range(self.L):
                N = self.N[i][j]
                if N > 0 and self.S[i][j] >= math.sqrt(2 * N * math.log(self.c * math.sqrt(N) / self.delta)):
                    self.G.add((i, j))
        self.partition()

    def relation(self):
        return [[(i, j) in self.G for j in range(self.L)] for i in range(self.L)]

    def block_of_items(self):
        return [next(d for d, block in enumerate(self.blocks) if i in block) for i in range(self.L)]

    def settled(self):
        """Are the first K positions filled by blocks of one item?"""
        return [len(block) for block in self.blocks[: self.K]] == [1] * self.K
