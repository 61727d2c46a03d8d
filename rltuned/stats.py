"""How sure is a difference? One bootstrap: units of chance are drawn again, with replacement.

What a unit is decides what the interval says: windows that share no job, days of a record. Jobs of
one day wait for each other, so they are no units. Units that depend on each other make an interval
too narrow: stretches of one long play do a little, for what waits at midnight is carried over. An
interval holds within the windows or the record, and says nothing about another month.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_Ends = tuple[float, float] | tuple[None, None]
LEVEL: Final = (2.5, 97.5)
"""Percentiles of a 95% interval."""
STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5% point of Student's t by the number of repeats, from two on; numpy has none."""
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
TIE: Final = 1e-9
_LEAST: Final = 1e-12
LARGER_IS_BETTER: Final[Set[str]] = frozenset({"utilisation"})
ADDED: Final[Mapping[str, float]] = {"bsld": 0.0, "utilisation": 1e-6}
"""To both sides of a ratio; else a second, for windows in which no job waits."""


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


@dataclass(frozen=True, slots=True)
class Change:
    """Two values of the same jobs, and own / base - 1 with its 95% interval; None = too little."""

    base: float
    own: float
    change: float | None
    low: float | None = None
    high: float | None = None


def percent(
    change: float, low: float | None = None, high: float | None = None, *, digits: int = 1
) -> str:
    """`-12.3% [-20.1%, -4.0%]`; without an interval where there is none."""
    text, *ends = (f"{x:+.{digits}%}" for x in (change, low, high) if x is not None)
    return f"{text} [{', '.join(ends)}]" if ends else text


def in_words(change: "Change | Paired") -> str:
    """The same of a change; no words of chance where no job waited."""
    if change.change is None:
        return "as before: no job waited"
    return percent(change.change, change.low, change.high)


def change_of_mean(base: FloatArray, own: FloatArray, stretches: Stretches) -> Change:
    """Compare means, (n,) each."""
    weights = drawn(stretches.count, OF_STRETCHES)
    of, count = stretches.of, stretches.count
    sums = [weights @ np.bincount(of, weights=v, minlength=count) for v in (base, own)]
    return _change(float(base.mean()), float(own.mean()), sums, count)


def change_of_quantile(
    base: FloatArray, own: FloatArray, share: float, stretches: Stretches
) -> Change:
    """Compare quantiles, (n,) each."""
    weights = drawn(stretches.count, OF_QUANTILES)
    found = [_quantiles(values, share, stretches, weights) for values in (base, own)]
    ends = float(np.quantile(base, share)), float(np.quantile(own, share))
    return _change(*ends, found, stretches.count)


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


def _change(base: float, own: float, samples: list[FloatArray], units: int) -> Change:
    if base <= 0:
        return Change(base, own, None)
    usable = samples[0] > 0
    if units < FEWEST or usable.mean() < 0.95:  # noqa: PLR2004 - else it would be cut
        return Change(base, own, own / base - 1)
    low, high = interval(samples[1][usable] / samples[0][usable] - 1)
    return Change(base, own, own / base - 1, low, high)


@dataclass(frozen=True, slots=True)
class Paired:
    """A model against a rule, one metric: relative change of the mean (-0.1: ten percent less).

    low, high: 95% interval; None = there is one window. geometric: the same of the mean log ratio.
    wins: windows in which the model is better. sign: chance of so uneven a split if both were equal
    (two-sided). seeds: the change of each training seed, where there are several.
    """

    change: float
    low: float | None
    high: float | None
    geometric: float
    geometric_low: float | None
    geometric_high: float | None
    wins: int
    losses: int
    ties: int
    sign: float
    seeds: tuple[float, ...] = ()


def paired(own: FloatArray, other: FloatArray, metric: str) -> Paired:
    """Compare two policies window by window, (k,); several seeds (s, k) by their mean."""
    each = np.atleast_2d(own)
    mean = each.mean(axis=0)
    base = max(float(other.mean()), _LEAST)
    # windows without any wait say nothing about a ratio: a second beside a second is no change
    more = ADDED.get(metric, 1.0)
    logs = np.log((each + more) / (other + more)).mean(axis=0)
    better = (1.0 if metric in LARGER_IS_BETTER else -1.0) * (mean - other)
    near = TIE * np.maximum(np.abs(mean), np.abs(other))
    wins, losses = int((better > near).sum()), int((better < -near).sum())
    low, high = _ends_of_ratio(mean, other, base)
    log_low, log_high = _ends_of_mean(logs)
    return Paired(
        change=float(mean.mean() / base - 1),
        low=low,
        high=high,
        geometric=math.expm1(logs.mean()),
        geometric_low=None if log_low is None else math.expm1(log_low),
        geometric_high=None if log_high is None else math.expm1(log_high),
        wins=wins,
        losses=losses,
        ties=len(mean) - wins - losses,
        sign=sign_test(wins, losses),
        seeds=tuple((each.mean(axis=1) / base - 1).tolist()) if len(each) > 1 else (),
    )


def _ends_of_ratio(own: FloatArray, other: FloatArray, base: float) -> _Ends:
    """Interval of the change of a mean, (k,) windows each; base: the mean of other."""
    if len(own) > MOST_OF_STUDENT:
        weights = drawn(len(own), OF_WINDOWS)
        return interval(weights @ own / np.maximum(weights @ other, _LEAST) - 1)
    ratio = float(own.mean()) / base
    return _ends_of_mean(ratio - 1 + (own - ratio * other) / base)  # the ratio estimator's errors


def mean_with_ends(values: FloatArray) -> tuple[float, float | None, float | None]:
    """Mean of (k,) values with its 95% interval; none of one."""
    return float(values.mean()), *_ends_of_mean(values)


def _ends_of_mean(values: FloatArray) -> _Ends:
    """Student's interval of few values, for which the bootstrap is too narrow; none of one."""
    count = len(values)
    if count > MOST_OF_STUDENT:
        return interval(drawn(count, OF_WINDOWS) @ values / count)
    return (None, None) if count == 1 else student(values)


def student(values: FloatArray) -> tuple[float, float]:
    """Student's 95% interval of the mean of (k,) values. Raises ValueError: not two to ten."""
    count = len(values)
    if not 2 <= count <= MOST_OF_STUDENT:  # noqa: PLR2004 - a spread needs two
        raise ValueError(f"an interval over repeats needs two to ten of them, not {count}")
    mean = float(values.mean())
    half = STUDENT[count - 2] * float(values.std(ddof=1)) / math.sqrt(count)
    return mean - half, mean + half


def sign_test(wins: int, losses: int) -> float:
    """Two-sided chance of a split at least so uneven between equals; ties are left out."""
    count, most = wins + losses, max(wins, losses)
    if count == 0:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(most, count + 1))
    return min(1.0, float(2 * tail / 2**count))
