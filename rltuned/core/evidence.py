"""Whether treated jobs fare worse than their control: a test that may be looked at all the time.

Jobs are compared in blocks of so many that started (or ended) one after the other. Of a block it
is asked in which share of the pairs the treated job fared worse. Who is treated was drawn by lot,
so if the treatment does nothing that share is 1/2 on average in every block, however the queue
behaves meanwhile: bursts, trends and heavy tails fall on both sides alike.

The shares are bet upon (testing by betting): evidence is multiplied by
1 + STAKE x (share - 1/2 - margin), which cannot grow on average unless the treated fare worse by
more than the margin, and never falls below 1, so that good days do not hide bad ones that follow
(CUSUM). By Ville's inequality evidence reaches a limit c within n blocks without cause with a
chance of n/c at most. docs/adr/0010.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

LIMIT: Final = 1_000.0
"""Evidence at which the treated are held to fare worse: a false alarm in 1000 blocks at most."""
STAKE: Final = 1.5
"""Of what could be lost; any fixed one is right, this one finds harm soon (ADR 0010)."""
MAX_MARGIN: Final = 0.15
"""Beyond 1 / STAKE - 1/2 a bet could lose more than everything."""
PER_SIDE: Final = 5
"""Jobs of the smaller side that a block holds on average."""


def block_jobs(fraction: float) -> int:
    """Jobs of a block. It depends on nothing that the lot decides, or the test would be biased.

    Raises:
        ValueError: with this fraction one side is empty, and nothing can be compared.
    """
    smaller = min(fraction, 1.0 - fraction)
    if not smaller > 0:
        raise ValueError(f"a fraction of {fraction} leaves nobody to compare with")
    return ceil(PER_SIDE / smaller - 1e-9)


def worse_share(treated: Sequence[float], control: Sequence[float]) -> float | None:
    """The share of pairs in which the treated job's figure is higher, ties half; None = no pair."""
    if not treated or not control:
        return None
    ours, theirs = np.asarray(treated)[:, None], np.asarray(control)[None, :]
    return float(np.mean((ours > theirs) + 0.5 * (ours == theirs)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """How strongly the blocks so far speak for harm. value: 1 = not at all."""

    value: float = 1.0

    def __post_init__(self) -> None:
        if not self.value >= 1.0:
            raise ValueError(f"evidence {self.value} is below 1")

    def after(self, share: float, margin: float) -> "Evidence":
        """With one more block.

        Args:
            share: of pairs in which the treated fared worse, 0 to 1.
            margin: by how much it may be above 1/2; MAX_MARGIN at most.
        """
        return Evidence(max(1.0, self.value * (1.0 + STAKE * (share - 0.5 - margin))))

    @property
    def is_enough(self) -> bool:
        return self.value >= LIMIT
