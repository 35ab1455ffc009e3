"""The command, as a user sees it."""

import subprocess
import sys

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.command import commands
from jaxrank.command.cli import main

SMALL = ["--queries", "2", "--items", "4", "--steps", "50", "--seeds", "2"]


def test_run_leaves_a_results_file_and_a_picture_of_each_metric(tmp_path, capsys):
    code = main(["run", *SMALL, "--metrics", "regret", "violations", "--out", str(tmp_path / "out")])
    assert code == 0
    result = jr.load(tmp_path / "out" / "run.nc")
    assert result["policy"].values.tolist() == ["BubbleRank", "StaticRanking"]
    assert result["regret"].sizes["query"] == 2 and result.attrs["data"] == "synthetic"
    for picture in ("regret.png", "violations.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "StaticRanking" in printed and "±" in printed and "lane-steps/s" in printed


def test_run_takes_several_policies_with_options(tmp_path):
    policies = ["--policy", "bubblerank:delta=0.5", "--policy", "bubblerank:delta=0.1,horizon=90", "--policy", "random"]
    assert main(["run", *SMALL, *policies, "--click-model", "dcm", "--out", str(tmp_path)]) == 0
    labels = jr.load(tmp_path / "run.nc")["policy"].values.tolist()
    assert labels == ["bubblerank:delta=0.5", "bubblerank:delta=0.1,horizon=90", "RandomRanking"]


def test_run_finds_the_world_of_rankers_and_draws_each_user(tmp_path, capsys):
    options = ["--queries", "4", "--steps", "20", "--seeds", "2", "--user", "perfect", "navigational"]
    assert main(["run", "--policy", "pdgd", "--policy", "mgd", *options, "--out", str(tmp_path)]) == 0
    result = jr.load(tmp_path / "run.nc")
    assert list(result.data_vars) == ["cndcg", "ndcg@10"]
    assert result["user"].values.tolist() == ["perfect", "navigational"]
    assert result["ndcg@10"].max() <= 1 and (result["ndcg@10"] > 0).all()
    for picture in ("cndcg.png", "ndcg@10.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "stream of 4 synthetic queries, clicked by perfect and navigational users" in printed
    assert "MGD navigational" in printed


def test_run_finds_the_world_of_topics(tmp_path, capsys):
    options = ["--queries", "3", "--items", "12", "--list-size", "4", "--trade-off", "0.3", "--steps", "20"]
    assert main(["run", "--policy", "cascade_hybrid", "--policy", "static", *options, "--out", str(tmp_path)]) == 0
    assert jr.load(tmp_path / "run.nc")["regret"].sizes["user"] == 3
    assert "3 users of synthetic ratings of 12 items" in capsys.readouterr().out


def test_plot_draws_a_results_file_again(tmp_path):
    assert main(["run", *SMALL, "--out", str(tmp_path), "--format", "pdf"]) == 0
    assert (tmp_path / "regret.pdf").read_bytes().startswith(b"%PDF") and not list(tmp_path.glob("*.png"))
    out = tmp_path / "again.svg"
    assert main(["plot", str(tmp_path / "run.nc"), "--per-step", "--log", "--out", str(out)]) == 0
    assert "<svg" in out.read_text()


def test_a_second_run_needs_force_and_then_leaves_nothing_of_the_first(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    world = ["run", "--policy", "static", "--queries", "1", "--items", "4", "--steps", "50", "--out", str(out)]
    assert main([*world, "--seeds", "1", "--metrics", "regret,ndcg,", "clicks"]) == 0
    printed = capsys.readouterr().out
    assert "1 policy × 1 seed × 50 steps in 1 synthetic cm query\n" in printed and "±" not in printed
    assert main(["plot", str(out / "run.nc"), "--metric", "ndcg", "--per-step"]) == 0
    (out / "notes.png").write_text("mine")
    assert {file.name for file in out.iterdir()} == {
        "run.nc", "report.html", "regret.png", "ndcg.png", "clicks.png", "ndcg-per-step.png", "notes.png"
    }  # fmt: skip

    monkeypatch.setattr(commands.worlds, "make_world", lambda *_, **__: pytest.fail("nothing is done before"))
    assert main([*world, "--metrics", "violations"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"--out must be new; there is {out / 'run.nc'}: choose another, or" in error
    monkeypatch.undo()
    assert main([*world, "--metrics", "violations", "--force"]) == 0
    assert {file.name for file in out.iterdir()} == {"run.nc", "report.html", "violations.png", "notes.png"}
    assert list(jr.load(out / "run.nc").data_vars) == ["violations"]
    (out / "run.nc").unlink()
    assert main([*world, "--metrics", "violations"]) == 2, "a picture is in the way"
    assert main(["plot", "x.nc", "--out", str(out / "notes.png")]) == 2
    assert f"--out must be new; there is {out / 'notes.png'}" in capsys.readouterr().err
    assert (out / "notes.png").read_text() == "mine"


def test_resume_replaces_its_own_results_and_no_others(tmp_path, capsys):
    out, saved = tmp_path / "out", tmp_path / "saved"
    world = ["run", "--policy", "static", "--queries", "1", "--items", "4", "--steps", "50", "--out", str(out)]
    assert main([*world, "--seeds", "1", "--checkpoint", str(saved)]) == 0
    (out / "regret.png").unlink()  # as if it had been killed before it drew this
    again = ["resume", str(saved), "--out", str(out)]
    assert main(again) == 0 and (out / "regret.png").exists()
    assert main([*world, "--seeds", "2", "--force"]) == 0
    capsys.readouterr()
    assert main(again) == 2
    assert f"--out must be new; there is {out / 'run.nc'}" in capsys.readouterr().err
    assert jr.load(out / "run.nc").sizes["seed"] == 2
    assert main([*again, "--force"]) == 0 and jr.load(out / "run.nc").sizes["seed"] == 1


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["reproduce", "batchrank-fig1", "--out", "."], "batchrank-fig1.md"),
        (["fit", "log.tsv", "--out", "params.json"], "params.json"),
        (["bench", "--policy", "static", "--no-baseline", "--out", "."], "bench.jsonl"),
    ],
)
def test_no_command_replaces_a_file_without_force(arguments, file, refusal, tmp_path):
    (tmp_path / file).write_text("mine")
    assert f"--out must be new; there is {file}: choose another, or give --force" in refusal(arguments)
    assert (tmp_path / file).read_text() == "mine"


def test_list_names_everything_registered(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in (*jr.available("policy"), *jr.available("click_model"), "regret", "ndcg"):
        assert f"  {name}" in printed or f" {name}," in printed


def test_version_and_module_entry_point():
    run = subprocess.run([sys.executable, "-m", "jaxrank", "--version"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, f"jaxrank {jr.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--policy", "bubblesort"], "--policy must be one of static, random"),
        (["run", "--policy", "bublerank"], "got 'bublerank'; did you mean 'bubblerank'?"),
        (["run", "--policy", "bubblerank:dleta=0.1"], "got 'bubblerank:dleta'; did you mean 'bubblerank:delta'?"),
        (
            ["run", "--policy", "bubblerank:delta=[0.1,0.2]"],
            "--policy must have one value of an option; got 'bubblerank:delta=[0.1,0.2]': jaxrank sweep takes a grid",
        ),
        (["run", "--polcy", "static"], "run: error: unrecognized arguments: --polcy static; did you mean '--policy'?"),
        (["run", "-" * 3_000], f"run: error: unrecognized arguments: {'-' * 400}…"),
        (
            ["run", "--policy", "bubblerank:horizon=5", "--steps", "9"],
            "horizon must be at least --steps = 9; got 5",
        ),
        (["run", "--steps", "9", "--record-at", "10"], "--record-at must not pass --steps = 9; got 10"),
        (
            ["run", "--seeds", "1e9"],
            "there must be fewer than 2**31 lanes (settings × instances × seeds); got 60,000,000,000",
        ),
        (["run", "--devices", "0"], "--devices must be a positive integer; got 0"),
        (["run", "--policy", "bubblerank:delta=2"], "BubbleRank.delta must be in (0, 1); got 2"),
        (["run", "--policy", "bubblerank:delta"], "--policy must look like name:option=value"),
        (["run", "--policy", "static", "--policy", "static"], "--policy must not be given twice"),
        (["run", "--click-model", "xyz"], "--click-model must be one of cm, dcm, pbm, "),
        (["run", "--steps", "0"], "--steps must be an integer from 1 to 2147483646; got 0"),
        (["run", "--steps", "many"], "--steps must be an integer from 1 to 2147483646; got 'many'"),
        (["run", "--items", "4", "--list-size", "5"], "--list-size must be an integer from 1 to 4 items; got 5"),
        (["run", "--metrics", "fun"], "--metrics must be among regret"),
        (["run", "--data", "/nowhere"], "--data must be a JSON file or a folder"),
        (["reproduce", "batchrank-fig1", "--data", "/nowhere"], "--data must be a JSON file or a folder"),
        (["reproduce", "cascadehybrid-fig1", "--data", "/nowhere"], "--data must be a folder with ratings.csv"),
        (["reproduce", "batchrank-fig9"], "FIGURE must be one of"),
        (["reproduce", "batchrank-fig1", "--scale", "huge"], "--scale must be one of smoke, laptop, paper"),
        (["fit", "/nowhere"], "LOG must be a text file; there is none at /nowhere"),
        (["fit", "/nowhere", "--model", "pmb"], "got 'pmb'; did you mean 'pbm'?"),
        (["fit", "/nowhere", "--columns", "docs"], "--columns must be NAME=COLUMN; got 'docs'"),
        (["fit", "/nowhere", "--columns", "doc=urls"], "--columns must be one of split, query_region, docs"),
        (["sweep", "/nowhere"], "CONFIG must be a TOML file; there is none at /nowhere"),
        (["run", "--policy", "pairrank", "--policy", "bubblerank"], "policies for one world; PairRank and BubbleRank"),
        (["run", "--policy", "bubblerank", "--world", "letor"], "--policy BubbleRank needs --world click"),
        (["run", "--policy", "pdgd", "--click-model", "cm"], "--click-model belongs to --world click; got 'cm' in"),
        (["run", "--user", "perfect"], "--user belongs to --world letor; got ['perfect'] in --world click"),
        (["run", "--policy", "pdgd", "--user", "lazy"], "--user must be one of perfect"),
        (["run", "--policy", "pdgd", "--data", "/nowhere"], "--data must be a folder with the files of a LETOR"),
        (["run", "--world", "topics", "--data", "/nowhere"], "--data must be a folder with ratings.csv"),
        (["run", "--world", "topics", "--trade-off", "2"], "--trade-off must be in [0, 1]; got 2.0"),
        (
            ["run", "--world", "topics", "--normalize-relevance", "no"],
            "--normalize-relevance must be 'true' or 'false'; got 'no'",
        ),
        (["run", "--reference", "best"], "--reference must be 'optimal' or 'attraction'; got 'best'"),
        (["run", "--queries", "0"], "--queries must be a positive integer; got 0"),
        (["run", "--out", "/proc/nowhere"], "the output folder must be writable; cannot write /proc/nowhere"),
        (["plot", "/nowhere.nc"], "FILE must be a results file; there is none at /nowhere.nc"),
        (["plot", "x.nc", "--out", "x.txt"], "--out must end in .png, .pdf or .svg; got x.txt"),
        (["plot", "x.nc", "--out", "x.pdf", "--format", "svg"], "--format must be as --out ends, pdf; got svg"),
        (["run", "--format", "bmp"], "argument --format: invalid choice: 'bmp'"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "required: COMMAND"),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(arguments, message, refusal):
    assert message in refusal(arguments)


def test_fit_compares_models_and_leaves_parameters_that_run_and_score(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = ["split\tqid\tdocs\tclicked_positions0"]
    for session in range(400):
        clicked = np.flatnonzero(rng.random(4) < np.linspace(0.6, 0.05, 4))
        shown = rng.permutation(5 + session % 2)[:4]  # 5 documents of q0, 6 of q1
        split = "test" if session % 4 == 0 else "train"
        lines.append(f"{split}\tq{session % 2}\t{','.join(map(str, 100 + shown))}\t{','.join(map(str, clicked))}")
    log, params = tmp_path / "log.tsv", tmp_path / "params.json"
    log.write_text("\n".join(lines) + "\n")
    fit = ["fit", str(log), "--columns", "query_region=qid", "--quiet", "--model", "pbm", "rdctr"]
    assert main([*fit, "--out", str(params)]) == 0
    printed = capsys.readouterr().out
    assert "fitted to 300 sessions of 2 queries" in printed and "test: highest log-likelihood " in printed
    rows = [line for line in printed.splitlines() if line.startswith(("pbm ", "rdctr "))]
    assert len(rows) == 2 and all(len(row.split()) == 5 for row in rows)
    assert main([*fit, "--parameters", str(params)]) == 0
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if line.startswith(("pbm ", "rdctr "))] == rows
    assert main([*fit, "--validation", "0.5", "--out", str(tmp_path / "half.json")]) == 0
    assert "fitted to 1" in capsys.readouterr().out, "about half of the 300 training sessions"
    run = ["run", "--data", str(params), "--click-model", "pbm", "--policy", "static", "--steps", "20", "--seeds", "1"]
    assert main([*run, "--out", str(tmp_path / "out"), "--no-report", "--quiet"]) == 0
    result = jr.load(tmp_path / "out" / "run.nc")
    assert result.sizes["query"] == 2


def test_fit_names_the_line_of_a_bad_log(tmp_path, capsys):
    log = tmp_path / "log.tsv"
    log.write_text("split\tquery_region\tdocs\tclicked_positions0\ntrain\tq\t1,2,3\t3\n")
    assert main(["fit", str(log)]) == 2
    error = capsys.readouterr().err
    assert "log.tsv:2: clicked position 3 was not shown; positions are 0 to 2" in error and error.count("\n") == 1
