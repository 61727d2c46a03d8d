"""The queue of a simulated Slurm: who waits, and when those end that have left it."""

from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import BoolArray, FloatArray, IntArray, in_place
from rltuned.lab.kernel.ends import Ends, add_end, empty_ends
from rltuned.lab.kernel.sorting import Listed, Sorted, nothing_listed, nothing_sorted
from rltuned.lab.kernel.state import Setup
from rltuned.lab.kernel.waiting import Waiting, empty_waiting, insert, remove

PENDING, STARTED = 0, 1
"""Places in PendingQueue.size."""


class PendingQueue(NamedTuple):
    """Pending jobs, size[PENDING] of them, in no order; place: (n,) where each of them stands.

    waiting: the same by their keys, where the order is FIXED; key: (n,) those. started: who started
    in this pass, size[STARTED] of them; ends: of those that run. order: (n,) jobs by arrival;
    arrive_s: (n,) when each comes, which may be after its submission. member: (P, N) nodes of the
    partitions, whatever is down. listed, ranked: the queue as it was when last looked at, by
    submission and in the order of the look, where that may change with every look.
    """

    jobs: IntArray
    size: IntArray
    place: IntArray
    waiting: Waiting
    key: FloatArray
    started: IntArray
    ends: Ends
    order: IntArray
    arrive_s: FloatArray
    member: BoolArray
    listed: Listed
    ranked: Sorted


def empty_queue(
    setup: Setup, key: FloatArray, arrive_s: FloatArray, *, fixed: bool
) -> PendingQueue:
    """An empty queue. key: see above; arrive_s: (n,); fixed: the order is FIXED."""
    jobs, shapes = setup.jobs, setup.shapes
    shape = jobs.shape if fixed else jobs.shape[:0]
    jobs_room, place, started = np.empty((3, len(arrive_s)), dtype=np.int64)
    return PendingQueue(
        jobs=jobs_room,
        size=np.zeros(2, dtype=np.int64),
        place=place,
        waiting=empty_waiting(shapes.tree[shape], shapes.width[shape], jobs.limit_s[: len(shape)]),
        key=key,
        started=started,
        ends=empty_ends(len(arrive_s)),
        order=np.argsort(arrive_s, kind="stable"),
        arrive_s=arrive_s,
        member=setup.hardware.member.copy(),
        listed=nothing_listed(len(arrive_s)),
        ranked=nothing_sorted(len(arrive_s), 1),
    )


@in_place
def enqueue(queue: PendingQueue, job: int) -> None:
    """A job starts to wait."""
    size = queue.size[PENDING]
    queue.jobs[size], queue.place[job] = job, size
    queue.size[PENDING] = size + 1
    if len(queue.waiting.path) > 0:
        insert(queue.waiting, queue.key, job)


@in_place
def dequeue(setup: Setup, queue: PendingQueue, now: float, job: int) -> None:
    """A job that has started leaves the queue, and will end."""
    size, place = queue.size, queue.place[job]
    add_end(queue.ends, now + setup.jobs.runs_s[job], job)
    size[PENDING] -= 1
    last = queue.jobs[size[PENDING]]
    queue.jobs[place], queue.place[last] = last, place
    queue.started[size[STARTED]] = job
    size[STARTED] += 1
    if len(queue.waiting.path) > 0:
        remove(queue.waiting, queue.key, job)
