"""How our order compares with what Slurm really did: most telling while we only watch."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from rltuned.core.decide import Decision
from rltuned.daemon.canary.outcomes import JobStart, unit_of


@dataclass(frozen=True, slots=True)
class Agreement:
    """One look back. Of the jobs that we had ranked, n started since and the others still wait.

    Attributes:
        started: n.
        agreed: how many of them stood among our first n. The rest of our first n we would have
            started earlier, as far as they fit.
        ours: share of the pairs of a started and a waiting job which our order has that way round;
            1 = Slurm did just as we would have, 0.5 = by chance. None = no pairs.
        slurms: the same of Slurm's own order; backfill keeps it below 1 too.
    """

    started: int
    agreed: int
    ours: float | None
    slurms: float | None


def look_back(last: Decision, started: Collection[JobStart]) -> Agreement | None:
    """Compare the last decision with what has started since; None = nothing that was ranked has."""
    units = {s.unit for s in started}
    waiting: list[tuple[int, int]] = []
    begun: list[tuple[int, int]] = []
    for entry in last.entries:
        ranks = (entry.rank_after, entry.rank_before)
        (begun if unit_of(entry.job) in units else waiting).append(ranks)
    if not begun:
        return None
    return Agreement(
        started=len(begun),
        agreed=sum(ours <= len(begun) for ours, _ in begun),
        ours=_earlier([r[0] for r in begun], [r[0] for r in waiting]),
        slurms=_earlier([r[1] for r in begun], [r[1] for r in waiting]),
    )


def _earlier(begun: list[int], waiting: list[int]) -> float | None:
    if not waiting:
        return None
    behind = np.searchsorted(np.sort(begun), np.asarray(waiting))
    return float(behind.sum()) / (len(begun) * len(waiting))
