"""Tests of my_click_models.py: what every click model must do, and what this one does."""

import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from my_click_models import RankBiasedModel


def test_it_conforms():
    """Samples, probabilities, reward and the optimum agree with the likelihood: see jr.testing."""
    jr.testing.check_click_model(RankBiasedModel([0.2, 0.5, 0.1, 0.9], persistence=0.7))


def test_each_position_is_read_with_the_persistence_of_the_one_above():
    model = RankBiasedModel([0.2, 0.5, 1.0], persistence=0.5)
    clicked = model.click_probability(jnp.array([2, 1, 0]))
    np.testing.assert_allclose(clicked, [1.0, 0.5 * 0.5, 0.25 * 0.2], rtol=1e-6)
