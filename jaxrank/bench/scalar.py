"""The speed baseline: the plain references of tests/reference as scalar loops on one core, compiled by numba.

One lane after the other, one step after the other, as one would write it in C. A policy is three functions:

    init(world)                               -> state, a tuple of arrays
    rank(state, world, t, words, ranking)     fills ranking, from random words
    update(state, world, t, words, ranking, clicks)

``words`` are the random words of a step, as many as the policy asks for; ``tests/bench/test_bench.py`` feeds the same
ones to the references and compares the lists.
"""

import math
from collections import namedtuple
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

# Numba's reference counting is off: nothing here allocates, and it would cost 3 times as much as the rest.
compiled = numba.njit(error_model="numpy", _nrt=False)  # type: ignore[call-overload]


class World(NamedTuple):
    """One lane's world. ``position`` is v of DCM and χ of PBM, and not used in CM."""

    attraction: np.ndarray  # float64[L]
    position: np.ndarray  # float64[K]
    base: np.ndarray  # int64[L]
    optimal: np.ndarray  # int64[K]
    list_size: int
    top: int
    horizon: int


@compiled
def next_word(rng):
    """SplitMix64."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def uniform(word):
    return (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


# Click models: sample(world, rng, ranking, clicks) and reward(world, ranking).


@compiled
def cm_sample(world, rng, ranking, clicks):
    for k in range(world.list_size):
        clicks[k] = 0
    for k in range(world.list_size):
        if uniform(next_word(rng)) < world.attraction[ranking[k]]:
            clicks[k] = 1
            break


@compiled
def cm_reward(world, ranking):
    no_click = 1.0
    for k in range(world.top):
        no_click *= 1 - world.attraction[ranking[k]]
    return 1 - no_click


@compiled
def dcm_sample(world, rng, ranking, clicks):
    for k in range(world.list_size):
        clicks[k] = 0
    for k in range(world.list_size):
        if uniform(next_word(rng)) < world.attraction[ranking[k]]:
            clicks[k] = 1
            if uniform(next_word(rng)) < world.position[k]:
                break


@compiled
def dcm_reward(world, ranking):
    stays = 1.0
    for k in range(world.top):
        stays *= 1 - world.position[k] * world.attraction[ranking[k]]
    return 1 - stays


@compiled
def pbm_sample(world, rng, ranking, clicks):
    for k in range(world.list_size):
        clicks[k] = uniform(next_word(rng)) < world.position[k] * world.attraction[ranking[k]]


@compiled
def pbm_reward(world, ranking):
    total = 0.0
    for k in range(world.top):
        total += world.position[k] * world.attraction[ranking[k]]
    return total


CLICK_MODELS = {"cm": (cm_sample, cm_reward), "dcm": (dcm_sample, dcm_reward), "pbm": (pbm_sample, pbm_reward)}


# Policies that do not learn.


def nothing(world):
    return np.zeros(0)


@compiled
def no_update(state, world, t, words, ranking, clicks):
    pass


@compiled
def static_rank(state, world, t, words, ranking):
    for k in range(world.list_size):
        ranking[k] = world.base[k]


@compiled
def oracle_rank(state, world, t, words, ranking):
    for k in range(world.list_size):
        ranking[k] = world.optimal[k]


def item_numbers(world):
    return np.arange(len(world.attraction))


@compiled
def random_rank(state, world, t, words, ranking):
    items = state
    for k in range(world.list_size):
        other = k + np.int64(words[k] % np.uint64(len(items) - k))
        items[k], items[other] = items[other], items[k]
        ranking[k] = items[k]


# BubbleRank.


BubbleRank = namedtuple("BubbleRank", "base s n log_inverse_delta challenger")


def bubblerank_init(world):
    L = len(world.attraction)
    log_inverse_delta = 4 * math.log(world.horizon)
    return BubbleRank(
        world.base.copy(),
        np.zeros((L, L), np.int64),
        np.zeros((L, L), np.int64),
        np.array([log_inverse_delta]),
        np.full(1, -1),
    )


@compiled
def certain(s, n, log_inverse_delta):
    return s > 2 * math.sqrt(n * log_inverse_delta)


@compiled
def last_is_free(world, h):
    return len(world.attraction) > world.list_size and (world.list_size - 1 - h) % 2 == 0


@compiled
def bubblerank_rank(state, world, t, words, ranking):
    base, s, n, log_inverse_delta, challenger = state.base, state.s, state.n, state.log_inverse_delta, state.challenger
    K, L, level = world.list_size, len(base), log_inverse_delta[0]
    h = 0 if t % 2 == 1 else 1
    for k in range(K):
        ranking[k] = base[k]
    for k in range(h, K - 1, 2):
        i, j = ranking[k], ranking[k + 1]
        if not certain(s[i, j], n[i, j], level) and (words[k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
            ranking[k], ranking[k + 1] = j, i
    challenger[0] = -1
    if last_is_free(world, h):
        last = base[K - 1]
        number = 0
        for m in range(K, L):
            number += not certain(s[last, base[m]], n[last, base[m]], level)
        if number > 0:
            chosen = np.int64(words[-1] % np.uint64(number))
            for m in range(K, L):
                if not certain(s[last, base[m]], n[last, base[m]], level):
                    if chosen == 0:
                        challenger[0] = base[m]
                    chosen -= 1
            if (words[(K - 1) >> 6] >> np.uint64((K - 1) & 63)) & np.uint64(1):
                ranking[K - 1] = challenger[0]


@compiled
def bubblerank_update(state, world, t, words, ranking, clicks):
    base, s, n, log_inverse_delta, challenger = state.base, state.s, state.n, state.log_inverse_delta, state.challenger
    K, level = world.list_size, log_inverse_delta[0]
    h = 0 if t % 2 == 1 else 1
    for k in range(h, K - 1, 2):
        z = clicks[k] - clicks[k + 1]
        if z != 0:
            i, j = ranking[k], ranking[k + 1]
            s[i, j] += z
            s[j, i] -= z
            n[i, j] += 1
            n[j, i] += 1
    if challenger[0] >= 0 and clicks[K - 1]:
        i, j = ranking[K - 1], challenger[0]
        if i == j:
            j = base[K - 1]
        s[i, j] += 1
        s[j, i] -= 1
        n[i, j] += 1
        n[j, i] += 1
    for k in range(K - 1):
        i, j = base[k], base[k + 1]
        if certain(s[j, i], n[j, i], level):
            base[k], base[k + 1] = j, i
    for m in range(K, len(base)):
        i, j = base[K - 1], base[m]
        if certain(s[j, i], n[j, i], level):
            base[K - 1], base[m] = j, i
            break


# TopRank.

LOG_C = math.log(4 * math.sqrt(2 / math.pi) / math.erf(math.sqrt(2)))


TopRank = namedtuple("TopRank", "S N G block C log_inverse_delta items")


def toprank_init(world):
    L = len(world.attraction)
    return TopRank(
        np.zeros((L, L), np.int64),
        np.zeros((L, L), np.int64),
        np.zeros((L, L), np.bool_),
        np.zeros(L, np.int64),  # the block of each item
        np.zeros(L, np.int64),  # clicks by item
        np.array([math.log(world.horizon)]),
        np.zeros(L, np.int64),
    )


@compiled
def sort_by_key(items, start, stop, keys):
    """Insertion sort of these items by their keys, smallest first."""
    for a in range(start + 1, stop):
        item = items[a]
        b = a
        while b > start and keys[items[b - 1]] > keys[item]:
            items[b] = items[b - 1]
            b -= 1
        items[b] = item


@compiled
def toprank_rank(state, world, t, words, ranking):
    block, items = state.block, state.items
    L, K = len(block), world.list_size
    number, d = 0, 0
    while number < L:
        start = number
        for i in range(L):
            if block[i] == d:
                items[number] = i
                number += 1
        sort_by_key(items, start, number, words)
        d += 1
    for k in range(K):
        ranking[k] = items[k]


@compiled
def toprank_update(state, world, t, words, ranking, clicks):
    S, N, G, block, C, log_inverse_delta = state.S, state.N, state.G, state.block, state.C, state.log_inverse_delta
    L = len(block)
    for i in range(L):
        C[i] = 0
    for k in range(world.list_size):
        C[ranking[k]] = clicks[k]
    for i in range(L):
        for j in range(L):
            if block[i] == block[j]:
                S[i, j] += C[i] - C[j]
                N[i, j] += abs(C[i] - C[j])
    for i in range(L):
        for j in range(L):
            n = N[i, j]
            if n > 0 and S[i, j] >= math.sqrt(2 * n * (LOG_C + 0.5 * math.log(n) + log_inverse_delta[0])):
                G[i, j] = True
    for i in range(L):
        block[i] = -1
    number, d = 0, 0
    while number < L:
        for j in range(L):
            if block[j] == -1:
                beaten = False
                for i in range(L):
                    if G[i, j] and (block[i] == -1 or block[i] == d):
                        beaten = True
                        break
                if not beaten:
                    block[j] = d
                    number += 1
        d += 1


# BatchRank.


@compiled
def kl(p, q):
    total = 0.0
    if p > 0:
        total += p * math.log(p / q) if q > 0 else math.inf
    if p < 1:
        total += (1 - p) * math.log((1 - p) / (1 - q)) if q < 1 else math.inf
    return total


@compiled
def kl_bound(p, level, far, halvings):
    """The q between p and ``far`` that is farthest from p with KL(p, q) ≤ level."""
    near = p
    if kl(p, far) <= level:
        return far
    for _ in range(halvings):
        q = (near + far) / 2
        if kl(p, q) <= level:
            near = q
        else:
            far = q
    return near


BatchRank = namedtuple("BatchRank", "first last stage n c items places lower upper")


def batchrank_init(world):
    L = len(world.attraction)
    first, stage, n, c, items, places = np.zeros((6, L), np.int64)
    last = np.full(L, world.list_size - 1)
    return BatchRank(first, last, stage, n, c, items, places, np.zeros(L), np.zeros(L))


@compiled
def batchrank_rank(state, world, t, words, ranking):
    first, last, n, items, places = state.first, state.last, state.n, state.items, state.places
    L, K = len(first), world.list_size
    start = 0
    while start < K:  # one batch after the other
        number, end = 0, start
        for i in range(L):
            if first[i] == start:
                item = i
                end = last[i] + 1
                b = number
                while b > 0 and (
                    n[items[b - 1]] > n[item] or (n[items[b - 1]] == n[item] and words[items[b - 1]] > words[item])
                ):
                    items[b] = items[b - 1]
                    b -= 1
                items[b] = item
                number += 1
        for k in range(start, end):
            place = k - start
            b = place
            while b > 0 and words[L + start + places[b - 1]] > words[L + start + place]:
                places[b] = places[b - 1]
                b -= 1
            places[b] = place
        for k in range(start, end):
            ranking[k] = items[places[k - start]]
        start = end


@compiled
def batchrank_update(state, world, t, words, ranking, clicks):
    first, last, stage, n, c = state.first, state.last, state.stage, state.n, state.c
    L, K = len(first), world.list_size
    log_horizon = math.log(world.horizon)
    start = 0
    while start < K:
        n_min, number, end, ell = 2**31, 0, 0, 0
        for i in range(L):
            if first[i] == start:
                n_min = min(n_min, n[i])
                number += 1
                end = last[i] + 1
                ell = stage[i]
        for k in range(start, end):
            d = ranking[k]
            if n[d] == n_min:
                c[d] += clicks[k]
                n[d] += 1
        if number > 1:
            n_stage = math.ceil(16 * 4.0**ell * log_horizon)
            n_min = n_stage + 1
            for i in range(L):
                if first[i] == start:
                    n_min = min(n_min, n[i])
            if n_min == n_stage:
                update_batch(state, start, end, n_stage, log_horizon)
        start = end


@compiled
def update_batch(state, start, end, n_stage, log_horizon):
    first, last, stage, n, c = state.first, state.last, state.stage, state.n, state.c
    items, lower, upper = state.items, state.lower, state.upper
    L, length = len(first), end - start
    level = max(log_horizon + 3 * math.log(log_horizon), 0.0) / n_stage
    number = 0
    for i in range(L):
        if first[i] == start:
            upper[i] = kl_bound(c[i] / n_stage, level, 1.0, 100)
            lower[i] = kl_bound(c[i] / n_stage, level, 0.0, 100)
            b = number
            while b > 0 and lower[items[b - 1]] < lower[i]:
                items[b] = items[b - 1]
                b -= 1
            items[b] = i
            number += 1
    s = 0
    for k in range(1, length):
        highest = 0.0
        for m in range(k, number):
            highest = max(highest, upper[items[m]])
        if lower[items[k - 1]] > highest:
            s = k
    threshold = lower[items[length - 1]]
    for m in range(number):
        i = items[m]
        n[i] = c[i] = 0
        if s == 0:
            if upper[i] < threshold:
                first[i] = last[i] = L
                stage[i] = 0
            else:
                stage[i] += 1
        else:
            stage[i] = 0
            if m < s:
                last[i] = start + s - 1
            else:
                first[i] = start + s


# Cascading bandits.


Cascade = namedtuple("Cascade", "observed clicked index items")


def cascade_init(world):
    L = len(world.attraction)
    return Cascade(np.zeros(L, np.int64), np.zeros(L, np.int64), np.zeros(L), np.zeros(L, np.int64))


@compiled
def kl_ucb(successes, trials, t):
    if trials == 0:
        return math.inf
    level = max(0.0, math.log(t) + 3 * math.log(math.log(t))) if t > 1 else 0.0
    return kl_bound(successes / trials, level / trials, 1.0, 40)


@compiled
def ucb1(successes, trials, t, width):
    if trials == 0:
        return math.inf
    return successes / trials + math.sqrt(width * math.log(t) / trials)


@compiled
def best_first(index, words, items, ranking):
    """The items of the highest index; of equals, the one with the larger random word."""
    for a in range(len(index)):
        b = a
        while b > 0 and (
            index[items[b - 1]] < index[a] or (index[items[b - 1]] == index[a] and words[items[b - 1]] < words[a])
        ):
            items[b] = items[b - 1]
            b -= 1
        items[b] = a
    for k in range(len(ranking)):
        ranking[k] = items[k]


@compiled
def cascade_klucb_rank(state, world, t, words, ranking):
    observed, clicked, index, items = state.observed, state.clicked, state.index, state.items
    for e in range(len(index)):
        index[e] = kl_ucb(clicked[e], observed[e], t)
    best_first(index, words, items, ranking)


@compiled
def cascade_ucb1_rank(state, world, t, words, ranking):
    observed, clicked, index, items = state.observed, state.clicked, state.index, state.items
    for e in range(len(index)):
        index[e] = ucb1(clicked[e], observed[e], t, 1.5)
    best_first(index, words, items, ranking)


@compiled
def cascade_ts_rank(state, world, t, words, ranking):
    observed, clicked, index, items = state.observed, state.clicked, state.index, state.items
    for e in range(len(index)):
        index[e] = np.random.beta(1.0 + clicked[e], 1.0 + observed[e] - clicked[e])  # noqa: NPY002
    best_first(index, words, items, ranking)


@compiled
def cascade_first_update(state, world, t, words, ranking, clicks):
    observed, clicked = state.observed, state.clicked
    for k in range(world.list_size):
        observed[ranking[k]] += 1
        if clicks[k]:
            clicked[ranking[k]] += 1
            break


@compiled
def cascade_last_update(state, world, t, words, ranking, clicks):
    observed, clicked = state.observed, state.clicked
    stop = world.list_size - 1
    for k in range(world.list_size):
        if clicks[k]:
            stop = k
    for k in range(stop + 1):
        observed[ranking[k]] += 1
        clicked[ranking[k]] += clicks[k]


# Cascading bandits for attractions that change. The constants are those of the policies' defaults.

SPLIT_LEVELS, SPLITS_PER_LEVEL, TEST_EVERY = 14, 4, 10


Discounted = namedtuple("Discounted", "observed clicked index items one_minus_gamma")


def discounted_init(world):
    L = len(world.attraction)
    one_minus_gamma = np.array([0.25 / math.sqrt(world.horizon)])
    return Discounted(np.zeros(L), np.zeros(L), np.zeros(L), np.zeros(L, np.int64), one_minus_gamma)


@compiled
def width_index(clicked, observed, level, index):
    for e in range(len(index)):
        index[e] = math.inf
        if observed[e] > 0:
            index[e] = clicked[e] / observed[e] + math.sqrt(level / observed[e])


@compiled
def cascade_ducb_rank(state, world, t, words, ranking):
    one_minus_gamma = state.one_minus_gamma[0]
    steps = (1 - (1 - one_minus_gamma) ** t) / one_minus_gamma
    width_index(state.clicked, state.observed, 4 * 0.5 * math.log(max(steps, 1.0)), state.index)
    best_first(state.index, words, state.items, ranking)


@compiled
def cascade_ducb_update(state, world, t, words, ranking, clicks):
    observed, clicked, gamma = state.observed, state.clicked, 1 - state.one_minus_gamma[0]
    for e in range(len(observed)):
        observed[e] *= gamma
        clicked[e] *= gamma
    cascade_first_update(state, world, t, words, ranking, clicks)


Window = namedtuple("Window", "observed clicked index items window")


def window_init(world):
    L = len(world.attraction)
    length = max(1, round(2 * math.sqrt(world.horizon * math.log(world.horizon))))
    counts = np.zeros((2, L), np.int64)
    return Window(counts[0], counts[1], np.zeros(L), np.zeros(L, np.int64), np.zeros((length, L), np.int8))


@compiled
def cascade_swucb_rank(state, world, t, words, ranking):
    width_index(state.clicked, state.observed, 0.5 * math.log(min(t, len(state.window))), state.index)
    best_first(state.index, words, state.items, ranking)


@compiled
def cascade_swucb_update(state, world, t, words, ranking, clicks):
    observed, clicked, row = state.observed, state.clicked, state.window[t % len(state.window)]
    for e in range(len(row)):
        observed[e] -= row[e] > 0
        clicked[e] -= row[e] == 2
        row[e] = 0
    for k in range(world.list_size):
        row[ranking[k]] = 1 + clicks[k]
        observed[ranking[k]] += 1
        if clicks[k]:
            clicked[ranking[k]] += 1
            break


Tested = namedtuple("Tested", "observed clicked index items past_observed past_clicked numbers level period")


def tested_init(world):
    L = len(world.attraction)
    log_n = math.log(world.horizon)
    period = max(math.floor(L / min(math.sqrt(log_n / world.horizon), 1.0)), L + 1)
    past = np.zeros((2, SPLIT_LEVELS * SPLITS_PER_LEVEL, L), np.int64)
    counts = np.zeros((2, L), np.int64)
    numbers = np.zeros(2, np.int64)  # the step of the restart, and the number of restarts
    level = np.array([math.log(3) + log_n])
    return Tested(
        counts[0], counts[1], np.zeros(L), np.zeros(L, np.int64), past[0], past[1], numbers, level, np.array([period])
    )


@compiled
def explored(state, since, words, ranking):
    """Is it the turn of an item to be shown first?"""
    turn, L = since % state.period[0], len(state.index)
    if turn < 1 or turn > L:
        return False
    for e in range(L):
        state.index[e] = 1.0 if e == turn - 1 else 0.0
    best_first(state.index, words, state.items, ranking)
    return True


@compiled
def glrt_ucb_rank(state, world, t, words, ranking):
    since = t - state.numbers[0]
    if not explored(state, since, words, ranking):
        cascade_ucb1_rank(state, world, since, words, ranking)


@compiled
def glrt_klucb_rank(state, world, t, words, ranking):
    since = t - state.numbers[0]
    if not explored(state, since, words, ranking):
        cascade_klucb_rank(state, world, since, words, ranking)


@compiled
def log_likelihood(c, n):
    total = 0.0
    if c > 0:
        total += c * math.log(c / n)
    if c < n:
        total += (n - c) * math.log((n - c) / n)
    return total


@compiled
def glrt_changed(state):
    for e in range(len(state.observed)):
        n, c = state.observed[e], state.clicked[e]
        if n < 2:
            continue
        threshold = state.level[0] + 1.5 * math.log(n) + log_likelihood(c, n)
        for row in range(len(state.past_observed)):
            m, d = state.past_observed[row, e], state.past_clicked[row, e]
            if 0 < m < n and log_likelihood(d, m) + log_likelihood(c - d, n - m) >= threshold:
                return True
    return False


@compiled
def glrt_update(state, world, t, words, ranking, clicks):
    cascade_first_update(state, world, t, words, ranking, clicks)
    if t % TEST_EVERY:
        return
    q, level = t // TEST_EVERY, 0
    while level < SPLIT_LEVELS - 1 and (q >> level) % 2 == 0:
        level += 1
    slot = (q >> level if level == SPLIT_LEVELS - 1 else q >> (level + 1)) % SPLITS_PER_LEVEL
    row = level * SPLITS_PER_LEVEL + slot
    for e in range(len(state.observed)):
        state.past_observed[row, e] = state.observed[e]
        state.past_clicked[row, e] = state.clicked[e]
    if glrt_changed(state):
        for e in range(len(state.observed)):
            state.observed[e] = state.clicked[e] = 0
            for row in range(len(state.past_observed)):
                state.past_observed[row, e] = state.past_clicked[row, e] = 0
        state.numbers[0] = t
        state.numbers[1] += 1


# Ranked bandits. The proposals of a step are drawn at its start; words: L for the order, then the bandits'.


Exp3 = namedtuple("Exp3", "log_weights gamma p proposals shown")


def exp3_init(world):
    K, L = world.list_size, len(world.attraction)
    gamma = min(1.0, math.sqrt(L * math.log(L) / ((math.e - 1) * world.horizon)))
    return Exp3(np.zeros((K, L)), np.array([gamma]), np.zeros(L), np.zeros(K, np.int64), np.zeros(L, np.bool_))


@compiled
def exp3_probabilities(log_weights, k, gamma, p):
    highest = log_weights[k, 0]
    for i in range(1, len(p)):
        highest = max(highest, log_weights[k, i])
    total = 0.0
    for i in range(len(p)):
        p[i] = math.exp(log_weights[k, i] - highest)
        total += p[i]
    for i in range(len(p)):
        p[i] = (1 - gamma) * p[i] / total + gamma / len(p)


@compiled
def fill_in(proposals, words, shown, ranking):
    """Replaces a proposal that is already shown by the item with the largest word that is not shown."""
    L = len(shown)
    for i in range(L):
        shown[i] = False
    for k in range(len(proposals)):
        item = proposals[k]
        if shown[item]:
            item = -1
            for i in range(L):
                if not shown[i] and (item < 0 or words[i] > words[item]):
                    item = i
        shown[item] = True
        ranking[k] = item


@compiled
def exp3_rank(state, world, t, words, ranking):
    log_weights, gamma, p, proposals, shown = state.log_weights, state.gamma, state.p, state.proposals, state.shown
    K, L = log_weights.shape
    for k in range(K):
        exp3_probabilities(log_weights, k, gamma[0], p)
        u = uniform(words[L + k])
        cumulative = 0.0
        proposals[k] = L - 1
        for i in range(L):
            cumulative += p[i]
            if u < cumulative:
                proposals[k] = i
                break
    fill_in(proposals, words, shown, ranking)


@compiled
def exp3_update(state, world, t, words, ranking, clicks):
    log_weights, gamma, p, proposals = state.log_weights, state.gamma, state.p, state.proposals
    K, L = log_weights.shape
    for k in range(K):
        reward = clicks[k] if ranking[k] == proposals[k] else 0
        exp3_probabilities(log_weights, k, gamma[0], p)
        log_weights[k, proposals[k]] += gamma[0] * (reward / p[proposals[k]]) / L


Ranked = namedtuple("Ranked", "pulls rewards proposals shown")


def ranked_init(world):
    K, L = world.list_size, len(world.attraction)
    zeros = np.zeros((K, L), np.int64)
    return Ranked(zeros, zeros.copy(), np.zeros(K, np.int64), np.zeros(L, np.bool_))


@compiled
def ranked_ucb1_rank(state, world, t, words, ranking):
    pulls, rewards, proposals, shown = state.pulls, state.rewards, state.proposals, state.shown
    K, L = pulls.shape
    for k in range(K):
        best, highest = 0, -1.0
        for i in range(L):
            index = ucb1(rewards[k, i], pulls[k, i], t, 2.0)
            if index > highest or (index == highest and words[L + k * L + i] > words[L + k * L + best]):
                best, highest = i, index
        proposals[k] = best
    fill_in(proposals, words, shown, ranking)


@compiled
def ranked_klucb_rank(state, world, t, words, ranking):
    pulls, rewards, proposals, shown = state.pulls, state.rewards, state.proposals, state.shown
    K, L = pulls.shape
    for k in range(K):
        best, highest = 0, -1.0
        for i in range(L):
            index = kl_ucb(rewards[k, i], pulls[k, i], t)
            if index > highest or (index == highest and words[L + k * L + i] > words[L + k * L + best]):
                best, highest = i, index
        proposals[k] = best
    fill_in(proposals, words, shown, ranking)


@compiled
def ranked_update(state, world, t, words, ranking, clicks):
    pulls, rewards, proposals = state.pulls, state.rewards, state.proposals
    for k in range(world.list_size):
        pulls[k, proposals[k]] += 1
        if ranking[k] == proposals[k]:
            rewards[k, proposals[k]] += clicks[k]


# Position-based bandits. EPSILON is that of the policies' default.

EPSILON = 0.01


PositionBased = namedtuple("PositionBased", "shown clicked order index items best grid")


def position_based_init(world):
    K, L = world.list_size, len(world.attraction)
    zeros = np.zeros((K, L), np.int64)
    order = np.argsort(-world.position[:K], kind="mergesort")  # positions, the most examined first
    return PositionBased(
        zeros, zeros.copy(), order, np.zeros(L), np.zeros(L, np.int64), np.zeros(K, np.int64), np.zeros(CELLS)
    )


@compiled
def examined_and_clicked(state, world, k):
    shown, clicked = state.shown, state.clicked
    examined, clicks, times = 0.0, 0, 0
    for p in range(world.list_size):
        examined += world.position[p] * shown[p, k]
        clicks += clicked[p, k]
        times += shown[p, k]
    return examined, clicks, times


@compiled
def pbm_ucb_rank(state, world, t, words, ranking):
    order, index, items, best = state.order, state.index, state.items, state.best
    delta = (1 + EPSILON) * math.log(t)
    for k in range(len(index)):
        examined, clicks, times = examined_and_clicked(state, world, k)
        index[k] = math.inf
        if examined > 0:
            index[k] = clicks / examined + math.sqrt(times / examined) * math.sqrt(delta / (2 * examined))
    best_first(index, words, items, best)
    for place in range(world.list_size):
        ranking[order[place]] = best[place]


@compiled
def pbm_divergence(state, world, k, q):
    shown, clicked = state.shown, state.clicked
    total = 0.0
    for p in range(world.list_size):
        if shown[p, k] > 0:
            total += shown[p, k] * kl(clicked[p, k] / shown[p, k], world.position[p] * q)
    return total


@compiled
def pbm_may_reach(state, world, k, c, delta):
    """Is U_k(t) ≥ c? As in the policy: is c below the minimum of Φ_k, or Φ_k(c) ≤ δ_t?"""
    shown, clicked = state.shown, state.clicked
    rising = 0.0
    for p in range(world.list_size):
        x = world.position[p] * c
        rising += clicked[p, k] - (shown[p, k] - clicked[p, k]) * x / max(1 - x, 1e-30)
    return rising >= 0 or pbm_divergence(state, world, k, c) <= delta


@compiled
def pbm_pie_rank(state, world, t, words, ranking):
    order, index, items, best = state.order, state.index, state.items, state.best
    K, L = world.list_size, len(index)
    for k in range(L):
        examined, clicks, _ = examined_and_clicked(state, world, k)
        index[k] = clicks / examined if examined > 0 else math.inf
    best_first(index, words, items, best)
    last = index[best[K - 1]]
    number = 0
    if last <= 1:
        for k in range(L):
            leads = False
            for place in range(K):
                leads |= best[place] == k
            if not leads and pbm_may_reach(state, world, k, last, (1 + EPSILON) * math.log(t)):
                items[number] = k
                number += 1
    if number > 0 and words[L] & np.uint64(1):
        best[K - 1] = items[np.int64((words[L] >> np.uint64(1)) % np.uint64(number))]
    for place in range(K):
        ranking[order[place]] = best[place]


HALVINGS, CELLS, REACH = 20, 64, 6.5  # of the policy's grid


@compiled
def pbm_ts_sample(state, world, k, u):
    """One draw from PBM-TS's posterior, by the policy's own method: inverse CDF on a grid around the peak."""
    shown, clicked, grid = state.shown, state.clicked, state.grid
    K = world.list_size
    clicks = 0.5
    for p in range(K):
        clicks += clicked[p, k]
    low = 2.0**-HALVINGS
    for i in range(HALVINGS):
        middle = low + math.pi / 2 * 2.0 ** (-1 - i)
        sine, cosine = math.sin(middle) ** 2, math.cos(middle) ** 2
        falling = 0.5 / cosine
        for p in range(K):
            chi = world.position[p]
            falling += (shown[p, k] - clicked[p, k]) * chi / ((1 - chi) + chi * cosine)
        if clicks / sine > falling:
            low = middle
    theta, cosine = math.sin(low) ** 2, math.cos(low) ** 2
    curvature = clicks / theta**2 + 0.5 / cosine**2
    for p in range(K):
        chi = world.position[p]
        curvature += (shown[p, k] - clicked[p, k]) * (chi / ((1 - chi) + chi * cosine)) ** 2
    reach = REACH / math.sqrt(4 * theta * cosine * curvature)
    start = max(low - reach, 0.0)
    width = (min(low + reach, math.pi / 2) - start) / CELLS
    total = 0.0
    for i in range(CELLS):
        phi = start + (i + 0.5) * width
        gain = math.sin(phi - low) * math.sin(phi + low)
        log_density = clicks * math.log1p(max(gain / theta, -1 + 1e-12))
        log_density += 0.5 * math.log1p(max(-gain / cosine, -1 + 1e-12))
        for p in range(K):
            chi = world.position[p]
            ratio = chi / ((1 - chi) + chi * cosine)
            log_density += (shown[p, k] - clicked[p, k]) * math.log1p(max(-ratio * gain, -1 + 1e-12))
        total += math.exp(log_density)
        grid[i] = total
    target, i = u * total, 0
    while i < CELLS - 1 and grid[i] <= target:
        i += 1
    before = grid[i - 1] if i > 0 else 0.0
    return math.sin(start + (i + (target - before) / (grid[i] - before)) * width) ** 2


@compiled
def pbm_ts_rank(state, world, t, words, ranking):
    order, index, items, best = state.order, state.index, state.items, state.best
    for k in range(len(index)):
        index[k] = pbm_ts_sample(state, world, k, uniform(words[k]))
    best_first(index, words, items, best)
    for place in range(world.list_size):
        ranking[order[place]] = best[place]


@compiled
def position_based_update(state, world, t, words, ranking, clicks):
    shown, clicked = state.shown, state.clicked
    for p in range(world.list_size):
        shown[p, ranking[p]] += 1
        clicked[p, ranking[p]] += clicks[p]


# GRAB. The first leader is in item order, where the policy's is random.


Grab = namedtuple("Grab", "shown clicked bounds leader led order value u v price before holder reached member")


def grab_init(world):
    K, L = world.list_size, len(world.attraction)
    counts = np.zeros((2, K, L), np.int64)
    return Grab(
        counts[0],
        counts[1],
        np.ones((K, L)),
        np.arange(L),
        np.zeros(1, np.int64),
        np.zeros(K, np.int64),
        np.zeros((K, L), np.float32),
        np.zeros(K, np.float32),
        np.zeros(L, np.float32),
        np.zeros(L, np.float32),
        np.zeros(L, np.int64),
        np.zeros(L, np.int64),
        np.zeros(L, np.bool_),
        np.zeros(K, np.bool_),
    )


@compiled
def grab_rank(state, world, t, words, ranking):
    shown, clicked, bounds, leader, order = state.shown, state.clicked, state.bounds, state.leader, state.order
    K, L = shown.shape
    for k in range(K):
        ranking[k] = leader[k]
    if state.led[0] % max(L - 1, 2) == 0:
        return
    for a in range(K):
        b = a
        mean = clicked[a, leader[a]] / max(shown[a, leader[a]], 1)
        while b > 0:
            m = order[b - 1]
            if clicked[m, leader[m]] / max(shown[m, leader[m]], 1) >= mean:
                break
            order[b] = m
            b -= 1
        order[b] = a
    gain, best_k, best_m = 0.0, 0, 0
    for a in range(K - 1):
        k, m = order[a], order[a + 1]
        value = bounds[k, leader[m]] - bounds[k, leader[k]]
        value += bounds[m, leader[k]] - bounds[m, leader[m]]
        if value > gain + 1e-6:
            gain, best_k, best_m = value, k, m
    last = order[K - 1]
    own = bounds[last, leader[last]]
    for m in range(K, L):
        value = bounds[last, leader[m]] - own
        if value > gain + 1e-6:
            gain, best_k, best_m = value, last, m
    ranking[best_k] = leader[best_m]
    if best_m < K:
        ranking[best_m] = leader[best_k]


@compiled
def grab_assign(state):
    """The best assignment of ``value``, by shortest augmenting paths: ``holder`` has each item's position or −1."""
    value, u, v, price = state.value, state.u, state.v, state.price
    before, holder, reached, member = state.before, state.holder, state.reached, state.member
    K, L = value.shape
    u[:] = 0
    v[:] = 0
    holder[:] = -1
    for number in range(K):
        price[:] = np.float32(3e38)
        before[:] = -1
        reached[:] = False
        member[:] = False
        position, item = number, -1
        while position >= 0:
            if item >= 0:
                reached[item] = True
            member[position] = True
            nearest = -1
            for j in range(L):
                if not reached[j]:
                    reduced = -value[position, j] - u[position] - v[j]
                    if reduced < price[j]:
                        price[j] = reduced
                        before[j] = item
                    if nearest < 0 or price[j] < price[nearest]:
                        nearest = j
            step = price[nearest]
            for k in range(K):
                if member[k]:
                    u[k] += step
            for j in range(L):
                if reached[j]:
                    v[j] -= step
                else:
                    price[j] -= step
            item, position = nearest, holder[nearest]
        while item >= 0:
            previous = before[item]
            holder[item] = holder[previous] if previous >= 0 else number
            item = previous


