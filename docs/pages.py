"""The pages that the code itself fills: policies and click models, papers, the reference of what is public.

``write_all`` runs every policy at a small scale by ``jr.sweep``, and writes Markdown that Sphinx then builds. A policy
that is registered gets a page and a row in the tables without a word here; what it assumes, its mathematics and when to
use it are in ``texts/policies/<name>.md``.

The table of "Which policy should I use?" at another scale, in a terminal:

    python docs/pages.py --steps 100000 --seeds 10 --out results/which
"""

import argparse
import inspect
import json
import re
import shutil
import sys
import types
from pathlib import Path

import numpy as np

import jaxrank as jr
from jaxrank.core import registry
from jaxrank.output.charts import curve_chart
from jaxrank.output.intervals import mean_and_interval
from jaxrank.output.report import VERDICTS
from jaxrank.output.tables import markdown
from jaxrank.studies import papers, worlds
from jaxrank.studies.folders import content_of

REPOSITORY = Path(__file__).parents[1]
SOURCE = "https://github.com/jaxrank/jaxrank/blob/main"
# What each world is run with for the live curves. Steps are few: a build on one core has to take minutes.
WORLDS = {
    "click": ("a click bandit", 3_000, 'queries = 6\ngrid.click_model = ["cm", "pbm"]', "regret"),
    "topics": ("a topic bandit", 1_000, 'world = "topics"\nqueries = 6\nitems = 40\nlist_size = 5', "regret"),
    "letor": ("a query stream", 400, 'world = "letor"\nqueries = 30', "cndcg"),
}
# Policies that need more steps to be better than the production list: the curves of their pages, and of the start page.
LONG = ("bubblerank", "batchrank", "toprank", "cascade_klucb", "static", "random")
LONG_STEPS = 50_000
BASELINES = ("static", "random", "oracle")
PROJECT_PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "benchmarks": "benchmarks/README.md"}


def write_all(docs):
    """Writes all generated pages into folders of ``docs`` that Git ignores."""
    contents = {world: run_world(world, docs / "_results" / world) for world in WORLDS}
    contents["long"] = run_world("click", docs / "_results" / "long", LONG_STEPS, names=LONG)
    _write_policies(docs, contents)
    _write_click_models(docs)
    _write_papers(docs)
    _write_project(docs)
    _write_reference(docs)
    _write(docs / "_static" / "plotly.min.js", _plotly())


def copy_reports(app, error):
    """The reports of the runs behind the live curves, beside the pages."""
    if error is None and app.builder.name == "html":
        for world in (*WORLDS, "long"):
            target = Path(app.outdir) / "reports" / f"{world}.html"
            target.parent.mkdir(exist_ok=True)
            shutil.copy(Path(app.srcdir) / "_results" / world / "report.html", target)


# Runs


def world_of(name):
    """The world that a registered policy is shown in."""
    made_for = worlds.find_world({name: jr.make(name)}, None)
    return made_for if made_for in WORLDS else "click"


def run_world(world, folder, steps=None, seeds=2, names=None):
    """Runs every registered policy of a world, or these ``names``, by a sweep; returns the content of its report."""
    _, few, environment, _ = WORLDS[world]
    if names is None:
        names = [name for name in jr.available() if world_of(name) == world and name not in BASELINES]
        names += BASELINES if world != "letor" else ()
    lines = [f"steps = {steps or few}", f"seeds = {seeds}", "records = 60"]
    lines += [f'[[policy]]\nname = "{name}"' for name in names]
    config = folder.with_suffix(".toml")
    text = "\n\n".join(["\n".join(lines[:3]), *lines[3:], f"[[environment]]\n{environment}"])
    changed = config.exists() and config.read_text(encoding="utf-8") != text + "\n"
    _write(config, text)
    report = jr.sweep(config, folder, progress=False, overwrite=changed)
    for name, reason in report.failed.items():
        if "examination" not in reason:  # PBM policies need what only some click models have
            raise RuntimeError(f"{name}: {reason}")
    return content_of(folder)


