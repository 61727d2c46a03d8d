"""Restore what rltuned changed: `rltuned restore`, and the last act of the service.

By the journal, compare and set: a job whose value cannot be rltuned's is left alone and reported.
What Slurm shows beside that is restored where that is asked for: see daemon/foreign.

A held job is never released, because a release would start it. A restore continues through an
overloaded slurmctld and through rate limits. It works with the daemon dead, without numpy, and
without a byte of disk: what cannot be noted is restored all the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from rltuned.daemon.foreign import Number, foreign, unexplained, within
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    NICE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Clock,
    Field,
    Outcome,
    Plan,
    Result,
    Undoer,
)
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobKey
from rltuned.errors import (
    BackendError,
    JournalError,
    JournalHeldError,
    JournalLostError,
    SnapshotError,
)
from rltuned.journal.journal import Journal
from rltuned.journal.owned import OwnedRow, may_carry
from rltuned.journal.retention import ENDED_S
from rltuned.slurm.values import AskedJob

AT_ONCE: Final = 200
"""So many changes are sent between two looks at the queue."""
PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Before the next try while Slurm does not answer or does not take more. The pause doubles from
the first to the longest, and is the first again after every change that Slurm took."""
UNSEEN_S: Final = 15.0
"""So long it asks for what Slurm may show soon, as the site factor of a job just released."""


class Fate(StrEnum):
    """What became of one row."""

    RESTORED = "restored"
    GONE = "gone"
    """Not pending any more: nothing left to restore."""
    CHANGED = "changed by another user"
    HELD = "held"
    UNKNOWN = "unknown"
    """Slurm does not show the value, so it cannot be compared."""
    REFUSED = "refused"
    FAILED = "failed"
    WAITING = "left"
    """Others come first; the next look is for it."""


UNDONE: Final = frozenset({Fate.UNKNOWN, Fate.REFUSED, Fate.FAILED, Fate.WAITING})
"""Fates that leave something owned in the queue."""
_FATES: Final = {
    Result.APPLIED: Fate.RESTORED,
    Result.GONE: Fate.GONE,
    Result.REFUSED: Fate.REFUSED,
    Result.WITHHELD: Fate.FAILED,
    Result.FAILED: Fate.FAILED,
}


@dataclass(frozen=True, slots=True)
class Restored:
    """One row and what became of it; detail is for people. soon: Slurm shows within seconds what
    was not known.
    """

    claim: OwnedRow
    fate: Fate
    detail: str
    soon: bool = False

    @property
    def key(self) -> tuple[JobKey, Field]:
        return self.claim.key, self.claim.field


