"""The daemon's journal, as far as a decision reads it: what it holds of each job, and how often."""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from rltuned.core.decide import Decision
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Release, SetPriority, SetSiteFactor
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

HOUR_S: Final = 3_600.0
HELD: Final = 64
"""Earlier values that are kept of a job."""


@dataclass(slots=True)
class _Entry:
    owned: Ownership
    written: deque[float] = field(default_factory=deque)


class SimulatedJournal:
    """Makes a simulated decision see what it would see in production. writes: by job, so far."""

    def __init__(self) -> None:
        self._entries: dict[JobId, _Entry] = {}
        self._neutral: NeutralDelay | None = None
        self.writes: dict[JobId, int] = {}

    def note(self, decision: Decision, now: float) -> None:
        """A decision was carried out."""
        self._neutral = decision.neutral
        for action in decision.plan.actions:
            if isinstance(action, Release):
                self._entries.pop(action.target.job_id, None)
            elif isinstance(action, SetPriority | SetSiteFactor):
                self._write(action, now)

    def dress(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as the daemon shows it to the decision: with what rltuned owns."""
        now = float(snapshot.taken_at)
        # a running job comes back if its node fails
        there = {j.job_id for j in snapshot.pending} | {j.job_id for j in snapshot.running}
        for gone in self._entries.keys() - there:
            del self._entries[gone]
        pending = tuple(self._dressed(job, now) for job in snapshot.pending)
        return replace(snapshot, pending=pending, neutral=self._neutral)

    def _dressed(self, job: PendingJob, now: float) -> PendingJob:
        entry = self._entries.get(job.job_id)
        if entry is None:
            return job
        while entry.written and entry.written[0] <= now - HOUR_S:
            entry.written.popleft()
        return replace(job, owned=entry.owned, recent_writes=len(entry.written))

    def _write(self, action: SetPriority | SetSiteFactor, now: float) -> None:
        name = "priority" if isinstance(action, SetPriority) else "site_factor"
        job_id = action.target.job_id
        self.writes[job_id] = self.writes.get(job_id, 0) + 1
        known = self._entries.get(job_id)
        if known is None or known.owned.field != name:
            nice = action.nice if isinstance(action, SetPriority) else None
            rest = action.rest if isinstance(action, SetPriority) else None
            known = _Entry(Ownership(name, action.new, nice, action.old, rest=rest))
            self._entries[job_id] = known
        else:
            owned = known.owned
            earlier = (*owned.earlier, owned.value)[-HELD:]
            known.owned = replace(owned, value=action.new, earlier=earlier)
        known.written.append(now)
