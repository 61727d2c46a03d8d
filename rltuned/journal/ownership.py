"""What became of what the journal owned."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.journal.owned import Claim


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
