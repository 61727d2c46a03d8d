"""What became of the jobs between two looks: starts, ends, waits, and changes by others.

A job that runs now and did not before has started, at the time that Slurm shows; one that ran and
is gone has ended, somewhere between the two looks. A job that starts and ends between two looks is
never seen.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from rltuned.core.decide import Decision
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime

SHORTEST_S: Final = 10.0
"""Of bounded slowdown: shorter jobs count as this long (docs/interfaces.md)."""
_CLOCK_S: Final = 1.0
"""Slurm's times are whole seconds."""


class Side(StrEnum):
    """Whether a job became eligible while its delay was on. The value is the metric label."""

    ON = "on"
    OFF = "off"
    """rltuned may order it, but did not: in an off block, or at a stage that writes nothing."""
    OTHER = "other"
    """Not for rltuned to order, or not known."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job that began to run. unit: its array with its submit time, or the job itself. wait_s:
    from when it was eligible; None = Slurm does not say.
    """

    job_id: JobId
    unit: JobKey
    partition: str
    side: Side
    started_at: float
    wait_s: float | None
    user: str = ""
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """A job that was seen to start and runs no more. duration_s: to half the time between looks."""

    job: JobStart
    duration_s: float

    @property
    def slowdown(self) -> float | None:
        """Bounded slowdown; None = its wait is not known."""
        if self.job.wait_s is None:
            return None
        return bounded_slowdown(self.job.wait_s, self.duration_s)


