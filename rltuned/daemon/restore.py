"""Restore what rltuned changed: `rltuned restore`, and the last act of the service.

By the journal, compare and set: a job whose value cannot be rltuned's is left alone and reported.
Without one: daemon/restore_shown.

A held job is never released, because a release would start it. A restore continues through an
overloaded slurmctld and through rate limits. It works with the daemon dead, without numpy, and
without a byte of disk: what cannot be noted is restored all the same.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from rltuned.daemon.restore_patience import ONE_TRY, Effort, persist
from rltuned.domain.fields import NICE, PRIORITY, RELEASE, Action, Field
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Plan, Result
from rltuned.domain.ports import Clock, Undoer
from rltuned.domain.priority import PriorityKind
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobKey
from rltuned.errors import (
    BackendError,
    JournalError,
    JournalHeldError,
    JournalLostError,
    SnapshotError,
)
from rltuned.journal.journal import Journal, Ticket
from rltuned.journal.owned import Claim, may_carry
from rltuned.journal.ownership import Fate, Restored
from rltuned.journal.retention import ENDED_S
from rltuned.slurm.job_selector import AskedJob

AT_ONCE: Final = 200
"""So many changes are sent between two looks at the queue."""
_FATES: Final = {
    Result.APPLIED: Fate.RESTORED,
    Result.GONE: Fate.GONE,
    Result.REFUSED: Fate.REFUSED,
    Result.WITHHELD: Fate.FAILED,
    Result.FAILED: Fate.FAILED,
}
_DORMANT: Final = (
    "Slurm runs with priority/{kind}, which shows and counts no {label}; it keeps this one, "
    "and `rltuned restore --all` gives it back once priority/multifactor runs again"
)
Undo = tuple[Claim, Action]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be restored: everything, one job, or the jobs written to since a time."""

    job: AskedJob | None = None
    since: float = -math.inf

    def holds(self, claim: Claim, job: PendingJob | None) -> bool:
        """job: the claim's, as the queue shows it; None = it is not pending any more."""
        if claim.written_at < self.since:
            return False
        if self.job is None:
            return True
        if not self.job.is_on(claim.cluster):
            return False
        if job is not None:
            return self.job.means(job)
        return self.job.named(claim.target.job_id, claim.target.address)


EVERYTHING: Final = Wanted()


