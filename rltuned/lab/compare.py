"""Two orders on the same jobs: by how much do they differ, how surely, and in one word.

One comparison for all: backtest, evaluate, tune and the studies. Both sides are paired
by what chance may vary, days, windows, copies or blocks and a change is own / base
- 1: -0.1 = ten percent less, and less is better but for utilisation.

| of what                              | function              | interval                        |
|--------------------------------------|-----------------------|---------------------------------|
| a mean or a quantile of many jobs    | change_of_mean, ...   | drawn stretches of arrival      |
| one figure per window or repeat      | paired, geometric     | drawn windows; Student's of few |
| the objective of all jobs, in copies | compared, pooled      | drawn days, spread of copies    |
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.stats import STUDENT, Word, percent, t95, word_of

# How sure is a difference? One bootstrap: units of chance are drawn again, with replacement.
#
# What a unit is decides what the interval says: windows that share no job, days of a record. Jobs
# of one day wait for each other, so they are no units. Units that depend on each other make an
# interval too narrow: stretches of one long play do a little, for what waits at midnight is carried
# over. An interval holds within the windows or the record, and says nothing about another month.


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
    if count == 1:
        return None, None
    mean, half = float(values.mean()), t95(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return mean - half, mean + half


_LEAST: Final = 1e-12
LARGER_IS_BETTER: Final[Set[str]] = frozenset({"utilisation"})
ADDED: Final[Mapping[str, float]] = {"bsld": 0.0, "utilisation": 1e-6}
"""To both sides of a ratio; else a second, for windows in which no job waits."""
TAIL: Final = 0.99
OBJECTIVE: Final = ("wait_s", "bsld")
"""Means that it is made of."""
FLOOR_S: Final = 1.0
"""Added to every wait, for days on which no job waits."""
NORMAL: Final = 1.96


@dataclass(frozen=True, slots=True)
class Change:
    """A figure under two orders, and own / base - 1 with its 95% interval; None = too little."""

    base: float
    own: float
    change: float | None
    low: float | None = None
    high: float | None = None

    @property
    def word(self) -> Word:
        return word_of(self.low, self.high)

    @property
    def known(self) -> tuple[float, float, float]:
        """Change, low, high. Raises ValueError: there is no interval."""
        if self.change is None or self.low is None or self.high is None:
            raise ValueError(f"no interval is known: {self}")
        return self.change, self.low, self.high

    def __str__(self) -> str:
        """For people; no words of chance where no job waited."""
        if self.change is None:
            return "as before: no job waited"
        return percent(self.change, self.low, self.high)


# -- Many jobs: chance varies stretches of arrival ------------------------------------------------


def change_of_mean(
    base: FloatArray, own: FloatArray, stretches: Stretches, draws: int = OF_STRETCHES
) -> Change:
    """Compare means, (n,) each."""
    ends = float(base.mean()), float(own.mean())
    return _change(*ends, _sums(base, own, stretches, draws), stretches.count)


def _sums(
    base: FloatArray, own: FloatArray, stretches: Stretches, draws: int = OF_STRETCHES
) -> list[FloatArray]:
    """(draws,) of both sides, the same stretches drawn for them."""
    weights = drawn(stretches.count, draws)
    of, count = stretches.of, stretches.count
    return [weights @ np.bincount(of, weights=v, minlength=count) for v in (base, own)]


def change_of_quantile(
    base: FloatArray, own: FloatArray, share: float, stretches: Stretches
) -> Change:
    """Compare quantiles, (n,) each."""
    weights = drawn(stretches.count, OF_QUANTILES)
    found = [_quantiles(values, share, stretches, weights) for values in (base, own)]
    ends = float(np.quantile(base, share)), float(np.quantile(own, share))
    return _change(*ends, found, stretches.count)


def change_of_longest(base: FloatArray, own: FloatArray) -> Change:
    """Compare the largest, (n,) each: without an interval, for one job decides."""
    ends = float(base.max()), float(own.max())
    return Change(*ends, ends[1] / ends[0] - 1 if ends[0] > 0 else None)


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


# -- One figure per window or repeat --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paired(Change):
    """One metric of k windows: change of the mean. geometric: the same of the mean log ratio.

    seeds: the change of each training seed, where there are several. One window has no interval.
    """

    geometric: Change = Change(1.0, 1.0, 0.0)
    seeds: tuple[float, ...] = ()


def paired(own: FloatArray, other: FloatArray, metric: str) -> Paired:
    """Compare two policies window by window, (k,); several seeds (s, k) by their mean."""
    each = np.atleast_2d(own)
    mean, base = each.mean(axis=0), max(float(other.mean()), _LEAST)
    if len(mean) > MOST_OF_STUDENT:
        weights = drawn(len(mean), OF_WINDOWS)
        ends: Ends = interval(weights @ mean / np.maximum(weights @ other, _LEAST) - 1)
    else:  # by the ratio estimator's errors
        ratio = float(mean.mean()) / base
        ends = ends_of_mean(ratio - 1 + (mean - ratio * other) / base)
    return Paired(
        base,
        float(mean.mean()),
        float(mean.mean() / base - 1),
        ends[0],
        ends[1],
        geometric=of_logs(_logs(own, other, metric)),
        seeds=tuple((each.mean(axis=1) / base - 1).tolist()) if len(each) > 1 else (),
    )


def _logs(own: FloatArray, base: FloatArray, metric: str) -> FloatArray:
    """(k,) of the ratios. A second is added to both sides: windows without any wait say nothing
    about a ratio.
    """
    more = ADDED.get(metric, FLOOR_S)
    found: FloatArray = np.log((np.atleast_2d(own) + more) / (base + more)).mean(axis=0)
    return found


def geometric(own: Sequence[float] | FloatArray, base: Sequence[float] | FloatArray) -> Change:
    """Geometric mean of own / base over repeats, positive figures of the same jobs."""
    return of_logs(np.log(np.array(own) / np.array(base)))


def objective_logs(own: Mapping[str, FloatArray], base: Mapping[str, FloatArray]) -> FloatArray:
    """(k,) logarithms of the objective's change in windows. own: by metric, (k,) or (s, k) of
    training seeds, which count by their mean; base: (k,).
    """
    found: FloatArray = np.mean([_logs(own[m], base[m], m) for m in OBJECTIVE], axis=0)
    return found


def of_logs(logs: FloatArray) -> Change:
    """The geometric mean of (k,) ratios, given by their logarithms."""
    mean = float(np.expm1(logs.mean()))
    ends = (None if end is None else math.expm1(end) for end in ends_of_mean(logs))
    return Change(1.0, 1.0 + mean, mean, *ends)


# -- The objective: half the wait and half the bounded slowdown, in logarithms --------------------


@dataclass(frozen=True, slots=True)
class JobScores:
    """What one order made of some jobs, (n,) each."""

    wait_s: FloatArray
    bsld: FloatArray

    @property
    def mean_s(self) -> float:
        return float(self.wait_s.mean())

    @property
    def tail_s(self) -> float:
        return float(np.quantile(self.wait_s, TAIL))

    @property
    def longest_s(self) -> float:
        return float(self.wait_s.max())


@dataclass(frozen=True, slots=True)
class Comparison:
    """own against base, means of wait and slowdown, and the objective, the geometric mean of both.

    days: of how many. error: the objective's standard error, in logarithms; None, as the intervals:
    fewer than FEWEST days.
    """

    days: int
    wait: Change
    bsld: Change
    objective: Change
    error: float | None = None

    @property
    def gain(self) -> float:
        """Of the objective, in logarithms; above 0: better."""
        return -math.log1p(self.objective.change or 0.0)

    @property
    def is_better(self) -> bool:
        """By a standard error at least, and the interval is below zero."""
        found = self.objective.word == "better"
        return found and self.error is not None and self.gain >= self.error

    @property
    def leads(self) -> bool:
        """By a standard error at least; where there are too few days, at all."""
        return self.gain > (self.error or 0.0)


def compared(base: JobScores, own: JobScores, days: Stretches) -> Comparison:
    """Compare two orders of the same jobs; days are drawn again, both orders' together."""
    waits, slow = (base.wait_s + FLOOR_S, own.wait_s + FLOOR_S), (base.bsld, own.bsld)
    wait, bsld = (change_of_mean(*pair, days) for pair in (waits, slow))
    change = math.sqrt((1.0 + (wait.change or 0.0)) * (1.0 + (bsld.change or 0.0))) - 1.0
    if days.count < FEWEST:
        return Comparison(days.count, wait, bsld, Change(1.0, 1.0 + change, change))
    sums = [_sums(*pair, days) for pair in (waits, slow)]
    logs = np.mean([np.log(ours / theirs) for theirs, ours in sums], axis=0)
    low, high = (math.expm1(end) for end in interval(logs))
    objective = Change(1.0, 1.0 + change, change, low, high)
    return Comparison(days.count, wait, bsld, objective, float(logs.std()))


