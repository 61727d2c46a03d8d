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
from rltuned.domain.fields import NICE, PRIORITY, RELEASE, SITE_FACTOR, Action, Field
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
from rltuned.journal.journal import Journal
from rltuned.journal.owned import Claim, may_carry
from rltuned.journal.retention import ENDED_S
from rltuned.slurm.job_selector import AskedJob

AT_ONCE: Final = 200
"""So many changes are sent between two looks at the queue."""
PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Before the next try while Slurm does not answer or does not take more. The pause doubles from
the first to the longest, and is the first again after every change that Slurm took."""
UNSEEN_S: Final = 15.0
"""So long it asks for what Slurm may show soon, as the site factor of a job just released."""


class Fate(StrEnum):
    """What became of one claim."""

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
_TRIED_AGAIN: Final = frozenset({Fate.FAILED, Fate.WAITING})
"""Fates that Slurm may turn without anybody's doing."""
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


@dataclass(frozen=True, slots=True)
class Restored:
    """One claim and what became of it; detail is for people. soon: Slurm shows within seconds what
    was not known.
    """

    claim: Claim
    fate: Fate
    detail: str
    soon: bool = False


def is_complete(items: Iterable[Restored]) -> bool:
    """Whether nothing owned is known to be left behind."""
    return not any(item.fate in UNDONE for item in items)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a restore goes on. patience_s: it ends when Slurm has taken nothing for so long; inf
    = until it is asked to stop. tell: called with one line that says how far it is. unnoted: with
    why the journal does not know of what was restored.
    """

    patience_s: float = 0.0
    tell: Callable[[str], None] = lambda _: None
    unnoted: Callable[[str], None] = lambda _: None


ONE_TRY: Final = Effort()


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


# -- by the journal -----------------------------------------------------------------------------


def restore(
    undoer: Undoer,
    journal: Journal,
    clock: Clock,
    asked: AskedJob | None = None,
    effort: Effort = ONE_TRY,
) -> tuple[Restored, ...]:
    """Restore everything that rltuned changed. asked: of this job alone. Raises BackendError,
    SnapshotError: Slurm was never read; JournalError: the journal cannot be read, or a live daemon
    writes.
    """
    if journal.is_clean() and not _brings_back(undoer, journal):
        return ()
    notes = _Unnoted()
    journal.claim()
    found = persist(lambda: _by_journal(undoer, journal, clock, asked, notes), clock, effort)
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
    undoer: Undoer, journal: Journal, clock: Clock, asked: AskedJob | None, notes: _Unnoted
) -> list[Restored]:
    seen = undoer.look()
    owned = journal.owned(seen.cluster)
    jobs = tuple(replace(j, owned=owned.get(j.key)) for j in seen.pending)
    with notes.tried():
        journal.reclaim(seen.cluster, jobs, clock.now())
    pending = {j.key: j for j in jobs}
    claims = [c for c in journal.claims(seen.cluster) if (c.key, c.field) not in notes.done]
    held = [c for c in claims if _is_meant(asked, c, pending.get(c.key))]
    frozen = {c.key for c in held if c.field is PRIORITY}
    done: list[Restored] = []
    if 0 in seen.hidden_ids():  # not every job shows, and nobody knows which
        missed = journal.missed(seen.cluster, clock.now() - ENDED_S)
        held = [c for c in missed if _is_meant(asked, c, None)] + held
    planned: list[tuple[Claim, Action]] = []
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
        ticket = None
        with notes.tried():
            cycle = journal.last_cycle()
            ticket = journal.intend(plan, cluster=seen.cluster, cycle=cycle, at=clock.now())
        outcomes = undoer.apply(plan)
        if ticket is not None:
            with notes.tried():
                journal.settle(ticket, outcomes, at=clock.now())
        return outcomes

    sent = _carry_out(planned, noted)
    if notes.why:
        notes.done |= {(r.claim.key, r.claim.field) for r in sent if r.fate is Fate.RESTORED}
    return done + sent


def _is_meant(asked: AskedJob | None, claim: Claim, job: PendingJob | None) -> bool:
    """job: the claim's, as the queue shows it; None = it is not pending any more."""
    if asked is None:
        return True
    if not asked.is_on(claim.cluster):
        return False
    if job is not None:
        return asked.means(job)
    return asked.named(claim.target.job_id, claim.target.address)


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
    return persist(lambda: _as_shown(undoer, asked, scope, fixed=fixed), clock, effort)


