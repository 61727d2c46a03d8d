"""What a run is worth: the definitions of docs/interfaces.md, over all jobs of a set.

Wait = start - submit. JCT = end - submit. Bounded slowdown = max(1, (wait + duration) / max(
duration, 10 s)) with the true duration of the trace. Utilisation = GPU-seconds used between the
first submit and the last end of the scored jobs, by any job, over GPUs times that span. Makespan
is that span.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import number_text
from rltuned.sim.cluster import Cluster

FloatArray = NDArray[np.float64]

SHORTEST_S = 10.0
"""Jobs count as at least this long in the bounded slowdown."""
METRICS: Final = (
    "wait_s", "wait_p95_s", "wait_p99_s", "wait_max_s", "jct_s", "bsld", "utilisation",
    "makespan_s",
)  # fmt: skip
"""What comparisons show of `Scores`."""


def slowdown(wait_s: FloatArray, duration_s: FloatArray) -> FloatArray:
    """(n,) bounded slowdown of jobs that waited and ran so many seconds, (n,) each."""
    found: FloatArray = np.maximum(1.0, (wait_s + duration_s) / np.maximum(duration_s, SHORTEST_S))
    return found


@dataclass(frozen=True, slots=True)
class Schedule:
    """What became of the jobs of one window, in submit order; arrays (n,).

    end_s - start_s is what a job ran in its last attempt. lost_gpu_s: GPU-seconds of attempts
    that a failed node cut short. warmup: how many first jobs are not scored. writes: how many
    numbers a daemon wrote.
    """

    job_ids: tuple[str, ...]
    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    duration_s: FloatArray
    gpus: FloatArray
    nodes: tuple[str, ...] = ()
    decisions: int = 0
    elapsed_s: float = 0.0
    lost_gpu_s: float = 0.0
    warmup: int = 0
    writes: int = 0

    @property
    def wait_s(self) -> FloatArray:
        """(n,) seconds in the queue."""
        return self.start_s - self.submit_s

    @property
    def slowdown(self) -> FloatArray:
        """(n,) bounded slowdown."""
        return slowdown(self.wait_s, self.duration_s)


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of one policy over all windows. Utilisation and makespan: mean over windows."""

    wait_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_max_s: float
    jct_s: float
    bsld: float
    utilisation: float
    makespan_s: float
    jobs: int
    decisions: int
    writes: int
    elapsed_s: float


def score(schedules: Sequence[Schedule], cluster_gpus: int) -> Scores:
    """Average one policy's windows. Raises TraceError: a job has no start, end or wait."""
    for one in schedules:
        never = np.flatnonzero(~(np.isfinite(one.start_s) & np.isfinite(one.end_s)))
        if len(never):
            raise TraceError(f"job {one.job_ids[never[0]]} never ran: the run is void")
        early = np.flatnonzero(one.start_s < one.submit_s)
        if len(early):
            raise TraceError(f"job {one.job_ids[early[0]]} started before it was submitted")
    wait_s = np.concatenate([s.wait_s[s.warmup :] for s in schedules])
    slowdown = np.concatenate([s.slowdown[s.warmup :] for s in schedules])
    jct_s = np.concatenate([(s.end_s - s.submit_s)[s.warmup :] for s in schedules])
    p95, p99 = np.percentile(wait_s, [95, 99])
    return Scores(
        wait_s=float(wait_s.mean()),
        wait_p95_s=float(p95),
        wait_p99_s=float(p99),
        wait_max_s=float(wait_s.max()),
        jct_s=float(jct_s.mean()),
        bsld=float(slowdown.mean()),
        utilisation=float(np.mean([utilisation(s, cluster_gpus) for s in schedules])),
        makespan_s=float(np.mean([_span(s)[1] - _span(s)[0] for s in schedules])),
        jobs=len(wait_s),
        decisions=sum(s.decisions for s in schedules),
        writes=sum(s.writes for s in schedules),
        elapsed_s=sum(s.elapsed_s for s in schedules),
    )


def utilisation(schedule: Schedule, cluster_gpus: int) -> float:
    """Share of the GPU time between first submit and last end (scored jobs) that was used."""
    first, last = _span(schedule)
    used_s = np.clip(schedule.end_s, first, last) - np.clip(schedule.start_s, first, last)
    whole = cluster_gpus * (last - first)
    return float(((used_s * schedule.gpus).sum() + schedule.lost_gpu_s) / whole) if whole else 0.0


def _span(schedule: Schedule) -> tuple[float, float]:
    scored = slice(schedule.warmup, None)
    return float(schedule.submit_s[scored].min()), float(schedule.end_s[scored].max())


# -- A comparison on paper: JSON, table rows, one line per job ------------------------------------


def scores_of(played: Mapping[str, Sequence[Schedule]], cluster_gpus: int) -> dict[str, Scores]:
    """The figures of every policy. Raises TraceError: not the same jobs, or one was dropped."""
    sets = {name: [s.job_ids for s in schedules] for name, schedules in played.items()}
    first = next(iter(sets.values()))
    if any(ids != first for ids in sets.values()):
        raise TraceError("the policies did not run the same jobs: nothing can be compared")
    return {name: score(schedules, cluster_gpus) for name, schedules in played.items()}


def document(
    played: Mapping[str, Sequence[Schedule]], cluster: Cluster, *, skipped: int = 0
) -> dict[str, object]:
    """What `rltuned simulate --json` prints."""
    scores = scores_of(played, cluster.gpus)
    figures = {name: asdict(one) for name, one in scores.items()}
    whole: dict[str, object] = {"jobs": next(iter(scores.values())).jobs, "policies": figures}
    return whole | ({"skipped_impossible": skipped} if skipped else {})


def write_jobs(played: Mapping[str, Sequence[Schedule]], path: Path) -> None:
    """One line per scored job of every policy and window. Raises TraceError."""
    try:
        with path.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["policy", "window", "job_id", "submit_s", "start_s", "end_s", "nodes"])
            writer.writerows(_rows(played))
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def _rows(played: Mapping[str, Sequence[Schedule]]) -> Iterator[tuple[object, ...]]:
    for policy, schedules in played.items():
        for window, s in enumerate(schedules):
            for i in range(s.warmup, len(s.job_ids)):
                times = (s.submit_s[i], s.start_s[i], s.end_s[i])
                texts = (number_text(float(t)) for t in times)
                yield policy, window, s.job_ids[i], *texts, s.nodes[i]
