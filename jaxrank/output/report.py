"""The files of a study: the numbers as netCDF, a picture, and a page of Markdown."""

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


def write_report(folder: Path, name: str, report: Report, note: str) -> None:
    """Writes <name>.nc, <name>.png and <name>.md, the page with ``note`` above the table; replaces them if need be."""
    results.save(report.result, folder / f"{name}.nc", overwrite=True)
    save_picture(report.figure, folder / f"{name}.png")
    write_text(folder / f"{name}.md", f"# {name}\n\n{note}\n\n{report.table}\n")
