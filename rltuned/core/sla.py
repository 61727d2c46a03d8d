"""Promises: classes of jobs that never step back, and are lifted when they have waited too long.

A lift is a number just above the highest of the jobs that rltuned orders and that the class may
pass: those of the job's own QOS and of the QOS that the class names, in partitions that share a
node with the job's. docs/adr/0022 argues why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from rltuned.core.backfill import JobEnd, job_ends, wait_as_first_s
from rltuned.core.capacity import Capacity
from rltuned.core.features import FloatArray
from rltuned.core.numbers import AHEAD_S, REFRESH_S, Numbers
from rltuned.core.order import Delays
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot

ClassKey = Literal["partition", "qos", "account"]

LIFT_S: Final = REFRESH_S
"""A lift stands so many seconds of waiting above the highest: ages move at different moments."""
SINK_S: Final = AHEAD_S
"""It is written lower when it stands more than this above what is needed."""


@dataclass(frozen=True, slots=True)
class SlaClass:
    """A class of jobs by key and value, and what it is promised. A job of several partitions is in
    none that is named by one.

    max_wait_s: from when a job is eligible. lift_jobs: so many at once are lifted after that; 0 =
    none. over_qos: QOS that a lift may pass besides the job's own. deadline_s: a job is lifted too
    when its latest start is nearer than this and its wait as the first in line (where not known,
    max_wait_s); None = deadlines lift none.
    """

    key: ClassKey
    value: str
    max_wait_s: float
    lift_jobs: int = 0
    over_qos: frozenset[str] = frozenset()
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not (self.max_wait_s > 0 and self.lift_jobs >= 0):
            raise ValueError(f"a class with impossible numbers: {self}")

    @property
    def name(self) -> str:
        """As metrics and sentences have it."""
        return f"{self.key}={self.value}"

    def covers(self, partitions: Sequence[str], qos: str, account: str) -> bool:
        if self.key == "partition":
            return list(partitions) == [self.value]
        return self.value == (qos if self.key == "qos" else account)

    def is_due(
        self, job: PendingJob, now: float, wait_s: Callable[[PendingJob], float | None]
    ) -> bool:
        """Whether a job is to be lifted; none that depends on another. wait_s: if first in line."""
        if job.is_dependent:
            return False
        if job.waited_s(now) >= self.max_wait_s:
            return True
        limit_s = job.request.time_limit_s
        if self.deadline_s is None or job.deadline_at is None or limit_s is None:
            return False
        left_s = job.deadline_at - limit_s - now - self.deadline_s
        expected_s = wait_s(job)
        return left_s < (self.max_wait_s if expected_s is None else expected_s)


def class_of(job: PendingJob, classes: Sequence[SlaClass]) -> SlaClass | None:
    """The first class that a job is of; None = none."""
    return next((c for c in classes if c.covers(job.partitions, job.qos, job.account)), None)


def kept_in_front(delays: Delays, classes: Sequence[SlaClass | None]) -> Delays:
    """The delays without those of promised jobs: 0, and so is their bound."""
    if not any(classes):
        return delays
    plain = np.array([one is None for one in classes], dtype=bool)
    wished_s, upper_s, delay_s = (
        np.where(plain, s, 0.0) for s in (delays.wished_s, delays.upper_s, delays.delay_s)
    )
    return replace(delays, wished_s=wished_s, upper_s=upper_s, delay_s=delay_s)


class ExpectedWaits:
    """What jobs would wait as the first in line, worked out once for equal requests."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._capacity: Capacity | None = None
        self._ends: Sequence[JobEnd] = ()
        self._known: dict[tuple[Request, tuple[str, ...]], float | None] = {}

    def __call__(self, job: PendingJob) -> float | None:
        if self._capacity is None:
            self._capacity = Capacity.of(self._snapshot)
            self._ends = job_ends(self._snapshot, self._capacity)
        key = job.request, job.partitions
        if key not in self._known:
            self._known[key] = wait_as_first_s(job, self._capacity, self._ends)
        return self._known[key]


class Lift(NamedTuple):
    """Jobs that a lift may pass: of these QOS, and in one of these partitions."""

    qos: frozenset[str]
    partitions: frozenset[str]

    def passes(self, job: PendingJob) -> bool:
        return job.qos in self.qos and not self.partitions.isdisjoint(job.partitions)


def due_lifts(
    jobs: Sequence[PendingJob], classes: Sequence[SlaClass | None], seen: Snapshot, most: int
) -> Mapping[int, Lift]:
    """The rows to lift, longest wait first. Each may pass what competes with it for a node."""
    now, waits = seen.taken_at, ExpectedWaits(seen)
    left = {one: one.lift_jobs for one in classes if one is not None}
    found: dict[int, Lift] = {}
    for row in sorted(range(len(jobs)), key=lambda i: (jobs[i].waits_since, jobs[i].job_id)):
        one, job = classes[row], jobs[row]
        if one is None or not left[one] or len(found) >= most:
            continue
        if one.is_due(job, now, waits):
            left[one] -= 1
            own = frozenset(job.partitions)
            shared = (n.partitions for n in seen.nodes if not own.isdisjoint(n.partitions))
            found[row] = Lift(one.over_qos | {job.qos}, own.union(*shared))
    return found


def lifted(
    numbers: Numbers,
    delay_s: FloatArray,
    jobs: Sequence[PendingJob],
    lifts: Mapping[int, Lift],
) -> dict[int, int]:
    """The number of each row that a lift puts above others, if needed. delay_s, jobs: (n,)."""
    own, present = numbers.priority(numbers.of(delay_s)), numbers.priority(numbers.value)
    found = {}
    for row, lift in lifts.items():
        others = [i for i, job in enumerate(jobs) if i not in lifts and lift.passes(job)]
        least = 1 + int(np.maximum(own, present)[others].max(initial=0))
        if own[row] >= least:
            continue
        if least <= present[row] <= least + numbers.slope * SINK_S:
            found[row] = int(numbers.value[row])
        else:
            number = least + int(numbers.slope * LIFT_S) - int(numbers.base[row])
            found[row] = int(numbers.allowed(np.array([number]))[0])
    return found
