"""Worlds by name: found by policies or by data, made from options."""

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.studies.worlds import find_world, make_world


def policies(*names):
    return {name: jr.make(name) for name in names}


@pytest.mark.parametrize(
    ("names", "world"),
    [
        (("bubblerank", "static"), "click"),
        (("static", "random", "oracle"), "click"),
        (("cascade_hybrid", "cascade_ucb1"), "topics"),
        (("pairrank", "pdgd", "mgd", "dbgd", "epsilon_greedy", "sgd_ranknet", "random"), "letor"),
        ((), "click"),
    ],
)
def test_the_world_is_that_of_the_policies(names, world):
    assert find_world(policies(*names), None) == world


@pytest.mark.parametrize(
    ("files", "world"),
    [
        (("train.txt.gz", "test.txt.gz"), "letor"),
        (("rank.train", "rank.test"), "letor"),
        (("ratings.csv", "movies.csv"), "topics"),
        (("song-attributes.txt", "train_0.txt"), "topics"),
        (("pbm.json",), "click"),
    ],
)
def test_or_that_of_the_data(tmp_path, files, world):
    for name in files:
        (tmp_path / name).write_text("")
    assert find_world(policies("static"), str(tmp_path)) == world


def test_held_out_ndcg_is_measured_where_every_policy_has_a_ranker():
    rankers = make_world("letor", policies("pdgd", "pairrank"), queries=3)
    assert rankers.metrics == ("cndcg", "ndcg@10") and rankers.names == ()
    assert make_world("letor", policies("pdgd", "random"), queries=3).metrics == ("cndcg",)


def test_what_regret_is_against_and_how_long_beta_is_are_options_of_the_command_too():
    by_name = [
        make_world("click", {}, click_model="dcm", queries=2, reference=name) for name in ("optimal", "attraction")
    ]
    assert [world.environment.reference for world in by_name] == ["optimal", "attraction"]
    users = [make_world("topics", {}, queries=3, items=40, normalize_relevance=v) for v in ("true", "false", False)]
    lengths = [np.linalg.norm(np.asarray(world.environment.relevance), axis=-1) for world in users]
    np.testing.assert_allclose(lengths[0], 1, rtol=1e-6)
    np.testing.assert_array_equal(lengths[1], lengths[2])
    assert (np.abs(lengths[1] - 1) > 0.01).all()


def test_real_letor_data_and_ratings(real_data):
    stream = make_world("letor", policies("pairrank"), data=str(real_data / "mslr-web-sample"), queries=5)
    assert stream.environment.queries.num_queries == 5 and "5 real queries" in stream.summary
    topics = make_world(
        "topics", policies("cascade_hybrid"), data=str(real_data / "movielens-small"), queries=4, items=30
    )
    assert topics.environment.num_items == 30 and "4 users of real ratings" in topics.summary


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"--policy cascade_hybrid needs --world topics; got --world letor"):
        make_world("letor", policies("cascade_hybrid"))
    with pytest.raises(ValueError, match=r"--world must be one of click, topics, letor; got 'moon'"):
        make_world("moon", {})
    with pytest.raises(ValueError, match=r"--grades belongs to --world letor; got 3 in --world topics"):
        make_world("topics", {}, grades=3)


def test_worlds_change_delay_and_corrupt_as_the_options_say():
    changing = make_world("click", policies("toprank"), queries=2, items=4, change="every=50,worlds=3,keep=1,seed=4")
    assert changing.environment == jr.change(
        make_world("click", {}, queries=2, items=4).environment, every=50, worlds=3, keep=1, seed=4
    )
    at = make_world("click", policies("toprank"), queries=2, items=4, change="at=10/20/1e3").environment
    assert at.at.tolist() == [10, 20, 1000]
    assert make_world("click", {}, queries=2, items=4, change="drift=7").environment.drift

    both = make_world("click", policies("toprank"), queries=2, items=4, delay="geometric:7", corrupt=0.25)
    assert both.delayed(jr.TopRank()) == jr.Delayed(jr.TopRank(), 7, kind="geometric")
    assert float(both.environment.fraction) == 0.25 and both.environment.target == "random"
    assert "corrupted by 0.25, clicks delayed by geometric:7" in both.summary
    aimed = make_world("click", {}, queries=2, items=4, corrupt="fraction=0.1,budget=100,target=best", delay=0)
    assert int(aimed.environment.budget) == 100 and aimed.environment.target == "best"
    assert aimed.delayed(jr.TopRank()) == jr.TopRank()
    stream = make_world("letor", policies("pdgd"), queries=3, delay=5)
    assert stream.delayed(jr.PDGD()) == jr.Delayed(jr.PDGD(), 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"change": "50"}, "--change must be KEY=VALUE,… with keys among every, random, at, .*; got '50'"),
        ({"change": "every=soon"}, "--change every must be a number; got 'soon'"),
        ({"change": "every=5,drift=5"}, "--change needs one of .*; got every and drift"),
        ({"change": "every=0"}, "--change every must be positive"),
        ({"change": "at=9/3"}, r"--change at must be increasing steps; got \[9, 3\]"),
        ({"change": "every=5,worlds=1"}, "--change worlds must be an integer of at least 2; got 1"),
        ({"delay": "5.5"}, "--delay must be an integer of at least 0; got 5.5"),
        ({"delay": "poisson:5"}, "--delay must be one of fixed, geometric; got 'poisson'|--delay must be 'fixed' or"),
        ({"corrupt": "1.5"}, r"--corrupt fraction must be in \[0, 1\]; got 1\.5"),
        ({"corrupt": "budget=5,target=worst"}, "--corrupt target must be 'random' or 'best'; got 'worst'"),
        ({"corrupt": "some"}, "--corrupt fraction must be a number; got 'some'"),
    ],
)
def test_bad_changes_delays_and_corruptions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_world("click", policies("toprank"), queries=2, items=4, **options)
