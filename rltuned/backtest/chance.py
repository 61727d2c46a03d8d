"""How sure is a difference? Days (or shorter stretches) are the unit of chance.

Jobs of one day wait for each other, so they are no independent cases: stretches of time are drawn
again, not jobs. Stretches of one long play are not quite independent either: what waits at midnight
is carried over. The intervals are honest about chance within the record, and say nothing about
another month.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned import stats
from rltuned.sim.metrics import FloatArray

RESAMPLES: Final = 2_000
FEWEST_STRETCHES: Final = 6
"""Of fewer no interval is given."""
WANTED: Final = 14
DAY_S: Final = 86_400.0
SHORTEST_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Stretches:
    """Which stretch each job belongs to, (n,) from 0; of how many seconds."""

    of: NDArray[np.int64]
    count: int
    seconds: float

    @property
    def words(self) -> str:
        """The unit of chance, for people."""
        if self.seconds == DAY_S:
            return f"{self.count} days"
        return f"{self.count} stretches of {self.seconds / 60:.0f} minutes"

    def part(self, mask: NDArray[np.bool_]) -> "Stretches":
        """Of some of the jobs; stretches without any of them are left out."""
        found, of = np.unique(self.of[mask], return_inverse=True)
        return Stretches(of.astype(np.int64), len(found), self.seconds)


def stretches_of(arrived_s: FloatArray) -> Stretches:
    """Days where there are many of them, else a fourteenth of the record."""
    if not len(arrived_s):
        return Stretches(np.zeros(0, dtype=np.int64), 0, DAY_S)
    first, last = float(arrived_s.min()), float(arrived_s.max())
    seconds = DAY_S if last - first >= WANTED * DAY_S else max(SHORTEST_S, (last - first) / WANTED)
    whole = np.floor((arrived_s - first) / seconds).astype(np.int64)
    found, of = np.unique(whole, return_inverse=True)
    return Stretches(of.astype(np.int64), len(found), seconds)


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """Two values of the same jobs, and own / base - 1 with its 95% interval; None = too little."""

    base: float
    own: float
    change: float | None
    low: float | None = None
    high: float | None = None


def change_of_mean(
    base: FloatArray, own: FloatArray, stretches: Stretches, seed: int = 1
) -> RelativeChange:
    """Compare means, (n,) each."""
    sums = [np.bincount(stretches.of, weights=v, minlength=stretches.count) for v in (base, own)]
    weights = stats.drawn(stretches.count, RESAMPLES, seed)
    means = float(base.mean()), float(own.mean())
    return _change(means, (weights @ sums[0], weights @ sums[1]), stretches.count)


def change_of_quantile(
    base: FloatArray, own: FloatArray, share: float, stretches: Stretches, seed: int = 1
) -> RelativeChange:
    """Compare quantiles, (n,) each."""
    weights = stats.drawn(stretches.count, RESAMPLES // 5, seed)
    drawn = tuple(_quantiles(v, share, stretches, weights) for v in (base, own))
    ends = float(np.quantile(base, share)), float(np.quantile(own, share))
    return _change(ends, (drawn[0], drawn[1]), stretches.count)


def _quantiles(
    values: FloatArray, share: float, stretches: Stretches, weights: FloatArray
) -> FloatArray:
    order = np.argsort(values, kind="stable")
    ordered, of = values[order], stretches.of[order]
    found = np.empty(len(weights))
    for i, row in enumerate(weights):
        mass = np.cumsum(row[of])
        at = min(int(np.searchsorted(mass, share * mass[-1])), len(ordered) - 1)
        found[i] = ordered[at]
    return found


def _change(
    ends: tuple[float, float], drawn: tuple[FloatArray, FloatArray], count: int
) -> RelativeChange:
    base, own = ends
    if base <= 0:
        return RelativeChange(base, own, None)
    told = own / base - 1
    usable = drawn[0] > 0
    if count < FEWEST_STRETCHES or usable.mean() < 0.95:  # noqa: PLR2004 - else it would be cut
        return RelativeChange(base, own, told)
    low, high = stats.interval(drawn[1][usable] / drawn[0][usable] - 1)
    return RelativeChange(base, own, told, low, high)
