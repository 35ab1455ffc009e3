"""The synthetic world looks like the real queries it was calibrated on."""

import numpy as np
import pytest

import jaxrank as jr


@pytest.mark.parametrize(
    ("model", "mean", "spread"),
    [
        *(("cm", 10.9, 4.84), ("dcm", 11.65, 4.84), ("pbm", 14.97, 5.73)),
        *(("ubm", 17.05, 5.96), ("dbn", 9.67, 4.46), ("ccm", 9.82, 4.63)),
    ],
)
def test_inversions_of_the_production_list_are_distributed_as_in_the_60_real_queries(model, mean, spread):
    """Within 5 % of the mean and 8 % of the standard deviation, over 4,000 queries (standard error 0.6 %)."""
    attraction = jr.datasets.synthetic(model, 4_000).attraction
    inversions = np.asarray(jr.ClickBandit(jr.CascadeModel(attraction)).base_inversions)
    assert inversions.mean() == pytest.approx(mean, rel=0.05)
    assert inversions.std() == pytest.approx(spread, rel=0.08)


@pytest.mark.parametrize("model", ["cm", "dcm", "pbm", "ubm", "dbn", "ccm"])
def test_attraction_is_distributed_as_in_the_60_real_queries(model, real_data):
    """The mean attraction of the k-th best item, within 0.1 of the real one for every k."""
    made, real = (
        -np.sort(-np.asarray(m.attraction), axis=1).mean(axis=0)
        for m in (jr.datasets.synthetic(model, 4_000), jr.datasets.yandex(real_data, model))
    )
    assert np.abs(made - real).max() < 0.1


@pytest.mark.parametrize(
    ("model", "field"),
    [("ubm", "examination_after"), ("dbn", "continuation"), *(("ccm", f"tau{i}") for i in (1, 2, 3))],
)
def test_the_other_parameters_are_those_of_the_60_real_queries(model, field, real_data):
    """The same in all of them; γ within 0.15 of the fitted one, which is not smooth, everywhere that it is read."""
    made, real = (
        np.asarray(getattr(m, field)) for m in (jr.datasets.synthetic(model), jr.datasets.yandex(real_data, model))
    )
    read = np.tri(10, k=-1, dtype=bool) | (np.arange(10) == 9) if field == "examination_after" else ...
    assert np.abs(made[read] - real[:, read] if read is not ... else made - real).max() < 0.15


def test_satisfaction_is_that_of_the_60_real_queries(real_data):
    """Their mean at every production position, within 0.03."""
    real = np.asarray(jr.datasets.yandex(real_data, "dbn").satisfaction).mean(axis=0)
    assert np.abs(np.asarray(jr.datasets.synthetic("dbn").satisfaction) - real).max() < 0.03


def test_a_query_does_not_depend_on_how_many_there_are():
    few, many = (np.asarray(jr.datasets.synthetic("pbm", n, seed=4).attraction) for n in (3, 30))
    np.testing.assert_array_equal(few, many[:3])


def test_any_number_of_items():
    for model in jr.available("click_model"):
        assert jr.datasets.synthetic(model, 2, num_items=100).attraction.shape == (2, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "xyz"}, "click_model must be one of cm, dcm, pbm, .*; got 'xyz'"),
        ({"num_queries": 0}, "num_queries must be a positive integer; got 0"),
        ({"num_items": 2.5}, "num_items must be a positive integer; got 2.5"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        jr.datasets.synthetic(**options)


def test_synthetic_ratings_have_the_statistics_of_the_paper():
    ratings = jr.datasets.synthetic_ratings()
    assert ratings.attractive.shape == (1000, 1000) and ratings.topics.shape == (1000, 20)
    assert ratings.attractive.mean() == pytest.approx(0.07, abs=0.002)
    assert (ratings.topics.sum(axis=1) >= 1).all()
    assert 2.5 < ratings.topics.sum(axis=1).mean() < 3.3, "MovieLens: 2.9"
    assert (np.diff(ratings.topics.sum(axis=0)) <= 0).all(), "the topic of the most items first"
    share = np.sort(ratings.attractive.sum(axis=0))[::-1] / ratings.attractive.sum()
    assert share[:100].sum() > 0.25 and share[500:].sum() < 0.35, "a long tail of items"
    environment = jr.datasets.topic_bandit(ratings)
    assert environment.num_users > 450


def test_bad_options_of_synthetic_ratings():
    with pytest.raises(ValueError, match=r"fraction_attractive must be in \(0, 1\); got 1.5"):
        jr.datasets.synthetic_ratings(fraction_attractive=1.5)
    with pytest.raises(ValueError, match="num_users must be a positive integer; got 0"):
        jr.datasets.synthetic_ratings(num_users=0)
