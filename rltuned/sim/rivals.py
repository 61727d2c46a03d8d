"""Where the networks of others plug in: RLScheduler picks, SchedInspector objects.

Both become policies like any other, so placement, backfill and everything else are the same for
all. The networks themselves come with training; here is what they must be able to say.

- RLScheduler (Zhang et al., SC 2020) picks one job at a time among the first 128.
- SchedInspector (Zhang et al., SC 2022) looks at what a base policy would start next, and accepts
  or rejects it. A job that was rejected often enough is let through. Rejecting means "not before
  the others" here: whoever only orders a queue cannot leave a GPU idle that a job could use.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from rltuned.core.decide import Policy
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.domain.units import JobId
from rltuned.errors import PolicyError

VISIBLE: Final = 128
MOST_REJECTIONS: Final = 72

IntArray = np.ndarray[tuple[int], np.dtype[np.int64]]


class Picker(Protocol):
    """RLScheduler's network, or a stand-in."""

    def pick(self, matrix: StateMatrix, rows: IntArray) -> int:
        """Which job goes next: one of rows, which are those not picked yet, in submit order."""
        ...


class Inspector(Protocol):
    """SchedInspector's network, or a stand-in."""

    def accepts(self, matrix: StateMatrix, row: int, rejections: int) -> bool:
        """Whether the base policy's next job may go; rejections: how often it was refused."""
        ...


@dataclass(frozen=True, slots=True)
class Picking:
    """The order in which a picker picks, as a policy; who is not visible follows by submit time."""

    picker: Picker
    visible: int = VISIBLE
    name: str = "rlscheduler"

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) the place in the order of picks, negative.

        Raises:
            PolicyError: the picker named a job that was not offered.
        """
        waiting = np.argsort(matrix.submit_s, kind="stable").astype(np.int64)
        rows, later = waiting[: self.visible], waiting[self.visible :]
        order: list[int] = []
        while len(rows):
            picked = int(self.picker.pick(matrix, rows))
            if picked not in rows:
                raise PolicyError(f"policy {self.name} picked row {picked}, which was not offered")
            order.append(picked)
            rows = rows[rows != picked]
        return _places([*order, *later.tolist()])


@dataclass(slots=True)
class Inspected:
    """A base policy under inspection; one per run, because it counts rejections."""

    base: Policy
    inspector: Inspector
    most: int = MOST_REJECTIONS
    name: str = "schedinspector"
    rejections: dict[JobId, int] = field(default_factory=dict)

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) the base policy's order, without those that were rejected before one was accepted;
        they come after all others.
        """
        ranked = np.argsort(-np.asarray(self.base.score(matrix)), kind="stable").tolist()
        rejected: list[int] = []
        for row in ranked:
            job_id = matrix.jobs[row].job_id
            refused = self.rejections.get(job_id, 0)
            if refused >= self.most or self.inspector.accepts(matrix, row, refused):
                break
            self.rejections[job_id] = refused + 1
            rejected.append(row)
        return _places([*ranked[len(rejected) :], *rejected])


def _places(order: list[int]) -> FloatArray:
    scores = np.empty(len(order))
    scores[order] = -np.arange(len(order), dtype=np.float64)
    return scores