@compiled
def grab_update(state, world, t, words, ranking, clicks):
    shown, clicked, leader, holder = state.shown, state.clicked, state.leader, state.holder
    K, L = shown.shape
    for k in range(K):
        i = ranking[k]
        shown[k, i] += 1
        clicked[k, i] += clicks[k]
        state.value[k, i] = np.float32(clicked[k, i]) / np.float32(shown[k, i])
        mean, n = clicked[k, i] / shown[k, i], shown[k, i]
        state.bounds[k, i] = kl_bound(mean, math.log(world.horizon) / n, 1.0, 50)
    grab_assign(state)
    same, place = True, K
    for i in range(L):
        if holder[i] >= 0:
            same &= leader[holder[i]] == i
    for i in range(L):
        if holder[i] >= 0:
            leader[holder[i]] = i
        else:
            leader[place] = i
            place += 1
    state.led[0] = state.led[0] + 1 if same else 0


# UniRank. words: L for the order, L for ties between items that are not shown.


Unirank = namedtuple("Unirank", "wins part score items leader C")


def unirank_init(world):
    L = len(world.attraction)
    zeros = np.zeros((5, L), np.int64)
    return Unirank(np.zeros((L, L), np.int64), zeros[0], zeros[1], zeros[2], zeros[3], zeros[4])


