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


class Table:
    """Rows on one registry, and the series of each that are there from the start."""

    def __init__(self, rows: Iterable[Row], registry: CollectorRegistry) -> None:
        self._partitions: set[str] = set()
        self._rows = {row.name: row for row in rows}
        self._series: dict[str, dict[Key, None]] = {name: {} for name in self._rows}
        self._metrics: dict[str, Any] = {}
        for name, row in self._rows.items():
            more: Any = {"buckets": row.buckets} if row.buckets else {}
            made: Any = row.kind(name, row.about, list(row.labels), registry=registry, **more)
            self._metrics[name] = made
            if not row.by_partition:
                self._add(name)

    def show(self, partition: str) -> None:
        """Give a partition its series, if it is new and there are not too many."""
        if partition in self._partitions or len(self._partitions) >= MAX_PARTITIONS:
            return
        self._partitions.add(partition)
        for name, row in self._rows.items():
            if row.by_partition:
                self._add(name, (partition,))
                if not row.apart and len(self._partitions) >= MAX_PARTITIONS:
                    self._add(name, (THE_REST,))

    def read(self, report: CycleReport) -> None:
        for name, row in self._rows.items():
            if row.read is not None:
                self.put(name, row.read(report))

    def put(self, name: str, value: Any) -> None:
        """A value, or values by label, as of `Row.read`."""
        row = self._rows[name]
        if value is None:
            return
        given = dict(_by_key(value))
        if row.by_partition and not row.apart:
            given = self._shared(given)
        if row.kind is Gauge:
            given = {key: given.get(key, row.start) for key in self._series[name] or given}
        method = {Gauge: "set", Counter: "inc", Histogram: "observe"}[row.kind]
        for key, found in given.items():
            for one in found if row.kind is Histogram else (found,):
                getattr(self._of(name, key), method)(one)

    def clear(self, name: str) -> None:
        """Take every series away, for a metric whose labels are FREE."""
        self._metrics[name].clear()
        self._series[name].clear()

    def _add(self, name: str, partition: Key = ()) -> None:
        """Give its labels their series; partition: a new one."""
        row = self._rows[name]
        values = (partition if v is PARTITIONS else v for v in row.labels.values())
        for key in product(*values):
            self._series[name][tuple(map(str, key))] = None
            one = self._of(name, key)
            if row.kind is Gauge:
                one.set(row.start)

    def _of(self, name: str, key: Iterable[str]) -> Any:
        metric = self._metrics[name]
        return metric.labels(*key) if self._rows[name].labels else metric

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
