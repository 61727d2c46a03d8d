"""`rltuned status`: one look at the daemon, also when it is down."""

import json
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rltuned.cli.asking import DaemonState, ask
from rltuned.cli.flags import ConfigOption, JsonOption, printable, say, settings_of
from rltuned.cli.history import what
from rltuned.cli.tables import wide_console
from rltuned.daemon.clock import SystemClock
from rltuned.settings import Loaded
from rltuned.text import span, when

app = typer.Typer()

_AROUND: Final = 4
"""Lines of a screen that neither headlines nor the queue take."""
_ROWS: Final = 50
"""Jobs shown where there is no screen."""


@app.command()
def status(
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Also the queue, old and new order, until q or Ctrl-C."),
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every", help="Seconds between two updates of --watch.", min=0.2, max=3600.0
        ),
    ] = 2.0,
) -> None:
    """Show the daemon's state: its cycles, stage, circuit breakers, last changes, model, journal.

    Asks the daemon's own port and reads the journal; asks Slurm nothing. With --watch the state is
    shown again and again; where the output is no terminal, once.

    Exit codes: 0 = it works, or --watch has ended; 1 = it is down, does not work, or a circuit
    breaker is open; 2 = settings cannot be used.
    """
    if watch and as_json:
        raise typer.BadParameter("--watch and --json exclude each other")
    loaded = settings_of(config)
    if watch:
        _watch(loaded, every)
        return
    state, now = ask(loaded), SystemClock().now()
    if as_json:
        say(json.dumps(state.document(now), indent=2, allow_nan=False))
    else:
        for line in (*headlines(state, now), *changes(state)):
            say(line)
    if state.troubles(now):
        raise typer.Exit(1)


def headlines(state: DaemonState, now: float) -> Iterator[str]:
    """What matters first."""
    yield "rltuned: " + "; ".join(sentence for sentence, _ in state.sentences(now))
    yield from _daemon(state)
    yield from _journal(state, now)


def changes(state: DaemonState) -> Iterator[str]:
    """The last changes, the latest first."""
    if state.kept is None:
        return
    yield "last changes:" if state.kept.changes else "last changes: none"
    for change in state.kept.changes:
        back = "" if change.delay_s is None else f", steps back {span(change.delay_s)}"
        result = change.result or "unknown"
        yield f"  {when(change.at)}  job {change.address}: {what(change)}{back}: {result}"


def _daemon(state: DaemonState) -> Iterator[str]:
    daemon = state.daemon
    if daemon is None:
        yield f"daemon: not asked: {state.silent}" if not state.asked else "daemon: no answer"
        yield f"stage: {state.settings.ladder.stage} by the settings"
        if state.kept is not None and (known := state.kept.state) is not None:
            yield f"state since {when(known.at)}: {known.health}"
            if known.effect is not None:
                yield f"effect: {known.effect.verdict}"
        return
    stage = f"{daemon['stage']} (dry run)" if daemon["dry_run"] else daemon["stage"]
    model = f", model {daemon['digest'][:12]}" if daemon["digest"] else ""
    model += f", {daemon['generation']}" if daemon.get("generation") else ""
    yield f"cluster: {daemon['cluster'] or 'not seen yet'}"
    yield f"stage: {stage}; writes {daemon['write_mode']}; policy {daemon['policy']}{model}"
    skipped = [c for c in daemon["cycles"] if c["skip"]]
    yield f"cycles: {len(skipped)} of the last {len(daemon['cycles'])} without a result"
    if daemon["effect"] is not None:
        yield f"effect: {daemon['effect']['verdict']}"
    for block in daemon.get("blocks", ()):  # an older daemon has none
        delays = "on" if block["on"] else "off (Slurm's own order is measured)"
        yield f"switchback: {block['partition']} {delays} until {when(block['until'])}"


def _journal(state: DaemonState, now: float) -> Iterator[str]:
    kept = state.kept
    if kept is None:
        yield f"journal: {state.unread}"
        return
    cycle = kept.cycle
    if cycle is not None:
        what = f"skipped ({cycle.skipped})" if cycle.skipped else f"{cycle.proposed} proposed"
        yield (
            f"last cycle: {cycle.cycle}, {span(max(0.0, now - cycle.at))} ago, {cycle.mode}, "
            f"{cycle.policy}: {cycle.pending} pending, {what}, {cycle.applied} applied, "
            f"{cycle.seconds:.2f} s"
        )
    yield f"journal: {kept.cycles} cycles; {kept.carrying} jobs may carry a value of rltuned's"
    for cluster, name, found in kept.breakers:
        yield (
            f"circuit breaker of {name} on {cluster} open since {when(found.opened_at or 0)}: "
            + (found.detail)
        )


# -- live on a terminal -------------------------------------------------------------------------


def _watch(loaded: Loaded, every: float) -> None:
    clock, console = SystemClock(), wide_console()
    if not (console.is_terminal and sys.stdin.isatty()):
        console.print(_view(ask(loaded), clock.now(), _ROWS))
        return
    # started by a script it may have inherited that Ctrl-C is ignored, with a screen to get out of
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with _keys_at_once(), Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                view = _view(ask(loaded), clock.now(), console.size.height)
                live.update(view, refresh=True)
                if _is_quit(every):
                    return
        except KeyboardInterrupt:
            return


def _is_quit(seconds: float) -> bool:
    """Wait for a key; whether it was q, or the terminal is gone."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in {"q", "Q", ""}


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Keys come without Enter and are not shown; as it was before, afterwards."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _view(state: DaemonState, now: float, height: int) -> RenderableType:
    """One look, so many lines high."""
    lines = [*headlines(state, now), *changes(state)]
    head = Text("\n".join(printable(line) for line in lines), no_wrap=True, overflow="ellipsis")
    head.stylize("bold red" if state.troubles(now) else "bold green", 0, len(lines[0]))
    room = max(1, height - len(lines) - _AROUND)
    return Group(head, Text(), _queue(state, room), Text("q ends", style="dim"))


def _queue(state: DaemonState, room: int) -> RenderableType:
    """The first jobs in their new order."""
    if state.seen is None:
        return Text(f"queue: not known: {printable(state.unread) or 'no cycle is kept'}")
    seen, queue = state.seen
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("new", "old", "moves", "job"):
        table.add_column(name, justify="left" if name == "job" else "right", no_wrap=True)
    for name in ("partition", "user"):
        table.add_column(name, no_wrap=True)
    for name in ("GPUs", "waited", "delay", "priority", "planned"):
        table.add_column(name, justify="right", no_wrap=True)
    for place in queue[:room]:
        job, step = place.job, place.before - place.after
        table.add_row(
            str(place.after),
            str(place.before),
            f"[green]up {step}[/]" if step > 0 else f"[yellow]down {-step}[/]" if step else "",
            escape(printable(job.address)),
            escape(printable(",".join(job.partitions))),
            escape(printable(job.user)),
            str(job.request.total.gpus),
            span(job.waited_s(seen.taken_at)),
            "" if place.delay_s is None else span(place.delay_s),
            str(place.priority),
            str(place.planned) if place.planned != place.priority else "",
        )
    left = len(queue) - room
    return Group(table, Text(f"... and {left} more")) if left > 0 else table
