"""``jaxrank report``: of a run, a sweep, a figure, of two runs, and of what is still coming in."""

import copy
import threading
import urllib.error
import urllib.request

import pytest
from browser import opened_browser, opened_page

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.command.watching import make_server, state_of
from jaxrank.output import page
from jaxrank.output.files import read_json, write_json
from jaxrank.studies.folders import content_of

SWEEP = """
steps = 40
records = 3
seeds = 2
[[policy]]
name = "bubblerank"
grid.delta = [0.5, 0.01]
[[policy]]
name = "static"
[[environment]]
queries = 2
items = 4
"""


@pytest.fixture
def run_folder(tmp_path):
    out = tmp_path / "first"
    assert main(["run", "--queries", "2", "--items", "4", "--steps", "40", "--records", "3", "--out", str(out)]) == 0
    return out


def test_a_run_says_how_it_was_made_and_the_report_can_be_made_again(run_folder, capsys):
    made = (run_folder / "report.html").read_text()
    assert "jaxrank run --queries 2 --items 4 --steps 40" in made and "ClickBandit(" in made
    assert "BubbleRank(horizon=40)" in made and jr.__version__ in made and " cores" in made
    assert main(["report", str(run_folder)]) == 2
    assert f"--out must be new; there is {run_folder / 'report.html'}" in capsys.readouterr().err
    assert main(["report", str(run_folder), "--force"]) == 0
    assert (run_folder / "report.html").read_text() == made
    assert main(["report", str(run_folder / "run.nc"), "--out", str(run_folder / "other.html")]) == 0
    assert (run_folder / "other.html").read_text() == made


def test_two_runs_are_compared_pair_by_pair(run_folder, tmp_path):
    other = tmp_path / "second"
    options = ["--queries", "2", "--items", "4", "--steps", "40", "--records", "3", "--policy", "static", "--no-report"]
    assert main(["run", *options, "--out", str(other)]) == 0
    assert not (other / "report.html").exists()
    assert main(["report", str(run_folder), str(other)]) == 0
    text = (run_folder / "compared.html").read_text()
    assert "StaticRanking (second)" in text and "minus BubbleRank (first), paired" in text and "not paired" not in text
    assert main(["report", str(other), str(other), "--out", str(tmp_path / "x.html")]) == 2


@pytest.mark.filterwarnings("default")  # which the command shows in one line
def test_a_report_that_fails_leaves_the_run_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "_library", lambda: 1 / 0)
    options = ["--queries", "1", "--items", "3", "--steps", "20", "--records", "2", "--policy", "static"]
    assert main(["run", *options, "--out", str(tmp_path / "out")]) == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"run.nc", "regret.png"}
    warning = capsys.readouterr().err
    assert warning.startswith("jaxrank: warning: the report is missing: ") and warning.count("\n") == 1


def test_a_folder_without_results_is_refused(tmp_path, refusal):
    assert "FOLDER must be that of a run, a sweep or a figure" in refusal(["report", str(tmp_path)])
    assert "there is none" in refusal(["report", str(tmp_path / "nowhere"), "--watch"])


def test_a_figure_keeps_its_table_and_picture(tmp_path):
    options = ["--scale", "smoke", "--out", str(tmp_path), "--quiet"]
    assert main(["reproduce", "bubblerank-fig2", *options]) == 0
    shown = content_of(tmp_path)
    assert list(shown.curves["violations"]) == ["cm", "dcm", "pbm"] and len(shown.curves["violations"]["cm"]) == 5
    text = (tmp_path / "bubblerank-fig2.html").read_text()
    assert "violations in 100 steps (published)</th>" in text and "data:image/png;base64," in text
    assert "jaxrank reproduce bubblerank-fig2 --scale smoke" in text


def test_a_sweep_is_watched_while_its_cells_come_in(tmp_path):
    """The page has what is there, says what is not, and reloads itself when a cell is done."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    out = tmp_path / "out"
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(out), "--quiet"]) == 0
    manifest, _ = read_json(out / "manifest.json")
    half = copy.deepcopy(manifest)
    name = next(cell for cell in half["cells"] if "static" in cell)
    half["cells"][name]["state"] = "waiting"
    write_json(out / "manifest.json", half)
    assert "1 of 2 cells done" in content_of(out).about and content_of(out).waiting == {name: "waiting"}

    server = make_server([out], lambda: content_of(out), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert server.server_address[0] == "127.0.0.1"
        url = f"http://127.0.0.1:{server.server_port}/"
        for path, host, code in (("nothing", None, 404), ("", "evil.example", 403), ("state", "evil.example", 403)):
            asked = urllib.request.Request(url + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked)
            assert refused.value.code == code
            refused.value.close()
        before = state_of([out])
        with opened_browser() as browser, opened_page(browser, url) as (shown, wrong):
            shown.wait_for_selector("html[data-ready=yes]")
            assert "Not there yet" in shown.content()
            write_json(out / "manifest.json", manifest)
            assert state_of([out]) != before
            shown.wait_for_selector("text=2 of 2 cells done")
            assert "Not there yet" not in shown.content()
            assert wrong == []
    finally:
        server.shutdown()
        server.server_close()
