"""Which jobs a trial treats: a stated fraction, by a hash that no one can steer and all can repeat.

The same job always falls on the same side; a larger fraction keeps everybody who was treated. The
side depends on nothing but the job's identity, so treated and control differ by chance alone.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from rltuned.domain.jobs import PendingJob

_BYTES: Final = 6
"""Of the hash; as many as a float can hold without rounding up to 1."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A trial.

    Attributes:
        fraction: of the jobs, 0 to 1, that are treated.
        salt: another one draws the sides anew.
    """

    fraction: float
    salt: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"canary fraction {self.fraction} is outside 0..1")

    def treats(self, job: PendingJob) -> bool:
        """Whether the job is treated. All tasks of an array are on one side."""
        return self.draw(job) < self.fraction

    def draw(self, job: PendingJob) -> float:
        """The job's lot, evenly spread over [0, 1).

        Job id and submit time: Slurm hands out ids again, and a requeued job is a new draw.
        """
        number = job.job_id if job.array is None else job.array.array_job_id
        identity = f"{self.salt}\0{number}\0{job.submitted_at:.0f}".encode()
        return int.from_bytes(hashlib.sha256(identity).digest()[:_BYTES]) / 256**_BYTES
