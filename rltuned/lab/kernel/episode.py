# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The course of an episode: move to the next decision, choose, and to the end.

The same steps serve the whole-episode rollout here and, one call each, a scheduler outside compiled
code.

A network that corrects a rule orders by delays within their bounds. A job's score is less its
virtual time, in units of the mean delay that the rule asks of the queue. Of a network without a
rule the score itself is the order, equal ones by submission.

A decision is the choice of the next job to be looked at in a scheduling pass. Candidates are the
jobs whose choice has an effect: those that can start now and, where a partition has no blocked
head yet, those that would become it. Walking down a ranked queue, as Slurm does, is a row of such
choices, so ranking by score plus Gumbel noise draws each of them from the softmax over its
candidates: those still waiting for their turn are all bounded by the noise of the one before.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.lab.kernel.compiler import (
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    compiled,
    entry,
    in_place,
)
from rltuned.lab.kernel.demand import Demand, note_end
from rltuned.lab.kernel.features import (
    Features,
    Net,
    StaticFeatures,
    corrects,
    factor,
    forward,
    look,
)
from rltuned.lab.kernel.placement import (
    consider,
    finish,
    fits,
    harmless_until,
    place,
    record,
    restraints,
)
from rltuned.lab.kernel.ranking import Eyes, Ranking, heard
from rltuned.lab.kernel.state import RUNNING, Setup, State, begin_pass, stamp

# The choices of a scheduling pass: who can be chosen now, and what a choice does.


QUEUED, ARRIVED, PASSES = 0, 1, 2
"""Places in Desk.marks: pending jobs, jobs submitted so far, passes in which a job fitted."""
NOW, WAKE = 0, 1
"""Places in Desk.clock: the time, and when to look again if nothing happens (infinite: never)."""


class Desk(NamedTuple):
    """The scheduler's desk: clock, queue and work space.

    clock: [now, wake]. queue: (n,) pending jobs in submit order, marks[QUEUED] of them. fit,
    harmless: (S,) what is known of a shape, valid while fit_at, harmless_at equal the stamp of the
    moment. random: [state of the generator]. ranking: the rule that a network corrects, and its
    bounds. asked: (n, 4) see Tape; logits: (n, 2) what the network says.
    """

    clock: FloatArray
    marks: IntArray
    queue: IntArray
    scores: FloatArray
    gone: BoolArray
    effective: IntArray
    fit: BoolArray
    fit_at: IntArray
    harmless: BoolArray
    harmless_at: IntArray
    features: Features
    random: NDArray[np.uint64]
    ranking: Ranking
    asked: Float32Array
    logits: FloatArray


@in_place
def any_fits(setup: Setup, state: State, desk: Desk) -> bool:
    """Whether any pending job fits on what is free."""
    queue, shape_of, fit_at, fit = desk.queue, setup.jobs.shape, desk.fit_at, desk.fit
    moment = stamp(state)
    for at in range(desk.marks[QUEUED]):
        shape = shape_of[queue[at]]
        if fit_at[shape] == moment and not fit[shape]:
            continue
        if _fits_now(setup, state, desk, shape):
            return True
    return False


@in_place
def _fits_now(setup: Setup, state: State, desk: Desk, shape: int) -> bool:
    moment = stamp(state)
    if desk.fit_at[shape] != moment:
        desk.fit_at[shape] = moment
        desk.fit[shape] = fits(setup.shapes, shape, setup.hardware, state.free)
    return bool(desk.fit[shape])


@in_place
def _effective(setup: Setup, state: State, desk: Desk, job: int) -> bool:
    """Whether choosing the job now would start it or make it its partition's head."""
    shape, now = setup.jobs.shape[job], desk.clock[0]
    partition = setup.shapes.partition[shape]
    if not _fits_now(setup, state, desk, shape):
        return bool(state.head[partition] < 0)
    heads, restraint = restraints(setup, state, now + setup.jobs.limit_s[job], partition)
    if heads > 0 and not setup.easy:
        return False
    if not restraint:
        return True
    if heads > 1:
        return _beside(setup, state, now, job)
    if desk.harmless_at[shape] != stamp(state):
        desk.harmless_at[shape] = stamp(state)
        desk.harmless[shape] = _beside(setup, state, now, job)
    return bool(desk.harmless[shape])


