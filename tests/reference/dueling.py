"""DBGD (Yue and Joachims, ICML 2009) and MGD (Schuth et al., WSDM 2016) with team draft, from their definitions."""


def team_draft(lists, orders, list_size):
    """Rounds in which every ranker, in the round's order, adds its best document that is not yet in the list."""
    multileaved, teams = [], []
    for order in orders:
        for ranker in order:
            if len(multileaved) < min(list_size, len(lists[0])):
                multileaved.append(next(k for k in lists[ranker] if k not in multileaved))
                teams.append(ranker)
    return multileaved, teams


def released_draft(lists, orders, list_size):
    """The same, but the common prefix of all lists is in nobody's team (−1), and the draft begins below it."""
    prefix = []
    for documents in zip(*lists, strict=True):
        if len(set(documents)) > 1 or len(prefix) == list_size:
            break
        prefix.append(documents[0])
    rest = [[k for k in one if k not in prefix] for one in lists]
    multileaved, teams = team_draft(rest, orders, list_size - len(prefix))
    return prefix + multileaved, [-1] * len(prefix) + teams


class MGD:
    def __init__(self, weights, distance, learning_rate):
        self.weights, self.distance, self.learning_rate = list(weights), distance, learning_rate

    def lists(self, X, directions, order):
        """Of the current ranker, then of each candidate; equal scores as in ``order``."""
        rankers = [self.weights]
        rankers += [[w + self.distance * u for w, u in zip(self.weights, d, strict=True)] for d in directions]
        documents = [k for k in order if k < len(X)]
        return [
            sorted(documents, key=lambda k, w=w: -sum(a * b for a, b in zip(X[k], w, strict=True))) for w in rankers
        ]

    def update(self, directions, teams, clicks):
        credit = [0] * (len(directions) + 1)
        for ranker, click in zip(teams, clicks, strict=False):
            if ranker >= 0:
                credit[ranker] += bool(click)
        winners = [d for d, c in zip(directions, credit[1:], strict=True) if c > credit[0]]
        for f in range(len(self.weights)):
            if winners:
                self.weights[f] += self.learning_rate * sum(d[f] for d in winners) / len(winners)
