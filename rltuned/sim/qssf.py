"""`qssf`: the job with the shortest predicted service first, predicted from jobs that have ended.

After the quasi-shortest-service-first rule of Hu et al. (SC 2021), its rolling estimate: how long
did the jobs of this user with about as many GPUs run lately?
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.sim.history import Ended, History

NAME: Final = "qssf"


@dataclass(slots=True)
class Qssf:
    """The rule with its memory; one per run."""

    history: History = field(default_factory=History)
    name: str = NAME

    @property
    def static(self) -> bool:
        """Predictions move with every end of a job."""
        return False

    def ended(self, job: Ended) -> None:
        """Told by the world at every end of a job."""
        self.history.ended(job)

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) smallest GPUs times predicted seconds first; a job without GPUs counts as one."""
        return np.array(
            [
                -max(float(job.request.total.gpus), 1.0)
                * self.history.predict_s(
                    job.user, job.account, job.request.total.gpus, job.request.time_limit_s
                )
                for job in matrix.jobs
            ],
            dtype=np.float64,
        )

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        """(n,) GPUs times predicted seconds."""
        return -self.score(matrix)
