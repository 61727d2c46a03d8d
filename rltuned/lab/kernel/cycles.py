# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The daemon's cycle, compiled: core/order and core/numbers with what the journal remembers.

tests/sim/test_cycles.py plays it beside the daemon's own `decide`.
"""

import math
from typing import NamedTuple

import numpy as np

from rltuned.core.numbers import AHEAD_S, EPOCH_S, FIRST_HYSTERESIS
from rltuned.core.order import NEUTRAL_FOR_S, NEUTRAL_LOOK_S, NEUTRAL_OFF, NEUTRAL_OVER_S
from rltuned.domain.plan import MAX_PRIORITY, MAX_SITE_FACTOR
from rltuned.lab.kernel.compiler import (
    BoolArray,
    FloatArray,
    IntArray,
    ascending,
    compiled,
    in_place,
)
from rltuned.lab.kernel.demand import Demand, in_turns, median_of_users, users_among
from rltuned.lab.kernel.ranking import FIXED, Eyes, Ranking, natural, scores, wishes
from rltuned.lab.kernel.state import PENDING, PendingQueue, Setup, State, place_of, rank

DELAY, SINCE, RUNNING, SEEN = 0, 1, 2, 3
"""Places in Cycles.neutral, as in NeutralDelay; SEEN < 0: none has been found yet."""
HOUR_S = 3_600.0
_ROUNDING = 1e-6


class Cycles(NamedTuple):
    """What the daemon knows and remembers of n jobs; managed empty: there is no daemon.

    rule: of the policy; asks: it may ask for a delay. first_s: of a cycle, from which the others
    are counted. on_s: when the daemon is switched on; Slurm looks at its queue every interval
    before it as well, so that both have the same passes. basic: numbers are priorities, not site
    factors. slope: points per second. managed: jobs in scope. origin, per_point: of the key of a
    FIXED order, origin - value x per_point. writes: how often each was written. written_s: (n,
    most) when, in a ring, where a job is written so often within an hour at most; (n, 0) = any
    number of times. last_s: when each was written last; 0 = not known, as in Ownership. neutral:
    see DELAY.
    """

    rule: int
    first_s: float
    on_s: float
    interval_s: float
    min_age_s: float
    hysteresis: float
    min_step_s: float
    max_changes: int
    basic: bool
    asks: bool
    slope: float
    managed: BoolArray
    origin: FloatArray
    per_point: float
    writes: IntArray
    written_s: FloatArray
    last_s: FloatArray
    neutral: FloatArray
    compares: bool


class Scale(NamedTuple):
    """core/numbers.Numbers of one cycle. zero: the number of the neutral delay; since_s: where a
    basic one counts from; full_age_s: PriorityMaxAge.
    """

    now: float
    basic: bool
    slope: float
    zero: float
    since_s: float
    full_age_s: float


@in_place
def next_tick(now: float, first: float, interval_s: float) -> float:
    """The first cycle after a time."""
    tick = tick_at(now, first, interval_s)
    if tick <= now:
        tick = first + (np.rint((now - first) / interval_s) + 1) * interval_s
    return tick


@in_place
def tick_at(now: float, first: float, interval_s: float) -> float:
    """The first cycle at or after a time."""
    tick = first + math.ceil((now - first) / interval_s) * interval_s
    return tick if tick >= now else tick + interval_s


@compiled
def cycle(
    setup: Setup,
    state: State,
    ranking: Ranking,
    eyes: Eyes,
    queue: PendingQueue,
    cycles: Cycles,
    now: float,
) -> tuple[float, int, int, float, int]:
    """Write what is due. Returns the time, pending jobs, changes, and the mean and the largest
    shift of ranks; these are NaN and -1 where they are not compared.
    """
    jobs = queue.jobs[: queue.size[PENDING]]
    chosen = chosen_now(setup, cycles, jobs, now) if cycles.asks or cycles.basic else jobs[:0]
    if len(chosen) == 0:
        return now, len(jobs), 0, 0.0, 0
    wished_s, upper_s = wishes(setup, state, ranking, eyes, cycles.rule, chosen, now)
    bounded_s = np.minimum(wished_s, upper_s)
    if cycles.neutral[SEEN] < 0:
        _begin(cycles, _median_s(ranking.demand, chosen, bounded_s), now)
    else:
        _follow(cycles, ranking.demand, chosen, bounded_s, now)
    due, delay_s = _due(setup, ranking, cycles, chosen, bounded_s, upper_s, now)
    due = due[: cycles.max_changes]
    if len(due) == 0:
        return now, len(jobs), 0, 0.0, 0
    before = ordered(setup, state, ranking, eyes, jobs, now) if cycles.compares else jobs[:0]
    _put_in_force(setup, ranking, queue, cycles, chosen[due], delay_s[due], now)
    if not cycles.compares:
        return now, len(jobs), len(due), math.nan, -1
    shift, furthest = shifts(before, ordered(setup, state, ranking, eyes, jobs, now))
    return now, len(jobs), len(due), shift, furthest


@compiled
def _put_in_force(
    setup: Setup,
    ranking: Ranking,
    queue: PendingQueue,
    cycles: Cycles,
    jobs: IntArray,
    delay_s: FloatArray,
    now: float,
) -> None:
    """Write the delays (k,) of jobs (k,), and put them to their new places."""
    for at in range(len(jobs)):
        job = jobs[at]
        place = place_of(queue, job) if ranking.rule == FIXED else 0
        write(setup, ranking, cycles, job, delay_s[at], now)
        _note(cycles, job, now)
        if ranking.rule == FIXED:
            rank(queue, place, job)


@compiled
def ordered(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, jobs: IntArray, now: float
) -> IntArray:
    """The queue in Slurm's order now."""
    if ranking.rule == FIXED:
        return jobs[ascending(ranking.key[jobs])]
    found = scores(setup, state, ranking, eyes, jobs, now)
    return jobs[ascending(-found)]


