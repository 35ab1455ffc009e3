"""The papers' figures at smoke scale, and the numbers of theirs that take seconds."""

import inspect

import numpy as np
import pytest
import xarray

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.output.intervals import has_own_queries
from jaxrank.studies.papers import (
    BOUNDED,
    FIGURES,
    FigureRequest,
    imperfect_clicks,
    nonstationary,
    pairrank,
    query_streams,
    reproduce,
    unknown_examination,
)

# An independent simulation of the same 60 queries: violations in the first 100 steps in CM, DCM, PBM.
EXPECTED = {
    "batchrank": (jr.BatchRank(horizon=5_000_000), (79, 76, 60)),
    "toprank": (jr.TopRank(horizon=5_000_000), (77, 74, 59)),
    "cascade_klucb, last click": (jr.CascadeKLUCB(feedback="last"), (23, 22, 15)),
    "cascade_klucb, first click": (jr.CascadeKLUCB(), (None, None, 25)),
    "bubblerank": (jr.BubbleRank(horizon=5_000_000), (0, 0, 0)),
}


# Five policies in three worlds, or seven rankers with tuning: half a minute of compilation each, which figures of the
# same paper share.
SLOW = (
    *("bubblerank-fig1", "bubblerank-fig2", "bubblerank-fig3", "bubblerank-fig4"),
    *("batchrank-fig2", "cascadehybrid-fig1", "cascadehybrid-fig1-normalized", "cascadehybrid-fig2"),
    *("pairrank-fig3", "pairrank-fig4", "pairrank-fig5", "pairrank-fig6", "pairrank-fig7"),
    *("pairrank-variants", "pairrank-tuning"),
    *("nonstationary", "unknown-examination", "delay", "corruption", "neural-rankers"),
)


LEFT_OUT = ("CascadeKLUCB", "CascadeKLUCB (last click)", "BatchRank", "BatchRank (released)", "TopRank")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FIGURES])
def test_every_figure_leaves_data_a_picture_and_a_table(name, tmp_path, capsys):
    bound = ["--bound"] * (name in BOUNDED)
    assert main(["reproduce", name, *bound, "--quiet", "--out", str(tmp_path)]) == 0
    assert "synthetic queries" in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "| --- |" in (tmp_path / f"{name}.md").read_text()
    assert jr.load(tmp_path / f"{name}.nc").attrs["scale"] == "smoke"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "batchrank")) for name in EXPECTED]
)
def test_violations_in_the_first_100_steps_on_the_60_real_queries(real_data, name):
    """Within 3 standard errors over seeds of the independent simulation, whose numbers are rounded to whole ones."""
    policy, expected = EXPECTED[name]
    for model, number in zip(("cm", "dcm", "pbm"), expected, strict=True):
        if number is None:
            continue
        environment = jr.ClickBandit(jr.datasets.yandex(real_data, model), list_size=10, top=5)
        options = {"num_seeds": 10, "num_records": 1, "metrics": ("violations",), "progress": False}
        by_seed = jr.simulate(policy, environment, 100, **options)["violations"][..., 0].mean("query").values
        error = by_seed.std(ddof=1) / np.sqrt(len(by_seed))
        assert abs(by_seed.mean() - number) <= 3 * error + 0.5, f"{model}: {by_seed.mean():.2f} ± {error:.2f}"


