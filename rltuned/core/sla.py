"""Promises: classes of jobs that never step back. docs/adr/0022 argues why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rltuned.core.order import Delays
from rltuned.domain.jobs import PendingJob

ClassKey = Literal["partition", "qos", "account"]


@dataclass(frozen=True, slots=True)
class SlaClass:
    """A class of jobs by key and value, and what it is promised. A job of several partitions is in
    none that is named by one. max_wait_s: from when a job is eligible.
    """

    key: ClassKey
    value: str
    max_wait_s: float

    def __post_init__(self) -> None:
        if not self.max_wait_s > 0:
            raise ValueError(f"a class with impossible numbers: {self}")

    @property
    def name(self) -> str:
        """As metrics and sentences have it."""
        return f"{self.key}={self.value}"

    def covers(self, partitions: Sequence[str], qos: str, account: str) -> bool:
        if self.key == "partition":
            return list(partitions) == [self.value]
        return self.value == (qos if self.key == "qos" else account)


def class_of(job: PendingJob, classes: Sequence[SlaClass]) -> SlaClass | None:
    """The first class that a job is of; None = none."""
    return next((c for c in classes if c.covers(job.partitions, job.qos, job.account)), None)


def kept_in_front(delays: Delays, classes: Sequence[SlaClass | None]) -> Delays:
    """The delays without those of promised jobs: 0, and so is their bound."""
    if not any(classes):
        return delays
    plain = np.array([one is None for one in classes], dtype=bool)
    kept = delays.where(plain)
    return replace(kept, upper_s=np.where(plain, kept.upper_s, 0.0))
