"""Curves as pictures: the mean over instances and seeds, its standard error shaded."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrank.core.checks import choice
from jaxrank.output.files import atomic_path
from jaxrank.output.results import mean_and_error
from jaxrank.output.results import per_step as per_step_means

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour per policy in all figures: the BubbleRank paper's where it has one.
COLOURS = {
    "BubbleRank": "tab:red",
    "CascadeKLUCB": "tab:green",
    "BatchRank": "tab:blue",
    "TopRank": "tab:orange",
    "StaticRanking": "tab:grey",
    "RandomRanking": "tab:brown",
    "OracleRanking": "black",
    "RankedExp3": "tab:purple",
    "CascadeHybrid": "tab:red",
    "CascadeLSB": "tab:green",
    "CascadeLSBFull": "tab:olive",
    "CascadeLinUCB": "tab:blue",
    "CascadeLinUCBFull": "tab:cyan",
    "PairRank_C": "tab:red",
    "PairRank_R": "tab:orange",
    "SGDRankNet": "tab:green",
    "PDGD": "tab:blue",
    "EpsilonGreedy": "tab:purple",
    "MGD": "tab:brown",
    "DBGD": "tab:grey",
}
_LABELS = {
    "regret": "Regret",
    "reward": "Reward",
    "violations": "Safety violations",
    "misordered": "Misordered pairs",
    "clicks": "Clicks",
    "coverage": "Topic coverage",
    "similarity": "Intra-list similarity",
    "cndcg": "cNDCG@10",
    "cosine": "Cosine to the offline ranker",
}


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

    Args:
      result: what ``simulate`` or ``compare`` returned.
      metric: which of its variables.
      ax: where to draw; a new figure by default.
      path: write the figure here too, as PNG, PDF or SVG by its ending.
      per_step: the mean per step between two records, instead of the sum so far.
      log: logarithmic axes.
      title: above the axes.
    """
    choice("metric", metric, map(str, result.data_vars))
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6, 4), layout="constrained").subplots()
    mean, error = mean_and_error(per_step_means(result[metric]) if per_step else result[metric])
    line_dims = [dim for dim in mean.dims if dim != "step"]
    for index in np.ndindex(*(mean.sizes[dim] for dim in line_dims)):
        chosen = dict(zip(line_dims, index, strict=True))
        line, band = mean.isel(chosen), error.isel(chosen)
        label = ", ".join(_describe(dim, line[dim].values) for dim in line_dims) or result.attrs["policy"]
        colour = COLOURS.get(label) if len(line_dims) == 1 else None
        (drawn,) = ax.plot(line["step"], line, label=label, color=colour)
        ax.fill_between(line["step"], line - band, line + band, color=drawn.get_color(), alpha=0.25, linewidth=0)
    label = _LABELS.get(metric, metric.upper())
    ax.set(xlabel="Step", ylabel=f"{label} per step" if per_step else label, title=title)
    if log:
        ax.set(xscale="log", yscale="log")
    else:
        from matplotlib.ticker import EngFormatter

        ax.set_xlim(0, int(result["step"][-1]))
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        if not per_step:
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.legend(frameon=False)
    if path is not None:
        save_picture(ax.get_figure(root=True), path)  # type: ignore[arg-type]
    return ax


def plot_panels(result: "xarray.Dataset", metric: str, dim: str, path: str | os.PathLike[str], **options: Any) -> None:
    """``plot_curves`` for each value of ``dim``, side by side."""
    values = result[dim].values
    figure, axes = panels(len(values))
    for ax, value in zip(axes, values, strict=True):
        plot_curves(result.sel({dim: value}), metric, ax=ax, title=str(value), **options)
    save_picture(figure, path)


def panels(count: int) -> tuple["Figure", Any]:
    """A figure with a row of ``count`` axes, as in the papers, and these axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * count, 3.4), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, count))


def save_picture(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Writes a figure as PNG, PDF or SVG, by the path's ending."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _describe(dim: Any, value: Any) -> str:
    return str(value) if dim == "policy" else f"{dim} = {value:.4g}"
