"""Give back what rltuned changed: `rltuned restore`, and the last act of the service.

By the journal, compare and set: a job whose value cannot be rltuned's is left alone and reported.
Without a journal, only what Slurm itself shows as not Slurm's own: its site factor is 0, so any
other was written by rltuned, by an administrator or by a plugin, and a priority without factors was
fixed by rltuned or by an administrator. Which of them it was, and which nice, flag or excluded node
was there before, only the journal knows.

A held job is never released, because a release would start it. A restore continues through an
overloaded slurmctld and through rate limits. It works with the daemon dead, and without numpy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rltuned.daemon.restore_patience import ONE_TRY, Effort, persist
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE_TOKENS,
    Action,
    Outcome,
    Plan,
    Release,
    Result,
    SetNice,
    SetOverSubscribe,
    SetPriority,
    SetRequest,
    SetSiteFactor,
    Target,
)
from rltuned.domain.ports import Clock, Undoer
from rltuned.domain.snapshot import Remnants
from rltuned.domain.units import UnixTime
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import NUM_NODES, Claim, Fate, Restored, WordClaim
from rltuned.slurm.job_selector import AskedJob

AT_ONCE: Final = 200
"""So many changes are sent between two looks at the queue."""
_FATES: Final = {
    Result.APPLIED: Fate.GIVEN_BACK,
    Result.GONE: Fate.GONE,
    Result.REFUSED: Fate.REFUSED,
    Result.WITHHELD: Fate.FAILED,
    Result.FAILED: Fate.FAILED,
}
_Undo = tuple[Claim | WordClaim, Action]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be given back: everything, one job, or the jobs written to since a time."""

    job: AskedJob | None = None
    since: float = -math.inf

    def holds(self, claim: Claim | WordClaim, job: PendingJob | None) -> bool:
        """job: the claim's, as the queue shows it; None = it is not pending any more."""
        if claim.written_at < self.since:
            return False
        if self.job is None:
            return True
        if job is not None:
            return self.job.means(job)
        return self.job.named(claim.target.job_id, claim.target.address)


EVERYTHING: Final = Wanted()


def restore(
    undoer: Undoer,
    journal: Journal,
    clock: Clock,
    wanted: Wanted = EVERYTHING,
    effort: Effort = ONE_TRY,
) -> tuple[Restored, ...]:
    """Give back everything that rltuned changed, or what is wanted of it. Raises BackendError,
    SnapshotError: Slurm was never read; JournalError: it is unfit, or a live daemon writes.
    """
    if journal.is_clean():
        return ()  # a service that only ever watched must stop even while Slurm is away
    return persist(lambda: _by_journal(undoer, journal, clock, wanted), clock, effort)


def _by_journal(undoer: Undoer, journal: Journal, clock: Clock, wanted: Wanted) -> list[Restored]:
    seen = undoer.look()
    owned = journal.owned(seen.cluster)
    jobs = tuple(replace(j, owned=owned.get((j.job_id, j.submitted_at))) for j in seen.pending)
    journal.reclaim(seen.cluster, jobs, clock.now())
    pending = {(j.job_id, j.submitted_at): j for j in jobs}
    claims = journal.claims(seen.cluster)
    keys = {c.key for c in claims if wanted.holds(c, pending.get(c.key))}
    held = [c for c in claims if c.key in keys]  # a job as a whole, whatever field called for it
    frozen = {c.key for c in held if c.field == "priority"}
    done: list[Restored] = []
    planned: list[_Undo] = []
    for claim in held:
        job = pending.get(claim.key)
        if job is None and (why := seen.hidden(claim.target.job_id)):
            done.append(Restored(claim, Fate.UNKNOWN, why))
            continue
        verdict = _judge(claim, job, clock.now(), is_frozen=claim.key in frozen)
        if isinstance(verdict, Restored):
            done.append(verdict)
        else:
            planned.append((claim, verdict))
    stay = {c.key for c in claims} - seen.left_out({c.key for c in claims})
    journal.close_gone(seen.cluster, stay)

    def noted(plan: Plan) -> Sequence[Outcome]:
        cycle = journal.last_cycle()
        ticket = journal.intend(plan, cluster=seen.cluster, cycle=cycle, at=clock.now())
        outcomes = undoer.apply(plan)
        journal.settle(ticket, outcomes, at=clock.now())
        return outcomes

    return done + _carry_out(planned, noted)


