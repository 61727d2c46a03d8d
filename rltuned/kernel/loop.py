# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The clock of a simulated cluster: the events of one instant, then one pass."""

import heapq
import math
from typing import NamedTuple

import numpy as np

from rltuned.kernel.backfill import consider, finish
from rltuned.kernel.compiler import BoolArray, FloatArray, IntArray, ascending, compiled, entry
from rltuned.kernel.cycles import Cycles, cycle, meet, next_tick, tick_at
from rltuned.kernel.placement import fits
from rltuned.kernel.ranking import FIXED, Eyes, Ranking, scores
from rltuned.kernel.run_times import RunTimes, end, note_start, note_stop, submit
from rltuned.kernel.state import (
    LATE,
    PASS,
    RUNNING,
    STARTS,
    Setup,
    State,
    begin_pass,
    stamp,
)

Log = list[tuple[float, int, int, float, int]]
"""One row per cycle; see cycles.cycle."""
CHANGES = 2
"""Place of the changes in it."""
FAIL, DRAIN, RESUME = 0, 1, 2
"""Faults: a node goes down and its jobs are requeued; it takes no new jobs; it is back."""


class PendingQueue(NamedTuple):
    """Pending jobs: by place in the fixed order, else as they came; size[0] of them.

    order: (n,) jobs by arrival; arrive_s: (n,) when each comes, which may be after its submission.
    member: (P, N) nodes of the partitions, whatever is down.
    """

    jobs: IntArray
    size: IntArray
    order: IntArray
    arrive_s: FloatArray
    member: BoolArray


class Faults(NamedTuple):
    """What befalls nodes, in the order of time; each (k,). change: one of FAIL, DRAIN, RESUME.

    lost_gpu_s: [GPU-seconds of attempts that a failed node cut short].
    """

    at_s: FloatArray
    node: IntArray
    change: IntArray
    lost_gpu_s: FloatArray


@entry
def play(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    cycles: Cycles,
    eyes: Eyes,
    faults: Faults,
) -> tuple[int, Log]:
    """Run a trace until nothing happens any more; starts and shares are left in the state.

    At one instant jobs end, then nodes change, then jobs are submitted, then one pass looks at it.

    Returns:
        How many passes found a queue, and what each of the daemon's cycles did.
    """
    arrive_s, order = queue.arrive_s, queue.order
    count, arrived, changed, passes = len(order), 0, 0, 0
    log = [(0.0, 0, 0, 0.0, 0)]
    log.pop()
    by_cycles = len(cycles.managed) > 0
    now = -math.inf
    ends = [(0.0, 0)]
    ends.pop()
    while arrived < count or len(ends) > 0 or changed < len(faults.at_s):
        event = _next_event(arrive_s, order, arrived, ends)
        if changed < len(faults.at_s):
            event = min(event, faults.at_s[changed])
        if by_cycles and queue.size[0] > 0:
            event = min(event, next_tick(now, cycles.first_s, cycles.interval_s))
        now = event
        freed = _end(setup, state, ranking, now, ends)
        first = arrived
        while changed < len(faults.at_s) and faults.at_s[changed] == now:
            _befall(setup, state, ranking, queue, faults, changed, now)
            freed = True
            changed += 1
        arrived = _arrive(setup, state, ranking, queue, cycles, eyes, arrived, now)
        if queue.size[0] == 0:
            continue
        passes += 1
        if by_cycles and _is_tick(now, cycles):
            jobs = queue.jobs[: queue.size[0]]
            log.append(cycle(setup, state, ranking, eyes, jobs, cycles, now))
            # in another order, all of the queue is looked at
            freed = freed or log[-1][CHANGES] > 0
        before = state.counters[STARTS]
        _pass(setup, state, ranking, eyes, queue, now, order[first:arrived], freed, ends)
        if state.counters[STARTS] > before:
            _drop_started(state, queue, ranking.known, now)
    return passes, log


