"""The papers' figures as code: one file per paper, one function per figure."""

from collections.abc import Callable

from jaxrank.core.checks import choice, renamed
from jaxrank.output.report import Report
from jaxrank.studies.papers import (
    batchrank,
    bubblerank,
    cascadehybrid,
    imperfect_clicks,
    neural_rankers,
    nonstationary,
    pairrank,
    unknown_examination,
)
from jaxrank.studies.papers.figure import FigureRequest, write
from jaxrank.studies.papers.off_policy_estimators import off_policy_bench
from jaxrank.studies.papers.unbiased_rankers import unbiased_learning

FIGURES: dict[str, Callable[[FigureRequest], Report]] = {
    "bubblerank-fig1": bubblerank.fig1,
    "bubblerank-fig2": bubblerank.fig2,
    "bubblerank-fig3": bubblerank.fig3,
    "bubblerank-fig4": bubblerank.fig4,
    "batchrank-fig1": batchrank.fig1,
    "batchrank-fig2": batchrank.fig2,
    "cascadehybrid-fig1": cascadehybrid.fig1,
    "cascadehybrid-fig1-normalized": cascadehybrid.fig1_normalized,
    "cascadehybrid-fig2": cascadehybrid.fig2,
    "pairrank-fig3": pairrank.fig3,
    "pairrank-fig4": pairrank.fig4,
    "pairrank-fig5": pairrank.fig5,
    "pairrank-fig6": pairrank.fig6,
    "pairrank-fig7": pairrank.fig7,
    "pairrank-variants": pairrank.variants,
    "pairrank-tuning": pairrank.tuning,
    "neural-rankers": neural_rankers.figure,
    "nonstationary": nonstationary.figure,
    "unknown-examination": unknown_examination.figure,
    "delay": imperfect_clicks.delay,
    "corruption": imperfect_clicks.corruption,
    "off-policy": off_policy_bench,
    "unbiased-learning": unbiased_learning,
}


BOUNDED = (  # the figures that a theorem's bound can be drawn into
    *("bubblerank-fig1", "batchrank-fig1", "batchrank-fig2"),
    *("cascadehybrid-fig1", "cascadehybrid-fig1-normalized", "cascadehybrid-fig2"),
)


OWN_QUERIES = ("pairrank", "neural", "off-policy", "unbiased")  # figures whose queries are those of their data
_TAKEN_BY = {  # options that only the figures whose names begin so take, beside those of all figures
    "stop_at": ("pairrank-fig", "pairrank-tuning", "neural"),
    "click_models": ("bubblerank-fig1", "bubblerank-fig2", "bubblerank-fig4", "batchrank-fig2"),
    "panels": ("cascadehybrid",),
}
_NOT_TAKEN_BY = {  # options that all figures but these take
    "seeds": ("bubblerank-fig3", "off-policy"),
    "checkpoint": ("off-policy", "unbiased-learning"),
}


def check_request(name: str, request: FigureRequest) -> None:
    """Refuses an unknown figure, and options that the figure has no use for."""
    choice("figure", name, FIGURES)
    if request.bound and name not in BOUNDED:
        raise ValueError(
            f"bound must be left out: no theorem bounds what {name} shows; those of {', '.join(BOUNDED)} do"
        )
    if request.num_queries is not None and name.startswith(OWN_QUERIES):
        asked = request.num_queries
        raise ValueError(f"num_queries must be left out: {name} takes all queries of its data; got {asked}")
    useless = [option for option, figures in _TAKEN_BY.items() if not name.startswith(figures)]
    useless += [option for option, figures in _NOT_TAKEN_BY.items() if name in figures]
    for option in useless:
        asked = getattr(request, option)
        if asked != getattr(FigureRequest, option):
            raise ValueError(f"{option} must be left out: {name} has no use for it; got {asked!r}")


def reproduce(name: str, request: FigureRequest) -> Report:
    """Runs a figure and writes its results file, picture and table."""
    check_request(name, request)
    with renamed({"path": "data"}):
        report = FIGURES[name](request)
    with renamed({"path": "out"}):
        write(name, request, report)
    return report


__all__ = ["BOUNDED", "FIGURES", "FigureRequest", "Report", "check_request", "reproduce"]