def _carry_out(
    planned: Sequence[_Undo], apply: Callable[[Plan], Sequence[Outcome]]
) -> list[Restored]:
    """Send the first of them; the others wait for the next pass."""
    now, later = planned[:AT_ONCE], planned[AT_ONCE:]
    outcomes = apply(Plan(tuple(action for _, action in now))) if now else ()
    sent = [
        Restored(claim, _FATES[outcome.result], outcome.detail or _done(outcome.action))
        for (claim, _), outcome in zip(now, outcomes, strict=True)
    ]
    return sent + [Restored(claim, Fate.WAITING, "not tried yet") for claim, _ in later]


def _judge(
    claim: Claim | WordClaim, job: PendingJob | None, now: float, *, is_frozen: bool
) -> Restored | Action:
    if job is None:
        return Restored(claim, Fate.GONE, "started, ended or was cancelled")
    if isinstance(claim, WordClaim):
        return _judge_words(claim, job)
    if claim.field == "priority":
        return _judge_priority(claim, job)
    return _judge_site_factor(claim, job, now, is_frozen=is_frozen)


def _judge_words(claim: WordClaim, job: PendingJob) -> Restored | Action:
    """What takes words back as far as Slurm allows it."""
    target = Target(job.job_id, job.submitted_at, job.address)
    if claim.field == NUM_NODES:
        if job.sizes is None:
            return Restored(claim, Fate.UNKNOWN, "its node range cannot be read now")
        if job.sizes.nodes != claim.value:
            why = f"NumNodes is {job.sizes.nodes}, rltuned wrote {claim.value}"
            return Restored(claim, Fate.CHANGED, why)
        return SetRequest(target, NUM_NODES, claim.value, claim.original)
    if claim.original not in OVERSUBSCRIBE_TOKENS:
        return Restored(claim, Fate.CHANGED, f"OverSubscribe={claim.original} cannot be set")
    if job.oversubscribe != claim.value:
        why = f"OverSubscribe is {job.oversubscribe}, rltuned wrote {claim.value}"
        return Restored(claim, Fate.CHANGED, why)
    return SetOverSubscribe(target, claim.value, claim.original)


def _judge_priority(claim: Claim, job: PendingJob) -> Restored | Action:
    nice, target = claim.owned.nice or 0, Target(job.job_id, job.submitted_at, job.address)
    if lost := replace(job, owned=claim.owned).lost_nice:
        return SetNice(target, job.nice, lost)
    if job.priority == 0 or job.held_by:
        return Restored(claim, Fate.HELD, _of_held(job, nice))
    if not claim.owned.explains(job.priority):
        return Restored(
            claim, Fate.CHANGED, f"priority is {job.priority}, rltuned wrote {claim.owned.value}"
        )
    if job.nice not in {0, nice}:  # rltuned's number cleared it
        return Restored(claim, Fate.CHANGED, f"nice is {job.nice}, it was {nice} before")
    return Release(target, job.priority, nice, claim.owned.original)


def _of_held(job: PendingJob, nice: int) -> str:
    """Why a job is left alone that is held, or that Slurm keeps at 0 for another reason."""
    why = "a release would start it; Slurm gives it a number of its own when it is freed"
    if not nice or job.nice != 0:
        return why
    return f"{why}; then set its nice by: scontrol update JobId={job.address} Nice={nice}"


def _judge_site_factor(
    claim: Claim, job: PendingJob, now: float, *, is_frozen: bool
) -> Restored | Action:
    actual, priority = job.site_factor, None
    if actual is None and job.is_dependent and job.priority > 0:
        actual, priority = claim.owned.value, job.priority
    if actual is None or is_frozen:
        # of a job just released the next pass of the scheduler says when it became eligible
        soon = not is_frozen and job.priority > 0 and (job.eligible_at or 0.0) <= now
        return Restored(claim, Fate.UNKNOWN, _of_hidden(claim, job), soon)
    if not claim.owned.explains(actual):
        return Restored(
            claim, Fate.CHANGED, f"site factor is {actual}, rltuned wrote {claim.owned.value}"
        )
    target = Target(job.job_id, job.submitted_at, job.address)
    return SetSiteFactor(target, actual, claim.owned.original or 0, priority)