@compiled
def unirank_rank(state, world, t, words, ranking):
    part, items = state.part, state.items
    for a in range(len(part)):
        b = a
        while b > 0 and (
            part[items[b - 1]] > part[a] or (part[items[b - 1]] == part[a] and words[items[b - 1]] > words[a])
        ):
            items[b] = items[b - 1]
            b -= 1
        items[b] = a
    for k in range(world.list_size):
        ranking[k] = items[k]


@compiled
def may_be_better(wins, j, i, level):
    T = wins[i, j] + wins[j, i]
    if T == 0 or wins[j, i] > wins[i, j]:
        return True
    return T * kl(wins[j, i] / T, 0.5) < level


@compiled
def unirank_update(state, world, t, words, ranking, clicks):
    wins, part, score, items, leader, C = state.wins, state.part, state.score, state.items, state.leader, state.C
    L, K = len(part), world.list_size
    C[:] = 0
    for k in range(K):
        C[ranking[k]] = clicks[k]
    for i in range(L):
        if C[i] and part[i] < K:
            for j in range(L):
                if part[j] == part[i] and not C[j]:
                    wins[i, j] += 1
    for i in range(L):
        score[i] = 0
        for j in range(L):
            score[i] += (wins[i, j] > wins[j, i]) - (wins[i, j] < wins[j, i])
        b = i
        while b > 0 and score[items[b - 1]] < score[i]:
            items[b] = items[b - 1]
            b -= 1
        items[b] = i
    total, number, last = 0, 0, 0
    for p in range(L):
        leader[items[p]] = number
        if p < K:
            last = number
        total += score[items[p]]
        if total == (p + 1) * (L - p - 1):
            number += 1
    log_t = math.log(t + 1)
    level = max(log_t + 3 * math.log(log_t), 0.0)
    shift, merged = 0, False
    for c in range(last + 1):
        for i in range(L):
            if leader[i] == c:
                part[i] = c - shift
        if c == last:
            break
        can_merge = False
        if not merged:
            for i in range(L):
                for j in range(L):
                    if leader[i] == c and leader[j] == c + 1 and may_be_better(wins, j, i, level):
                        can_merge = True
        merged = can_merge
        shift += merged
    joined = -1
    for j in range(L):
        if leader[j] > last:
            part[j] = K
            for i in range(L):
                if not merged and leader[i] == last and may_be_better(wins, j, i, level):
                    if joined < 0 or words[L + j] > words[L + joined]:
                        joined = j
                    break
    if joined >= 0:
        part[joined] = last - shift


