"""What the journal's open rows add up to: what rltuned holds of each job; and what became of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import Target
from rltuned.domain.units import JobId, UnixTime

OVERSUBSCRIBE: Final = "oversubscribe"
NUM_NODES: Final = "num_nodes"
"""Names of the fields of words, in the table and for people."""
WORDS: Final = (OVERSUBSCRIBE, NUM_NODES)

JobKey = tuple[JobId, UnixTime]
"""Job id and submit time: Slurm hands out ids again."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What rltuned holds of one job in a field of numbers, and when it wrote last."""

    cluster: str
    target: Target
    owned: Ownership
    written_at: UnixTime

    @property
    def field(self) -> str:
        return self.owned.field

    @property
    def key(self) -> JobKey:
        return self.target.key


@dataclass(frozen=True, slots=True)
class WordClaim:
    """What rltuned holds of a job in a field of words: Slurm's before that, and its own."""

    cluster: str
    target: Target
    field: str
    original: str
    value: str
    written_at: UnixTime

    @property
    def key(self) -> JobKey:
        return self.target.key


class Origin(NamedTuple):
    """Where a write comes from. snapshot: digest. newest: the highest job id shown."""

    cluster: str
    cycle: int
    at: float
    snapshot: str | None
    newest: int | None = None


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


def sum_up(rows: tuple[OpenRow, ...]) -> list[Claim | WordClaim]:
    """Sum up the open rows of one job (oldest first): a claim per field, words before numbers."""
    order = [*dict.fromkeys(r.field for r in reversed(rows) if r.new is not None)][::-1]
    order.sort(key=lambda field: field not in WORDS)
    return [_claim([r for r in rows if r.field == field]) for field in order]


def _claim(rows: list[OpenRow]) -> Claim | WordClaim:
    first, last = rows[0], rows[-1]
    target = Target(JobId(first.job_id), UnixTime(first.submitted_at), last.address)
    at = UnixTime(max(r.at for r in rows if r.new is not None))
    if first.field in WORDS:
        return WordClaim(first.cluster, target, first.field, str(first.old), str(last.new), at)
    written = [int(r.new) for r in rows if r.new is not None]
    return Claim(
        cluster=first.cluster,
        target=target,
        owned=Ownership(
            field=first.field,
            value=written[-1],
            nice=first.nice,
            original=int(first.old),
            earlier=tuple(sorted({*written, *(int(r.old) for r in rows)} - {written[-1]})),
            rest=first.rest,
            written_at=at,
        ),
        written_at=at,
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

    claim: Claim | WordClaim
    fate: Fate
    detail: str
    soon: bool = False


def is_complete(items: Iterable[Restored]) -> bool:
    """Whether nothing owned is known to be left behind."""
    return not any(item.fate in UNDONE for item in items)