def which_policy(content, metric="regret"):
    """The table of policies of one world: what they assume, and the last value of a metric in every environment."""
    panels = content.curves[metric]
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    rows = []
    for name in names:
        cells = []
        for lines in panels.values():
            if name not in lines:
                cells.append("–")
                continue
            mean, half = map(float, mean_and_interval(lines[name].isel(step=-1)))
            text = f"{mean:,.0f}" + ("" if np.isnan(half) else f" ± {half:,.0f}")
            cells.append(text.replace(" ", "\N{NO-BREAK SPACE}"))
        rows.append([name, _said(name, "Assumes") or "see its page", *cells])
    labels = [_short(title) or metric for title in panels]
    return ["policy", "assumes", *labels], rows


def _short(title):
    """cm of "queries=6 click_model=cm"."""
    found = re.search(r"click_model=(\w+)", title)
    return found[1].upper() if found else ""


# Pages


def _write_policies(docs, contents):
    folder = _fresh(docs / "policies")
    listed = {world: [] for world in WORLDS}
    for name in jr.available():
        cls = registry.factory(name)
        if not cls.__module__.startswith("jaxrank."):
            continue
        world = world_of(name)
        listed[world].append(name)
        _write(folder / f"{name}.md", _policy_page(name, cls, world, contents))
    parts = ["# Policies", "How a list is chosen and learnt. [Which one should I use?](../which-policy.md)"]
    for world, names in listed.items():
        classes = {name: registry.factory(name) for name in names}
        rows = [[f"[{cls.__name__}]({name}.md)", f"`{name}`", _summary(cls)] for name, cls in classes.items()]
        parts.append(f"## In {WORLDS[world][0]}\n\n{markdown(['policy', 'name', 'what it does'], rows)}")
    parts.append(_toctree([name for names in listed.values() for name in names], hidden=True))
    _write(folder / "index.md", "\n\n".join(parts))
    tables = []
    for world, (title, steps, _, metric) in WORLDS.items():
        header, rows = which_policy(contents[world], metric)
        linked = [[f"[{registry.factory(name).__name__}](policies/{name}.md)", *rest] for name, *rest in rows]
        what = "Regret (lower is better)" if metric == "regret" else "cNDCG@10, discounted (higher is better)"
        whole = f'<a href="reports/{world}.html">the whole report</a>'
        note = f"{what} after {steps:,} steps, mean and half of its 95 % interval; {whole}."
        tables.append(f"## In {title}\n\n{note}\n\n{markdown(header, linked)}")
    _write(docs / "_results" / "which-policy.md", "\n\n".join(tables))
    shown = ("bubblerank", "toprank", "cascade_klucb", "static")
    curves = contents["long"].curves["regret"].items()
    panels = {_short(title): {name: lines[name] for name in shown if name in lines} for title, lines in curves}
    note = (
        "*Regret of three policies and of the production list, in a cascade model and in a position-based one: lower "
        "is better. Bands are 95 % intervals over queries. Drag to zoom, click a name to hide its line.*"
    )
    _write(docs / "_results" / "start.md", f"{_chart(curve_chart(panels, 'regret'), root='')}\n\n{note}")


def _policy_page(name, cls, world, contents):
    where, steps, _, metric = WORLDS[world]
    report, steps = ("long", LONG_STEPS) if name in LONG else (world, steps)
    beside = ("static", "toprank" if report == "long" else "random")  # random would flatten a long run's others
    panels = {}
    for title, lines in contents[report].curves[metric].items():
        chosen = {label: lines[label] for label in dict.fromkeys((name, *beside)) if label in lines}
        if name in chosen:
            panels[_short(title)] = chosen
    text = docs_text("policies", name)
    module = sys.modules[cls.__module__]
    parts = [
        f"# {cls.__name__}",
        f"`jr.{cls.__name__}` in Python, `{name}` on the command line; runs in {where}.",
        text or _summary(cls),
        f"## A small run\n\n{steps:,} steps on synthetic queries, made when this page was built "
        f'(<a href="../reports/{report}.html">the whole report</a>).',
        _chart(curve_chart(panels, metric)) if panels else "It does not run in these worlds.",
        f"## Parameters\n\n{_autodoc('autoclass', f'jaxrank.{cls.__name__}')}",
        f"## Reference and choices\n\n{_rst_of(module)}",
        f"Source: [{_path(module)}]({SOURCE}/{_path(module)}).",
    ]
    return "\n\n".join(parts)