# PB-MHB: one Metropolis–Hastings sweep a step, one parameter after the other.


Particle = namedtuple("Particle", "shown clicked theta kappa items positions")


def pbmhb_init(world):
    L, K = len(world.attraction), world.list_size
    kappa = np.full(K, 0.5)
    kappa[0] = 1
    zeros = np.zeros((K, L), np.int64)
    return Particle(zeros, zeros.copy(), np.full(L, 0.5), kappa, np.zeros(L, np.int64), np.zeros(K, np.int64))


@compiled
def descending(values, order):
    """Fills order with the numbers of the values, the largest first."""
    for a in range(len(values)):
        b = a
        while b > 0 and values[order[b - 1]] < values[a]:
            order[b] = order[b - 1]
            b -= 1
        order[b] = a


@compiled
def pbmhb_rank(state, world, t, words, ranking):
    descending(state.theta, state.items)
    descending(state.kappa, state.positions)
    for place in range(world.list_size):
        ranking[state.positions[place]] = state.items[place]


@compiled
def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


@compiled
def normal_quantile(p):
    """Acklam's rational approximation and one step of Halley's method."""
    if p < 0.02425 or p > 1 - 0.02425:
        q = math.sqrt(-2 * math.log(min(p, 1 - p)))
        above = ((-7.784894002430293e-3 * q - 3.223964580411365e-1) * q - 2.400758277161838) * q - 2.549732539343734
        below = ((7.784695709041462e-3 * q + 3.224671290700398e-1) * q + 2.445134137142996) * q + 3.754408661907416
        x = ((above * q + 4.374664141464968) * q + 2.938163982698783) / (below * q + 1)
        x = x if p < 0.5 else -x
    else:
        q = p - 0.5
        r = q * q
        above = ((-3.969683028665376e1 * r + 2.209460984245205e2) * r - 2.759285104469687e2) * r + 1.383577518672690e2
        below = ((-5.447609879822406e1 * r + 1.615858368580409e2) * r - 1.556989798598866e2) * r + 6.680131188771972e1
        x = (
            ((above * r - 3.066479806614716e1) * r + 2.506628277459239)
            * q
            / ((below * r - 1.328068155288572e1) * r + 1)
        )
    step = (normal_cdf(x) - p) * math.sqrt(2 * math.pi) * math.exp(x * x / 2)
    return x - step / (1 + x * step / 2)


