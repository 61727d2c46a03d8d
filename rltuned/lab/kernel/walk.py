# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""One look at the queue: who starts now, in the order of the queue."""

from rltuned.lab.kernel.backfill import consider, gate_of, known_of, note_failed
from rltuned.lab.kernel.compiler import FloatArray, IntArray, compiled, in_place
from rltuned.lab.kernel.placement import fits
from rltuned.lab.kernel.queue import PENDING, PendingQueue, dequeue
from rltuned.lab.kernel.ranking import Eyes, Ranking, scores
from rltuned.lab.kernel.sorting import in_submit_order, resorted
from rltuned.lab.kernel.state import LATE, PASS, Setup, State, begin_pass, stamp
from rltuned.lab.kernel.waiting import NEXT, NONE, ROOT, follower, passes, put_next, rewind, touch


@in_place
def look_at_fixed(
    setup: Setup, state: State, queue: PendingQueue, now: float, first: int, last: int, freed: bool
) -> None:
    """Look at a queue of a FIXED order. first, last: places of the new jobs in queue.order.

    Nothing was freed and no job came before a head: then who was refused before is refused again
    until another one starts, as only then a job can fit elsewhere, beside the head. So a single
    new job goes first, and if it starts, the rest of the queue behind it follows.
    """
    waiting, key = queue.waiting, queue.key
    if freed or state.counters[LATE] > 0 or last - first > 1:
        begin_pass(state)
        state.counters[LATE] = 0
    elif first < last:
        job = queue.order[first]
        if not _is_behind(setup, state, key, job):
            begin_pass(state)
        elif _may_start(setup, state, now, job):
            state.counters[LATE] = 1
            dequeue(setup, queue, now, job)
            for tree in range(len(waiting.trees)):
                touch(waiting, tree)
            _resume(setup, state, queue, now, job)
        else:
            return
    else:
        return
    _walk_waiting(setup, state, queue, now)


@compiled
def look_at_changing(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, queue: PendingQueue, now: float
) -> None:
    """Look at a queue whose order changes with every look."""
    begin_pass(state)
    jobs = in_submit_order(queue.listed, queue.jobs[: queue.size[PENDING]])
    if _any_fits(setup, state, jobs):
        found = scores(setup, state, ranking, eyes, jobs, now)
        _walk(setup, state, queue, now, jobs[resorted(queue.ranked, 0, jobs, -found)])


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
def _may_start(setup: Setup, state: State, now: float, job: int) -> bool:
    """Consider a job, unless it is known that nothing comes of it; it may become a head."""
    shapes, shape = setup.shapes, setup.jobs.shape[job]
    gate, width = gate_of(setup, state, now, shape), shapes.width[shape]
    passed = passes(gate, width, width, setup.jobs.limit_s[job])
    return bool(passed and consider(setup, state, now, job))


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
        headed, width = head[partition[shape]] >= 0, width_of[shape]
        gate = known_of(verdicts, family[shape], counters[PASS], moment, headed, easy, now)
        if passes(gate, width, width, limit_s[job]) and consider(setup, state, now, job):
            dequeue(setup, queue, now, job)
            moment = stamp(state)


@in_place
def _walk_waiting(setup: Setup, state: State, queue: PendingQueue, now: float) -> None:
    """The same for all that wait, from the next job of each tree on, in a FIXED order."""
    waiting, key = queue.waiting, queue.key
    while waiting.winner[1] >= 0:
        tree = waiting.winner[1]
        job = waiting.trees[tree, NEXT]
        touch(waiting, tree)
        if _may_start(setup, state, now, job):
            if _heads(state) > 0:
                # who was refused before would now be placed elsewhere, perhaps beside the head
                state.counters[LATE] = 1
            dequeue(setup, queue, now, job)
            _resume(setup, state, queue, now, job)
            continue
        if not setup.easy and _heads(state) == len(state.head):
            break  # without backfill no job passes a head
        gate = gate_of(setup, state, now, setup.jobs.shape[job])
        put_next(waiting, key, tree, follower(waiting, key, tree, job, gate))
    rewind(waiting, key)


@in_place
def _heads(state: State) -> int:
    count = 0
    for head in state.head:
        count += head >= 0
    return count


@in_place
def _resume(setup: Setup, state: State, queue: PendingQueue, now: float, job: int) -> None:
    """Go on behind a job that has started: who was left out before it stays so, others may pass."""
    waiting, key = queue.waiting, queue.key
    for at in range(waiting.touched[0]):
        tree = waiting.touched[1 + at]
        root, found = waiting.trees[tree, ROOT], NONE
        if root >= 0:
            gate = gate_of(setup, state, now, setup.jobs.shape[root])
            found = follower(waiting, key, tree, job, gate)
        put_next(waiting, key, tree, found)


@in_place
def _is_behind(setup: Setup, state: State, key: FloatArray, job: int) -> bool:
    """Whether a job stands behind all the heads near it."""
    near = setup.hardware.near[setup.shapes.partition[setup.jobs.shape[job]]]
    for other in range(len(state.head)):
        head = state.head[other]
        if head >= 0 and near[other] and key[job] < key[head]:
            return False
    return True
