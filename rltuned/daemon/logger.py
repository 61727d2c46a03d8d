"""Log lines on standard error, by structlog. docs/interfaces.md lists every event.

Where standard error is the journal of systemd every line begins with its priority, `<3>` to `<7>`
(sd-daemon(3)), which journald takes off and keeps: `journalctl -p warning` works.
"""

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, Literal, TextIO, cast

import structlog

from rltuned.text import escaped

Log = structlog.typing.FilteringBoundLogger

PRIORITIES: Final = {"error": 3, "warning": 4, "info": 6, "debug": 7}
"""Of syslog(3), by level."""


def make_log(
    style: Literal["json", "console"],
    level: str,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Log:
    """A logger: JSON lines or text, from this level up. stream: None = standard error."""
    out = stream or sys.stderr
    render: Any = structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=12)
    before: Any = _printable
    if style == "json":
        before = structlog.processors.format_exc_info
        render = structlog.processors.JSONRenderer()
    if is_journal(out, environ.get("JOURNAL_STREAM", "")):
        render = _Prioritized(render)
    last: list[Any] = [before, render]
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *last,
    ]
    log: Log = structlog.wrap_logger(
        structlog.PrintLogger(cast("TextIO", _Dropping(out))),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
    )
    return log


class _Dropping:
    """A stream that drops what it cannot take: a full disk or a dead reader ends no daemon."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._out.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._out.flush()


def is_journal(stream: TextIO, named: str) -> bool:
    """Whether a stream is the one that systemd names by device and inode, as `8:1234`."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


class _Prioritized:
    """Puts the priority before every line of what a renderer makes of an event."""

    def __init__(self, render: Any) -> None:
        self._render = render

    def __call__(self, log: Any, method: str, event: MutableMapping[str, Any]) -> str:
        prefix = f"<{PRIORITIES[event['level']]}>"  # before the renderer takes it out
        return "\n".join(prefix + s for s in str(self._render(log, method, event)).split("\n"))


def _printable(_log: Any, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Escape what would steer a terminal or forge a line: text of Slurm may hold anything."""
    return {
        key: value if not isinstance(value, str) else escaped(value) for key, value in event.items()
    }
