"""Numbers as text: a mean with its standard error, tables in Markdown and in columns."""

from collections.abc import Sequence
from typing import Any


def plus_minus(mean: Any, error: Any, digits: int | None = 2) -> str:
    """1,234.56 ± 7.89; with None for ``digits``, one decimal for means of at least 10 and four below."""
    digits = (1 if abs(float(mean)) >= 10 else 4) if digits is None else digits
    return f"{float(mean):,.{digits}f} ± {float(error):,.{digits}f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], first: int = 28, others: int = 26) -> str:
    """A table for a terminal: the first column left-aligned, the others right-aligned."""
    lines = [header, *rows]
    return "\n".join(f"{name:{first}}" + "".join(f"{cell:>{others}}" for cell in cells) for name, *cells in lines)