@compiled
def truncated_normal(mean, sigma, u):
    low, high = normal_cdf(-mean / sigma), normal_cdf((1 - mean) / sigma)
    return min(max(mean + sigma * normal_quantile(low + u * (high - low)), 1e-6), 1 - 1e-6)


@compiled
def mass(mean, sigma):
    return normal_cdf((1 - mean) / sigma) - normal_cdf(-mean / sigma)


@compiled
def log_posterior(clicks, shown, x):
    return (clicks + 0.5) * math.log(x) + (shown - clicks + 0.5) * math.log1p(-x)


@compiled
def pbmhb_update(state, world, t, words, ranking, clicks):
    shown, clicked, theta, kappa = state.shown, state.clicked, state.theta, state.kappa
    L, K = len(theta), world.list_size
    for k in range(K):
        shown[k, ranking[k]] += 1
        clicked[k, ranking[k]] += clicks[k]
    sigma = 1000 / math.sqrt(t + 1)
    for n in range(L + K):
        if n == L:  # κ_1 = 1
            continue
        old = theta[n] if n < L else kappa[n - L]
        new = truncated_normal(old, sigma, uniform(words[n]))
        log_rho = math.log(mass(old, sigma)) - math.log(mass(new, sigma))
        for m in range(K if n < L else L):
            i, k = (n, m) if n < L else (m, n - L)
            other = kappa[k] if n < L else theta[i]
            log_rho += log_posterior(clicked[k, i], shown[k, i], new * other)
            log_rho -= log_posterior(clicked[k, i], shown[k, i], old * other)
        if math.log(uniform(words[L + K + n])) < log_rho:
            if n < L:
                theta[n] = new
            else:
                kappa[n - L] = new


