"""The progress bar: when it compiles, how fast it is, where it is shown."""

import io
import re

import nbclient
import nbformat
import rich.console

import jaxrank as jr
from jaxrank.output.progress import progress_bar

ENVIRONMENT = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3]))


def shown_on(monkeypatch, **options):
    """Lets the bar write to the text that is returned, on a console with these options."""
    text = io.StringIO()
    monkeypatch.setattr(
        rich.console, "Console", lambda original=rich.console.Console, **_: original(file=text, width=120, **options)
    )
    return text


def test_the_bar_says_that_it_compiles_and_then_how_fast_it_is(monkeypatch):
    text = shown_on(monkeypatch, force_terminal=True)
    with progress_bar("BubbleRank", 100, True) as progress:
        progress.compiling()
        progress.at(50, 2e6)
        said = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", text.getvalue())
        assert "lane-steps" not in said.split("compiling")[0]
    said = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", text.getvalue())
    last = said.strip().splitlines()[-1]
    assert "compiling" not in last and "50 %" in last and "2.00 M lane-steps/s" in last


def test_the_bar_is_silent_where_there_is_no_terminal(monkeypatch):
    text = shown_on(monkeypatch, force_terminal=False, force_jupyter=False)
    with progress_bar("BubbleRank", 100, True) as progress:
        progress.compiling()
        progress.at(50)
    assert text.getvalue() == ""


def test_a_run_tells_that_it_compiles_before_its_first_step(monkeypatch):
    text = shown_on(monkeypatch, force_terminal=True)
    result = jr.simulate(jr.RandomRanking(), ENVIRONMENT, 64, num_records=2)
    assert "RandomRanking" in text.getvalue() and "M lane-steps/s" in text.getvalue()
    running = result.attrs["wall_time_seconds"] - result.attrs["compile_seconds"]
    assert abs(result.attrs["lane_steps_per_second"] * running - 64) < 1e-6
    assert running < result.attrs["compile_seconds"], "64 steps of one lane take milliseconds"


def test_in_a_notebook_the_bar_is_one_output_that_ends_full():
    """In a real kernel. What a front end is told is also what the notebook keeps."""
    cells = [
        "import jaxrank as jr\nenv = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3]))",
        "result = jr.simulate(jr.RandomRanking(), env, 64, num_records=2)",
        "result = jr.simulate(jr.RandomRanking(), env, 64, num_records=2, progress=False)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    told = []
    client = nbclient.NotebookClient(notebook, timeout=120)
    original = client.process_message
    client.process_message = lambda message, *rest: (told.append(message), original(message, *rest))[1]
    client.execute()
    assert notebook.cells[0].outputs == [] and notebook.cells[2].outputs == []
    (bar,) = notebook.cells[1].outputs
    assert re.fullmatch(r"RandomRanking 100% [\d.]+ M lane-steps/s", bar.data["text/plain"])
    assert '<progress value="1.0000"' in bar.data["text/html"]
    shown = [m["content"]["data"]["text/plain"] for m in told if "display_data" in m["msg_type"]]
    assert shown[:2] == ["RandomRanking 0% ", "RandomRanking 0% compiling"], "it is there before the first step"
