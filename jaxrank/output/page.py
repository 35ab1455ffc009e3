"""A report as one HTML file that needs no network: curves to zoom, hover and switch off, tables, how it was made.

The file has plotly's script inside, packed, and a content policy that lets it load nothing else. Of plotly, bokeh and
vega, plotly alone changes a drawn axis to a logarithmic one and hides a line with its band without code of ours.
Packed, its script takes 2.0 MB (bokeh's 1.3 MB unpacked, vega's 0.9 MB, with a tool of 34 MB to make it).
"""

import base64
import gzip
import html
import io
import json
import os
import string
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrank.core.version import __version__
from jaxrank.output.charts import Lines, curve_chart, instance_chart
from jaxrank.output.files import write_text
from jaxrank.output.intervals import mean_and_interval, num_values, paired_difference
from jaxrank.output.plotting import label_of
from jaxrank.output.results import REPEATED
from jaxrank.output.results import per_step as per_step_means
from jaxrank.output.tables import counted

if TYPE_CHECKING:
    import xarray

SMALL_PANELS = 60  # instances that are drawn one by one
_ROWS = 200_000  # of the table of numbers; beyond it, only means over instances are kept
_REFRESH = """
setInterval(async () => {
  const now = await fetch("state").then(answer => answer.text()).catch(() => "STATE");
  if (now !== "STATE") location.reload();
}, 2000);
"""


class Content(NamedTuple):
    """What a report shows."""

    title: str
    about: str  # one line
    curves: Mapping[str, Mapping[str, Lines]]  # metric -> title of the panel -> label of the line -> curve
    facts: Mapping[str, Mapping[str, str]] = {}  # how it was made: heading -> name -> text
    notes: str = ""  # Markdown
    picture: Path | None = None
    waiting: Mapping[str, str] = {}  # what is not there yet, or has failed: name -> why


def write_page(path: str | os.PathLike[str], content: Content) -> None:
    """Writes a report, whole or not at all."""
    write_text(path, html_of(content))


def html_of(content: Content, state: str | None = None) -> str:
    """The HTML of a report. With ``state``, the browser asks its server for "state" and reloads when it is another."""
    charts: dict[str, Any] = {}
    parts = [_waiting(content.waiting)]
    parts += [_section(metric, panels, charts) for metric, panels in content.curves.items()]
    parts += [_notes(content.notes), _picture(content.picture), _facts(content.facts)]
    template = string.Template((resources.files("jaxrank.output") / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(content.title),
        about=html.escape(content.about),
        version=html.escape(__version__),
        download=_download(content),
        body="\n".join(part for part in parts if part),
        library=_library(),
        charts=_packed(json.dumps(charts).encode()),
        connect="" if state is None else "connect-src 'self'",
        refresh="" if state is None else _REFRESH.replace('"STATE"', json.dumps(state)),
    )


def _section(metric: str, panels: Mapping[str, Lines], charts: dict[str, Any]) -> str:
    """The curves of a metric, its table, and its curves of single instances; their charts are added to ``charts``."""
    # NDCG is read per step. A probe of the same name is a value of its own at each record, never above 1.
    cumulative = any(float(curve.max()) > 1 for lines in panels.values() for curve in lines.values())
    per_step = metric.startswith("ndcg") and cumulative
    if per_step:
        panels = {title: {k: per_step_means(curve) for k, curve in lines.items()} for title, lines in panels.items()}
    name = label_of(metric, per_step)
    charts[metric] = curve_chart(panels, metric, per_step)
    over = " or ".join(dict.fromkeys(_counted(curve) for lines in panels.values() for curve in lines.values()))
    parts = [
        f"<section><h2>{html.escape(name)}</h2>",
        _chart(metric),
        f'<p class="quiet">Mean and 95 % interval over {over}. Drag to zoom, double-click to see all again, click in '
        "the legend to hide a line, double-click there to see it alone.</p>",
    ]
    for title, lines in panels.items():
        parts.append(_table(title, lines))
        for dim in ("query", "user"):
            instances = list(next(iter(lines.values()))[dim].values) if dim in next(iter(lines.values())).dims else []
            if len(instances) > 1 and all(dim in line.dims for line in lines.values()):
                shown = [each for each in instances if all(each in line[dim].values for line in lines.values())]
                shown = shown[:SMALL_PANELS]
                charts[f"{metric}/{title}"] = instance_chart(lines, dim, shown)
                some = f"{counted(len(shown), dim)} of {len(instances):,}, one by one"
                which = f"Each {dim}" if len(shown) == len(instances) else some
                summary = html.escape(which + (f": {title}" if title else ""))
                parts.append(f"<details><summary>{summary}</summary>{_chart(f'{metric}/{title}')}</details>")
    return "\n".join([*parts, "</section>"])


def _chart(name: str) -> str:
    return f'<div class="chart" data-chart="{html.escape(name)}"></div>'


def _table(title: str, lines: Lines) -> str:
    """Means at the last step that all lines have, their intervals, and the differences to the first line, paired."""
    common = reduce(np.intersect1d, (curve["step"].values for curve in lines.values()))
    if common.size:
        last = {label: curve.sel(step=common[-1]) for label, curve in lines.items()}
        at = f"step {common[-1]:,}"
    else:
        last = {f"{label}, step {int(curve['step'][-1]):,}": curve.isel(step=-1) for label, curve in lines.items()}
        at = "the last step"
    first = next(iter(last))
    longest = max(int(curve["step"][-1]) for curve in lines.values())
    note = ""
    if common.size and longest > common[-1]:
        note = f'<p class="quiet">Step {common[-1]:,} is the last one that all have.</p>'
    header = ["", f"mean at {at}", "95 % interval"]
    header += [f"minus {first}, paired", "95 % interval"] if len(last) > 1 else []
    rows = []
    for label, curve in last.items():
        row = [label, *_interval(mean_and_interval(curve))]
        if len(last) > 1:
            row += ["", ""] if label == first else _interval(paired_difference(curve, last[first]))
        rows.append(row)
    caption = f"<h3>{html.escape(title)}</h3>" if title else ""
    return caption + _html_table(header, rows) + note


def _counted(curve: "xarray.DataArray") -> str:
    """What the interval of a curve is over: 60 queries."""
    return counted(num_values(curve), next((str(dim) for dim in REPEATED if curve.sizes.get(dim, 1) > 1), "seed"))


def _interval(pair: tuple[Any, Any] | None) -> list[str]:
    if pair is None:
        return ["not paired", ""]
    mean, half = map(float, pair)
    digits = 1 if abs(mean) >= 100 else 3
    shown = f"{mean:,.{digits}f}"
    return [shown, "" if np.isnan(half) else f"{mean - half:,.{digits}f} to {mean + half:,.{digits}f}"]


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "number") -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        marks = ["", *[f' class="{kind}"'] * (len(cells) - 1)]
        return "".join(f"<{tag}{mark}>{html.escape(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))

    head = f"<thead><tr>{line(header, 'th')}</tr></thead>" if header else ""
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def _notes(markdown: str) -> str:
    from markdown_it import MarkdownIt

    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    return f'<section><h2>Table</h2><div class="wide">{text}</div></section>' if markdown else ""


def _picture(path: Path | None) -> str:
    if path is None:
        return ""
    kind = {".png": "image/png", ".svg": "image/svg+xml"}[path.suffix]
    image = f'<img alt="{html.escape(path.name)}" src="{_data(kind, path.read_bytes())}">'
    return f"<section><h2>Picture</h2>{image}</section>"


def _waiting(cells: Mapping[str, str]) -> str:
    if not cells:
        return ""
    return "<section><h2>Not there yet</h2>" + _html_table([], list(cells.items()), "failed") + "</section>"


def _facts(facts: Mapping[str, Mapping[str, str]]) -> str:
    parts = [
        (f"<h3>{html.escape(heading)}</h3>" if heading else "") + _html_table([], list(named.items()), "code")
        for heading, named in facts.items()
    ]
    return f"<section><h2>How it was made</h2>{''.join(parts)}</section>" if parts else ""


def _download(content: Content) -> str:
    if not content.curves:
        return ""
    table, what = numbers(content)
    packed = gzip.compress(table.encode(), mtime=0)
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in content.title)
    link = f'<a id="numbers" download="{name}.csv.gz" href="{_data("application/gzip", packed)}">numbers</a>'
    return f"The {link} ({what}, as CSV, gzipped)"


