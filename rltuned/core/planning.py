"""From delays to numbers and places, from those to actions, and back: what takes a write back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rltuned.core.cluster import BoolArray
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.numbers import IntArray, Numbers, Writing, base_now, numbers_of, rest_of, settle
from rltuned.core.order import Delays, next_neutral
from rltuned.core.pools import waiting_tasks
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import OWNED, PRIORITY, SITE_FACTOR, Action, Field, target_of
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import CLOCK_S, JobId

# Where waiting jobs stand among all that Slurm could start: in its own words, who is next.
#
# slurmctld takes the partition's PriorityTier first, then the priority, then the lower job id
# (sort_job_queue2 in src/slurmctld/job_scheduler.c). A record of an array stands for its waiting
# tasks, so places count jobs and tasks alike.


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


@dataclass(frozen=True, slots=True)
class Ranked:
    """after: indices in the order in which they are to stand. Priorities: own, without rltuned's;
    current, as Slurm has them; proposed; settled, after this cycle. value: each job's number then.
    written: it is new.
    """

    after: IntArray
    own: IntArray
    current: IntArray
    proposed: IntArray
    settled: IntArray
    in_force_s: FloatArray
    value: IntArray
    written: BoolArray


def scale(
    snapshot: Snapshot,
    matrix: StateMatrix,
    asked: Delays,
    mode: Field,
    writing: Writing,
    *,
    before: NeutralDelay | None,
    most_per_hour: int | None = None,
) -> tuple[NeutralDelay | None, Numbers | None]:
    """The neutral delay after one more cycle, and how delays become numbers; None = they cannot.
    before: the one in force. most_per_hour: writes to a job; None = any.
    """
    system, now = snapshot.priorities, snapshot.taken_at
    neutral = next_neutral(before, asked.delay_s, matrix.pools, now)
    neutral = neutral and neutral.at_slope(system.slope, now, before)
    if mode is SITE_FACTOR and system.site_factor_plugin:
        return neutral, None
    numbers = numbers_of(
        matrix.jobs,
        system,
        mode,
        now=now,
        neutral_s=0.0 if neutral is None else neutral.delay_s,
        own_slope=writing.own_slope,
    )
    if numbers is None or neutral is None:
        return neutral, numbers
    return neutral, replace(
        numbers,
        stale=np.array([_is_stale(job, neutral, numbers, now) for job in matrix.jobs], dtype=bool),
        spent=np.array([is_spent(job, most_per_hour) for job in matrix.jobs], dtype=bool),
        user=matrix.pools.user,
        users=matrix.pools.users,
    )


def is_spent(job: PendingJob, most_per_hour: int | None) -> bool:
    """Whether it was written to as often as it may be within an hour."""
    return most_per_hour is not None and job.recent_writes >= most_per_hour


def _is_stale(job: PendingJob, neutral: NeutralDelay, numbers: Numbers, now: float) -> bool:
    """Whether its number stands for a request, a slope or a neutral delay of before, or may: one
    noted while the clock was ahead.
    """
    if job.owned is None:
        return False
    at, moved = job.owned.written_at, 0.0 if numbers.in_epochs else neutral.since
    return at < neutral.sloped_at or at > now + CLOCK_S or 0.0 < at < max(moved, job.changed_at)


def rank(
    matrix: StateMatrix,
    delays: Delays,
    numbers: Numbers | None,
    writing: Writing,
    snapshot: Snapshot,
) -> tuple[Ranked, list[int], list[int]]:
    """Where the jobs stand and are to stand; the indices that wait for the cap, and those whose
    hourly budget keeps them where they are.
    """
    queue = priority_order(matrix.jobs, snapshot)
    current = queue.priority
    own = own_priorities(matrix.jobs, snapshot)
    if numbers is None:
        unwritten = np.zeros(len(current), dtype=bool)
        as_is = (current, current, current, delays.delay_s, current, unwritten)
        return Ranked(queue.order_by(own), own, *as_is), [], []
    value, waiting, withheld = settle(numbers, delays.delay_s, delays.upper_s, writing)
    proposed = numbers.priority(numbers.of(delays.delay_s))
    ranked = Ranked(
        after=queue.order_by(proposed),
        own=own,
        current=current,
        proposed=proposed,
        settled=numbers.priority(value),
        in_force_s=numbers.in_force_s(),
        value=value,
        written=value != numbers.value,
    )
    return ranked, waiting.tolist(), withheld.tolist()


def make_plan(
    jobs: Sequence[PendingJob],
    value: IntArray,
    due: Iterable[int],
    field: Field,
    snapshot: Snapshot,
) -> tuple[Action, ...]:
    """The writes of value (n,) to the jobs at the indices `due`, in order."""
    found: list[Action] = []
    system = snapshot.priorities
    aged = system.kind == "multifactor"
    for i in due:
        job, old, nice, rest = jobs[i], field.of(jobs[i]) or 0, None, None
        if field is PRIORITY:
            nice = job.nice if job.owned is None or job.owned.nice is None else job.owned.nice
            rest = rest_of(job, system, snapshot.taken_at) if aged else None
        found.append(Action(field, target_of(job), old, int(value[i]), nice, rest))
    return tuple(found)


def undo(job: PendingJob) -> Action | None:
    """What takes back the last number written to a job. None = nothing is owned, another user has
    changed it, or it is held (a release would start it; of that one only the nice is restored).
    """
    if job.owned is None or (not job.lost_nice and (job.priority == 0 or job.taken_over)):
        return None
    action = OWNED[job.owned.field].back(job, job.owned.original)
    idle = action is not None and action.field.orders and action.old == action.new
    return None if idle else action


def undo_words(jobs: Iterable[PendingJob], *fields: Field) -> tuple[Action, ...]:
    """What takes back the words written to jobs, as far as Slurm takes those of before."""
    found = (
        field.back(job, original)
        for field in fields
        for job in jobs
        if field.takes(original := field.before(job))
    )
    return tuple(action for action in found if action is not None)


def own_priority(job: PendingJob, system: PrioritySystem, now: float) -> int:
    """Its priority if rltuned had never written to it; where that is not known, the one it has."""
    owned = job.owned
    if owned is None or job.taken_over:
        return job.priority
    if owned.field == "site_factor":
        base = job.priority - (job.site_factor or 0) if job.base is None else job.base
        return max(1, base + (owned.original or 0))
    if system.kind == "basic":
        return job.priority if owned.original is None else owned.original
    base_s = base_now(job, system, now)
    return job.priority if base_s is None else max(1, int(base_s))


def own_priorities(jobs: Sequence[PendingJob], snapshot: Snapshot) -> IntArray:
    """(n,) the same of many."""
    system, now = snapshot.priorities, snapshot.taken_at
    return np.array([own_priority(job, system, now) for job in jobs], dtype=np.int64)
