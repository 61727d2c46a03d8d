"""What Slurm would do without rltuned's numbers: the order that is called "before" everywhere."""

from collections.abc import Sequence

import numpy as np

from rltuned.core.numbers import IntArray, base_now
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem


def own_priority(job: PendingJob, system: PrioritySystem, now: float) -> int:
    """Its priority if rltuned had never written to it; where that is not known, the one it has."""
    owned = job.owned
    if owned is None or job.taken_over:
        return job.priority
    if owned.field == "site_factor":
        base = job.priority - (job.site_factor or 0) if job.base is None else job.base
        return max(1, base + (owned.original or 0))
    if system.kind == "basic":
        return job.priority if owned.original is None else owned.original
    base_s = base_now(job, system, now)
    return job.priority if base_s is None else max(1, int(base_s))


def own_order(jobs: Sequence[PendingJob], system: PrioritySystem, now: float) -> IntArray:
    """(n,) indices of the jobs in that order; those that are equal keep theirs."""
    own = np.array([own_priority(job, system, now) for job in jobs], dtype=np.int64)
    return np.argsort(-own, kind="stable")