@compiled
def shifts(before: IntArray, after: IntArray) -> tuple[float, int]:
    """Mean and largest difference of the ranks of the same jobs."""
    by_before = ascending(before.astype(np.float64))
    by_after = ascending(after.astype(np.float64))
    total, furthest = 0, 0
    for at in range(len(before)):
        shift = abs(by_before[at] - by_after[at])
        total += shift
        furthest = max(furthest, shift)
    return total / len(before), furthest


@compiled
def chosen_now(setup: Setup, cycles: Cycles, jobs: IntArray, now: float) -> IntArray:
    """The jobs that the daemon orders now, in submit order."""
    found = np.empty(len(jobs), dtype=np.int64)
    count = 0
    for job in jobs:
        if not cycles.managed[job] or now - setup.jobs.submit_s[job] < cycles.min_age_s:
            continue
        found[count] = job
        count += 1
    return found[:count]


@in_place
def _is_spent(cycles: Cycles, job: int, now: float) -> bool:
    """Whether it was written to as often as it may be within an hour."""
    per_hour = cycles.written_s.shape[1]
    if per_hour == 0:
        return False
    return bool(cycles.written_s[job, cycles.writes[job] % per_hour] > now - HOUR_S)


@in_place
def _note(cycles: Cycles, job: int, now: float) -> None:
    per_hour = cycles.written_s.shape[1]
    if per_hour > 0:
        cycles.written_s[job, cycles.writes[job] % per_hour] = now
    cycles.last_s[job] = now
    cycles.writes[job] += 1


