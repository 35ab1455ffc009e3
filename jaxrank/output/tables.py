"""Numbers as text: a mean with its standard error, tables in Markdown and in columns."""

import math
from collections.abc import Sequence
from typing import Any


def plus_minus(mean: Any, error: Any, digits: int | None = 2) -> str:
    """1,234.56 ± 7.89, or the mean alone if its error is NaN, as it is of a single value.

    With None for ``digits``, one decimal for means of at least 10 and four below.
    """
    digits = (1 if abs(float(mean)) >= 10 else 4) if digits is None else digits
    shown = f"{float(mean):,.{digits}f}"
    return shown if math.isnan(float(error)) else f"{shown} ± {float(error):,.{digits}f}"


def with_both_errors(mean: Any, error: Any, over_seeds: Any, digits: int) -> str:
    """1,234.5 ± 67.8 (8.9): the error over instances, and in brackets that over seeds alone, if there are several."""
    seeds = float(over_seeds)
    return plus_minus(mean, error, digits) + ("" if math.isnan(seeds) else f" ({seeds:,.{digits}f})")


BOTH_ERRORS = (
    "± is the standard error over {instances}, of means over seeds, so that it has the variance of both. In brackets: "
    "the standard error over seeds alone, for these {instances}. It is smaller, and is what errors over runs are."
)
TWO_WAY_ERRORS = (
    "± is the standard error for other test queries and other runs: the squared error over queries, of means over "
    "runs, plus that over runs, of means over queries. In brackets: the standard error over runs alone, for these "
    "queries. It is smaller, and is what errors over runs are, as published."
)


def counted(number: int, noun: str) -> str:
    """1 seed, 1,000 seeds, 2 policies, 2 queries."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (header, ["---"] * len(header), *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], first: int = 28, others: int = 26) -> str:
    """A table for a terminal: the first column left-aligned, the others right-aligned."""
    lines = [header, *rows]
    return "\n".join(f"{name:{first}}" + "".join(f"{cell:>{others}}" for cell in cells) for name, *cells in lines)
