"""Ranked bandits, Algorithm 2 of Radlinski et al. (ICML 2008), with Exp3, UCB1 and KL-UCB."""

import math

from reference.cascade import best_first, kl_ucb, ucb1


class Exp3:
    """Exp3 of Auer et al., with weights as logarithms."""

    def __init__(self, num_items, gamma):
        self.L = num_items
        self.gamma = gamma
        self.log_weights = [0.0] * num_items

    def probabilities(self):
        highest = max(self.log_weights)
        weights = [math.exp(w - highest) for w in self.log_weights]
        total = sum(weights)
        return [(1 - self.gamma) * w / total + self.gamma / self.L for w in weights]

    def propose(self, uniform):
        """The first item up to which the probabilities add up to more than ``uniform``."""
        cumulative = 0.0
        for i, p in enumerate(self.probabilities()):
            cumulative += p
            if uniform < cumulative:
                return i
        return self.L - 1

    def learn(self, item, reward):
        estimate = reward / self.probabilities()[item]
        self.log_weights[item] += self.gamma * estimate / self.L


class LossExp3(Exp3):
    """Exp3 on losses 1 − r, without a uniform part: p ∝ exp(−η·Σ loss/p)."""

    def __init__(self, num_items, horizon):
        super().__init__(num_items, gamma=0.0)
        self.eta = math.sqrt(2 * math.log(num_items) / (horizon * num_items))

    def learn(self, item, reward):
        self.log_weights[item] -= self.eta * (1 - reward) / self.probabilities()[item]


class Index:
    """UCB1 of Auer et al., or KL-UCB."""

    def __init__(self, num_items, kind):
        self.L = num_items
        self.kind = kind
        self.pulls = [0] * num_items
        self.rewards = [0] * num_items

    def index(self, t):
        if self.kind == "ucb1":
            return [ucb1(self.rewards[i], self.pulls[i], t, 2.0) for i in range(self.L)]
        return [kl_ucb(self.rewards[i], self.pulls[i], t) for i in range(self.L)]

    def propose(self, words, t):
        return best_first(self.index(t), words, 1)[0]

    def learn(self, item, reward):
        self.pulls[item] += 1
        self.rewards[item] += reward


def exp3_gamma(num_items, horizon):
    return min(1.0, math.sqrt(num_items * math.log(num_items) / ((math.e - 1) * horizon)))


class RankedBandits:
    """One bandit per position; ``proposals`` are what they propose at the next step."""

    def __init__(self, bandits):
        self.bandits = bandits
        self.proposals = None

    def rank(self, words):
        """A proposal that is already shown gives way to the item of the largest word that is not."""
        ranking = []
        for proposal in self.proposals:
            if proposal in ranking:
                others = [i for i in range(len(words)) if i not in ranking]
                ranking.append(max(others, key=lambda i: words[i]))
            else:
                ranking.append(proposal)
        return ranking

    def update(self, ranking, clicks):
        """Returns how many proposals had been replaced."""
        replaced = 0
        for k, bandit in enumerate(self.bandits):
            if ranking[k] == self.proposals[k]:
                bandit.learn(self.proposals[k], int(clicks[k]))
            else:
                bandit.learn(self.proposals[k], 0)
                replaced += 1
        return replaced