# RecurRank without features: the items are unit vectors, and their G-optimal design is uniform.


Recurrank = namedtuple("Recurrank", "first phase order left shown clicked items keys values best")


def recurrank_init(world):
    L, K = len(world.attraction), world.list_size
    zeros = np.zeros((6, L), np.int64)
    state = Recurrank(
        zeros[0], zeros[0] + 1, np.arange(L), zeros[1], zeros[2], zeros[3], zeros[4], zeros[5],
        np.zeros(L), np.zeros(K, np.int64),
    )  # fmt: skip
    recurrank_design(state, world)
    return state


@compiled
def recurrank_design(state, world):
    """How often the items of new parts are to be shown at the first position."""
    first, phase, left, shown = state.first, state.phase, state.left, state.shown
    L, K = len(first), world.list_size
    for i in range(L):
        size = 0
        for j in range(L):
            size += first[j] == first[i]
        if first[i] < K and size > 1 and left[i] == 0 and shown[i] == 0:  # its phase begins
            log_delta = math.log(world.horizon) / 2 + math.log(K * phase[i] * (phase[i] + 1))
            times = L / size / 2 * 4.0 ** phase[i] * (math.log(size) + log_delta)
            left[i] = math.ceil(times - 1e-3)


@compiled
def recurrank_rank(state, world, t, words, ranking):
    first, order, left, items, keys, best = state.first, state.order, state.left, state.items, state.keys, state.best
    L, K = len(first), world.list_size
    for k in range(K):
        best[k] = -1  # the item whose turn it is at the first position of the part that begins here
    for i in range(L):
        k = first[i]
        if k < K and left[i] > 0 and (best[k] < 0 or order[i] < order[best[k]]):
            best[k] = i
    for a in range(L):
        turn = first[a] < K and best[first[a]] == a
        keys[a] = first[a] * (L + 1) + (0 if turn else order[a] + 1)
        b = a
        while b > 0 and keys[items[b - 1]] > keys[a]:
            items[b] = items[b - 1]
            b -= 1
        items[b] = a
    for k in range(K):
        ranking[k] = items[k]