@dataclass(slots=True)
class Effort:
    """How long a restore goes on, and what the journal could not take. patience_s: it ends when
    Slurm has taken nothing for so long; inf = until it is asked to stop. tell: called with one line
    that says how far it is. unnoted: why the journal does not know of what was restored, empty = it
    does; done: that, which the journal still counts as owned. refused: what Slurm refused last.
    """

    patience_s: float = 0.0
    tell: Callable[[str], None] = lambda _: None
    unnoted: str = ""
    done: set[tuple[JobKey, Field]] = field(default_factory=set)
    refused: dict[tuple[JobKey, Field], Restored] = field(default_factory=dict)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note something, if it can be noted; that the journal is none any more is an error."""
        try:
            yield
        except (JournalHeldError, JournalLostError):
            raise
        except JournalError as error:
            self.unnoted = str(error)

    def carry_out(
        self,
        planned: Iterable[tuple[OwnedRow, Restored | Action]],
        apply: Callable[[Plan], Sequence[Outcome]],
    ) -> list[Restored]:
        """Send the first actions, what Slurm has refused last; the others wait for the next pass.
        planned: of each row its action, or what becomes of it without one.
        """
        sends, done = list[tuple[OwnedRow, Action]](), list[Restored]()
        for row, one in planned:
            if isinstance(one, Restored):
                done.append(one)
            else:
                sends.append((row, one))
        sends.sort(key=lambda send: (send[0].key, send[0].field) in self.refused)
        now, later = sends[:AT_ONCE], sends[AT_ONCE:]
        outcomes = apply(Plan(tuple(action for _, action in now))) if now else ()
        for (row, action), outcome in zip(now, outcomes, strict=True):
            sent = Restored(row, _FATES[outcome.result], outcome.detail or action.done())
            done.append(sent)
            if sent.fate is Fate.REFUSED:
                self.refused[sent.key] = sent
            elif sent.fate is Fate.RESTORED and self.unnoted:
                self.done.add(sent.key)
        waits = (Restored(row, Fate.WAITING, "not tried yet") for row, _ in later)
        return done + [self.refused.get(one.key, one) for one in waits]

    def persist(self, one_pass: Callable[[], list[Restored]], clock: Clock) -> tuple[Restored, ...]:
        """Repeat a pass until nothing is left, Slurm refuses for good, or patience is out. Raises
        BackendError, SnapshotError: none succeeded.
        """
        found: dict[tuple[JobKey, Field], Restored] = {}
        has_seen, since_s, pause_s, settled = False, clock.monotonic(), PAUSE_S, 0
        while True:
            before, error = {key: (item.fate, item.detail) for key, item in found.items()}, None
            try:
                found |= {item.key: item for item in one_pass()}
                has_seen = True
            except (BackendError, SnapshotError) as failed:
                error = failed
            left = [item for item in found.values() if item.fate in UNDONE]
            if len(found) - len(left) > settled:
                settled, since_s, pause_s = len(found) - len(left), clock.monotonic(), PAUSE_S
            fates, idle_s = {item.fate for item in left}, clock.monotonic() - since_s
            stalled = error is not None or Fate.FAILED in fates
            # what Slurm refuses twice, it refuses; the row itself notes each try
            same = before == {key: (item.fate, item.detail) for key, item in found.items()}
            done = not (stalled or Fate.WAITING in fates) and (same or not left)
            unseen_s = UNSEEN_S if any(item.soon for item in left) else 0.0
            least_s = self.patience_s if stalled else min(unseen_s, self.patience_s)
            if (stalled or done) and idle_s >= least_s:
                break
            pause_s = PAUSE_S if done else pause_s if stalled else 0.0  # the next need not wait
            given = sum(item.fate is Fate.RESTORED for item in found.values())
            counted = f"{given} of {len(found)} restored, {len(left)} left" if found else ""
            why = next((i.detail for i in left if i.fate is not Fate.WAITING), "")
            then = f"; next try in {pause_s:.0f} s" if pause_s else ""
            self.tell("; ".join(part for part in (counted, str(error or why)) if part) + then)
            if clock.wait(pause_s):
                break
            pause_s = min(max(PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
        if error is not None and not has_seen:
            raise error
        return tuple(found.values())


def asked_jobs(
    seen: Snapshot, asked: AskedJob | None, scope: Collection[str] = ()
) -> list[PendingJob]:
    """The pending jobs in the scope, or the one that is asked for."""
    jobs = within(seen.pending, scope)
    if asked is None:
        return jobs
    return [job for job in jobs if asked.is_on(seen.cluster) and asked.means(job)]


# -- by the journal -----------------------------------------------------------------------------


def restore(
    undoer: Undoer,
    journal: Journal,
    clock: Clock,
    asked: AskedJob | None = None,
    effort: Effort | None = None,
) -> tuple[Restored, ...]:
    """Restore everything that rltuned changed. asked: of this job alone. effort: None = one try.
    Raises BackendError, SnapshotError: Slurm was never read; JournalError: the journal cannot be
    read, or a live daemon writes.
    """
    if journal.is_clean() and not _brings_back(undoer, journal):
        return ()
    journal.claim()
    work = Effort() if effort is None else effort
    return work.persist(lambda: _by_journal(undoer, journal, clock, asked, work), clock)


def _brings_back(undoer: Undoer, journal: Journal) -> bool:
    """Whether a job may show what was written to it, or to its array, before all was restored."""
    if journal.is_blank():
        return False
    try:
        return any(map(may_carry, undoer.look().pending))
    except (BackendError, SnapshotError):
        return False  # a service that owns nothing must stop even while Slurm is away


def _by_journal(
    undoer: Undoer, journal: Journal, clock: Clock, asked: AskedJob | None, work: Effort
) -> list[Restored]:
    """One pass."""
    seen = undoer.look()
    owned = journal.owned(seen.cluster)
    jobs = tuple(replace(j, owned=owned.get(j.key)) for j in seen.pending)
    with work.noting():
        journal.reclaim(seen.cluster, jobs, clock.now())
    pending = {j.key: j for j in jobs}
    every = [row for row in journal.claims(seen.cluster) if (row.key, row.field) not in work.done]
    frozen = {row.key for row in every if row.field is PRIORITY}
    meant = [row for row in every if _is_meant(asked, row, pending.get(row.key))]
    if 0 in seen.hidden_ids():  # not every job shows, and nobody knows which
        missed = journal.missed(seen.cluster, clock.now() - ENDED_S)
        meant = [row for row in missed if _is_meant(asked, row, None)] + meant
    planned = [
        (row, _judge(row, pending.get(row.key), seen, clock.now(), is_frozen=row.key in frozen))
        for row in meant
    ]
    keys = {row.key for row in every}
    with work.noting():
        journal.close_gone(seen.cluster, keys - seen.left_out(keys))

    def noted(plan: Plan) -> Sequence[Outcome]:
        ticket = None
        with work.noting():
            cycle = journal.last_cycle()
            ticket = journal.intend(plan, cluster=seen.cluster, cycle=cycle, at=clock.now())
        outcomes = undoer.apply(plan)
        if ticket is not None:
            with work.noting():
                journal.settle(ticket, outcomes, at=clock.now())
        return outcomes

    return work.carry_out(planned, noted)


def _is_meant(asked: AskedJob | None, row: OwnedRow, job: PendingJob | None) -> bool:
    """job: the row's, as the queue shows it; None = it is not pending any more."""
    if asked is None or not asked.is_on(row.cluster):
        return asked is None
    return asked.named(row.job_id, row.address) if job is None else asked.means(job)


