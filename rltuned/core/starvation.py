"""The starvation bound: how long a job may stand behind later ones because of us.

A job is overdue when it has waited longer than `bound_s`, and longer than `factor` times what the
base order, the order of submission, is seen to make it wait. An overdue job stands before all that
were submitted later, so nobody who came later is put before it by us, and what it still waits it
would wait in that order too. The base order itself is left as it is. docs/adr/0011 says what
follows, and proves it.

What the base order makes a job wait is read off the snapshot: the GPU-seconds that running jobs
which were submitted before it have held since it became eligible, over the GPUs that it could use.
Whoever came before holds his GPUs in the base order too. Work that has ended is no longer seen, so
the estimate is low and the guard, if anything, early; it needs no memory, and a restarted daemon
decides as the old one would have.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot

FloatArray = NDArray[np.float64]

BOUND_S: Final = 3_600.0
FACTOR: Final = 3.0
NOBODY: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Bound:
    """When a job is overdue.

    Attributes:
        bound_s: a job that has waited no longer is never overdue.
        factor: nor is one that has waited no longer than so many times its base wait.
    """

    bound_s: float = BOUND_S
    factor: float = FACTOR

    def __post_init__(self) -> None:
        if not self.bound_s >= 0:
            raise ValueError(f"bound_s {self.bound_s} is not a number of seconds from 0 on")
        if not 1 <= self.factor < np.inf:
            raise ValueError(f"factor {self.factor} is not a number from 1 on")


def overdue(jobs: Sequence[PendingJob], snapshot: Snapshot, bound: Bound | None) -> IntArray:
    """Indices into jobs of those that are overdue, in base order.

    Args:
        jobs: pending jobs of the snapshot, in its order; one that is not eligible is not overdue.
        snapshot: the cluster.
        bound: None = nobody ever is.
    """
    if bound is None:
        return NOBODY
    since = np.array([np.nan if j.eligible_at is None else j.eligible_at for j in jobs], float)
    wait_s = snapshot.taken_at - since
    late = np.flatnonzero(wait_s > bound.bound_s)
    if len(late):
        usable, held_s = _base_wait([jobs[i] for i in late.tolist()], since[late], snapshot)
        # no division: a job that could use no GPU is overdue by the bound alone
        late = late[(usable == 0) | (wait_s[late] * usable > bound.factor * held_s)]
    return late


def lift(order: IntArray, late: IntArray) -> IntArray:
    """The same order with the overdue jobs before all that were submitted later.

    Both hold job indices, and jobs are numbered as they were submitted.
    """
    if not len(late):
        return order
    place = np.argsort(order)
    # the first place that anybody has who came then or later
    first = np.minimum.accumulate(place[::-1])[::-1]
    place[late] = first[late]
    return np.argsort(place, kind="stable")


def _base_wait(
    jobs: Sequence[PendingJob], since: FloatArray, snapshot: Snapshot
) -> tuple[FloatArray, FloatArray]:
    """(n,) GPUs that each job could use; (n,) GPU-seconds that earlier jobs hold of them."""
    capacity = Capacity.of(snapshot)
    told = [r for r in snapshot.running if r.submitted_at is not None]
    held = _Held(told, snapshot.taken_at, capacity)
    usable, held_s = np.zeros(len(jobs)), np.zeros(len(jobs))
    alike: dict[tuple[tuple[str, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        alike[job.partitions, capacity.accepted(job.request)].append(i)
    for (partitions, rows), members in alike.items():
        could = np.zeros(capacity.total_gpus.shape, dtype=bool)
        could[list(rows)] = capacity.members_of(partitions)
        usable[members] = capacity.total_gpus[could].sum()
        held_s[members] = held.since(since[members], could)
    return usable, held_s


class _Held:
    """What the running jobs hold, where, and since when."""

    def __init__(self, jobs: Sequence[RunningJob], now: float, capacity: Capacity) -> None:
        shares = [
            (i, share)
            for i, job in enumerate(jobs)
            for share in job.shares
            if share.taken.gpus and share.node in capacity.index  # a node may have left the cluster
        ]
        self._now = now
        self._job = np.array([i for i, _ in shares], dtype=np.int64)
        column = [capacity.index[s.node] for _, s in shares]
        row = [capacity.row_on(s, c) for (_, s), c in zip(shares, column, strict=True)]
        self._row, self._column = np.array(row, dtype=np.int64), np.array(column, dtype=np.int64)
        self._gpus = np.array([s.taken.gpus for _, s in shares], dtype=np.float64)
        self._started = np.array([j.started_at for j in jobs], dtype=np.float64)
        self._submitted = np.array([j.submitted_at for j in jobs], dtype=np.float64)

    def since(self, times: FloatArray, could: BoolArray) -> FloatArray:
        """(n,) GPU-seconds since each time by jobs submitted until then.

        Args:
            times: (n,) when the pending jobs became eligible.
            could: (T+1, N) the GPUs that count.
        """
        here = could[self._row, self._column]
        gpus = np.bincount(self._job[here], self._gpus[here], minlength=len(self._started)).astype(
            np.float64
        )
        # those that had started by then count from then; of the others, those submitted by then
        # count from their start
        by_start, by_submit = np.argsort(self._started), np.argsort(self._submitted)
        held_s = gpus * (self._now - self._started)
        started = np.searchsorted(self._started[by_start], times, "right")
        submitted = np.searchsorted(self._submitted[by_submit], times, "right")
        whole_s = _sums(held_s[by_submit])[submitted] - _sums(held_s[by_start])[started]
        found: FloatArray = whole_s + _sums(gpus[by_start])[started] * (self._now - times)
        return found


def _sums(values: FloatArray) -> FloatArray:
    """(n+1,) sums of the first 0, 1, ... values."""
    sums: FloatArray = np.concatenate([[0.0], np.cumsum(values)])
    return sums
