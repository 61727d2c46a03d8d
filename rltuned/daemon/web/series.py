"""The last day, week and month in buckets: GPUs, what waits, and how long jobs waited."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rltuned.report.charts import Point

DAY_S: Final = 86_400.0
RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "24h": (DAY_S, 600.0),
    "7d": (7 * DAY_S, 3_600.0),
    "30d": (30 * DAY_S, 4 * 3_600.0),
}
"""What a page may show: the span in seconds, and the step."""
LONGEST_S: Final = max(span_s for span_s, _ in RANGES.values())
MOST: Final = 2_000
"""Waits that one bucket keeps; of more, the quantiles are those of these."""
FEWEST: Final = 6
"""Steps of the shortest range that is shown."""
PARTS: Final = 24
"""Quantiles of fewer jobs than start in such a part of the range would only be noise."""
_SUMMED: Final = ("used", "free", "down", "wanted", "off", "started")
_APART: Final = 3
"""From so many steps on a line has a gap."""


@dataclass(slots=True)
class Bucket:
    """What was seen from a moment on, within one step."""

    at: float
    looks: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)

    def mean(self, name: str) -> float:
        return self.sums[name] / self.looks


class Series:
    """Buckets of every range. One thread adds, others read: buckets are only ever appended."""

    def __init__(self) -> None:
        self._kept = {
            name: deque[Bucket](maxlen=round(span_s / step_s) + 1)
            for name, (span_s, step_s) in RANGES.items()
        }

    def add(self, at: float, sums: Mapping[str, Any]) -> None:
        """Take in one look; one that is older than the last of its range is left out."""
        if not sums:
            return
        for name, buckets in self._kept.items():
            begin = at - at % RANGES[name][1]
            if not buckets or buckets[-1].at < begin:
                buckets.append(Bucket(begin))
            last = buckets[-1]
            if last.at == begin:
                last.looks += 1
                last.sums.update({name: sums[name] for name in _SUMMED})
                last.waits_s += sums["waits_s"][: MOST - len(last.waits_s)]

    def shown(self, name: str, now: float) -> "RangeView":
        """A range up to now; it begins with what was seen first, a few steps ago at least."""
        span_s, step_s = RANGES[name]
        begin = now - span_s
        buckets = [b for b in self._kept[name] if b.at >= begin]
        if buckets:
            begin = max(begin, min(buckets[0].at, now - FEWEST * step_s))
        return RangeView(begin, now, step_s, buckets)


@dataclass(frozen=True, slots=True)
class RangeView:
    """One range as it stands."""

    begin: float
    end: float
    step_s: float
    buckets: list[Bucket]

    @property
    def started(self) -> int:
        return sum(bucket.sums["started"] for bucket in self.buckets)

    def means(self, *names: str) -> list[Point]:
        """Their sum over time, with a gap where nothing was seen."""
        half_s = self.step_s / 2
        points = [(min(b.at + half_s, self.end), sum(map(b.mean, names))) for b in self.buckets]
        return _with_gaps(points, self.step_s)

    def waits_s(self, share: float) -> list[Point]:
        """A quantile of the waits of the jobs that started then, in PARTS parts of the range."""
        part_s = max(self.step_s, (self.end - self.begin) / PARTS)
        found: dict[int, list[float]] = {}
        for bucket in self.buckets:
            part = int((bucket.at - self.begin) // part_s)
            found.setdefault(part, []).extend(bucket.waits_s)
        return _with_gaps(
            [
                (self.begin + (part + 0.5) * part_s, sorted(waits_s)[int(share * len(waits_s))])
                for part, waits_s in found.items()
                if waits_s
            ],
            part_s,
        )

    def off(self) -> list[tuple[float, float]]:
        """Spans in which more than half of the partitions were in off blocks."""
        found: list[tuple[float, float]] = []
        for bucket in self.buckets:
            if bucket.mean("off") > 0.5:  # noqa: PLR2004
                begin, end = bucket.at, bucket.at + self.step_s
                if found and begin - found[-1][1] < 1.0:  # one shape, without seams
                    begin = found.pop()[0]
                found.append((begin, end))
        return found


def _with_gaps(points: Iterable[tuple[float, float]], step_s: float) -> list[Point]:
    found: list[Point] = []
    for at, value in points:
        if found and at - found[-1][0] > _APART * step_s:
            found.append((at - step_s, None))
        found.append((at, value))
    return found
