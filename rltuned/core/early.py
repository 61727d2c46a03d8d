"""Jobs on the critical path of a group: shorter delays, and a number while a dependency holds them.

Slurm takes a site factor of a job that waits for another, and shows none. So the number of one that
rltuned has not written is taken for 0, and a change of its priority is all that can be read back.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rltuned.core.order import Delays
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot


def is_early(job: PendingJob, snapshot: Snapshot) -> bool:
    """Whether it may get a site factor before it can start: only where slurmctld counts ages."""
    return job.job_id in snapshot.critical and job.is_dependent and snapshot.priorities.slope > 0


def with_early(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with those jobs as if their waiting began now."""
    if not snapshot.critical:
        return snapshot

    def as_if_free(job: PendingJob) -> PendingJob:
        if not is_early(job, snapshot) or (job.owned is not None and job.owned.field == "priority"):
            return job
        known = job.site_factor if job.owned is None else job.owned.value
        now = snapshot.taken_at
        return replace(job, eligible_at=now, accrue_at=now, site_factor=known or 0)

    return replace(snapshot, pending=tuple(map(as_if_free, snapshot.pending)))


def boosted(delays: Delays, jobs: Sequence[PendingJob], snapshot: Snapshot, boost: float) -> Delays:
    """Delays of which those of critical jobs are shorter by a share."""
    if not boost or not snapshot.critical:
        return delays
    critical = frozenset(snapshot.critical)
    share = np.array([1.0 - boost if job.job_id in critical else 1.0 for job in jobs])
    return replace(delays, delay_s=delays.delay_s * share)
