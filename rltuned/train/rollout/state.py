"""What an episode carries besides the engine's own state."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.sim.engine.arrays import BoolArray, FloatArray, IntArray
from rltuned.sim.engine.look import Features, Float32Array

QUEUED, ARRIVED, PASSES = 0, 1, 2
"""Places in Desk.marks: pending jobs, jobs submitted so far, passes in which a job fitted."""
NOW, WAKE = 0, 1
"""Places in Desk.clock: the time, and when to look again if nothing happens (infinite: never)."""
TAPE_PASSES, TAPE_ROWS, TAPE_DECISIONS, TAPE_CANDIDATES, TAPE_FULL = 0, 1, 2, 3, 4
"""Places in Tape.used: how much of each array is filled, and whether something was left out."""


class Desk(NamedTuple):
    """The scheduler's desk: clock, queue and work space.

    clock: [now, wake]. queue: (n,) pending jobs in submit order, marks[QUEUED] of them. fit,
    harmless: (S,) what is known of a shape, valid while fit_at, harmless_at equal the stamp of the
    moment. random: [state of the generator].
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


class Tape(NamedTuple):
    """What is kept of an episode for learning. D decisions in Q passes over R rows.

    rows: (R, F). first: (Q+1,) where the rows of a pass begin. flags: (Q, 2) what the
    sampled slots hold (see look). now_s: (Q,). decision_pass: (D,). choice: (D,) row of the chosen
    job. candidates: rows that could have been chosen, candidate_first (D+1,) where they begin.
    """

    rows: Float32Array
    first: IntArray
    flags: IntArray
    now_s: FloatArray
    decision_pass: IntArray
    choice: IntArray
    candidates: IntArray
    candidate_first: IntArray
    used: IntArray
