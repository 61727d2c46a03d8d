"""OverSubscribe guidance: which exclusive jobs may share their nodes, and which should.

`scontrol update OverSubscribe=YES` on a pending `--exclusive` job makes Slurm give it what it asked
for instead of whole nodes. It cannot be taken back in full: docs/placement.md says what can.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from rltuned.core.backfill import JobEnd, QueuedJob, easy_backfill
from rltuned.core.capacity import Capacity
from rltuned.core.milp.problem import Queue, Weights
from rltuned.core.planning import target_of
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob, Share
from rltuned.domain.plan import OVERSUBSCRIBE_TOKENS, SetOverSubscribe
from rltuned.domain.snapshot import Snapshot

SHARED: Final = "YES"
ALONE: Final = "NO"
ENDS_AHEAD: Final = 64
"""So many ends are simulated at most. More than the first jobs can use come between two cycles only
where there are more GPUs than waiting jobs, and there no job keeps others waiting."""


class SharingBlocker(StrEnum):
    """Why a job's flag is left alone. The value is the log word."""

    NOT_IN_SCOPE = "partition not in the scope of [oversubscribe]"
    FORCED = "the partition shares or isolates by itself (FORCE or EXCLUSIVE): the flag is void"
    CPU_SHARING = "the partition lets such jobs share CPUs (YES): not allowed by the settings"
    PARTITION_UNKNOWN = "Slurm does not show its partition"
    PREEMPTION = "preemption is on: the job could not be isolated again"
    PREEMPTION_UNKNOWN = "it is not known whether preemption is on"
    NOT_BY_FLAG = "its nodes are not its own by a flag of the job"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where exclusive jobs may be set to share. partitions: a multi-partition job is in scope only
    as a whole. allow_cpu_sharing: also with OverSubscribe=YES, where such jobs share CPUs.
    """

    partitions: frozenset[str] = frozenset()
    allow_cpu_sharing: bool = False


def blocker(job: PendingJob, snapshot: Snapshot, sharing: Sharing) -> SharingBlocker | None:
    """Why an exclusive job may not be set to share; None = it may."""
    if not sharing.partitions.issuperset(job.partitions):
        return SharingBlocker.NOT_IN_SCOPE
    if job.oversubscribe != ALONE:
        return SharingBlocker.NOT_BY_FLAG
    known: Mapping[str, Partition] = {p.name: p for p in snapshot.partitions}
    for name in job.partitions:
        if name not in known:
            return SharingBlocker.PARTITION_UNKNOWN
        # such as NO, YES:4, FORCE:4, EXCLUSIVE
        setting = known[name].oversubscribe.upper().partition(":")[0]
        if setting == "YES" and not sharing.allow_cpu_sharing:
            return SharingBlocker.CPU_SHARING
        if setting not in {"NO", "YES"}:
            return SharingBlocker.FORCED
    if snapshot.preemption is None:
        return SharingBlocker.PREEMPTION_UNKNOWN
    return SharingBlocker.PREEMPTION if snapshot.preemption else None


def share_action(job: PendingJob) -> SetOverSubscribe:
    """The action that lets others onto the nodes of an exclusive job."""
    return SetOverSubscribe(target_of(job), job.oversubscribe, SHARED)


def isolations(jobs: Iterable[PendingJob]) -> tuple[SetOverSubscribe, ...]:
    """What keeps others off the nodes of jobs again that rltuned set to share."""
    return tuple(
        SetOverSubscribe(target_of(job), job.oversubscribe, job.shared_from)
        for job in jobs
        if job.shared_from in OVERSUBSCRIBE_TOKENS
    )


def as_shared(one: QueuedJob) -> QueuedJob:
    """An exclusive job as it is once it is set to share."""
    return replace(one, request=replace(one.request, exclusive=False))


_Starts = Mapping[int, tuple[Share, ...]]


def sharing_lookahead(queue: Queue, started: Collection[int], weights: Weights) -> frozenset[int]:
    """Which of the shareable jobs are to be set to share before their turn.

    A node that falls free between two cycles is given by Slurm within a second, whole, to the next
    exclusive job: a flag that is set in the next cycle comes too late. So running jobs are ended
    one after the other, and after each end Slurm's own pass is simulated twice: with the flags as
    they are, and with every waiting job that may share set to. Jobs that start by the second pass
    are flagged when it is worth more, but none whose flag changes nothing.

    queue: once all that starts now has started; not changed. Ends are ends by limit, as real ones
    are not known. started: positions of jobs that start now. weights: what a start and a flag are
    worth.
    """
    found: set[int] = set()
    free, running, begun = queue.capacity.copy(), list(queue.ends()), list[JobEnd]()
    left = [at for at in range(len(queue.jobs)) if at not in started]
    for _ in range(ENDS_AHEAD):
        end = _next_end(queue, left, running)
        if end is None:
            break
        running.remove(end)
        free.give(end.shares)
        free.cap()
        starts, flags = _SharingPass(queue, weights, left, free, [*running, *begun]).best()
        found |= flags
        for at, shares in starts.items():
            free.take(shares)
            left.remove(at)
            begun.append(JobEnd(queue.jobs[at].limit_s, shares))
    return frozenset(found)


def _next_end(queue: Queue, left: Sequence[int], ends: Sequence[JobEnd]) -> JobEnd | None:
    """The soonest end on a node that a shareable job could use."""
    hopeful = [queue.jobs[at] for at in left if at in queue.shareable]
    if not hopeful:
        return None
    could = np.logical_or.reduce([one.reach(queue.capacity) for one in hopeful])
    index = queue.capacity.index
    return next((end for end in ends if any(could[index[s.node]] for s in end.shares)), None)


@dataclass(frozen=True, slots=True)
class _SharingPass:
    """Slurm's pass over those that still wait, under one set of flags or another."""

    queue: Queue
    weights: Weights
    left: Sequence[int]
    free: Capacity
    ends: Sequence[JobEnd]

    def best(self) -> tuple[_Starts, frozenset[int]]:
        """What starts, and with which flags."""
        nothing = frozenset[int]()
        plain = self._starts(nothing)
        flags = frozenset(at for at in self.left if at in self.queue.shareable)
        shared = self._starts(flags)
        flags &= shared.keys()
        if self._value(shared, flags) <= self._value(plain, nothing):
            return plain, nothing
        for at in sorted(flags, reverse=True):
            fewer = self._starts(flags - {at})
            if self._value(fewer, flags - {at}) >= self._value(shared, flags):
                shared, flags = fewer, (flags - {at}) & fewer.keys()
        return shared, flags

    def _starts(self, flags: frozenset[int]) -> _Starts:
        jobs, shareable = self.queue.jobs, self.queue.shareable
        order = [shareable[at] if at in flags else jobs[at] for at in self.left]
        done = easy_backfill(order, self.free, lambda: self.ends)
        return {self.left[i]: shares for i, shares in done.starts.items()}

    def _value(self, starts: _Starts, flags: frozenset[int]) -> float:
        """What the starts are worth, less the cost of the flags (`Weights.sharing`)."""
        jobs, gpus = self.queue.jobs, int(self.free.total_gpus.sum())
        cost = self.weights.sharing * self.weights.of_rank(len(jobs) - 1)
        return math.fsum(self.weights.of_start(jobs[at], at, gpus) for at in starts) - cost * len(
            flags
        )
