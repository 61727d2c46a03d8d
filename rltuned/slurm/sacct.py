"""Asking slurmdbd for a site's history: which columns, and in portions that stay small.

facts that shape it: a job is shown in every portion in which it was pending or running, as it is
now, so readers take each record once; times are epochs (SLURM_TIME_FORMAT=%s), because a local time
is ambiguous for an hour a year; `-D` keeps the earlier runs of requeued jobs, which held GPUs too.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from sys import intern
from types import MappingProxyType
from typing import Final

from rltuned.domain.kinds import WIDTHS, KindName
from rltuned.errors import BackendError, TraceError
from rltuned.run import LINE_BYTES
from rltuned.slurm.columns import FIELD
from rltuned.slurm.run import Commands

ELAPSED: Final = "ElapsedRaw"
"""Without the time that a job was suspended."""
COLUMNS: Final = (
    "JobIDRaw", "JobID", "Submit", "Eligible", "Start", "End", ELAPSED, "State", "TimelimitRaw",
    "ReqTRES", "AllocTRES", "NodeList", "Partition", "User", "Account", "QOS", "Priority", "Flags",
    "Reservation", "Constraints",
)  # fmt: skip
TEXT_COLUMNS: Final[Mapping[KindName, str]] = MappingProxyType(
    {"name": "JobName", "work_dir": "WorkDir", "submit_line": "SubmitLine"}
)
"""The columns that kinds are made of. sacct has none for the script or the command."""


_OF_USERS: Final = frozenset({"Account", "Constraints", *TEXT_COLUMNS.values()})
"""Texts that users choose: accounts too, where associations are not enforced."""
_LONGEST: Final = max(WIDTHS.values())
"""More of a text makes no difference to its kind."""
_TOO_WIDE: Final = "date range"
SHORTEST_PORTION_S: Final = 60.0
MOST_RECORDS: Final = 400_000
"""About 800 bytes each, with what is remembered of the job. A longer history is refused, not cut:
--since chooses what counts."""


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


def ask_rows(
    commands: Commands, since: float, until: float, names: tuple[str, ...]
) -> Iterator[list[str]]:
    """Rows of these columns. What users choose is asked for in a call of its own, and matched by
    job id and submit time: sacct takes its delimiter as an argument, which every user can read. A
    row lacks it where it is not known, or in doubt. Where slurmdbd refuses so long a time
    (MaxQueryTimeRange), it is asked for in parts. Raises BackendError; TraceError: there are too
    many records.
    """
    try:
        texts = _texts(commands, since, until, tuple(n for n in names if n in _OF_USERS))
    except BackendError as error:
        if _TOO_WIDE not in str(error) or until - since <= SHORTEST_PORTION_S:
            raise
        middle = float(round((since + until) / 2))
        yield from ask_rows(commands, since, middle, names)
        yield from ask_rows(commands, middle, until, names)
        return
    own = tuple(name for name in names if name not in _OF_USERS)
    words = (*sacct_words(since, until, own), f"--delimiter={FIELD}")
    for line in commands.call("sacct", *words).lines():
        cells = dict(zip(own, line.split(FIELD), strict=False))
        known = texts.get((cells.get("JobIDRaw", ""), cells.get("Submit", "")))
        if len(cells) == len(own) and known is not None:
            told = iter(known)
            yield [cells[name] if name in cells else next(told) for name in names]
        else:
            yield [*cells.values()]


def _texts(
    commands: Commands, since: float, until: float, names: tuple[str, ...]
) -> dict[tuple[str, str], tuple[str, ...] | None]:
    """The texts of users by job id and submit time; None = in doubt. A text may hold line ends, and
    what looks like a row of another job: then that job has two rows, and neither is believed.
    """
    mark = FIELD + secrets.token_hex(6)
    # the number once more closes a row, which no line end can do
    words = sacct_words(since, until, ("JobIDRaw", "Submit", *names, "JobIDRaw"))
    found: dict[tuple[str, str], tuple[str, ...] | None] = {}
    for row in _rows_of(commands.call("sacct", *words, f"--delimiter={mark}").lines(), mark):
        cells = row.split(mark)
        key = cells[0], cells[1]
        if "." in key[0]:  # a step
            continue
        whole = len(cells) == len(names) + 3 and cells[0] == cells[-1] and key not in found
        found[key] = tuple(intern(cell[:_LONGEST]) for cell in cells[2:-1]) if whole else None
        if len(found) > MOST_RECORDS:
            raise TraceError(f"sacct: more than {MOST_RECORDS} records: choose a later --since")
    return found


def _rows_of(lines: Iterator[str], mark: str) -> Iterator[str]:
    """Each with the lines after it that begin none; of one that is too long the end is lacking."""
    begins = re.compile(f"[0-9][0-9A-Za-z.+]*{mark}[0-9A-Za-z]+{mark}")
    held, length = list[str](), 0
    for line in lines:
        if begins.match(line):
            if held:
                yield "\n".join(held)
            held, length = [line], len(line)
        elif held and length <= LINE_BYTES:
            held.append(line)
            length += len(line) + 1
    if held:
        yield "\n".join(held)
