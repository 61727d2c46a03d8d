# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""sim/world's clock, compiled: events of one instant, then one pass."""

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rltuned.core.features import UNLIMITED_AS_S
from rltuned.sim.engine.arrays import FloatArray, IntArray, compiled, entry, sources
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
from rltuned.sim.history import DECAY, RUNGS

FIXED, WFP3, UNICEP, F1, MULTIFACTOR, QSSF = 0, 1, 2, 3, 4, 5
"""Who ranks: an order that never changes, a formula of the time waited, or what has ended."""


class Memory(NamedTuple):
    """sim/history, compiled: what finished jobs tell. Shapes: n jobs, K kinds of jobs.

    kinds: (n, RUNGS) what each job is likened by, closest first, -1 = nothing. total, weight: (K,).
    runs_s: (n,) sorted, seen[0] of them; empty when every job has a limit to fall back to.
    """

    kinds: IntArray
    total: FloatArray
    weight: FloatArray
    runs_s: FloatArray
    seen: IntArray


NO_MEMORY = Memory(
    np.zeros((0, RUNGS), np.int64), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(1, np.int64)
)


NO_BOUNDS = np.zeros(0)


class Ranking(NamedTuple):
    """How the queue is ordered.

    key: (n,) smaller first, equal ones by submit order (FIXED only). limit_s: finite limits as the
    rules see them. constants: numbers of the formula. terms: (n, 2) multifactor's size and
    partition points. memory: of QSSF. upper_s: (n,) bounds of the delays; of QSSF, whose delay
    changes as it learns: the score is then less the virtual time. stretch: of the delays.
    """

    rule: int
    key: FloatArray
    limit_s: FloatArray
    gpus: FloatArray
    terms: FloatArray
    constants: FloatArray
    memory: Memory = NO_MEMORY
    upper_s: FloatArray = NO_BOUNDS
    stretch: float = 1.0


class Queue(NamedTuple):
    """Pending jobs: by place in the fixed order, else by number; size[0] of them."""

    jobs: IntArray
    size: IntArray


@compiled
def _play(setup: Setup, state: State, ranking: Ranking, queue: Queue, cycles: Cycles) -> int:
    """Where there are cycles, the number of those that found a queue; else of passes."""
    submit_s = setup.jobs.submit_s
    count, arrived, passes, ticks = len(submit_s), 0, 0, 0
    by_cycles = len(cycles.delay_s) > 0
    now, begin = submit_s[0] if count > 0 else 0.0, submit_s[0] if count > 0 else 0.0
    ends = [(0.0, 0)]
    ends.pop()
    while arrived < count or len(ends) > 0:
        tick = math.inf
        if by_cycles and queue.size[0] > 0:
            tick = next_tick(now, begin, cycles.interval_s)
        now = min(tick, _next_event(submit_s, arrived, ends))
        freed = False
        while len(ends) > 0 and ends[0][0] == now:
            job = heapq.heappop(ends)[1]
            finish(setup, state, job)
            if ranking.rule == QSSF:
                _remember(ranking.memory, job, now - state.start_s[job])
            freed = True
        first = arrived
        arrived = _arrive(submit_s, ranking, queue, cycles, arrived, now)
        if queue.size[0] > 0:
            passes += 1
            if by_cycles and tick_at(now, begin, cycles.interval_s) == now:
                ticks += 1
                changed = cycle(submit_s, ranking.key, queue.jobs, queue.size[0], cycles, now)
                freed = freed or changed  # in another order, all of the queue is looked at
            before = state.counters[STARTS]
            _pass(setup, state, ranking, queue, now, first, arrived, freed, ends)
            if state.counters[STARTS] > before:
                _drop_started(state, queue)
    return ticks if by_cycles else passes


@compiled
def _arrive(
    submit_s: FloatArray, ranking: Ranking, queue: Queue, cycles: Cycles, first: int, now: float
) -> int:
    """Enqueue the jobs that are submitted now; the first one that is not."""
    job = first
    while job < len(submit_s) and submit_s[job] == now:
        if cycles.at_submit:
            submitted(submit_s, ranking.key, cycles, job)
        _enqueue(ranking, queue, job)
        job += 1
    return job


@compiled
def _next_event(submit_s: FloatArray, arrived: int, ends: list[tuple[float, int]]) -> float:
    """When a job ends or comes next."""
    submit = submit_s[arrived] if arrived < len(submit_s) else math.inf
    return float(min(submit, ends[0][0] if len(ends) > 0 else math.inf))


