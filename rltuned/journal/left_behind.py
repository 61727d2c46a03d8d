"""What became of each thing that was to be given back."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.journal.flags import Flag
from rltuned.journal.ownership import Claim


class Fate(StrEnum):
    """What became of one claim."""

    GIVEN_BACK = "given back"
    GONE = "gone"
    """Not pending any more: nothing left to give back."""
    CHANGED = "changed by somebody else"
    HELD = "held"
    UNKNOWN = "unknown"
    """Slurm does not show the value, so it cannot be compared."""
    REFUSED = "refused"
    FAILED = "failed"
    WAITING = "left"
    """Others come first; the next look is for it."""


UNDONE: Final = frozenset({Fate.UNKNOWN, Fate.REFUSED, Fate.FAILED, Fate.WAITING})
"""Fates that leave something of ours in the queue."""
TRIED_AGAIN: Final = frozenset({Fate.FAILED, Fate.WAITING})
"""Fates that Slurm may turn without anybody's doing."""


@dataclass(frozen=True, slots=True)
class Restored:
    """One claim and what became of it; detail is for people."""

    claim: Claim | Flag
    fate: Fate
    detail: str


def is_complete(items: Iterable[Restored]) -> bool:
    """Whether nothing of ours is left behind that we know of."""
    return not any(item.fate in UNDONE for item in items)