@compiled
def recurrank_next_phase(state, world, k):
    """Orders and splits the part that begins at k."""
    first, phase, order, shown, clicked = state.first, state.phase, state.order, state.shown, state.clicked
    items, values = state.items, state.values
    end, size = world.list_size, 0
    for i in range(len(first)):
        if first[i] > k:
            end = min(end, first[i])
        if first[i] == k:
            values[i] = clicked[i] / (shown[i] + 1e-4)
            b = size
            while b > 0 and values[items[b - 1]] < values[i]:
                items[b] = items[b - 1]
                b -= 1
            items[b] = i
            size += 1
    begin = 0
    for p in range(size):
        i = items[p]
        if p > 0 and values[items[p - 1]] - values[i] >= 2 * 2.0 ** -phase[i]:
            begin = p
        first[i] = k + begin if k + begin < end else world.list_size
        order[i] = p - begin
    for p in range(size):
        phase[items[p]] += 1
        shown[items[p]] = clicked[items[p]] = 0


@compiled
def recurrank_update(state, world, t, words, ranking, clicks):
    first, left, shown, clicked = state.first, state.left, state.shown, state.clicked
    ended = False
    for k in range(world.list_size):
        a = ranking[k]
        if first[a] == k and left[a] > 0:
            left[a] -= 1
            shown[a] += 1
            clicked[a] += clicks[k]
            more = left[a] > 0
            for i in range(len(first)):
                more |= first[i] == k and left[i] > 0
            if not more:
                recurrank_next_phase(state, world, k)
                ended = True
    if ended:
        recurrank_design(state, world)


