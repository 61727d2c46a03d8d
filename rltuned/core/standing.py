"""Where waiting jobs stand among all that Slurm could start: in its own words, who is next.

slurmctld takes the partition's PriorityTier first, then the priority, then the lower job id
(sort_job_queue2 in src/slurmctld/job_scheduler.c). A record of an array stands for its waiting
tasks, so places count jobs and tasks alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rltuned.core.numbers import IntArray
from rltuned.core.pools import waiting_tasks
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId


class Place(NamedTuple):
    """Of one job: its place in the queue, from 1; how many jobs share its priority and tier, itself
    among them; its tier and its priority.
    """

    place: int
    ties: int
    tier: int
    priority: int


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """Jobs that Slurm could start, those that rltuned leaves alone among them; (n,) each.

    ids: their numbers. tier: the highest PriorityTier of a job's partitions. tasks: waiting jobs of
    each. priority: as Slurm has it.
    """

    ids: IntArray
    tier: IntArray
    tasks: IntArray
    priority: IntArray

    @property
    def waiting(self) -> int:
        """How many jobs, tasks of arrays among them, Slurm could start."""
        return int(self.tasks.sum())

    def order_by(self, priority: IntArray) -> IntArray:
        """(n,) indices in the order in which Slurm takes them by these priorities."""
        found: IntArray = np.lexsort((self.ids, -priority, -self.tier))
        return found

    def places_by(self, priority: IntArray) -> IntArray:
        """(n,) from 1: the place of each, or of its first task."""
        order = self.order_by(priority)
        found = np.empty(len(order), dtype=np.int64)
        found[order] = 1 + np.cumsum(self.tasks[order]) - self.tasks[order]
        return found

    def places(self) -> dict[JobId, Place]:
        """By job, by the priorities that Slurm has."""
        columns = (self.places_by(self.priority), self._ties(), self.tier, self.priority)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return dict(zip(map(JobId, self.ids.tolist()), map(Place._make, rows), strict=True))

    def after(self, written: Mapping[JobId, int]) -> "PriorityOrder":
        """Once Slurm has taken these priorities."""
        known = zip(map(JobId, self.ids.tolist()), self.priority.tolist(), strict=True)
        taken = [written.get(job, priority) for job, priority in known]
        return replace(self, priority=np.array(taken, dtype=np.int64))

    def _ties(self) -> IntArray:
        """(n,) jobs of the same tier with the same priority, itself among them."""
        alike = np.column_stack([self.tier, self.priority])
        _, group = np.unique(alike, axis=0, return_inverse=True)
        group = group.reshape(-1)
        found: IntArray = np.bincount(group, weights=self.tasks)[group].astype(np.int64)
        return found


def priority_order(jobs: Sequence[PendingJob], snapshot: Snapshot) -> PriorityOrder:
    """Of jobs of a snapshot that Slurm could start, in this order."""
    tiers = tiers_of(snapshot)
    columns = (
        [job.job_id for job in jobs],
        [tier_of(job, tiers) for job in jobs],
        waiting_tasks(jobs, snapshot.room_in_arrays()),
        [job.priority for job in jobs],
    )
    return PriorityOrder(*(np.array(column, dtype=np.int64) for column in columns))


def tiers_of(snapshot: Snapshot) -> dict[str, int]:
    """PriorityTier by partition."""
    return {one.name: one.priority_tier for one in snapshot.partitions}


def tier_of(job: PendingJob, tiers: Mapping[str, int]) -> int:
    """Slurm tries a job in each of its partitions, first in that of the highest tier."""
    return max((tiers.get(name, 1) for name in job.partitions), default=1)
