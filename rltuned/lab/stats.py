"""How sure is a difference? One bootstrap: units of chance are drawn again, with replacement.

What a unit is decides what the interval says: windows that share no job, days of a record. Jobs of
one day wait for each other, so they are no units. Units that depend on each other make an interval
too narrow: stretches of one long play do a little, for what waits at midnight is carried over. An
interval holds within the windows or the record, and says nothing about another month.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.stats import STUDENT, t95

FloatArray = NDArray[np.float64]
Ends = tuple[float, float] | tuple[None, None]
LEVEL: Final = (2.5, 97.5)
"""Percentiles of a 95% interval."""
MOST_OF_STUDENT: Final = len(STUDENT) + 1
OF_WINDOWS, OF_STRETCHES, OF_QUANTILES = 10_000, 2_000, 400
"""How often the units are drawn."""
FEWEST: Final = 6
"""Stretches; of fewer no interval is given."""
WANTED: Final = 14
DAY_S: Final = 86_400.0
SHORTEST_S: Final = 600.0
SHARES: Final = np.linspace(0.0, 1.0, 201)
"""Of the jobs: where distributions of single jobs are read."""


@lru_cache(maxsize=1)
def drawn(units: int, draws: int, seed: int = 1) -> FloatArray:
    """(draws, units) how often each unit was drawn, `units` of them in every draw; read-only."""
    random = np.random.default_rng(seed)
    found = random.multinomial(units, np.full(units, 1 / units), size=draws).astype(np.float64)
    found.flags.writeable = False
    return found


def interval(samples: FloatArray) -> tuple[float, float]:
    """The 95% percentile interval of (draws,) values."""
    low, high = np.percentile(samples, LEVEL).tolist()
    return low, high


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
    every = Stretches(np.floor((arrived_s - first) / seconds).astype(np.int64), 0, seconds)
    return every.part(np.ones(len(arrived_s), dtype=bool))


def mean_with_ends(values: FloatArray) -> tuple[float, float | None, float | None]:
    """Mean of (k,) values with its 95% interval; none of one."""
    return float(values.mean()), *ends_of_mean(values)


def ends_of_mean(values: FloatArray) -> Ends:
    """Student's interval of few values, for which the bootstrap is too narrow; none of one."""
    count = len(values)
    if count > MOST_OF_STUDENT:
        return interval(drawn(count, OF_WINDOWS) @ values / count)
    return (None, None) if count == 1 else student(values)


def student(values: FloatArray) -> tuple[float, float]:
    """Student's 95% interval of the mean of (k,) values, two or more."""
    count = len(values)
    mean = float(values.mean())
    half = t95(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return mean - half, mean + half


def sign_test(wins: int, losses: int) -> float:
    """Two-sided chance of a split at least so uneven between equals; ties are left out."""
    count, most = wins + losses, max(wins, losses)
    if count == 0:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(most, count + 1))
    return min(1.0, float(2 * tail / 2**count))
