"""Options that commands of the laboratory share, and what they lead to."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rltuned.cli.flags import warn
from rltuned.core.order import Order, Policy
from rltuned.core.slurm_plan import Parameters, with_parameter
from rltuned.daemon.clock import SystemClock
from rltuned.errors import TraceError
from rltuned.files import whole_folder
from rltuned.lab.backtest.past import Span
from rltuned.lab.backtest.sacct_files import Report, collect
from rltuned.lab.replay.trace_file import read_trace
from rltuned.lab.train.settings import set_by
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings.keys import SlurmKeys
from rltuned.sim.trace import Bad, Trace
from rltuned.sim.world import BackfillRule
from rltuned.slurm.values import asked_moment

S = TypeVar("S")
SHIPPED = "shipped"
BAD_SHOWN = 20


BoundsOption = Annotated[
    Literal["on", "off"],
    typer.Option("--bounds", help="Delays within their bounds, or every policy's pure order."),
]
TrustOption = Annotated[
    float | None,
    typer.Option(
        "--trust", help="How much of a network's corrections counts; none: 1.", min=0.0, max=1.0
    ),
]
ReportOption = Annotated[Path | None, typer.Option(help="New folder: index.html, results.json.")]
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


def set_to(settings: S, given: Iterable[str] | None) -> S:
    """The settings with what --set names. Raises BadParameter: there is no such name, or its value
    cannot be used.
    """
    try:
        return set_by(settings, given or ())
    except ValueError as error:
        raise typer.BadParameter(f"--set {error}") from None


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


def warn_of_bad(source: Path | None, bad: Sequence[Bad]) -> None:
    """Name rows that are left out by file, line and reason; the first of many, all by number."""
    for row in bad[:BAD_SHOWN]:
        warn(f"{source}:{row.line}: {row.why}")
    if len(bad) > BAD_SHOWN:
        warn(f"{source}: {len(bad) - BAD_SHOWN} more bad rows")


# -- where a command is to write: what cannot be written is found out before the work ------------


def check_file(path: Path | None) -> None:
    """Raises TraceError: there can be no such file. None = none is asked for."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        why = "it is a folder" if path.is_dir() else f"no folder {path.parent}"
        raise TraceError(f"{path}: cannot be written: {why}")


def check_folder(path: Path | None, *, new: bool = False) -> None:
    """Raises TraceError: there can be no such folder, or (new) there is one."""
    if path is None:
        return
    if new and path.exists():
        raise TraceError(f"{path}: exists already; remove it or choose another name")
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        raise TraceError(f"{path}: cannot be made: {nearest} is no folder")


# -- What a site's record needs -------------------------------------------------------------------


def span_of(since: str | None, *, split: float = 0.7, live: str = "") -> Span:
    """Of --since, which must lie before now. live: where a live Slurm is asked, the beginning that
    stands for none; it is asked up to now.
    """
    now, text = SystemClock().now(), since or live
    try:
        begin = asked_moment(text, now) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"--since: {error}") from None
    if begin is not None and begin >= now:
        raise typer.BadParameter("--since: is not before now")
    return Span(begin, now if live else None, split)


def collected(
    slurm: SlurmKeys, folder: Path, span: Span, show: Report, *, has_other: bool = False
) -> None:
    """Save the live site's files in a new folder, and say what to know of them; see collect."""
    warned = collect(slurm, folder, span.begin or 0.0, span.until or 0.0, show, has_other=has_other)
    if warned:
        warn(warned)


def as_json(found: object, indent: int | None = None) -> str:
    """One document; a Change is one as well."""
    return json.dumps(found, indent=indent, allow_nan=False, default=asdict)


def write_report(folder: Path, page: str, found: object) -> None:
    """index.html and results.json in one piece. Raises TraceError."""
    try:
        with whole_folder(folder) as made:
            (made / "index.html").write_text(page, encoding="utf-8")
            (made / "results.json").write_text(f"{as_json(found, 1)}\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error


@contextmanager
def progress() -> Iterator[Report]:
    """Bars on a terminal: called with what is being done, and how much of it is done, 0..1."""
    console, tasks = Console(stderr=True), dict[str, TaskID]()
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def show(what: str, part: float) -> None:
        if what not in tasks:
            tasks[what] = shown.add_task(what, total=1.0)
        shown.update(tasks[what], completed=part)

    with shown:
        yield show
