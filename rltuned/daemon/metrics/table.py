"""Metrics as rows of a table: a name, a sentence, labels, and how a cycle's report gives the value.

Labels are bounded and every series exists from the start, so that no panel and no alert is ever
empty. The names of partitions are the only labels that are a site's own: they have their series
from the first cycle on, and beyond MAX_PARTITIONS of them the rest share one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rltuned.daemon.report import CycleReport

MAX_PARTITIONS: Final = 64
THE_REST: Final = "(more)"
"""No partition can be named so."""
PARTITIONS: Final = ("partition",)
"""Stands for the partitions of the site among the values of a label."""
FREE: Final = ()
"""The values of a label that is set later."""

Key = tuple[str, ...]
"""Values of the labels, in their order."""
Read = Callable[[CycleReport], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. read: its value after a cycle: a number, numbers by label (a tuple of several
    labels), or of a histogram lists; None = it stays, and without `read` it is set by an event.

    labels: values by label; PARTITIONS, FREE. start: a gauge until it is known, and labels that
    `read` leaves out. apart: partitions that share a series are left out, else added up.
    """

    kind: type[Gauge | Counter | Histogram]
    name: str
    about: str
    read: Read | None = None
    labels: Mapping[str, Iterable[str]] = field(default_factory=dict)
    start: float = 0.0
    apart: bool = False
    buckets: tuple[float, ...] = ()

    @property
    def by_partition(self) -> bool:
        return PARTITIONS in self.labels.values()


def of(part: str, read: Callable[[Any], Any]) -> Read:
    """A value of one part of a report, by its name; without that part, what was known stays."""

    def value(report: CycleReport) -> Any:
        found = getattr(report, part)
        return None if found is None else read(found)

    return value


gauge, counter, histogram = partial(Row, Gauge), partial(Row, Counter), partial(Row, Histogram)


@dataclass(slots=True)
class _Family:
    row: Row
    metric: Any
    series: dict[Key, None] = field(default_factory=dict)

    def add(self, partition: Key = ()) -> None:
        """Give its labels their series; partition: a new one."""
        values = (partition if v is PARTITIONS else v for v in self.row.labels.values())
        for key in product(*values):
            self.series[tuple(map(str, key))] = None
            one = self.of(key)
            if self.row.kind is Gauge:
                one.set(self.row.start)

    def of(self, key: Iterable[str]) -> Any:
        return self.metric.labels(*key) if self.row.labels else self.metric

    def put(self, given: Mapping[Key, Any]) -> None:
        if self.row.kind is Gauge:
            for key in self.series or given:
                self.of(key).set(given.get(key, self.row.start))
            return
        for key, value in given.items():
            if self.row.kind is Counter:
                self.of(key).inc(value)
            else:
                series = self.of(key)
                for one in value:
                    series.observe(one)


class Table:
    """Rows on one registry."""

    def __init__(self, rows: Iterable[Row], registry: CollectorRegistry) -> None:
        self._partitions: set[str] = set()
        self._families: dict[str, _Family] = {}
        for row in rows:
            more: Any = {"buckets": row.buckets} if row.buckets else {}
            made: Any = row.kind(row.name, row.about, list(row.labels), registry=registry, **more)
            self._families[row.name] = _Family(row, made)
            if not row.by_partition:
                self._families[row.name].add()

    def show(self, partition: str) -> None:
        """Give a partition its series, if it is new and there are not too many."""
        if partition in self._partitions or len(self._partitions) >= MAX_PARTITIONS:
            return
        self._partitions.add(partition)
        for family in self._families.values():
            if family.row.by_partition:
                family.add((partition,))
                if not family.row.apart and len(self._partitions) >= MAX_PARTITIONS:
                    family.add((THE_REST,))

    def read(self, report: CycleReport) -> None:
        for name, family in self._families.items():
            if family.row.read is not None:
                self.put(name, family.row.read(report))

    def put(self, name: str, value: Any) -> None:
        """A value, or values by label, as of `Row.read`."""
        family = self._families[name]
        if value is None:
            return
        given = dict(_by_key(value))
        if family.row.by_partition and not family.row.apart:
            given = self._shared(given)
        family.put(given)

    def clear(self, name: str) -> None:
        """Take every series away, for a metric whose labels are FREE."""
        self._families[name].metric.clear()
        self._families[name].series.clear()

    def _shared(self, given: Mapping[Key, Any]) -> dict[Key, Any]:
        """With the partitions that have no series of their own as one; they are the first label."""
        found: dict[Key, Any] = {}
        for (partition, *rest), value in given.items():
            self.show(partition)
            key = (partition if partition in self._partitions else THE_REST, *rest)
            found[key] = found[key] + value if key in found else value
        return found


def _by_key(value: Any) -> Iterator[tuple[Key, Any]]:
    if not isinstance(value, Mapping):
        yield (), value
        return
    for key, one in value.items():
        yield tuple(map(str, key)) if isinstance(key, tuple) else (str(key),), one
