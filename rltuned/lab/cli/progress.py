"""How long work goes on: bars on a terminal, a line per epoch in training.log, TensorBoard."""

import importlib.util
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rltuned.cli.flags import warn
from rltuned.errors import ModelError, SettingsError
from rltuned.lab.cli.options import check_folder
from rltuned.stats import percent
from rltuned.text import span

if TYPE_CHECKING:  # torch
    from torch.utils.tensorboard import SummaryWriter

LOG: Final = "training.log"
PACKAGE: Final = "tensorboard"
EVENTS: Final = "events.out.tfevents.*"

BoardOption = Annotated[
    Path | None,
    typer.Option("--tensorboard", help="Folder for TensorBoard; needs rltuned[tensorboard]."),
]


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


def check_board(folder: Path | None, seeds: int, *, resume: bool) -> None:
    """Find out before the work whether there can be event files. folder: None = none is asked for.

    Raises:
        SettingsError: the package is missing.
        ModelError: the folder has the figures of another training.
        BadParameter: several seeds are trained, whose steps would be the same.
        TraceError: there can be no such folder.
    """
    if folder is None:
        return
    if importlib.util.find_spec(PACKAGE) is None:
        raise SettingsError(
            f"--tensorboard needs the Python package {PACKAGE}, which is not installed; "
            "install rltuned[tensorboard]"
        )
    if seeds > 1:
        raise typer.BadParameter("--tensorboard shows one training, --seeds makes several")
    check_folder(folder)
    if not resume and any(folder.glob(EVENTS)):
        raise ModelError(f"{folder}: has the figures of another training; name another folder")


class TrainingLog:
    """One training: a line for each unit of work on the terminal and in the folder, figures for
    TensorBoard. unit: what it counts; total: how many of them. board: see check_board. off: another
    rank says it. Raises ModelError: a folder cannot be written to.
    """

    def __init__(
        self, folder: Path, unit: str, total: int, board: Path | None, *, off: bool = False
    ) -> None:
        self._path, self._unit, self._total, self._off = folder / LOG, unit, total, off
        self._began, self._said = time.monotonic(), 0
        self._board = board
        self._writer: SummaryWriter | None = None

    def say(self, done: int, text: str, figures: Mapping[str, float | None]) -> None:
        """So many have been done. figures: those that were measured are shown."""
        self._said += 1
        if self._off:
            return
        left_s = (time.monotonic() - self._began) / self._said * (self._total - done)
        line = f"{self._unit} {done}/{self._total}: {text}; {span(left_s)} left"
        warn(line)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
        path = self._path
        try:
            with path.open("a") as file:
                file.write(f"{stamp} {line}\n")
            if self._board is not None:
                path = self._board
                self._show(path, done, figures)
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror}") from error

    def _show(self, board: Path, done: int, figures: Mapping[str, float | None]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra

            self._writer = SummaryWriter(str(board))
        for name, value in figures.items():
            if value is not None and math.isfinite(value):
                self._writer.add_scalar(name, value, done)
        self._writer.flush()

    def close(self) -> None:
        """No more will come."""
        if self._writer is not None:
            self._writer.close()


def against(rule: str, change: tuple[float, float | None, float | None]) -> str:
    """A mean of logarithms of ratios with its interval, as parts."""
    return f"{percent(*change)} against {rule}"
