"""Numbers on pending jobs that no row of the journal explains: whose are they?

A journal that was lost, or an older copy in its place, knows nothing of what was written since. To
take such a number for the site's own would add to it, cycle after cycle, and never restore it. So
where this process first sees the number of a job that was there before it, that must be in the
journal, or have been on the job when a daemon looked that knew what it owned. Else that job is left
alone, and many such jobs keep everything from being written. A number that comes later is not
rltuned's, since this process would know; its job is left alone by core/select.

rltuned puts another number on every job that it orders, so another rltuned without a lease shows as
many different foreign numbers of several users, whenever they come. An administrator changes a few
jobs by hand, and a submit plugin gives a few levels to many.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import PRIORITY, SITE_FACTOR, Field
from rltuned.domain.priority import HIGHEST_BASIC, PriorityKind
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.errors import SnapshotError
from rltuned.journal.journal import Journal
from rltuned.journal.store import Kept

NAMED: Final = 20
"""So many jobs are named in a line."""
KNOWING: Final = ("live", "observe", "shadow")
"""Modes of cycles whose look counts: those of a daemon that had no doubt."""
MANY: Final = 2
"""So many jobs with numbers at the start are many,"""
DIFFERENT: Final = 10
"""and so many different numbers another daemon's;"""
SHARE: Final = 0.1
"""both this share of the pending jobs at least,"""
USERS: Final = 2
"""of so many users, where so many have jobs: no user stops the writing for others."""
LEFT_ALONE: Final[Kept[list[JobKey]]] = Kept(
    "unexplained", list[tuple[JobId, UnixTime]], "jobs with unexplained numbers"
)
"""By cluster id and submit time of the jobs that are left alone: looks of a daemon that wrote to
others do not explain their numbers.
"""
Number = tuple[Field, int]


def foreign(job: PendingJob, kind: PriorityKind) -> Number | None:
    """A number that neither Slurm nor this journal has given to a job, as far as that shows; None =
    there is none.
    """
    owned = job.owned
    if kind == "basic":
        number = job.priority + job.nice  # Slurm takes the nice off
        ours = () if owned is None else (owned.value, owned.original, *owned.earlier)
        known = number <= HIGHEST_BASIC or not {number, job.priority}.isdisjoint(ours)
        return None if known else (PRIORITY, job.priority)
    if owned is not None and not job.taken_over:
        return None
    if job.fixed and job.priority > 0 and not job.held_by:
        return PRIORITY, job.priority
    return (SITE_FACTOR, job.site_factor) if job.site_factor else None


def within(jobs: Iterable[PendingJob], partitions: Collection[str]) -> list[PendingJob]:
    """Those to which this daemon may write; another one may order the others. partitions: those
    that it manages; empty = all.
    """
    return [j for j in jobs if not partitions or not set(partitions).isdisjoint(j.partitions)]


def unexplained(
    journal: Journal,
    cluster: str,
    jobs: Iterable[PendingJob],
    kind: PriorityKind,
    *,
    before: int | None = None,
) -> dict[JobKey, tuple[str, Number]]:
    """By job its address and number, but for those that were not rltuned's when a daemon looked
    last. jobs: as the journal marks them. before: looks of cycles from this one on do not count.
    Raises JournalError.
    """
    found = {
        job.key: (job.address, number)
        for job in jobs
        if job.owned is None and (number := foreign(job, kind)) is not None
    }
    if not found:
        return {}
    try:
        seen = journal.last_look(cluster, KNOWING, before)
    except SnapshotError:
        return found  # what cannot be read explains nothing
    alone = set(LEFT_ALONE.read(journal).get(cluster, ()))
    looked = () if seen is None else seen.pending
    known = {job.key: foreign(job, kind) for job in looked if job.key not in alone}
    return {key: what for key, what in found.items() if known.get(key) != what[1]}


def in_words(found: Mapping[JobKey, tuple[str, Number]]) -> str:
    """Which jobs, and their numbers."""
    shown = sorted(found.items())[:NAMED]
    words = [f"{address} ({field.says(value)})" for _, (address, (field, value)) in shown]
    more = len(found) - len(shown)
    return ", ".join(words) + (f" and {more} more" if more else "")


def rival(seen: Snapshot, partitions: Collection[str]) -> str:
    """Why nothing may be written; empty = no other daemon seems to write."""
    kind = seen.priorities.kind
    free = [job for job in within(seen.pending, partitions) if job.priority > 0]
    found = [(number[1], job) for job in free if (number := foreign(job, kind)) is not None]
    numbers = {number for number, _ in found}
    # under priority/basic jobs of the same minute may share one
    least = found if kind == "basic" else numbers
    if len(numbers) < DIFFERENT or are_few([job for _, job in found], free, len(least)):
        return ""
    return (
        f"another rltuned writes to this cluster, or a journal was lost: {len(numbers)} different "
        "numbers on pending jobs are not of this one; stop the other, or `rltuned restore --all`"
    )


def are_few(those: list[PendingJob], every: Collection[PendingJob], count: int) -> bool:
    """Whether a person may have set so many of all these jobs' numbers, on those."""
    users = min(USERS, len({job.user for job in every}))
    return count < math.ceil(SHARE * len(every)) or len({job.user for job in those}) < users