def test_runs_of_a_figure_are_saved_and_only_read_the_second_time(tmp_path, capsys):
    """With another number of seeds for one policy, without another policy, and with one click model."""
    command = ["reproduce", "bubblerank-fig1", "--quiet", "--checkpoint", str(tmp_path / "saved"), "--out"]
    options = ["--seeds", "2", "StaticRanking=1", *(f"{name}=0" for name in LEFT_OUT), "--click-model", "pbm"]
    assert main([*command, str(tmp_path / "first"), *options]) == 0
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "saved").rglob("step-*")}
    assert files and all(f"bubblerank/pbm/{name}" not in str(file) for file in files for name in LEFT_OUT)
    assert main([*command, str(tmp_path / "second"), *options]) == 0
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "saved").rglob("step-*")} == files
    first, second = (jr.load(tmp_path / name / "bubblerank-fig1.nc") for name in ("first", "second"))
    np.testing.assert_array_equal(first["regret"], second["regret"])
    assert first["regret"].sel(policy="StaticRanking").notnull().any(("query", "step")).values.tolist() == [
        [True, False]
    ]
    assert "Seeds: BubbleRank 2, StaticRanking 1." in (tmp_path / "first" / "bubblerank-fig1.md").read_text()
    assert (
        main(["reproduce", "bubblerank-fig1", "--quiet", *options, "--queries", "2", "--out", str(tmp_path / "fewer")])
        == 0
    )
    assert jr.load(tmp_path / "fewer" / "bubblerank-fig1.nc").sizes["query"] == 2
    assert main(["reproduce", "bubblerank-fig1", "--seeds", "TopRanck=2", "--out", str(tmp_path / "third")]) == 2
    assert "--seeds must be of policies of this figure" in capsys.readouterr().err


def test_figures_1_2_and_4_of_bubblerank_are_one_experiment(tmp_path):
    names = ["bubblerank-fig1", "bubblerank-fig2", "bubblerank-fig4"]
    options = ["--seeds", *(f"{name}=0" for name in LEFT_OUT), "--click-model", "pbm"]
    assert main(["reproduce", *names, *options, "--quiet", "--no-report", "--out", str(tmp_path)]) == 0
    one, two, four = (jr.load(tmp_path / f"{name}.nc") for name in names)
    np.testing.assert_array_equal(one["violations"], two["violations"])
    np.testing.assert_array_equal(one["ndcg@5"].sel(step=four["step"]), four["ndcg@5"])
    assert four["step"].values.tolist() == list(range(10, 1_001, 10)), "hundredths of the run"
    assert "[0] |" in (tmp_path / "bubblerank-fig2.md").read_text(), "BubbleRank's published number"


def test_folds_share_the_seeds_and_data_with_three_grades_have_users_for_three(tmp_path):
    for number in (1, 2, 3):
        (tmp_path / f"Fold{number}").mkdir()
    asked = FigureRequest(data=tmp_path, seeds=("PDGD=2", "MGD=0"), checkpoint=tmp_path / "saved")
    found = query_streams.folds(asked, 20)
    assert list(found) == ["Fold1", "Fold2", "Fold3"]
    assert {name: one.num_seeds("PairRank_C", 0) for name, one in found.items()} == dict.fromkeys(found, 7)
    assert [found["Fold2"].num_seeds(name, 9) for name in ("PDGD", "MGD")] == [1, 0]
    assert (found["Fold2"].data, found["Fold2"].checkpoint) == (str(tmp_path / "Fold2"), tmp_path / "saved" / "Fold2")
    assert query_streams.folds(FigureRequest(), 20) == {}
    few, many = (jr.datasets.QuerySet(np.ones((2, 1)), [0, grade], [0, 2]) for grade in (2, 4))
    assert [query_streams.users(queries, "perfect").num_grades for queries in (few, many)] == [3, 5]


def test_a_fold_counts_once_whatever_the_number_of_its_seeds(tmp_path, monkeypatch):
    def of_fold(request, zoom):
        number, seeds = int(request.data[-1]), request.num_seeds("PairRank_C", 9)
        values = number * np.ones((1, 1, seeds, 1)) + np.arange(seeds)[:, None]
        coords = {"policy": ["PairRank_C"], "user": ["perfect"], "seed": range(seeds), "query": [" query 0"]}
        attrs = {"chosen": f"λ = {number}", "wall_time_seconds": 2.0}
        return xarray.Dataset({"of query": (("policy", "user", "seed", "query"), values)}, coords, attrs)

    for number in (1, 2, 3):
        (tmp_path / f"Fold{number}").mkdir()
    monkeypatch.setattr(pairrank, "_of_fold", of_fold)
    found = pairrank._runs.__wrapped__(FigureRequest(data=str(tmp_path), seeds=("12",)), False)
    assert (found.attrs["folds"], found.attrs["wall_time_seconds"], found.sizes["seed"]) == (3, 6.0, 3)
    assert found.attrs["chosen"] == "Fold1: λ = 1. Fold2: λ = 2. Fold3: λ = 3"
    assert list(found["query"].values) == [f"Fold{number} query 0" for number in (1, 2, 3)]
    of_query = found["of query"].squeeze()
    np.testing.assert_array_equal(np.diag(of_query), np.array([1, 2, 3]) + 1.5)
    assert has_own_queries(of_query) and of_query.isnull().sum() == 6


