"""PB-MHB: one Metropolis–Hastings sweep over θ and κ (Gauthier et al., IDA 2021), one parameter after the other."""

import math

from scipy.stats import truncnorm


def sweep(theta, kappa, clicks, shown, sigma, uniforms):
    """The particle after a sweep, and the margins log ρ − log u of all decisions; clicks and shown are [K][L]."""
    theta, kappa = list(theta), list(kappa)
    L, K = len(theta), len(kappa)
    margins = []

    def log_posterior(i, k, x):
        return (clicks[k][i] + 0.5) * math.log(x) + (shown[k][i] - clicks[k][i] + 0.5) * math.log1p(-x)

    def propose(value, number):
        """A proposal, and the log ratio of the masses that truncation leaves."""
        a, b = -value / sigma, (1 - value) / sigma
        new = truncnorm.ppf(uniforms[0][number], a, b, loc=value, scale=sigma)
        new = min(max(new, 1e-6), 1 - 1e-6)

        def mass(mean):
            return math.erf((1 - mean) / (sigma * math.sqrt(2))) + math.erf(mean / (sigma * math.sqrt(2)))

        return new, math.log(mass(value)) - math.log(mass(new))

    for i in range(L):
        new, log_rho = propose(theta[i], i)
        for k in range(K):
            log_rho += log_posterior(i, k, new * kappa[k]) - log_posterior(i, k, theta[i] * kappa[k])
        margins.append(log_rho - math.log(uniforms[1][i]))
        theta[i] = new if margins[-1] > 0 else theta[i]
    for k in range(1, K):
        new, log_rho = propose(kappa[k], L + k)
        for i in range(L):
            log_rho += log_posterior(i, k, theta[i] * new) - log_posterior(i, k, theta[i] * kappa[k])
        margins.append(log_rho - math.log(uniforms[1][L + k]))
        kappa[k] = new if margins[-1] > 0 else kappa[k]
    return theta, kappa, margins


def best_list(theta, kappa):
    """The m-th most attractive item at the m-th most examined position."""
    items = sorted(range(len(theta)), key=lambda i: -theta[i])
    ranking = [0] * len(kappa)
    for place, k in enumerate(sorted(range(len(kappa)), key=lambda k: -kappa[k])):
        ranking[k] = items[place]
    return ranking
