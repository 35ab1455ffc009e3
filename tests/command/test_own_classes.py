"""From nothing to a regret curve: jaxrank new, and run, resume and sweep with what it wrote."""

import sys
from importlib.resources import files

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.command.new_files import SKELETONS
from jaxrank.output.files import read_json, write_json
from jaxrank.studies.sweep_files import read_sweep
from jaxrank.studies.worlds import make_world

SMALL = ["--queries", "2", "--items", "4", "--steps", "30", "--seeds", "2", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one file of each kind, and a run with a policy and a click model of them."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [path for path in sys.path if not path.endswith("skeletons")])
        for kind, (module, *_) in SKELETONS.items():
            patch.delitem(sys.modules, module, raising=False)  # the suite's own, from where the skeletons are
            assert main(["new", kind, f"{module}.py"]) == 0
        policies = ["--policy", "my_policies.py:ItemTS", "--policy", "my_policies.py:ItemTS:prior=5"]
        model = ["--click-model", "my_click_models.py:RankBiasedModel:persistence=0.5"]
        assert main(["run", *policies, *model, *SMALL, "--out", "results", "--checkpoint", "saved"]) == 0
    return folder


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_new_writes_the_skeletons_that_the_suite_runs(folder):
    for module, *_ in SKELETONS.values():
        for name in (f"{module}.py", f"test_{module}.py"):
            assert (folder / name).read_text() == (files("jaxrank") / "skeletons" / name).read_text()


def test_new_renames_the_module_and_its_test(inside, capsys):
    assert main(["new", "policy", "deep/bandits.py"]) == 0
    assert "from bandits import ItemTS, State" in (inside / "deep" / "test_bandits.py").read_text()
    assert "my_policies" not in (inside / "deep" / "bandits.py").read_text()
    said = "pytest deep/test_bandits.py; jaxrank run --policy deep/bandits.py:ItemTS --policy bubblerank"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy", "my_policies.py"], "FILE must be new, and so must its test; my_policies.py exists"),
        (["policy", "only.py"], "FILE must be new, and so must its test; test_only.py exists"),
        (["policy", "my-policies.py"], "with a name that can be imported, as my_policies.py; got my-policies.py"),
        (["click-model", "random.py"], "FILE must not hide another module; there is one of the name 'random'"),
        (
            ["click_model", "x.py"],
            "KIND must be one of policy, click-model, environment, sweep; got 'click_model';",
        ),
    ],
)
def test_new_overwrites_and_hides_nothing(inside, arguments, message, capsys):
    (inside / "test_only.py").write_text("")
    before = {path: path.read_bytes() for path in inside.glob("*.py")}
    assert main(["new", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in inside.glob("*.py")} == before


def test_results_have_the_names_that_were_typed_and_the_numbers_of_the_library(folder):
    result = jr.load(folder / "results" / "run.nc")
    assert result["policy"].values.tolist() == ["my_policies.py:ItemTS", "my_policies.py:ItemTS:prior=5"]
    path = f"{folder}/my_click_models.py:RankBiasedModel"
    environment = jr.ClickBandit(jr.datasets.synthetic(path, 2, 4, persistence=0.5), top=2)
    policy = jr.make(f"{folder}/my_policies.py:ItemTS", prior=5)
    again = jr.simulate(policy, environment, 30, num_seeds=2, progress=False)["regret"]
    np.testing.assert_array_equal(result["regret"][1], again)


def test_resume_imports_only_what_its_own_command_line_names(folder, monkeypatch, tmp_path, capsys):
    """From another folder than that of the run."""
    monkeypatch.chdir(tmp_path)
    before = jr.load(folder / "results" / "run.nc")["regret"]
    assert main(["resume", str(folder / "saved"), "--trust", str(folder / "my_policies.py")]) == 2
    refused = capsys.readouterr().err
    command = refused.split("continue with: jaxrank ")[1].split()
    assert refused.count("\n") == 1 and "--trust must name the code that a run imports" in refused
    assert main([*command, "--quiet", "--out", str(tmp_path / "again")]) == 0
    np.testing.assert_array_equal(jr.load(tmp_path / "again" / "run.nc")["regret"], before)


def test_resume_refuses_a_class_with_other_fields_or_other_code(inside, tmp_path, capsys):
    saved = tmp_path / "saved"
    (tmp_path / "mine.py").write_text((inside / "my_policies.py").read_text())
    run = ["run", "--policy", f"{tmp_path}/mine.py:ItemTS", *SMALL, "--out", str(tmp_path / "out")]
    assert main([*run, "--checkpoint", str(saved)]) == 0
    changed = tmp_path / "changed.py"
    text = (tmp_path / "mine.py").read_text()
    changed.write_text(text.replace("prior", "before"))
    content, _ = read_json(saved / "run.json")
    content["arguments"][content["arguments"].index("--policy") + 1] = f"{changed}:ItemTS"
    write_json(saved / "run.json", content)
    capsys.readouterr()
    assert main(["resume", str(saved), "--trust", str(changed)]) == 2
    error = capsys.readouterr().err
    assert "fields of ItemTS is ['prior'] there and ['before'] here; code of ItemTS is" in error


def test_a_sweep_file_names_policies_click_models_and_environments(inside, tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(
        f"""
        steps = 30
        seeds = 2
        out = "{tmp_path}/out"
        [[policy]]
        name = "my_policies.py:ItemTS"
        grid.prior = [1, 5]
        [[environment]]
        queries = 2
        items = 4
        click_model = "my_click_models.py:RankBiasedModel:persistence=0.5"
        [[environment]]
        world = "my_environments.py:TwoKinds"
        list_size = 3
        """
    )
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--quiet"]) == 0
    by_model = jr.load(next((tmp_path / "out").glob("queries*.nc")))["regret"]
    np.testing.assert_array_equal(by_model.sel(prior=5), jr.load(inside / "results" / "run.nc")["regret"][1])
    assert jr.load(next((tmp_path / "out").glob("my_environments*.nc")))["regret"].sizes["prior"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--world", "my_environments.py:TwoKinds", "--queries", "3"],
            "must be one of attraction, share, list_size; got",
        ),
        (
            ["--world", "my_environments.py:TwoKinds:list_size=7"],
            "TwoKinds.list_size must be at most the 6 items; got 7",
        ),
        (["--world", "my_policies.py:ItemTS"], "must have the members query, clicks, metrics, instance_dim; it has no"),
        (
            ["--click-model", "my_policies.py:ItemTS"],
            "--click-model my_policies.py:ItemTS must have the members sample,",
        ),
        (
            ["--click-model", "dbn:gamma=1"],
            "an option of --click-model must be one of dbn:attraction, dbn:satisfaction, dbn:continuation; got",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(inside, arguments, message, capsys):
    assert main(["run", *arguments, "--out", "nowhere"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (inside / "nowhere").exists()


def test_all_fitted_click_models_make_a_synthetic_world_and_one_of_them_runs(tmp_path):
    for model in jr.available("click_model"):
        world = make_world("click", {}, click_model=model, queries=2, items=3)
        assert world.summary == f"2 synthetic {model} queries" and world.environment.num_queries == 2
    run = ["run", "--policy", "static", "--click-model", "ubm", "--queries", "2", "--items", "3", "--steps", "5"]
    assert main([*run, "--out", str(tmp_path), "--quiet"]) == 0
    assert (jr.load(tmp_path / "run.nc")["regret"] >= 0).all()


def test_new_writes_a_sweep(tmp_path, refusal):
    path = tmp_path / "mine.toml"
    assert main(["new", "sweep", str(path)]) == 0
    assert [cell.label for cell in read_sweep(path).cells][:3] == ["bubblerank", "toprank", "static"]
    assert "FILE must be new" in refusal(["new", "sweep", str(path)])
    assert "FILE must be a TOML file" in refusal(["new", "sweep", "mine.py"])
