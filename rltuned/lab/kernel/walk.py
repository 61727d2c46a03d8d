# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""One look at the queue: who starts now, in the order of the queue."""

import math

from rltuned.lab.kernel.backfill import consider, may_start, note_failed
from rltuned.lab.kernel.compiler import FloatArray, IntArray, ascending, compiled, in_place
from rltuned.lab.kernel.placement import fits
from rltuned.lab.kernel.queue import PENDING, PendingQueue, dequeue, place_of
from rltuned.lab.kernel.ranking import Eyes, Ranking, scores
from rltuned.lab.kernel.state import LATE, PASS, Setup, State, begin_pass, stamp


@in_place
def look_at_fixed(
    setup: Setup, state: State, queue: PendingQueue, now: float, first: int, last: int, freed: bool
) -> None:
    """Look at a queue of a FIXED order. first, last: places of the new jobs in queue.order.

    Nothing was freed and no job came before a head: then who was refused before is refused again
    until another one starts, as only then a job can fit elsewhere, beside the head. So a single
    new job goes first, and if it starts, the rest of the queue behind it follows.
    """
    ranked, begin = queue.ranked[: queue.size[PENDING]], 0
    if freed or state.counters[LATE] > 0 or last - first > 1:
        begin_pass(state)
        state.counters[LATE] = 0
    elif first < last:
        job = queue.order[first]
        if not _is_behind(setup, state, queue.key, job):
            begin_pass(state)
        else:
            _walk(setup, state, queue, now, queue.order[first:last])
            if math.isnan(state.start_s[job]):
                return
            state.counters[LATE] = 1
            begin = place_of(queue, job) + 1
    else:
        return
    _walk(setup, state, queue, now, ranked[begin:])


@compiled
def look_at_changing(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, queue: PendingQueue, now: float
) -> None:
    """Look at a queue whose order changes with every look."""
    begin_pass(state)
    jobs = queue.jobs[: queue.size[PENDING]]
    if _any_fits(setup, state, jobs):
        found = scores(setup, state, ranking, eyes, jobs, now)
        _walk(setup, state, queue, now, jobs[ascending(-found)])


@in_place
def _any_fits(setup: Setup, state: State, jobs: IntArray) -> bool:
    """Whether a job can start at all; only then does their order matter."""
    shape_of, width, family = setup.jobs.shape, setup.shapes.width, setup.shapes.family
    failed, failed_from = state.verdicts.failed, state.verdicts.failed_from
    passed = state.counters[PASS]
    for job in jobs:
        shape = shape_of[job]
        if failed[family[shape]] == passed and width[shape] >= failed_from[family[shape]]:
            continue
        if fits(setup.shapes, shape, setup.hardware, state.free):
            return True
        note_failed(setup.shapes, state, shape)
    return False


@in_place
def _walk(setup: Setup, state: State, queue: PendingQueue, now: float, order: IntArray) -> None:
    """Who may start is asked with arrays that are taken out of their structures once: to hand the
    structures on for every job took two thirds of a play.
    """
    shape_of, limit_s, easy = setup.jobs.shape, setup.jobs.limit_s, setup.easy
    partition, family, width_of = setup.shapes.partition, setup.shapes.family, setup.shapes.width
    verdicts, head, counters, moment = state.verdicts, state.head, state.counters, stamp(state)
    for job in order:
        shape = shape_of[job]
        headed, latest_end = head[partition[shape]] >= 0, now + limit_s[job]
        if headed and not easy:
            continue  # without backfill no job passes a head
        kin, width, passed = family[shape], width_of[shape], counters[PASS]
        if not may_start(verdicts, kin, width, latest_end, passed, moment, headed):
            continue
        if consider(setup, state, now, job):
            dequeue(setup, queue, now, job)
            moment = stamp(state)
            for other in head:
                if other >= 0:
                    # who was refused before would now be placed elsewhere, perhaps beside the head
                    counters[LATE] = 1


@in_place
def _is_behind(setup: Setup, state: State, key: FloatArray, job: int) -> bool:
    """Whether a job stands behind all the heads near it."""
    near = setup.hardware.near[setup.shapes.partition[setup.jobs.shape[job]]]
    for other in range(len(state.head)):
        head = state.head[other]
        if head >= 0 and near[other] and key[job] < key[head]:
            return False
    return True
