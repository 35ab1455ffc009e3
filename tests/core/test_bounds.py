"""The theorems' bounds, by hand, and what they refuse."""

import numpy as np
import pytest
import scipy.integrate

import jaxrank as jr
from jaxrank.core.bounds import (
    batchrank_bound,
    bubblerank_bound,
    cascadehybrid_bound,
    cascadehybrid_eta,
    pairrank_bound,
)


def test_bounds_are_the_theorems():
    """Worked out by hand for K = 2: gap 0.25, χ = (1, 0.5), |V₀| = 1, n = e^2; and K = 1, L = 2 at T = e²."""
    bound = bubblerank_bound(np.array([0.75, 0.5]), np.array([1.0, 0.5]), np.array(1), np.array([10.0]), 100)
    assert bound[0] == pytest.approx(180 * 2 * 2 * 3 / 0.25 * 4 * np.log(100) + 1e-4 * 8 * 100)
    bound = batchrank_bound(np.array([0.5, 0.25]), 1, np.array([np.e**2]))
    assert bound[0] == pytest.approx(192 * 2 / (0.5 * 0.25) * 2 + 8 * (3 * np.e + 1))


def test_pairranks_bound_is_every_pair_of_every_step_until_t_prime_and_grows_slowly_after():
    """Easy numbers, by hand: d = 1, u = Q = 1, λ = 1, so that c_μ = σ(1)σ(−1); and far more steps than t'."""
    options = {"gap": 0.5, "regularization": 1.0, "norm": 1.0}
    steps = np.array([10.0, 1e12, 1e13])
    bound = pairrank_bound(1, 3, steps, **options)
    assert bound[0] == 10 * 9, "t' is later"
    flattest = 1 / (2 + np.e + 1 / np.e)
    a, b, T = 0.25 / (0.25 * flattest * 0.5) ** 2, 0.25 + 2, 1e12
    spread = a * b * np.sqrt(10)
    late = (1 + np.sqrt(np.log(T)) + spread) ** 2 + 4 * a * b * np.log(T) + 8 * a - 1
    slow = 1 + np.sqrt(np.log(T))
    w = 3 / (late - slow * np.sqrt(late)) + 3 * scipy.integrate.quad(lambda r: 2 / (r - slow), late**0.5, T**0.5)[0]
    first = late * 9 + (T - late) * 9 * (1 / T + (1 - 1 / T) / T)
    expected = first + (1 - 1 / T) ** 2 * (6 * a * np.log1p(10 * T / 2) + a * w) ** 2
    assert bound[1] == pytest.approx(expected, rel=1e-9)
    assert bound[2] < 1.5 * bound[1] < 0.1 * 9 * T, "for ten times the steps; and far below all pairs of all steps"


def test_a_bound_without_a_gap_to_learn_or_with_an_item_that_nobody_sees_is_infinite_or_free():
    steps = np.array([100.0])
    assert np.isinf(bubblerank_bound([0.5, 0.3], [1.0, 0.0], 1, steps, 100)), "the second position is never examined"
    assert np.isinf(batchrank_bound([1.0, 0.3], 1, steps)), "1 − α_max is 0"
    assert np.isfinite(batchrank_bound([0.3, 0.3], 1, steps)), "equal items need not be told apart"


ALPHA, STEPS = [0.5, 0.3], [10, 100]
LETOR = {"gap": 0.1, "regularization": 1.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bubblerank_bound([0.5, 1.3], [1, 0.5], 1, STEPS, 100), r"attraction must be in \[0, 1\]; got 1.3"),
        (lambda: bubblerank_bound(ALPHA, [1, np.nan], 1, STEPS, 100), r"examination must be in \[0, 1\]; got nan"),
        (
            lambda: bubblerank_bound(ALPHA, [1], 1, STEPS, 100),
            "examination must have the length of attraction, 2",
        ),
        (
            lambda: bubblerank_bound([ALPHA], [1, 1], 1, STEPS, 100),
            r"attraction must be a list .* shape \(1, 2\)",
        ),
        (
            lambda: bubblerank_bound(ALPHA, [1, 1], -1, STEPS, 100),
            "base_inversions must be non-negative .*; got -1",
        ),
        (lambda: bubblerank_bound(ALPHA, [1, 1], [1, 2], STEPS, 100), r"base_inversions must be one .* shape \(2,\)"),
        (lambda: bubblerank_bound(ALPHA, [1, 1], 1, STEPS, 99), "steps must be at most the horizon, 99; got 100"),
        (lambda: bubblerank_bound(ALPHA, [1, 1], 1, STEPS, 0.5), "horizon must be a positive integer; got 0.5"),
        (lambda: batchrank_bound(ALPHA, 3, STEPS), "list_size must be .* 2 items; got 3"),
        (lambda: batchrank_bound(ALPHA, 1, [4]), "steps must be at least 5; got 4"),
        (lambda: batchrank_bound(["a"], 1, STEPS), r"attraction must be numbers; got \['a'\]"),
        (lambda: cascadehybrid_bound(0, 10, STEPS), "num_features must be a positive integer; got 0"),
        (lambda: cascadehybrid_bound(5, 10, STEPS, norm=2), r"norm must be in \[0, 1\]; got 2"),
        (lambda: cascadehybrid_eta(1.5, 10), r"highest_attraction must be in \[0, 1\]; got 1.5"),
        (lambda: pairrank_bound(3, 1, STEPS, **LETOR), "num_documents must be an integer of at least 2; got 1"),
        (lambda: pairrank_bound(3, 5, STEPS, **LETOR | {"gap": 0}), r"gap must be in \(0, 1\); got 0"),
        (lambda: pairrank_bound(3, 5, STEPS, **LETOR, all_examined=0), r"all_examined must be in \(0, 1\]; got 0"),
        (lambda: pairrank_bound(3, 5, [-1], **LETOR), "steps must be positive and finite; got -1"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bounds_are_public():
    assert jr.bounds.pairrank_bound is pairrank_bound
