"""What is expected of each waiting job of a line: a start and an interval, or why not."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from rltuned.core.capacity import why_outside
from rltuned.core.forecast import (
    DAY_S,
    DRAWS,
    NO_ARRIVALS,
    Arrival,
    Arrivals,
    PlayedJob,
    play_forward,
    quantiles,
)
from rltuned.core.line import THROTTLED, Line
from rltuned.core.pools import waiting_tasks
from rltuned.core.select import Reservations, cannot_start
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import RunTimes, Snapshot
from rltuned.domain.units import JobId

MOST: Final = 1_000
"""Jobs of the order that are played, tasks of arrays among them."""
TASKS: Final = 64
"""Tasks of one array that are played at least, if it has so many: they share MOST. The start of the
first is what is shown."""
ARRIVALS: Final = 4_000
"""Jobs that stand for those that still arrive, at most."""
TOO_FAR: Final = "it is too far back: only the first 1,000 of the order are played forward"
NEVER: Final = (
    "no node that could carry it takes jobs now, or none frees in 90 days, or reservations keep "
    "them all from a job of its time limit"
)
PART: Final = "it is a part of a heterogeneous job, whose parts start together"


@dataclass(frozen=True, slots=True)
class Start:
    """When a job starts, in seconds from the look: 10, 50 and 90% of the plays; None = not
    known, and why. place: in line, from 1; 0 = it is not. by_limits: no run time of it is known.
    left_out: tasks of arrays ahead of it that are not played, so that it may start later.
    """

    job_id: JobId
    place: int
    low_s: float | None = None
    median_s: float | None = None
    high_s: float | None = None
    by_limits: bool = False
    why: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """A forecast of all that wait. at: Unix time from which its seconds count. starts: of the first
    of the line, in its order. behind: places of those too far back. cannot: why the rest cannot
    start.
    """

    at: float
    starts: Mapping[JobId, Start]
    behind: Mapping[JobId, int] = field(default_factory=dict)
    cannot: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def line_jobs(self) -> int:
        """How many are in line."""
        return len(self.starts) + len(self.behind)

    def start_of(self, job_id: JobId) -> Start | None:
        """None = it did not wait then."""
        if job_id in self.behind:
            return Start(job_id, self.behind[job_id], why=TOO_FAR)
        if job_id in self.cannot:
            return Start(job_id, 0, why=self.cannot[job_id])
        return self.starts.get(job_id)


def start_document(found: Expected | None, job_id: JobId) -> dict[str, Any]:
    """Of one job, for JSON, in Unix seconds."""
    none = dict.fromkeys(
        ("expected_start", "line_place", "expected_by_limits", "expected_left_out")
    )
    start = None if found is None else found.start_of(job_id)
    if found is None or start is None:
        why = (
            "no forecast was made in the last minutes"
            if found is None
            else "it came after the last forecast; the next one is made within minutes"
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
        "expected_left_out": start.left_out,
        "expected_why": None,
    }


def expectation(found: Expected | None, job_id: JobId, now: float) -> dict[str, Any]:
    """One job among all that wait, for JSON. now: Unix time."""
    count, at = (0, None) if found is None else (found.line_jobs, found.at)
    return {
        **start_document(found, job_id),
        "line_jobs": count,
        "expected_at": at,
        "expected_age_s": None if at is None else max(0.0, now - at),
    }


def arrivals_of(seen: Snapshot, predicted: RunTimes) -> Arrivals:
    """What one look shows of the jobs of the last day: those that came and ended are missing."""
    now = float(seen.taken_at)
    runs = (waiting(run) for run in seen.running if run.submitted_at is not None)
    jobs = [*seen.pending, *runs]
    ages = [(now - job.submitted_at, job.job_id, job) for job in jobs]
    here = sorted(row for row in ages if 0.0 <= row[0] < DAY_S)
    came = [row for row in here for _ in range(come_of(row[2]))]
    window_s = DAY_S if len(came) <= ARRIVALS else came[ARRIVALS][0]
    return Arrivals(
        tuple(
            Arrival(bare(job), ago_s, predicted.get(number))
            for ago_s, number, job in came[:ARRIVALS]
        ),
        window_s,
    )


def come_of(job: PendingJob) -> int:
    """How many jobs came with a record, as far as a forecast counts them."""
    return 1 if job.array is None else min(max(1, job.array.tasks), MOST)


def waiting(run: RunningJob) -> PendingJob:
    """A job that runs as it waited, as far as a forecast of the like of it needs."""
    came_at = run.started_at if run.submitted_at is None else run.submitted_at
    return PendingJob(
        run.job_id, "", came_at, run.request, 1, (run.partition or "",), user=run.user
    )


def bare(job: PendingJob) -> PendingJob:
    """The same with what a play reads, and nothing else."""
    return PendingJob(
        job.job_id, "", job.submitted_at, job.request, 1, job.partitions,
        eligible_at=job.eligible_at, user=job.user, required_nodes=job.required_nodes,
        excluded_nodes=job.excluded_nodes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToPlay:
    """All that a forecast is played from: a look without its queue, the first of the line in order,
    tasks of arrays among them, what is predicted of running jobs, and what has arrived.
    """

    snapshot: Snapshot
    line: tuple[PlayedJob, ...]
    running: RunTimes
    arrivals: Arrivals


def to_play(line: Line, running: RunTimes, arrivals: Arrivals) -> ToPlay:
    """From a line."""
    snapshot, now = line.snapshot, float(line.snapshot.taken_at)
    known = line.context.run_times
    played: list[PlayedJob] = []
    tasks = _tasks(line)
    most, key_s = _most_of_one(tasks), -math.inf
    for job, waiting_here in zip(line.jobs, tasks, strict=True):
        if len(played) >= MOST:
            break
        if job.job_id in line.delays_s or not line.delays_s:
            key_s = max(key_s, job.waits_since + line.delays_s.get(job.job_id, 0.0) - now)
        count = min(waiting_here, most, MOST - len(played))
        if count:
            played += [PlayedJob(bare(job), key_s, known.get(job.job_id))] * count
    return ToPlay(replace(snapshot, pending=()), tuple(played), running, arrivals)


def _tasks(line: Line) -> list[int]:
    """How many tasks of each record may start; 0 = as many run as it allows, or it is outside."""
    count = waiting_tasks(line.jobs, line.snapshot.room_in_arrays()).astype(int).tolist()
    return [0 if _is_outside(job) else n for job, n in zip(line.jobs, count, strict=True)]


def _is_outside(job: PendingJob) -> bool:
    return job.het_job_id is not None or bool(why_outside(job.request.outside))


def _most_of_one(tasks: Sequence[int]) -> int:
    """How many tasks of one record are played: the arrays share what MOST leaves."""
    first = np.array(tasks[:MOST], dtype=np.int64)
    levels = range(MOST, TASKS, -1)
    return next((most for most in levels if np.minimum(first, most).sum() <= MOST), TASKS)


def expected_of(
    line: Line,
    running: RunTimes,
    arrivals: Arrivals = NO_ARRIVALS,
    *,
    draws: int = DRAWS,
    late: Callable[[], bool] = lambda: False,
) -> Expected:
    """Of every waiting job, played here."""
    todo = to_play(line, running, arrivals)
    return told(line, todo.line, play(todo, draws=draws, late=late))


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


def told(
    line: Line, played: Sequence[PlayedJob], found: Mapping[JobId, Sequence[float]]
) -> Expected:
    """What the plays of the first of the line say of every waiting job."""
    last = played[-1].job.job_id if len(played) >= MOST else None
    by_limits = {one.job.job_id for one in played if one.run_time is None}
    starts: dict[JobId, Start] = {}
    counts, left_out = Counter(one.job.job_id for one in played), 0
    for place, job in enumerate(line.jobs, start=1):
        row = found.get(job.job_id)
        start = _start(job, place, row, by_limits=job.job_id in by_limits)
        starts[job.job_id] = replace(start, left_out=left_out)
        if job.array is not None and not _is_outside(job):
            left_out += job.array.tasks - counts[job.job_id]
        if job.job_id == last:
            break
    places = enumerate(line.jobs[len(starts) :], start=len(starts) + 1)
    behind = {job.job_id: place for place, job in places}
    return Expected(float(line.snapshot.taken_at), starts, behind, line.cannot)


def _first_tasks(played: Sequence[PlayedJob], starts_s: np.ndarray) -> dict[JobId, np.ndarray]:
    """By record, when its first task starts in each play."""
    found: dict[JobId, np.ndarray] = {}
    for at, one in enumerate(played):
        column = starts_s[:, at]
        kept = found.get(one.job.job_id)
        found[one.job.job_id] = column if kept is None else np.minimum(kept, column)
    return found


def _start(job: PendingJob, place: int, found: Sequence[float] | None, *, by_limits: bool) -> Start:
    if found is None:
        why = PART if job.het_job_id is not None else why_outside(job.request.outside)
        return Start(job.job_id, place, why=why or THROTTLED)
    if not math.isfinite(found[1]):
        return Start(job.job_id, place, by_limits=by_limits, why=NEVER)
    low, median, high = (s if math.isfinite(s) else None for s in found)
    return Start(job.job_id, place, low, median, high, by_limits)


# What became of past forecasts, and how it corrects the intervals of the next ones.
#
# Waits are compared as ln(wait + SOON_S). A real start lies so many widths of the interval's upper
# or lower side away from its median. The 10 and 90% quantiles of that over the last forecasts scale
# the two sides, so that 8 of 10 real starts lie within. A job that waits longer than its interval
# counts as at least that late.


SOON_S: Final = 600.0
NARROWEST: Final = 0.5
"""No side of an interval counts as narrower than this, in logarithms."""
LEVELS: Final = (0.1, 0.9)
PRIOR: Final = np.linspace(-1.25, 1.25, 20)
"""So many forecasts whose intervals were right count beside the real ones."""
SMALLEST: Final = 0.3
LARGEST: Final = 10.0
KEPT: Final = 2_000
SHOWN: Final = 500
"""The last so many are what coverage and error are of."""
RENEWED_S: Final = 3 * 3_600.0
RENEWED: Final = 16
"""A waiting job's forecast is kept again after so long, so many times."""

