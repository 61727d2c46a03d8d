"""A claim of the paper, what is measured here, and one word that a rule says of both.

All figures are changes, own / base - 1: -0.4 = 40% less. Less is better but for utilisation.

| word               | where                                                           |
|--------------------|-----------------------------------------------------------------|
| claim inconsistent | the paper's own figures contradict the claim, whatever ours are |
| better             | the whole 95% interval is better than the claim                 |
| not reproduced     | the whole 95% interval is worse than the claim                  |
| reproduced         | the interval holds the claim                                    |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from rltuned.lab.compare import LARGER_IS_BETTER, Change
from scripts.studies.paper.common import Row, change

Word = Literal["reproduced", "better", "not reproduced", "claim inconsistent", "not played"]
SAME_JOBS: Final = 0.01
"""Mean run times of two rows differ by no more if both are of the same jobs."""


@dataclass(frozen=True)
class Ours:
    """A change with its 95% interval over so many seeds. rows: the stored ones that it is of."""

    change: float
    low: float
    high: float
    seeds: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """One cell. contradiction: of the paper's own figures; note: why ours may differ."""

    where: str
    cell: str
    metric: str
    claim: float
    ours: Ours | None
    contradiction: str = ""
    note: str = ""

    @property
    def word(self) -> Word:
        """By the rule above."""
        if self.contradiction:
            return "claim inconsistent"
        if self.ours is None:
            return "not played"
        low, high, claim = self._less_is_better()
        if high < claim:
            return "better"
        return "not reproduced" if low > claim else "reproduced"

    @property
    def reason(self) -> str:
        """What the interval says, and why."""
        parts = [self.contradiction, self._seen(), self.note]
        return "; ".join(part for part in parts if part)

    def _seen(self) -> str:
        if self.ours is None:
            return "not played yet"
        low, high, claim = self._less_is_better()
        gain = "a gain" if high < 0.0 else "a loss" if low > 0.0 else "no proven change"
        if self.contradiction:
            return f"ours: {gain}"
        if high < claim:
            return "the whole interval is better than the claim"
        if low > claim:
            return f"ours: {gain}, worse than the claim"
        return "the interval holds the claim" + ("" if low * high > 0.0 else ", and no change")

    def _less_is_better(self) -> tuple[float, float, float]:
        """Low, high, claim."""
        if self.ours is None:
            raise ValueError(f"nothing is measured: {self}")
        if self.metric in LARGER_IS_BETTER:
            return -self.ours.high, -self.ours.low, -self.claim
        return self.ours.low, self.ours.high, self.claim


def measured_by(found: Change, seeds: int, rows: Sequence[str]) -> Ours:
    """Of a comparison that has an interval. Raises ValueError: it has none."""
    change, low, high = found.known
    return Ours(change, low, high, seeds, tuple(rows))


def across(results: Path, found: Mapping[Any, Row], metric: str) -> Ours | None:
    """Stored runs that differ in their seed alone, each with its base's figures on the same
    windows. None: there are none.
    """
    if not found:
        return None
    rows = list(found.values())
    compared = change([row[metric] for row in rows], rows[0][f"base_{metric}"], metric)
    return measured_by(compared, len(rows), [row_name(results, run) for run in found])


def row_name(results: Path, run: object) -> str:
    """Of a stored row."""
    return f"{results}: {', '.join(str(cell) for cell in vars(run).values())}"


def hull(seeds: Sequence[tuple[float, float, float]], rows: Sequence[str]) -> Ours | None:
    """The mean change of seeds, each with its interval, and the interval that holds all of them:
    where only a change is kept per seed, how seeds and windows vary together is not known.
    """
    if not seeds:
        return None
    changes, lows, highs = zip(*seeds, strict=True)
    return Ours(float(np.mean(changes)), min(lows), max(highs), len(seeds), tuple(rows))


def of_other_jobs(own: dict[str, float], base: dict[str, float]) -> str:
    """Why two rows of absolute figures are not of the same jobs: completion time less wait is the
    mean run time, whoever orders. Empty: they may be.
    """
    run_s, other_s = (row["jct"] - row["wait"] for row in (own, base))
    if abs(run_s / other_s - 1.0) <= SAME_JOBS:
        return ""
    return f"the rows' mean run times differ: {run_s:,.0f} s and {other_s:,.0f} s"
