"""Curves: averages, files."""

import os

import numpy as np
import pytest
import xarray

import jaxrank as jr
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
