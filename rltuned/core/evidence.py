"""Whether jobs do worse while delays are on: a test that may be looked at at any time.

A pair of blocks gives one number d in [-1, 1]: how much worse the users did in the on block. A
coin decided which block was on, so if delays do nothing the mean of d is 0 in every pair, however
heavy the tails of waits are and however much neighbouring blocks have in common.

d is bet upon. A bet that begins with pair k is worth the product of 1 + STAKE x (d - margin) over
the pairs from k on, and evidence is the mean of these bets with weight 1 / (k (k + 1)), those that
have not begun counting 1. On average it cannot grow unless d exceeds the margin, so by Ville's
inequality it ever reaches LIMIT with a chance of at most 1 / LIMIT. As a bet begins at every pair,
good weeks do not hide bad ones that follow. docs/adr/0010.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LIMIT: Final = 1_000.0
"""Evidence at which delays are held to do harm."""
STAKE: Final = 0.5
"""Of what could be lost in a pair; any fixed one is valid, this one finds harm soon (ADR 0010)."""
MAX_MARGIN: Final = 0.5


def difference(on: Mapping[str, float], off: Mapping[str, float]) -> float | None:
    """How much worse users did in the on block than in the off block; None = too few users.

    (a - b) / (a + b) of the means over users a and b, without the user whose absence brings it
    nearest to 0 (0 when its sign depends on one user). So one user, whatever their jobs do, makes
    it no larger than the others do. It changes its sign with on and off, and nothing else. on, off:
    by user, the mean in the block; >= 0, better when smaller.
    """
    total_on, total_off = sum(on.values()), sum(off.values())
    found = []
    for user in on.keys() | off.keys():
        left_on, left_off = len(on) - (user in on), len(off) - (user in off)
        if not (left_on and left_off):
            return None
        ours = max(0.0, total_on - on.get(user, 0.0)) / left_on
        theirs = max(0.0, total_off - off.get(user, 0.0)) / left_off
        found.append((ours - theirs) / (ours + theirs) if ours + theirs else 0.0)
    if not found:
        return None
    return max(min(found), 0.0) + min(max(found), 0.0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """How strongly the pairs so far speak for harm. bets: worth of those that have begun."""

    bets: float = 0.0
    pairs: int = 0

    def __post_init__(self) -> None:
        if not (self.bets >= 0.0 and self.pairs >= 0):
            raise ValueError(f"impossible evidence: {self}")

    @property
    def value(self) -> float:
        """The e-value: so many to one. 1 = nothing is known."""
        return self.bets + 1.0 / (self.pairs + 1)

    @property
    def is_enough(self) -> bool:
        return self.value >= LIMIT

    def after(self, found: float, margin: float) -> "Evidence":
        """With one more pair. found: its difference. margin: share by which waits may be longer."""
        pairs = self.pairs + 1
        begun = self.bets + 1.0 / (pairs * (pairs + 1))
        return Evidence(begun * (1.0 + STAKE * (found - margin / (2.0 + margin))), pairs)