def _as_shown(
    undoer: Undoer, asked: AskedJob | None, scope: Collection[str], *, fixed: bool
) -> list[Restored]:
    seen = undoer.look()
    planned: list[tuple[Claim, Action]] = []
    # under priority/basic a released job goes behind all others: the oldest goes first
    for job in sorted(shown(seen, asked, scope), key=lambda job: (job.ages_since, job.job_id)):
        number = foreign(job, seen.priorities.kind)
        if number is not None and number[0] is PRIORITY and fixed:
            kind, action = PRIORITY, RELEASE.to(job, None, nice=job.nice)
        elif number is not None and job.site_factor:
            kind, action = SITE_FACTOR, SITE_FACTOR.to(job, 0)
        else:
            continue
        planned.append((Claim(seen.cluster, action.target, kind, action.old), action))
    return _carry_out(planned, undoer.apply)


def shown(seen: Snapshot, asked: AskedJob | None, scope: Collection[str]) -> list[PendingJob]:
    """The pending jobs in the scope, or the one that is asked for."""
    jobs = within(seen.pending, scope)
    if asked is None:
        return jobs
    return [job for job in jobs if asked.is_on(seen.cluster) and asked.means(job)]


# -- until it is done -------------------------------------------------------------------------


def _carry_out(
    planned: Sequence[tuple[Claim, Action]], apply: Callable[[Plan], Sequence[Outcome]]
) -> list[Restored]:
    """Send the first of them; the others wait for the next pass."""
    now, later = planned[:AT_ONCE], planned[AT_ONCE:]
    outcomes = apply(Plan(tuple(action for _, action in now))) if now else ()
    sent = [
        Restored(claim, _FATES[outcome.result], outcome.detail or outcome.action.done())
        for (claim, _), outcome in zip(now, outcomes, strict=True)
    ]
    return sent + [Restored(claim, Fate.WAITING, "not tried yet") for claim, _ in later]


def persist(
    one_pass: Callable[[], list[Restored]], clock: Clock, effort: Effort
) -> tuple[Restored, ...]:
    """Repeat a pass until nothing is left, Slurm refuses for good, or patience is out. Raises
    BackendError, SnapshotError: none succeeded.
    """
    found: dict[tuple[JobKey, Field], Restored] = {}
    has_seen, since_s, pause_s = False, clock.monotonic(), PAUSE_S
    while True:
        before, error = dict(found), None
        try:
            found |= {(item.claim.key, item.claim.field): item for item in one_pass()}
            has_seen = True
        except (BackendError, SnapshotError) as failed:
            error = failed
        if _settled(found) > _settled(before):
            since_s, pause_s = clock.monotonic(), PAUSE_S
        fates, idle_s = {item.fate for item in found.values()}, clock.monotonic() - since_s
        stalled = error is not None or Fate.FAILED in fates
        # what Slurm refuses twice, it refuses
        done = not (error or fates & _TRIED_AGAIN) and (found == before or not fates & UNDONE)
        unseen = any(item.soon for item in found.values())
        if done and (not unseen or idle_s >= min(UNSEEN_S, effort.patience_s)):
            break
        if stalled and not done and idle_s >= effort.patience_s:
            break
        pause_s = PAUSE_S if done else pause_s if stalled else 0.0  # the next need not wait
        then = f"; next try in {pause_s:.0f} s" if pause_s else ""
        effort.tell(_so_far(found if has_seen else {}, error) + then)
        if clock.wait(pause_s):
            break
        pause_s = min(max(PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
    if error is not None and not has_seen:
        raise error
    return tuple(found.values())


def _settled(found: dict[tuple[JobKey, Field], Restored]) -> int:
    return sum(item.fate not in UNDONE for item in found.values())


def _so_far(found: dict[tuple[JobKey, Field], Restored], error: Exception | None) -> str:
    left = [item for item in found.values() if item.fate in UNDONE]
    why = next((item.detail for item in left if item.fate in {Fate.FAILED, Fate.UNKNOWN}), "")
    given = sum(item.fate is Fate.RESTORED for item in found.values())
    counted = f"{given} of {len(found)} restored, {len(left)} left" if found else ""
    return "; ".join(part for part in (counted, str(error or why)) if part)
