"""core/order, compiled: a network's scores as virtual times, within the bounds of every job."""

import math

from rltuned.sim.engine.arrays import compiled
from rltuned.sim.engine.dispatch import Setup
from rltuned.train.rollout.state import QUEUED, Desk


@compiled
def delay_all(setup: Setup, desk: Desk) -> None:
    """Turn scores into less the virtual time: the score's delay, clipped, after the submission."""
    if len(desk.upper_s) == 0:
        return
    submit_s = setup.jobs.submit_s
    for at in range(desk.marks[QUEUED]):
        job = desk.queue[at]
        delay_s = desk.stretch[0] * math.exp(_log_delay(desk, desk.scores[at]))
        desk.scores[at] = -(submit_s[job] + min(delay_s, desk.upper_s[job]))


@compiled
def _log_delay(desk: Desk, score: float) -> float:
    """The bundle's curve, as numpy's interp reads it."""
    points, values = desk.curve[0], desk.curve[1]
    last = len(points) - 1
    if score <= points[0]:
        return float(values[0])
    if score >= points[last]:
        return float(values[last])
    high = 1
    while points[high] < score:
        high += 1
    slope = (values[high] - values[high - 1]) / (points[high] - points[high - 1])
    return float(slope * (score - points[high - 1]) + values[high - 1])
