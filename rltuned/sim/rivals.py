"""SchedInspector in the simulator: somebody objects to what a base policy would start next.

Zhang et al., HPDC'22. The base policy's picks of a pass are judged in its order as the pass begins,
until one is rejected or one does not fit on what is free. A pick that does not fit becomes the
blocked head, and what is behind it is backfill, which nobody inspects. After a rejection the pick
and everybody behind it wait: the base policy tries again when something happens, at the latest
after `INTERVAL_S`. A job that was rejected `MOST_REJECTIONS` times is let through unasked, so no
job waits for ever. Where nobody could start, nobody is asked.

This leaves GPUs idle that a job could use, which whoever only orders a queue cannot do. Where the
daemon's own brain decides (mode `cycle`, placement `milp`), a rejected pick goes behind the others
instead of making Slurm wait.

RLScheduler needs no place of its own here: its network scores the queue (policies/actor).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rltuned.core.capacity import IntArray
from rltuned.core.features import UNLIMITED_AS_S, FloatArray, StateMatrix, encode
from rltuned.core.order import Policy, checked_scores
from rltuned.domain.units import JobId
from rltuned.policies.rivals import INTERVAL_S, MOST_REJECTIONS
from rltuned.sim.backend import snapshot_of
from rltuned.sim.world import Pending, World


class Inspector(Protocol):
    """SchedInspector's network (policies/actor), or a stand-in."""

    def accepts(self, matrix: StateMatrix, row: int, rejections: int) -> bool:
        """Whether the base policy's pick may go; rejections: how often it was refused."""
        ...


@dataclass(slots=True)
class Inspected:
    """A base policy under inspection; one per run, because it counts rejections."""

    base: Policy
    inspector: Inspector
    most: int = MOST_REJECTIONS
    name: str = "schedinspector"
    static: bool = False
    rejections: dict[JobId, int] = field(default_factory=dict)
    wake_s: float = math.inf
    """When the base policy tries again, unless something happens before."""

    def order(self, world: World) -> Sequence[Pending]:
        """Who may start in this pass, in the base policy's order; the others wait."""
        snapshot = snapshot_of(world)
        matrix = encode(snapshot.pending, snapshot)
        ranked = self._ranked(matrix)
        cut = self._rejected(matrix, ranked)
        self.wake_s = world.now + INTERVAL_S if cut < len(ranked) else math.inf
        return [world.pending[matrix.jobs[row].job_id] for row in ranked[:cut].tolist()]

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) the base policy's order, a rejected pick behind all others."""
        ranked = self._ranked(matrix)
        cut = self._rejected(matrix, ranked)
        ranked = np.concatenate([ranked[:cut], ranked[cut + 1 :], ranked[cut : cut + 1]])
        scores = np.empty(len(ranked))
        scores[ranked] = -np.arange(len(ranked), dtype=np.float64)
        return scores

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        """(n,) seconds at stretch 1: the base policy's; a rejected pick's as long as may be."""
        ranked = self._ranked(matrix)
        cut = self._rejected(matrix, ranked)
        delays = np.array(self.base.delay_s(matrix))
        delays[ranked[cut : cut + 1]] = UNLIMITED_AS_S
        return delays

    def _ranked(self, matrix: StateMatrix) -> IntArray:
        # jobs stand in submit order, which a stable sort keeps among equals
        return np.argsort(-checked_scores(self.base, matrix), kind="stable")

    def _rejected(self, matrix: StateMatrix, ranked: IntArray) -> int:
        """The place of the pick that is rejected; how many there are when none is."""
        can = matrix.column("can_schedule_now")
        if not can.any():
            return len(ranked)
        for place, row in enumerate(ranked.tolist()):
            job_id = matrix.jobs[row].job_id
            refused = self.rejections.get(job_id, 0)
            if refused < self.most and not self.inspector.accepts(matrix, row, refused):
                self.rejections[job_id] = refused + 1
                return place
            if not can[row]:
                break
        return len(ranked)
