"""Reports: right numbers, whole in one file, safe to open, and never at the cost of the results."""

import base64
import csv
import gzip
import io
import json
import re

import numpy as np
import pytest
import scipy.stats
import xarray
from browser import DARK, LIGHT, check_report, opened_browser, opened_page

import jaxrank as jr
from jaxrank.output import page as pages
from jaxrank.output.charts import curve_chart
from jaxrank.output.intervals import mean_and_interval, paired_difference
from jaxrank.output.page import Content, html_of, numbers
from jaxrank.studies.folders import compared, content_of, curves_of


def result_of(policies=("BubbleRank", "TopRank"), queries=4, seeds=3, records=20, metrics=("regret",)):
    steps = np.arange(1, records + 1) * 50
    values = np.random.default_rng(0).uniform(0.5, 1.5, (len(policies), queries, seeds, 1)) * steps**0.7
    values *= np.arange(1, len(policies) + 1)[:, None, None, None]
    coords = {"policy": list(policies), "query": np.arange(queries), "seed": np.arange(seeds), "step": steps}
    attributes = {"policy": json.dumps({name: f"{name}()" for name in policies}), "jaxrank_version": jr.__version__}
    return xarray.Dataset({name: (tuple(coords), values) for name in metrics}, coords, attributes)


def content(**options):
    return Content("a report", "of a test", curves_of(result_of(**options)))


def unpacked(text, name):
    packed = re.search(rf'id="{name}">([^<]*)<', text)[1]
    return gzip.decompress(base64.b64decode(packed)).decode()


def array(packed):
    return np.frombuffer(base64.b64decode(packed["bdata"]), packed["dtype"])


def test_intervals_are_those_of_students_t_over_queries():
    regret = result_of()["regret"].isel(step=-1)
    by_query = regret.mean("seed").sel(policy="TopRank").values
    mean, half = mean_and_interval(regret.sel(policy="TopRank"))
    low, high = scipy.stats.t.interval(0.95, 3, by_query.mean(), scipy.stats.sem(by_query))
    np.testing.assert_allclose([mean - half, mean + half], [low, high])
    difference = paired_difference(regret.sel(policy="TopRank"), regret.sel(policy="BubbleRank"))
    paired = scipy.stats.ttest_rel(by_query, regret.mean("seed").sel(policy="BubbleRank").values)
    np.testing.assert_allclose([difference[0] - difference[1], difference[0] + difference[1]],
                               paired.confidence_interval(0.95))  # fmt: skip
    one = regret.sel(policy="TopRank").isel(query=[0])  # of a single query, over its seeds
    np.testing.assert_allclose(mean_and_interval(one)[1], scipy.stats.sem(one.values[0]) * scipy.stats.t.ppf(0.975, 2))
    assert paired_difference(one, regret.sel(policy="TopRank")) is None, "other queries, no pairs"


def test_the_chart_has_the_means_and_bands_of_the_result():
    result = result_of()
    chart = curve_chart(curves_of(result)["regret"], "regret")
    lines = [trace for trace in chart["data"] if "hovertemplate" in trace]
    assert [line["name"] for line in lines] == ["BubbleRank", "TopRank"]
    mean, half = mean_and_interval(result["regret"].sel(policy="TopRank"))
    np.testing.assert_allclose(array(lines[1]["y"]), mean, rtol=1e-6)
    np.testing.assert_array_equal(array(lines[1]["x"]), result["step"])
    assert chart["data"][2:] == lines, "lines are drawn above all bands"
    band = chart["data"][1]
    assert band["fill"] == "toself" and band["legendgroup"] == lines[1]["legendgroup"]
    np.testing.assert_allclose(array(band["y"])[:20], mean + half, rtol=1e-6)
    assert array(band["y"]).min() > 0, "a band is seen on a logarithmic axis, too"


def test_the_page_is_whole_and_has_the_numbers(tmp_path):
    shown = content(metrics=("regret", "violations"))
    text = html_of(shown)
    assert "plotly.js" in unpacked(text, "library")[:500]
    charts = json.loads(unpacked(text, "charts"))
    assert set(charts) == {"regret", "regret/", "violations", "violations/"}
    assert not re.search(r'(src|href)="(?!data:)', text), "nothing outside of the file"
    assert "default-src 'none'" in text and "connect-src" not in text
    data = re.search(r'href="data:application/gzip;base64,([^"]*)"', text)[1]
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(base64.b64decode(data)).decode())))
    assert len(rows) == 2 * 2 * 4 * 20
    last = [row for row in rows if row["metric"] == "regret" and row["line"] == "TopRank" and row["step"] == "1000"]
    expected = result_of()["regret"].sel(policy="TopRank", step=1000).mean("seed").values
    np.testing.assert_allclose([float(row["value"]) for row in last], expected, rtol=1e-6)
    assert [row["instance"] for row in last] == [f"query={i}" for i in range(4)]
    mean, half = mean_and_interval(result_of()["regret"].isel(step=-1))
    assert f'<td class="number">{float(mean[1] - half[1]):,.1f} to {float(mean[1] + half[1]):,.1f}</td>' in text


