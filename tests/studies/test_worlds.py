"""Worlds by name: found by policies or by data, made from options."""

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