def _of_hidden(claim: Claim, job: PendingJob) -> str:
    """What cannot be compared may be another user's; of a held job the command is safe."""
    why = "Slurm does not show its site factor now"
    if not job.held_by:
        return why
    undo = f"scontrol update JobId={job.address} SiteFactor={claim.owned.original or 0}"
    return f"{why}; unless another user has set it, {undo} gives it back and the job stays held"


def _done(action: Action) -> str:
    match action:
        case Release():
            nice = f", nice {action.nice} set again" if action.nice else ""
            return f"priority {action.old} released to multifactor{nice}"
        case SetNice():
            return f"nice {action.new} set again; rltuned's number was gone by a hold"
        case SetSiteFactor():
            return f"site factor {action.old} -> {action.new}"
        case SetOverSubscribe():
            return (
                f"OverSubscribe {action.old} -> {action.new}: alone on its nodes again, with what "
                "it asked for; whole nodes cannot be given back"
            )
        case SetRequest():
            return (
                f"NumNodes {action.old} -> {action.new}; Slurm starts it on the fewest of these, "
                "because an operator has changed them"
            )
        case SetPriority():
            return f"priority {action.old} -> {action.new}"


# -- without a journal --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What Slurm shows of pending jobs. site_factors: not 0. fixed: priorities without factors.
    hidden: without a site factor shown. plugin: PrioritySiteFactorPlugin.
    """

    site_factors: int
    fixed: int
    hidden: int
    plugin: str

    @property
    def is_clean(self) -> bool:
        return not (self.site_factors or self.fixed)

    def unknown(self) -> tuple[str, ...]:
        always = (
            "not known without the journal: who set a value, the nice that a fixed priority "
            "replaced, OverSubscribe flags, and what requeued jobs bring back"
        )
        hidden = (
            f"Slurm does not show the site factor of {self.hidden} pending jobs (held, dependent, "
            "not eligible yet, or with a fixed priority)"
        )
        return (always, hidden) if self.hidden else (always,)


def shown(seen: Remnants, job: AskedJob | None = None) -> Shown:
    """Count it. job: only this one; None = all."""
    jobs = [j for j in seen.pending if job is None or job.means(j)]
    return Shown(
        site_factors=sum(bool(j.site_factor) for j in jobs),
        fixed=sum(_is_fixed(j) for j in jobs),
        hidden=sum(j.site_factor is None for j in jobs) + len(seen.unreadable),
        plugin=seen.plugin,
    )


def give_back_shown(
    undoer: Undoer, clock: Clock, effort: Effort, *, job: AskedJob | None, fixed: bool
) -> tuple[Restored, ...]:
    """Zero every site factor, or one job's. fixed: release fixed priorities too, but no held job.
    Raises BackendError, SnapshotError: Slurm could not be read within the patience.
    """
    return persist(lambda: _as_shown(undoer, job, fixed=fixed), clock, effort)


def _as_shown(undoer: Undoer, asked: AskedJob | None, *, fixed: bool) -> list[Restored]:
    seen = undoer.look()
    planned: list[_Undo] = []
    for job in seen.pending:
        if asked is not None and not asked.means(job):
            continue
        target = Target(job.job_id, job.submitted_at, job.address)
        if fixed and _is_fixed(job):
            claim = _claim(seen, target, "priority", job.priority)
            planned.append((claim, Release(target, job.priority, job.nice)))
        elif job.site_factor:
            claim = _claim(seen, target, "site_factor", job.site_factor)
            planned.append((claim, SetSiteFactor(target, job.site_factor, 0)))
    return _carry_out(planned, undoer.apply)


def _is_fixed(job: PendingJob) -> bool:
    return job.fixed and job.priority > 0 and not job.held_by


def _claim(seen: Remnants, target: Target, field: str, value: int) -> Claim:
    return Claim(seen.cluster, target, Ownership(field, value), UnixTime(0.0))
