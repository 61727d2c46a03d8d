"""Options that commands of the laboratory share, and what they lead to."""

import importlib.util
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rltuned.cli.flags import warn
from rltuned.core.order import Order, Policy
from rltuned.core.slurm_plan import Parameters, with_parameter
from rltuned.errors import ModelError, SettingsError, TraceError
from rltuned.lab.replay.trace_file import read_trace
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.dispatch import BackfillRule
from rltuned.sim.trace import Bad, Trace
from rltuned.stats import percent
from rltuned.text import span

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SHIPPED = "shipped"
BAD_SHOWN = 20


class OnOff(StrEnum):
    """A switch that can be named."""

    ON = "on"
    OFF = "off"


BoundsOption = Annotated[
    OnOff,
    typer.Option("--bounds", help="Delays within their bounds, or every policy's pure order."),
]
OwnOption = Annotated[
    float, typer.Option("--own", help="Part of a job's own length in its delay.", min=0.0)
]
ShareOption = Annotated[
    float, typer.Option("--share", help="Part of the backlog in its delay.", min=0.0)
]
ClipOption = Annotated[
    float,
    typer.Option(
        "--clip", help="No delay above so many limit x sqrt(GPUs) + share x backlog.", min=0.0
    ),
]
MaxDelayOption = Annotated[
    float, typer.Option("--max-delay", help="No delay above so many seconds.", min=0.0)
]
PredictorOption = Annotated[
    str,
    typer.Option(
        "--predictor", help="Of run times: a folder, the `shipped` one, or `none`: by the limits."
    ),
]
IntervalOption = Annotated[
    float, typer.Option("--interval", help="Seconds between cycles.", min=0.001, max=1e9)
]


TrustOption = Annotated[
    float | None,
    typer.Option(
        "--trust", help="How much of a network's corrections counts; none: 1.", min=0.0, max=1.0
    ),
]


BackfillOption = Annotated[
    BackfillRule,
    typer.Option(help="easy; none; slurm: what sched/backfill plays, by --backfill-param."),
]
BackfillParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backfill-param", help="name=value as in SchedulerParameters; for slurm; again for more."
    ),
]


def parameters_of(backfill: str | None, given: Sequence[str] | None) -> Parameters:
    """What --backfill slurm plays by. Raises BadParameter: it is not played, or plays otherwise."""
    if given and backfill != "slurm":
        raise typer.BadParameter("--backfill-param: only --backfill slurm has parameters")
    return changed(Parameters(), given or (), "--backfill-param")


def changed(parameters: Parameters, given: Sequence[str], option: str) -> Parameters:
    """With these as well. Raises BadParameter: one is not played, or not with that value."""
    for text in given:
        try:
            parameters = with_parameter(parameters, text)
        except ValueError as error:
            raise typer.BadParameter(f"{option}: {error}") from None
    return parameters


def trust_of(given: float | None, policies: Iterable[Policy | str]) -> float:
    """The trust that the option asks for. Raises BadParameter: no policy has any corrections."""
    if given is None:
        return 1.0
    if all(isinstance(one, str) or one.trust is None for one in policies):
        raise typer.BadParameter("--trust: none of these policies corrects the rule")
    return given


def order_of(own: float, share: float, clip: float, max_delay_s: float) -> Order:
    """What the four options ask for."""
    try:
        return Order(own, share, clip, max_delay_s)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def predictor_of(given: str) -> Predictor | None:
    """The predictor that the option asks for. Raises ModelError: it cannot be used."""
    if given == "none":
        return None
    return load_predictor(shipped_predictor() if given == SHIPPED else Path(given))


def shown_trace(path: Path) -> Trace:
    """A trace file; its rows that are left out are named. Raises TraceError."""
    trace = read_trace(path)
    warn_of_bad(path, trace.bad)
    return trace


def warn_of_bad(source: Path, bad: Sequence[Bad]) -> None:
    """Name rows that are left out by file, line and reason; the first of many, all by number."""
    for row in bad[:BAD_SHOWN]:
        warn(f"{source}:{row.line}: {row.why}")
    if len(bad) > BAD_SHOWN:
        warn(f"{source}: {len(bad) - BAD_SHOWN} more bad rows")


# -- where a command is to write: what cannot be written is found out before the work ------------


def check_file(path: Path | None) -> None:
    """Raises TraceError: there can be no such file. None = none is asked for."""
    if path is not None and path.is_dir():
        raise TraceError(f"{path}: cannot be written: it is a folder")
    if path is not None and not path.parent.is_dir():
        raise TraceError(f"{path}: cannot be written: no folder {path.parent}")


def check_folder(path: Path | None, *, new: bool = False) -> None:
    """Raises TraceError: there can be no such folder, or (new) there is one."""
    if path is None:
        return
    if new and path.exists():
        raise TraceError(f"{path}: exists already; remove it or choose another name")
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        raise TraceError(f"{path}: cannot be made: {nearest} is no folder")


# How long work goes on: bars on a terminal, a line per epoch in training.log, TensorBoard.


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
