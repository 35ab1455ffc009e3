"""The files of a study: the numbers as netCDF, a picture, and a page of Markdown."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrank.core.checks import choice
from jaxrank.output import results
from jaxrank.output.files import write_text
from jaxrank.output.intervals import difference
from jaxrank.output.plotting import save_picture

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


_ALIKE = 0.05
# What ``signed`` says of a claim that is not reproduced.
OPPOSITE, UNDECIDED = "it is the other way round", "the interval contains 0"
VERDICTS = ("reproduced", "not reproduced", "cannot be tested here")


def how(over: str) -> str:
    """What stands above verdicts: over what Student's t is taken, and when a claim is reproduced."""
    return (
        "Verdicts on the paper's claims. A difference is of two policies in the same lanes, with its 95 % interval: by "
        f"Student's t over {over}. A claim is reproduced if the interval is on the published side of 0."
    )


HOW = how("queries or users, of means over seeds, and over seeds where there is one query or user")
HOW_TWO_WAYS = how(
    "test queries, of means over runs, and over runs, of means over test queries; the squares of both half-widths are "
    "added"
)


class Report(NamedTuple):
    result: "xarray.Dataset"
    figure: "Figure"
    table: str  # Markdown


def verdict(
    where: str,
    name: str,
    side: str,
    other: str,
    values: "xarray.DataArray",
    digits: int,
    interval: Callable[[Any, Any], tuple[float, float, float]] = difference,
) -> str:
    """A published ordering of two policies as an item of a list: whether it was reproduced, by how much, how surely.

    It was, if the 95 % interval of the paired difference is on the published side of 0, and was not if the interval is
    on the other side or contains 0.

    Args:
      where: of what the values are, e.g. "CM, step 1,000".
      name: who is said to be on one ``side``, "above" or "below", of ``other``.
      side: which.
      other: whom ``name`` is compared with.
      values: of all policies, with the dimension ``policy`` and those of the lanes.
      digits: decimals.
      interval: of the paired difference, ``difference`` or ``two_way_difference``.
    """
    found = interval(values.sel(policy=name), values.sel(policy=other))
    return signed(f"{where}: {name} is {side} {other}", side, found, digits)


def signed(claim: str, side: str, found: tuple[float, float, float], digits: int) -> str:
    """The verdict on a claim that a difference, given with the ends of its interval, is "above" or "below" 0."""
    _, low, high = found
    sign = 1 if side == "above" else -1
    if not np.isfinite(low):
        word, why = "cannot be tested here", "; one run has no interval"
    elif min(sign * low, sign * high) > 0:
        word, why = "reproduced", ""
    else:
        opposite = max(sign * low, sign * high) < 0
        word, why = "not reproduced", f"; {OPPOSITE if opposite else UNDECIDED}"
    return judged(word, claim, _interval(found, digits) + why)


def alike(claim: str, found: tuple[float, float, float], level: float, digits: int) -> str:
    """The verdict on a claim that two values are alike: their difference is certainly within 5 % of ``level``."""
    _, low, high = found
    margin = _ALIKE * abs(level)
    word = between(low, high, -margin, margin)
    why = "; too wide to tell" if np.isfinite(low) else "; one run has no interval"
    why = why if word == "cannot be tested here" else ""
    return judged(word, claim, f"{_interval(found, digits)}; within ± {margin:.{digits}f}, 5 %, counts as alike{why}")


def between(low: float, high: float, least: float, most: float) -> str:
    """The word for a claim that a value is between two others, by the ends of its interval; they may be NaN."""
    if least < low and high < most:
        return "reproduced"
    return "not reproduced" if high < least or low > most else "cannot be tested here"


def met(claim: str, here: float, published: float, half: float, digits: int) -> str:
    """The verdict on a published number: whether the 95 % interval of the difference contains 0.

    Args:
      claim: what is claimed.
      here: the number here.
      published: the number there.
      half: half of the interval's width, for both samples. If it is as large as the number, nothing can be told.
      digits: decimals.
    """
    apart = here - published
    found = f"{here:,.{digits}f} here; the difference is {apart:+,.{digits}f} ± {half:,.{digits}f} (95 %)"
    if not np.isfinite(half):
        return judged("cannot be tested here", claim, f"{here:,.{digits}f} here; a single value has no interval")
    if abs(apart) > half:
        return judged("not reproduced", claim, found)
    if half >= abs(published):
        return judged("cannot be tested here", claim, f"{found}; too wide to tell")
    return judged("reproduced", claim, found)


def _interval(found: tuple[float, float, float], digits: int) -> str:
    mean, low, high = found
    return f"{mean:+,.{digits}f} [{low:+,.{digits}f}, {high:+,.{digits}f}]"


def judged(word: str, claim: str, evidence: str) -> str:
    """The item of a list for a claim of a paper: one of ``VERDICTS``, the claim, and the numbers or the reason."""
    choice("word", word, VERDICTS)
    return f"- **{word}**: {claim} ({evidence})."


def write_report(folder: Path, name: str, report: Report, note: str, format: str) -> None:
    """Writes <name>.nc, <name>.<format> and <name>.md, the page with ``note`` above the table; replaces old ones.

    Only for the numbers is it an error if they cannot be written.
    """
    results.save(report.result, folder / f"{name}.nc", overwrite=True)
    with spared(f"the picture of {name}"):
        save_picture(report.figure, folder / f"{name}.{format}")
    with spared(f"the page of {name}"):
        write_text(folder / f"{name}.md", f"# {name}\n\n{note}\n\n{report.table}\n")


@contextlib.contextmanager
def spared(what: str) -> Iterator[None]:
    """Turns a failure of the block, which draws or describes numbers that are saved already, into a warning."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split()) if isinstance(error, ValueError) else repr(error)
        warnings.warn(f"{what} is missing: {text:.300}", RuntimeWarning, stacklevel=3)
