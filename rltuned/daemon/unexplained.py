"""Numbers on pending jobs that the journal does not explain: whose are they?

A journal that was lost, or an older copy in its place, knows nothing of what was written since. To
take such a number for the site's own would add to it, cycle after cycle, and never give it back. So
the first look of a process before it writes compares: what it shows must be in the journal, or have
been on the job when a daemon looked that knew what it owned. Numbers that come later are not
rltuned's, since this process would know.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rltuned.domain.fields import PRIORITY, SITE_FACTOR, Field
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import HIGHEST_BASIC, PriorityKind
from rltuned.domain.units import JobKey
from rltuned.errors import SnapshotError
from rltuned.journal.journal import Journal

NAMED: Final = 20
"""So many jobs are named in a line."""
KNOWING: Final = ("live", "observe", "shadow")
"""Modes of cycles whose look counts: those of a daemon that had no doubt."""
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


def _seen_before(
    journal: Journal, cluster: str, kind: PriorityKind, before: int | None
) -> Mapping[JobKey, _Number]:
    """Numbers that were not rltuned's when a daemon looked last."""
    try:
        seen = journal.last_look(cluster, KNOWING, before)
    except SnapshotError:
        return {}  # what cannot be read explains nothing
    jobs = () if seen is None else seen.pending
    return {
        job.key: number
        for job in jobs
        if job.owned is None and (number := number_of(job, kind)) is not None
    }


def in_words(found: Mapping[JobKey, tuple[str, _Number]]) -> str:
    """Which jobs, and their numbers."""
    shown = sorted(found.items())[:NAMED]
    words = [f"{address} ({field.says(value)})" for _, (address, (field, value)) in shown]
    more = len(found) - len(shown)
    return ", ".join(words) + (f" and {more} more" if more else "")


class FirstLook:
    """Whether this process may write: nothing that it found is unexplained any more."""

    def __init__(self) -> None:
        self._open: set[tuple[JobKey, _Number]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is unexplained, for good."""
        return self._open is not None and not self._open

    def judge(
        self, journal: Journal, cluster: str, jobs: Collection[PendingJob], kind: PriorityKind,
        cycle: int,
    ) -> str:  # fmt: skip
        """Why nothing may be written; empty = it may. jobs: with what is theirs again after a
        requeue left out. Raises JournalError.
        """
        if self.is_over:
            return ""
        # a fixed priority is left alone whoever has set it
        able = [job for job in jobs if kind == "basic" or job.site_factor]
        found = unexplained(journal, cluster, able, kind, before=cycle)
        now = {(key, number) for key, (_, number) in found.items()}
        self._open = now if self._open is None else self._open & now
        if not self._open:
            return ""
        return (
            f"{len(self._open)} pending jobs have numbers that the journal does not explain: it is "
            "an older one or a new one, or others have set them while no rltuned looked; "
            "`rltuned restore --all` names them, with --as-shown it zeroes them; a cycle in stage "
            "observe takes them for the site's own"
        )
