"""The papers' figures as code: one file per paper, one function per figure."""

from collections.abc import Callable

from jaxrank.studies.papers import batchrank, bubblerank, cascadehybrid, pairrank
from jaxrank.studies.papers.figure import Report, Request, write

FIGURES: dict[str, Callable[[Request], Report]] = {
    "bubblerank-fig1": bubblerank.fig1,
    "bubblerank-fig2": bubblerank.fig2,
    "bubblerank-fig3": bubblerank.fig3,
    "bubblerank-fig4": bubblerank.fig4,
    "batchrank-fig1": batchrank.fig1,
    "batchrank-fig2": batchrank.fig2,
    "cascadehybrid-fig1": cascadehybrid.fig1,
    "cascadehybrid-fig2": cascadehybrid.fig2,
    "pairrank-fig3": pairrank.fig3,
    "pairrank-fig4": pairrank.fig4,
    "pairrank-fig5": pairrank.fig5,
    "pairrank-fig6": pairrank.fig6,
    "pairrank-fig7": pairrank.fig7,
}


def reproduce(name: str, request: Request) -> Report:
    """Runs a figure and writes its results file, picture and table."""
    if name not in FIGURES:
        raise ValueError(f"figure must be one of {', '.join(FIGURES)}; got {name!r}")
    report = FIGURES[name](request)
    write(name, request, report)
    return report


__all__ = ["FIGURES", "Report", "Request", "reproduce"]