@compiled
def _end(
    setup: Setup, state: State, ranking: Ranking, now: float, ends: list[tuple[float, int]]
) -> bool:
    """Let the jobs end that end now; whether there were any."""
    learns, freed = len(ranking.known.slots) > 0, False
    while len(ends) > 0 and ends[0][0] == now:
        job = heapq.heappop(ends)[1]
        if state.start_s[job] + setup.jobs.runs_s[job] != now:
            continue  # that attempt was cut short by a failed node
        finish(setup, state, job)
        if learns:
            end(ranking.known, job, state.start_s[job], now - state.start_s[job])
        freed = True
    return freed


@compiled
def _befall(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    faults: Faults,
    number: int,
    now: float,
) -> None:
    """Change one node; the jobs of a failed one go back to the queue."""
    node, change = faults.node[number], faults.change[number]
    state.usable[node] = change == RESUME
    for partition in range(len(queue.member)):
        back = queue.member[partition, node] and change == RESUME
        setup.hardware.member[partition, node] = back
    if change != FAIL:
        return
    running = np.sort(state.running[: state.counters[RUNNING]])
    for job in running:
        shape, offset = setup.jobs.shape[job], setup.jobs.offset[job]
        nodes = state.shares.node[offset : offset + setup.shapes.width[shape]]
        if not (nodes == node).any():
            continue
        finish(setup, state, job)
        if len(ranking.known.slots) > 0:
            note_stop(ranking.known.stats, ranking.known.slots[job], state.start_s[job])
        faults.lost_gpu_s[0] += setup.shapes.gpus[shape] * (now - state.start_s[job])
        state.start_s[job] = math.nan
        _enqueue(ranking, queue, job)


@compiled
def _is_tick(now: float, cycles: Cycles) -> bool:
    """Whether the daemon's cycle is due."""
    return bool(now >= cycles.on_s and tick_at(now, cycles.first_s, cycles.interval_s) == now)


@compiled
def _arrive(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    cycles: Cycles,
    eyes: Eyes,
    first: int,
    now: float,
) -> int:
    """Enqueue the jobs that come now; how many have come so far."""
    last = first
    while last < len(queue.order) and queue.arrive_s[queue.order[last]] == now:
        last += 1
    new = queue.order[first:last]
    if len(ranking.known.slots) > 0:
        for job in new:
            submit(ranking.known, job, now)
    if cycles.at_submit and last > first:
        jobs = np.concatenate((queue.jobs[: queue.size[0]], new))
        meet(setup, state, ranking, eyes, cycles, jobs, new, now)
    for job in new:
        _enqueue(ranking, queue, job)
    return last


@compiled
def _next_event(
    arrive_s: FloatArray, order: IntArray, arrived: int, ends: list[tuple[float, int]]
) -> float:
    """When a job ends or comes next."""
    comes_s = arrive_s[order[arrived]] if arrived < len(order) else math.inf
    return float(min(comes_s, ends[0][0] if len(ends) > 0 else math.inf))


@compiled
def _enqueue(ranking: Ranking, queue: PendingQueue, job: int) -> None:
    size = queue.size[0]
    at = size
    if ranking.rule == FIXED:
        while at > 0 and _behind(ranking, queue.jobs[at - 1], job):
            queue.jobs[at] = queue.jobs[at - 1]
            at -= 1
    queue.jobs[at] = job
    queue.size[0] = size + 1


@compiled
def _behind(ranking: Ranking, other: int, job: int) -> bool:
    """Whether the other one stands behind the job; equal keys go by submit order."""
    mine, theirs = ranking.key[job], ranking.key[other]
    return bool(theirs > mine or (theirs == mine and other > job))