def bounded_slowdown(wait_s: float, length_s: float) -> float:
    """Of a job that waited and ran for so many seconds."""
    return max(1.0, (wait_s + length_s) / max(length_s, SHORTEST_S))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What happened between two looks."""

    started: tuple[JobStart, ...] = ()
    ended: tuple[JobOutcome, ...] = ()


class Watcher:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._sides: Mapping[JobKey, Side] = {}
        self._running: dict[tuple[JobId, float], JobStart | None] = {}

    def look(self, seen: Snapshot, sides: Mapping[JobId, Side]) -> Outcomes:
        """What has happened since the last look; nothing at the first one. sides: of every pending
        job, and of running ones that were never seen waiting; others are on no side.
        """
        last, self._looked_at = self._looked_at, seen.taken_at
        running = {(job.job_id, float(job.started_at)): job for job in seen.running}
        started = [] if last is None else self._started(running, last, sides)
        ended = [] if last is None else self._ended(running, (last + seen.taken_at) / 2)
        fresh = {(s.job_id, s.started_at): s for s in started}
        self._running = {key: fresh.get(key) or self._running.get(key) for key in running}
        self._sides = _sides_of_units(seen.pending, sides)
        return Outcomes(tuple(started), tuple(ended))

    def _started(
        self,
        running: Mapping[tuple[JobId, float], RunningJob],
        last: float,
        sides: Mapping[JobId, Side],
    ) -> list[JobStart]:
        return [
            self._start_of(job, sides)
            for key, job in running.items()
            # one that was suspended and runs on has started long ago
            if key not in self._running and job.started_at >= last - _CLOCK_S
        ]

    def _start_of(self, job: RunningJob, sides: Mapping[JobId, Side]) -> JobStart:
        unit = _unit(job)
        since = job.waits_since
        wait_s = None if since is None else max(0.0, job.started_at - since)
        side = self._sides.get(unit) or sides.get(job.job_id, Side.OTHER)
        return JobStart(
            job.job_id, unit, job.partition, side, job.started_at, wait_s, job.user,
            job.request.time_limit_s,
        )  # fmt: skip

    def _ended(self, running: Iterable[tuple[JobId, float]], at: float) -> list[JobOutcome]:
        gone = self._running.keys() - set(running)
        jobs = sorted((job for key in gone if (job := self._running[key])), key=lambda j: j.job_id)
        return [JobOutcome(job, max(1.0, at - job.started_at)) for job in jobs]


def unit_of(job: PendingJob) -> JobKey:
    """What counts once: the array with its submit time, or the job itself."""
    return job.job_id if job.array is None else job.array.array_job_id, job.submitted_at


def _unit(job: RunningJob) -> JobKey:
    number = job.job_id if job.array_job_id is None else job.array_job_id
    return number, UnixTime(job.started_at if job.submitted_at is None else job.submitted_at)


def _sides_of_units(
    pending: Iterable[PendingJob], sides: Mapping[JobId, Side]
) -> Mapping[JobKey, Side]:
    found: dict[JobKey, Side] = {}
    for job in pending:
        key = unit_of(job)
        # of an array one record may be held and the others not
        if found.get(key, Side.OTHER) is Side.OTHER:
            found[key] = sides.get(job.job_id, Side.OTHER)
    return found


@dataclass(frozen=True, slots=True)
class Agreement:
    """rltuned's order beside what Slurm did: of the ranked jobs, n started and the others wait.
    agreed: of these n, those in rltuned's top n. own, slurms: fraction of (started, waiting) pairs
    that rltuned's and Slurm's order rank the same way; None = no pairs.
    """

    started: int
    agreed: int
    own: float | None
    slurms: float | None


def look_back(last: Decision, started: Collection[JobStart]) -> Agreement | None:
    """Compare the last decision with what has started since; None = nothing that was ranked has."""
    units = {s.unit for s in started}
    waiting: list[tuple[int, int]] = []
    begun: list[tuple[int, int]] = []
    for entry in last.entries:
        ranks = (entry.rank_after, entry.rank_before)
        (begun if unit_of(entry.job) in units else waiting).append(ranks)
    if not begun:
        return None
    return Agreement(
        started=len(begun),
        agreed=sum(ours <= len(begun) for ours, _ in begun),
        own=_earlier([r[0] for r in begun], [r[0] for r in waiting]),
        slurms=_earlier([r[1] for r in begun], [r[1] for r in waiting]),
    )


def _earlier(begun: list[int], waiting: list[int]) -> float | None:
    if not waiting:
        return None
    behind = np.searchsorted(np.sort(begun), np.asarray(waiting))
    return float(behind.sum()) / (len(begun) * len(waiting))


class Touched:
    """Waiting jobs that others have changed or held, from look to look. `units`: those.

    They are no evidence: a user may change, hold and free their own jobs, and sees whether delays
    are on, so that one user could make on blocks look worse than off blocks, or better.
    """

    def __init__(self) -> None:
        self.units: set[JobKey] = set()
        self._asked: dict[JobKey, tuple[object, ...]] = {}
        self._eligible: dict[JobKey, UnixTime] = {}
        self._left: set[JobKey] = set()

    def look(self, seen: Snapshot) -> None:
        """Take in one look. A job stays touched until it has left the queue, and one look more."""
        gone = self._asked.keys() - {job.key for job in seen.pending}
        here = {unit_of(job) for job in seen.pending}
        self.units -= self._left - here
        self._left = self.units - here
        for key in gone:
            self._asked.pop(key)
            self._eligible.pop(key, None)
        self.units.update(unit_of(job) for job in self._changed(seen.pending, seen.taken_at))

    def _changed(self, pending: Iterable[PendingJob], now: float) -> Iterable[PendingJob]:
        for job in pending:
            key, asked = job.key, _asked(job)
            moved = job.eligible_at is None or job.eligible_at > now
            was = self._eligible.get(key)
            # a hold and its release between two looks leave nothing but a new eligible time
            postponed = was is not None and (moved or job.eligible_at != was)
            if not moved and job.eligible_at is not None:
                self._eligible[key] = job.eligible_at
            set_by_others = job.taken_over or (job.fixed and job.owned is None)
            is_held = job.is_held
            if is_held or set_by_others or postponed or self._asked.setdefault(key, asked) != asked:
                yield job


def _asked(job: PendingJob) -> tuple[object, ...]:
    """What its user asked for, without what rltuned changes of it."""
    ours = job.owned is not None and job.owned.field == "priority" and job.nice == 0
    nice = (job.owned.nice or 0) if ours and job.owned is not None else job.nice
    request = replace(job.request, exclusive=False) if job.request.exclusive else job.request
    return (
        request, job.partitions, job.user, job.account, job.qos, nice, job.reservation,
        job.required_nodes, job.excluded_nodes,
    )  # fmt: skip
