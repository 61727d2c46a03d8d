"""How long jobs waited, day by day, with delays and without them; kept in the journal."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import ConfigDict

from rltuned.domain.runs import JobRun, Side
from rltuned.journal.named_values import Kept, Memory

DAYS: Final = 7
"""That are kept, today included; days are those of UTC."""


@dataclass(frozen=True, slots=True)
class DayWaits:
    """Of the jobs that started on one day: how many, and the seconds they waited altogether."""

    on_jobs: int = 0
    on_s: float = 0.0
    off_jobs: int = 0
    off_s: float = 0.0

    def __add__(self, other: "DayWaits") -> "DayWaits":
        return DayWaits(*map(operator.add, astuple(self), astuple(other)))

    def plus(self, side: Side, wait_s: float) -> "DayWaits":
        if side is Side.ON:
            return replace(self, on_jobs=self.on_jobs + 1, on_s=self.on_s + wait_s)
        return replace(self, off_jobs=self.off_jobs + 1, off_s=self.off_s + wait_s)

    def document(self) -> dict[str, Any]:
        """Jobs and mean waits; null = there was no job."""
        return {
            "on_jobs": self.on_jobs,
            "on_wait_s": self.on_s / self.on_jobs if self.on_jobs else None,
            "off_jobs": self.off_jobs,
            "off_wait_s": self.off_s / self.off_jobs if self.off_jobs else None,
        }


Waits = Mapping[str, DayWaits]
"""By day, as 2026-11-23."""

WAITS: Final[Kept[dict[str, DayWaits]]] = Kept(
    "waits", dict[str, DayWaits], "waits by day", ConfigDict(extra="ignore", allow_inf_nan=False)
)
"""By cluster."""


def count(memory: Memory, cluster: str, started: Iterable[JobRun], at: float) -> Waits:
    """Add the jobs that started, forget old days, return what is known. Raises JournalError."""

    def counted(known: dict[str, DayWaits] | None) -> dict[str, DayWaits]:
        days, recent = dict(known or {}), set(_days(at))
        for run in started:
            if run.side is not Side.OTHER and run.wait_s is not None:
                day = _day(run.job.started_at)
                days[day] = days.get(day, DayWaits()).plus(run.side, run.wait_s)
        return {day: waits for day, waits in sorted(days.items()) if day in recent}

    return WAITS.change(memory, cluster, counted, at)


def document(waits: Waits, at: float) -> dict[str, Any]:
    """For JSON and the page: today, the last DAYS days together, and each of them."""
    days = _days(at)
    week = sum((waits.get(day, DayWaits()) for day in days), DayWaits())
    return {
        "today": waits.get(days[-1], DayWaits()).document(),
        "week": week.document(),
        "days": [{"day": day, **waits.get(day, DayWaits()).document()} for day in days],
    }


def _days(at: float) -> list[str]:
    today = datetime.fromtimestamp(at, UTC)
    return [f"{today - timedelta(days=back):%Y-%m-%d}" for back in reversed(range(DAYS))]


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
