"""What sprio says of a job: the parts of its priority, one line for each of its partitions."""

from dataclasses import dataclass, replace
from typing import Final

from rltuned.domain.units import JobId
from rltuned.slurm.columns import PriorityRow
from rltuned.slurm.jobs import Shown, Standing, parse_job_id
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
    # of a frozen job of several partitions 22.05 still shows the partition's factor
    frozen = site < _GARBAGE_SITE
    return parse_job_id(row.job_id), Factors(
        priority=parse_number(row.priority),
        site_factor=None if frozen else site,
        live=not frozen and any(map(int, row[3:])),
        partition=int(row.partition),
    )


def standing_of(shown: Shown, seen: Factors | None, site: Site) -> Standing:
    """What rules a job's priority, by squeue and by what sprio says of it; None = nothing."""
    several = shown.num_partitions > 1 and site.multifactor
    # squeue shows it in one of its partitions, which need not be the best
    best = seen.priority if several and seen is not None and seen.live else 0
    priority = max(shown.priority, best)
    uneven = several and (seen is None or seen.uneven)
    sticky = several and site.increase_only
    if seen is None:  # sprio shows no held jobs
        live = site.multifactor and shown.is_held
        return Standing(priority, live=live, uneven=uneven, sticky=sticky)
    # multifactor gives at least 1; a job whose factors are all zero and that has more was set
    of_itself = max(1, (seen.site_factor or 0) - shown.nice)
    fixed = site.all_factors_shown and not seen.live and priority > of_itself
    return Standing(priority, seen.site_factor, fixed, seen.live, uneven, sticky)
