"""Giving back without a journal: only what Slurm itself shows as not Slurm's own.

Slurm's own site factor is 0, so any other was written by rltuned, by an administrator or by a
plugin. A priority without factors was fixed by rltuned or by an administrator. Which of them it
was, and which nice, flag or excluded node was there before, only the journal could say.
"""

from dataclasses import dataclass

from rltuned.daemon.restore_patience import Effort, persist
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Action, Plan, Release, Result, SetSiteFactor, Target
from rltuned.domain.ports import Clock, Undoer
from rltuned.domain.remnants import Remnants
from rltuned.domain.units import UnixTime
from rltuned.journal.ownership import Claim, Fate, Restored
from rltuned.slurm.job_selector import AskedJob

AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Shown:
    """What Slurm shows of pending jobs.

    Attributes:
        site_factors: how many have one that is not 0.
        fixed: how many have a priority without factors.
        hidden: of how many it does not show the site factor.
        plugin: PrioritySiteFactorPlugin; empty = none.
    """

    site_factors: int
    fixed: int
    hidden: int
    plugin: str

    @property
    def is_clean(self) -> bool:
        return not (self.site_factors or self.fixed)

    def unknown(self) -> tuple[str, ...]:
        """What it cannot tell, for people."""
        always = (
            "not known without the journal: who set a value, the nice that a fixed priority "
            "replaced, OverSubscribe flags, excluded nodes, and what requeued jobs bring back"
        )
        lines = [always]
        if self.hidden:
            lines.append(
                f"Slurm does not show the site factor of {self.hidden} pending jobs (held, "
                "dependent, not eligible yet, or with a fixed priority)"
            )
        return tuple(lines)


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
    """Zero every site factor.

    Args:
        undoer: the world.
        clock: for the pauses.
        effort: how long it goes on.
        job: only this one; None = all.
        fixed: release every priority without factors too. Held jobs are never released.

    Raises:
        BackendError, SnapshotError: Slurm could not be read within the patience.
    """
    return persist(lambda: _one_pass(undoer, job, fixed=fixed), clock, effort)


def _one_pass(undoer: Undoer, asked: AskedJob | None, *, fixed: bool) -> list[Restored]:
    seen = undoer.look()
    planned: list[tuple[Claim, Action]] = []
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
    now, later = planned[:AT_ONCE], planned[AT_ONCE:]
    outcomes = undoer.apply(Plan(tuple(action for _, action in now))) if now else ()
    found = [Restored(claim, Fate.WAITING, "not tried yet") for claim, _ in later]
    for (claim, _), outcome in zip(now, outcomes, strict=True):
        fate = _FATES[outcome.result]
        told = f"{claim.field} {claim.owned.value}, as Slurm shows it"
        found.append(Restored(claim, fate, outcome.detail or told))
    return found


_FATES = {
    Result.APPLIED: Fate.GIVEN_BACK,
    Result.GONE: Fate.GONE,
    Result.REFUSED: Fate.REFUSED,
    Result.WITHHELD: Fate.FAILED,
    Result.FAILED: Fate.FAILED,
}


def _is_fixed(job: PendingJob) -> bool:
    return job.fixed and job.priority > 0 and not job.held_by


def _claim(seen: Remnants, target: Target, field: str, value: int) -> Claim:
    return Claim(seen.cluster, target, Ownership(field, value), UnixTime(0.0))
