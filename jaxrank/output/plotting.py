"""Curves as pictures: the mean over instances and seeds, its standard error shaded."""

import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.core.checks import choice
from jaxrank.output.files import write_bytes
from jaxrank.output.results import REPEATED, describe_error, mean_and_error, named_dim
from jaxrank.output.results import per_step as per_step_means

if TYPE_CHECKING:
    import xarray
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")

# Okabe and Ito's colours, which colour-blind readers can tell apart, with grey for their yellow, pale on white. Each
# has a marker of its own, for print without colours. From the ninth line on come eight more, with hollow markers.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#7F7F7F", "#000000")
_MORE_COLOURS = ("#8B1A1A", "#6A5ACD", "#7A9A01", "#A6761D", "#E7298A", "#00A5B5", "#5F7A8A", "#7B3FA0")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# The policies that are often in one picture, each at the number of its style; - is a number that others take.
_FAMILIES = (
    "bubblerank batchrank cascadeklucb toprank rankedexp3 random static oracle "
    "cascadeucb1 pbmucb cascadets pbmts rankeducb1 rankedklucb dcmklucb pbmpie",
    "- cascadeducb - - cascadeswucb glrtcascadeucb glrtcascadeklucb",
    "- - grab - pbmhb unirank",
    "cascadehybrid cascadelinucb cascadelsb cascadelsbfull cascadelints cascadelinucbfull recurrank",
    "pairrank pdgd sgdranknet pairrankr epsilongreedy mgd dbgd",
    "pairrankc",
    "- - olranknet p2neurrank ollambdarank neuralpdgd",
)
_KNOWN = {name: number for family in _FAMILIES for number, name in enumerate(family.split()) if name != "-"}
_LABELS = {
    "regret": "Regret",
    "reward": "Reward",
    "violations": "Safety violations",
    "fixed_regret": "Regret against the best fixed list",
    "misordered": "Misordered pairs",
    "clicks": "Clicks",
    "coverage": "Topic coverage",
    "similarity": "Intra-list similarity",
    "cndcg": "cNDCG@10",
    "cosine": "Cosine to the offline ranker",
}
_BAND = 0.2  # opacity
REFERENCE: dict[str, Any] = {"color": "black", "linestyle": "-", "linewidth": 0.8}  # a line that is no policy's
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 3}
_DECADES = 8  # of a logarithmic axis; what is lower is drawn at 0
_FAR_ABOVE = 100  # a bound more than this many times the highest curve would flatten all curves

Entries = dict[str, "Artist"]  # of a legend: what is drawn, by its label


def plot_curves(
    result: "xarray.Dataset",
    metric: str = "regret",
    *,
    ax: "Axes | None" = None,
    path: str | os.PathLike[str] | None = None,
    per_step: bool = False,
    log: bool = False,
    title: str | None = None,
) -> "Axes":
    """Draws one line for each policy (or swept setting): mean and shaded standard error against the step.

    The legend stands to the right of the axes and says what the shade is. A figure without a layout engine is given
    matplotlib's "constrained" one, which makes room for the legend.

    Args:
      result: what ``simulate`` or ``compare`` returned.
      metric: which of its variables.
      ax: where to draw; by default in a new figure of pyplot, which ``plt.show()`` and notebooks show. A new figure
        that is written to ``path`` while no interactive backend is in use is not kept by pyplot.
      path: write the figure here too, as PNG, PDF or SVG by its ending.
      per_step: the mean per step between two records, instead of the sum so far.
      log: logarithmic axes. If a curve is 0 somewhere, the lowest part of the vertical axis is linear and begins at 0.
      title: above the axes.
    """
    if path is not None:
        check_picture("path", path)
    _check_metric(result, metric)
    if ax is None:
        ax = _new_axes(to_be_shown=path is None or _is_interactive())
    figure: Any = ax.get_figure(root=True)
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    entries = draw_curves(ax, result, metric, per_step=per_step, log=log, title=title)
    columns = math.ceil(len(entries) / 16)
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0, **_LEGEND}
    ax.legend(list(entries.values()), list(entries), ncols=columns, **beside)
    if path is not None:
        save_picture(figure, path)
    return ax


def plot_result(
    result: "xarray.Dataset", metric: str, path: str | os.PathLike[str], *, per_step: bool = False, log: bool = False
) -> None:
    """Writes a picture of a run: a panel for each click model or each user that has a name, or one of all instances."""
    _check_metric(result, metric)
    parts = parts_of(result)
    figure, axes = panels(len(parts))
    if len(parts) == 1:
        plot_curves(result, metric, ax=axes[0], path=path, per_step=per_step, log=log, title=next(iter(parts)))
        return
    entries: Entries = {}
    for ax, (name, part) in zip(axes, parts.items(), strict=True):
        entries |= draw_curves(ax, part, metric, per_step=per_step, log=log, title=name)
    legend_below(figure, entries)
    save_picture(figure, path)


