"""A progress bar on the host: steps, lane-steps per second, time left, and whether the run is still being compiled.

It is shown where standard error is a terminal, and in Jupyter notebooks, where rich needs ipywidgets and says so.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


class Progress:
    """What a run tells about itself: to a function of the number of steps done so far, or to nobody."""

    def __init__(self, tell: Callable[[int], object] = lambda step: None) -> None:
        self.tell = tell

    def compiling(self) -> None:
        """The run is being compiled."""

    def at(self, step: int, rate: float | None = None) -> None:
        """``step`` steps are done, at ``rate`` lane-steps per second, not counting compilation."""
        self.tell(step)


class _StandardError:
    """Standard error, for as long as it is there: a terminal may be closed while a run continues."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


@contextlib.contextmanager
def progress_bar(title: str, num_steps: int, progress: bool | Callable[[int], object]) -> Iterator[Progress]:
    """Yields what a run tells its progress: ``progress`` if it is a function, else a bar if it is True."""
    if callable(progress):
        yield Progress(progress)
        return
    if not progress:
        yield Progress()
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(file=_StandardError())  # type: ignore[arg-type]
    if not (console.is_terminal or console.is_jupyter):
        yield Progress()
        return
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=20),
        rich.TextColumn("{task.percentage:>3.0f} %"),
        rich.TextColumn("{task.fields[rate]}"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console) as shown:
        task = shown.add_task(title, total=num_steps, rate="")

        class Bar(Progress):
            def compiling(self) -> None:
                shown.update(task, description=f"{title}: compiling")

            def at(self, step: int, rate: float | None = None) -> None:
                pace = "" if rate is None else f"{rate / 1e6:.2f} M lane-steps/s"
                shown.update(task, description=title, completed=step, rate=pace)

        yield Bar()
        shown.refresh()  # in a notebook, rich would leave the last frame but one
