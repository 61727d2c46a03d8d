"""Numbers on pending jobs that the journal does not explain: whose are they?

A journal that was lost, or an older copy in its place, knows nothing of what was written since. To
take such a number for the site's own would add to it, cycle after cycle, and never give it back. So
where this process first sees the number of a job that was there before it, that must be in the
journal, or have been on the job when a daemon looked that knew what it owned. Else that job is left
alone; many such jobs keep everything from being written. Numbers that come later are not rltuned's,
since this process would know.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from rltuned.domain.fields import PRIORITY, SITE_FACTOR, Field
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import HIGHEST_BASIC, PriorityKind
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.errors import SnapshotError
from rltuned.journal.journal import Journal
from rltuned.journal.named_values import Kept
from rltuned.journal.ownership import Fate, Restored

NAMED: Final = 20
"""So many jobs are named in a line."""
KNOWING: Final = ("live", "observe", "shadow")
"""Modes of cycles whose look counts: those of a daemon that had no doubt."""
MANY: Final = 2
"""So many jobs at least are many,"""
SHARE: Final = 0.1
"""and this share of the pending jobs of the partitions,"""
USERS: Final = 2
"""of so many users, where so many have jobs: no user stops the writing for others."""
LEFT_ALONE: Final[Kept[list[JobKey]]] = Kept(
    "unexplained", list[tuple[JobId, UnixTime]], "jobs with unexplained numbers"
)
"""By cluster id and submit time of the jobs that are left alone: looks of a daemon that wrote to
others do not explain their numbers.
"""
_Number = tuple[Field, int]


def number_of(job: PendingJob, kind: PriorityKind) -> _Number | None:
    """The number of a job that Slurm has not given it, as far as that shows; None = there is none.
    Of a job that the journal owns too.
    """
    if kind == "basic":
        number = job.priority + job.nice  # Slurm takes the nice off
        return (PRIORITY, job.priority) if number > HIGHEST_BASIC else None
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
) -> dict[JobKey, tuple[str, _Number]]:
    """By job its address and number. jobs: as the journal marks them. before: looks of cycles from
    this one on do not count. Raises JournalError.
    """
    found = {
        job.key: (job.address, number)
        for job in jobs
        if job.owned is None and (number := number_of(job, kind)) is not None
    }
    if not found:
        return {}
    known = _seen_before(journal, cluster, kind, before)
    return {key: what for key, what in found.items() if known.get(key) != what[1]}


def unknown_numbers(
    journal: Journal,
    seen: Snapshot,
    items: Iterable[Restored],
    partitions: Collection[str] = (),
) -> dict[JobKey, tuple[str, _Number]]:
    """The same after a restore: numbers on jobs that it knew nothing of, and those on jobs that it
    left as another user's, where no daemon has seen that. Raises JournalError.
    """
    changed = {r.claim.key for r in items if r.fate is Fate.CHANGED and r.claim.field.orders}
    done = {r.claim.key for r in items} - changed
    owned = journal.owned(seen.cluster)
    jobs = [
        replace(job, owned=None if job.key in changed else owned.get(job.key))
        for job in within(seen.pending, partitions)
        if job.key not in done
    ]
    return unexplained(journal, seen.cluster, jobs, seen.priorities.kind)


def _seen_before(
    journal: Journal, cluster: str, kind: PriorityKind, before: int | None
) -> Mapping[JobKey, _Number]:
    """Numbers that were not rltuned's when a daemon looked last."""
    try:
        seen = journal.last_look(cluster, KNOWING, before)
    except SnapshotError:
        return {}  # what cannot be read explains nothing
    jobs = () if seen is None else seen.pending
    alone = set(LEFT_ALONE.read(journal).get(cluster, ()))
    return {
        job.key: number
        for job in jobs
        if (job.owned is None or job.taken_over)
        and (number := number_of(job, kind)) is not None
        and job.key not in alone
    }


def in_words(found: Mapping[JobKey, tuple[str, _Number]]) -> str:
    """Which jobs, and their numbers."""
    shown = sorted(found.items())[:NAMED]
    words = [f"{address} ({field.says(value)})" for _, (address, (field, value)) in shown]
    more = len(found) - len(shown)
    return ", ".join(words) + (f" and {more} more" if more else "")


class FirstLooks:
    """Which jobs this process leaves alone, since their numbers are unexplained."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None  # moment and highest id of the first look
        self._sure: set[JobKey] = set()
        self._doubted: dict[JobKey, _Number] = {}

    @property
    def alone(self) -> Collection[JobKey]:
        """The jobs to leave alone."""
        return self._doubted.keys()

    def judge(
        self, journal: Journal, seen: Snapshot, jobs: Collection[PendingJob], cycle: int, at: float
    ) -> str:
        """Why nothing may be written at all; empty = it may, but to jobs that are left alone. jobs:
        of `seen`, with what was just taken up again left out. Raises JournalError.
        """
        kind = seen.priorities.kind
        if self._began is None:
            self._began = seen.taken_at, max(seen.known_ids(), default=0)
        fresh = [job for job in jobs if job.owned is None and self._is_fresh(job, kind)]
        # a fixed priority is left alone whoever has set it
        able = [job for job in fresh if kind == "basic" or job.site_factor]
        found = unexplained(journal, seen.cluster, able, kind, before=cycle)
        explained = {job.key for job in fresh} - found.keys()
        self._sure |= explained
        self._doubted = {k: n for k, n in self._doubted.items() if k not in explained}
        self._doubted |= {key: number for key, (_, number) in found.items()}
        if fresh:
            _keep_alone(journal, seen.cluster, explained, found.keys(), at)
        return self._many(jobs)

    def forget(self, journal: Journal, cluster: str, at: float) -> None:
        """A look takes every number for the site's own, as in stage observe."""
        self._began, self._sure, self._doubted = None, set(), {}
        if LEFT_ALONE.read(journal).get(cluster):
            LEFT_ALONE.change(journal, cluster, lambda _: [], at)

    def _is_fresh(self, job: PendingJob, kind: PriorityKind) -> bool:
        """Whether its number shows and was not judged yet; it is that of a job that may have been
        there before this process.
        """
        since, newest = self._began or (math.inf, 0)
        if job.key in self._sure or (kind != "basic" and job.site_factor is None):
            return False
        if job.key in self._doubted:
            return self._doubted[job.key] != number_of(job, kind)
        first_id = min(job.job_id, job.array.array_job_id if job.array else job.job_id)
        return job.submitted_at <= since or first_id <= newest

    def _many(self, jobs: Collection[PendingJob]) -> str:
        doubted = [job for job in jobs if job.key in self._doubted]
        users = min(USERS, len({job.user for job in jobs}))
        few = len(doubted) < max(MANY, SHARE * len(jobs))
        if few or len({job.user for job in doubted}) < users:
            return ""
        return (
            f"{len(doubted)} pending jobs have numbers that the journal does not explain: it is an "
            "older one or a new one, or others have set them while no rltuned looked; "
            "`rltuned restore --all` names them, with --as-shown it zeroes them; a cycle in stage "
            "observe takes them for the site's own"
        )


def _keep_alone(
    journal: Journal, cluster: str, known: Collection[JobKey], new: Collection[JobKey], at: float
) -> None:
    """Bring LEFT_ALONE up to date, where that changes it."""
    before = LEFT_ALONE.read(journal).get(cluster, [])
    after = sorted({*before} - {*known} | {*new})
    if after != before:
        LEFT_ALONE.change(journal, cluster, lambda _: after, at)
