"""Which of the papers' assumptions click models violate."""

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.click_models.paper_assumptions import NAMES, assumptions

ATTRACTION = [0.2, 0.7, 0.5, 0.1]


def violated(model, **options):
    return {name for name, most in assumptions(model, **options).items() if most.max() > 1e-6}


def test_the_cascade_model_and_a_falling_examination_violate_nothing():
    assert violated(jr.CascadeModel(ATTRACTION)) == set()
    assert violated(jr.PositionBasedModel(ATTRACTION, [0.9, 0.5, 0.5, 0.1])) == set()
    assert violated(jr.CascadeModel(ATTRACTION), list_size=2) == set()


def test_violations_are_found_and_measured():
    """χ rises by 0.4 from position 2 to 3; the best list swaps the second and third best items: (0.5 − 0.2)·0.4."""
    found = assumptions(jr.PositionBasedModel(ATTRACTION, [0.9, 0.2, 0.6, 0.1]))
    assert set(found) == set(NAMES)
    assert found["A3"] == pytest.approx(0.4, abs=1e-6) and found["A1"] == pytest.approx(0.3 * 0.4, abs=1e-6)
    assert found["A2"] == found["A4"] == found["A5"] == 0
    # After a click users leave more often at position 2 than at 1: what is above matters, and so does its order.
    assert {"A2", "A5"} <= violated(jr.DependentClickModel(ATTRACTION, [0.1, 0.9, 0.3, 0.5]))


def test_queries_are_checked_side_by_side():
    both = jr.PositionBasedModel([ATTRACTION, ATTRACTION], [[0.9, 0.2, 0.6, 0.1], [0.9, 0.6, 0.2, 0.1]])
    np.testing.assert_allclose(assumptions(both)["A3"], [0.4, 0.0], atol=1e-6)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match=r"list_size must be .* from 1 to 4 items; got 5"):
        assumptions(jr.CascadeModel(ATTRACTION), 5)
