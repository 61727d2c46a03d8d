# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The daemon's cycle, compiled: core/order and core/numbers for delays that do not change.

One point is one second here, as on the site that sim/natural.AGE_ONLY describes, so a number less
than the neutral one is a delay in whole seconds. tests/sim/test_cycles.py plays it beside the
daemon's own `decide`.
"""

import math
from typing import NamedTuple

import numpy as np

from rltuned.core.order import NEUTRAL_FOR_S, NEUTRAL_LOOK_S, NEUTRAL_OFF
from rltuned.sim.engine.arrays import FloatArray, IntArray, compiled

DELAY, SINCE, RUNNING, SEEN = 0, 1, 2, 3
"""Places in Cycles.neutral, as in NeutralDelay; SEEN < 0: none has been found yet."""


class Cycles(NamedTuple):
    """What the daemon knows and remembers of n jobs; delay_s empty: there is no daemon.

    delay_s, upper_s: (n,) what each job is asked for, and its bound. beyond_s: (n,) the delay in
    force less the neutral one: 0 = never written. writes: (n,) how often each was written.
    neutral: see DELAY. at_submit: delays are in force from submission on.
    """

    interval_s: float
    min_age_s: float
    hysteresis: float
    min_step_s: float
    max_changes: int
    at_submit: bool
    delay_s: FloatArray
    upper_s: FloatArray
    beyond_s: FloatArray
    writes: IntArray
    neutral: FloatArray


@compiled
def tick_at(now: float, first: float, interval_s: float) -> float:
    """The first cycle at or after a time."""
    tick = first + math.ceil((now - first) / interval_s) * interval_s
    return tick if tick >= now else tick + interval_s


@compiled
def next_tick(now: float, first: float, interval_s: float) -> float:
    """The first cycle after a time."""
    tick = tick_at(now, first, interval_s)
    if tick <= now:
        tick = first + (np.rint((now - first) / interval_s) + 1) * interval_s
    return tick


@compiled
def cycle(
    submit_s: FloatArray,
    key: FloatArray,
    jobs: IntArray,
    size: int,
    cycles: Cycles,
    now: float,
) -> bool:
    """Write what is due, and put the queue in the order of its keys; whether anything changed.

    jobs: the queue, size of them. key: (n,) submit time plus the delay in force less the neutral.
    """
    old_enough = np.empty(size, dtype=np.int64)
    count = 0
    for at in range(size):
        if now - submit_s[jobs[at]] >= cycles.min_age_s:
            old_enough[count] = jobs[at]
            count += 1
    if count == 0:
        return False
    chosen = np.sort(old_enough[:count])
    if cycles.neutral[SEEN] < 0:
        _begin(cycles, float(np.median(cycles.delay_s[chosen])), now)
    due = _due(cycles, chosen)
    for job in due[: cycles.max_changes]:
        write(submit_s, key, cycles, job)
        cycles.writes[job] += 1
    _follow(cycles, chosen, now)
    if len(due) == 0 or cycles.max_changes == 0:
        return False
    queue = np.sort(jobs[:size])
    jobs[:size] = queue[np.argsort(key[queue], kind="mergesort")]
    return True


@compiled
def write(submit_s: FloatArray, key: FloatArray, cycles: Cycles, job: int) -> None:
    """Put a job's delay in force."""
    cycles.beyond_s[job] = _points(cycles.delay_s[job]) - _points(cycles.neutral[DELAY])
    key[job] = submit_s[job] + cycles.beyond_s[job]


@compiled
def submitted(submit_s: FloatArray, key: FloatArray, cycles: Cycles, job: int) -> None:
    """A job comes with its delay, where the site sets it at submission."""
    if cycles.neutral[SEEN] < 0:
        _begin(cycles, cycles.delay_s[job], submit_s[job])
    write(submit_s, key, cycles, job)


@compiled
def _points(delay_s: float) -> float:
    return math.floor(delay_s + 1e-6)


@compiled
def _begin(cycles: Cycles, delay_s: float, now: float) -> None:
    cycles.neutral[DELAY], cycles.neutral[RUNNING] = delay_s, delay_s
    cycles.neutral[SINCE], cycles.neutral[SEEN] = now, now


@compiled
def _due(cycles: Cycles, chosen: IntArray) -> IntArray:
    """The jobs whose delay in force is off, the largest errors first."""
    due = np.empty(len(chosen), dtype=np.int64)
    error_s = np.empty(len(chosen))
    neutral_s, count = _points(cycles.neutral[DELAY]), 0
    for job in chosen:
        wanted_s, have_s = cycles.delay_s[job], neutral_s + cycles.beyond_s[job]
        off_s = max(cycles.hysteresis * max(wanted_s, have_s), cycles.min_step_s, 1.0)
        error = have_s - wanted_s
        is_due = abs(error) > off_s or have_s > cycles.upper_s[job] + 1.0
        if is_due and _points(wanted_s) != have_s:
            due[count], error_s[count] = job, -abs(error)
            count += 1
    return due[:count][np.argsort(error_s[:count], kind="mergesort")]


@compiled
def _follow(cycles: Cycles, chosen: IntArray, now: float) -> None:
    """core/order.next_neutral."""
    passed_s = now - cycles.neutral[SEEN]
    if passed_s < NEUTRAL_LOOK_S:
        return
    share = min(passed_s / NEUTRAL_FOR_S, 1.0)
    median_s = float(np.median(cycles.delay_s[chosen]))
    running_s = cycles.neutral[RUNNING] + share * (median_s - cycles.neutral[RUNNING])
    off = abs(running_s - cycles.neutral[DELAY]) > NEUTRAL_OFF * cycles.neutral[DELAY]
    cycles.neutral[RUNNING], cycles.neutral[SEEN] = running_s, now
    if off and now - cycles.neutral[SINCE] >= NEUTRAL_FOR_S:
        _begin(cycles, running_s, now)


NO_CYCLES = Cycles(
    1.0, 0.0, 0.0, 0.0, 0, False, np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, np.int64),
    np.zeros(4),
)  # fmt: skip
"""Where no daemon writes."""
