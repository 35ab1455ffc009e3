"""--change, --delay and --corrupt from the command, through a resumed run, and in sweeps."""

import numpy as np

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.studies.sweeps import sweep

WORLD = ["--queries", "2", "--items", "5", "--list-size", "3", "--steps", "600", "--seeds", "2", "--quiet"]
OPTIONS = ["--change", "every=200,worlds=3", "--delay", "geometric:20", "--corrupt", "0.1"]


def test_the_command_runs_worlds_that_change_with_delayed_and_corrupted_clicks(tmp_path, capsys):
    out = str(tmp_path / "out")
    arguments = ["run", "--policy", "toprank", "--policy", "cascade_ducb", *WORLD, *OPTIONS, "--out", out]
    assert main([*arguments, "--metrics", "regret", "fixed_regret"]) == 0
    said = capsys.readouterr().out
    assert "that change, every=200,worlds=3, corrupted by 0.1, clicks delayed by geometric:20" in said
    result = jr.load(tmp_path / "out" / "run.nc")
    assert set(result.data_vars) == {"regret", "fixed_regret"} and list(result["policy"].values) == [
        "TopRank",
        "CascadeDUCB",
    ]
    world = jr.make("click", kind="environment", queries=2, items=5, list_size=3, change="every=200,worlds=3")
    policy = jr.Delayed(jr.TopRank(), 20, kind="geometric")
    options = {"num_seeds": 2, "num_records": result.sizes["step"], "progress": False}
    here = jr.simulate(policy, jr.Corrupted(world, 0.1), 600, **options)["regret"]
    np.testing.assert_array_equal(here[..., -1], result["regret"].sel(policy="TopRank")[..., -1])


def test_a_sweep_has_delays_and_corruptions_in_its_grid(tmp_path):
    (tmp_path / "sweep.toml").write_text(
        """
        steps = 100
        seeds = 1
        [[policy]]
        name = "toprank"
        [[environment]]
        queries = 2
        items = 4
        grid.delay = [0, "geometric:5"]
        grid.corrupt = [0.0, 0.2]
        """
    )
    report = sweep(tmp_path / "sweep.toml", tmp_path / "out", progress=False)
    assert not report.failed
    curves = {path.stem: jr.load(path)["regret"].values for path in (tmp_path / "out").glob("*.nc")}
    assert len(curves) == 4
    plain = jr.simulate(jr.TopRank(), jr.make("click", kind="environment", queries=2, items=4), 100, progress=False)
    (same,) = [curve for name, curve in curves.items() if "delay=0" in name and "corrupt=0.0" in name]
    np.testing.assert_allclose(same[..., -1], plain["regret"].values[..., -1], rtol=1e-6)
    assert len({curve[..., -1].tobytes() for curve in curves.values()}) >= 3
