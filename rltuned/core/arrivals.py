"""The jobs that came lately, for forecasts: those that still come do so as on one of these days."""

from dataclasses import dataclass
from typing import Final

from rltuned.domain.context import RunTime
from rltuned.domain.jobs import PendingJob

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that came within the last days. ago_s: so long ago."""

    job: PendingJob
    ago_s: float
    run_time: RunTime | None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All that came within the last window_s; 0 = not known, and none come."""

    jobs: tuple[Arrival, ...] = ()
    window_s: float = 0.0


NO_ARRIVALS: Final = Arrivals()


def days_of(arrivals: Arrivals, day_s: float, first: int) -> list[list[tuple[float, int]]]:
    """Whole days of the window, or all of a shorter one: (seconds since its begin, job) each."""
    if day_s <= 0.0:
        return []
    found: list[list[tuple[float, int]]] = [[] for _ in range(int(arrivals.window_s // day_s))]
    for number, one in enumerate(arrivals.jobs, start=first):
        back = int(one.ago_s // day_s)
        if 0 <= back < len(found):
            found[back].append(((back + 1) * day_s - one.ago_s, number))
    return [sorted(day) for day in found]
