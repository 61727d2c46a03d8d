"""Between loop and world: marks what rltuned wrote, and writes only what is in the journal."""

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from pydantic import ConfigDict

from rltuned.core.decide import Decision
from rltuned.daemon.canary.breaker import demoted
from rltuned.daemon.changed import ChangedRequests
from rltuned.daemon.ha.leader import Seat
from rltuned.daemon.report import CycleStage
from rltuned.daemon.state import HealthState
from rltuned.daemon.unexplained import FirstLook, number_of
from rltuned.domain.fields import NUM_NODES, OVERSUBSCRIBE, OWNED
from rltuned.domain.jobs import Remembered
from rltuned.domain.plan import Outcome, Plan, Result
from rltuned.domain.ports import NOTHING, Backend, Clock
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import CLOCK_S, JobId, JobKey
from rltuned.errors import JournalError
from rltuned.journal.cycles import CycleObservation
from rltuned.journal.inputs import Recipe, plan_document
from rltuned.journal.journal import Journal
from rltuned.journal.named_values import Kept

_HOUR_S: Final = 3_600.0
NEUTRAL: Final[Kept[NeutralDelay]] = Kept(
    "neutral_delays",
    NeutralDelay,
    "neutral delays",
    ConfigDict(extra="forbid", allow_inf_nan=False),
)
"""By cluster, kept in the journal so that a restart changes no number."""


class Stopwatch(Protocol):
    """Times a stage of the cycle."""

    def __call__(self, stage: CycleStage) -> AbstractContextManager[None]: ...


