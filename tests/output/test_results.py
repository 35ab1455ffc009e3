"""Curves: averages, files."""

import os
import re

import numpy as np
import pytest
import scipy.stats
import xarray

import jaxrank as jr
from jaxrank.output.intervals import difference, mean_and_interval, two_way_difference, two_way_error, two_way_interval
from jaxrank.output.report import judged, verdict
from jaxrank.output.results import error_over_seeds
from jaxrank.output.tables import counted, plus_minus

ENVIRONMENT = jr.ClickBandit(jr.CascadeModel([[0.1, 0.5, 0.3], [0.9, 0.2, 0.4]]))


@pytest.fixture(scope="module")
def result():
    policies = {"static": jr.StaticRanking(), "random": jr.RandomRanking()}
    return jr.compare(
        policies, ENVIRONMENT, 60, num_seeds=3, num_records=6, metrics=("regret", "violations"), progress=False
    )


def test_a_saved_result_loads_back_the_same(result, tmp_path):
    path = jr.save(result, tmp_path / "deep" / "run.nc")
    loaded = jr.load(path)
    xarray.testing.assert_identical(loaded, result)
    assert os.listdir(tmp_path / "deep") == ["run.nc"]


def test_a_file_is_replaced_only_if_asked(result, tmp_path):
    path = jr.save(result, tmp_path / "run.nc")
    with pytest.raises(ValueError, match=r"path must be new; there is a file at .*run\.nc: write overwrite=True"):
        jr.save(result[["regret"]], path)
    assert list(jr.load(path).data_vars) == ["regret", "violations"]
    assert list(jr.load(jr.save(result[["regret"]], path, overwrite=True)).data_vars) == ["regret"]


@pytest.mark.parametrize("function", [jr.per_step, jr.mean_and_error])
def test_what_is_no_curve_is_named(function, result):
    with pytest.raises(ValueError, match=r"curve must be one variable of a result, as result\['regret'\]; got"):
        function(result)
    with pytest.raises(ValueError, match=r"curve must be an xarray\.DataArray, .*; got a ndarray"):
        function(result["regret"].values)


def test_what_cannot_be_saved_loaded_or_taken_per_step_is_named(result):
    for call, message in (
        (lambda: jr.per_step(result["regret"].isel(step=-1)), "curve must have the dimension step; got policy, query"),
        (lambda: jr.save(result["regret"].values, "x.nc"), "result must be what jr.simulate or jr.compare returned"),
        (lambda: jr.save(result, 3), "path must be the path of a file; got 3"),
        (lambda: jr.load(None), "path must be the path of a file; got None"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_error_is_printed_only_where_there_is_one_and_nouns_agree_with_their_number():
    assert plus_minus(1234.5, 6.789) == "1,234.50 ± 6.79" and plus_minus(2, np.nan) == "2.00"
    assert [counted(n, "seed") for n in (0, 1, 2000)] == ["0 seeds", "1 seed", "2,000 seeds"]
    assert counted(2, "policy") == "2 policies" and counted(1, "cm query") == "1 cm query"


def test_unreadable_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="there is none at"):
        jr.load(tmp_path / "missing.nc")
    (tmp_path / "text.nc").write_text("not a netCDF file")
    with pytest.raises(ValueError, match=r"written by jaxrank; cannot read .*text\.nc: it is incomplete"):
        jr.load(tmp_path / "text.nc")


def test_other_readers_of_netcdf_can_read_a_saved_result(result, tmp_path):
    with xarray.open_dataset(jr.save(result, tmp_path / "run.nc"), engine="h5netcdf") as file:
        xarray.testing.assert_identical(file.load(), result)


def test_per_step_is_the_mean_between_records():
    curve = xarray.DataArray([2.0, 6.0, 6.0], coords={"step": [1, 3, 10]}, dims="step")
    np.testing.assert_allclose(jr.per_step(curve), [2, 2, 0])


def test_the_standard_error_is_over_queries_after_averaging_seeds():
    values = np.random.default_rng(0).normal(size=(4, 5, 2))
    curve = xarray.DataArray(values, dims=("query", "seed", "step"))
    mean, error = jr.mean_and_error(curve)
    by_query = values.mean(axis=1)
    np.testing.assert_allclose(mean, by_query.mean(axis=0))
    np.testing.assert_allclose(error, by_query.std(axis=0, ddof=1) / 2)


def test_the_standard_error_of_one_query_is_over_seeds():
    values = np.random.default_rng(0).normal(size=(1, 5, 2))
    error = jr.mean_and_error(xarray.DataArray(values, dims=("query", "seed", "step")))[1]
    np.testing.assert_allclose(error, values[0].std(axis=0, ddof=1) / np.sqrt(5))
    alone = jr.mean_and_error(xarray.DataArray(values[:, :1], dims=("query", "seed", "step")))[1]
    assert np.isnan(alone).all()


def lanes(*rows):
    """Values [policy, query, seed] of the policies A, B, …."""
    names = {"policy": [*"ABC"][: len(rows)]}
    return xarray.DataArray(np.array(rows, float), dims=("policy", "query", "seed"), coords=names)


def test_a_paired_difference_is_students_interval_over_queries_of_means_over_seeds():
    values = lanes([[1, 3], [5, 5], [6, 8]], [[0, 2], [1, 1], [0, 0]])
    by_query = np.array([1.0, 4.0, 7.0])
    exact = scipy.stats.ttest_1samp(by_query, 0).confidence_interval(0.95)
    found = difference(values.sel(policy="A"), values.sel(policy="B"))
    np.testing.assert_allclose(found, [4, exact.low, exact.high])
    one = values.isel(query=[0])
    np.testing.assert_allclose(difference(one.sel(policy="A"), one.sel(policy="B")), [1, 1, 1])
    fewer = values.where((values.policy == "A") | (values.seed == 0))  # B has one seed
    np.testing.assert_allclose(difference(fewer.sel(policy="A"), fewer.sel(policy="B"))[0], (1 + 4 + 6) / 3)
    single = one.isel(seed=[0])
    assert np.isnan(difference(single.sel(policy="A"), single.sel(policy="B"))[1:]).all()


def test_errors_over_seeds_alone_leave_out_the_variance_of_queries():
    values = lanes([[0, 2], [100, 104], [50, np.nan]]).isel(policy=0)
    np.testing.assert_allclose(error_over_seeds(values.isel(query=[0, 1])), np.std([50, 53], ddof=1) / np.sqrt(2))
    assert np.isnan(error_over_seeds(values.isel(seed=[0])))


def test_two_way_intervals_are_for_other_queries_and_other_runs():
    """Of 4,000 tables with both kinds of noise, 95 % of the intervals have the truth; over queries alone, far fewer."""
    rng, (runs, queries, seeds) = np.random.default_rng(0), (4_000, 30, 5)
    noise = rng.normal(size=(runs, queries, 1)) + rng.normal(size=(runs, 1, seeds))
    values = xarray.DataArray(noise + rng.normal(size=(runs, queries, seeds)), dims=("run", "query", "seed"))
    mean, half = two_way_interval(values)
    assert 0.94 < float((abs(mean) < half).mean()) < 0.98
    assert float((abs(mean) < mean_and_interval(values)[1]).mean()) < 0.7


def test_two_way_errors_take_every_query_and_every_run_once_where_folds_have_queries_of_their_own():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(6, 4))  # [query, run]; the first three queries are of the first two runs
    table[:3, 2:] = table[3:, :2] = np.nan
    values = xarray.DataArray(table, dims=("query", "seed"))
    by_query, by_run = np.nanmean(table, axis=1), np.nanmean(table, axis=0)
    mean, error = two_way_error(values)
    assert float(mean) == pytest.approx(by_query.mean())
    assert float(error) == pytest.approx(np.hypot(by_query.std(ddof=1) / np.sqrt(6), by_run.std(ddof=1) / 2))
    widths = [scipy.stats.sem(by) * scipy.stats.t.ppf(0.975, by.size - 1) for by in (by_query, by_run)]
    low, high = by_query.mean() - np.hypot(*widths), by_query.mean() + np.hypot(*widths)
    np.testing.assert_allclose(two_way_difference(values, 0 * values), [by_query.mean(), low, high])


