"""Give back what rltuned changed: `rltuned restore`, and the last act of the service.

Compare and set: a job whose value is not one that can be ours is left alone and reported. A held
job is never released, because a release would start it. It goes on through an overloaded slurmctld
and through rate limits. Works with the daemon dead, and without numpy and torch.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from rltuned.daemon.restore_patience import ONE_TRY, Effort, persist
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE_TOKENS,
    Action,
    Outcome,
    Plan,
    Release,
    Result,
    SetExcludedNodes,
    SetNice,
    SetOverSubscribe,
    SetPriority,
    SetSiteFactor,
    Target,
)
from rltuned.domain.ports import Clock, Undoer
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import (
    EXCLUDED_NODES,
    Claim,
    Fate,
    Restored,
    WordClaim,
    nodes_of,
    words_of,
)
from rltuned.slurm.job_selector import AskedJob


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be given back: everything, one job, or the jobs that we wrote to since a time."""

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
AT_ONCE: Final = 200
"""So many changes are sent between two looks at the queue."""


def restore(
    undoer: Undoer,
    journal: Journal,
    clock: Clock,
    wanted: Wanted = EVERYTHING,
    effort: Effort = ONE_TRY,
) -> tuple[Restored, ...]:
    """Give back everything that is ours, or what is wanted of it.

    Raises:
        BackendError, SnapshotError: Slurm could not be read within the patience, nor once.
        JournalError: the journal cannot be used, or a live daemon is writing.
    """
    if journal.is_clean():
        return ()  # a service that only ever watched must stop even while Slurm is away
    return persist(lambda: _one_pass(undoer, journal, clock, wanted), clock, effort)


def _one_pass(undoer: Undoer, journal: Journal, clock: Clock, wanted: Wanted) -> list[Restored]:
    seen = undoer.look()
    owned = journal.owned(seen.cluster)
    jobs = tuple(replace(j, owned=owned.get((j.job_id, j.submitted_at))) for j in seen.pending)
    journal.reclaim(seen.cluster, jobs, clock.now())
    pending = {(j.job_id, j.submitted_at): j for j in jobs}
    ours = journal.claims(seen.cluster)
    keys = {c.key for c in ours if wanted.holds(c, pending.get(c.key))}
    held = [c for c in ours if c.key in keys]  # a job as a whole, whatever field called for it
    frozen = {c.key for c in held if c.field == "priority"}
    done: list[Restored] = []
    planned: list[tuple[Claim | WordClaim, Action]] = []
    for claim in held:
        job = pending.get(claim.key)
        if job is None and (why := seen.hidden(claim.target.job_id)):
            done.append(Restored(claim, Fate.UNKNOWN, why))
            continue
        verdict = _judge(claim, job, is_frozen=claim.key in frozen)
        if isinstance(verdict, Restored):
            done.append(verdict)
        else:
            planned.append((claim, verdict))
    stay = {c.key for c in ours} - seen.left_out({c.key for c in ours})
    journal.close_gone(seen.cluster, stay)
    waiting = [Restored(claim, Fate.WAITING, "not tried yet") for claim, _ in planned[AT_ONCE:]]
    sent = _carry_out(undoer, journal, clock, seen.cluster, planned[:AT_ONCE])
    return done + sent + waiting


def _judge(
    claim: Claim | WordClaim, job: PendingJob | None, *, is_frozen: bool
) -> Restored | Action:  # fmt: skip
    """What to do for a claim, or why nothing is done."""
    if job is None:
        return Restored(claim, Fate.GONE, "started, ended or was cancelled")
    if isinstance(claim, WordClaim):
        return _judge_words(claim, job)
    if claim.field == "priority":
        return _judge_priority(claim, job)
    return _judge_site_factor(claim, job, is_frozen=is_frozen)


