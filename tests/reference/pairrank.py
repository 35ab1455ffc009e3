"""PairRank, line by line from Algorithm 1 of Jia et al. (WWW 2021): every pair a vector, every block a graph search."""

import math

import numpy as np
from scipy.optimize import minimize


def sigma(z):
    return 1 / (1 + math.exp(-z))


def examined(clicks, num_documents):
    """o_t: how many positions are examined: down to one past the last click; none without a click."""
    if not any(clicks):
        return 0
    last = max(k for k, click in enumerate(clicks) if click)
    return min(last + 2, num_documents, len(clicks))


def independent_pairs(ranking, clicks, num_documents):
    """G_ind: (clicked, unclicked) of the disjoint neighbouring positions (1, 2), (3, 4), …, line 8."""
    o = examined(clicks, num_documents)
    pairs = []
    for k in range(0, len(ranking) - 1, 2):
        if k + 1 < o and clicks[k] != clicks[k + 1]:
            up, down = ranking[k], ranking[k + 1]
            pairs.append((up, down) if clicks[k] else (down, up))
    return pairs


def matched_pairs(ranking, clicks, num_documents, words):
    """The released rule: clicked and unclicked documents, each in the order of their positions' words, zipped."""
    o = examined(clicks, num_documents)
    order = sorted(range(o), key=lambda k: words[k])
    clicked = [ranking[k] for k in order if clicks[k]]
    unclicked = [ranking[k] for k in order if not clicks[k]]
    return list(zip(clicked, unclicked, strict=False))


def certain_orders(X, theta, M, alpha):
    """E_c, line 3 (with M⁻¹): the set of (i, j) with i certainly above j."""
    inverse = np.linalg.inv(M)
    certain = set()
    for i in range(len(X)):
        for j in range(len(X)):
            x = X[i] - X[j]
            if i != j and sigma(x @ theta) - alpha * math.sqrt(max(x @ inverse @ x, 0)) > 0.5:
                certain.add((i, j))
    return certain


def ordered_blocks(n, certain):
    """B_t, line 5: components of the uncertain orders, merged while one lies between two parts of another, sorted."""
    block = list(range(n))

    def merge(a, b):
        for k in range(n):
            if block[k] == b:
                block[k] = a

    for i in range(n):
        for j in range(n):
            if i != j and (i, j) not in certain and (j, i) not in certain and block[i] != block[j]:
                merge(block[i], block[j])
    changed = True
    while changed:  # Definition 2(2): no k outside with (i, k) and (k, j) certain, i and j inside
        changed = False
        for i, k in sorted(certain):
            for k2, j in sorted(certain):
                if k == k2 and block[i] == block[j] != block[k]:
                    merge(block[i], block[k])
                    changed = True
    names = sorted(set(block))
    order = []
    while names:  # topological sort: next a block that no remaining block is certainly above
        for b in names:
            if not any(block[i] in names and block[i] != b and block[j] == b for i, j in certain):
                order.append([k for k in range(n) if block[k] == b])
                names.remove(b)
                break
    return order


def loss(theta, pairs, lam):
    """Eq. 1, every pair with the clicked document first, so that y = 1; and its gradient."""
    z = pairs @ theta
    value = np.logaddexp(0, -z).sum() + lam / 2 * theta @ theta
    return value, lam * theta - (1 / (1 + np.exp(z))) @ pairs


def mean_loss(theta, pairs, lam):
    return np.logaddexp(0, -(pairs @ theta)).mean() + lam * theta @ theta


def expanded(theta, pairs, around):
    """Σ log(1 + exp(−x_ijᵀθ)) to second order around the θ [pairs, d] of each pair; and its gradient."""
    start = (pairs * around).sum(axis=1)
    slope, curvature, apart = -1 / (1 + np.exp(start)), 1 / (2 + 2 * np.cosh(start)), pairs @ theta - start
    value = (np.logaddexp(0, -start) + slope * apart + curvature / 2 * apart**2).sum()
    return value, (slope + curvature * apart) @ pairs


class PairRank:
    """As printed; with ``mean``, the loss as released: the mean over all pairs plus lam·‖θ‖².

    The loss of a pair that is ``window`` steps old is replaced by its second-order expansion around the θ̂ before the
    step: ``self.theta``, which the test sets.
    """

    def __init__(self, num_features, lam, alpha, exploration, mean=False, window=None):
        self.lam, self.alpha, self.exploration, self.mean = lam, alpha, exploration, mean
        self.M = lam * np.eye(num_features)
        self.theta = np.zeros(num_features)
        self.pairs = []
        self.window, self.numbers = window, []  # how many pairs each step had
        self.around = []  # the θ̂ of each expanded pair; these are the first pairs

    def rank(self, X, words, list_size):
        certain = certain_orders(X, self.theta, self.M, self.alpha)
        if self.exploration == "random":
            shuffled = [sorted(b, key=lambda k: words[k]) for b in ordered_blocks(len(X), certain)]
            return [k for block in shuffled for k in block][:list_size]
        ranking = []
        for p in range(min(list_size, len(X))):
            left = [k for k in range(len(X)) if k not in ranking]
            free = [j for j in left if not any((i, j) in certain for i in left)]
            ranking.append(max(free, key=lambda k: (words[p][k] >> 1, -k)))
        return ranking

    def update(self, X, ranking, clicks, words=None):
        """With the ``words`` of the positions, pairs are matched as released."""
        if words is None:
            pairs = independent_pairs(ranking, clicks, len(X))
        else:
            pairs = matched_pairs(ranking, clicks, len(X), words)
        self.numbers.append(len(pairs))
        if self.window is not None and len(self.numbers) > self.window:
            self.around += [self.theta] * self.numbers[-1 - self.window]
        for i, j in pairs:
            x = X[i] - X[j]
            self.pairs.append(x)
            self.M += np.outer(x, x)

    def windowed_estimate(self):
        """The minimiser of eq. 1 with the expansions of old pairs, by SciPy."""
        pairs, old = np.array(self.pairs), len(self.around)

        def both(theta):
            value, gradient = loss(theta, pairs[old:], self.lam)
            if old:
                more, slope = expanded(theta, pairs[:old], np.array(self.around))
                value, gradient = value + more, gradient + slope
            return value, gradient

        options = {"maxiter": 10_000, "ftol": 1e-14, "gtol": 1e-9, "maxls": 100}
        return minimize(both, np.zeros_like(self.theta), jac=True, method="L-BFGS-B", options=options).x

    def estimate(self):
        """θ̂ by SciPy, line 9."""
        if not self.pairs:
            return np.zeros_like(self.theta)
        options = {"maxiter": 10_000, "ftol": 1e-14, "gtol": 1e-9, "maxls": 100}
        if self.mean:
            found = minimize(
                mean_loss, np.zeros_like(self.theta), (np.array(self.pairs), self.lam), "L-BFGS-B", options=options
            )
            return found.x
        found = minimize(
            loss, np.zeros_like(self.theta), (np.array(self.pairs), self.lam), "L-BFGS-B", jac=True, options=options
        )
        return found.x