def draw_curves(
    ax: "Axes",
    result: "xarray.Dataset",
    metric: str,
    *,
    per_step: bool = False,
    log: bool = False,
    title: str | None = None,
    looks: dict[str, dict[str, Any]] | None = None,
) -> Entries:
    """The lines of ``plot_curves`` without a legend; returns its entries. ``looks`` are those of ``styles``."""
    curves = per_step_means(result[metric]) if per_step else result[metric]
    mean, error = mean_and_error(curves)
    lines, bands = lines_of(result, mean), lines_of(result, error)
    looks = styles(lines) if looks is None else looks
    entries: Entries = {}
    for label, line in lines.items():
        entries[label] = draw_line(ax, line["step"], line, bands[label], label=label, **looks[label])
    if bool(np.isfinite(error).any()):
        entries |= band_entry(describe_error(curves))
    ax.set(xlabel="Step", ylabel=label_of(metric, per_step), title=title)
    if log:
        ax.set_xscale("log")
        log_scale(ax, mean)
    else:
        ax.set_xlim(0, int(result["step"][-1]))
        plain_ticks(ax.xaxis)
        _scale_from_zero(ax, mean, error)
    return entries


def lines_of(result: "xarray.Dataset", curve: "xarray.DataArray") -> dict[str, "xarray.DataArray"]:
    """The lines of a picture by their labels: a curve of ``result`` for each policy and each swept setting."""
    line_dims = [dim for dim in curve.dims if dim not in (*REPEATED, "step")]
    lines = {}
    for index in np.ndindex(*(curve.sizes[dim] for dim in line_dims)):
        line = curve.isel(dict(zip(line_dims, index, strict=True)))
        label = ", ".join(_describe(dim, line[dim].values) for dim in line_dims)
        lines[label or result.attrs["policy"].partition("(")[0]] = line
    return lines


def parts_of(result: "xarray.Dataset") -> dict[str, "xarray.Dataset"]:
    """The panels of a picture by their titles: one for each click model or each user that has a name, or one of all."""
    dim = named_dim(result)
    return {"": result} if dim is None else {str(name): result.sel({dim: name}) for name in result[dim].values}


def label_of(metric: str, per_step: bool = False) -> str:
    """What an axis says of a metric."""
    own = metric.replace("ndcg", "NDCG")
    return _LABELS.get(metric, own[:1].upper() + own[1:]) + (" per step" if per_step else "")


def draw_line(ax: "Axes", x: Any, mean: Any, error: Any, **style: Any) -> "Artist":
    """A line and its shaded band; returns the line."""
    (line,) = ax.plot(x, mean, **style)
    ax.fill_between(x, mean - error, mean + error, color=style["color"], alpha=_BAND, linewidth=0)
    return line


def draw_bound(ax: "Axes", steps: np.ndarray, bound: np.ndarray, label: str) -> Entries:
    """A theorem's bound, on a logarithmic axis; if it would flatten the curves, a note below the axes instead."""
    if bound[-1] > _FAR_ABOVE * ax.dataLim.y1:
        ax.set_xlabel(f"{ax.get_xlabel()}\n{label}: {bound[-1]:.1e} at the end, far above", fontsize="small")
        return {}
    (line,) = ax.plot(steps, bound, label=label, **REFERENCE)
    if ax.get_yscale() == "linear":
        log_scale(ax, np.concatenate([line.get_ydata() for line in ax.lines]))
    return {label: line}


def band_entry(what: str) -> Entries:
    """The legend's entry for the shade around lines."""
    from matplotlib.patches import Patch

    return {what: Patch(color="black", alpha=_BAND, linewidth=0)}


def legend_below(figure: "Figure", entries: Entries) -> None:
    """One legend for all panels, below them. The figure grows by its height."""
    width, height = figure.get_size_inches()
    longest = max((len(line) for label in entries for line in label.split("\n")), default=1)
    columns = max(1, min(len(entries), int(width / (0.6 + 0.075 * longest))))
    rows = math.ceil(len(entries) / columns)
    figure.set_size_inches(width, height + 0.1 + 0.22 * rows)
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, **_LEGEND)


