"""What the diary's open rows add up to: what we hold of each job."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from rltuned.domain.plan import Target
from rltuned.domain.units import JobId, UnixTime

JobKey = tuple[JobId, UnixTime]
"""Job id and submit time: Slurm hands out ids again."""
Field = Literal["priority", "site_factor"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What we hold of one job.

    Attributes:
        field: what was written last.
        original: the value before our first write.
        value: what was written last.
        ours: every value that may be in force because of us; backfill can put an older one back,
            so those that we replaced belong to it.
        nice: the user's nice before `Priority=` destroyed it; None when nothing was destroyed.
    """

    cluster: str
    target: Target
    field: Field
    original: int
    value: int
    ours: frozenset[int]
    nice: int | None

    @property
    def key(self) -> JobKey:
        return self.target.job_id, self.target.submitted_at


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


def sum_up(rows: tuple[OpenWrite, ...]) -> list[Claim]:
    """Sum up the open rows of one job (oldest first): one claim per field, last written last."""
    order = dict.fromkeys(r.field for r in reversed(rows) if r.new is not None)
    return [_claim([r for r in rows if r.field == field]) for field in reversed(order)]


def _claim(rows: list[OpenWrite]) -> Claim:
    first, last = rows[0], rows[-1]
    written = [r.new for r in rows if r.new is not None]
    return Claim(
        cluster=first.cluster,
        target=Target(JobId(first.job_id), UnixTime(first.submitted_at), last.address),
        field="priority" if first.field == "priority" else "site_factor",
        original=first.old,
        value=written[-1],
        ours=frozenset([*written, *(r.old for r in rows)]),
        nice=first.nice,
    )
