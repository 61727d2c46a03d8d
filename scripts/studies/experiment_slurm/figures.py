"""What a run is worth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rltuned.sim.metrics import SHORTEST_S
from rltuned.sim.trace import TraceJob
from scripts.studies.experiment_slurm.store import Run

GPUS = 13
FIGURES = ("makespan_s", "wait_s", "wait_p95_s", "jct_s", "bsld", "utilisation")

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """Jobs of one run; arrays (n,) in the trace's order, seconds of the trace.

    duration_s is the payload's: what Slurm itself takes to start and end a job is no part of its
    wait but counts in jct and makespan.
    """

    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    duration_s: FloatArray
    gpus: FloatArray

    @property
    def wait_s(self) -> FloatArray:
        return self.start_s - self.submit_s

    @property
    def slowdown(self) -> FloatArray:
        longer = np.maximum(self.duration_s, SHORTEST_S)
        return np.maximum(1.0, (self.wait_s + self.duration_s) / longer)


def played(run: Run, jobs: Sequence[TraceJob]) -> Played:
    """A run; jobs: of the same set."""
    if [j.job_id for j in jobs] != run.job_ids:
        raise ValueError(f"{run.key.name}: the result is not of this job set")
    return Played(
        np.array(run.submit_s), np.array(run.start_s), np.array(run.end_s),
        np.array([j.duration_s for j in jobs]), np.array([j.gpus for j in jobs], dtype=np.float64),
    )  # fmt: skip


def figures(run: Played) -> dict[str, float]:
    """The definitions of docs/contract.md, over all jobs; utilisation by what payloads used."""
    makespan_s = float(run.end_s.max() - run.submit_s.min())
    return {
        "makespan_s": makespan_s,
        "wait_s": float(run.wait_s.mean()),
        "wait_p95_s": float(np.percentile(run.wait_s, 95)),
        "jct_s": float((run.end_s - run.submit_s).mean()),
        "bsld": float(run.slowdown.mean()),
        "utilisation": float((run.duration_s * run.gpus).sum() / (GPUS * makespan_s)),
    }
