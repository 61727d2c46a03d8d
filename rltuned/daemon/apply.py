"""Between loop and world: marks what rltuned wrote, and writes only what is in the journal."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from pydantic import ConfigDict

from rltuned.core.decide import Decision
from rltuned.daemon.breaker import demoted
from rltuned.daemon.foreign import (
    LEFT_ALONE,
    MANY,
    Number,
    are_few,
    foreign,
    unexplained,
    within,
)
from rltuned.daemon.lease import Lease
from rltuned.daemon.report import CycleReport, CycleStage
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import OVERSUBSCRIBE, OWNED, Backend, Clock, Outcome, Plan, Result
from rltuned.domain.priority import NeutralDelay, PriorityKind
from rltuned.domain.snapshot import NO_CONTEXT, Context, Remembered, Snapshot, Unreadable
from rltuned.domain.units import CLOCK_S, JobId, JobKey
from rltuned.errors import JournalError, SnapshotError
from rltuned.journal.cycles import CycleObservation, Document
from rltuned.journal.journal import Journal
from rltuned.journal.store import Kept

_HOUR_S: Final = 3_600.0
NEUTRAL: Final[Kept[NeutralDelay]] = Kept(
    "neutral_delays",
    NeutralDelay,
    "neutral delays",
    ConfigDict(extra="forbid", allow_inf_nan=False),
)
"""By cluster, kept in the journal so that a restart changes no number."""


Stopwatch = Callable[[CycleStage], AbstractContextManager[None]]
"""Times a stage of the cycle."""


class PlanApplier:
    """Keeps the order of law: intent on the disk, then the write, then its outcome.

    Where the journal cannot be used, or what it says cannot be read, every method but the first
    two raises JournalError, and nothing is written. A BackendError of `write`: Slurm did not
    answer; what was written is noted as intended.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal = journal
        self._clock = clock
        self._began: tuple[float, int] | None = None  # moment and highest id of the first look
        self._sure: set[JobKey] = set()  # of jobs that it first looked at: their numbers are known
        self._alone: dict[JobKey, Number] = {}  # they are not, and what they are
        self._back: set[JobKey] = set()  # taken up again since the look, which did not mark them
        self._followed: Snapshot | None = None
        self._reverted: frozenset[tuple[JobId, int]] = frozenset()
        self._failed: set[JobKey] = set()  # their last write, so what is in force is not known
        self._cluster = ""
        self._earlier: dict[JobKey, PendingJob] | None = None  # None = no look of this cluster
        self._context, self._unread = NO_CONTEXT, ""

    def remembered(self, cluster: str, now: float) -> Remembered:
        """See domain/plan.Backend; `look` says what is wrong with the journal."""
        if self._cluster != cluster:
            self._cluster, self._earlier = cluster, None
        try:
            says = remembered_by(self.journal, cluster, now, self._earlier)
            self._context, self._unread = context_by(self.journal, cluster), ""
        except JournalError as error:
            self._context, self._unread = NO_CONTEXT, str(error)
            return Remembered(earlier=self._earlier or {}, at=now)
        return says

    def look(self, seen: Snapshot) -> tuple[Context, Mapping[str, int] | None, str]:
        """What is known besides the marks of the jobs, which were made with `remembered`; by kind
        how many values were reverted; why the journal cannot be used, empty = it can.

        Each reverted value counts once, and none of a write that failed, which was counted as that.
        """
        self._earlier, self._back = {job.key: job for job in seen.pending}, set()
        if self._unread:
            return self._context, None, self._unread
        self._failed &= self._earlier.keys()
        found = {
            (job.job_id, actual): OWNED[job.owned.field].kind
            for job in seen.pending
            if job.owned is not None
            and job.key not in self._failed
            and (actual := job.in_force) is not None
            and actual != job.owned.value
        }
        new = Counter(kind for key, kind in found.items() if key not in self._reverted)
        self._reverted = frozenset(found)
        return self._context, dict(new), ""

    def keep(self, report: CycleReport, snapshot: Snapshot, model: str) -> str:
        """Note what a cycle saw and planned, if it did; returns the digest of the snapshot. model:
        digest of the policy's; empty = a rule.
        """
        decision, now = report.decision, self._clock.now()
        found = None if decision is None else decision.neutral
        if found is not None and found != report.context.neutral:
            NEUTRAL.change(self.journal, snapshot.cluster, lambda _: found, now)
        sight = CycleObservation(report.cycle, now, report.mode.value, snapshot, report.context)
        if decision is not None:
            plan = recorded_plan(decision)
            sight = replace(sight, policy=decision.policy, model=model, plan=plan)
        # with a clock that is off an hour wrong is a history lost
        return self.journal.keep(sight, clears=not report.why(HealthState.CLOCK_OFF))

    def follow(self, snapshot: Snapshot, lease: Lease | None = None) -> None:
        """Note which jobs have left the queue, and which are back with a value of rltuned's; of
        these tell a successor.
        """
        if snapshot is self._followed:
            return
        cluster, pending, hidden = snapshot.cluster, snapshot.pending, snapshot.hidden_ids()
        # before any row is closed: who may carry a value of its array is asked of the open ones
        back = self.journal.reclaim(cluster, pending, self._clock.now())
        if back and lease is not None:  # the answers that the successor gets may lack them
            lease.publish(self.journal, cluster)
        self._back |= set(back)
        self._followed = snapshot
        if self.journal.is_clean() or 0 in hidden:  # any job may still be there
            return
        here = {j.key for j in pending}
        if hidden:
            here |= {c.key for c in self.journal.claims(cluster) if c.key[0] in hidden}
        self.journal.close_gone(cluster, here)

    def doubt(
        self,
        snapshot: Snapshot,
        cycle: int,
        partitions: Collection[str],
        lease: Lease | None = None,
    ) -> str:
        """Why nothing may be written by this process yet; empty = it may, but to jobs that are left
        alone: see unexplained. partitions: that it manages; empty = all.
        """
        self.follow(snapshot, lease)
        jobs = [j for j in within(snapshot.pending, partitions) if j.key not in self._back]
        kind, cluster = snapshot.priorities.kind, snapshot.cluster
        if self._began is None:
            self._began = snapshot.taken_at, max(snapshot.known_ids(), default=0)
        fresh = [job for job in jobs if job.owned is None and self._is_fresh(job, kind)]
        # a fixed priority is left alone whoever has set it
        able = [job for job in fresh if kind == "basic" or job.site_factor]
        found = unexplained(self.journal, cluster, able, kind, before=cycle)
        explained = {job.key for job in fresh} - found.keys()
        self._sure |= explained
        self._alone = {key: n for key, n in self._alone.items() if key not in explained}
        self._alone |= {key: number for key, (_, number) in found.items()}
        if fresh:

            def put(kept: list[JobKey] | None) -> list[JobKey]:
                return sorted({*(kept or ())} - explained | found.keys())

            LEFT_ALONE.change(self.journal, cluster, put, self._clock.now())
        doubted = [job for job in jobs if job.key in self._alone]
        if len(doubted) < MANY or are_few(doubted, jobs, len(doubted)):
            return ""
        return (
            f"{len(doubted)} pending jobs have numbers that the journal does not explain: it is an "
            "older one or a new one, or others have set them while no rltuned looked; "
            "`rltuned restore --all` names them, with --as-shown it zeroes them; a cycle in stage "
            "observe takes them for the site's own"
        )

    def _is_fresh(self, job: PendingJob, kind: PriorityKind) -> bool:
        """Whether its number shows and was not judged yet; it is that of a job that may have been
        there before this process.
        """
        since, newest = self._began or (math.inf, 0)
        if job.key in self._sure or (kind != "basic" and job.site_factor is None):
            return False
        if job.key in self._alone:
            return self._alone[job.key] != foreign(job, kind)
        first_id = min(job.job_id, job.array.array_job_id if job.array else job.job_id)
        return job.submitted_at <= since or first_id <= newest

    def left_alone(self, seen: Snapshot) -> tuple[Unreadable, ...]:
        """Jobs that are not written to, as their numbers are unexplained."""
        why = "the journal does not explain its number"
        alone = (job for job in seen.pending if job.key in self._alone)
        return tuple(Unreadable("job", job.address, why, job.job_id) for job in alone)

    def accept(self, snapshot: Snapshot) -> None:
        """A stage that only watches takes the numbers that it sees for the site's own."""
        self._began, self._sure, self._alone = None, set(), {}
        if LEFT_ALONE.read(self.journal).get(snapshot.cluster):
            LEFT_ALONE.change(self.journal, snapshot.cluster, lambda _: [], self._clock.now())

    def write(
        self,
        backend: Backend,
        plan: Plan,
        snapshot: Snapshot,
        cycle: int,
        timed: Stopwatch,
        *,
        digest: str | None = None,
        lease: Lease | None = None,
    ) -> tuple[Outcome, ...]:
        """Carry out a plan, but for jobs that are back with a value of rltuned's, and those that
        are left alone. digest: of the kept snapshot. lease: tells a successor.
        """
        with timed(CycleStage.JOURNAL):
            self.follow(snapshot, lease)
            # the plan took the value that they are back with for the site's own
            but = self._back | self._alone.keys()
            plan = Plan(tuple(a for a in plan.actions if a.target.key not in but))
            if plan.is_empty:
                return ()
            ticket = self.journal.intend(
                plan,
                cluster=snapshot.cluster,
                cycle=cycle,
                at=self._clock.now(),
                snapshot=digest,
                newest=max(snapshot.known_ids(), default=0),
            )
            if lease is not None:
                lease.publish(self.journal, snapshot.cluster)
        with timed(CycleStage.APPLY):
            outcomes = backend.apply(plan)
        self._failed -= {o.action.target.key for o in outcomes if o.result is Result.APPLIED}
        self._failed |= {o.action.target.key for o in outcomes if o.result is Result.FAILED}
        with timed(CycleStage.JOURNAL):
            self.journal.settle(ticket, outcomes, at=self._clock.now())
        return outcomes