@in_place
def _beside(setup: Setup, state: State, now: float, job: int) -> bool:
    shape = setup.jobs.shape[job]
    place(setup.shapes, shape, setup.hardware, state.free, setup.spread, state.chosen)
    offset = setup.jobs.offset[job]
    record(setup.shapes, shape, setup.hardware, state.chosen, offset, state.shares)
    latest_end = now + setup.jobs.limit_s[job]
    return bool(latest_end <= harmless_until(setup, state, job, latest_end))


@in_place
def list_candidates(setup: Setup, state: State, desk: Desk) -> int:
    """Fill desk.effective with the places in the queue of all candidates; how many. None are left
    once none of them can start: a new head then holds back no other job.
    """
    count, starts = 0, False
    for at in range(desk.marks[QUEUED]):
        if desk.gone[at]:
            continue
        job = desk.queue[at]
        if _effective(setup, state, desk, job):
            desk.effective[count] = at
            count += 1
            starts = starts or desk.fit[setup.jobs.shape[job]]
    return count if starts else 0


@in_place
def walk_past(desk: Desk, best: int) -> None:
    """Who stands before the chosen one had no effect, and is not looked at again in this pass. It
    matters: once another has started, such a job might be placed elsewhere and be harmless.
    """
    scores, gone = desk.scores, desk.gone
    highest = scores[best]
    for at in range(desk.marks[QUEUED]):
        mark = scores[at]
        if mark > highest or (mark == highest and at < best):
            gone[at] = True


@in_place
def choose_job(setup: Setup, state: State, desk: Desk, at: int) -> None:
    """Look at one job, as a scheduling pass does: it starts, or becomes a head, or stays."""
    desk.gone[at] = True
    consider(setup, state, desk.clock[0], desk.queue[at])


@in_place
def clear(state: State, desk: Desk) -> None:
    """Drop from the queue who has started."""
    kept = 0
    for at in range(desk.marks[QUEUED]):
        job = desk.queue[at]
        if math.isnan(state.start_s[job]):
            desk.queue[kept] = job
            kept += 1
    desk.marks[QUEUED] = kept


TAPE_PASSES, TAPE_ROWS, TAPE_DECISIONS, TAPE_CANDIDATES, TAPE_FULL = 0, 1, 2, 3, 4
"""Places in Tape.used: how much of each array is filled, and whether the tape was too short."""


class Tape(NamedTuple):
    """What is kept of an episode for learning. D decisions in Q passes over R rows.

    rows: (R, F). asked: (R, 4) of each job its wait, the two parts of the rule's delay and the
    bound, in units of the score; zeros where no rule is corrected. first: (Q+1,) where the rows of
    a pass begin. flags: (Q, 2) what the sampled slots hold (see look). now_s: (Q,). decision_pass:
    (D,). choice: (D,) row of the chosen job. candidates: rows that could have been chosen,
    candidate_first
    (D+1,) where they begin.
    """

    rows: Float32Array
    asked: Float32Array
    first: IntArray
    flags: IntArray
    now_s: FloatArray
    decision_pass: IntArray
    choice: IntArray
    candidates: IntArray
    candidate_first: IntArray
    used: IntArray


@entry
def episode(
    setup: Setup, state: State, desk: Desk, sight: StaticFeatures, net: Net, tape: Tape
) -> None:
    """Play a window, drawing a network's choices, to its end or until the tape is full."""
    while tape.used[TAPE_FULL] == 0 and _advance(setup, state, desk):
        _rank(setup, state, desk, sight, net, tape)
        _add_noise(desk, desk.scores, desk.marks[QUEUED])
        _pass(setup, state, desk, tape)