def panels(count: int, columns: int = 4) -> tuple["Figure", Sequence["Axes"]]:
    """A figure, outside of pyplot, with ``count`` axes in rows of at most ``columns``; and these axes."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = math.ceil(count / columns)
    width, height = (7.2, 4) if count == 1 else (4 * columns, 3.2 * rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, number) for number in range(1, count + 1)]


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """{name: how its line looks}, as options of ``Axes.plot``: no two alike, 16 colours before one comes again.

    The look of a policy of jaxrank is always the same, unless one that precedes it in ``_FAMILIES`` has its colour
    here. Other names take what is free, in their order.
    """
    looks: dict[str, int] = {}
    again: dict[str, bool] = {}
    names = list(dict.fromkeys(names))
    order = list(_KNOWN)
    keys = {name: re.sub("_|ranking$", "", name.lower()) for name in names}
    for name in sorted(names, key=lambda name: order.index(keys[name]) if keys[name] in _KNOWN else len(order)):
        used = Counter(number % len(_COLOURS) for number in looks.values())
        least = min(used[colour] for colour in range(len(_COLOURS)))
        candidates = [*([_KNOWN[keys[name]]] if keys[name] in _KNOWN else []), *range(len(_COLOURS) * (least + 2))]
        free = (n for n in candidates if n not in looks.values() and used[n % len(_COLOURS)] == least)
        looks[name] = next(free)
        again[name] = least % 2 == 1
    return {name: _look(looks[name], again[name]) for name in names}


def _look(number: int, again: bool) -> dict[str, Any]:
    row, colour = divmod(number, len(_COLOURS))
    dots = (row + colour) % 5 + 5 * (row // 5)  # so that a colour has other dashes in every row
    dashes: Any = {0: "-", 1: (0, (5, 2)), 2: (0, (1.5, 1.5))}.get(dots, (0, (5, 1.5, *(1.5, 1.5) * (dots - 2))))
    return {
        "color": (_MORE_COLOURS if again else _COLOURS)[colour],
        "linestyle": dashes,
        "marker": _MARKERS[colour],
        "fillstyle": "none" if again else "full",
        "markevery": (0.02 * colour, 0.16),  # fractions of the diagonal: markers of neighbours are not on each other
        "markersize": 4.5,
        "linewidth": 1.5,
    }


def log_scale(ax: "Axes", values: Any) -> None:
    """A logarithmic vertical axis on which 0, and what is as good as 0, is at the bottom."""
    from matplotlib.ticker import SymmetricalLogLocator

    values = np.asarray(values, float)
    high = max(values.max(initial=0, where=np.isfinite(values)), 0)
    smallest = high * 10.0**-_DECADES
    if not high or bool((values > smallest)[np.isfinite(values)].all()):
        ax.set_yscale("log" if high else "linear")
        ax.autoscale(axis="y")
        return
    least = values.min(initial=high, where=values > smallest)
    threshold = 10.0 ** math.floor(math.log10(least))
    ax.set_yscale("symlog", linthresh=threshold, linscale=0.5)
    ax.set_ylim(-0.2 * threshold, 2 * high)
    ax.yaxis.set_minor_locator(SymmetricalLogLocator(base=10, linthresh=threshold, subs=range(2, 10)))


def plain_ticks(axis: "Axis") -> None:
    """Ticks that read 0.8, 500, 10k, 2M."""

    def text(value: float, _: Any = None) -> str:
        for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= unit:
                return f"{value / unit:g}{name}"
        return f"{value:g}"

    axis.set_major_formatter(text)


def plain_log_ticks(axis: "Axis") -> None:
    """The labels of a logarithmic axis as 0.6, and not 6 × 10⁻¹."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Plain(LogFormatterSciNotation):
        def __call__(self, x: float, pos: Any = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(labelOnlyBase=False))


def check_picture(name: str, path: str | os.PathLike[str]) -> None:
    """A ValueError unless ``path`` ends as a picture does that can be written."""
    if Path(path).suffix.removeprefix(".") not in FORMATS:
        raise ValueError(f"{name} must end in .png, .pdf or .svg; got {os.fspath(path)}")


def save_picture(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Writes a figure as PNG, PDF or SVG, by the path's ending."""
    check_picture("path", path)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=Path(path).suffix[1:])
    write_bytes(path, picture.getbuffer())


def _check_metric(result: "xarray.Dataset", metric: str) -> None:
    import xarray

    if not isinstance(result, xarray.Dataset):
        kind = type(result).__name__
        raise ValueError(f"result must be what simulate or compare returned, with all its metrics; got a {kind}")
    choice("metric", metric, (str(name) for name, curve in result.data_vars.items() if "step" in curve.dims))


def _scale_from_zero(ax: "Axes", mean: Any, error: Any) -> None:
    """A vertical axis from 0, which a curve at 0 is drawn above; if all curves are far from 0, one around them."""
    values, shade = np.asarray(mean, float), np.nan_to_num(np.asarray(error, float))
    plain_ticks(ax.yaxis)
    finite = np.isfinite(values)
    low, high = values.min(initial=np.inf, where=finite), (values + shade).max(initial=0, where=finite)
    if 0 <= low < high / 2 or low == high == 0:
        ax.set_ylim(-0.03 * (high or 1), 1.05 * (high or 1))


def _is_interactive() -> bool:
    """Whether a backend that shows figures, in windows or in a notebook, has been chosen."""
    import matplotlib
    from matplotlib.backends import BackendFilter, backend_registry

    backend = matplotlib.get_backend(auto_select=False)
    return backend is not None and backend.lower() not in backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)


def _new_axes(to_be_shown: bool) -> "Axes":
    if not to_be_shown:
        return panels(1)[1][0]
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7.2, 4), layout="constrained")[1]


def _describe(dim: Any, value: Any) -> str:
    if dim == "policy":
        return str(value)
    return f"{dim} = {value:.4g}" if np.asarray(value).dtype.kind in "iuf" else f"{dim} = {value}"
