"""The choices of a scheduling pass: who can be chosen now, and what a choice does."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.lab.kernel.backfill import consider, harmless_until, restraints
from rltuned.lab.kernel.compiler import BoolArray, Float32Array, FloatArray, IntArray, in_place
from rltuned.lab.kernel.features import Features
from rltuned.lab.kernel.placement import fits, place, record
from rltuned.lab.kernel.ranking import Ranking
from rltuned.lab.kernel.state import Setup, State, stamp

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
