"""Checks of arguments: what is taken, what is refused, what the message says."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr
from jaxrank.core import checks


@pytest.mark.parametrize("value", [7, np.int64(7), np.uint8(7), 7.0, np.float32(7), np.array(7), jnp.int32(7)])
def test_whole_numbers_of_any_kind_are_integers(value):
    taken = checks.integer("n", value)
    assert taken == 7 and type(taken) is int


@pytest.mark.parametrize("value", [True, np.bool_(True), 7.5, np.nan, np.inf, "7", None, [7], np.array([7])])
def test_booleans_fractions_and_texts_are_not(value):
    with pytest.raises(ValueError, match="n must be a positive integer; got "):
        checks.integer("n", value)


def test_the_message_has_the_name_the_range_and_the_value():
    with pytest.raises(ValueError, match=r"^K must be an integer from 1 to 5 items; got 6$"):
        checks.integer("K", 6, 1, 5, " items")
    with pytest.raises(ValueError, match=r"^K must be an integer of at least 3; got 2$"):
        checks.integer("K", 2, 3)
    with pytest.raises(ValueError, match=r"^p must be in \[0, 1\]; got 2$"):
        checks.real("p", 2, checks.probability)
    with pytest.raises(ValueError, match=r"^p must be a number; got True$"):
        checks.real("p", True)
    with pytest.raises(ValueError, match=r"^fast must be True or False; got 1$"):
        checks.switch("fast", 1)


def test_a_choice_suggests_the_closest_name():
    with pytest.raises(ValueError, match=r"^spacing must be 'linear' or 'log'; got 'liner'; did you mean 'linear'\?$"):
        checks.choice("spacing", "liner", ("linear", "log"))
    with pytest.raises(ValueError, match=r"policy must be one of .*; got 'bublerank'; did you mean 'bubblerank'\?"):
        jr.make("bublerank")
    with pytest.raises(ValueError, match=r"^spacing must be 'linear' or 'log'; got 3$"):
        checks.choice("spacing", 3, ("linear", "log"))


MODEL = jr.CascadeModel([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    "make",
    [
        lambda n: jr.ClickBandit(MODEL, list_size=n).list_size,
        lambda n: jr.ClickBandit(MODEL, top=n).top,
        lambda n: jr.MGD(num_candidates=n).num_candidates,
        lambda n: jr.PairRank(window=n).window,
        lambda n: jr.BubbleRank(horizon=n).horizon,
        lambda n: jr.datasets.synthetic("cm", num_queries=n).attraction.shape[0],
        lambda n: jr.datasets.synthetic_ratings(num_users=n, num_items=9).attractive.shape[0],
        lambda n: jr.probes.OfflineNDCG(jr.datasets.synthetic_letor(9).test, top=n).top,
        lambda n: jr.simulate(jr.StaticRanking(), jr.ClickBandit(MODEL), 4, num_seeds=n, progress=False).sizes["seed"],
    ],
)
def test_integers_are_the_same_everywhere(make):
    assert [int(make(n)) for n in (2, np.int64(2), 2.0, np.float64(2))] == [2, 2, 2, 2]
    for refused in (True, 2.5, "2"):
        with pytest.raises(ValueError, match="got "):
            make(refused)


def test_switches_of_policies_are_booleans():
    with pytest.raises(ValueError, match=r"^BubbleRank.doubling must be True or False; got 'false'$"):
        jr.BubbleRank(doubling="false", horizon=3)
    with pytest.raises(ValueError, match=r"^CascadeLinUCB.full must be True or False; got 3$"):
        jr.CascadeLinUCB(full=3)


def test_renamed_errors_speak_of_what_was_typed():
    typed = {"path": "--data", "num_steps": "--steps"}
    with (
        pytest.raises(ValueError, match=r"^--data must be no path; got num_steps; --steps = 3$"),
        checks.renamed(typed),
    ):
        raise ValueError("path must be no path; got num_steps; num_steps = 3")
