"""What rules a job's priority: its lines in sprio, and its association's fair share from sshare.

A job stands in a line of sprio for each of its partitions, unless it is held. One whose priority is
fixed has no factors there. What multifactor would give it now needs the factor of its association,
which moves by thousands of points within minutes under a fair tree.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.units import JobId
from rltuned.errors import BackendError
from rltuned.slurm.columns import PRIORITY_LETTERS, Marks, PriorityRow
from rltuned.slurm.run import Commands
from rltuned.slurm.site import SlurmSite
from rltuned.slurm.squeue import id_of, parse_job_id
from rltuned.slurm.values import parse_number, whole_numbers
from rltuned.text import one_line

GARBAGE_SITE: Final = -2_147_483_000
"""sprio 22.05 prints about -2^31 as the site factor of a frozen multi-partition job."""
_SHARE_COLUMNS: Final = ("Account", "User", "Partition", "FairShare")


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
        factor, live = self.site_factor, self.live
        parts = best.priority, factor, live, best.base, best.rest, best.fair, self.partition
        return Factors(*parts, uneven)


def read_line(row: PriorityRow) -> tuple[JobId, Factors]:
    """One line of sprio: whose it is, and what it says. Raises ValueError: a number is none."""
    plain = (row.age, row.fairshare, row.jobsize, row.partition, row.qos, row.assoc)
    priority, age, fair, *others = map(parse_number, (row.priority, *plain))
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


def ask_sprio(
    commands: Commands, marks: Marks, of: Collection[JobId] | None = None
) -> tuple[dict[JobId, Factors], dict[JobId, str]]:
    """What sprio shows: jobs that are pending, eligible and not held; and what is wrong with other
    lines, by job, 0 = not known whose. of: None = all jobs. Raises BackendError, SnapshotError.
    """
    names = None if of is None else frozenset(map(str, of))
    environ = {"SPRIO_FORMAT": marks.letters(PRIORITY_LETTERS)}
    answer = commands.call("sprio", "--local", environ=environ)
    found, bad, odd = dict[JobId, Factors](), dict[JobId, str](), list[str]()
    for raw in marks.rows(answer, len(PRIORITY_LETTERS), odd):
        if names is not None and raw[0].strip() not in names:
            continue
        try:
            job_id, factors = read_line(PriorityRow._make(map(str.strip, raw)))
        except ValueError as error:
            bad[id_of(raw[0].strip())] = f"sprio: {one_line(' '.join(raw), 120)}: {error}"
            continue
        found[job_id] = found[job_id].beside(factors) if job_id in found else factors
    if odd:
        bad.setdefault(JobId(0), odd[0])
    return {job_id: found[job_id] for job_id in found.keys() - bad.keys()}, bad


def standing_of(job: Mapping[str, Any], seen: Factors | None, site: SlurmSite) -> dict[str, Any]:
    """What rules a job's priority, as fields of PendingJob: by its other fields, and by what sprio
    says of it; None = nothing.
    """
    several = len(job["partitions"]) > 1 and site.multifactor
    best = seen.priority if several and seen is not None and seen.live else 0
    priority = max(job["priority"], best)
    found = {
        "priority": priority,
        "uneven": several and (seen is None or seen.uneven),
        "sticky": site.multifactor and site.increase_only,
    }
    if seen is None:  # sprio shows no held jobs
        return found | {"live": site.multifactor and bool(job["held_by"])}
    # multifactor gives at least 1; a job whose factors are all zero and that has more was set
    of_itself = max(1, (seen.site_factor or 0) - job["nice"])
    fixed = not seen.live and priority > of_itself
    rest = {name: getattr(seen, name) for name in ("site_factor", "live", "base", "rest", "fair")}
    return found | {"fixed": fixed} | rest


class FairShares:
    """Asks sshare, at most once per PriorityCalcPeriod."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._read_at: float | None = None
        self._factors: dict[tuple[str, str, str], float] = {}
        """By account, user and partition; the partition is empty for one that is for all."""

    def points(self, job: Mapping[str, Any], now: float, system: PrioritySystem) -> float | None:
        """What the fair share of a job adds that is not live, by its fields; None = not known.
        system: of the weight, and PriorityCalcPeriod, within which no factor moves.
        """
        if self._read_at != now:
            self._read(now, system.calc_period_s)
        share = self._share(job["account"], job["user"], job["partitions"])
        return None if share is None else system.fair_weight * share

    def factors(self, jobs: Iterable[PendingJob], now: float) -> tuple[float, ...]:
        """The different factors that these jobs' associations have, in order; empty = not known."""
        self._read(now, 0.0)
        shares = {self._share(job.account, job.user, job.partitions) for job in jobs}
        return tuple(sorted(share for share in shares if share is not None))

    def _share(self, account: str, user: str, partitions: Iterable[str]) -> float | None:
        """Slurm takes an association for the partition before the one that is for all."""
        known = self._factors
        shares = {
            known.get((account, user, name), known.get((account, user, ""))) for name in partitions
        }
        return shares.pop() if len(shares) == 1 else None

    def _read(self, now: float, period_s: float) -> None:
        """Every association of a user, but for unreadable lines."""
        if self._read_at is not None and 0 <= now - self._read_at < period_s:
            return
        self._read_at, self._factors = now, {}
        with suppress(BackendError):
            words = ("-a", "-P", "-o", ",".join(_SHARE_COLUMNS))
            lines = self._commands.call("sshare", *words).lines()
            if tuple(next(lines, "").split("|")) != _SHARE_COLUMNS:
                return
            for line in lines:
                account, user, partition, text = [*line.strip().split("|", 3), *[""] * 3][:4]
                with suppress(ValueError):
                    if user and 0.0 <= float(text) <= 1.0:
                        self._factors[account, user, partition] = float(text)
