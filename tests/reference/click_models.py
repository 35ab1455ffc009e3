"""Click models as stories: every way a session can go, coin by coin, with its probability. Plain Python, float64.

Each function yields (probability, clicks, examined) of one full course of events; two courses may have the same clicks.
"""

import itertools

import numpy as np


def user_browsing(ranking, attraction, examination_after):
    """Dupret and Piwowarski, SIGIR 2008: examination depends on the position and on the last click above."""
    no_click_yet = len(examination_after) - 1

    def read(position, last_click, probability, clicks, examined):
        if position == len(ranking):
            yield probability, clicks, examined
            return
        looks = examination_after[position][last_click]
        likes = attraction[ranking[position]]
        yield from read(position + 1, last_click, probability * (1 - looks), (*clicks, False), (*examined, False))
        probability = probability * looks
        yield from read(position + 1, last_click, probability * (1 - likes), (*clicks, False), (*examined, True))
        yield from read(position + 1, position, probability * likes, (*clicks, True), (*examined, True))

    return read(0, no_click_yet, 1.0, (), ())


def dynamic_bayesian(ranking, attraction, satisfaction, continuation):
    """Chapelle and Zhang, WWW 2009: satisfied users leave, others continue with γ."""

    def after(item, clicked):
        if clicked:
            yield satisfaction[item], False
            yield (1 - satisfaction[item]) * continuation, True
            yield (1 - satisfaction[item]) * (1 - continuation), False
        else:
            yield continuation, True
            yield 1 - continuation, False

    return _walk(ranking, attraction, after)


def trust_bias(ranking, attraction, examination, trust):
    """Agarwal et al., WWW 2019: what is examined and not attractive is clicked all the same where it is trusted."""

    def look(position, item):
        yield 1 - examination[position], False, False
        yield examination[position] * attraction[item], True, True
        yield examination[position] * (1 - attraction[item]) * trust[position], True, True
        yield examination[position] * (1 - attraction[item]) * (1 - trust[position]), False, True

    return _position_by_position(ranking, look)


def rank_document_rate(ranking, attraction, relative_rate):
    """Chuklin et al., 2015, Sec. 3.2: a rate for every document and rank, of which α is the largest by document."""

    def look(position, item):
        rate = relative_rate[item][position]
        yield 1 - rate, False, False
        yield rate * attraction[item], True, True
        yield rate * (1 - attraction[item]), False, True

    return _position_by_position(ranking, look)


def _position_by_position(ranking, look):
    """Independent positions: ``look(position, item)`` has the courses (probability, clicked, examined) of one."""
    for courses in itertools.product(*(list(look(k, item)) for k, item in enumerate(ranking))):
        chances, clicks, examined = zip(*courses, strict=True)
        yield np.prod(chances), clicks, examined


def click_chain(ranking, attraction, tau1, tau2, tau3):
    """Guo et al., WWW 2009: a clicked item is relevant with α; then continue with τ3, otherwise with τ2."""

    def after(item, clicked):
        if clicked:
            for chance, tau in ((attraction[item], tau3), (1 - attraction[item], tau2)):
                yield chance * tau, True
                yield chance * (1 - tau), False
        else:
            yield tau1, True
            yield 1 - tau1, False

    return _walk(ranking, attraction, after)


def _walk(ranking, attraction, after):
    """A user who clicks what attracts and then continues or leaves, as ``after(item, clicked)`` says."""

    def read(position, probability, clicks, examined):
        if position == len(ranking):
            yield probability, clicks, examined
            return
        item = ranking[position]
        for clicked, chance in ((True, attraction[item]), (False, 1 - attraction[item])):
            for next_chance, goes_on in after(item, clicked):
                so_far = probability * chance * next_chance
                if goes_on:
                    yield from read(position + 1, so_far, (*clicks, clicked), (*examined, True))
                else:
                    left = (False,) * (len(ranking) - position - 1)
                    yield so_far, (*clicks, clicked, *left), (*examined, True, *left)

    return read(0, 1.0, (), ())


def patterns(num_positions):
    """bool[2^K, K]: all click patterns."""
    return np.array(list(itertools.product([False, True], repeat=num_positions)))


def pattern_probabilities(story):
    """float64[2^K]: the probability of every click pattern, in the order of ``patterns``."""
    total = {}
    for probability, clicks, _ in story:
        total[clicks] = total.get(clicks, 0.0) + probability
    return np.array([total.get(tuple(clicks), 0.0) for clicks in patterns(len(clicks)).tolist()])


def marginals(story):
    """float64[K] twice: P(click at k) and P(k is examined)."""
    probability, clicks, examined = (np.array(column) for column in zip(*story, strict=True))
    return probability @ clicks, probability @ examined