@pytest.mark.parametrize("folds", [1, 5])
def test_a_setting_is_scored_by_what_it_learns_and_what_it_shows_in_lanes_that_no_figure_has(folds, monkeypatch):
    """The second of three rates learns best and the third shows best; on both together the third is ahead by 0.01."""
    calls = []

    def simulated(sweep, environment, num_steps, *, probes, num_seeds, seed, **options):
        calls.append((num_seeds, seed))
        shape = (3, 3, num_seeds, 4)  # [setting, user, seed, record]
        learnt = np.broadcast_to(np.array([0.3, 0.5, 0.4])[:, None, None, None], shape)
        shown = np.array([0.3, 0.3, 0.42])[:, None, None, None] * np.linspace(0.25, 1, 4) * num_steps
        dims = ("policy", "user", "seed", "step")
        return xarray.Dataset({"validation": (dims, learnt), "ndcg": (dims, np.broadcast_to(shown, shape))})

    monkeypatch.setattr(query_streams, "simulate", simulated)
    data = jr.datasets.synthetic_letor(10)
    queries = data if folds == 1 else data._replace(validation=None)
    grids = {"SGDRankNet": {"learning_rate": (0.01, 0.03, 0.09)}}
    policies = {"SGDRankNet": jr.SGDRankNet(), "PDGD": jr.PDGD()}
    found, chosen = query_streams.tuned(queries, FigureRequest(), "name", policies, grids, 50, tries=0)
    assert chosen == ["SGDRankNet: learning_rate 0.09 of 0.01/0.03/0.09"]
    assert (found["SGDRankNet"].learning_rate, found["PDGD"]) == (0.09, policies["PDGD"])
    assert calls == [(5 // folds, query_streams.TUNING_SEED)] * folds
    assert inspect.signature(jr.simulate).parameters["seed"].default != query_streams.TUNING_SEED


@pytest.mark.parametrize(
    ("name", "left"), [("nonstationary", "CascadeKLUCB"), ("unknown-examination", "TopRank"), ("delay", "CascadeTS")]
)
def test_policies_can_be_left_out(name, left, tmp_path):
    every = {
        "nonstationary": [*nonstationary.STATIC, *nonstationary.ADAPTIVE],
        "unknown-examination": [
            *unknown_examination.UNKNOWING,
            *("PBMUCB", "PBMTS", "PBMUCB, χ = 1", "PBMUCB, χ upside down"),
        ],
        "delay": [make.__name__ for make in imperfect_clicks.POLICIES],
    }[name]
    seeds = tuple(f"{policy}=0" for policy in every if policy != left)
    report = reproduce(name, FigureRequest(out=tmp_path, seeds=seeds, num_queries=2))
    assert list(report.result["policy"].values) == [left] and f"| {left} |" in report.table


def test_the_number_of_queries_is_refused_where_the_data_have_theirs(tmp_path, capsys):
    assert main(["reproduce", "pairrank-fig3", "--queries", "3", "--out", str(tmp_path)]) == 2
    assert "--queries must be left out: pairrank-fig3 takes all queries of its data; got 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "option", "got"),
    [
        ("bubblerank-fig1", ["--stop-at", "view"], "'view'"),
        ("cascadehybrid-fig1", ["--click-model", "cm"], "('cm',)"),
        ("pairrank-fig3", ["--panel", "d"], "('d',)"),
    ],
)
def test_options_that_a_figure_has_no_use_for_are_refused_before_any_run(name, option, got, tmp_path, capsys):
    assert main(["reproduce", "bubblerank-fig3", name, *option, "--out", str(tmp_path / "new")]) == 2
    assert f"{option[0]} must be left out: bubblerank-fig3 has no use for it; got {got}" in capsys.readouterr().err
    assert main(["reproduce", name, *option, "--out", str(tmp_path / "new")]) == 2
    assert f"{option[0]} must be left out: {name} has no use for it; got {got}" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_panels_can_be_run_apart(tmp_path):
    def one(*panels):
        request = FigureRequest(out=tmp_path, progress=False, panels=panels, checkpoint=tmp_path / "saved")
        return reproduce("cascadehybrid-fig1", request)

    by_trade_off = one("trade-off")
    assert "regret_by_num_topics" not in by_trade_off.result and "| K |" not in by_trade_off.table
    assert "d is 20" in by_trade_off.table
    assert "--panel trade-off`" in (tmp_path / "cascadehybrid-fig1.md").read_text()
    others = one("d", "K")
    assert "| d |" in others.table and "| K |" in others.table and "| λ |" not in others.table
    assert "is best at λ" not in others.table and "d = 20: CascadeHybrid is below CascadeLSB" in others.table
    ends = others.result[["regret_by_num_topics", "regret_by_list_size"]].isel(step=-1)
    np.testing.assert_allclose(
        ends["regret_by_num_topics"].sel(num_topics=20), others.result["regret"].isel(step=-1).mean(("user", "seed"))
    )
    assert ends.sizes["num_topics"] == 2 and (ends["regret_by_list_size"] > 0).all()


@pytest.mark.parametrize("panel", ["lambda", "k"])
def test_an_unknown_panel_is_refused(panel, tmp_path, capsys):
    assert main(["reproduce", "cascadehybrid-fig1", "--panel", panel, "--out", str(tmp_path / "new")]) == 2
    assert f"--panel must be one of trade-off, d, K; got '{panel}'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bubblerank-fig2", "pairrank-fig3"])