Key = tuple[int, float]


class Scales(NamedTuple):
    """Factors of the lower and the upper side of an interval."""

    low: float = 1.0
    high: float = 1.0


class PastForecast(NamedTuple):
    """A forecast: when it was made, its raw quantiles in seconds from then, what was shown."""

    at: float
    low_s: float
    median_s: float
    high_s: float
    shown_low_s: float
    shown_high_s: float


class ForecastOutcome(NamedTuple):
    """What became of one. side: see the head of this file. error_s: of the median."""

    side: float
    within: bool
    error_s: float


@dataclass(slots=True)
class Hindsight:
    """The record of a cluster. waiting: by job, the forecasts of which the start is not known."""

    waiting: dict[Key, list[PastForecast]] = field(default_factory=dict)
    settled: list[ForecastOutcome] = field(default_factory=list)
    _asked: dict[Key, tuple[object, ...]] = field(default_factory=dict, compare=False)

    def look(self, seen: Snapshot) -> None:
        """Settle the forecasts of jobs that have started, of an array with the next of its tasks.
        Those of jobs that are gone count for nothing, and of jobs that their user holds back or
        changes: no one makes the intervals of others wide.
        """
        starts, still = _starts(seen), self._still(seen)
        for key, forecasts in list(self.waiting.items()):
            times, since, open_ = starts.get(key, ()), still.get(key, math.inf), []
            for kept in forecasts:
                at = min((at for at in times if at >= kept.at), default=None)
                if at is not None:
                    self.settled.append(settled(kept, at - kept.at))
                elif kept.at >= since:
                    open_.append(kept)
            self.waiting[key] = open_
        self.waiting = {key: forecasts for key, forecasts in self.waiting.items() if forecasts}
        self.settled = self.settled[-KEPT:]

    def _still(self, seen: Snapshot) -> dict[Key, float]:
        """The jobs that wait for nodes alone, and from when on they ask for what they do now."""
        full, before, found = seen.full_arrays(), self._asked, dict[Key, float]()
        self._asked, reservations = {}, Reservations(seen)
        for job in seen.pending:
            key: Key = job.key
            if key not in self.waiting:
                continue
            asked = self._asked[key] = _asked_besides(job)
            if cannot_start(job, reservations) or (job.array and job.array.array_job_id in full):
                continue
            if before.get(key, asked) == asked:
                found[key] = job.changed_at
        return found

    def note(self, raw: Iterable[Start], seen: Snapshot, scales: Scales) -> None:
        """Keep new forecasts of waiting jobs, made of this look."""
        now = float(seen.taken_at)
        jobs = {job.job_id: (int(job.job_id), float(job.submitted_at)) for job in seen.pending}
        for start in raw:
            if start.median_s is None or start.low_s is None:
                continue
            earlier = self.waiting.setdefault(jobs[start.job_id], [])
            if len(earlier) < RENEWED and (not earlier or now - earlier[-1].at >= RENEWED_S):
                high_s = math.inf if start.high_s is None else start.high_s
                shown = corrected(start, scales)
                shown_high_s = math.inf if shown.high_s is None else shown.high_s
                quantiles = start.low_s, start.median_s, min(high_s, 1e9)
                shown_s = shown.low_s or 0.0, min(shown_high_s, 1e9)
                earlier.append(PastForecast(now, *quantiles, *shown_s))

    def scales(self, now: float) -> Scales:
        """What the record makes of the sides of an interval."""
        late = (
            settled(kept, now - kept.at).side
            for those in self.waiting.values()
            for kept in those
            if now - kept.at > kept.high_s
        )
        sides = [*(one.side for one in self.settled), *late]
        low, high = np.quantile([*sides[-KEPT:], *PRIOR], LEVELS)
        return Scales(
            float(np.clip(-low, SMALLEST, LARGEST)), float(np.clip(high, SMALLEST, LARGEST))
        )

    @property
    def coverage(self) -> float | None:
        """Share of the last real starts within the shown interval; None = none is known."""
        last = self.settled[-SHOWN:]
        return sum(one.within for one in last) / len(last) if last else None

    @property
    def error_s(self) -> float | None:
        """Median distance of the last real starts from the forecast's median."""
        last = [one.error_s for one in self.settled[-SHOWN:]]
        return float(np.median(last)) if last else None

    def document(self) -> dict[str, Any]:
        """For a file; the inverse of `read`."""
        waiting = [[*key, [list(one) for one in those]] for key, those in self.waiting.items()]
        return {"waiting": waiting, "settled": [list(one) for one in self.settled]}

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> "Hindsight":
        """Raises ArithmeticError, LookupError, TypeError, ValueError: it is damaged."""
        waiting = {
            (int(job), float(at)): [PastForecast(*map(finite, one)) for one in those]
            for job, at, those in kept["waiting"]
        }
        rows: Sequence[Any] = kept["settled"]
        return cls(waiting, [ForecastOutcome(_number(s), bool(w), finite(e)) for s, w, e in rows])


