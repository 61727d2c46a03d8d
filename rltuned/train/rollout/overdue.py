"""core/starvation, compiled: the same jobs are overdue at the same moment."""

import math

from rltuned.sim.engine.arrays import compiled
from rltuned.sim.engine.dispatch import RUNNING, Setup, State
from rltuned.train.rollout.state import QUEUED, Desk, Sight


@compiled
def lift_overdue(setup: Setup, state: State, sight: Sight, desk: Desk) -> None:
    """Give overdue jobs the highest score of those submitted later; of equals the first one goes.

    The queue stands in submit order.
    """
    now, bound_s, factor = desk.clock[0], desk.starvation[0], desk.starvation[1]
    submit_s, shape_of = setup.jobs.submit_s, setup.jobs.shape
    if bound_s == math.inf:
        return
    highest = -math.inf
    for at in range(desk.marks[QUEUED] - 1, -1, -1):
        job = desk.queue[at]
        wait_s, usable = now - submit_s[job], desk.usable[shape_of[job]]
        highest = max(highest, desk.scores[at])
        if wait_s > bound_s and (
            usable == 0 or wait_s * usable > factor * _held_s(setup, state, sight, now, job)
        ):
            desk.scores[at] = highest


@compiled
def _held_s(setup: Setup, state: State, sight: Sight, now: float, job: int) -> float:
    """GPU-seconds that running jobs submitted until then hold since, of what the job could use."""
    submit_s, start_s, shape_of = setup.jobs.submit_s, state.start_s, setup.jobs.shape
    offset, width, row = setup.jobs.offset, setup.shapes.width, setup.hardware.row
    node, gpus, since = state.shares.node, state.shares.gpus, submit_s[job]
    member = setup.hardware.member[setup.shapes.partition[shape_of[job]]]
    wanted, held_s = sight.wanted[shape_of[job]], 0.0
    for i in range(state.counters[RUNNING]):
        other = state.running[i]
        if submit_s[other] > since:
            continue
        for at in range(offset[other], offset[other] + width[shape_of[other]]):
            if member[node[at]] and wanted[row[node[at]]]:
                held_s += gpus[at] * (now - max(start_s[other], since))
    return held_s
