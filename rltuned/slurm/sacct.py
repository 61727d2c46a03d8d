"""Asking slurmdbd for a site's history: which columns, and in portions that stay small.

facts that shape it: a job is shown in every portion in which it was pending or running, so readers
take each record once; times are epochs (SLURM_TIME_FORMAT=%s), because a local time is ambiguous
for an hour a year; `-D` keeps the earlier runs of requeued jobs, which held GPUs too.
"""

import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from rltuned.domain.kinds import KindName
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