def _judge(
    row: OwnedRow, job: PendingJob | None, seen: Snapshot, now: float, *, is_frozen: bool
) -> Restored | Action:
    """What restores a row, or why it is left. is_frozen: its priority is restored first."""
    if job is None:
        why = seen.hidden(row.key[0])
        fate = Fate.UNKNOWN if why else Fate.GONE
        return Restored(row, fate, why or "started, ended or was cancelled")
    kind, system = row.field, seen.priorities.kind
    if kind.under not in {None, system}:
        why = (
            f"Slurm runs with priority/{system}, which shows and counts no {kind.label}; it keeps "
            "this one, and `rltuned restore --all` restores it once priority/multifactor runs again"
        )
        return Restored(row, Fate.UNKNOWN, why)
    if kind.words and not kind.takes(row.original):
        return Restored(row, Fate.CHANGED, f"{kind.says(row.original)} cannot be set")
    job = job if kind.words else replace(job, owned=row.owned)
    action = None if is_frozen and kind.under else kind.back(job, row.original)
    if action is None:
        # of a job just released the next pass of the scheduler says when it became eligible
        soon = not is_frozen and job.priority > 0 and (job.eligible_at or 0.0) <= now
        why = f"Slurm does not show its {kind.label} now"
        if job.held_by or job.reason == "JobArrayTaskLimit":
            # what cannot be compared may be another user's; a command that starts no job is safe
            undo = f"scontrol update JobId={job.address} {kind.argument}={row.original or 0}"
            why += f"; unless another user has set it, {undo} restores it and starts nothing"
        return Restored(row, Fate.UNKNOWN, why, soon and not kind.words)
    return _left_alone(row, job, action) or action


def _left_alone(row: OwnedRow, job: PendingJob, action: Action) -> Restored | None:
    """Why an action is not for the job as it stands; None = it is."""
    nice = row.nice or 0
    if action.field is RELEASE and job.is_held:
        why = "a release would start it; Slurm gives it a number of its own when it is freed"
        if nice and job.nice == 0:
            why += f"; then set its nice by: scontrol update JobId={job.address} Nice={nice}"
        return Restored(row, Fate.HELD, why)
    if action.field is not NICE and not row.explains(action.old):
        why = f"{row.field.label} is {action.old}, rltuned wrote {row.value}"
        return Restored(row, Fate.CHANGED, why)
    if action.field is RELEASE and job.nice not in {0, nice}:  # rltuned's number cleared it
        return Restored(row, Fate.CHANGED, f"nice is {job.nice}, it was {nice} before")
    return None


def unknown_numbers(
    journal: Journal, seen: Snapshot, items: Iterable[Restored], partitions: Collection[str] = ()
) -> dict[JobKey, tuple[str, Number]]:
    """After a restore, by job its address and number: of jobs that it knew nothing of, and of those
    that it left as another user's, where no daemon has seen that. Raises JournalError.
    """
    items = tuple(items)
    changed = {r.claim.key for r in items if r.fate is Fate.CHANGED and r.claim.field.orders}
    done = {r.claim.key for r in items} - changed
    owned = journal.owned(seen.cluster)
    jobs = [
        replace(job, owned=None if job.key in changed else owned.get(job.key))
        for job in within(seen.pending, partitions)
        if job.key not in done
    ]
    return unexplained(journal, seen.cluster, jobs, seen.priorities.kind)


# -- as shown ---------------------------------------------------------------------------------


def restore_shown(
    undoer: Undoer,
    clock: Clock,
    effort: Effort,
    asked: AskedJob | None = None,
    scope: Collection[str] = (),
    *,
    fixed: bool,
) -> tuple[Restored, ...]:
    """Zero every site factor in the scope, or one job's: Slurm's own is 0. fixed: release the fixed
    priorities too, but no held job. Raises BackendError, SnapshotError.
    """

    def one_pass() -> list[Restored]:
        seen = undoer.look()
        planned = list[tuple[OwnedRow, Action]]()
        jobs = asked_jobs(seen, asked, scope)
        # under priority/basic a released job goes behind all others: the oldest goes first
        for job in sorted(jobs, key=lambda job: (job.ages_since, job.job_id)):
            number = foreign(job, seen.priorities.kind)
            if number is not None and number[0] is PRIORITY and fixed:
                kind, action = PRIORITY, RELEASE.to(job, None, nice=job.nice)
            elif number is not None and job.site_factor:
                kind, action = SITE_FACTOR, SITE_FACTOR.to(job, 0)
            else:
                continue
            row = OwnedRow(seen.cluster, *job.key, kind, job.address, action.old)
            planned.append((row, action))
        return effort.carry_out(planned, undoer.apply)

    return effort.persist(one_pass, clock)
