"""What an episode carries besides the engine's own state."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.sim.engine.arrays import BoolArray, FloatArray, IntArray

Float32Array = NDArray[np.float32]

QUEUED, ARRIVED, PASSES, WAKES = 0, 1, 2, 3
"""Places in Desk.marks: pending jobs, jobs submitted so far, passes in which somebody fitted, and
instants at which nothing happened but a second try after a rejection."""
NOW, WAKE = 0, 1
"""Places in Desk.clock: the time, and when a rejection wants a second try (infinite: never)."""
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
    """A network's weights. F inputs, H and K hidden units; kind: as in rollout/nets.

    w1 (F, H), b1 (H,), w2 (H, K), pooled (2 H, K; empty but for CONTEXT), b2 (K,), deep (K, L) and
    deep_b (L,) of a third hidden layer (empty: none, and L = K), w3 (L,), b3 (1,). base: of an
    inspector, the place of its rule in episodes.RULES; else -1.
    """

    kind: int
    w1: Float32Array
    b1: Float32Array
    w2: Float32Array
    pooled: Float32Array
    b2: Float32Array
    deep: Float32Array
    deep_b: Float32Array
    w3: Float32Array
    b3: Float32Array
    base: int


class Desk(NamedTuple):
    """The scheduler's desk: clock, queue and work space.

    clock: [now, wake]. queue: (n,) pending jobs in submit order, marks[QUEUED] of them. fit,
    harmless: (S,) what is known of a shape, valid while fit_at, harmless_at equal the stamp of the
    moment. survey: (S, 6); surveyed: (S,) pass of the last look. random: [state of the generator].
    upper_s: (n,) bounds of the delays, empty: none; curve: (2, q) scores and ln delays of a bundle;
    stretch: [of the delays]. rejected: (n,) how often an inspector refused each job.
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
    upper_s: FloatArray
    curve: FloatArray
    stretch: FloatArray
    rejected: IntArray


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
