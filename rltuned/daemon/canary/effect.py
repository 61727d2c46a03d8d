"""Does it help? The waits in on blocks beside those in off blocks, with an interval by pairs.

A coin decided which block of a pair was on, so the mean difference of the pairs is the effect of
delays, whatever the queue did meanwhile; pairs, not jobs, are what chance may vary.
"""

import operator
from dataclasses import astuple, dataclass
from math import sqrt
from typing import Any, Final

from rltuned.stats import Word, t95, word_of

FEWEST: Final = 10
"""Pairs below which no interval is given."""
WORDS: Final[dict[Word, str]] = {
    "better": "it helps",
    "worse": "it harms",
    "no proven difference": "chance can explain it",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """Sums over pairs of blocks with jobs in both: mean waits, squares of their differences."""

    pairs: int = 0
    on_sum_s: float = 0.0
    off_sum_s: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Effect") -> "Effect":
        return Effect(*map(operator.add, astuple(self), astuple(other)))

    @staticmethod
    def of(on_s: float, off_s: float) -> "Effect":
        return Effect(1, on_s, off_s, (on_s - off_s) ** 2)

    @property
    def interval_s(self) -> tuple[float, float, float] | None:
        """Mean wait of on less off blocks, and its 95 % interval; None = too few pairs."""
        if self.pairs < FEWEST:
            return None
        apart_s = (self.on_sum_s - self.off_sum_s) / self.pairs
        spread = max(0.0, self.squares - self.pairs * apart_s**2) / (self.pairs - 1)
        reach_s = t95(self.pairs - 1) * sqrt(spread / self.pairs)
        return apart_s, apart_s - reach_s, apart_s + reach_s

    @property
    def helps(self) -> bool:
        """Whether waits are shorter in on blocks, and chance cannot explain it."""
        found = self.interval_s
        return found is not None and word_of(*found[1:]) == "better"

    @property
    def verdict(self) -> str:
        found = self.interval_s
        if found is None:
            return f"{self.pairs} of {FEWEST} pairs of blocks are measured"
        apart_s, low_s, high_s = found
        known = WORDS[word_of(low_s, high_s)]
        return (
            f"{known}: mean wait {self.on_sum_s / self.pairs:.0f} s in on blocks, "
            f"{self.off_sum_s / self.pairs:.0f} s in off blocks of {self.pairs} pairs, "
            f"{apart_s:+.0f} s, 95 % interval {low_s:+.0f} to {high_s:+.0f} s"
        )

    def document(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        apart_s, low_s, high_s = self.interval_s or (None, None, None)
        return {
            "pairs": self.pairs,
            "on_s": self.on_sum_s / self.pairs if self.pairs else None,
            "off_s": self.off_sum_s / self.pairs if self.pairs else None,
            "difference_s": apart_s,
            "low_s": low_s,
            "high_s": high_s,
            "verdict": self.verdict,
        }
