"""The site, as ``scripts/docs`` built it: links lead somewhere, nothing asks the network, a browser draws it."""

import html.parser
import urllib.parse
from pathlib import Path

import pytest
from browser import DARK, LIGHT, check_chart, contrast, opened_browser, opened_page

import jaxrank as jr

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"


@pytest.fixture(scope="module")
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("there is no site: scripts/docs builds it")
    return SITE


class Page(html.parser.HTMLParser):
    """The links of a page, what it loads, and the places that links may lead to."""

    def __init__(self, file):
        super().__init__()
        self.links, self.loads, self.places = [], [], set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe") and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(given["href"])


def test_every_link_of_the_site_leads_somewhere(site):
    pages = {file: Page(file) for file in site.rglob("*.html") if "_static" not in file.parts}
    assert len(pages) > 60
    dead = []
    for file, page in pages.items():
        for link in page.links + page.loads:
            target = urllib.parse.urlsplit(link)
            if target.scheme or link.startswith("data:"):
                if link in page.loads and target.scheme in ("http", "https"):
                    dead.append(f"{file.name} loads {link}")
                continue
            to = (file.parent / urllib.parse.unquote(target.path)).resolve() if target.path else file
            to = to / "index.html" if to.is_dir() else to
            place = urllib.parse.unquote(target.fragment)
            if not to.exists() or (place and to in pages and place not in pages[to].places):
                dead.append(f"{file.relative_to(site)} -> {link}")
    assert dead == []


def test_every_policy_click_model_and_public_name_is_in_the_site(site):
    for name in jr.available():
        text = (site / "policies" / f"{name}.html").read_text()
        for part in ("<math", "When to use it", "Complexity", "Parameters", "jaxrank-chart"):
            assert part in text, f"{name} has no {part}"
    for name in jr.available("click_model"):
        assert "<math" in (site / "click-models" / f"{name}.html").read_text()
    reference = (site / "reference" / "index.html").read_text()
    assert [name for name in jr.__all__ if name not in reference and name != "__version__"] == []


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as found:
        yield found


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize(("file", "lines"), [("index.html", 4), ("policies/bubblerank.html", 3)])
def test_a_browser_draws_the_start_page_and_bubblerank(site, browser, file, lines, scheme):
    with opened_page(browser, (site / file).as_uri(), scheme) as (page, wrong):
        page.wait_for_selector("html[data-ready=yes]")
        check_chart(page, ".jaxrank-chart", lines, panels=2)
        for text in ("h1", "article p", ".jaxrank-chart .xtick text", ".jaxrank-chart .legendtext"):
            assert contrast(page, text) >= 4.5, f"{text} can be read in {scheme}"
        if "bubblerank" in file:
            box = page.locator("div.math math").first.bounding_box()
            assert box["width"] > 60 and box["height"] > 12, "mathematics is drawn"
        assert wrong == []
