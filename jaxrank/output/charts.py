"""Curves as interactive charts: plotly's figures as plain data, which its script draws in a browser.

Nothing of plotly is needed to make them. Arrays are packed as base64, a third of the size of numbers in text.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.output.intervals import mean_and_interval
from jaxrank.output.plotting import label_of, styles

if TYPE_CHECKING:
    import xarray

Lines = Mapping[str, "xarray.DataArray"]  # label -> a curve with its instances, seeds and steps

_BLACK, _BROWN = "#000000", "#A0522D"  # black is not seen on a dark page
_GRID = "rgba(128,128,128,0.25)"
_TOOLS = {"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,0.8)", "activecolor": "rgba(70,130,200,1)"}
_BELOW = 0.03  # of the highest mean: how far an axis reaches below 0
_LEGEND_LINE = 22  # pixels
_LOWEST = 0.05  # of the mean: where a band is cut, for a logarithmic axis has no place for what is not above 0


def curve_chart(panels: Mapping[str, Lines], metric: str, per_step: bool = False) -> dict[str, Any]:
    """A line with its 95 % band for each label, in a panel for each title. A click in the legend hides a line in all.

    Buttons change to logarithmic axes. The curves of ``panels`` are drawn as they are: ``per_step`` names the axis.
    """
    looks = _looks(dict.fromkeys(label for lines in panels.values() for label in lines))
    bands: list[dict[str, Any]] = []
    traces: list[dict[str, Any]] = []  # lines, drawn after all bands: none is behind another's
    named: set[str] = set()
    lowest: dict[int, float] = {}
    for number, lines in enumerate(panels.values(), start=1):
        lowest[number] = 0.0
        for label, curve in lines.items():
            mean, half = (np.asarray(each, np.float64) for each in mean_and_interval(curve))
            steps = curve["step"].values
            lowest[number] = min(lowest[number], -_BELOW * mean.max(initial=0, where=np.isfinite(mean)))
            where = _axes(number) | {"legendgroup": label}
            if np.isfinite(half).any():
                bands.append(_band(steps, mean, half, looks[label]["color"]) | where)
            line = _line(steps, mean, label, looks[label]) | where | {"showlegend": label not in named}
            if np.isfinite(half).any():
                line |= {
                    "customdata": _packed(half),
                    "hovertemplate": f"%{{y:.5~s}} ± %{{customdata:.3~s}}<extra>{_escaped(label)}</extra>",
                }
            traces.append(line)
            named.add(label)
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    layout = _layout(list(panels), columns, row_height=420 if rows == 1 else 320, legend=len(named))
    for number in range(1, len(panels) + 1):
        layout[_axis("x", number)]["title"] = {"text": "Step", "standoff": 8}
        layout[_axis("y", number)]["autorangeoptions"] = {"include": lowest[number] or -_BELOW}  # a line at 0 is seen
        if (number - 1) % columns == 0:
            layout[_axis("y", number)]["title"] = {"text": label_of(metric, per_step)}
    layout["updatemenus"] = [_axis_buttons(len(panels))]
    return {"data": bands + traces, "layout": layout}


def instance_chart(lines: Lines, dim: str, instances: Sequence[Any]) -> dict[str, Any]:
    """Small panels, one for each of these ``instances`` of ``dim``: the mean over seeds of each line."""
    looks = _looks(lines)
    traces = []
    for label, curve in lines.items():
        means = curve.mean("seed") if "seed" in curve.dims else curve
        for number, instance in enumerate(instances, start=1):
            of_instance = means.sel({dim: instance})
            trace = _line(of_instance["step"].values, of_instance.values, label, looks[label])
            traces.append(trace | _axes(number) | {"legendgroup": label, "showlegend": number == 1})
    titles = [f"{dim} {instance}" for instance in instances]
    layout = _layout(titles, min(len(titles), 6), row_height=170, legend=len(lines), small=True)
    return {"data": traces, "layout": layout}


def _layout(titles: list[str], columns: int, row_height: int, legend: int, small: bool = False) -> dict[str, Any]:
    rows = math.ceil(len(titles) / columns)
    below = 2 + math.ceil(legend / 4)  # lines of the legend, which stands below the panels, and of the axis' title
    top, bottom = (40 if small else 70), _LEGEND_LINE * below + 40
    height = rows * row_height
    gap = (42 if small else 80) / height
    layout: dict[str, Any] = {
        "height": height + top + bottom,
        "margin": {"l": 60, "r": 15, "t": top, "b": bottom},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 10 if small else 13},
        "hovermode": "closest" if small else "x unified",
        "hoverdistance": 20 if small else -1,  # pixels; the nearest record, however far
        "dragmode": "zoom",
        "modebar": _TOOLS,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": -(_LEGEND_LINE * 2 + (0 if small else 24)) / height,
            "yanchor": "top",
        },
        "annotations": [],
    }
    width = (1 - 0.06 * (columns - 1)) / columns
    tall = (1 - gap * (rows - 1)) / rows
    for number, title in enumerate(titles, start=1):
        row, column = divmod(number - 1, columns)
        left, high = column * (width + 0.06), 1 - row * (tall + gap)
        axis = {"gridcolor": _GRID, "zerolinecolor": _GRID, "exponentformat": "SI", "nticks": 4 if small else 8}
        x, y = _axes(number).values()
        layout[_axis("x", number)] = axis | {"domain": [left, min(left + width, 1)], "anchor": y}
        layout[_axis("y", number)] = axis | {
            "domain": [max(high - tall, 0), high],
            "anchor": x,
            "rangemode": "tozero",
        }
        layout["annotations"].append(
            {
                "text": _escaped(title),
                "showarrow": False,
                "x": left + width / 2,
                "y": high,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "center",
                "yanchor": "bottom",
                "font": {"size": 10 if small else 14},
            }
        )
    return layout


def _axis_buttons(panels: int) -> dict[str, Any]:
    """Buttons that make all axes linear or logarithmic."""
    buttons = []
    for label, x, y in (
        ("linear", "linear", "linear"),
        ("log steps", "log", "linear"),
        ("log values", "linear", "log"),
        ("log both", "log", "log"),
    ):
        change: dict[str, Any] = {}
        for number in range(1, panels + 1):
            for letter, kind in (("x", x), ("y", y)):
                axis = _axis(letter, number)
                change |= {f"{axis}.type": kind, f"{axis}.autorange": True}
        buttons.append({"label": label, "method": "relayout", "args": [change]})
    return {
        "type": "buttons",
        "direction": "right",
        "buttons": buttons,
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 30},
        "bgcolor": "rgba(128,128,128,0.12)",
        "bordercolor": _GRID,
        "font": {"size": 12},
    }


def _axis(letter: str, number: int) -> str:
    """The name of an axis in a layout; the first has no number."""
    return f"{letter}axis{number if number > 1 else ''}"


def _axes(number: int) -> dict[str, str]:
    """The axes of a panel, as a trace names them."""
    return {f"{letter}axis": f"{letter}{number if number > 1 else ''}" for letter in "xy"}


def _line(steps: np.ndarray, values: np.ndarray, label: str, look: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _packed(steps),
        "y": _packed(values),
        "name": _escaped(label),
        "line": dict(look),
        "hovertemplate": f"%{{y:.5~s}}<extra>{_escaped(label)}</extra>",
    }


def _band(steps: np.ndarray, mean: np.ndarray, half: np.ndarray, colour: str) -> dict[str, Any]:
    """One closed outline, there and back."""
    half = np.nan_to_num(half)
    low = np.where(mean > 0, np.maximum(mean - half, _LOWEST * mean), mean - half)
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _packed(np.concatenate([steps, steps[::-1]])),
        "y": _packed(np.concatenate([mean + half, low[::-1]])),
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.2)",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _packed(values: np.ndarray) -> dict[str, str]:
    """An array as plotly's script reads it."""
    kind, dtype = ("i4", np.int32) if values.dtype.kind in "iu" else ("f4", np.float32)
    return {"dtype": kind, "bdata": base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()}


def _looks(labels: Any) -> dict[str, dict[str, Any]]:
    """The looks of ``styles`` in plotly's words."""
    looks = {}
    for label, style in styles(labels).items():
        dashes = style["linestyle"]
        dash = "solid" if dashes == "-" else ",".join(f"{2 * length:g}px" for length in dashes[1])
        looks[label] = {"color": style["color"].replace(_BLACK, _BROWN), "dash": dash, "width": 2}
    return looks


def _escaped(text: str) -> str:
    """Text that plotly does not take for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
