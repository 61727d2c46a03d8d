"""Progress on standard error: one line per task with the time left, on a terminal only."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Bars:
    """Tasks by name, each from 0 to 1."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, what: str, part: float) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=1.0)
        self._progress.update(self._tasks[what], completed=part)


@contextmanager
def progress(*columns: str, keep: bool = False, off: bool = False) -> Iterator[Progress]:
    """A bar with such columns beside it, in rich's markup. keep: it stays. off: none is shown."""
    texts = [TextColumn(text) for text in columns or ("{task.description:<24}",)]
    console = Console(stderr=True)
    with Progress(
        texts[0], BarColumn(), *texts[1:], TimeRemainingColumn(),
        console=console, transient=not keep, disable=off or not console.is_terminal,
    ) as bar:  # fmt: skip
        yield bar