def context_by(journal: Journal, cluster: str) -> Context:
    """What the journal says of a cluster, but for its jobs."""
    return Context(demoted(journal, cluster), NEUTRAL.read(journal).get(cluster))


def remembered_by(
    journal: Journal,
    cluster: str,
    now: float,
    earlier: Mapping[JobKey, PendingJob] | None = None,
) -> Remembered:
    """What the journal says of a cluster's jobs; not to be kept, see `Journal.owned`. earlier: of
    the look before; None = the last one that the journal keeps, whichever process made it.
    """
    if earlier is None:
        try:
            seen = journal.last_look(cluster, tuple(HealthState), None)
        except SnapshotError:  # of another release, or damaged
            seen = None
        earlier = {job.key: job for job in (() if seen is None else seen.pending)}
    recent = journal.recent_writes(cluster, now - _HOUR_S, now + CLOCK_S)
    flags = journal.claims(cluster, f"NOT gone AND field = '{OVERSUBSCRIBE.name}'")
    shared = {row.key: (str(row.original), str(row.value)) for row in flags}
    return Remembered(journal.owned(cluster), recent, shared, earlier, now)


def recorded_plan(decision: Decision) -> Document:
    """The plan with the reason of each change of order."""
    changed = {a.target.job_id for a in decision.plan.actions}
    return {
        "actions": [a.document() for a in decision.plan.actions],
        "reasons": {
            str(e.job.job_id): {
                "delay_s": round(e.delay_s, 3),
                "rank_before": e.rank_before,
                "rank_after": e.rank_wished,
                "why": e.why,
            }
            for e in decision.entries
            if e.job.job_id in changed
        },
        "notes": list(decision.notes),
    }
