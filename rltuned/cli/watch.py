"""`rltuned status --watch`: the queue live on a terminal, sorted and filtered by keys."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from rltuned.cli.asking import DaemonState
from rltuned.cli.flags import printable
from rltuned.cli.tables import Column, console, fitted
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.last_state import QueuePosition
from rltuned.text import span

Details = Callable[[DaemonState, float], Sequence[str]]
"""The lines of `rltuned status`; the first is the headline."""

SORTS: Final[dict[str, Callable[[QueuePosition], Any]]] = {
    "new": lambda place: place.after,
    "old": lambda place: place.before,
    "moves": lambda place: (place.after - place.before, place.after),
    "waited": lambda place: place.job.waits_since,
    "delay": lambda place: -(place.delay_s or 0.0),
    "gpus": lambda place: -place.job.request.total.gpus,
    "user": lambda place: (place.job.user, place.after),
    "partition": lambda place: (place.job.partitions, place.after),
    "job": lambda place: place.job.job_id,
}
"""By name; of amounts the largest is first."""
_COLUMNS: Final = (
    Column("new", right=True),
    Column("old", right=True, goes=1),
    Column("moves", right=True),
    Column("job"),
    Column("partition", least=9),
    Column("user", least=6),
    Column("GPUs", right=True, goes=4),
    Column("waited", right=True, goes=3),
    Column("delay", right=True, goes=2),
    Column("priority", right=True, goes=1),
    Column("planned", right=True),
)
_AROUND: Final = 4
"""Lines of a screen beside the queue: headline, heads, what is left over, keys."""
_ROWS: Final = 50
"""Jobs shown where there is no screen."""
_SCROLLS: Final[dict[str, tuple[int, int]]] = {
    "\x1b[A": (-1, 0),
    "\x1b[B": (1, 0),
    "\x1b[5~": (0, -1),
    "\x1b[6~": (0, 1),
}
"""By how many jobs and screens: up, down, page up, page down."""
_BACKSPACE: Final = "\x7f\b"
_ESCAPE: Final = "\x1b"


@dataclass(slots=True)
class QueueView:
    """Which jobs are shown, by one of SORTS. wanted: a text in them. typing: keys go there. first:
    so many stand above the screen; room: so many find room on it.
    """

    sort: str = "new"
    reverse: bool = False
    wanted: str = ""
    typing: bool = False
    first: int = 0
    room: int = _ROWS

    def press(self, keys: str) -> bool:
        """Take over keys; False = the screen is left."""
        if keys.startswith(_ESCAPE) and keys != _ESCAPE:  # an arrow or a function key
            jobs, screens = _SCROLLS.get(keys, (0, 0))
            self.first = max(0, self.first + jobs + screens * self.room)
            return True
        for key in keys:
            if not self.typing and key in "qQ":
                return False
            (self._type if self.typing else self._command)(key)
        return True

    def _command(self, key: str) -> None:
        if key == "s":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key == "r":
            self.reverse = not self.reverse
        elif key in "/f":
            self.typing, self.wanted = True, ""
        elif key == _ESCAPE:
            self.wanted = ""

    def _type(self, key: str) -> None:
        if key == _ESCAPE:
            self.typing, self.wanted = False, ""
        elif key in "\r\n":
            self.typing = False
        elif key in _BACKSPACE:
            self.wanted = self.wanted[:-1]
        elif key.isprintable():
            self.wanted += key

    def screen(self, queue: Sequence[QueuePosition], room: int) -> Sequence[QueuePosition]:
        """Those of `of` that find room, from `first` on, but not beyond the last screen."""
        self.room = room
        self.first = max(0, min(self.first, len(queue) - room))
        return queue[self.first : self.first + room]

    def of(self, queue: Sequence[QueuePosition]) -> list[QueuePosition]:
        text = self.wanted.casefold()
        chosen = [p for p in queue if any(text in name.casefold() for name in _names(p))]
        return sorted(chosen, key=SORTS[self.sort], reverse=self.reverse)

    def footer(self) -> str:
        order = f"{self.sort}, reversed" if self.reverse else self.sort
        only = f"/{self.wanted}" + ("_" if self.typing else "")
        keys = f"q ends  s sorts: {order}  r reverses  / filters  arrows scroll"
        return (
            f"{only}  (Enter keeps, Esc clears)" if self.typing else f"{keys} {only[1:]}".rstrip()
        )


def watch(ask: Callable[[], DaemonState], details: Details, every: float, shown: QueueView) -> None:
    """Show it again and again until q or Ctrl-C; once where there is no terminal."""
    clock, out = SystemClock(), console()
    if not (out.is_terminal and sys.stdin.isatty()):
        out.print(view(ask(), details, clock.now(), shown, (out.width, _ROWS), keys=False))
        return
    # started by a script it may have inherited that Ctrl-C is ignored, with a screen to get out of
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with _keys_at_once(), Live(console=out, screen=True, auto_refresh=False) as live:
        try:
            state, due = ask(), clock.monotonic() + every
            while True:
                size = (out.size.width, out.size.height)
                live.update(view(state, details, clock.now(), shown, size), refresh=True)
                keys = _keys(due - clock.monotonic())
                if keys == "" or (keys and not shown.press(keys)):
                    return
                if clock.monotonic() >= due:
                    state, due = ask(), clock.monotonic() + every
        except KeyboardInterrupt:
            return


def view(
    state: DaemonState,
    details: Details,
    now: float,
    shown: QueueView,
    size: tuple[int, int],
    *,
    keys: bool = True,
) -> RenderableType:
    """One look, at most so wide and high: how the daemon is, the queue, and what finds room."""
    lines = [printable(line) for line in details(state, now)]
    head = _line(lines[0])
    head.stylize("bold red" if state.troubles(now) else "bold green")
    width, height = size
    queue = shown.of(state.seen[1]) if state.seen else []
    room = max(1, height - _AROUND)
    there = shown.screen(queue, room)
    parts: list[RenderableType] = [head, _queue(state, there, width)]
    if len(queue) > room:
        last = shown.first + len(there)
        parts.append(_line(f"{shown.first + 1} to {last} of {len(queue)} jobs"))
    left = height - _AROUND - len(queue) if keys else len(lines)
    parts += [_line(line) for line in lines[1 : max(1, left)]]
    return Group(*parts, *([_line(shown.footer(), "dim")] if keys else []))


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _queue(state: DaemonState, queue: Sequence[QueuePosition], width: int) -> RenderableType:
    if state.seen is None:
        return _line(f"queue: not known: {printable(state.unread) or 'no cycle is kept'}")
    return fitted(_COLUMNS, [_row(place, state.seen[0].taken_at) for place in queue], width)[0]


def _row(place: QueuePosition, at: float) -> tuple[str | Text, ...]:
    job, step = place.job, place.before - place.after
    moves = Text(f"up {step}", "green") if step > 0 else Text(f"down {-step}", "yellow")
    return (
        str(place.after),
        str(place.before),
        moves if step else "",
        job.address,
        ",".join(job.partitions),
        job.user,
        str(job.request.total.gpus),
        span(job.waited_s(at)),
        "" if place.delay_s is None else span(place.delay_s),
        str(place.priority),
        str(place.planned) if place.planned != place.priority else "",
    )


def _names(place: QueuePosition) -> tuple[str, ...]:
    return (place.job.address, str(place.job.job_id), *place.job.partitions, place.job.user)


def _keys(seconds: float) -> str | None:
    """What was typed; None = nothing in time; "" = the terminal is gone."""
    fd = sys.stdin.fileno()
    ready, _, _ = select.select([fd], [], [], max(0.0, seconds))
    return os.read(fd, 64).decode(errors="replace") if ready else None


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Keys come without Enter and are not shown; as it was before, afterwards."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
