"""When waiting jobs last changed what they ask for, as far as this process's looks show it."""

from dataclasses import replace

from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime


class ChangedRequests:
    """Compares each look with the one before. A change while no daemon looks is found by the error
    of the number alone, as a prediction that swings is.
    """

    def __init__(self) -> None:
        self._cluster = ""
        self._known: dict[tuple[JobId, UnixTime], tuple[tuple[object, ...], float]] = {}

    def look(self, seen: Snapshot) -> Snapshot:
        """The snapshot with the times of the last changes."""
        if seen.cluster != self._cluster:
            self._cluster, self._known = seen.cluster, {}
        now = float(seen.taken_at)
        known = {(job.job_id, job.submitted_at): self._since(job, now) for job in seen.pending}
        if not any(at for _, at in known.values()):
            self._known = known
            return seen
        self._known = known
        return replace(seen, pending=tuple(map(self._marked, seen.pending)))

    def _since(self, job: PendingJob, now: float) -> tuple[tuple[object, ...], float]:
        asks, before = job.asks, self._known.get((job.job_id, job.submitted_at))
        if before is None:
            return asks, 0.0
        return asks, before[1] if before[0] == asks else now

    def _marked(self, job: PendingJob) -> PendingJob:
        at = self._known[job.job_id, job.submitted_at][1]
        return replace(job, changed_at=at) if at else job