@compiled
def _enqueue(ranking: Ranking, queue: Queue, job: int) -> None:
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
    queue: Queue,
    now: float,
    first: int,
    last: int,
    freed: bool,
    ends: list[tuple[float, int]],
) -> None:
    settled = not freed and state.counters[LATE] == 0
    if ranking.rule == FIXED and settled and _only_behind(setup, state, ranking, first, last):
        _newcomers(setup, state, ranking, queue, now, first, last, ends)
        return
    begin_pass(state)
    state.counters[LATE] = 0
    order = queue.jobs[: queue.size[0]]
    if ranking.rule != FIXED:
        scores = _scores(setup, ranking, now, order)
        order = order[np.argsort(-scores, kind="mergesort")]
    _walk(setup, state, now, order, ends)


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
    queue: Queue,
    now: float,
    first: int,
    last: int,
    ends: list[tuple[float, int]],
) -> None:
    """A pass in which nothing was freed and nobody ahead of a head came.

    Who was refused before is refused again until somebody starts: only then can a job that was
    held back fit elsewhere, beside the head. So the newcomers go first, and the rest of the queue
    follows from the first one that starts.
    """
    starts = state.counters[STARTS]
    for job in first + np.argsort(ranking.key[first:last], kind="mergesort"):
        _walk(setup, state, now, np.array([job]), ends)
        if state.counters[STARTS] > starts:
            state.counters[LATE] = 1
            at = 0
            while queue.jobs[at] != job:
                at += 1
            _walk(setup, state, now, queue.jobs[at + 1 : queue.size[0]], ends)
            return


@compiled
def _only_behind(setup: Setup, state: State, ranking: Ranking, first: int, last: int) -> bool:
    """Whether every newcomer stands behind all the heads near it."""
    for job in range(first, last):
        near = setup.hardware.near[setup.shapes.partition[setup.jobs.shape[job]]]
        for other in range(len(state.head)):
            head = state.head[other]
            if head >= 0 and near[other] and ranking.key[job] < ranking.key[head]:
                return False
    return True


@compiled
def _drop_started(state: State, queue: Queue) -> None:
    kept = 0
    for at in range(queue.size[0]):
        job = queue.jobs[at]
        if math.isnan(state.start_s[job]):
            queue.jobs[kept] = job
            kept += 1
    queue.size[0] = kept


@compiled
def _scores(setup: Setup, ranking: Ranking, now: float, pending: IntArray) -> FloatArray:
    scores = np.empty(len(pending))
    for at in range(len(pending)):
        job = pending[at]
        wait_s = max(now - setup.jobs.submit_s[job], 0.0)
        scores[at] = score(ranking, job, wait_s)
        if len(ranking.upper_s) > 0:
            delay_s = min(-ranking.stretch * scores[at], ranking.upper_s[job])
            scores[at] = -(setup.jobs.submit_s[job] + delay_s)
    return scores


@compiled
def score(ranking: Ranking, job: int, wait_s: float) -> float:
    """policies/baselines' formulas that depend on the time waited; higher = sooner."""
    limit_s, size = ranking.limit_s[job], max(ranking.gpus[job], 1.0)
    if ranking.rule == WFP3:
        return float((wait_s / limit_s) ** 3 * size)
    if ranking.rule == UNICEP:
        return float(wait_s / (math.log2(size + 1.0) * limit_s))
    if ranking.rule == F1:
        since_s = max(ranking.constants[0] - wait_s, 1.0)
        return float(-(math.log10(max(limit_s, 1.0)) * size + 870.0 * math.log10(since_s)))
    if ranking.rule == QSSF:
        return float(-size * _predict_s(ranking.memory, job, limit_s))
    age = ranking.constants[0] * min(1.0, wait_s / ranking.constants[1])
    points = age + ranking.terms[job, 0] + ranking.terms[job, 1]
    return max(1.0, float(math.floor(points)))


@compiled
def _remember(memory: Memory, job: int, ran_s: float) -> None:
    told = math.log(max(ran_s, 1.0))
    for kind in memory.kinds[job]:
        if kind >= 0:
            memory.total[kind] = memory.total[kind] * DECAY + told
            memory.weight[kind] = memory.weight[kind] * DECAY + 1.0
    if len(memory.runs_s) > 0:
        count = memory.seen[0]
        at = np.searchsorted(memory.runs_s[:count], ran_s)
        for i in range(count, at, -1):
            memory.runs_s[i] = memory.runs_s[i - 1]
        memory.runs_s[at] = ran_s
        memory.seen[0] = count + 1


@compiled
def _predict_s(memory: Memory, job: int, limit_s: float) -> float:
    for kind in memory.kinds[job]:
        if kind >= 0 and memory.weight[kind] > 0.0:
            return min(math.exp(memory.total[kind] / memory.weight[kind]), limit_s)
    count = memory.seen[0]
    if limit_s < UNLIMITED_AS_S or count == 0:
        return limit_s
    return float(memory.runs_s[count // 2])


def _entry_over(digest: str) -> Callable[[Setup, State, Ranking, Queue, Cycles], int]:
    def play_to_the_end(
        setup: Setup, state: State, ranking: Ranking, queue: Queue, cycles: Cycles
    ) -> int:
        if digest == "":  # never; naming it makes it part of the cache's key
            return -1
        return _play(setup, state, ranking, queue, cycles)

    return entry(play_to_the_end)


play = _entry_over(sources())
"""Run a trace to its end; starts and shares are left in the state. Returns how many passes looked
at a queue that was not empty; where there are cycles, how many cycles did."""
