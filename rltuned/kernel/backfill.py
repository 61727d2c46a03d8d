"""One EASY pass, with memory of what cannot have changed; sim/dispatch has it as objects."""

import numpy as np

from rltuned.kernel.compiler import compiled
from rltuned.kernel.placement import fits, move, place, record
from rltuned.kernel.state import (
    PASS,
    RUNNING,
    STARTS,
    Free,
    Setup,
    State,
    later_of,
    stamp,
)


@compiled
def consider(setup: Setup, state: State, now: float, job: int) -> bool:
    """Start the job if it may start now; else it may become its partition's head."""
    shape = setup.jobs.shape[job]
    partition = setup.shapes.partition[shape]
    heads, restraint = restraints(setup, state, now + setup.jobs.limit_s[job], partition)
    known = state.failed[shape] == state.counters[PASS]
    if known or not place(
        setup.shapes, shape, setup.hardware, state.free, setup.spread, state.chosen
    ):
        state.failed[shape] = state.counters[PASS]
        if state.head[partition] < 0:
            reserve(setup, state, job)
        return False
    if heads > 0 and not setup.easy:
        return False
    record(setup.shapes, shape, setup.hardware, state.chosen, setup.jobs.offset[job], state.shares)
    if restraint and not harmless(setup, state, now, job):
        if heads == 1:
            state.refused[shape] = stamp(state)
        return False
    _start(setup, state, now, job)
    return True


@compiled
def restraints(setup: Setup, state: State, latest_end: float, partition: int) -> tuple[int, bool]:
    """How many heads are near, and whether the job would outlast one's shadow time."""
    heads, restraint = 0, False
    for other in range(len(state.head)):
        if state.head[other] >= 0 and setup.hardware.near[partition, other]:
            heads += 1
            restraint = restraint or latest_end > state.shadow_s[other]
    return heads, restraint


@compiled
def harmless(setup: Setup, state: State, now: float, job: int) -> bool:
    """Whether every head that the job outlasts still fits at its shadow time beside it."""
    shape = setup.jobs.shape[job]
    offset, width = setup.jobs.offset[job], setup.shapes.width[shape]
    near = setup.hardware.near[setup.shapes.partition[shape]]
    latest_end = now + setup.jobs.limit_s[job]
    for other in range(len(state.head)):
        head = state.head[other]
        if head < 0 or not near[other] or latest_end <= state.shadow_s[other]:
            continue
        later = later_of(state, other)
        move(setup.hardware, later, state.shares, offset, width, -1)
        fine = fits(setup.shapes, setup.jobs.shape[head], setup.hardware, later)
        move(setup.hardware, later, state.shares, offset, width, 1)
        if not fine:
            return False
    return True


@compiled
def _start(setup: Setup, state: State, now: float, job: int) -> None:
    offset, width = setup.jobs.offset[job], setup.shapes.width[setup.jobs.shape[job]]
    latest_end = now + setup.jobs.limit_s[job]
    move(setup.hardware, state.free, state.shares, offset, width, -1)
    for other in range(len(state.head)):
        if state.head[other] >= 0 and latest_end > state.shadow_s[other]:
            move(setup.hardware, later_of(state, other), state.shares, offset, width, -1)
    count = state.counters[RUNNING]
    at = np.searchsorted(state.latest[:count], latest_end)
    for i in range(count, at, -1):
        state.latest[i], state.running[i] = state.latest[i - 1], state.running[i - 1]
    state.latest[at], state.running[at] = latest_end, job
    state.start_s[job] = now
    state.counters[RUNNING] += 1
    state.counters[STARTS] += 1


@compiled
def finish(setup: Setup, state: State, job: int) -> None:
    """A running job ends and returns what it holds."""
    shape = setup.jobs.shape[job]
    offset, width = setup.jobs.offset[job], setup.shapes.width[shape]
    move(setup.hardware, state.free, state.shares, offset, width, 1)
    count = state.counters[RUNNING]
    at = np.searchsorted(state.latest[:count], state.start_s[job] + setup.jobs.limit_s[job])
    while state.running[at] != job:
        at += 1
    for i in range(at, count - 1):
        state.latest[i], state.running[i] = state.latest[i + 1], state.running[i + 1]
    state.counters[RUNNING] -= 1


@compiled
def reserve(setup: Setup, state: State, job: int) -> None:
    """Make the job its partition's head: when will it fit at the latest, and beside whom?"""
    shape = setup.jobs.shape[job]
    partition = setup.shapes.partition[shape]
    state.head[partition] = job
    later = later_of(state, partition)
    later.gpus[:] = state.free.gpus
    later.of_type[:] = state.free.of_type
    later.cpus[:] = state.free.cpus
    later.mem_mib[:] = state.free.mem_mib
    needed = _ends_needed(setup, state, shape, later)
    if needed < 0:
        state.shadow_s[partition] = np.inf
        return
    state.shadow_s[partition] = state.latest[needed - 1]
    together = needed
    while together < state.counters[RUNNING] and state.latest[together] == state.latest[needed - 1]:
        together += 1
    _shift(setup, state, later, needed, together)


@compiled
def _ends_needed(setup: Setup, state: State, shape: int, later: Free) -> int:
    """How many running jobs, by latest end, must be gone for the shape to fit; -1 = never.

    Leaves in `later` what is free then. Gallops ahead, then halves the last stride: the cost
    follows how far ahead the answer lies, not how many jobs run.
    """
    hardware, shapes, running = setup.hardware, setup.shapes, state.counters[RUNNING]
    low, high, stride = 0, 0, 1
    while True:
        if high == running:
            return -1
        low, high = high, min(running, high + stride)
        _shift(setup, state, later, low, high)
        if fits(shapes, shape, hardware, later):
            break
        stride *= 2
    at = high  # what `later` stands at; fits at high, not at low
    while high - low > 1:
        middle = (low + high) // 2
        _shift(setup, state, later, at, middle)
        at = middle
        if fits(shapes, shape, hardware, later):
            high = middle
        else:
            low = middle
    _shift(setup, state, later, at, high)
    return int(high)


@compiled
def _shift(setup: Setup, state: State, later: Free, old: int, new: int) -> None:
    """Turn `running[:old]` gone into `running[:new]` gone."""
    first, last, sign = (old, new, 1) if new > old else (new, old, -1)
    shape_of, offset, width = setup.jobs.shape, setup.jobs.offset, setup.shapes.width
    running = state.running
    for i in range(first, last):
        job = running[i]
        move(setup.hardware, later, state.shares, offset[job], width[shape_of[job]], sign)