def _write_click_models(docs):
    folder = _fresh(docs / "click-models")
    models = {name: registry.factory(name, "click_model") for name in jr.available("click_model")}
    models["graded_user"] = jr.GradedUser
    rows = []
    for name, cls in models.items():
        module = sys.modules[cls.__module__]
        parts = [
            f"# {cls.__name__}",
            f"`jr.{cls.__name__}` in Python" + (f", `{name}` on the command line." if name != "graded_user" else "."),
            docs_text("click_models", name) or _summary(cls),
            "## How often each position is examined and clicked",
            _chart(_click_chart(name)) if name != "graded_user" else _chart(_graded_chart()),
            f"## Parameters\n\n{_autodoc('autoclass', f'jaxrank.{cls.__name__}', 'members')}",
            f"## Reference\n\n{_rst_of(module)}",
            f"Source: [{_path(module)}]({SOURCE}/{_path(module)}).",
        ]
        _write(folder / f"{name}.md", "\n\n".join(parts))
        rows.append([f"[{cls.__name__}]({name}.md)", f"`{name}`", _summary(cls)])
    head = "# Click models\n\nHow a user reads a list: samples of clicks, exact probabilities, reward and optimum."
    table = markdown(["model", "name", "what users do"], rows)
    _write(folder / "index.md", "\n\n".join([head, table, _toctree(models, hidden=True)]))


def _click_chart(name):
    """Exact probabilities by position of the best list and of its reverse, mean over synthetic queries."""
    model = jr.datasets.synthetic(name, 20)
    size = model.attraction.shape[-1]
    by_label = {}
    for q in range(20):
        best = np.asarray(model[q].optimal_ranking(size))
        for label, ranking in (("best list", best), ("worst list", best[::-1].copy())):
            for what in ("examined", "clicked"):
                method = "examination_probability" if what == "examined" else "click_probability"
                by_label.setdefault(f"{what}, {label}", []).append(np.asarray(getattr(model[q], method)(ranking)))
    return _bar_chart({label: np.mean(values, axis=0) for label, values in by_label.items()}, "position")


def _graded_chart():
    users = jr.click_models.graded_user("perfect", "navigational", "informational", "almost_random")
    names = ("perfect", "navigational", "informational", "almost random")
    fields = [field for field in ("click", "stop") if hasattr(users, field)]
    values = {}
    for i, name in enumerate(names):
        for field in fields:
            values[f"P({field}), {name}"] = np.asarray(getattr(users[i], field))
    return _bar_chart(values, "relevance grade, 0 the lowest", start=0)


def _bar_chart(values, axis, start=1):
    traces = [
        {"type": "bar", "name": label, "x": list(range(start, start + len(v))), "y": [round(float(p), 4) for p in v]}
        for label, v in values.items()
    ]
    axes = {"gridcolor": "rgba(128,128,128,0.25)"}
    layout = {
        "height": 380, "margin": {"l": 50, "r": 10, "t": 20, "b": 90}, "barmode": "group",
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "xaxis": axes | {"title": {"text": axis}}, "yaxis": axes | {"title": {"text": "probability"}},
        "legend": {"orientation": "h", "y": -0.3},
    }  # fmt: skip
    return {"data": traces, "layout": layout}