@in_place
def _scale(ranking: Ranking, cycles: Cycles, now: float) -> Scale:
    zero, full_age_s = float(MAX_PRIORITY), ranking.constants[1]
    if not cycles.basic:
        zero = float(math.floor(cycles.slope * cycles.neutral[DELAY] + _ROUNDING))
    since_s = (now // EPOCH_S - 1) * EPOCH_S
    return Scale(now, cycles.basic, cycles.slope, zero, since_s, full_age_s)


@in_place
def _offset_s(scale: Scale, submit_s: float) -> float:
    """What a job's number counts beside its delay."""
    if scale.basic:
        return submit_s - scale.since_s
    beyond_s = scale.now - submit_s - scale.full_age_s
    return -(math.ceil(beyond_s / AHEAD_S) * AHEAD_S) if beyond_s > 0 else -0.0


@in_place
def _within_room(setup: Setup, ranking: Ranking, scale: Scale, job: int, delay_s: float) -> float:
    """The delay, or the longest with which the priority would be at least 1 were the job new."""
    wait_s = max(scale.now - setup.jobs.submit_s[job], 0.0)
    base = natural(ranking, job, wait_s)
    longest_s = (base + scale.zero - 1) / scale.slope - min(wait_s, scale.full_age_s)
    return float(min(delay_s, max(longest_s, 0.0)))


@in_place
def _number(scale: Scale, asked_s: float) -> int:
    """asked_s: delay and offset."""
    found = scale.zero - math.floor(scale.slope * asked_s + _ROUNDING)
    if scale.basic:
        return int(min(max(found, 1.0), float(MAX_PRIORITY)))
    return int(min(max(min(found, scale.zero), -float(MAX_SITE_FACTOR)), float(MAX_SITE_FACTOR)))


@in_place
def write(
    setup: Setup, ranking: Ranking, cycles: Cycles, job: int, delay_s: float, now: float
) -> None:
    """Put a job's delay in force."""
    scale = _scale(ranking, cycles, now)
    ranking.value[job] = _number(scale, delay_s + _offset_s(scale, setup.jobs.submit_s[job]))
    ranking.key[job] = cycles.origin[job] - ranking.value[job] * cycles.per_point


@compiled
def _begin(cycles: Cycles, delay_s: float, now: float) -> None:
    cycles.neutral[DELAY], cycles.neutral[RUNNING] = delay_s, delay_s
    cycles.neutral[SINCE], cycles.neutral[SEEN] = now, now


@compiled
def _due(
    setup: Setup,
    ranking: Ranking,
    cycles: Cycles,
    chosen: IntArray,
    bounded_s: FloatArray,
    upper_s: FloatArray,
    now: float,
) -> tuple[IntArray, FloatArray]:
    """Places of the jobs whose delay in force is off, the most urgent first; all delays."""
    due = np.empty(len(chosen), dtype=np.int64)
    error_s, urgent = np.empty(len(chosen)), np.empty(len(chosen))
    delay_s, terms, value = bounded_s.copy(), ranking.terms, ranking.value
    submit_s, writes, last_s = setup.jobs.submit_s, cycles.writes, cycles.last_s
    scale, hysteresis = _scale(ranking, cycles, now), cycles.hysteresis
    min_step_s = cycles.min_step_s
    point_s, since_s, count = 1.0 / scale.slope, cycles.neutral[SINCE], 0
    for at in range(len(chosen)):
        job = chosen[at]
        if not scale.basic:
            # less than the least room there can be: two roundings down
            least = terms[job, 0] + terms[job, 1] + terms[job, 2] + scale.zero - 2.0
            if delay_s[at] * scale.slope > least:
                delay_s[at] = _within_room(setup, ranking, scale, job, delay_s[at])
        wanted_s, offset_s = delay_s[at], _offset_s(scale, submit_s[job])
        have_s = (scale.zero - value[job]) / scale.slope - offset_s
        error, share = have_s - wanted_s, hysteresis
        if writes[job] == 0:
            share = min(share, FIRST_HYSTERESIS)
        elif not scale.basic and 0.0 < last_s[job] < since_s:
            share = 0.0
        off_s = max(share * max(wanted_s, have_s), min_step_s, point_s)
        if not (abs(error) > off_s or have_s > upper_s[at] + point_s):
            continue
        number = _number(scale, wanted_s + offset_s)
        if number == value[job] or (number > value[job] and _is_spent(cycles, job, now)):
            continue
        due[count], error_s[at] = at, abs(error)
        urgent[at] = float(number) if scale.basic else abs(error)
        count += 1
    return _by_turn(ranking.demand, cycles, chosen, due[:count], urgent, error_s), delay_s


@compiled
def _by_turn(
    demand: Demand,
    cycles: Cycles,
    chosen: IntArray,
    due: IntArray,
    urgent: FloatArray,
    error_s: FloatArray,
) -> IntArray:
    """core/numbers._by_turn. urgent, error_s: by place."""
    again = (cycles.writes[chosen] > 0).astype(np.float64)
    order = due[ascending(-urgent[due])]
    order = order[ascending(again[order])]
    user, users = users_among(demand, chosen)
    found = in_turns(order, user, users)
    if not cycles.basic:
        return found
    is_risen = (again[found] > 0.0) & (error_s[found] > EPOCH_S / 2)
    risen = found[is_risen]
    return np.concatenate((risen[ascending(-urgent[risen])], found[~is_risen]))


@compiled
def _median_s(demand: Demand, jobs: IntArray, delay_s: FloatArray) -> float:
    """core/order._median_s."""
    user, users = users_among(demand, jobs)
    return median_of_users(delay_s, ascending(delay_s), np.ones(len(delay_s)), user, users)


@compiled
def _follow(
    cycles: Cycles, demand: Demand, jobs: IntArray, delay_s: FloatArray, now: float
) -> None:
    """core/order.next_neutral."""
    passed_s = now - cycles.neutral[SEEN]
    if passed_s < NEUTRAL_LOOK_S:
        return
    share = min(passed_s / NEUTRAL_OVER_S, 1.0)
    median_s = _median_s(demand, jobs, delay_s)
    running_s = cycles.neutral[RUNNING] + share * (median_s - cycles.neutral[RUNNING])
    off = abs(running_s - cycles.neutral[DELAY]) > NEUTRAL_OFF * cycles.neutral[DELAY]
    cycles.neutral[RUNNING], cycles.neutral[SEEN] = running_s, now
    if off and now - cycles.neutral[SINCE] >= NEUTRAL_FOR_S:
        _begin(cycles, running_s, now)


NO_CYCLES = Cycles(
    FIXED, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0, False, False, 1.0, np.zeros(0, np.bool_), np.zeros(0),
    1.0, np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros(0), np.zeros(4), False,
)  # fmt: skip
"""Where no daemon writes."""
