"""What rltuned owns, kept in memory by the one writer: a cycle takes as long whatever it owns.

The journal's file is read once. After that only the jobs that a transaction touched are read
again, and everything where another process has written meanwhile. Equal to the file at any time:
tests/property/test_ledger.py.
"""

import heapq
import sqlite3
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf

from rltuned.domain.fields import Field
from rltuned.domain.jobs import Ownership
from rltuned.domain.units import JobKey
from rltuned.journal import changes
from rltuned.journal.ownership import Claim


@dataclass(slots=True)
class _Cluster:
    touched: set[JobKey] = field(default_factory=set)
    """Jobs to be read again before the next answer."""
    since: float | None = None
    """From when on writes are counted; None = they are not yet."""
    owned: dict[JobKey, Ownership] = field(default_factory=dict)
    words: dict[Field, dict[JobKey, tuple[str, str]]] = field(default_factory=dict)
    """By field."""
    held: set[JobKey] = field(default_factory=set)
    times: dict[JobKey, list[float]] = field(default_factory=dict)
    counts: dict[JobKey, int] = field(default_factory=dict)
    latest: float = -inf
    """No moment in `times` is later."""
    ending: list[tuple[float, JobKey]] = field(default_factory=list)
    """Heap of the moments in `times`, some of them counted no more."""


class Ledger:
    """What one journal says of the jobs of each cluster."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}
        self._version: int | None = None

    def forget(self) -> None:
        """Read everything again at the next question."""
        self._clusters.clear()
        self._version = None

    def is_stale(self, db: sqlite3.Connection) -> bool:
        """Whether another connection has written since the last question; then all is forgotten."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return False
        self.forget()
        self._version = version
        return True

    def owned(self, db: sqlite3.Connection, cluster: str) -> Mapping[JobKey, Ownership]:
        """Of each job the field that was written last."""
        return self._of(db, cluster).owned

    def words(
        self, db: sqlite3.Connection, cluster: str, field: Field
    ) -> Mapping[JobKey, tuple[str, str]]:
        """Of a field of words: what each job had before, and what was written last."""
        return self._of(db, cluster).words.get(field, {})

    def held(self, db: sqlite3.Connection, cluster: str) -> Set[JobKey]:
        """Jobs with a number or words that rltuned wrote."""
        return self._of(db, cluster).held

    def recent(
        self, db: sqlite3.Connection, cluster: str, since: float, until: float
    ) -> Mapping[JobKey, int]:
        """How often each job was written to in that time; an earlier `since` reads all again."""
        known = self._of(db, cluster)
        if known.since is None or since < known.since:
            self._read_times(db, cluster, known, since)
        known.since = since
        while known.ending and known.ending[0][0] < since:
            _, key = heapq.heappop(known.ending)
            self._count(known, key, [at for at in known.times.get(key, ()) if at >= since])
        if known.latest <= until:
            return known.counts
        counts = {key: sum(at <= until for at in times) for key, times in known.times.items()}
        return {key: count for key, count in counts.items() if count}

    def touch(self, keys: Iterable[JobKey]) -> None:
        """The rows of these jobs are about to change, whatever cluster's they are."""
        touched = set(keys)
        for known in self._clusters.values():
            known.touched |= touched

    def _of(self, db: sqlite3.Connection, cluster: str) -> _Cluster:
        known = self._clusters.get(cluster)
        if known is None:
            known = self._clusters[cluster] = _Cluster()
            for claim in changes.claims(db, cluster):
                _take(known, claim)
        for key in known.touched:
            self._read(db, cluster, known, key)
        known.touched.clear()
        return known

    def _read(self, db: sqlite3.Connection, cluster: str, known: _Cluster, key: JobKey) -> None:
        known.owned.pop(key, None)
        known.held.discard(key)
        for words in known.words.values():
            words.pop(key, None)
        for claim in changes.claims(db, cluster, key):
            _take(known, claim)
        if known.since is None:
            return
        times = [at for _, at in changes.times(db, cluster, known.since, key)]
        for at in set(times) - set(known.times.get(key, ())):
            heapq.heappush(known.ending, (at, key))
        known.latest = max(known.latest, *times, -inf)
        self._count(known, key, times)

    def _read_times(
        self, db: sqlite3.Connection, cluster: str, known: _Cluster, since: float
    ) -> None:
        known.times.clear()
        for key, at in changes.times(db, cluster, since):
            known.times.setdefault(key, []).append(at)
        known.ending = [(at, key) for key, times in known.times.items() for at in times]
        heapq.heapify(known.ending)
        known.latest = max((at for at, _ in known.ending), default=-inf)
        known.counts = {key: len(times) for key, times in known.times.items()}

    @staticmethod
    def _count(known: _Cluster, key: JobKey, times: list[float]) -> None:
        if times:
            known.times[key], known.counts[key] = times, len(times)
        else:
            known.times.pop(key, None)
            known.counts.pop(key, None)


def _take(known: _Cluster, claim: Claim) -> None:
    known.held.add(claim.key)
    if claim.field.words:
        words = known.words.setdefault(claim.field, {})
        words[claim.key] = str(claim.original), str(claim.value)
    else:
        known.owned[claim.key] = claim.owned
