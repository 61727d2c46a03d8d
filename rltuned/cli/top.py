"""`rltuned top`: the daemon and its queue, live on a terminal."""

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
from rltuned.cli.flags import ConfigOption, printable, settings_of
from rltuned.cli.status import changes, headlines
from rltuned.cli.tables import wide_console
from rltuned.daemon.clock import SystemClock
from rltuned.text import span

app = typer.Typer()

_AROUND: Final = 4
"""Lines of a screen that neither headlines nor the queue take."""
_ROWS: Final = 50
"""Jobs shown where there is no screen."""


@app.command()
def top(
    *,
    config: ConfigOption = None,
    every: Annotated[
        float, typer.Option("--every", help="Seconds between two updates.", min=0.2, max=3600.0)
    ] = 2.0,
) -> None:
    """Show the daemon and its queue, old and new order, until q or Ctrl-C.

    Asks the daemon's own port and reads the journal; asks Slurm nothing. Where the output is no
    terminal, prints once and ends.

    Exit codes: 0 = shown; 2 = settings cannot be used.
    """
    loaded, clock, console = settings_of(config), SystemClock(), wide_console()
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
    """Wait for a key; whether it was q, or nobody can press one any more."""
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
    if state.queue is None:
        return Text(f"queue: not known: {printable(state.unread) or 'no cycle is kept'}")
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("new", "old", "moves", "job"):
        table.add_column(name, justify="left" if name == "job" else "right", no_wrap=True)
    for name in ("partition", "user"):
        table.add_column(name, no_wrap=True)
    for name in ("GPUs", "waited", "delay", "priority", "planned"):
        table.add_column(name, justify="right", no_wrap=True)
    for place in state.queue[:room]:
        job, step = place.job, place.before - place.after
        waited_s = job.waited_s(state.taken_at or 0.0)
        table.add_row(
            str(place.after),
            str(place.before),
            f"[green]up {step}[/]" if step > 0 else f"[yellow]down {-step}[/]" if step else "",
            escape(printable(job.address)),
            escape(printable(",".join(job.partitions))),
            escape(printable(job.user)),
            str(job.request.total.gpus),
            span(waited_s),
            "" if place.delay_s is None else span(place.delay_s),
            str(place.priority),
            str(place.planned) if place.planned != place.priority else "",
        )
    left = len(state.queue) - room
    return Group(table, Text(f"... and {left} more")) if left > 0 else table
