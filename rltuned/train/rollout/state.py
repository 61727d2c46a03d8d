"""What an episode carries besides the engine's own state."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.sim.engine.arrays import BoolArray, FloatArray, IntArray

Float32Array = NDArray[np.float32]

QUEUED, ARRIVED, PASSES = 0, 1, 2
"""Places in Desk.marks: pending jobs, jobs submitted so far, passes in which somebody fitted."""
TAPE_PASSES, TAPE_ROWS, TAPE_DECISIONS, TAPE_CANDIDATES, TAPE_FULL = 0, 1, 2, 3, 4
"""Places in Tape.used: how much of each array is filled, and whether something was left out."""


class Sight(NamedTuple):
    """What a policy may know and what never changes. S shapes, P partitions, T GPU types, n jobs.

    wanted: (S, T+1) rows of GPU types that a request accepts. all_gpus, nodes: (P, T+1) of the
    hardware. fixed: (n, F) the columns that do not depend on the moment, others zero; F is
    NUM_FEATURES, or more where a predictor adds its own.
    """

    wanted: BoolArray
    all_gpus: IntArray
    nodes: IntArray
    fixed: Float32Array


class Net(NamedTuple):
    """A network's weights; kind: PAPER or CONTEXT. F inputs, H and K hidden units.

    w1 (F, H), b1 (H,), w2 (H, K), pooled (2 H, K; empty for PAPER), b2 (K,), w3 (K,), b3 (1,).
    """

    kind: int
    w1: Float32Array
    b1: Float32Array
    w2: Float32Array
    pooled: Float32Array
    b2: Float32Array
    w3: Float32Array
    b3: Float32Array


class Desk(NamedTuple):
    """The scheduler's desk: clock, queue and work space.

    clock: [now]. queue: (n,) pending jobs in submit order, marks[QUEUED] of them. fit, harmless:
    (S,) what is known of a shape, valid while fit_at, harmless_at equal the stamp of the moment.
    survey: (S, 6); surveyed: (S,) pass of the last look. random: [state of the generator].
    starvation: [bound_s, factor], see core/starvation; usable: (S,) GPUs that a shape could use.
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
    survey: FloatArray
    surveyed: IntArray
    sums: FloatArray
    back: FloatArray
    rows: Float32Array
    random: NDArray[np.uint64]
    starvation: FloatArray
    usable: IntArray


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