@entry
def advance(setup: Setup, state: State, desk: Desk) -> int:
    """To the next decision; the number of candidates, 0 = all jobs have ended."""
    return list_candidates(setup, state, desk) if _advance(setup, state, desk) else 0


@entry
def choose(setup: Setup, state: State, desk: Desk, at: int) -> int:
    """Choose the job at a place in the queue; candidates left in this pass, 0 = it is over."""
    choose_job(setup, state, desk, at)
    count = list_candidates(setup, state, desk)
    if count == 0:
        clear(state, desk)
    return count


@entry
def see(setup: Setup, state: State, desk: Desk, sight: StaticFeatures, flags: IntArray) -> int:
    """Fill desk.features.rows with the features of the queue; how many rows."""
    count = int(desk.marks[QUEUED])
    look(setup, state, sight, desk.features, desk.queue[:count], desk.clock[NOW], flags)
    return count


@entry
def score_rows(net: Net, rows: Float32Array, flags: IntArray, scores: FloatArray) -> None:
    """Fill scores (n, 2) with what a network says of rows (n, F)."""
    forward(net, rows, len(rows), flags, scores)


@in_place
def _advance(setup: Setup, state: State, desk: Desk) -> bool:
    """To the next instant at which a pending job fits; False when all jobs have ended."""
    submit_s, marks = setup.jobs.submit_s, desk.marks
    while True:
        now = _next_end(setup, state)
        if marks[ARRIVED] < len(submit_s):
            now = min(now, submit_s[marks[ARRIVED]])
        now = min(now, desk.clock[WAKE])
        if now == math.inf:
            return False
        desk.clock[NOW], desk.clock[WAKE] = now, math.inf
        _end_all(setup, state, desk.ranking.demand, now)
        while marks[ARRIVED] < len(submit_s) and submit_s[marks[ARRIVED]] == now:
            desk.queue[marks[QUEUED]] = marks[ARRIVED]
            marks[QUEUED] += 1
            marks[ARRIVED] += 1
        begin_pass(state)
        if any_fits(setup, state, desk):
            marks[PASSES] += 1
            desk.gone[: marks[QUEUED]] = False
            return True


@in_place
def _next_end(setup: Setup, state: State) -> float:
    soonest, start_s, runs_s = math.inf, state.start_s, setup.jobs.runs_s
    for i in range(state.counters[RUNNING]):
        job = state.running[i]
        soonest = min(soonest, start_s[job] + runs_s[job])
    return soonest


@in_place
def _end_all(setup: Setup, state: State, demand: Demand, now: float) -> None:
    i = 0
    while i < state.counters[RUNNING]:
        job = state.running[i]
        if state.start_s[job] + setup.jobs.runs_s[job] == now:
            finish(setup, state, job)
            note_end(demand, job, setup.jobs.runs_s[job])
        else:
            i += 1


@compiled
def _rank(
    setup: Setup, state: State, desk: Desk, sight: StaticFeatures, net: Net, tape: Tape
) -> None:
    count, now, ranking = desk.marks[QUEUED], desk.clock[NOW], desk.ranking
    flags = tape.flags[min(tape.used[TAPE_PASSES], len(tape.flags) - 1)]
    queue, demand = desk.queue[:count], ranking.demand
    eyes = Eyes(sight, desk.features, net, flags, desk.logits)
    own_s, backlog_s, place = heard(setup, state, ranking, eyes, queue, now)
    if not corrects(net):
        desk.asked[:count] = 0.0
        desk.scores[:count] = desk.logits[:count, 0]
        return
    own_s, queue_s = demand.own * own_s, demand.share * backlog_s * place
    upper_s = np.minimum(demand.clip_s[queue] + demand.share * backlog_s, demand.most_s[queue])
    unit_s = max(np.minimum(own_s + queue_s, upper_s).mean(), 1.0)
    for at in range(count):
        wait, upper = (now - setup.jobs.submit_s[queue[at]]) / unit_s, upper_s[at] / unit_s
        own, share = own_s[at] / unit_s, queue_s[at] / unit_s
        desk.asked[at, 0], desk.asked[at, 1] = wait, own
        desk.asked[at, 2], desk.asked[at, 3] = share, upper
        own *= factor(net.reach, net.trust, desk.logits[at, 0])
        share *= factor(net.reach, net.trust, desk.logits[at, 1])
        desk.scores[at] = wait - min(own + share, upper)


