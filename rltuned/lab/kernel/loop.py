# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The clock of a simulated cluster: the events of one instant, then one pass."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import (
    Float32Array,
    FloatArray,
    IntArray,
    ascending,
    compiled,
    entry,
    in_place,
)
from rltuned.lab.kernel.cycles import Cycles, chosen_now, cycle, next_tick, tick_at
from rltuned.lab.kernel.demand import note_end, reopen
from rltuned.lab.kernel.features import look
from rltuned.lab.kernel.placement import consider, finish, fits, may_start, note_failed
from rltuned.lab.kernel.ranking import FIXED, Eyes, Ranking, scores
from rltuned.lab.kernel.run_times import RunTimes, end, note_start, note_stop, submit
from rltuned.lab.kernel.slurm import look_as_slurm, next_pass
from rltuned.lab.kernel.state import (
    LATE,
    PASS,
    PENDING,
    RUNNING,
    STARTED,
    PendingQueue,
    Setup,
    State,
    begin_pass,
    dequeue,
    drop_end,
    drop_started,
    enqueue,
    place_of,
    stamp,
)

# One look at the queue: who starts now, in the order of the queue.


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


Log = list[tuple[float, int, int, float, int]]
"""One row per cycle; see cycles.cycle."""
CHANGES = 2
"""Place of the changes in it."""
FIRST, ARRIVED, CHANGED, FREED = range(4)
"""Places in a course: in the order of arrival, where the jobs begin and end that came at this
instant; how many faults so far; 1 where something was freed now or the order has changed."""
FAIL, DRAIN, RESUME = 0, 1, 2
"""Faults: a node goes down and its jobs are requeued; it takes no new jobs; it is back."""


class Faults(NamedTuple):
    """What befalls nodes, in the order of time; each (k,). change: one of FAIL, DRAIN, RESUME.
    lost_gpu_s: [GPU-seconds of attempts that a failed node cut short].
    """

    at_s: FloatArray
    node: IntArray
    change: IntArray
    lost_gpu_s: FloatArray


class Agent(NamedTuple):
    """An agent outside compiled code, which corrects the rule `delay` at every cycle: what it sees
    and does, see train/environment.QueueEnv. rows: (slots, F + 1). action: (slots,) in [-1, 1].
    waited_s: [what all jobs together have waited].
    """

    rows: Float32Array
    action: Float32Array
    waited_s: FloatArray


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
    Returns how many passes found a queue, and what each of the daemon's cycles did.
    """
    course, passes, now = np.zeros(4, dtype=np.int64), 0, -math.inf
    log = [(0.0, 0, 0, 0.0, 0)]
    log.pop()
    while True:
        now = _next_queue(setup, state, ranking, queue, cycles, faults, course, now)
        if now == math.inf:
            break
        passes += 1
        if _is_tick(now, cycles):
            log.append(cycle(setup, state, ranking, eyes, queue, cycles, now))
            # in another order, all of the queue is looked at
            course[FREED] |= log[-1][CHANGES] > 0
        _look(setup, state, ranking, queue, eyes, course, now)
    return passes, log


@entry
def stops(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    cycles: Cycles,
    eyes: Eyes,
    faults: Faults,
    agent: Agent,
) -> Iterator[float]:
    """The same, but stop before every cycle that orders a job: the caller reads the agent's rows
    and fills its actions. Yields the time.
    """
    course, now = np.zeros(4, dtype=np.int64), -math.inf
    while True:
        now = _next_queue(setup, state, ranking, queue, cycles, faults, course, now)
        if now == math.inf:
            break
        if _is_tick(now, cycles):
            seen = chosen_now(setup, cycles, queue.jobs[: queue.size[PENDING]], now)
            if len(seen) > 0:
                _show(setup, state, eyes, agent, seen, now)
                agent.waited_s[0] = _waited_s(state, queue, course[ARRIVED], now)
                yield now
                _hear(eyes, agent, len(seen))
            done = cycle(setup, state, ranking, eyes, queue, cycles, now)
            course[FREED] |= done[CHANGES] > 0
        _look(setup, state, ranking, queue, eyes, course, now)


@compiled
def _next_queue(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    cycles: Cycles,
    faults: Faults,
    course: IntArray,
    now: float,
) -> float:
    """Play to the next instant at which jobs wait; infinite: the end. Fills course, see FIRST."""
    while True:
        now = _next_event(
            setup, state, queue, cycles, faults, course[ARRIVED], course[CHANGED], now
        )
        if now == math.inf:
            return now
        freed, changed = _end_all(setup, state, ranking, queue, now), course[CHANGED]
        if changed < len(faults.at_s) and faults.at_s[changed] == now:
            course[CHANGED] = _befall(setup, state, ranking.known, queue, faults, changed, now)
            reopen(ranking.demand, state.usable)
            freed = True
        course[FIRST], course[FREED] = course[ARRIVED], freed
        course[ARRIVED] = _arrived_by(queue, course[FIRST], now)
        _enqueue_all(ranking.known, queue, course[FIRST], course[ARRIVED], now)
        if queue.size[PENDING] > 0:
            return now


@compiled
def _look(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    eyes: Eyes,
    course: IntArray,
    now: float,
) -> None:
    """The passes over the queue."""
    freed = course[FREED] > 0
    if setup.slurm.on:
        came = course[FIRST] < course[ARRIVED]
        look_as_slurm(setup, state, ranking, eyes, queue, now, freed or came)
    elif ranking.rule == FIXED:
        look_at_fixed(setup, state, queue, now, course[FIRST], course[ARRIVED], freed)
    else:
        look_at_changing(setup, state, ranking, eyes, queue, now)
    known = ranking.known
    if len(known.slots) > 0:
        for at in range(queue.size[STARTED]):
            note_start(known.stats, known.slots[queue.started[at]], now)
    drop_started(queue, state.start_s)


@in_place
def _show(setup: Setup, state: State, eyes: Eyes, agent: Agent, jobs: IntArray, now: float) -> None:
    """Fill the agent's rows with the features of the first jobs."""
    look(setup, state, eyes.sight, eyes.features, jobs, now, eyes.flags)
    rows, seen, last = agent.rows, eyes.features.rows, agent.rows.shape[1] - 1
    count = min(len(jobs), len(rows))
    rows[:] = 0.0
    for at in range(count):
        for i in range(last):
            rows[at, i] = seen[at, i]
        rows[at, last] = 1.0


