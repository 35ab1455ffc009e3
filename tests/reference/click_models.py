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
