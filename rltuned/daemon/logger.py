"""The logger: one line per event, as text for eyes or as JSON.

Where the stream is the journal of systemd every line begins with its priority, `<3>` to `<7>`
(sd-daemon(3)), which journald takes off and keeps: `journalctl -p warning` works.
"""

import json
import os
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from rltuned.daemon.clock import now
from rltuned.text import escaped

PRIORITIES: Final = {"error": 3, "warning": 4, "info": 6, "debug": 7}
"""Of syslog(3), by level, the most important first."""
_COLORS: Final = {"error": 31, "warning": 33, "info": 32, "debug": 34}
"""Of a terminal, by level."""
_QUOTED: Final = re.compile(r"[\s=\"']")
"""A value with one of these is quoted."""


class Log:
    """Writes events whose level is not below the least.

    Args:
        style: one JSON object per line, or text for eyes.
        level: debug, info, warning or error; lines below it are dropped.
        stream: where it writes.
        is_journal: lines begin with their priority.
    """

    def __init__(
        self, style: Literal["json", "console"], level: str, stream: TextIO, *, is_journal: bool
    ) -> None:
        self._render = _as_json if style == "json" else self._as_text
        self._least = PRIORITIES[level]
        self._stream = stream
        self._is_journal = is_journal

    def debug(self, event: str, **fields: Any) -> None:
        """What only a search for a fault needs."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """What happens when all is well."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What a person should look at."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """What a person has to look at; `exc_info` is an exception, shown with its traceback."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """A full disk or a dead reader ends no daemon: what the stream cannot take is dropped."""
        if PRIORITIES[level] > self._least:
            return
        error = fields.pop("exc_info", None)
        if error is not None:
            fields["exception"] = "".join(traceback.format_exception(error)).rstrip()
        text = self._render(level, event, datetime.fromtimestamp(now(), UTC), fields)
        if self._is_journal:
            text = "\n".join(f"<{PRIORITIES[level]}>{line}" for line in text.split("\n"))
        with suppress(OSError):
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _as_text(self, level: str, event: str, at: datetime, fields: dict[str, Any]) -> str:
        """Text of Slurm may hold anything: what would steer a terminal or forge a line is escaped,
        but for the line ends of a traceback.
        """
        trace = escaped(fields.pop("exception", ""), keep="\n")
        pairs = " ".join(f"{key}={_shown(fields[key])}" for key in sorted(fields))
        name = f"{level:<9}"
        if self._stream.isatty():
            name = f"\x1b[{_COLORS[level]}m{name}\x1b[0m"
        return f"{_stamp(at)} [{name}] {event:<12} {pairs}".rstrip() + (trace and f"\n{trace}")


def make_log(
    style: Literal["json", "console"],
    level: str,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Log:
    """A logger.

    Args:
        style: as of Log.
        level: as of Log.
        stream: where it writes; None = standard error.
        environ: where systemd says which stream is its journal.
    """
    out = stream or sys.stderr
    return Log(style, level, out, is_journal=_is_journal(out, environ.get("JOURNAL_STREAM", "")))


def _is_journal(stream: TextIO, named: str) -> bool:
    """Whether a stream is the one that systemd names by device and inode, as `8:1234`."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


def _as_json(level: str, event: str, at: datetime, fields: dict[str, Any]) -> str:
    line = {**fields, "event": event, "level": level, "timestamp": _stamp(at)}
    return json.dumps(line, default=repr)


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    value = escaped(value)
    return repr(value) if _QUOTED.search(value) else value