@in_place
def _hear(eyes: Eyes, agent: Agent, count: int) -> None:
    """Fill the scores of the jobs: a network's factor is exp(-reach tanh(score))."""
    slots = len(agent.action)
    for at in range(count):
        asked = min(max(agent.action[at], -1.0), 1.0) if at < slots else 0.0
        eyes.scores[at, 0] = eyes.scores[at, 1] = math.atanh(asked)


@in_place
def _waited_s(state: State, queue: PendingQueue, arrived: int, now: float) -> float:
    """What all jobs together have waited so far."""
    total = 0.0
    for at in range(arrived):
        job = queue.order[at]
        start_s = state.start_s[job]
        total += (now if math.isnan(start_s) else start_s) - queue.arrive_s[job]
    return total


@in_place
def _next_event(
    setup: Setup,
    state: State,
    queue: PendingQueue,
    cycles: Cycles,
    faults: Faults,
    arrived: int,
    changed: int,
    now: float,
) -> float:
    """When a job ends or comes, a node changes, or with a queue the daemon or Slurm looks; else
    infinite.
    """
    event = math.inf
    if arrived < len(queue.order):
        event = queue.arrive_s[queue.order[arrived]]
    if queue.ends.size[0] > 0:
        event = min(event, queue.ends.at_s[0])
    if changed < len(faults.at_s):
        event = min(event, faults.at_s[changed])
    if event < math.inf and len(cycles.managed) > 0 and queue.size[PENDING] > 0:
        event = min(event, next_tick(now, cycles.first_s, cycles.interval_s))
    if setup.slurm.on and queue.size[PENDING] > 0:
        event = min(event, next_pass(setup, state, now))
    return float(event)


@in_place
def _end_all(setup: Setup, state: State, ranking: Ranking, queue: PendingQueue, now: float) -> bool:
    """Let the jobs end that end now; whether there were any."""
    ends, freed, known, demand = queue.ends, False, ranking.known, ranking.demand
    while ends.size[0] > 0 and ends.at_s[0] == now:
        job = ends.job[0]
        drop_end(ends, job)
        finish(setup, state, job)
        if len(known.slots) > 0:
            end(known, job, state.start_s[job], now - state.start_s[job])
        else:
            note_end(demand, job, now - state.start_s[job])
        freed = True
    return freed


@compiled
def _befall(
    setup: Setup,
    state: State,
    known: RunTimes,
    queue: PendingQueue,
    faults: Faults,
    number: int,
    now: float,
) -> int:
    """Change the nodes from a fault on, requeue jobs of failed ones; how many faults so far."""
    while number < len(faults.at_s) and faults.at_s[number] == now:
        node, change = faults.node[number], faults.change[number]
        state.usable[node] = change == RESUME
        for partition in range(len(queue.member)):
            back = queue.member[partition, node] and change == RESUME
            setup.hardware.member[partition, node] = back
        if change == FAIL:
            for job in np.sort(state.running[: state.counters[RUNNING]]):
                shape, offset = setup.jobs.shape[job], setup.jobs.offset[job]
                nodes = state.shares.node[offset : offset + setup.shapes.width[shape]]
                if (nodes == node).any():
                    faults.lost_gpu_s[0] += setup.shapes.gpus[shape] * (now - state.start_s[job])
                    _requeue(setup, state, known, queue, job)
        number += 1
    return number


@in_place
def _requeue(setup: Setup, state: State, known: RunTimes, queue: PendingQueue, job: int) -> None:
    """A running job waits again, as if it had not started."""
    finish(setup, state, job)
    drop_end(queue.ends, job)
    if len(known.slots) > 0:
        note_stop(known.stats, known.slots[job], state.start_s[job])
    state.start_s[job] = math.nan
    enqueue(queue, job)


@in_place
def _is_tick(now: float, cycles: Cycles) -> bool:
    """Whether the daemon's cycle is due."""
    return bool(
        len(cycles.managed) > 0
        and now >= cycles.on_s
        and tick_at(now, cycles.first_s, cycles.interval_s) == now
    )


@in_place
def _arrived_by(queue: PendingQueue, first: int, now: float) -> int:
    """Where in the order of arrival those end that come now."""
    while first < len(queue.order) and queue.arrive_s[queue.order[first]] == now:
        first += 1
    return first


@compiled
def _enqueue_all(known: RunTimes, queue: PendingQueue, first: int, last: int, now: float) -> None:
    """Let the jobs wait that come now, and predict for them."""
    for at in range(first, last):
        job = queue.order[at]
        if len(known.slots) > 0:
            submit(known, job, now)
        enqueue(queue, job)