def numbers(content: Content) -> tuple[str, str]:
    """The numbers that are drawn, as CSV, and what they are: of each instance if that is not too many rows."""
    lines = [curve for panels in content.curves.values() for of in panels.values() for curve in of.values()]
    per_instance = sum(curve.sizes["step"] * num_values(curve) for curve in lines) <= _ROWS
    text = io.StringIO()
    text.write("metric,panel,line,instance,step,value\n" if per_instance else "metric,panel,line,step,mean,interval\n")
    for metric, panels in content.curves.items():
        for title, of in panels.items():
            for label, curve in of.items():
                named = [_cell(part) for part in (metric, title, label)]
                if per_instance:
                    values, names = _by_instance(curve)
                    rows = ((*named, name, step, f"{v:.7g}") for name, of_name in zip(names, values, strict=True)
                            for step, v in zip(curve["step"].values, of_name, strict=True))  # fmt: skip
                else:
                    pairs = zip(curve["step"].values, *map(np.asarray, mean_and_interval(curve)), strict=True)
                    rows = ((*named, step, f"{mean:.7g}", f"{half:.7g}") for step, mean, half in pairs)
                text.writelines(",".join(map(str, row)) + "\n" for row in rows)
    return text.getvalue(), "means over seeds" if per_instance else "means and half-widths of 95 % intervals"


def _by_instance(curve: "xarray.DataArray") -> tuple[np.ndarray, list[str]]:
    """Values [instance, step] and the instances' names: seeds averaged, or, of a single instance, the seeds."""
    dims = [dim for dim in curve.dims if dim in ("query", "user")]
    if num_values(curve) == int(np.prod([curve.sizes[dim] for dim in dims])) and "seed" in curve.dims:
        curve = curve.mean("seed")
    kept = [dim for dim in curve.dims if dim != "step"]
    names = [
        " ".join(f"{dim}={curve[dim].values[i]}" for dim, i in zip(kept, index, strict=True))
        for index in np.ndindex(*(curve.sizes[dim] for dim in kept))
    ]
    return curve.transpose(*kept, "step").values.reshape(len(names), -1), [_cell(name) for name in names]


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set('",\n') else text


@cache
def _library() -> str:
    from plotly.offline import get_plotlyjs

    return _packed(get_plotlyjs().encode())


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