def _judge_words(claim: WordClaim, job: PendingJob) -> Restored | Action:
    """What takes words back as far as Slurm lets us."""
    target = Target(job.job_id, job.submitted_at, job.address)
    if claim.field == EXCLUDED_NODES:
        actual, name = words_of(job.excluded_nodes) or "empty", "ExcNodeList"
        undo: Action = SetExcludedNodes(target, nodes_of(claim.value), nodes_of(claim.original))
    elif claim.original in OVERSUBSCRIBE_TOKENS:
        actual, name = job.oversubscribe, "OverSubscribe"
        undo = SetOverSubscribe(target, claim.value, claim.original)
    else:
        return Restored(claim, Fate.CHANGED, f"OverSubscribe={claim.original} cannot be set")
    ours = claim.value or "empty"
    if actual != ours:
        return Restored(claim, Fate.CHANGED, f"{name} is {actual}, we wrote {ours}")
    return undo


def _judge_priority(claim: Claim, job: PendingJob) -> Restored | Action:
    nice, target = claim.owned.nice or 0, Target(job.job_id, job.submitted_at, job.address)
    ours = replace(job, owned=claim.owned)
    if ours.lost_nice:
        return SetNice(target, job.nice, ours.lost_nice)
    if job.priority == 0 or job.held_by:
        return Restored(claim, Fate.HELD, _of_held(job, nice))
    if not claim.owned.explains(job.priority):
        return Restored(
            claim, Fate.CHANGED, f"priority is {job.priority}, we wrote {claim.owned.value}"
        )
    if job.nice not in {0, nice}:  # our number clears it, and nothing sets it while that stands
        return Restored(claim, Fate.CHANGED, f"nice is {job.nice}, it was {nice} before ours")
    return Release(target, job.priority, nice, claim.owned.original)


def _of_held(job: PendingJob, nice: int) -> str:
    """What is left to say of a job that is held, or that Slurm keeps at 0 for another reason."""
    why = "a release would start it; Slurm gives it a number of its own when it is freed"
    if not nice or job.nice != 0:
        return why
    return f"{why}; then set its nice by: scontrol update JobId={job.address} Nice={nice}"


def _judge_site_factor(claim: Claim, job: PendingJob, *, is_frozen: bool) -> Restored | Action:
    actual = job.site_factor
    if actual is None or is_frozen:
        return Restored(claim, Fate.UNKNOWN, "Slurm does not show its site factor now")
    if not claim.owned.explains(actual):
        return Restored(
            claim, Fate.CHANGED, f"site factor is {actual}, we wrote {claim.owned.value}"
        )
    target = Target(job.job_id, job.submitted_at, job.address)
    return SetSiteFactor(target, old=actual, new=claim.owned.original or 0)


def _carry_out(
    undoer: Undoer,
    journal: Journal,
    clock: Clock,
    cluster: str,
    planned: list[tuple[Claim | WordClaim, Action]],
) -> list[Restored]:
    if not planned:
        return []
    plan = Plan(tuple(action for _, action in planned))
    ticket = journal.intend(plan, cluster=cluster, cycle=journal.last_cycle(), at=clock.now())
    outcomes = undoer.apply(plan)
    journal.settle(ticket, outcomes, at=clock.now())
    return [
        _told(claim, outcome) for (claim, _), outcome in zip(planned, outcomes, strict=True)
    ]  # fmt: skip


def _told(claim: Claim | WordClaim, outcome: Outcome) -> Restored:
    fates = {
        Result.APPLIED: Fate.GIVEN_BACK,
        Result.GONE: Fate.GONE,
        Result.REFUSED: Fate.REFUSED,
        Result.WITHHELD: Fate.FAILED,
        Result.FAILED: Fate.FAILED,
    }
    return Restored(claim, fates[outcome.result], outcome.detail or _done(outcome.action))


def _done(action: Action) -> str:
    match action:
        case Release():
            nice = f", nice {action.nice} set again" if action.nice else ""
            return f"priority {action.old} released to multifactor{nice}"
        case SetNice():
            return f"nice {action.new} set again; our number was gone, for somebody held the job"
        case SetSiteFactor():
            return f"site factor {action.old} -> {action.new}"
        case SetOverSubscribe():
            return (
                f"OverSubscribe {action.old} -> {action.new}: alone on its nodes again, with what "
                "it asked for; whole nodes cannot be given back"
            )
        case SetExcludedNodes():
            return f"ExcNodeList {','.join(action.old)} -> {','.join(action.new) or 'empty'}"
        case SetPriority():
            return f"priority {action.old} -> {action.new}"
