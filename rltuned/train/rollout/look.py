"""core/features and core/survey, compiled: the same numbers for the same moment."""

import math

import numpy as np

from rltuned.core.features import URGENT_HALF_S, WAIT_FULL_S
from rltuned.core.observation import CFF_HIGH, SEVERAL_WAYS
from rltuned.core.survey import FUTURE_HORIZON_S, WAYS_CAP
from rltuned.sim.engine.arrays import IntArray, compiled
from rltuned.sim.engine.dispatch import PASS, RUNNING, Setup, State
from rltuned.sim.engine.place import Amounts, hosts, wish
from rltuned.train.rollout.state import QUEUED, Desk, Sight

WAYS, FREE, ALL, BACK, IDLE = 0, 1, 2, 3, 4
"""Columns of Desk.survey."""
LOG_WAIT_FULL = math.log1p(WAIT_FULL_S)
FRAGMENTED, SEVERAL = 0, 1
"""Columns of Tape.flags: what the two sampled slots of the paper's observation hold."""


@compiled
def look(setup: Setup, state: State, sight: Sight, desk: Desk, flags: IntArray) -> None:
    """Fill desk.rows with the features of the queue, and flags with what the slots hold."""
    now = desk.clock[0]
    _tally(setup, state, desk, now)
    cff = _fragmentation(setup, state)
    several, number = 0, state.counters[PASS]
    queue, shape_of, surveyed, survey = desk.queue, setup.jobs.shape, desk.surveyed, desk.survey
    for at in range(desk.marks[QUEUED]):
        shape = shape_of[queue[at]]
        if surveyed[shape] != number:
            surveyed[shape] = number
            _survey(setup, state, sight, desk, shape)
        if survey[shape, WAYS] >= SEVERAL_WAYS:
            several = 1
    _rows(setup, sight, desk, cff, now)
    flags[FRAGMENTED] = 1 if np.float32(cff) >= CFF_HIGH else 0
    flags[SEVERAL] = several


@compiled
def _tally(setup: Setup, state: State, desk: Desk, now: float) -> None:
    """desk.sums: (P, T+1, 3) free GPUs, GPUs due back, wholly free nodes."""
    hardware, free, sums, back = setup.hardware, state.free, desk.sums, desk.back
    back[:] = 0.0
    for i in range(state.counters[RUNNING]):
        if state.latest[i] > now + FUTURE_HORIZON_S:
            break
        job = state.running[i]
        offset = setup.jobs.offset[job]
        for at in range(offset, offset + setup.shapes.width[setup.jobs.shape[job]]):
            back[state.shares.node[at]] += state.shares.gpus[at]
    sums[:] = 0.0
    none = sums.shape[1] - 1
    for node in range(len(free.gpus)):
        idle = (
            free.gpus[node] == hardware.gpus[node]
            and free.cpus[node] == hardware.cpus[node]
            and free.mem_mib[node] == hardware.mem_mib[node]
        )
        row = hardware.row[node]
        for partition in range(sums.shape[0]):
            if not hardware.member[partition, node]:
                continue
            if row != none:
                sums[partition, row, 0] += free.gpus[node]
                sums[partition, row, 1] += back[node]
                sums[partition, row, 2] += idle
            sums[partition, none, 2] += idle


@compiled
def _fragmentation(setup: Setup, state: State) -> float:
    squares, free = 0.0, 0.0
    for node in range(len(state.free.gpus)):
        there = float(state.free.gpus[node])
        free += there
        squares += there * there / max(setup.hardware.gpus[node], 1)
    return 0.0 if free == 0.0 else 1.0 - squares / free


@compiled
def _survey(setup: Setup, state: State, sight: Sight, desk: Desk, shape: int) -> None:
    partition = setup.shapes.partition[shape]
    found = desk.survey[shape]
    found[:] = 0.0
    nodes = 0.0
    for row in range(sight.wanted.shape[1]):
        if sight.wanted[shape, row]:
            found[FREE] += desk.sums[partition, row, 0]
            found[BACK] += desk.sums[partition, row, 1]
            found[IDLE] += desk.sums[partition, row, 2]
            found[ALL] += sight.all_gpus[partition, row]
            nodes += sight.nodes[partition, row]
        if setup.shapes.accepts[shape, row]:
            found[WAYS] += _ways(setup, state, shape, row)
    found[IDLE] /= max(nodes, 1.0)


@compiled
def _ways(setup: Setup, state: State, shape: int, row: int) -> int:
    """Disjoint sets of nodes of one GPU type that carry the shape now."""
    asks, hardware, free = wish(setup.shapes, shape), setup.hardware, state.free
    member = hardware.member[setup.shapes.partition[shape]]
    none = setup.shapes.accepts.shape[1] - 1
    with_low, with_more = 0, 0
    for node in range(len(free.gpus)):
        if not member[node] or (row != none and hardware.row[node] != row):
            continue
        there = free.gpus[node] if row != none else 0
        if there < asks.low:
            continue
        now = Amounts(free.gpus[node], free.cpus[node], free.mem_mib[node])
        if hosts(
            asks, now, Amounts(hardware.gpus[node], hardware.cpus[node], hardware.mem_mib[node])
        ):
            with_low += 1
            with_more += there > asks.low
    if with_low < asks.width or with_more < asks.larger:
        return 0
    return int(with_low // asks.width)


@compiled
def _rows(setup: Setup, sight: Sight, desk: Desk, cff: float, now: float) -> None:
    """Arrays are taken out of their structures once: each touch in the loop would cost."""
    queue, rows, fixed, survey = desk.queue, desk.rows, sight.fixed, desk.survey
    shape_of, submit_s, gpus_of = setup.jobs.shape, setup.jobs.submit_s, setup.shapes.gpus
    scraps, features = min(max(cff, 0.0), 1.0), fixed.shape[1]
    for at in range(desk.marks[QUEUED]):
        job = queue[at]
        shape = shape_of[job]
        gpus, ways, free = float(gpus_of[shape]), survey[shape, WAYS], survey[shape, FREE]
        wait_s = max(now - submit_s[job], 0.0)
        for i in range(features):
            rows[at, i] = fixed[job, i]
        rows[at, 2] = min(math.log1p(wait_s) / LOG_WAIT_FULL, 1.0)
        rows[at, 5] = survey[shape, IDLE]
        rows[at, 6] = 1.0 if ways > 0 else 0.0
        rows[at, 7] = min(ways, float(WAYS_CAP)) / WAYS_CAP
        rows[at, 8] = gpus / max(gpus + free, 1.0)
        rows[at, 10] = wait_s / (wait_s + URGENT_HALF_S)
        ahead = (free - gpus + survey[shape, BACK]) / max(survey[shape, ALL], 1.0)
        rows[at, 11] = min(max((ahead + 1.0) / 2.0, 0.0), 1.0)
        rows[at, 12] = scraps
