"""When waiting jobs last changed what they ask for, as far as looks show it."""

from dataclasses import replace
from typing import Self

from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import SnapshotError
from rltuned.journal.journal import Journal


class ChangedRequests:
    """Compares each look with the one before."""

    def __init__(self, cluster: str = "") -> None:
        self.cluster = cluster
        self._known: dict[tuple[JobId, UnixTime], tuple[tuple[object, ...], float]] = {}

    @classmethod
    def since_kept(cls, journal: Journal, cluster: str) -> Self:
        """From the last look that the journal keeps on, whichever process made it. Raises
        JournalError.
        """
        found = cls(cluster)
        try:
            seen = journal.last_look(cluster, tuple(HealthState), None)
        except SnapshotError:
            return found  # of another release, or damaged: its cycles are not told apart from none
        if seen is not None:
            found.look(seen)
        return found

    def look(self, seen: Snapshot) -> Snapshot:
        """The snapshot with the times of the last changes."""
        if seen.cluster != self.cluster:
            self.cluster, self._known = seen.cluster, {}
        now = float(seen.taken_at)
        known = {job.key: self._since(job, now) for job in seen.pending}
        self._known = known
        if not any(at for _, at in known.values()):
            return seen
        return replace(seen, pending=tuple(map(self._marked, seen.pending)))

    def _since(self, job: PendingJob, now: float) -> tuple[tuple[object, ...], float]:
        asks, before = job.asks, self._known.get(job.key)
        if before is None:
            return asks, job.changed_at
        return asks, before[1] if before[0] == asks else now

    def _marked(self, job: PendingJob) -> PendingJob:
        at = self._known[job.key][1]
        return replace(job, changed_at=at) if at else job
