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


def test_a_small_violation_of_a1_is_found_among_many_items():
    """χ rises by 0.01 between two positions; of 10! lists only a few are better than the one by attraction."""
    attraction, examination = np.linspace(0.95, 0.05, 10), np.linspace(0.9, 0.3, 10)
    examination[[4, 5]] = 0.6, 0.61
    found = assumptions(jr.PositionBasedModel(attraction, examination))
    assert found["A1"] == pytest.approx((attraction[4] - attraction[5]) * 0.01, abs=1e-6)


def test_clicks_that_are_no_product_are_told():
    examination = [0.9, 0.5, 0.5, 0.1]
    found = assumptions(jr.TrustBiasModel(ATTRACTION, examination, [0.3, 0.2, 0.1, 0.0]))
    assert found["product"] == pytest.approx(0.9 * 0.3 * (1 - 0.1), abs=1e-6), "the worst item at the top"
    assert violated(jr.click_models.RankClickRate(ATTRACTION, examination)) == {"product"}
    assert violated(jr.DependentClickModel(ATTRACTION, examination)).isdisjoint({"product"})


def test_queries_are_checked_side_by_side():
    both = jr.PositionBasedModel([ATTRACTION, ATTRACTION], [[0.9, 0.2, 0.6, 0.1], [0.9, 0.6, 0.2, 0.1]])
    np.testing.assert_allclose(assumptions(both)["A3"], [0.4, 0.0], atol=1e-6)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match=r"list_size must be .* from 1 to 4 items; got 5"):
        assumptions(jr.CascadeModel(ATTRACTION), 5)
    few = jr.PositionBasedModel(ATTRACTION, [0.9, 0.4])
    with pytest.raises(
        ValueError, match=r"list_size must be at most the 2 positions of PositionBasedModel\.examination"
    ):
        assumptions(few)
    assert violated(few, list_size=2) == set()
    rates = jr.click_models.RankDocumentClickRate(ATTRACTION, np.ones((4, 2)))
    with pytest.raises(ValueError, match="list_size must be at most the 2 positions of RankDocumentClickRate"):
        assumptions(rates)
