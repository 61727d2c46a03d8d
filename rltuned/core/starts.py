"""What is expected of each waiting job of a decision: a start and an interval, or why not."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rltuned.core.arrivals import DAY_S, NO_ARRIVALS, Arrival, Arrivals
from rltuned.core.decide import Decision
from rltuned.core.explaining import in_line
from rltuned.core.forecast import DRAWS, PlayedJob, play_forward, quantiles
from rltuned.core.refusals import Means, Refusal
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import RunTime, Snapshot
from rltuned.domain.units import JobId

MOST: Final = 1_000
"""Jobs of the order that are played, tasks of arrays among them."""
TASKS: Final = 64
"""Tasks of one array that are played; its first start is what is shown."""
ARRIVALS: Final = 4_000
"""Jobs that stand for those that still arrive, at most."""
TOO_FAR: Final = "it is too far back: only the first 1,000 of the order are played forward"
NEVER: Final = "no node that could carry it takes jobs now, or none frees in 90 days"
OUTSIDE: Final = "it asks for what is not modelled ({})"
PART: Final = "it is a part of a heterogeneous job, whose parts start together"
THROTTLED: Final = "as many tasks of its array run as the array allows"


@dataclass(frozen=True, slots=True)
class Start:
    """When a job starts, in seconds from the decision: 10, 50 and 90% of the plays; None = not
    known, and why. place: in line, from 1; 0 = it is not. by_limits: no run time of it is known.
    """

    job_id: JobId
    place: int
    low_s: float | None = None
    median_s: float | None = None
    high_s: float | None = None
    by_limits: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """A forecast of all that wait. at: Unix time from which its seconds count."""

    at: float
    starts: Mapping[JobId, Start]


def start_document(found: Expected | None, job_id: JobId) -> dict[str, Any]:
    """Of one job, for JSON, in Unix seconds."""
    none = {"expected_start": None, "line_place": None, "expected_by_limits": None}
    start = None if found is None else found.starts.get(job_id)
    if found is None or start is None:
        why = (
            "no forecast has been made yet" if found is None else "it came after the last forecast"
        )
        return {**none, "expected_why": why}
    place = start.place or None
    if start.median_s is None:
        return {**none, "line_place": place, "expected_why": start.why}
    times = {"low_s": start.low_s, "median_s": start.median_s, "high_s": start.high_s}
    return {
        "expected_start": {k: None if s is None else found.at + s for k, s in times.items()},
        "line_place": place,
        "expected_by_limits": start.by_limits,
        "expected_why": None,
    }


def expectation(found: Expected | None, job_id: JobId) -> dict[str, Any]:
    """One job among all that wait, for JSON."""
    starts = {} if found is None else found.starts
    in_line_jobs = sum(one.place > 0 for one in starts.values())
    at = None if found is None else found.at
    return {**start_document(found, job_id), "line_jobs": in_line_jobs, "expected_at": at}


def arrivals_of(seen: Snapshot) -> Arrivals:
    """What one look shows of the jobs of the last day: those that came and ended are missing."""
    now, known = float(seen.taken_at), dict(seen.run_times)
    jobs = [*seen.pending, *(waiting(run) for run in seen.running if run.submitted_at is not None)]
    ages = [(now - job.submitted_at, job.job_id, job) for job in jobs]
    came = sorted(row for row in ages if 0.0 <= row[0] < DAY_S)
    window_s = DAY_S if len(came) <= ARRIVALS else came[ARRIVALS][0]
    return Arrivals(
        tuple(Arrival(job, ago_s, known.get(number)) for ago_s, number, job in came[:ARRIVALS]),
        window_s,
    )


def waiting(run: RunningJob) -> PendingJob:
    """A job that runs as it waited, as far as a forecast of the like of it needs."""
    came_at = run.started_at if run.submitted_at is None else run.submitted_at
    return PendingJob(
        run.job_id, run.address, came_at, run.request, 1, (run.partition or "",), user=run.user
    )


@dataclass(frozen=True, slots=True)
class ToPlay:
    """All that a forecast is played from: a look without its queue, the first of the line in order,
    tasks of arrays among them, what is predicted of running jobs, and what has arrived.
    """

    snapshot: Snapshot
    line: tuple[PlayedJob, ...]
    running: Mapping[JobId, RunTime]
    arrivals: Arrivals


def to_play(
    decision: Decision,
    running: Mapping[JobId, RunTime],
    arrivals: Arrivals,
    *,
    as_is: bool = False,
) -> ToPlay:
    """From a decision. as_is: in Slurm's own present order, where rltuned writes nothing."""
    snapshot, now = decision.snapshot, float(decision.snapshot.taken_at)
    delays = {e.job.job_id: 0.0 if as_is else e.delay_s for e in decision.entries}
    known = dict(snapshot.run_times)
    played: list[PlayedJob] = []
    key_s = -math.inf
    for job in in_line(decision, as_is=as_is):
        if len(played) >= MOST:
            break
        if job.job_id in delays:
            key_s = max(key_s, job.waits_since + delays[job.job_id] - now)
        one = PlayedJob(job, key_s, known.get(job.job_id))
        played += [one] * min(_tasks(decision, job), MOST - len(played))
    look = replace(snapshot, pending=(), run_times=())
    return ToPlay(look, tuple(played), running, arrivals)