def pooled(copies: Sequence[Comparison]) -> Comparison:
    """What several copies of one stretch of time say together, each compared by itself.

    In a full cluster one late end moves everything after it: two plays that differ by seconds can
    differ by a third in their waits, and no resampling of days shows it. So each interval has the
    spread between copies in it beside that of days.
    """
    first = copies[0]
    if len(copies) == 1:
        return first
    wait, bsld, objective = (
        _pooled([getattr(copy, name) for copy in copies])[0]
        for name in ("wait", "bsld", "objective")
    )
    error = _pooled([copy.objective for copy in copies])[1]
    return Comparison(first.days, wait, bsld, objective, error)


def _pooled(copies: Sequence[Change]) -> tuple[Change, float | None]:
    """Mean of the logarithms, with its interval and standard error where those of all copies are
    known.
    """
    logs = np.log1p([copy.change or 0.0 for copy in copies])
    middle = float(logs.mean())
    base, own = (float(np.mean([getattr(c, side) for c in copies])) for side in ("base", "own"))
    if any(copy.low is None for copy in copies):
        return Change(base, own, math.expm1(middle)), None
    spans = [math.log1p(high) - math.log1p(low) for _, low, high in (c.known for c in copies)]
    within, between = float(np.mean(spans)) / 2, float(logs.std(ddof=1)) / math.sqrt(len(logs))
    reach = math.hypot(within, t95(len(logs) - 1) * between)
    ends = math.expm1(middle - reach), math.expm1(middle + reach)
    return Change(base, own, math.expm1(middle), *ends), math.hypot(within / NORMAL, between)
