"""What the diary's open rows add up to: what we hold of each job."""

from dataclasses import dataclass
from typing import NamedTuple

from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import Target
from rltuned.domain.units import JobId, UnixTime

JobKey = tuple[JobId, UnixTime]
"""Job id and submit time: Slurm hands out ids again."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What we hold of one job.

    Attributes:
        owned: the same as the core sees it: what is ours, and which values in force can be.
        written_at: when we wrote last.
    """

    cluster: str
    target: Target
    owned: Ownership
    written_at: UnixTime

    @property
    def field(self) -> str:
        return self.owned.field

    @property
    def key(self) -> JobKey:
        return self.target.job_id, self.target.submitted_at


class Origin(NamedTuple):
    """Where a write comes from.

    Attributes:
        snapshot: digest of what the decision had seen, if any.
        newest: the highest job id that Slurm showed then; None = not known.
    """

    cluster: str
    cycle: int
    at: float
    snapshot: str | None
    newest: int | None = None


class OpenWrite(NamedTuple):
    """One open row of the diary; new is None for a release."""

    cluster: str
    job_id: int
    submitted_at: float
    address: str
    field: str
    old: int
    new: int | None
    nice: int | None
    rest: int | None
    at: float


def sum_up(rows: tuple[OpenWrite, ...]) -> list[Claim]:
    """Sum up the open rows of one job (oldest first): one claim per field, last written last."""
    order = dict.fromkeys(r.field for r in reversed(rows) if r.new is not None)
    return [_claim([r for r in rows if r.field == field]) for field in reversed(order)]


def _claim(rows: list[OpenWrite]) -> Claim:
    first, last = rows[0], rows[-1]
    written = [r.new for r in rows if r.new is not None]
    written_at = max(r.at for r in rows if r.new is not None)
    return Claim(
        cluster=first.cluster,
        target=Target(JobId(first.job_id), UnixTime(first.submitted_at), last.address),
        owned=Ownership(
            field=first.field,
            value=written[-1],
            nice=first.nice,
            original=first.old,
            earlier=tuple(sorted({*written, *(r.old for r in rows)} - {written[-1]})),
            rest=first.rest,
        ),
        written_at=UnixTime(written_at),
    )
