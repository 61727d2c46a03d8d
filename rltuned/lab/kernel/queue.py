"""The queue of a simulated Slurm: who waits, and when those end that have left it."""

from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import BoolArray, FloatArray, IntArray, in_place
from rltuned.lab.kernel.state import Setup

PENDING, STARTED = 0, 1
"""Places in PendingQueue.size."""


class Ends(NamedTuple):
    """When running jobs will end, the soonest first: a heap of the first size[0] of at_s (n,) and
    job (n,), of n jobs at most; equal times go by number.
    """

    at_s: FloatArray
    job: IntArray
    size: IntArray


class PendingQueue(NamedTuple):
    """Pending jobs, size[PENDING] of them, in submit order; a job that starts leaves them at the
    end of the pass.

    ranked: (n,) the same by their keys, where the order is FIXED, else (0,); key: (n,) those.
    started: who started in this pass, size[STARTED] of them; ends: of those that run. order: (n,)
    jobs by arrival; arrive_s: (n,) when each comes, which may be after its submission. member:
    (P, N) nodes of the partitions, whatever is down.
    """

    jobs: IntArray
    ranked: IntArray
    size: IntArray
    key: FloatArray
    started: IntArray
    ends: Ends
    order: IntArray
    arrive_s: FloatArray
    member: BoolArray


def empty_queue(
    setup: Setup, key: FloatArray, arrive_s: FloatArray, *, fixed: bool
) -> PendingQueue:
    """An empty queue. key: see above; arrive_s: (n,); fixed: the order is FIXED."""
    count = len(arrive_s)
    jobs, started, ending = np.empty((3, count), dtype=np.int64)
    return PendingQueue(
        jobs=jobs,
        ranked=np.empty(count if fixed else 0, dtype=np.int64),
        size=np.zeros(2, dtype=np.int64),
        key=key,
        started=started,
        ends=Ends(np.empty(count), ending, np.zeros(1, dtype=np.int64)),
        order=np.argsort(arrive_s, kind="stable"),
        arrive_s=arrive_s,
        member=setup.hardware.member.copy(),
    )


@in_place
def enqueue(queue: PendingQueue, job: int) -> None:
    """A job starts to wait."""
    at = size = queue.size[PENDING]
    while at > 0 and queue.jobs[at - 1] > job:
        queue.jobs[at] = queue.jobs[at - 1]
        at -= 1
    queue.jobs[at] = job
    queue.size[PENDING] = size + 1
    if len(queue.ranked) > 0:
        rank(queue, size, job)


@in_place
def _before(key: FloatArray, job: int, other: int) -> bool:
    """Whether a job stands before another one; equal keys go by submit order."""
    mine, theirs = key[job], key[other]
    return bool(mine < theirs or (mine == theirs and job < other))


@in_place
def place_of(queue: PendingQueue, job: int) -> int:
    """Where a pending job stands by its key."""
    ranked, key = queue.ranked, queue.key
    low, high = 0, queue.size[PENDING]
    while low < high:
        middle = (low + high) // 2
        if _before(key, ranked[middle], job):
            low = middle + 1
        else:
            high = middle
    return int(low)


@in_place
def rank(queue: PendingQueue, place: int, job: int) -> None:
    """Put a job from a place to that of its key, which is new."""
    ranked, key, last, at = queue.ranked, queue.key, queue.size[PENDING] - 1, place
    while at > 0 and _before(key, job, ranked[at - 1]):
        ranked[at] = ranked[at - 1]
        at -= 1
    while at < last and _before(key, ranked[at + 1], job):
        ranked[at] = ranked[at + 1]
        at += 1
    ranked[at] = job


@in_place
def dequeue(setup: Setup, queue: PendingQueue, now: float, job: int) -> None:
    """A job has started, and will end."""
    queue.ends.size[0] += 1
    _put(queue.ends, queue.ends.size[0] - 1, now + setup.jobs.runs_s[job], job)
    queue.started[queue.size[STARTED]] = job
    queue.size[STARTED] += 1


@in_place
def drop_started(queue: PendingQueue, start_s: FloatArray) -> None:
    """The pass is over: who started in it waits no more. start_s: (n,) NaN = has not."""
    size, jobs, ranked = queue.size, queue.jobs, queue.ranked
    if size[STARTED] == 0:
        return
    kept = 0
    for at in range(size[PENDING]):
        if np.isnan(start_s[jobs[at]]):
            jobs[kept] = jobs[at]
            kept += 1
    if len(ranked) > 0:
        kept = 0
        for at in range(size[PENDING]):
            if np.isnan(start_s[ranked[at]]):
                ranked[kept] = ranked[at]
                kept += 1
    size[PENDING], size[STARTED] = kept, 0


@in_place
def drop_end(ends: Ends, job: int) -> None:
    """A job runs no more; quick for the one that ends first."""
    at = 0
    while ends.job[at] != job:
        at += 1
    ends.size[0] -= 1
    last = ends.size[0]
    if at < last:
        _put(ends, at, ends.at_s[last], ends.job[last])


@in_place
def _put(ends: Ends, at: int, end_s: float, job: int) -> None:
    """Fill a hole: what ends later moves down, what ends sooner moves up."""
    at_s, jobs, count = ends.at_s, ends.job, ends.size[0]
    while at > 0:
        above = (at - 1) // 2
        if at_s[above] < end_s or (at_s[above] == end_s and jobs[above] < job):
            break
        at_s[at], jobs[at] = at_s[above], jobs[above]
        at = above
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            at_s[other] < at_s[below] or (at_s[other] == at_s[below] and jobs[other] < jobs[below])
        ):
            below = other
        if end_s < at_s[below] or (end_s == at_s[below] and job < jobs[below]):
            break
        at_s[at], jobs[at] = at_s[below], jobs[below]
        at = below
    at_s[at], jobs[at] = end_s, job
