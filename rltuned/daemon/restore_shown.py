"""Restore without a journal: only what Slurm itself shows as not Slurm's own.

Slurm's own site factor is 0, so any other was written by rltuned, by an administrator or by a
plugin, and a priority without factors was fixed by rltuned or by an administrator. Which of them it
was, and which nice, flag or excluded node was there before, only the journal knows.
"""

from collections.abc import Collection
from dataclasses import dataclass

from rltuned.daemon.restore import Undo, carry_out
from rltuned.daemon.restore_patience import Effort, persist
from rltuned.daemon.unexplained import in_words, number_of, within
from rltuned.domain.fields import PRIORITY, RELEASE, SITE_FACTOR
from rltuned.domain.jobs import PendingJob
from rltuned.domain.ports import Clock, Undoer
from rltuned.domain.priority import PriorityKind
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.owned import Claim
from rltuned.journal.ownership import Restored
from rltuned.slurm.job_selector import AskedJob


@dataclass(frozen=True, slots=True)
class Shown:
    """What Slurm shows of pending jobs. site_factors: not 0. fixed: priorities without factors, or
    under priority/basic those that only rltuned writes. hidden: without a site factor shown.
    plugin: PrioritySiteFactorPlugin. kind: of priority system. named: the numbers that are not 0.
    """

    site_factors: int
    fixed: int
    hidden: int
    plugin: str
    kind: PriorityKind = "multifactor"
    named: str = ""

    @property
    def is_clean(self) -> bool:
        return not (self.site_factors or self.fixed)

    def unknown(self) -> tuple[str, ...]:
        always = (
            "not known without the journal: who set a value, the nice that a fixed priority "
            "replaced, OverSubscribe flags, and what requeued jobs bring back"
        )
        if self.kind != "multifactor":
            dormant = (
                f"Slurm runs with priority/{self.kind}, which shows no site factor: once "
                "priority/multifactor runs again, `rltuned restore --all --as-shown` zeroes them"
            )
            return (always, dormant)
        hidden = (
            f"Slurm does not show the site factor of {self.hidden} pending jobs (held, dependent, "
            "not eligible yet, or with a fixed priority)"
        )
        return (always, hidden) if self.hidden else (always,)


def shown(seen: Snapshot, job: AskedJob | None = None, scope: Collection[str] = ()) -> Shown:
    """Count it. job: only this one; None = all. scope: partitions that are managed; () = all."""
    jobs = [j for j in within(seen.pending, scope) if _is_meant(job, j, seen.cluster)]
    numbers = {
        j.key: (j.address, number)
        for j in jobs
        if (number := number_of(j, seen.priorities.kind)) is not None
    }
    return Shown(
        site_factors=sum(bool(j.site_factor) for j in jobs),
        fixed=sum(field is PRIORITY for _, (field, _) in numbers.values()),
        hidden=sum(j.site_factor is None for j in jobs)
        + sum(row.kind != "reservation" for row in seen.unreadable),
        plugin=seen.priorities.site_factor_plugin,
        kind=seen.priorities.kind,
        named=in_words(numbers),
    )


def give_back_shown(
    undoer: Undoer,
    clock: Clock,
    effort: Effort,
    *,
    job: AskedJob | None,
    scope: Collection[str] = (),
    fixed: bool,
) -> tuple[Restored, ...]:
    """Zero every site factor in the scope, or one job's. fixed: release fixed priorities too, but
    no held job. Raises BackendError, SnapshotError: Slurm could not be read within the patience.
    """
    return persist(lambda: _as_shown(undoer, job, scope, fixed=fixed), clock, effort)


def _is_meant(asked: AskedJob | None, job: PendingJob, cluster: str) -> bool:
    return asked is None or (asked.is_on(cluster) and asked.means(job))


def _as_shown(
    undoer: Undoer, asked: AskedJob | None, scope: Collection[str], *, fixed: bool
) -> list[Restored]:
    seen = undoer.look()
    planned: list[Undo] = []
    # under priority/basic a released job goes behind all others: the oldest goes first
    for job in sorted(within(seen.pending, scope), key=lambda job: (job.ages_since, job.job_id)):
        number = number_of(job, seen.priorities.kind)
        if number is None or not _is_meant(asked, job, seen.cluster):
            continue
        if number[0] is PRIORITY and fixed:
            field, action = PRIORITY, RELEASE.to(job, None, nice=job.nice)
        elif job.site_factor:
            field, action = SITE_FACTOR, SITE_FACTOR.to(job, 0)
        else:
            continue
        planned.append((Claim(seen.cluster, action.target, field, action.old), action))
    return carry_out(planned, undoer.apply)
