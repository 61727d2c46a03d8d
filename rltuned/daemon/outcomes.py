"""What became of the jobs: who started and who ended between two looks, and how long they waited.

Slurm is asked nothing for it: a job that runs now and did not before has started, at the time that
Slurm says; one that ran and is gone has ended, somewhere between the two looks. A job that starts
and ends between two looks is never seen.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.daemon.claims import JobKey
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime

SHORTEST_S: Final = 10.0
"""Of bounded slowdown: shorter jobs count as this long (docs/contract.md)."""
_CLOCK_S: Final = 1.0
"""Slurm's times are whole seconds."""


class Arm(StrEnum):
    """On which side of a trial a job is."""

    TREATED = "treated"
    CONTROL = "control"
    """We may order it, but do not: the control of a canary, or everybody while we only watch."""
    OTHER = "other"
    """Not ours to order, or it started before it was seen waiting."""


@dataclass(frozen=True, slots=True)
class Started:
    """A job that began to run.

    Attributes:
        unit: what the lot was drawn for: the array with its submit time, or the job itself.
        wait_s: from submission to start; None = Slurm does not say when it was submitted.
        first: of its unit; the other tasks of an array follow it and tell nothing new.
        limit_s: its time limit; None = it has none, or it is not known.
    """

    job_id: JobId
    unit: JobKey
    partition: str
    arm: Arm
    started_at: float
    wait_s: float | None
    first: bool
    user: str = ""
    limit_s: float | None = None

    @property
    def planned_slowdown(self) -> float | None:
        """Bounded slowdown if it ran to its time limit; None = its wait or limit is not known.

        How long it really ran is for its user to choose: scancel ends it at any time.
        """
        if self.wait_s is None or self.limit_s is None:
            return None
        return max(1.0, (self.wait_s + self.limit_s) / max(self.limit_s, SHORTEST_S))


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that we saw start and that runs no more. duration_s: to half the time between looks."""

    job: Started
    duration_s: float

    @property
    def slowdown(self) -> float | None:
        """Bounded slowdown; None = its wait is not known."""
        if self.job.wait_s is None:
            return None
        return max(1.0, (self.job.wait_s + self.duration_s) / max(self.duration_s, SHORTEST_S))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What happened between two looks."""

    started: tuple[Started, ...] = ()
    ended: tuple[Ended, ...] = ()


class Watcher:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._arms: Mapping[JobKey, Arm] = {}
        self._running: dict[tuple[JobId, float], Started | None] = {}
        self._units: set[JobKey] = set()

    def look(self, seen: Snapshot, arms: Mapping[JobId, Arm]) -> Outcomes:
        """What has happened since the last look; nothing at the first one.

        Args:
            seen: the cluster now.
            arms: the side of every pending job, from now on.
        """
        last, self._looked_at = self._looked_at, seen.taken_at
        running = {(job.job_id, float(job.started_at)): job for job in seen.running}
        started = [] if last is None else self._started(running, last)
        ended = [] if last is None else self._ended(running, (last + seen.taken_at) / 2)
        fresh = {(s.job_id, s.started_at): s for s in started}
        self._running = {key: fresh.get(key) or self._running.get(key) for key in running}
        self._arms = _arms_of_units(seen.pending, arms)
        self._units &= {*self._arms, *(_unit(job) for job in seen.running)}
        return Outcomes(tuple(started), tuple(ended))

    def _started(
        self, running: Mapping[tuple[JobId, float], RunningJob], last: float
    ) -> list[Started]:
        return [
            self._start_of(job)
            for key, job in running.items()
            # one that was suspended and runs on has started long ago
            if key not in self._running and job.started_at >= last - _CLOCK_S
        ]

    def _start_of(self, job: RunningJob) -> Started:
        unit = _unit(job)
        first = unit not in self._units
        self._units.add(unit)
        since = job.waits_since
        wait_s = None if since is None else max(0.0, job.started_at - since)
        arm = self._arms.get(unit, Arm.OTHER)
        limit_s = job.request.time_limit_s
        return Started(
            job.job_id, unit, job.partition, arm, job.started_at, wait_s, first, job.user,
            None if limit_s == math.inf else limit_s,
        )  # fmt: skip

    def _ended(self, running: Iterable[tuple[JobId, float]], at: float) -> list[Ended]:
        gone = self._running.keys() - set(running)
        jobs = sorted((job for key in gone if (job := self._running[key])), key=lambda j: j.job_id)
        return [Ended(job, max(1.0, at - job.started_at)) for job in jobs]


def unit_of(job: PendingJob) -> JobKey:
    """What the lot is drawn for: the array with its submit time, or the job itself."""
    return job.job_id if job.array is None else job.array.array_job_id, job.submitted_at


def _unit(job: RunningJob) -> JobKey:
    number = job.job_id if job.array_job_id is None else job.array_job_id
    return number, UnixTime(job.started_at if job.submitted_at is None else job.submitted_at)


def _arms_of_units(
    pending: Iterable[PendingJob], arms: Mapping[JobId, Arm]
) -> Mapping[JobKey, Arm]:
    found: dict[JobKey, Arm] = {}
    for job in pending:
        key = unit_of(job)
        # of an array one record may be held and the others not
        if found.get(key, Arm.OTHER) is Arm.OTHER:
            found[key] = arms.get(job.job_id, Arm.OTHER)
    return found
