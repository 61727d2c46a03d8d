"""The last day, week and month in buckets: GPUs, what waits, and how long jobs waited."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

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


@dataclass(slots=True)
class Bucket:
    """What was seen from a moment on, within one step."""

    at: float
    looks: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)


class RangeView(NamedTuple):
    """One range as it stands, with gaps where nothing was seen. used, wanted: GPUs; wanted: with
    those in use. median_s, late_s: of the waits of jobs that started, 50 and 90%. off: spans in
    which more than half of the partitions were in off blocks.
    """

    begin: float
    end: float
    started: int
    used: list[Point]
    wanted: list[Point]
    median_s: list[Point]
    late_s: list[Point]
    off: list[tuple[float, float]]


class Series:
    """Buckets of every range. One thread adds, others read: buckets are only ever appended."""

    def __init__(self) -> None:
        self._kept = {
            name: deque[Bucket](maxlen=round(span_s / step_s) + 1)
            for name, (span_s, step_s) in RANGES.items()
        }

    def add(self, at: float, sums: Mapping[str, Any]) -> None:
        """Take in one look; one that is older than the last of its range is left out."""
        for name, buckets in self._kept.items() if sums else ():
            begin = at - at % RANGES[name][1]
            if not buckets or buckets[-1].at < begin:
                buckets.append(Bucket(begin))
            last = buckets[-1]
            if last.at == begin:
                last.looks += 1
                last.sums.update({name: sums[name] for name in _SUMMED})
                last.waits_s += sums["waits_s"][: MOST - len(last.waits_s)]

    def shown(self, name: str, now: float) -> RangeView:
        """A range up to now; it begins with what was seen first, a few steps ago at least."""
        span_s, step_s = RANGES[name]
        begin = now - span_s
        buckets = [b for b in self._kept[name] if b.at >= begin]
        if buckets:
            begin = max(begin, min(buckets[0].at, now - FEWEST * step_s))
        part_s = max(step_s, (now - begin) / PARTS)
        waits: dict[float, list[float]] = {}
        off: list[tuple[float, float]] = []
        for one in buckets:
            middle = begin + ((one.at - begin) // part_s + 0.5) * part_s
            waits.setdefault(middle, []).extend(one.waits_s)
            if one.sums["off"] > one.looks / 2:
                joins = off and one.at - off[-1][1] < 1.0  # one shape, without seams
                off.append((off.pop()[0] if joins else one.at, one.at + step_s))
        at = [min(one.at + step_s / 2, now) for one in buckets]
        used = [one.sums["used"] / one.looks for one in buckets]
        asked = [one.sums["wanted"] / one.looks for one in buckets]
        both = [a + b for a, b in zip(used, asked, strict=True)]
        median, late = (
            [(when, sorted(row)[int(share * len(row))]) for when, row in waits.items() if row]
            for share in (0.5, 0.9)
        )
        return RangeView(
            begin, now, sum(one.sums["started"] for one in buckets),
            _with_gaps(zip(at, used, strict=True), step_s),
            _with_gaps(zip(at, both, strict=True), step_s),
            _with_gaps(median, part_s), _with_gaps(late, part_s), off,
        )  # fmt: skip


def _with_gaps(points: Iterable[tuple[float, float]], step_s: float) -> list[Point]:
    found: list[Point] = []
    for at, value in points:
        if found and at - found[-1][0] > 3 * step_s:
            found.append((at - step_s, None))
        found.append((at, value))
    return found