@dataclass(slots=True)
class _Unnoted:
    """What could not be noted in the journal, and why; empty = all was. done: what was restored
    all the same, which the journal still counts as owned.
    """

    why: str = ""
    done: set[tuple[JobKey, Field]] = field(default_factory=set)

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Note something, if it can be noted; that the journal is none any more is an error."""
        try:
            yield
        except (JournalHeldError, JournalLostError):
            raise
        except JournalError as error:
            self.why = str(error)


def restore(
    undoer: Undoer,
    journal: Journal,
    clock: Clock,
    wanted: Wanted = EVERYTHING,
    effort: Effort = ONE_TRY,
) -> tuple[Restored, ...]:
    """Restore everything that rltuned changed, or what is wanted of it. Raises BackendError,
    SnapshotError: Slurm was never read; JournalError: the journal cannot be read, or a live daemon
    writes.
    """
    if journal.is_clean() and not _brings_back(undoer, journal):
        return ()
    notes = _Unnoted()
    journal.claim()
    found = persist(lambda: _by_journal(undoer, journal, clock, wanted, notes), clock, effort)
    if notes.why:
        effort.unnoted(notes.why)
    return found


def _brings_back(undoer: Undoer, journal: Journal) -> bool:
    """Whether a job may show what was written to it, or to its array, before all was restored."""
    if journal.is_blank():
        return False
    try:
        seen = undoer.look()
    except (BackendError, SnapshotError):
        return False  # a service that owns nothing must stop even while Slurm is away
    return any(map(may_carry, seen.pending))


def _by_journal(
    undoer: Undoer, journal: Journal, clock: Clock, wanted: Wanted, notes: _Unnoted
) -> list[Restored]:
    seen = undoer.look()
    owned = journal.owned(seen.cluster)
    jobs = tuple(replace(j, owned=owned.get(j.key)) for j in seen.pending)
    with notes.tried():
        journal.reclaim(seen.cluster, jobs, clock.now())
    pending = {j.key: j for j in jobs}
    claims = [c for c in journal.claims(seen.cluster) if (c.key, c.field) not in notes.done]
    keys = {c.key for c in claims if wanted.holds(c, pending.get(c.key))}
    held = [c for c in claims if c.key in keys]  # a job as a whole, whatever field called for it
    frozen = {c.key for c in held if c.field is PRIORITY}
    done = _not_shown(seen, journal, clock, wanted)
    planned: list[Undo] = []
    for claim in held:
        job = pending.get(claim.key)
        if job is None and (why := seen.hidden(claim.target.job_id)):
            done.append(Restored(claim, Fate.UNKNOWN, why))
            continue
        verdict = _judge(
            claim, job, clock.now(), is_frozen=claim.key in frozen, kind=seen.priorities.kind
        )
        if isinstance(verdict, Restored):
            done.append(verdict)
        else:
            planned.append((claim, verdict))
    stay = {c.key for c in claims} - seen.left_out({c.key for c in claims})
    with notes.tried():
        journal.close_gone(seen.cluster, stay)

    def noted(plan: Plan) -> Sequence[Outcome]:
        ticket: Ticket | None = None
        with notes.tried():
            cycle = journal.last_cycle()
            ticket = journal.intend(plan, cluster=seen.cluster, cycle=cycle, at=clock.now())
        outcomes = undoer.apply(plan)
        if ticket is not None:
            with notes.tried():
                journal.settle(ticket, outcomes, at=clock.now())
        return outcomes

    sent = carry_out(planned, noted)
    if notes.why:
        notes.done |= {(r.claim.key, r.claim.field) for r in sent if r.fate is Fate.RESTORED}
    return done + sent


def _not_shown(seen: Snapshot, journal: Journal, clock: Clock, wanted: Wanted) -> list[Restored]:
    """Jobs that have left the queue as it was seen, where it is known that not every job shows."""
    if 0 not in seen.hidden_ids():
        return []
    return [
        Restored(claim, Fate.UNKNOWN, seen.hidden(claim.target.job_id))
        for claim in journal.missed(seen.cluster, clock.now() - ENDED_S)
        if wanted.holds(claim, None)
    ]


def carry_out(
    planned: Sequence[Undo], apply: Callable[[Plan], Sequence[Outcome]]
) -> list[Restored]:
    """Send the first of them; the others wait for the next pass."""
    now, later = planned[:AT_ONCE], planned[AT_ONCE:]
    outcomes = apply(Plan(tuple(action for _, action in now))) if now else ()
    sent = [
        Restored(claim, _FATES[outcome.result], outcome.detail or outcome.action.done())
        for (claim, _), outcome in zip(now, outcomes, strict=True)
    ]
    return sent + [Restored(claim, Fate.WAITING, "not tried yet") for claim, _ in later]


def _judge(
    claim: Claim,
    job: PendingJob | None,
    now: float,
    *,
    is_frozen: bool,
    kind: PriorityKind,
) -> Restored | Action:
    """What undoes a claim, or why it is left. is_frozen: its priority is undone first."""
    field = claim.field
    if job is None:
        return Restored(claim, Fate.GONE, "started, ended or was cancelled")
    if field.under not in {None, kind}:
        return Restored(claim, Fate.UNKNOWN, _DORMANT.format(kind=kind, label=field.label))
    if field.words and not field.takes(claim.original):
        return Restored(claim, Fate.CHANGED, f"{field.says(claim.original)} cannot be set")
    job = job if field.words else replace(job, owned=claim.owned)
    action = None if is_frozen and field.under else field.back(job, claim.original)
    if action is None:
        # of a job just released the next pass of the scheduler says when it became eligible
        soon = not is_frozen and job.priority > 0 and (job.eligible_at or 0.0) <= now
        return Restored(claim, Fate.UNKNOWN, _of_hidden(claim, job), soon and not field.words)
    return _left_alone(claim, job, action) or action


def _left_alone(claim: Claim, job: PendingJob, action: Action) -> Restored | None:
    """Why an action is not for the job as it stands; None = it is."""
    nice, is_release = claim.nice or 0, action.field is RELEASE
    if action.field is NICE:
        return None
    if is_release and job.is_held:
        return Restored(claim, Fate.HELD, _of_held(job, nice))
    if not claim.explains(action.old):
        why = f"{claim.field.label} is {action.old}, rltuned wrote {claim.value}"
        return Restored(claim, Fate.CHANGED, why)
    if is_release and job.nice not in {0, nice}:  # rltuned's number cleared it
        return Restored(claim, Fate.CHANGED, f"nice is {job.nice}, it was {nice} before")
    return None


def _of_held(job: PendingJob, nice: int) -> str:
    """Why a job is left alone that is held, or that Slurm keeps at 0 for another reason."""
    why = "a release would start it; Slurm gives it a number of its own when it is freed"
    if not nice or job.nice != 0:
        return why
    return f"{why}; then set its nice by: scontrol update JobId={job.address} Nice={nice}"


def _of_hidden(claim: Claim, job: PendingJob) -> str:
    """What cannot be compared may be another user's; a command that starts no job is safe."""
    why = f"Slurm does not show its {claim.field.label} now"
    if not job.held_by and job.reason != "JobArrayTaskLimit":
        return why
    undo = f"scontrol update JobId={job.address} {claim.field.argument}={claim.original or 0}"
    stays = "held" if job.held_by else "at its array's limit"
    return f"{why}; unless another user has set it, {undo} gives it back and the job stays {stays}"
