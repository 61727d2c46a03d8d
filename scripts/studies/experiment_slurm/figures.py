"""What a run is worth, and how two arms differ on the same jobs."""

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


@dataclass(frozen=True)
class Interval:
    """A relative change (-0.1 = a tenth less) and its 95% interval."""

    change: float
    low: float
    high: float


def over_repeats(pairs: Sequence[tuple[dict[str, float], dict[str, float]]], name: str) -> Interval:
    """Geometric mean of the ratios over repeats, with Student's interval of their logarithms.

    Args:
        pairs: the figures of an arm and of its base on the same jobs, repeat by repeat.
        name: of FIGURES.

    Raises:
        ValueError: fewer than two repeats.
    """
    if len(pairs) < 2:  # noqa: PLR2004 - a spread needs two
        raise ValueError("an interval over repeats needs at least two of them")
    logs = np.log([arm[name] / base[name] for arm, base in pairs])
    half = student(len(pairs) - 1) * float(logs.std(ddof=1)) / np.sqrt(len(pairs))
    mean = float(logs.mean())
    return Interval(*(float(np.expm1(x)) for x in (mean, mean - half, mean + half)))


def student(freedom: int) -> float:
    """The 97.5% point of Student's t; a table, because numpy has none.

    Raises:
        ValueError: more degrees of freedom than the table has.
    """
    points = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
    if not 1 <= freedom <= len(points):
        raise ValueError(f"no Student's t for {freedom} degrees of freedom here")
    return points[freedom - 1]