def _tasks(decision: Decision, job: PendingJob) -> int:
    """How many tasks of a record may start; 0 = its array's bound is reached, or it is outside."""
    if job.het_job_id is not None or job.request.outside:
        return 0
    array = job.array
    if array is None:
        return 1
    left = TASKS
    if array.throttle is not None:
        runs = decision.snapshot.running
        left = array.throttle - sum(r.array_job_id == array.array_job_id for r in runs)
    return max(0, min(array.tasks, left, TASKS))


def starts_of(
    decision: Decision,
    running: Mapping[JobId, RunTime],
    arrivals: Arrivals = NO_ARRIVALS,
    *,
    as_is: bool = False,
    draws: int = DRAWS,
    late: Callable[[], bool] = lambda: False,
) -> tuple[Start, ...]:
    """Of every waiting job, those in line first and in their order."""
    todo = to_play(decision, running, arrivals, as_is=as_is)
    return starts_by(decision, todo.line, play(todo, draws=draws, late=late), as_is=as_is)


def play(
    todo: ToPlay, *, draws: int = DRAWS, late: Callable[[], bool] = lambda: False
) -> dict[JobId, list[float]]:
    """Seconds until each record's first task starts: 10, 50 and 90% of the plays."""
    starts_s = play_forward(
        todo.snapshot, todo.line, todo.running, todo.arrivals, draws=draws, late=late
    )
    first = _first_tasks(todo.line, starts_s)
    rows = quantiles(np.array(list(first.values())).T).T.tolist() if first else ()
    return dict(zip(first, rows, strict=True))


def starts_by(
    decision: Decision,
    played: Sequence[PlayedJob],
    found: Mapping[JobId, Sequence[float]],
    *,
    as_is: bool = False,
) -> tuple[Start, ...]:
    """What the plays of the first of the line say of every waiting job."""
    ordered = in_line(decision, as_is=as_is)
    reached = played[-1].job.job_id if played else None
    starts, behind, known = [], False, dict(decision.snapshot.run_times)
    for place, job in enumerate(ordered, start=1):
        start = _start(job, place, found.get(job.job_id), behind=behind)
        starts.append(replace(start, by_limits=job.job_id not in known))
        behind = behind or (len(played) >= MOST and job.job_id == reached)
    return (*starts, *_left(decision, {job.job_id for job in ordered}))


def _first_tasks(played: Sequence[PlayedJob], starts_s: np.ndarray) -> dict[JobId, np.ndarray]:
    """By record, when its first task starts in each play."""
    found: dict[JobId, np.ndarray] = {}
    for at, one in enumerate(played):
        column = starts_s[:, at]
        kept = found.get(one.job.job_id)
        found[one.job.job_id] = column if kept is None else np.minimum(kept, column)
    return found


def _start(
    job: PendingJob,
    place: int,
    found: Sequence[float] | None,
    *,
    behind: bool,
) -> Start:
    if found is None:
        outside = ", ".join(job.request.outside)
        why = PART if job.het_job_id is not None else OUTSIDE.format(outside) if outside else ""
        return Start(job.job_id, place, why=why or (TOO_FAR if behind else THROTTLED))
    if not math.isfinite(found[1]):
        return Start(job.job_id, place, why=NEVER)
    low, median, high = (s if math.isfinite(s) else None for s in found)
    return Start(job.job_id, place, low, median, high)


def _left(decision: Decision, in_line_ids: set[JobId]) -> list[Start]:
    """Jobs that cannot start, with the reason in words."""
    reasons = dict(decision.refused)
    found = []
    for job in decision.snapshot.pending:
        if job.job_id in in_line_ids:
            continue
        reason = reasons.get(job.job_id, Refusal.HELD)
        why = (reason if Means.NOT_IN_LINE in reason.means else Refusal.HELD).sentence
        found.append(Start(job.job_id, 0, why=why.replace("see Slurm's reason", job.reason)))
    return found
