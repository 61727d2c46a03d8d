"""What became of past forecasts, and how it corrects the intervals of the next ones.

Waits are compared as ln(wait + SOON_S). A real start lies so many widths of the interval's upper or
lower side away from its median. The 10 and 90% quantiles of that over the last forecasts scale the
two sides, so that 8 of 10 real starts lie within. A job that waits longer than its interval counts
as at least that late.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from rltuned.core.select import Reservations, cannot_start
from rltuned.core.starts import Start
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot

SOON_S: Final = 600.0
NARROWEST: Final = 0.5
"""No side of an interval counts as narrower than this, in logarithms."""
LEVELS: Final = (0.1, 0.9)
PRIOR: Final = np.linspace(-1.25, 1.25, 20)
"""So many forecasts whose intervals were right count beside the real ones."""
LEAST: Final = 0.3
MOST: Final = 10.0
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
        return Scales(float(np.clip(-low, LEAST, MOST)), float(np.clip(high, LEAST, MOST)))

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
