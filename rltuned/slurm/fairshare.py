"""What sshare says: the fair-share factor of every association, read seldom.

A job whose priority is fixed has no factors in sprio. What multifactor would give it now needs the
factor of its association, which moves by thousands of points within minutes under a fair tree.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem
from rltuned.errors import BackendError
from rltuned.slurm.run import Commands

_COLUMNS: Final = ("Account", "User", "Partition", "FairShare")
MOST: Final = 1_000_000
"""More associations are refused."""

Association = tuple[str, str, str]
"""Account, user, partition; the partition is empty for one that is for all."""


class FairShares:
    """Asks sshare, at most once per PriorityCalcPeriod."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._read_at: float | None = None
        self._factors: dict[Association, float] = {}

    def dress(
        self, jobs: Iterable[PendingJob], now: float, system: PrioritySystem
    ) -> tuple[PendingJob, ...]:
        """The jobs, those whose priority is fixed with their association's factor, where sshare
        shows it. system: of the weight, and PriorityCalcPeriod, within which no factor moves.
        """
        found = tuple(jobs)
        if not all(job.live for job in found):
            self._read(now, system.calc_period_s)
        return tuple(j if j.live else replace(j, fair=self._points(j, system)) for j in found)

    def _points(self, job: PendingJob, system: PrioritySystem) -> float | None:
        share = self._share(job)
        return None if share is None else system.fair_weight * share

    def factors(self, jobs: Iterable[PendingJob], now: float) -> tuple[float, ...]:
        """The different factors that these jobs' associations have, in order; empty = not known."""
        self._read(now, 0.0)
        return tuple(sorted({share for job in jobs if (share := self._share(job)) is not None}))

    def _share(self, job: PendingJob) -> float | None:
        """Slurm takes an association for the partition before the one that is for all."""
        known = self._factors
        shares = {
            known.get((job.account, job.user, name), known.get((job.account, job.user, "")))
            for name in job.partitions
        }
        return shares.pop() if len(shares) == 1 else None

    def _read(self, now: float, period_s: float) -> None:
        if self._read_at is not None and 0 <= now - self._read_at < period_s:
            return
        self._read_at, self._factors = now, {}
        try:
            self._factors = dict(_read(self._commands))
        except (BackendError, ValueError):
            self._factors = {}


def _read(commands: Commands) -> Iterator[tuple[Association, float]]:
    """Every association of a user, but for unreadable lines. Raises BackendError, ValueError."""
    lines = commands.call("sshare", "-a", "-P", "-o", ",".join(_COLUMNS)).lines()
    if tuple(next(lines, "").split("|")) != _COLUMNS:
        raise ValueError("sshare: no such columns")
    for number, line in enumerate(lines):
        if number >= MOST:
            raise ValueError("sshare: too many associations")
        account, _, rest = line.strip().partition("|")
        user, _, rest = rest.partition("|")
        partition, _, text = rest.partition("|")
        factor = _factor(text)
        if user and factor is not None:
            yield (account, user, partition), factor


def _factor(text: str) -> float | None:
    """A number from 0 to 1; None = it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None
