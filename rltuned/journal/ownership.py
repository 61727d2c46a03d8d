"""What the journal's open rows add up to: what rltuned holds of each job; and what became of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rltuned.domain.fields import OWNED, Field, Target, Value
from rltuned.domain.jobs import Ownership
from rltuned.domain.units import JobId, JobKey, UnixTime


@dataclass(frozen=True, slots=True)
class Claim:
    """What rltuned holds of one job in one field, and when it wrote last. original, nice, earlier,
    rest: as of Ownership; of words the first alone is known.
    """

    cluster: str
    target: Target
    field: Field
    value: Value
    original: Value | None = None
    written_at: float = 0.0
    nice: int | None = None
    earlier: tuple[int, ...] = ()
    rest: int | None = None

    @property
    def key(self) -> JobKey:
        return self.target.key

    def explains(self, actual: Value) -> bool:
        """Whether the value in force is rltuned's; of numbers see Ownership."""
        if isinstance(actual, str):
            return actual == self.value
        return self.owned.explains(actual)

    @property
    def owned(self) -> Ownership:
        """The same of a number, as a decision knows it."""
        original = None if self.original is None else int(self.original)
        return Ownership(
            field=self.field.name,
            value=int(self.value),
            nice=self.nice,
            original=original,
            earlier=self.earlier,
            rest=self.rest,
            written_at=self.written_at,
        )


class OpenRow(NamedTuple):
    """One open row; new is None for a release."""

    cluster: str
    job_id: int
    submitted_at: float
    address: str
    field: str
    old: int | str
    new: int | str | None
    nice: int | None
    rest: int | None
    at: float


def sum_up(rows: tuple[OpenRow, ...]) -> list[Claim]:
    """Sum up the open rows of one job (oldest first): a claim per field, words before numbers."""
    order = [*dict.fromkeys(r.field for r in reversed(rows) if r.new is not None)][::-1]
    order.sort(key=lambda name: not OWNED[name].words)
    return [_claim([r for r in rows if r.field == name]) for name in order]


def _claim(rows: list[OpenRow]) -> Claim:
    first, field = rows[0], OWNED[rows[0].field]
    written = [r.new for r in rows if r.new is not None]
    earlier = set[int]() if field.words else {int(v) for v in (*written, *(r.old for r in rows))}
    return Claim(
        cluster=first.cluster,
        target=Target(JobId(first.job_id), UnixTime(first.submitted_at), rows[-1].address),
        field=field,
        value=written[-1],
        original=first.old,
        written_at=max(r.at for r in rows if r.new is not None),
        nice=first.nice,
        earlier=tuple(sorted(earlier - {written[-1]})),
        rest=first.rest,
    )


class Fate(StrEnum):
    """What became of one claim."""

    RESTORED = "restored"
    GONE = "gone"
    """Not pending any more: nothing left to restore."""
    CHANGED = "changed by another user"
    HELD = "held"
    UNKNOWN = "unknown"
    """Slurm does not show the value, so it cannot be compared."""
    REFUSED = "refused"
    FAILED = "failed"
    WAITING = "left"
    """Others come first; the next look is for it."""


UNDONE: Final = frozenset({Fate.UNKNOWN, Fate.REFUSED, Fate.FAILED, Fate.WAITING})
"""Fates that leave something owned in the queue."""
TRIED_AGAIN: Final = frozenset({Fate.FAILED, Fate.WAITING})
"""Fates that Slurm may turn without anybody's doing."""


@dataclass(frozen=True, slots=True)
class Restored:
    """One claim and what became of it; detail is for people. soon: Slurm shows within seconds what
    was not known.
    """

    claim: Claim
    fate: Fate
    detail: str
    soon: bool = False


def is_complete(items: Iterable[Restored]) -> bool:
    """Whether nothing owned is known to be left behind."""
    return not any(item.fate in UNDONE for item in items)
