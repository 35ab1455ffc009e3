"""Policies that do not learn."""

import numpy as np
from driver import record
from scipy.stats import chi2
from worlds import click_model

import jaxrank as jr

ENVIRONMENT = jr.ClickBandit(click_model("cm", 5, seed=0), list_size=3, base_ranking=[4, 2, 0, 1, 3])


def test_static_shows_the_base_list():
    assert (record(jr.StaticRanking(), ENVIRONMENT, 50).rankings == [4, 2, 0]).all()


def test_oracle_shows_the_optimum():
    rankings = record(jr.OracleRanking(), ENVIRONMENT, 50).rankings
    assert (rankings == np.argsort(-np.asarray(ENVIRONMENT.click_model.attraction))[:3]).all()


def test_random_lists_are_uniform():
    """All 60 ordered lists of 3 of 5 items, chi-square at p = 1e-6."""
    rankings = record(jr.RandomRanking(), ENVIRONMENT, 30_000).rankings
    counts = np.unique(rankings @ [25, 5, 1], return_counts=True)[1]
    assert len(counts) == 60
    assert ((counts - 500) ** 2 / 500).sum() < chi2.isf(1e-6, 59)