def test_a_bound_is_refused_where_there_is_none(name, tmp_path, capsys):
    assert main(["reproduce", name, "--bound", "--out", str(tmp_path)]) == 2
    assert f"--bound must be left out: no theorem bounds what {name} shows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bubblerank-fig3", ["--seeds", "3"], r"--seeds must be left out: bubblerank-fig3 has no use for it"),
        ("off-policy", ["--checkpoint", "saved"], r"--checkpoint must be left out: off-policy has no use"),
        ("unbiased-learning", ["--checkpoint", "saved"], r"--checkpoint must be left out: unbiased-learning has no"),
        ("bubblerank-fig1", ["--seeds", "BubbleRank=0"], r"--seeds must not leave out BubbleRank"),
        ("batchrank-fig1", ["--seeds", "CascadeKLUCB=0"], r"--seeds must not leave out CascadeKLUCB"),
        ("cascadehybrid-fig1", ["--seeds", "CascadeLSB=0"], r"--seeds must not leave out CascadeLSB"),
        ("nonstationary", ["--seeds", "CascadeKLUCB=0"], r"--seeds must not leave out CascadeKLUCB"),
        ("unknown-examination", ["--seeds", "TopRank=0"], r"--seeds must not leave out TopRank"),
        ("pairrank-tuning", ["--seeds", "PairRank=0"], r"--seeds must not leave out PairRank"),
        ("pairrank-variants", ["--seeds", "PDGD=2,matched, sum=0"], r"--seeds must not leave out matched, sum"),
        ("pairrank-fig3", ["--seeds", "PDDG=2"], r"--seeds must be of policies of this figure, PairRank_C, Pair"),
        ("unbiased-learning", ["--seeds", "IPW=2"], r"--seeds must be one number in this figure; got 'IPW'"),
    ],
)
def test_options_that_a_figure_cannot_follow_are_refused_before_it_runs(name, options, message, tmp_path, capsys):
    assert main(["reproduce", name, *options, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_unknown_figures_and_scales_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"figure must be one of bubblerank-fig1, .*; got 'fig9'"):
        reproduce("fig9", FigureRequest(out=tmp_path))
    with pytest.raises(ValueError, match="scale must be one of smoke, laptop, paper; got 'huge'"):
        FigureRequest(scale="huge")