def _write_papers(docs):
    """A page for every Markdown file in benchmarks/results, with its picture, and the verdicts of all."""
    folder, source = _fresh(docs / "papers"), REPOSITORY / "benchmarks" / "results"
    groups = {"papers": [], "ours": [], "measurements": [], "verdicts": []}
    for file in sorted(source.glob("*.md")):
        text = _rebased(file.read_text(encoding="utf-8"), file.parent, "papers")
        for picture in source.glob(f"{file.stem}*.png"):
            shutil.copy(picture, folder / picture.name)
        if (folder / f"{file.stem}.png").exists() and f"{file.stem}.png" not in text:
            text += f"\n![{file.stem}]({file.stem}.png)\n"
        _write(folder / file.name, text)
        groups[_group(file.stem)].append((file.stem, [text.count(f"- **{word}**") for word in VERDICTS], text))
    figures = [[f"`jaxrank reproduce {name}`", _summary(figure)] for name, figure in papers.FIGURES.items()]

    def judged(group):
        rows = [
            [f"[{stem}]({stem}.md)", "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}".join(map(str, counts)), _first_words(text)]
            for stem, counts, text in groups[group]
        ]
        return markdown(["results", " / ".join(VERDICTS), "how they were made"], rows)

    parts = [
        "# The papers' figures, with verdicts",
        "Each figure is a command. Its page says at what scale it was run, and of each claim of the paper whether it "
        "was reproduced, by which number and interval. [All verdicts](verdicts.md) are on one page.",
        judged("papers"),
        "## Comparisons of ours",
        "Worlds that change, unknown examination, late and wrong clicks, off-policy estimators, learning from biased "
        "clicks, neural rankers: what the papers leave out or claim of themselves, measured for all policies alike.",
        judged("ours"),
        "## Measurements",
        markdown(["page", "what it is"], [[f"[{s}]({s}.md)", _title(t)] for s, _, t in groups["measurements"]]),
        "## All figures",
        markdown(["command", "what it draws"], figures),
        _toctree([f"{stem} <{stem}>" for group in groups.values() for stem, *_ in group], hidden=True),
    ]
    _write(folder / "index.md", "\n\n".join(parts))


def _group(stem):
    """Whose figure a page of results is about: a paper's, one of ours, or none."""
    figure = next((name for name in sorted(papers.FIGURES, key=len, reverse=True) if stem.startswith(name)), None)
    if figure is None:
        return "verdicts" if stem == "verdicts" else "measurements"
    return "papers" if re.match(r"(bubblerank|batchrank|cascadehybrid|pairrank)-", figure) else "ours"


def _title(text):
    return text.partition("\n")[0].removeprefix("# ")


def _first_words(text):
    """The first sentence below the title: the command, its data and time."""
    line = next((line for line in text.splitlines()[1:] if line.strip()), "")
    return re.split(r"(?<=\.) (?=[A-Z])", line.strip())[0] if not line.startswith("|") else ""


def _write_project(docs):
    folder = _fresh(docs / "project")
    for name, file in PROJECT_PAGES.items():
        path = REPOSITORY / file
        _write(folder / f"{name}.md", _rebased(path.read_text(encoding="utf-8"), path.parent, "project"))


def _write_reference(docs):
    """Every name of ``jr.__all__``: functions and classes in full, modules with all that they define."""
    folder = _fresh(docs / "reference")
    policies = {registry.factory(name).__name__: name for name in jr.available()}
    models = {registry.factory(name, "click_model").__name__: name for name in jr.available("click_model")}
    models["GradedUser"] = "graded_user"
    groups = {"Functions": [], "Classes": [], "Modules": [], "Policies": [], "Click models": []}
    pages = []
    overview = []
    for name in sorted(jr.__all__, key=str.lower):
        thing = getattr(jr, name)
        if name == "__version__":
            continue
        if name in policies:
            groups["Policies"].append(f"[{name}](../policies/{policies[name]}.md)")
        elif name in models:
            groups["Click models"].append(f"[{name}](../click-models/{models[name]}.md)")
        elif isinstance(thing, types.ModuleType):
            _write(folder / f"{name}.md", _module_page(name, thing))
            pages.append(name)
            groups["Modules"].append(f"[jr.{name}]({name}.md): {_summary(thing)}")
        elif isinstance(thing, type):
            overview.append([f'<a href="#jaxrank.{name}">{name}</a>', _summary(thing)])
            groups["Classes"].append(_autodoc("autoclass", f"jaxrank.{name}", "members"))
        else:
            overview.append([f'<a href="#jaxrank.{name}">{name}</a>', _summary(thing)])
            groups["Functions"].append(_autodoc("autofunction", f"jaxrank.{name}"))
    parts = ["# API reference", "What `jr.__all__` lists is public and keeps working; every module behind it may move."]
    parts.append(markdown(["name", "what it does"], overview))
    for title, entries in groups.items():
        listed = title in ("Policies", "Click models", "Modules")
        parts.append(f"## {title}\n\n" + ("\n".join(f"- {e}" for e in entries) if listed else "\n\n".join(entries)))
    parts.append(_toctree(pages, hidden=True))
    _write(folder / "index.md", "\n\n".join(parts))


