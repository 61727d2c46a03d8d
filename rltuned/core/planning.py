"""From numbers to actions, and back: what is written, and what takes a write back."""

from collections.abc import Iterable, Sequence

from rltuned.core.numbers import Field, IntArray, rest_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Release, SetNice, SetPriority, SetSiteFactor, Target
from rltuned.domain.snapshot import Snapshot


def make_plan(
    jobs: Sequence[PendingJob],
    value: IntArray,
    due: Iterable[int],
    field: Field,
    snapshot: Snapshot,
) -> tuple[SetPriority | SetSiteFactor, ...]:
    """The writes that give jobs their numbers.

    Args:
        jobs: those that rltuned orders.
        value: (n,) the number that each of them is to have.
        due: indices of the jobs to write, in the order of the actions.
        field: which number.
        snapshot: in which the jobs were seen.
    """
    found: list[SetPriority | SetSiteFactor] = []
    system = snapshot.priorities
    aged = system.kind == "multifactor"
    for i in due:
        job, new = jobs[i], int(value[i])
        if field == "site_factor":
            found.append(SetSiteFactor(target_of(job), job.site_factor or 0, new))
        else:
            nice = job.nice if job.owned is None or job.owned.nice is None else job.owned.nice
            rest = rest_of(job, system, snapshot.taken_at) if aged else None
            found.append(SetPriority(target_of(job), job.priority, new, nice, rest))
    return tuple(found)


def undo(job: PendingJob) -> Release | SetNice | SetSiteFactor | None:
    """What takes back the last write to a job.

    None when there is nothing to take back: not owned, changed by another user since, or held
    (an operator's release would start a held job, so of that one only the nice is given back).
    """
    if job.owned is None:
        return None
    if job.lost_nice:
        return SetNice(target_of(job), job.nice, job.lost_nice)
    if job.priority == 0 or job.taken_over:
        return None
    if job.owned.field == "priority":
        return Release(target_of(job), job.priority, job.owned.nice or 0, job.owned.original)
    original = job.owned.original or 0
    if job.site_factor is None or job.site_factor == original:
        return None
    return SetSiteFactor(target_of(job), job.site_factor, original)


def target_of(job: PendingJob) -> Target:
    """The address of a job's record."""
    return Target(job.job_id, job.submitted_at, job.address)