def test_the_error_over_runs_stands_alone_where_every_run_has_queries_of_its_own():
    """Of 4,000 tables of 5 folds with 6 queries each, 95 % of the intervals have the truth: the folds' means differ by
    their runs and by their queries."""
    rng, (tables, folds, queries) = np.random.default_rng(0), (4_000, 5, 6)
    noise = rng.normal(size=(tables, folds, 1)) + 2 * rng.normal(size=(tables, folds, queries))
    nested = np.full((tables, folds, queries, folds), np.nan)
    for fold in range(folds):
        nested[:, fold, :, fold] = noise[:, fold]
    values = xarray.DataArray(nested.reshape(tables, folds * queries, folds), dims=("run", "query", "seed"))
    mean, half = two_way_interval(values)
    assert 0.94 < float((abs(mean) < half).mean()) < 0.96
    _, error = two_way_error(values)
    np.testing.assert_allclose(error, noise.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(folds))


def test_one_run_beside_the_missing_ones_of_another_policy_is_no_fold():
    """Its error is over queries alone, as if it had been run alone."""
    table = np.random.default_rng(0).normal(size=(6, 4))
    table[:, 1:] = np.nan
    values = xarray.DataArray(table, dims=("query", "seed"))
    np.testing.assert_allclose(two_way_interval(values), two_way_interval(values[:, :1]))
    assert np.isfinite(two_way_error(values)[1])


def test_missing_seeds_do_not_count():
    """A policy with 3 seeds among others with 20 has the errors and intervals of 3."""
    some = xarray.DataArray([1.0, 2.0, 6.0], dims="seed")
    padded = some.pad(seed=(0, 17))
    for of in (jr.mean_and_error, mean_and_interval):
        np.testing.assert_allclose([float(each) for each in of(padded)], [float(each) for each in of(some)])


def test_a_verdict_has_the_claim_the_number_and_the_interval():
    values = lanes([[1], [2], [3]], [[3], [4], [4.5]], [[0], [3], [3]])
    low = verdict("CM", "A", "below", "B", values, 2)
    assert re.fullmatch(r"- \*\*reproduced\*\*: CM: A is below B \(-1\.83 \[-2\.55, -1\.12\]\)\.", low), low
    assert "not reproduced" in verdict("CM", "A", "above", "B", values, 2)
    assert "the other way round" in verdict("CM", "A", "above", "B", values, 2)
    assert "the interval contains 0" in verdict("CM", "A", "below", "C", values, 2)
    assert "cannot be tested here" in verdict("CM", "A", "below", "C", values.isel(query=[0]), 2)
    with pytest.raises(ValueError, match="word must be one of"):
        judged("perhaps", "a claim", "no number")
