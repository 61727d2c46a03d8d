"""What sprio says of a job: the parts of its priority, one line for each of its partitions."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.units import JobId, UnixTime
from rltuned.slurm.columns import PriorityRow, WatchRow
from rltuned.slurm.jobs import PriorityState
from rltuned.slurm.records import TWICE, Record, parse_job_id, read_record
from rltuned.slurm.site import SlurmSite
from rltuned.slurm.stepped import Whole
from rltuned.slurm.values import parse_number, parse_numbers, whole_numbers

UNASKED: Final = Request(total=Resources(0, 0, 0))
"""In place of what a job asks for, where that is not read."""
GARBAGE_SITE: Final = -2_147_483_000
"""sprio 22.05 prints about -2^31 as the site factor of a frozen multi-partition job."""


class Factors(NamedTuple):
    """A job's lines in sprio, one for each of its partitions. live: some factor is not 0, so
    multifactor rules it.

    priority: the highest; of that line base: the sum without the site factor, less the nice; rest,
    fair: the sum without age and fair share, and what that adds. partition: what it adds, of the
    first line. uneven: the lines differ in it or in priority.
    """

    priority: int
    site_factor: int | None
    live: bool
    base: int | None = None
    rest: int | None = None
    fair: int | None = None
    partition: int = 0
    uneven: bool = False

    def beside(self, other: "Factors") -> "Factors":
        """The same job with one more of its lines."""
        same = (other.priority, other.partition) == (self.priority, self.partition)
        best = max((self, other), key=lambda line: line.priority)
        uneven = self.uneven or not same
        return self._replace(
            priority=best.priority,
            base=best.base,
            rest=best.rest,
            fair=best.fair,
            uneven=uneven,
        )


def read_line(row: PriorityRow) -> tuple[JobId, Factors]:
    """One line of sprio: whose it is, and what it says. Raises ValueError: a number is none."""
    plain = (row.age, row.fairshare, row.jobsize, row.partition, row.qos, row.assoc)
    priority, age, fair, *others = parse_numbers((row.priority, *plain))
    site, nice = parse_number(row.site), parse_number(row.nice)
    tres = whole_numbers(row.tres)
    if row.tres and not tres:
        raise ValueError(f"{row.tres[:40]!r} is no list of TRES")
    # of a frozen job of several partitions 22.05 still shows the partition's factor
    frozen = site < GARBAGE_SITE
    parts = (age, fair, *others, *tres)
    live = not frozen and any(parts)
    # cut to whole points one by one, the parts may come to a few points less than their sum; at 1
    # Slurm has cut the sum itself off
    base = priority - site if priority > 1 else sum(parts) - nice
    return parse_job_id(row.job_id), Factors(
        priority=priority,
        site_factor=None if frozen else site,
        live=live,
        base=base if live else None,
        rest=base + site - age - fair if live else None,
        fair=fair if live else None,
        partition=others[1],
    )


def standing_of(
    record: Record, partitions: int, seen: Factors | None, site: SlurmSite
) -> PriorityState:
    """What rules a job's priority, by squeue and by what sprio says of it; None = nothing."""
    several = partitions > 1 and site.multifactor
    best = seen.priority if several and seen is not None and seen.live else 0
    priority = max(record.priority, best)
    uneven = several and (seen is None or seen.uneven)
    sticky = site.multifactor and site.increase_only
    if seen is None:  # sprio shows no held jobs
        live = site.multifactor and bool(record.held_by)
        return PriorityState(priority, live=live, uneven=uneven, sticky=sticky)
    # multifactor gives at least 1; a job whose factors are all zero and that has more was set
    of_itself = max(1, (seen.site_factor or 0) - record.nice)
    fixed = not seen.live and priority > of_itself
    return PriorityState(
        priority,
        seen.site_factor,
        fixed,
        seen.live,
        uneven,
        sticky,
        seen.base,
        seen.rest,
        seen.fair,
    )


def read_pending(
    rows: list[WatchRow],
    records: int,
    factors: Mapping[JobId, Factors],
    site: SlurmSite,
    whole: Whole,
) -> PendingJob:
    """A pending record as few columns show it, by its rows, one for each task; what it asks for is
    not read. records: pending ones of its array. Raises ValueError: a column cannot be read, or not
    all tasks are known.
    """
    row, partitions = rows[0], tuple(rows[0].partition.split(","))
    if any(other._replace(arraytaskid=row.arraytaskid) != row for other in rows[1:]):
        raise ValueError(TWICE)
    named = read_record(row, whole(row.jobid, [r.arraytaskid for r in rows]), records)
    state = standing_of(named, len(partitions), factors.get(named.job_id), site)
    return PendingJob(
        **(named._asdict() | state._asdict()),
        request=UNASKED,
        partitions=partitions,
        reason=row.reason,
        oversubscribe=row.oversubscribe,
    )


def unreadable(job_id: JobId, why: str) -> PendingJob:
    """A record of which nothing is known but that it is pending; it counts as held."""
    return PendingJob(job_id, "", UnixTime(0.0), UNASKED, 0, ("",), unreadable=why)
