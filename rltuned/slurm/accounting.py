"""Asking slurmdbd for a site's history: which columns, and in portions that stay small.

facts that shape it: a job is shown in every portion in which it was pending or running, so readers
take each record once; times are epochs (SLURM_TIME_FORMAT=%s), because a local time is ambiguous
for an hour a year; `-D` keeps the earlier runs of requeued jobs, which held GPUs too.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rltuned.slurm.commands import Commands

COLUMNS: Final = (
    "JobIDRaw",
    "JobID",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "State",
    "TimelimitRaw",
    "ReqTRES",
    "AllocTRES",
    "NodeList",
    "Partition",
    "User",
    "Account",
    "QOS",
    "Priority",
    "Flags",
    "Reservation",
    "Constraints",
)
"""No column that a user writes free text into: such a text could break the rows."""
REQUIRED: Final = COLUMNS[:13]
"""Without these nothing can be played; the others are told as missing."""
PORTION_S: Final = 86_400.0
FORMAT: Final = ",".join(COLUMNS)


def sacct_words(since: float, until: float) -> tuple[str, ...]:
    """The words after `sacct` for all records that were pending or running between two moments."""
    return (
        "--allusers",
        "--allocations",
        "--duplicates",
        "--parsable2",
        "--noheader",
        f"--starttime={_utc(since)}",
        f"--endtime={_utc(until)}",
        f"--format={FORMAT}",
    )


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def ask_history(commands: Commands, since: float, until: float) -> Iterator[str]:
    """Rows of COLUMNS, a day at a time; a record may come again in the next portion.

    Args:
        commands: with TZ=UTC in their environment: sacct takes the times we give as local ones.
        since: Unix seconds.
        until: Unix seconds.

    Raises:
        BackendError: sacct failed, there is no slurmdbd, or a day is too long an answer.
    """
    begin = since
    while begin < until:
        end = min(begin + PORTION_S, until)
        yield from commands.ask("sacct", *sacct_words(begin, end)).stdout.splitlines()
        begin = end
