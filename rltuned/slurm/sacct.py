"""Asking slurmdbd for a site's history: which columns, and in portions that stay small.

facts that shape it: a job is shown in every portion in which it was pending or running, so readers
take each record once; times are epochs (SLURM_TIME_FORMAT=%s), because a local time is ambiguous
for an hour a year; `-D` keeps the earlier runs of requeued jobs, which held GPUs too.
"""

import gzip
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rltuned.domain.kinds import KindName
from rltuned.durable import refuse_device
from rltuned.errors import TraceError
from rltuned.slurm.columns import FIELD
from rltuned.slurm.commands import Commands

ELAPSED: Final = "ElapsedRaw"
"""Without the time that a job was suspended."""
COLUMNS: Final = (
    "JobIDRaw", "JobID", "Submit", "Eligible", "Start", "End", ELAPSED, "State", "TimelimitRaw",
    "ReqTRES", "AllocTRES", "NodeList", "Partition", "User", "Account", "QOS", "Priority", "Flags",
    "Reservation", "Constraints",
)  # fmt: skip
"""The constraint is the one text of a user's, and the last."""
TEXT_COLUMNS: Final[Mapping[KindName, str]] = MappingProxyType(
    {"name": "JobName", "work_dir": "WorkDir", "submit_line": "SubmitLine"}
)
"""The columns that kinds are made of. sacct has none for the script or the command."""
REQUIRED: Final = tuple(name for name in COLUMNS[:14] if name != ELAPSED)
"""Without these a backtest cannot be played; the others are reported as missing."""
PORTION_S: Final = 86_400.0
Report = Callable[[float], None]
"""Called with how much of the time has been asked for, 0..1."""
FORMAT: Final = ",".join(COLUMNS)
SAVED: Final = f"sacct -a -X -D -P -o {FORMAT}"


def sacct_words(since: float, until: float, names: tuple[str, ...] = COLUMNS) -> tuple[str, ...]:
    """The words after `sacct` for all records that were pending or running between two moments."""
    return (
        "--allusers",
        "--allocations",
        "--duplicates",
        "--parsable2",
        "--noheader",
        f"--starttime={_utc(since)}",
        f"--endtime={_utc(until)}",
        f"--format={','.join(names)}",
    )


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def ask_history(
    commands: Commands, since: float, until: float, report: Report = lambda _part: None
) -> Iterator[str]:
    """Rows of COLUMNS, FIELD between their cells, a day at a time, some twice; Unix seconds.
    commands: with TZ=UTC, as sacct takes times for local ones. Raises BackendError: sacct failed,
    or too long an answer.
    """
    begin = since
    while begin < until:
        end = min(begin + PORTION_S, until)
        words = (*sacct_words(begin, end), f"--delimiter={FIELD}")
        yield from commands.stream("sacct", *words).lines()
        begin = end
        report((begin - since) / max(1.0, until - since))


def ask_rows(
    commands: Commands, since: float, until: float, names: tuple[str, ...]
) -> Iterator[list[str]]:
    """Rows of these columns, parted by a random mark. See ask_history. Raises BackendError."""
    mark = FIELD + secrets.token_hex(6)
    # the number once more closes a row, which no line end can do
    words = sacct_words(since, until, (*names, "JobIDRaw"))
    held, marks = list[str](), 0
    for line in commands.stream("sacct", *words, f"--delimiter={mark}").lines():
        held.append(line)
        marks += line.count(mark)
        if marks >= len(names):
            yield "\n".join(held).split(mark)[: len(names)]
            held, marks = [], 0


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a text file, plain or gzip, never all at once. Raises TraceError."""
    try:
        refuse_device(path)
        with path.open("rb") as probe:
            packed = probe.read(2) == b"\x1f\x8b"
        opened = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8-sig", errors="backslashreplace") as file:
            for line in file:
                yield line.rstrip("\n")
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {why}") from error