def _module_page(name, module):
    public = getattr(module, "__all__", None) or [
        key for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]  # fmt: skip
    parts = [f"# jr.{name}", _rst_of(module)]
    for key in public:
        thing = getattr(module, key)
        if key in jr.__all__ or isinstance(thing, types.ModuleType):
            continue  # it has a place of its own
        kind = "autoclass" if isinstance(thing, type) else "autofunction" if callable(thing) else None
        if kind and inspect.getdoc(thing):
            parts.append(_autodoc(kind, f"{module.__name__}.{key}", *(["members"] if kind == "autoclass" else [])))
    return "\n\n".join(parts)


# Pieces


def docs_text(kind, name):
    """The text about a policy or a click model, without what it assumes; "" if there is none."""
    path = Path(__file__).parent / "texts" / kind / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _said(name, what):
    found = re.search(rf"\*\*{what}\.\*\* (.*)", docs_text("policies", name))
    return found[1].rstrip(".") if found else ""


def _summary(thing):
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("``", "`")


def _rst_of(module):
    """The docstring of a module as reStructuredText: code that is indented after a colon stays as it is."""
    text = inspect.getdoc(module) or ""
    text = re.sub(r":\n\n(?=    )", "::\n\n", text)
    return f"```{{eval-rst}}\n{text.replace('|', chr(92) + '|') if '====' not in text else text}\n```"


def _autodoc(directive, name, *options):
    flags = "".join(f"\n   :{option}:" for option in options)
    return f"```{{eval-rst}}\n.. {directive}:: {name}{flags}\n```"


def _chart(figure, root="../"):
    """A chart of plotly's in a page; ``_static/site.js`` draws it."""
    content = json.dumps(figure).replace("</", "<\\/")
    place = f'<div class="jaxrank-chart"><script type="application/json">{content}</script></div>'
    scripts = "".join(f'<script src="{root}_static/{name}"></script>' for name in ("plotly.min.js", "site.js"))
    return f"```{{raw}} html\n{place}\n{scripts}\n```"


def _toctree(names, hidden=False):
    return ":::{toctree}\n" + (":hidden:\n" if hidden else "") + "\n".join(names) + "\n:::"


def _rebased(text, folder, section):
    """Markdown of the repository for a page of the site: links to files that are no pages lead to the repository."""
    pages = {(REPOSITORY / file).resolve(): f"../project/{name}.md" for name, file in PROJECT_PAGES.items()}
    pages |= {file.resolve(): f"../papers/{file.name}" for file in (REPOSITORY / "benchmarks" / "results").glob("*.md")}

    def link(found):
        image, target = found[1], found[2]
        if re.match(r"https?:|#|mailto:", target):
            return found[0]
        file, _, anchor = target.partition("#")
        path = (folder / file).resolve()
        if path in pages:
            return f"{image}({pages[path]}{'#' + anchor if anchor else ''})"
        if image.startswith("!") and section == "papers" and path.exists():
            return f"{image}({path.name})"
        inside = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else Path(file)
        return f"{image}({SOURCE}/{inside})"

    return re.sub(r"(!?\[[^\]]*\])\(([^)\s]+)\)", link, text)


def _path(module):
    return Path(module.__file__).resolve().relative_to(REPOSITORY).as_posix()


def _plotly():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _write(path, text):
    """Writes a file if it is another one: Sphinx builds again what is newer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text + "\n":
        path.write_text(text + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=list(WORLDS), default="click")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/which"))
    options = parser.parse_args()
    content = run_world(options.world, options.out, options.steps, options.seeds)
    print(markdown(*which_policy(content, WORLDS[options.world][3])))


if __name__ == "__main__":
    main()