class PlanApplier:
    """Keeps the order of law: intent on the disk, then the write, then its outcome.

    Where the journal cannot be used, or what it says cannot be read, every method but the first two
    raises JournalError, and nothing is written. A BackendError of `write`: Slurm did not answer;
    what was written is noted as intended.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal = journal
        self._clock = clock
        self._first_look = FirstLook()
        self._changed = ChangedRequests()
        self._reverted_before: frozenset[tuple[JobId, int]] = frozenset()
        self._failed: set[JobKey] = set()  # their last write, so what is in force is not known
        self._neutral: dict[str, NeutralDelay] = {}  # by cluster, of the last decision
        self._cluster = ""

    def remembered(self) -> Remembered:
        """What the journal says of the cluster that was seen last; `mark` has the last word."""
        try:
            return remembered_by(self.journal, self._cluster, self._clock.now())
        except JournalError:
            return NOTHING  # `mark` says what is wrong with it

    def unmarked(self, snapshot: Snapshot) -> Snapshot:
        """What is known of a snapshot while the journal cannot be read."""
        neutral = self._neutral.get(snapshot.cluster)
        return self._changed.look(snapshot).marked(NOTHING, neutral=neutral)

    def note(self, decision: Decision) -> None:
        """Remember what the next decision needs of this one, journal or not."""
        if decision.neutral is not None:
            self._neutral[decision.snapshot.cluster] = decision.neutral

    def mark(self, snapshot: Snapshot) -> tuple[Snapshot, Mapping[str, int]]:
        """Set `owned` on jobs that carry a value of rltuned's; count each reverted value once, and
        none of a write that failed, which was counted as that.
        """
        self._cluster = snapshot.cluster
        if self._changed.cluster != snapshot.cluster:
            self._changed = ChangedRequests.since_kept(self.journal, snapshot.cluster)
        marked = marked_by(self.journal, self._changed.look(snapshot))
        self._failed &= {job.key for job in marked.pending}
        found = {
            (job.job_id, actual): OWNED[job.owned.field].kind
            for job in marked.pending
            if job.owned is not None
            and job.key not in self._failed
            and (actual := job.in_force) is not None
            and actual != job.owned.value
        }
        new = Counter(kind for key, kind in found.items() if key not in self._reverted_before)
        self._reverted_before = frozenset(found)
        return marked, dict(new)

    def keep(
        self,
        snapshot: Snapshot,
        decision: Decision | None,
        recipe: Recipe,
        cycle: int,
        mode: HealthState,
    ) -> str:
        """Note what a cycle saw and planned, if it did; returns the digest of the snapshot."""
        found = None if decision is None else decision.neutral
        if found is not None and found != snapshot.neutral:
            NEUTRAL.change(self.journal, snapshot.cluster, lambda _: found, self._clock.now())
        return self.journal.keep(
            CycleObservation(
                cycle=cycle,
                at=self._clock.now(),
                mode=mode.value,
                snapshot=snapshot,
                recipe=recipe if decision is not None else None,
                plan=plan_document(decision) if decision is not None else None,
            )
        )

    def follow(self, snapshot: Snapshot) -> Collection[JobKey]:
        """Note which jobs have left the queue, and which are back with a value of rltuned's.
        Returns: the latter.
        """
        if self.journal.is_clean():
            return ()
        cluster, pending, hidden = snapshot.cluster, snapshot.pending, snapshot.hidden_ids()
        if 0 not in hidden:  # else any job may still be there
            here = {j.key for j in pending}
            if hidden:
                here |= {c.key for c in self.journal.claims(cluster) if c.key[0] in hidden}
            self.journal.close_gone(cluster, here)
        return self.journal.reclaim(cluster, pending, self._clock.now())

    def doubt(self, snapshot: Snapshot, cycle: int) -> str:
        """Why nothing may be written by this process yet; empty = it may: see unexplained."""
        if self._first_look.is_over:
            return ""
        cluster, kind = snapshot.cluster, snapshot.priorities.kind
        bare = [j for j in snapshot.pending if j.owned is None and number_of(j, kind) is not None]
        back = set(self.follow(snapshot)) if bare else set()
        jobs = [job for job in bare if job.key not in back]
        return self._first_look.judge(self.journal, cluster, jobs, kind, cycle)

    def write(
        self,
        backend: Backend,
        plan: Plan,
        snapshot: Snapshot,
        cycle: int,
        timed: Stopwatch,
        *,
        digest: str | None = None,
        seat: Seat | None = None,
    ) -> tuple[Outcome, ...]:
        """Carry out a plan, but for jobs that are back with a value of rltuned's. digest: of the
        kept snapshot. seat: tells a successor.
        """
        with timed(CycleStage.JOURNAL):
            back = set(self.follow(snapshot))
            # the plan took the value that they are back with for the site's own
            plan = Plan(tuple(a for a in plan.actions if a.target.key not in back))
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
            if seat is not None:
                seat.publish(self.journal, snapshot.cluster)
        with timed(CycleStage.APPLY):
            outcomes = backend.apply(plan)
        self._failed -= {o.action.target.key for o in outcomes if o.result is Result.APPLIED}
        self._failed |= {o.action.target.key for o in outcomes if o.result is Result.FAILED}
        with timed(CycleStage.JOURNAL):
            self.journal.settle(ticket, outcomes, at=self._clock.now())
        return outcomes


def marked_by(journal: Journal, snapshot: Snapshot) -> Snapshot:
    """A snapshot with what the journal says of its jobs and partitions."""
    cluster = snapshot.cluster
    says = remembered_by(journal, cluster, snapshot.taken_at)
    neutral = NEUTRAL.read(journal).get(cluster)
    return snapshot.marked(says, demoted(journal, cluster), neutral)


def remembered_by(journal: Journal, cluster: str, now: float) -> Remembered:
    """What the journal says of a cluster's jobs; not to be kept, see `Journal.owned`."""
    recent = journal.recent_writes(cluster, now - _HOUR_S, now + CLOCK_S)
    narrowed, shared = (journal.words(cluster, field) for field in (NUM_NODES, OVERSUBSCRIBE))
    return Remembered(journal.owned(cluster), recent, narrowed, shared)