class Scalar(NamedTuple):
    """The functions of a policy."""

    init: Callable
    rank: Callable
    update: Callable
    num_words: Callable  # (L, K) -> the number of random words of a step


POLICIES = {
    "static": Scalar(nothing, static_rank, no_update, lambda L, K: 0),
    "oracle": Scalar(nothing, oracle_rank, no_update, lambda L, K: 0),
    "random": Scalar(item_numbers, random_rank, no_update, lambda L, K: K),
    "bubblerank": Scalar(
        bubblerank_init, bubblerank_rank, bubblerank_update, lambda L, K: (K + 63) // 64 + (1 if L > K else 0)
    ),
    "toprank": Scalar(toprank_init, toprank_rank, toprank_update, lambda L, K: L),
    "batchrank": Scalar(batchrank_init, batchrank_rank, batchrank_update, lambda L, K: L + K),
    "cascade_klucb": Scalar(cascade_init, cascade_klucb_rank, cascade_first_update, lambda L, K: L),
    "cascade_ucb1": Scalar(cascade_init, cascade_ucb1_rank, cascade_first_update, lambda L, K: L),
    "cascade_ts": Scalar(cascade_init, cascade_ts_rank, cascade_first_update, lambda L, K: L),
    "dcm_klucb": Scalar(cascade_init, cascade_klucb_rank, cascade_last_update, lambda L, K: L),
    "cascade_ducb": Scalar(discounted_init, cascade_ducb_rank, cascade_ducb_update, lambda L, K: L),
    "cascade_swucb": Scalar(window_init, cascade_swucb_rank, cascade_swucb_update, lambda L, K: L),
    "glrt_cascade_ucb": Scalar(tested_init, glrt_ucb_rank, glrt_update, lambda L, K: L),
    "glrt_cascade_klucb": Scalar(tested_init, glrt_klucb_rank, glrt_update, lambda L, K: L),
    "grab": Scalar(grab_init, grab_rank, grab_update, lambda L, K: 0),
    "unirank": Scalar(unirank_init, unirank_rank, unirank_update, lambda L, K: 2 * L),
    "pb_mhb": Scalar(pbmhb_init, pbmhb_rank, pbmhb_update, lambda L, K: 2 * (L + K)),
    "recurrank": Scalar(recurrank_init, recurrank_rank, recurrank_update, lambda L, K: 0),
    "ranked_exp3": Scalar(exp3_init, exp3_rank, exp3_update, lambda L, K: L + K),
    "ranked_ucb1": Scalar(ranked_init, ranked_ucb1_rank, ranked_update, lambda L, K: L + K * L),
    "ranked_klucb": Scalar(ranked_init, ranked_klucb_rank, ranked_update, lambda L, K: L + K * L),
    "pbm_ucb": Scalar(position_based_init, pbm_ucb_rank, position_based_update, lambda L, K: L),
    "pbm_pie": Scalar(position_based_init, pbm_pie_rank, position_based_update, lambda L, K: L + 1),
    "pbm_ts": Scalar(position_based_init, pbm_ts_rank, position_based_update, lambda L, K: L),
}


class Lane:
    """One lane of a policy in a click model: ``advance`` runs its next steps."""

    def __init__(self, policy: Scalar, loop: Callable, world: World, seed: int) -> None:
        self.loop, self.world, self.step = loop, world, 1
        self.state = policy.init(world)
        self.rng = np.array([seed], np.uint64)
        self.words = np.zeros(policy.num_words(len(world.base), world.list_size), np.uint64)
        self.ranking, self.clicks = np.zeros((2, world.list_size), np.int64)

    def advance(self, num_steps: int) -> float:
        """Returns the regret of these steps."""
        first, self.step = self.step, self.step + num_steps
        return self.loop(self.state, self.world, first, self.step, self.rng, self.words, self.ranking, self.clicks)


def make_loop(policy: Scalar, click_model: str) -> Callable:
    """loop(state, world, first, stop, rng, words, ranking, clicks) -> the regret of steps first, …, stop − 1."""
    rank, update = policy.rank, policy.update
    sample, reward = CLICK_MODELS[click_model]

    @compiled
    def loop(state, world, first, stop, rng, words, ranking, clicks):
        best = reward(world, world.optimal)
        regret = 0.0
        for t in range(first, stop):
            for w in range(len(words)):
                words[w] = next_word(rng)
            rank(state, world, t, words, ranking)
            sample(world, rng, ranking, clicks)
            regret += best - reward(world, ranking)
            update(state, world, t, words, ranking, clicks)
        return regret

    return loop
