"""Where waiting jobs stand among all that Slurm could start: in its own words, who is next.

slurmctld takes the partition's PriorityTier first, then the priority, then the lower job id
(sort_job_queue2 in src/slurmctld/job_scheduler.c). A record of an array stands for its waiting
tasks, so places count jobs and tasks alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rltuned.core.features import FloatArray
from rltuned.core.numbers import IntArray
from rltuned.core.pools import waiting_tasks
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId


class Line(NamedTuple):
    """Jobs that Slurm could start, those that rltuned leaves alone among them. tier, ids: (n,) the
    highest PriorityTier of a job's partitions, and its number. tasks: (n,) waiting jobs of each.
    """

    tier: IntArray
    ids: IntArray
    tasks: IntArray

    def order(self, number: IntArray) -> IntArray:
        """(n,) indices in the order in which Slurm takes them by these priorities."""
        found: IntArray = np.lexsort((self.ids, -number, -self.tier))
        return found

    def places(self, number: IntArray) -> IntArray:
        """(n,) from 1: the place of each, or of its first task."""
        order = self.order(number)
        found = np.empty(len(order), dtype=np.int64)
        found[order] = 1 + np.cumsum(self.tasks[order]) - self.tasks[order]
        return found

    def ties(self, number: IntArray) -> IntArray:
        """(n,) jobs of the same tier with the same priority, itself among them."""
        order = self.order(number)
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(self.tier[order]) != 0) | (np.diff(number[order]) != 0)
        group = np.cumsum(new) - 1
        sums = np.bincount(group, weights=self.tasks[order]) if len(order) else np.zeros(0)
        found = np.empty(len(order), dtype=np.int64)
        found[order] = sums[group].astype(np.int64)
        return found


class Place(NamedTuple):
    """Of one job: its place in the queue, from 1; how many jobs share its priority and tier, itself
    among them; its tier and its priority.
    """

    place: int
    ties: int
    tier: int
    priority: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The queue by the priorities that Slurm has; jobs, number (n,)."""

    jobs: tuple[JobId, ...]
    line: Line
    number: IntArray

    @property
    def waiting(self) -> int:
        """How many jobs, tasks of arrays among them, Slurm could start."""
        return int(self.line.tasks.sum())

    @property
    def tiers(self) -> int:
        """Different ones."""
        return len(set(self.line.tier.tolist()))

    def places(self) -> dict[JobId, Place]:
        """By job."""
        line, number = self.line, self.number
        columns = (line.places(number), line.ties(number), line.tier, number)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return dict(zip(self.jobs, map(Place._make, rows), strict=True))

    def after(self, written: Mapping[JobId, int]) -> "Standing":
        """Once Slurm has taken these priorities."""
        known = zip(self.jobs, self.number.tolist(), strict=True)
        return replace(self, number=np.array([written.get(job, n) for job, n in known], np.int64))


def line_of(jobs: Sequence[PendingJob], snapshot: Snapshot, tasks: FloatArray) -> Line:
    """From jobs of a snapshot. tasks: (n,) how many jobs each stands for."""
    tiers = tiers_of(snapshot)
    return Line(
        np.array([tier_of(job, tiers) for job in jobs], dtype=np.int64),
        np.array([job.job_id for job in jobs], dtype=np.int64),
        np.asarray(tasks, dtype=np.int64),
    )


def standing_of(
    chosen: Sequence[PendingJob], others: Sequence[PendingJob], snapshot: Snapshot
) -> Standing:
    """Of the jobs of a snapshot that Slurm could start, in this order."""
    jobs = (*chosen, *others)
    tasks = waiting_tasks(jobs, snapshot.room_in_arrays())
    number = np.array([job.priority for job in jobs], dtype=np.int64)
    return Standing(tuple(j.job_id for j in jobs), line_of(jobs, snapshot, tasks), number)


def tiers_of(snapshot: Snapshot) -> dict[str, int]:
    """PriorityTier by partition."""
    return {one.name: one.priority_tier for one in snapshot.partitions}


def tier_of(job: PendingJob, tiers: Mapping[str, int]) -> int:
    """Slurm tries a job in each of its partitions, first in that of the highest tier."""
    return max((tiers.get(name, 1) for name in job.partitions), default=1)
