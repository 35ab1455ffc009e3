"""Click models fitted by plain loops, every session and every position one after the other. Plain Python, float64.

Documents are shrunk towards the mean of all of them by ``strength`` observations; positions are smoothed to
(1 + happened) / (2 + possible).
"""


def shrunk(happened, possible, strength):
    mean = (1 + sum(happened)) / (2 + sum(possible))
    return [(strength * mean + h) / (strength + p) for h, p in zip(happened, possible, strict=True)]


def places_em(rankings, clicks, num_items, num_iterations, trusts=False, strength=2.0):
    """EM of the position-based model (α, χ) and, with ``trusts``, of the trust-bias model (α, χ, t).

    Agarwal et al., WWW 2019: a click if the position is examined, and the item attracts or the position is trusted.
    """
    K = len(rankings[0])
    alpha, chi, t = [0.5] * num_items, [0.5] * K, [0.25 if trusts else 0.0] * K
    chi[0], t[-1] = 1.0, 0.0
    for _ in range(num_iterations):
        attracted, shown = [0.0] * num_items, [0] * num_items
        examined, trusted = [0.0] * K, [0.0] * K
        for ranking, click in zip(rankings, clicks, strict=True):
            for k in range(K):
                d = ranking[k]
                shown[d] += 1
                wanted = 1 - (1 - alpha[d]) * (1 - t[k])
                if click[k]:
                    examined[k] += 1
                    attracted[d] += alpha[d] / wanted
                    trusted[k] += t[k] / wanted
                else:
                    no_click = 1 - chi[k] * wanted
                    examined[k] += chi[k] * (1 - alpha[d]) * (1 - t[k]) / no_click
                    attracted[d] += (1 - chi[k]) * alpha[d] / no_click
                    trusted[k] += (1 - chi[k]) * t[k] / no_click
        alpha = shrunk(attracted, shown, strength)
        chi = [1.0 if k == 0 else (1 + examined[k]) / (2 + len(rankings)) for k in range(K)]
        held = [not trusts or k == K - 1 for k in range(K)]
        t = [0.0 if held[k] else (1 + trusted[k]) / (2 + len(rankings)) for k in range(K)]
    return alpha, chi, t


def simplified_dynamic_bayesian_counts(rankings, clicks, num_items, strength=2.0):
    """Chapelle and Zhang, WWW 2009, Algorithm 1: the user examined everything down to the last click, and no more.

    A session without a click was examined whole. A click in the last position says nothing about satisfaction: nothing
    follows it, whether or not the user is satisfied.
    """
    clicked, viewed = [0] * num_items, [0] * num_items
    last_clicked, could_continue = [0] * num_items, [0] * num_items
    for ranking, click in zip(rankings, clicks, strict=True):
        K = len(ranking)
        last = max((k for k in range(K) if click[k]), default=K - 1)
        for k in range(last + 1):
            viewed[ranking[k]] += 1
            clicked[ranking[k]] += click[k]
            if click[k] and k < K - 1:
                could_continue[ranking[k]] += 1
                last_clicked[ranking[k]] += k == last
    return shrunk(clicked, viewed, strength), shrunk(last_clicked, could_continue, strength)


def click_rates(rankings, clicks, num_items, strength=2.0):
    """All clicks, clicks by rank, by document, and by document and rank: the last is shrunk towards its rank's rate."""
    K = len(rankings[0])
    clicked, shown = ([[0] * K for _ in range(num_items)] for _ in range(2))
    for ranking, click in zip(rankings, clicks, strict=True):
        for k in range(K):
            shown[ranking[k]][k] += 1
            clicked[ranking[k]][k] += click[k]
    total = sum(map(sum, clicked))
    everywhere = (1 + total) / (2 + len(rankings) * K)
    by_rank = [(1 + sum(row[k] for row in clicked)) / (2 + len(rankings)) for k in range(K)]
    by_document = shrunk([sum(row) for row in clicked], [sum(row) for row in shown], strength)
    columns = [shrunk([row[k] for row in clicked], [row[k] for row in shown], strength) for k in range(K)]
    return everywhere, by_rank, by_document, [list(row) for row in zip(*columns, strict=True)]