def test_too_many_numbers_become_means(monkeypatch):
    monkeypatch.setattr(pages, "_ROWS", 100)
    table, what = numbers(content())
    assert table.splitlines()[0] == "metric,panel,line,step,mean,interval" and "half-widths" in what
    assert len(table.splitlines()) == 1 + 2 * 20


def test_ten_policies_sixty_queries_and_two_hundred_records_are_below_5_megabytes(tmp_path):
    size = len(html_of(content(policies=[f"policy{i}" for i in range(10)], queries=60, records=200)).encode())
    assert size < 5e6


def test_names_cannot_smuggle_code_into_the_page():
    evil = "</script><script>alert(1)</script><b onclick=x>"
    shown = Content(evil, evil, curves_of(result_of(policies=(evil, "TopRank"))), {evil: {evil: evil}},
                    notes=f"{evil}\n\n| a |\n| --- |\n| {evil} |", waiting={evil: evil})  # fmt: skip
    text = html_of(shown)
    assert "alert(1)</script>" not in text and "<b onclick" not in text
    chart = json.loads(unpacked(text, "charts"))["regret"]
    assert all("<script" not in trace.get("name", "") + trace.get("hovertemplate", "") for trace in chart["data"])


def test_two_reports_in_one_say_whose_line_is_whose(tmp_path):
    for name, seeds in (("a", 3), ("b", 3)):
        jr.save(result_of(seeds=seeds), tmp_path / name / "run.nc")
    both = compared({name: content_of(tmp_path / name) for name in ("a", "b")})
    assert list(both.curves["regret"][""]) == ["BubbleRank (a)", "TopRank (a)", "BubbleRank (b)", "TopRank (b)"]
    text = html_of(both)
    assert "minus BubbleRank (a), paired" in text and "not paired" not in text
    with pytest.raises(ValueError, match="has no results"):
        content_of(tmp_path)


def test_runs_of_different_lengths_are_compared_at_a_step_that_both_have(tmp_path):
    short, long = result_of(), result_of()
    short = short.sel(step=short["step"][:10])
    last = int(short["step"][-1])
    for name, result in (("long", long), ("short", short)):
        jr.save(result, tmp_path / name / "run.nc")
    text = html_of(compared({name: content_of(tmp_path / name) for name in ("long", "short")}))
    assert f"mean at step {last:,}" in text and f"Step {last:,} is the last one that all have." in text
    mean = float(long["regret"].sel(policy="BubbleRank", step=last).mean())
    assert text.count(f">{mean:,.{1 if mean >= 100 else 3}f}<") >= 2, "both lines have the value of the same step"
    regret = long["regret"].sel(policy="TopRank")
    assert paired_difference(regret.isel(step=-1), regret.isel(step=3)) is None, "other steps, no pairs"
    other = long.assign_coords(step=long["step"] + 1)
    jr.save(other, tmp_path / "other" / "run.nc")
    text = html_of(compared({name: content_of(tmp_path / name) for name in ("long", "other")}))
    assert "mean at the last step" in text and f"BubbleRank (other), step {int(other['step'][-1]):,}" in text


# In a browser


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as found:
        yield found


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_a_browser_draws_the_report(browser, scheme, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(html_of(content(policies=("BubbleRank", "TopRank", "<Mine> & yours"))))
    check_report(browser, file.as_uri(), lines=3, scheme=scheme)


def no_script(text):
    return re.sub(r'(id="library">)[^<]*', r"\1", text)


def no_data(text):
    charts = json.loads(unpacked(text, "charts"))
    for trace in charts["regret"]["data"]:
        trace["y"] = []
    return _with_charts(text, charts)


def no_groups(text):
    charts = json.loads(unpacked(text, "charts"))
    for trace in charts["regret"]["data"]:
        del trace["legendgroup"]
    return _with_charts(text, charts)


def a_call_home(text):
    return text.replace("default-src 'none'; script-src", "script-src").replace(
        "</body>", '<img src="https://example.org/x.png" alt=""></body>'
    ).replace("img-src data: blob:;", "")  # fmt: skip


def pale_text(text):
    return text.replace('"font.color": page.color', '"font.color": "#eeeeee"')


def _with_charts(text, charts):
    packed = base64.b64encode(gzip.compress(json.dumps(charts).encode())).decode()
    return re.sub(r'(id="charts">)[^<]*', lambda found: found[1] + packed, text)


@pytest.mark.parametrize("broken", [no_script, no_data, no_groups, a_call_home, pale_text])
def test_a_broken_report_fails_the_check(browser, broken, tmp_path):
    from playwright.sync_api import TimeoutError

    file = tmp_path / "report.html"
    whole = html_of(content())
    assert broken(whole) != whole
    file.write_text(broken(whole))
    with pytest.raises((AssertionError, TimeoutError)):
        check_report(browser, file.as_uri(), lines=2, patience=4_000)


def test_the_numbers_can_be_downloaded(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(html_of(content()))
    with opened_page(browser, file.as_uri()) as (page, _):
        with page.expect_download() as download:
            page.locator("#numbers").click()
        rows = gzip.decompress(download.value.path().read_bytes()).decode().splitlines()
    assert rows[0].startswith("metric,") and len(rows) == 1 + 2 * 4 * 20