@compiled
def _pass(
    setup: Setup,
    state: State,
    ranking: Ranking,
    eyes: Eyes,
    queue: PendingQueue,
    now: float,
    came: IntArray,
    freed: bool,
    ends: list[tuple[float, int]],
) -> None:
    settled = not freed and state.counters[LATE] == 0
    if ranking.rule == FIXED and settled and _only_behind(setup, state, ranking, came):
        _newcomers(setup, state, ranking, queue, now, came, ends)
        return
    begin_pass(state)
    state.counters[LATE] = 0
    order = queue.jobs[: queue.size[0]]
    if ranking.rule != FIXED:
        order = np.sort(order)
        if not _any_fits(setup, state, order):
            return
        found = scores(setup, state, ranking, eyes, order, now)
        order = order[ascending(-found)]
    _walk(setup, state, now, order, ends)


@compiled
def _any_fits(setup: Setup, state: State, jobs: IntArray) -> bool:
    """Whether a job can start at all; only then does their order matter."""
    shape_of, failed, number = setup.jobs.shape, state.failed, state.counters[PASS]
    for job in jobs:
        shape = shape_of[job]
        if failed[shape] == number:
            continue
        if fits(setup.shapes, shape, setup.hardware, state.free):
            return True
        failed[shape] = number
    return False


@compiled
def _walk(
    setup: Setup, state: State, now: float, order: IntArray, ends: list[tuple[float, int]]
) -> None:
    """Consider one after the other; the cheap refusals stand here because most are such."""
    shape_of, limit_s = setup.jobs.shape, setup.jobs.limit_s
    partition_of = setup.shapes.partition
    failed, refused, head, shadow_s = state.failed, state.refused, state.head, state.shadow_s
    number, moment, alone = state.counters[PASS], stamp(state), len(head) == 1
    refusals = 0
    for job in order:
        refusals += 1
        shape = shape_of[job]
        partition = partition_of[shape]
        if head[partition] >= 0:
            if alone and not setup.easy:
                return  # without backfill no job passes the head
            if failed[shape] == number:
                continue
            if alone and refused[shape] == moment and now + limit_s[job] > shadow_s[partition]:
                continue
        if consider(setup, state, now, job):
            heapq.heappush(ends, (now + setup.jobs.runs_s[job], job))
            moment = stamp(state)
            refusals -= 1
            if refusals > 0:
                # who was refused before would now be placed elsewhere, perhaps beside the head
                state.counters[LATE] = 1


@compiled
def _newcomers(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    now: float,
    came: IntArray,
    ends: list[tuple[float, int]],
) -> None:
    """A pass in which nothing was freed and no job ahead of a head came.

    A job that was refused before is refused again until another one starts: only then can a job
    that was held back fit elsewhere, beside the head. So the newcomers go first, and the rest of
    the queue follows from the first one that starts.
    """
    starts = state.counters[STARTS]
    for job in came[ascending(ranking.key[came])]:
        _walk(setup, state, now, np.array([job]), ends)
        if state.counters[STARTS] > starts:
            state.counters[LATE] = 1
            at = 0
            while queue.jobs[at] != job:
                at += 1
            _walk(setup, state, now, queue.jobs[at + 1 : queue.size[0]], ends)
            return


@compiled
def _only_behind(setup: Setup, state: State, ranking: Ranking, came: IntArray) -> bool:
    """Whether every newcomer stands behind all the heads near it."""
    for job in came:
        near = setup.hardware.near[setup.shapes.partition[setup.jobs.shape[job]]]
        for other in range(len(state.head)):
            head = state.head[other]
            if head >= 0 and near[other] and ranking.key[job] < ranking.key[head]:
                return False
    return True


@compiled
def _drop_started(state: State, queue: PendingQueue, known: RunTimes, now: float) -> None:
    kept = 0
    for at in range(queue.size[0]):
        job = queue.jobs[at]
        if math.isnan(state.start_s[job]):
            queue.jobs[kept] = job
            kept += 1
        elif len(known.slots) > 0:
            note_start(known.stats, known.slots[job], now)
    queue.size[0] = kept
