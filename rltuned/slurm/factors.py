"""What sprio says of a job: the parts of its priority, one line for each of its partitions."""

from dataclasses import dataclass, replace
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId
from rltuned.slurm.columns import PriorityRow
from rltuned.slurm.jobs import parse_job_id
from rltuned.slurm.site import Site
from rltuned.slurm.values import parse_number

_GARBAGE_SITE: Final = -2_147_483_000
"""sprio 22.05 prints about -2^31 as the site factor of a frozen multi-partition job."""


@dataclass(frozen=True, slots=True)
class Factors:
    """A job's lines in sprio, one for each of its partitions.

    Attributes:
        priority: the highest of them.
        site_factor: None when what sprio printed cannot be one.
        live: some factor is not 0, so multifactor rules it.
        partition: what its partition adds, of the first line.
        uneven: the lines differ in what partition or priority is.
    """

    priority: int
    site_factor: int | None
    live: bool
    partition: int = 0
    uneven: bool = False

    def beside(self, other: "Factors") -> "Factors":
        """The same job with one more of its lines."""
        same = (other.priority, other.partition) == (self.priority, self.partition)
        highest = max(self.priority, other.priority)
        return replace(self, priority=highest, uneven=self.uneven or not same)


def read_line(row: PriorityRow) -> tuple[JobId, Factors]:
    """One line of sprio: whose it is, and what it says.

    Raises:
        ValueError: a number is none.
    """
    site = parse_number(row.site)
    weighted = (row.age, row.fairshare, row.jobsize, row.partition, row.qos)
    # of a frozen job of several partitions 22.05 still shows the partition's factor
    frozen = site < _GARBAGE_SITE
    return parse_job_id(row.job_id), Factors(
        priority=parse_number(row.priority),
        site_factor=None if frozen else site,
        live=not frozen and any(int(f) for f in weighted),
        partition=int(row.partition),
    )


def with_factors(job: PendingJob, factors: dict[JobId, Factors], site: Site) -> PendingJob:
    """A job with what sprio says of it."""
    seen, several = factors.get(job.job_id), len(job.partitions) > 1
    if several:
        job = _of_several_partitions(job, seen, site)
    if seen is None:  # sprio shows no held jobs
        return replace(job, live=site.multifactor and bool(job.held_by))
    # multifactor gives at least 1; a job whose factors are all zero and that has more was set
    of_itself = max(1, (seen.site_factor or 0) - job.nice)
    fixed = site.all_factors_shown and not seen.live and job.priority > of_itself
    return replace(job, site_factor=seen.site_factor, fixed=fixed, live=seen.live)


def _of_several_partitions(job: PendingJob, seen: Factors | None, site: Site) -> PendingJob:
    """Its priority: squeue shows that in one of its partitions, which need not be the best."""
    if not site.multifactor:
        return job
    best = max(job.priority, seen.priority) if seen is not None and seen.live else job.priority
    uneven = seen is None or seen.uneven
    return replace(job, priority=best, uneven=uneven, sticky=site.increase_only)