@compiled
def _pass(setup: Setup, state: State, desk: Desk, tape: Tape) -> None:
    """Choose until there is no candidate; keep the choices that were choices."""
    used = tape.used
    decisions, candidates, waiting = used[TAPE_DECISIONS], used[TAPE_CANDIDATES], desk.marks[QUEUED]
    if not _room(tape, waiting):
        return
    count = list_candidates(setup, state, desk)
    while count > 0:
        best = _first(desk, count)
        if count > 1:
            _keep(tape, desk, best, count)
        walk_past(desk, best)
        choose_job(setup, state, desk, best)
        count = list_candidates(setup, state, desk)
    clear(state, desk)
    if desk.marks[QUEUED] == 0:  # all of them started: whatever was chosen first
        used[TAPE_DECISIONS], used[TAPE_CANDIDATES] = decisions, candidates
    elif used[TAPE_DECISIONS] > decisions:
        _keep_rows(tape, desk, waiting)


@in_place
def _first(desk: Desk, count: int) -> int:
    """The best of the candidates."""
    best = desk.effective[0]
    for i in range(count):
        at = desk.effective[i]
        if desk.scores[at] > desk.scores[best]:
            best = at
    return int(best)


@in_place
def _room(tape: Tape, waiting: int) -> bool:
    used = tape.used
    enough = (
        used[TAPE_PASSES] + 1 < len(tape.first)
        and used[TAPE_ROWS] + waiting <= len(tape.rows)
        and used[TAPE_DECISIONS] + waiting < len(tape.choice)
        and used[TAPE_CANDIDATES] + waiting * (waiting + 1) // 2 <= len(tape.candidates)
    )
    if not enough:
        used[TAPE_FULL] += 1
    return bool(enough)


@in_place
def _keep(tape: Tape, desk: Desk, best: int, count: int) -> None:
    used = tape.used
    decision, start, base = used[TAPE_DECISIONS], used[TAPE_CANDIDATES], used[TAPE_ROWS]
    for i in range(count):
        tape.candidates[start + i] = base + desk.effective[i]
    tape.choice[decision] = base + best
    tape.decision_pass[decision] = used[TAPE_PASSES]
    tape.candidate_first[decision + 1] = start + count
    used[TAPE_DECISIONS] += 1
    used[TAPE_CANDIDATES] += count


@compiled
def _keep_rows(tape: Tape, desk: Desk, waiting: int) -> None:
    used = tape.used
    number, base = used[TAPE_PASSES], used[TAPE_ROWS]
    tape.rows[base : base + waiting] = desk.features.rows[:waiting]
    tape.asked[base : base + waiting] = desk.asked[:waiting]
    tape.now_s[number] = desk.clock[NOW]
    tape.first[number + 1] = base + waiting
    used[TAPE_PASSES] += 1
    used[TAPE_ROWS] += waiting


@compiled
def _add_noise(desk: Desk, scores: FloatArray, count: int) -> None:
    """Add Gumbel noise, from a 64-bit xorshift generator kept here: the same on every machine."""
    x = desk.random[0]
    for at in range(count):
        x ^= x >> np.uint64(12)
        x ^= x << np.uint64(25)
        x ^= x >> np.uint64(27)
        uniform = (
            np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) + 0.5
        ) / 2.0**53
        scores[at] -= math.log(-math.log(uniform))
    desk.random[0] = x