def _starts(seen: Snapshot) -> dict[Key, list[float]]:
    """When jobs that run began; under an array's own number its tasks."""
    found: dict[Key, list[float]] = {}
    for job in seen.running:
        came_at = float(job.submitted_at or 0.0)
        for number in {int(job.job_id), int(job.array_job_id or job.job_id)}:
            found.setdefault((number, came_at), []).append(float(job.started_at))
    return found


def _asked_besides(job: PendingJob) -> tuple[object, ...]:
    """What its user may change besides what changed_at tells of. Priority= takes the nice off."""
    ours = job.owned is not None and job.owned.field == "priority" and job.nice == 0
    nice = job.owned.nice if ours and job.owned is not None else job.nice
    return nice or 0, job.required_nodes, job.excluded_nodes


def finite(value: float) -> float:
    """A time that was kept. Raises TypeError, ValueError: it is none."""
    if _number(value) < 0.0:
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def settled(kept: PastForecast, real_s: float) -> ForecastOutcome:
    """What became of a forecast whose job has started after so long."""
    middle, below, above = _sides(kept.low_s, kept.median_s, kept.high_s)
    apart = _log(real_s) - middle
    within = kept.shown_low_s <= real_s <= kept.shown_high_s
    return ForecastOutcome(
        apart / (above if apart >= 0 else below), within, abs(real_s - kept.median_s)
    )


def corrected(start: Start, scales: Scales) -> Start:
    """A start with its interval scaled."""
    if start.median_s is None or start.low_s is None:
        return start
    middle, below, above = _sides(start.low_s, start.median_s, start.high_s or start.median_s)
    low_s = max(0.0, math.exp(middle - scales.low * below) - SOON_S) if start.low_s else 0.0
    if start.high_s is None:
        return replace(start, low_s=low_s)
    return replace(start, low_s=low_s, high_s=math.exp(middle + scales.high * above) - SOON_S)


def _sides(low_s: float, median_s: float, high_s: float) -> tuple[float, float, float]:
    middle = _log(median_s)
    below, above = middle - _log(low_s), _log(high_s) - middle
    return middle, max(below, NARROWEST), max(above, NARROWEST)


def _log(seconds: float) -> float:
    return math.log(seconds + SOON_S)
