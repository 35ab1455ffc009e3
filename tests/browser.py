"""A real browser for tests: Chromium or Chrome where the system has one, and what must hold of a page that it opens."""

import contextlib
import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
MARKS = ".chart.js-plotly-plot"
LIGHT, DARK = "light", "dark"


@contextlib.contextmanager
def opened_browser():
    """Playwright's handle of the system's browser. Without one, a skip; a failure if JAXRANK_NEEDS_BROWSER is set."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing = f"needs a browser: none of {', '.join(NAMES)} is installed"
        (pytest.fail if os.environ.get("JAXRANK_NEEDS_BROWSER") else pytest.skip)(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        root = hasattr(os, "geteuid") and os.geteuid() == 0  # who has no sandbox
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if root else [])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened_page(browser, url, scheme=LIGHT, patience=20_000):
    """A page, and the list of what it complained of or asked the network for."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    own = ("file:", "data:", "blob:", url.rpartition("/")[0] if url.startswith("http://127.0.0.1") else "file:")
    page.on("request", lambda asked: wrong.append(f"asks for {asked.url}") if not asked.url.startswith(own) else None)
    page.set_default_timeout(patience)  # milliseconds
    page.goto(url)
    yield page, wrong
    page.close()


def lines_drawn(page, chart):
    """How many lines with at least two points are on a chart, bands not counted."""
    return page.locator(chart).evaluate(
        """chart => Array.from(chart.querySelectorAll('.scatterlayer .trace .js-line'))
           .filter(path => (path.getAttribute('d') || '').includes('L') && path.style.strokeWidth !== '0px').length"""
    )


def bands_drawn(page, chart):
    return page.locator(f"{chart} .scatterlayer .js-fill").count()


def contrast(page, text):
    """The contrast (WCAG) of an element's text with the page behind it."""
    colours = page.locator(text).first.evaluate(
        """element => [getComputedStyle(element).fill.startsWith('rgb') && element.closest('svg') ?
           getComputedStyle(element).fill : getComputedStyle(element).color,
           getComputedStyle(document.body).backgroundColor]"""
    )
    bright, dark = sorted((_luminance(colour) for colour in colours), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour):
    channels = [float(part) / 255 for part in colour.partition("(")[2].strip(")").split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def check_chart(page, chart, lines, panels=1):
    """Curves with bands are drawn, a click in the legend hides one and brings it back, the axes become logarithmic."""
    assert lines_drawn(page, chart) == lines * panels, "every curve is drawn"
    assert bands_drawn(page, chart) == lines * panels, "every band is drawn"
    lowest = page.locator(chart).evaluate("chart => chart._fullLayout.yaxis.range[0]")
    assert lowest < 0, "a curve at 0 would be seen above the axis"
    toggles = page.locator(f"{chart} .legendtoggle")
    assert toggles.count() == lines, "the legend has every line once"
    toggles.first.click()
    page.wait_for_timeout(600)  # plotly waits for a second click, which would show the line alone
    assert lines_drawn(page, chart) == (lines - 1) * panels, "a click in the legend hides a curve"
    assert bands_drawn(page, chart) == (lines - 1) * panels, "and its band"
    toggles.first.click()
    page.wait_for_timeout(600)
    assert lines_drawn(page, chart) == lines * panels, "a second click shows it again"
    page.locator(f"{chart} .updatemenu-button", has_text="log both").click()
    page.wait_for_timeout(300)
    kinds = page.locator(chart).evaluate("chart => [chart._fullLayout.xaxis.type, chart._fullLayout.yaxis.type]")
    assert kinds == ["log", "log"], "a button makes the axes logarithmic"
    opaque = page.locator(f"{chart} .updatemenu-item-rect").evaluate_all(
        """all => all.map(e => getComputedStyle(e))
           .filter(s => s.fillOpacity === '1' && !s.fill.startsWith('rgba')).length"""
    )
    assert opaque == 0, "buttons let the page through, so that their text can be read"
    page.locator(f"{chart} .updatemenu-button", has_text="linear").click()
    page.wait_for_timeout(300)
    box = page.locator(f"{chart} .nsewdrag").first.bounding_box()
    for part in (0.45, 0.5, 0.55):  # plotly looks at some of the moves only
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        page.wait_for_timeout(200)
    hovered = page.locator(f"{chart} .hoverlayer").evaluate("layer => layer.textContent")
    assert "±" in hovered, "hovering tells the values and their intervals"
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    page.wait_for_timeout(300)
    shown = page.locator(chart).evaluate("chart => chart._fullLayout.xaxis.range[0]")
    assert shown > 0, "dragging zooms"


def check_report(browser, url, lines, panels=1, metrics=("regret",), **options):
    """All that must hold of a report. An AssertionError, or Playwright's TimeoutError, says what does not."""
    with opened_page(browser, url, **options) as (page, wrong):
        page.wait_for_selector("html[data-ready=yes]")
        for metric in metrics:
            check_chart(page, f'.chart[data-chart="{metric}"]', lines, panels)
        folded = page.locator("details").first
        if folded.count():
            folded.locator("summary").click()
            page.wait_for_selector(f"details[open] {MARKS}")
        for text in ("h1", "p.quiet", "td", "a", f"{MARKS} .xtick text", f"{MARKS} .legendtext", f"{MARKS} .ytitle"):
            assert contrast(page, text) >= 4.5, f"{text} can be read"
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before, (
            "the button changes the theme"
        )
        page.wait_for_timeout(300)
        assert contrast(page, f"{MARKS} .xtick text") >= 4.5, "charts change with the page"
        assert wrong == [], "no errors in the console, nothing asked of the network"
