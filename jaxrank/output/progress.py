"""A progress bar on the host: steps, lane-steps per second, time left. Silent unless standard error is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(
    title: str, num_steps: int, num_lanes: int, progress: bool | Callable[[int], object]
) -> Iterator[Callable[[int], object]]:
    """Yields a function to call with the number of steps done: ``progress`` if it is a function, else that of a bar."""
    if callable(progress):
        yield progress
        return
    if not (progress and sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = (task.speed or 0.0) * num_lanes
            return Text(f"{rate / 1e6:.2f} M lane-steps/s", no_wrap=True)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %"),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=num_steps)
        yield lambda done: bar.update(task, completed=done)
