"""Which jobs ended between two looks, and how long they ran, as far as looks can show it."""

from dataclasses import dataclass
from typing import Final

from rltuned.domain.jobs import OF_A_RUN, EndedJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime

APART_S: Final = 600.0
APART_SHARE: Final = 0.1
"""Looks further apart than both, the second of the time that the job ran, do not show its end."""
LIMBO_S: Final = 600.0
"""A job that is completing ends sooner; one that is suspended longer is not learned from."""
_UNKNOWN: Final = JobId(0)

RunKey = tuple[JobId, UnixTime]
"""A run: a job's number and its start, since a job that is requeued runs again."""


@dataclass(frozen=True, slots=True)
class _Gone:
    """A job that ran at one look and not at the next. Unix times of both looks."""

    job: RunningJob
    last: float
    missed: float


class SeenEnds:
    """Compares each poll with the one before.

    A job that is pending again was requeued, by a user, a preemption or the failure of a node: it
    is left out. So are one that was suspended meanwhile, and one of a cluster that was not polled
    for long. Polls cannot tell a job that failed with its node from one that ended.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._cluster = ""
        self._running: dict[RunKey, RunningJob] = {}
        self._gone: dict[RunKey, _Gone] = {}
        self._interrupted: set[RunKey] = set()

    @property
    def undecided(self) -> tuple[RunningJob, ...]:
        """Jobs that do not run, of which it is not known yet whether they ended."""
        return tuple(gone.job for gone in self._gone.values())

    def look(self, seen: Snapshot) -> tuple[EndedJob, ...]:
        """What has ended since the last look, the first end first; nothing at the first one."""
        last, now = self._at, float(seen.taken_at)
        if last is None or seen.cluster != self._cluster or now <= last:
            self._running, self._gone, self._interrupted = {}, {}, set()
        running = {(job.job_id, job.started_at): job for job in seen.running}
        if last is not None:
            missing = self._running.keys() - running.keys()
            self._gone |= {key: _Gone(self._running[key], last, now) for key in missing}
        self._interrupted |= self._gone.keys() & running.keys()
        found = self._settle(seen, running, now)
        self._interrupted &= running.keys() | self._gone.keys()
        self._at, self._cluster, self._running = now, seen.cluster, running
        return tuple(sorted(found, key=lambda job: (job.ended_at, job.job_id)))

    def _settle(
        self, seen: Snapshot, running: dict[RunKey, RunningJob], now: float
    ) -> list[EndedJob]:
        """Decide what became of those that are gone, where it shows by now."""
        hidden = seen.hidden_ids()
        elsewhere = hidden | set(seen.lingering)
        again = {job.job_id for job in seen.pending} | {job.job_id for job in seen.running}
        found: list[EndedJob] = []
        for key, gone in list(self._gone.items()):
            number = gone.job.job_id
            waits = number in elsewhere or _UNKNOWN in hidden
            if key in running or number in again:
                del self._gone[key]
            elif not waits or now - gone.missed > LIMBO_S:
                del self._gone[key]
                ended = None if waits or key in self._interrupted else _ended(gone)
                found += [] if ended is None else [ended]
        return found


def _ended(gone: _Gone) -> EndedJob | None:
    """None = the looks lie too far apart."""
    job = gone.job
    ran_s = gone.last - job.started_at
    if gone.missed - gone.last > max(APART_S, APART_SHARE * ran_s):
        return None
    at = min((gone.last + gone.missed) / 2, job.latest_end())
    known = job.submitted_at
    return EndedJob(
        **{name: getattr(job, name) for name in OF_A_RUN},
        submitted_at=job.started_at if known is None else min(known, job.started_at),
        ended_at=UnixTime(max(float(job.started_at), at)),
    )
