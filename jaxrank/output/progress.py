"""A progress bar on the host: steps, lane-steps per second, time left, and whether the run is still being compiled.

It is shown where standard error is a terminal, and in notebooks, as an output of the cell that the notebook keeps.
"""

import contextlib
import html
import sys
import time
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


class _Shown:
    """The HTML of a bar, as IPython's ``display`` asks for it."""

    def __init__(self, title: str, share: float, said: str) -> None:
        self.title, self.share, self.said = title, share, said

    def __repr__(self) -> str:
        return f"{self.title} {self.share:.0%} {self.said}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.share:.4f}" style="width:12em"></progress>'
        return f"<div>{html.escape(self.title)} {bar} {self.share:.0%} {html.escape(self.said)}</div>"


class _NotebookBar(Progress):
    """A bar in a notebook: one output, replaced a few times a second and at the end. rich's would need ipywidgets."""

    def __init__(self, title: str, num_steps: int) -> None:
        self.title, self.num_steps = title, num_steps
        self.share, self.said = 0.0, ""
        self.drawn = time.monotonic()
        # IPython is no dependency: it is there because we are in a notebook.
        self.handle: Any = sys.modules["IPython"].display.display(_Shown(title, 0.0, ""), display_id=True)

    def compiling(self) -> None:
        self.said = "compiling"
        self.draw()

    def at(self, step: int, rate: float | None = None) -> None:
        self.share = step / self.num_steps
        self.said = "" if rate is None else _pace(rate)
        if step == self.num_steps or time.monotonic() > self.drawn + 0.25:
            self.draw()

    def draw(self) -> None:
        self.drawn = time.monotonic()
        self.handle.update(_Shown(self.title, self.share, self.said))


def _pace(rate: float) -> str:
    return f"{rate / 1e6:.2f} M lane-steps/s"


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
    if console.is_jupyter:
        bar = _NotebookBar(title, num_steps)
        yield bar
        bar.draw()
        return
    if not console.is_terminal:
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
                shown.update(task, description=title, completed=step, rate="" if rate is None else _pace(rate))

        yield Bar()
