"""Unbiased learning from clicks by plain loops, line by line from the papers. Plain Python and NumPy, float64.

Sessions are (rows, clicks): the documents shown, top first, and whether each was clicked. Rankers are linear.
"""

import numpy as np


def affine_relevance(sessions, slope, offset, num_documents):
    """Vardasbi et al., CIKM 2020: the mean of (c − β_k) / α_k over the showings of a document."""
    total, shown = np.zeros(num_documents), np.zeros(num_documents)
    for rows, clicks in sessions:
        for k, d in enumerate(rows):
            total[d] += (clicks[k] - offset[k]) / slope[k]
            shown[d] += 1
    return total / np.maximum(shown, 1)


def doubly_robust_relevance(sessions, query_of, slope, offset, prediction, smallest):
    """Oosterhuis, TOIS 2023: R̂ + 1/N Σ_i (c_i − α_k·R̂ − β_k) / ρ, with ρ = 1/N Σ_i α_k, over the query's N sessions."""
    found = np.array(prediction, float)
    for d in range(len(prediction)):
        of_query = [(rows, clicks) for rows, clicks in sessions if query_of[rows[0]] == query_of[d]]
        rho, beyond = 0.0, 0.0
        for rows, clicks in of_query:
            if d in rows:
                k = rows.index(d)
                rho += slope[k] / len(of_query)
                beyond += (clicks[k] - slope[k] * prediction[d] - offset[k]) / len(of_query)
        if of_query:
            found[d] += beyond / max(rho, smallest)
    return found


def _softmax(scores):
    e = np.exp(scores - np.max(scores))
    return e / e.sum()


def dual_learning(batches, features, num_positions, rate, largest):
    """Ai et al., SIGIR 2018, Algorithm 1, by gradient descent: θ of the ranker, g of the propensity model."""
    theta, g = np.zeros(features.shape[1]), np.zeros(num_positions)
    for batch in batches:
        of_theta, of_g = np.zeros_like(theta), np.zeros_like(g)
        for rows, clicks in batch:
            x, n = features[rows], len(rows)
            f = x @ theta
            for k in range(n):
                if not clicks[k]:
                    continue
                ipw = min(np.exp(g[0] - g[k]), largest)  # P(o_1) / P(o_k)
                irw = min(np.exp(f[0] - f[k]), largest)  # P(r_1) / P(r_k)
                of_theta += ipw * (_softmax(f) @ x - x[k])  # of −log softmax(f)_k
                of_g[:n] += irw * _softmax(g[:n])
                of_g[k] -= irw
        theta = theta - rate * of_theta / len(batch)
        g = g - rate * of_g / len(batch)
    return theta, np.exp(g - g[0])


def pairwise_debiasing(batches, features, num_positions, rate, exponent, step_size, smallest):
    """Hu et al., WWW 2019: pairs of a clicked i and an unclicked j, weighted 1/(t⁺_i·t⁻_j), and then t⁺ and t⁻."""
    theta = np.zeros(features.shape[1])
    plus, minus = np.ones(num_positions), np.ones(num_positions)
    for batch in batches:
        gradient = np.zeros_like(theta)
        loss_plus, loss_minus = np.zeros(num_positions), np.zeros(num_positions)
        for rows, clicks in batch:
            f = features[rows] @ theta
            for i in range(len(rows)):
                for j in range(len(rows)):
                    if clicks[i] and not clicks[j]:
                        loss = np.log1p(np.exp(f[j] - f[i]))
                        loss_plus[i] += loss / minus[j]
                        loss_minus[j] += loss / plus[i]
                        slope = 1 / (1 + np.exp(f[i] - f[j]))
                        gradient += slope * (features[rows[j]] - features[rows[i]]) / (plus[i] * minus[j])
        theta = theta - rate * gradient / len(batch)
        for t, losses in ((plus, loss_plus), (minus, loss_minus)):
            if losses[0] > 0:
                t += step_size * ((losses / losses[0]) ** exponent - t)
            t[:] = np.maximum(t, smallest)
            t[0] = 1
    return theta, plus, minus


def regression_em(sessions, features, num_positions, num_iterations, rate, regularization):
    """Wang et al., WSDM 2018, Algorithm 1: expectation by showing; χ is its mean, f takes a step of Adam."""
    theta, chi = np.zeros(features.shape[1]), np.full(num_positions, 0.5)
    chi[0] = 1

    def expect(relevance):
        examined, places = np.zeros(num_positions), np.zeros(num_positions)
        relevant, shown = np.zeros(len(features)), np.zeros(len(features))
        for rows, clicks in sessions:
            for k, d in enumerate(rows):
                places[k] += 1
                shown[d] += 1
                no_click = 1 - chi[k] * relevance[d]
                examined[k] += 1 if clicks[k] else chi[k] * (1 - relevance[d]) / no_click
                relevant[d] += 1 if clicks[k] else relevance[d] * (1 - chi[k]) / no_click
        return examined, places, relevant, shown

    _, _, relevant, shown = expect(np.full(len(features), 0.5))
    mean = (1 + relevant.sum()) / (2 + shown.sum())
    bias = np.log(mean / (1 - mean))
    moments, squares = np.zeros(len(theta) + 1), np.zeros(len(theta) + 1)
    for t in range(num_iterations):
        relevance = 1 / (1 + np.exp(-features @ theta - bias))
        examined, places, relevant, shown = expect(relevance)
        chi = (1 + examined) / (2 + places)
        chi[0] = 1
        error = (relevance * shown - relevant) / shown.sum()
        gradient = np.append(error @ features + regularization * theta, error.sum())
        moments = 0.9 * moments + 0.1 * gradient
        squares = 0.999 * squares + 0.001 * gradient**2
        now = rate * (1 + np.cos(np.pi * t / num_iterations)) / 2
        step = now * (moments / (1 - 0.9 ** (t + 1))) / (np.sqrt(squares / (1 - 0.999 ** (t + 1))) + 1e-8)
        theta, bias = theta - step[:-1], bias - step[-1]
    return theta, chi, 1 / (1 + np.exp(-features @ theta - bias))
