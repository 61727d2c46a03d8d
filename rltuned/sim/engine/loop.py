# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""sim/world's clock, compiled: events of one instant, then one pass."""

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rltuned.sim.engine.arrays import FloatArray, IntArray, ascending, compiled, entry, sources
from rltuned.sim.engine.cycles import Cycles, cycle, next_tick, submitted, tick_at
from rltuned.sim.engine.dispatch import (
    LATE,
    PASS,
    STARTS,
    Setup,
    State,
    begin_pass,
    consider,
    finish,
    stamp,
)
from rltuned.sim.engine.place import fits
from rltuned.sim.engine.ranking import FIXED, Eyes, Ranking, remember, scores

Log = list[tuple[float, int, int, float, int]]
"""One row per cycle; see cycles.cycle."""
CHANGES = 2
"""Place of the changes in it."""


class PendingQueue(NamedTuple):
    """Pending jobs: by place in the fixed order, else as they came; size[0] of them.

    order: (n,) jobs by arrival; arrive_s: (n,) when each comes, which may be after its submission.
    """

    jobs: IntArray
    size: IntArray
    order: IntArray
    arrive_s: FloatArray


@compiled
def _play(
    setup: Setup, state: State, ranking: Ranking, queue: PendingQueue, cycles: Cycles, eyes: Eyes
) -> tuple[int, Log]:
    """How many passes found a queue; and the cycles that did."""
    arrive_s, order = queue.arrive_s, queue.order
    count, arrived, passes = len(order), 0, 0
    log = [(0.0, 0, 0, 0.0, 0)]
    log.pop()
    by_cycles = len(cycles.managed) > 0
    now = -math.inf
    ends = [(0.0, 0)]
    ends.pop()
    while arrived < count or len(ends) > 0:
        tick = math.inf
        if by_cycles and queue.size[0] > 0:
            tick = next_tick(now, cycles.first_s, cycles.interval_s)
        now = min(tick, _next_event(arrive_s, order, arrived, ends))
        freed = _end(setup, state, ranking, now, ends)
        first = arrived
        arrived = _arrive(setup, ranking, queue, cycles, arrived, now)
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
            _drop_started(state, queue)
    return passes, log


@compiled
def _end(
    setup: Setup, state: State, ranking: Ranking, now: float, ends: list[tuple[float, int]]
) -> bool:
    """Let the jobs end that end now; whether there were any."""
    learns, freed = len(ranking.memory.kinds) > 0, False
    while len(ends) > 0 and ends[0][0] == now:
        job = heapq.heappop(ends)[1]
        finish(setup, state, job)
        if learns:
            remember(ranking.memory, job, now - state.start_s[job])
        freed = True
    return freed


@compiled
def _is_tick(now: float, cycles: Cycles) -> bool:
    """Whether the daemon's cycle is due."""
    return bool(now >= cycles.on_s and tick_at(now, cycles.first_s, cycles.interval_s) == now)


@compiled
def _arrive(
    setup: Setup, ranking: Ranking, queue: PendingQueue, cycles: Cycles, first: int, now: float
) -> int:
    """Enqueue the jobs that come now; how many have come so far."""
    at = first
    while at < len(queue.order) and queue.arrive_s[queue.order[at]] == now:
        job = queue.order[at]
        if cycles.at_submit:
            submitted(setup, ranking, cycles, job)
        _enqueue(ranking, queue, job)
        at += 1
    return at


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
        while at > 0 and ranking.key[queue.jobs[at - 1]] > ranking.key[job]:
            queue.jobs[at] = queue.jobs[at - 1]
            at -= 1
    queue.jobs[at] = job
    queue.size[0] = size + 1


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
                return  # without backfill nobody passes the head
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
    """A pass in which nothing was freed and nobody ahead of a head came.

    Who was refused before is refused again until somebody starts: only then can a job that was
    held back fit elsewhere, beside the head. So the newcomers go first, and the rest of the queue
    follows from the first one that starts.
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
def _drop_started(state: State, queue: PendingQueue) -> None:
    kept = 0
    for at in range(queue.size[0]):
        job = queue.jobs[at]
        if math.isnan(state.start_s[job]):
            queue.jobs[kept] = job
            kept += 1
    queue.size[0] = kept


Play = Callable[[Setup, State, Ranking, PendingQueue, Cycles, Eyes], tuple[int, Log]]


def _entry_over(digest: str) -> Play:
    def play_to_the_end(
        setup: Setup,
        state: State,
        ranking: Ranking,
        queue: PendingQueue,
        cycles: Cycles,
        eyes: Eyes,
    ) -> tuple[int, Log]:
        if digest == "":  # never; naming it makes it part of the cache's key
            return -1, [(0.0, 0, 0, 0.0, 0)]
        return _play(setup, state, ranking, queue, cycles, eyes)

    return entry(play_to_the_end)


play = _entry_over(sources())
"""Run a trace to its end; starts and shares are left in the state. Returns how many passes looked
at a queue that was not empty, and what each of the daemon's cycles did."""
