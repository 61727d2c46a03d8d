"""What finished jobs tell: the accounting records of the simulated cluster.

A job teaches when it has ended, and what it teaches is the time it ran, which is not what it would
have needed where a limit cut it short. No record exists of a job that still runs.
"""

import bisect
import math
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from rltuned.core.features import UNLIMITED_AS_S, planning_limit_s

DECAY: Final = 0.9
"""What a finished job still counts once another one of the same kind has ended."""
RUNGS: Final = 3
"""How many `kinds` there are."""

Kind = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished job as accounting shows it. ran_s: from its last start to its end."""

    user: str
    account: str
    gpus: int
    ran_s: float


@runtime_checkable
class LearningPolicy(Protocol):
    """A policy that is told of every job that ends."""

    def ended(self, job: Ended) -> None:
        """One more job has ended."""
        ...


def gpu_class(gpus: int) -> int:
    """About as many GPUs: 0, 1, 2-3, 4-7, 8-15, ..."""
    return gpus.bit_length()


def kinds(user: str, account: str, gpus: int) -> tuple[Kind | None, ...]:
    """What jobs are likened by, the closest first; None where the trace does not name it."""
    size = gpu_class(gpus)
    return (
        ("user", user, size) if user else None,
        ("user", user, -1) if user else None,
        ("account", account, size) if account else None,
    )


@dataclass(slots=True)
class History:
    """What has ended so far.

    means: per kind the weighted sum of ln(run time) and the sum of the weights. runs_s: all run
    times, sorted.
    """

    means: dict[Kind, tuple[float, float]] = field(default_factory=dict)
    runs_s: list[float] = field(default_factory=list)

    def ended(self, job: Ended) -> None:
        """One more job has ended."""
        told = math.log(max(job.ran_s, 1.0))
        for kind in kinds(job.user, job.account, job.gpus):
            if kind is not None:
                total, weight = self.means.get(kind, (0.0, 0.0))
                self.means[kind] = (total * DECAY + told, weight * DECAY + 1.0)
        bisect.insort(self.runs_s, job.ran_s)

    def predict_s(self, user: str, account: str, gpus: int, limit_s: float | None) -> float:
        """Seconds that such a job will run; never more than its limit.

        The user's jobs of that size, else the user's jobs, else the account's of that size, else
        the time limit, else the median of all that has ended, else a year.
        """
        finite_s = planning_limit_s(limit_s)
        for kind in kinds(user, account, gpus):
            if kind is not None and kind in self.means:
                total, weight = self.means[kind]
                return min(math.exp(total / weight), finite_s)
        if finite_s < UNLIMITED_AS_S or not self.runs_s:
            return finite_s
        return self.runs_s[len(self.runs_s) // 2]
