# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""SchedInspector's pass, compiled: a base rule's picks are accepted, or all wait for another try.

The twin of sim/rivals and policies/rivals. The picks of a pass are judged as it begins, in the
base rule's order, until one is rejected (it and all behind it wait) or one does not fit on what is
free (it becomes the blocked head, and what is behind it is backfill, which nobody inspects).
"""

import math

import numpy as np

from rltuned.core.features import COLUMN, LIMIT_FULL_S
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.policies.rivals import INTERVAL_S, MOST_REJECTIONS
from rltuned.sim.engine.arrays import ascending, compiled
from rltuned.sim.engine.dispatch import Setup, State
from rltuned.sim.engine.look import Float32Array
from rltuned.sim.engine.nets import Net, forward
from rltuned.train.rollout.choice import walk_greedily
from rltuned.train.rollout.noise import add_noise
from rltuned.train.rollout.state import (
    NOW,
    QUEUED,
    TAPE_CANDIDATES,
    TAPE_DECISIONS,
    TAPE_FULL,
    TAPE_PASSES,
    TAPE_ROWS,
    WAKE,
    Desk,
    Tape,
)

PAIR = 2
_WAIT, _LIMIT, _GPUS = COLUMN["submit_time"], COLUMN["requested_time"], COLUMN["requested_gpus"]
_FREE, _CAN = COLUMN["free_nodes"], COLUMN["can_schedule_now"]
_LOG_LIMIT_FULL = math.log1p(LIMIT_FULL_S)
_LOG_DELAY_FULL = math.log1p(MAX_QUEUE_SIZE)


@compiled
def inspect(
    setup: Setup,
    state: State,
    desk: Desk,
    net: Net,
    tape: Tape,
    sample: bool,
    store: bool,
) -> None:
    """One pass; desk.scores hold what the base rule says, desk.features.rows the features."""
    count = desk.marks[QUEUED]
    order = ascending(-desk.scores[:count])
    delay, can = _queue(desk.features.rows, count)
    pair, scores = np.zeros((PAIR, len(net.w1)), dtype=np.float32), np.empty(PAIR)
    for turn in range(count if can > 0.0 else 0):
        at = order[turn]
        job = desk.queue[at]
        if desk.rejected[job] < MOST_REJECTIONS:
            _describe(pair[0], desk.features.rows[at], desk.rejected[job], delay, can, count)
            forward(net, pair, PAIR, tape.flags[0], scores)
            if sample:
                add_noise(desk, scores, PAIR)
            reject = scores[0] < scores[1]
            if store:
                _keep(tape, pair, reject, desk.clock[NOW])
            if reject:
                desk.rejected[job] += 1
                desk.gone[order[turn:]] = True
                desk.clock[WAKE] = desk.clock[NOW] + INTERVAL_S
                break
        if desk.features.rows[at, _CAN] == 0.0:
            break
    walk_greedily(setup, state, desk)


@compiled
def _queue(rows: Float32Array, count: int) -> tuple[float, float]:
    """Slowdown that another interval adds, and how many could start now."""
    delay, can = 0.0, 0.0
    for at in range(count):
        limit_s = math.expm1(np.float64(rows[at, _LIMIT]) * _LOG_LIMIT_FULL)
        delay += INTERVAL_S / max(limit_s, INTERVAL_S)
        can += rows[at, _CAN]
    return delay, can


@compiled
def _describe(
    out: Float32Array, row: Float32Array, rejections: int, delay: float, can: float, count: int
) -> None:
    out[0], out[1], out[2] = row[_WAIT], row[_LIMIT], row[_GPUS]
    out[3] = rejections / MOST_REJECTIONS
    out[4] = min(math.log1p(delay) / _LOG_DELAY_FULL, 1.0)
    out[5], out[6] = row[_FREE], row[_CAN]
    out[7] = (can - row[_CAN]) / max(count - 1, 1)


@compiled
def _keep(tape: Tape, pair: Float32Array, reject: bool, now: float) -> None:
    """One choice between two rows, as a moment of its own."""
    used = tape.used
    moment, row, choice = used[TAPE_PASSES], used[TAPE_ROWS], used[TAPE_DECISIONS]
    among = used[TAPE_CANDIDATES]
    full = (
        moment + 1 >= len(tape.first)
        or row + PAIR > len(tape.rows)
        or choice + 1 >= len(tape.choice)
        or among + PAIR > len(tape.candidates)
    )
    if full:
        used[TAPE_FULL] += 1
        return
    tape.rows[row : row + PAIR] = pair
    tape.candidates[among], tape.candidates[among + 1] = row, row + 1
    tape.choice[choice] = row + 1 if reject else row
    tape.decision_pass[choice], tape.now_s[moment] = moment, now
    tape.candidate_first[choice + 1], tape.first[moment + 1] = among + PAIR, row + PAIR
    used[TAPE_PASSES] += 1
    used[TAPE_ROWS] += PAIR
    used[TAPE_DECISIONS] += 1
    used[TAPE_CANDIDATES] += PAIR
