"""Which waiting jobs anybody but us has changed or held: they are no evidence of what we do.

A user may change, hold and free their own jobs, and sees whether delays are on. If such jobs
counted, one user could make on blocks look worse than off blocks, or better.
"""

from collections.abc import Iterable
from dataclasses import replace

from rltuned.daemon.canary.outcomes import unit_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from rltuned.journal.ownership import JobKey


class Touched:
    """Follows the waiting jobs from look to look. `units`: those that were touched."""

    def __init__(self) -> None:
        self.units: set[JobKey] = set()
        self._asked: dict[JobKey, tuple[object, ...]] = {}
        self._eligible: dict[JobKey, UnixTime] = {}
        self._left: set[JobKey] = set()

    def look(self, seen: Snapshot) -> None:
        """Take in one look. A job stays touched until it has left the queue, and one look more."""
        gone = self._asked.keys() - {_key(job) for job in seen.pending}
        here = {unit_of(job) for job in seen.pending}
        self.units -= self._left - here
        self._left = self.units - here
        for key in gone:
            self._asked.pop(key)
            self._eligible.pop(key, None)
        self.units.update(unit_of(job) for job in self._changed(seen.pending, seen.taken_at))

    def _changed(self, pending: Iterable[PendingJob], now: float) -> Iterable[PendingJob]:
        for job in pending:
            key, asked = _key(job), _asked(job)
            moved = job.eligible_at is None or job.eligible_at > now
            was = self._eligible.get(key)
            # a hold and its release between two looks leave nothing but a new eligible time
            postponed = was is not None and (moved or job.eligible_at != was)
            if not moved and job.eligible_at is not None:
                self._eligible[key] = job.eligible_at
            set_by_others = job.taken_over or (job.fixed and job.owned is None)
            is_held = bool(job.held_by) or job.priority == 0
            if is_held or set_by_others or postponed or self._asked.setdefault(key, asked) != asked:
                yield job


def _key(job: PendingJob) -> JobKey:
    return job.job_id, job.submitted_at


def _asked(job: PendingJob) -> tuple[object, ...]:
    """What its user asked for, without what we change of it."""
    ours = job.owned is not None and job.owned.field == "priority" and job.nice == 0
    nice = (job.owned.nice or 0) if ours and job.owned is not None else job.nice
    request = replace(job.request, exclusive=False)
    return (
        request, job.partitions, job.user, job.account, job.qos, nice, job.reservation,
        job.required_nodes, job.excluded_nodes,
    )  # fmt: skip
