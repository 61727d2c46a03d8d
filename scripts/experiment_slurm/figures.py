"""What a run is worth, and how two arms differ on the same jobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rltuned.sim.metrics import SHORTEST_S, Schedule
from rltuned.sim.trace import TraceJob
from scripts.experiment_slurm.store import Run

GPUS = 13
FIGURES = ("makespan_s", "wait_s", "wait_p95_s", "jct_s", "bsld", "utilisation")
DRAWS = 4_000
LEVEL = (2.5, 97.5)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """Jobs of one run, real or simulated; arrays (n,) in the trace's order, seconds of the trace.

    duration_s is the payload's: what a job held its GPUs longer for, Slurm's own start and end,
    is waiting for nobody but counts in jct and makespan.
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
    """A real run; jobs: of the same set."""
    if [j.job_id for j in jobs] != run.job_ids:
        raise ValueError(f"{run.key.name}: the result is not of this job set")
    return Played(
        np.array(run.submit_s), np.array(run.start_s), np.array(run.end_s),
        np.array([j.duration_s for j in jobs]), np.array([j.gpus for j in jobs], dtype=np.float64),
    )  # fmt: skip


def simulated(schedule: Schedule, jobs: Sequence[TraceJob]) -> Played:
    """A simulated run of the same jobs."""
    return Played(
        schedule.submit_s, schedule.start_s, schedule.end_s,
        np.array([j.duration_s for j in jobs]), schedule.gpus,
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


def changes(arm: Played, base: Played) -> dict[str, float]:
    """Relative change of each figure, arm against base: -0.1 = a tenth less."""
    a, b = figures(arm), figures(base)
    return {name: a[name] / b[name] - 1 for name in FIGURES}


@dataclass(frozen=True)
class Interval:
    """A relative change and its 95% interval; low and high are NaN where there is none."""

    change: float
    low: float
    high: float


JOB_MEANS: dict[str, Callable[[Played], FloatArray]] = {
    "wait_s": lambda p: p.wait_s,
    "jct_s": lambda p: p.end_s - p.submit_s,
    "bsld": lambda p: p.slowdown,
}
"""Figures that are means over jobs: the others are one number per run."""


def over_jobs(arm: Played, base: Played, name: str, *, block: int, seed: int = 0) -> Interval:
    """Change of a mean over the jobs of one pair of runs, by a bootstrap over blocks of jobs.

    Jobs of a queue share their luck with their neighbours, so blocks of consecutive jobs are
    drawn, the same ones of both runs. Says how far the jobs drawn decide, not the seed.

    Args:
        arm, base: the same jobs under both.
        name: a key of JOB_MEANS.
        block: jobs per block.
        seed: of the draws.
    """
    a, b = JOB_MEANS[name](arm), JOB_MEANS[name](base)
    rng = np.random.default_rng(seed)
    count = -(-len(a) // block)
    starts = rng.integers(0, len(a), size=(DRAWS, count))
    index = (starts[:, :, None] + np.arange(block)).reshape(DRAWS, -1) % len(a)
    drawn = a[index].mean(axis=1) / b[index].mean(axis=1) - 1
    low, high = np.percentile(drawn, LEVEL)
    return Interval(float(a.mean() / b.mean() - 1), float(low), float(high))


def over_repeats(pairs: Sequence[tuple[Played, Played]], name: str) -> Interval:
    """Geometric mean of the ratios over repeats, with Student's interval of their logarithms.

    Three repeats leave two degrees of freedom: the interval is wide, and honest about it.

    Raises:
        ValueError: fewer than two repeats.
    """
    if len(pairs) < 2:  # noqa: PLR2004 - a spread needs two
        raise ValueError("an interval over repeats needs at least two of them")
    logs = np.log([figures(a)[name] / figures(b)[name] for a, b in pairs])
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
