"""The files of a study: the numbers as netCDF, a picture, and a page of Markdown."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jaxrank.output import results
from jaxrank.output.files import write_text
from jaxrank.output.plotting import save_picture

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


class Report(NamedTuple):
    result: "xarray.Dataset"
    figure: "Figure"
    table: str  # Markdown


def ordering(where: str, name: str, side: str, others: Sequence[str], values: Mapping[str, float], digits: int) -> str:
    """A published ordering as an item of a list, with ✓ if it holds for ``values`` and ✗ if not.

    Args:
      where: of what the values are, e.g. "CM, step 1,000".
      name: who is said to be on one ``side``, "above" or "below", of all ``others``.
      side: which.
      others: whom ``name`` is compared with.
      values: of all of them in this run.
      digits: decimals.
    """

    def shown(names: Sequence[str]) -> str:
        return ", ".join(f"{other} ({values[other]:,.{digits}f})" for other in names)

    sign = 1 if side == "above" else -1
    holds = [other for other in others if sign * (values[name] - values[other]) > 0]
    fails = [other for other in others if other not in holds]
    found = [f"{side} {shown(holds)}"] * bool(holds) + [f"not {side} {shown(fails)}"] * bool(fails)
    return f"- {'✗' if fails else '✓'} {where}: {shown([name])} is {' and '.join(found)}."


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
