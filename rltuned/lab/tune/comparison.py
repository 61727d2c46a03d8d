"""Two orders on the same jobs: by how much, how surely, for whom; and whether that is enough.

The objective is half the wait and half the bounded slowdown, in logarithms. The unit of chance is a
day of arrivals: days are drawn again with replacement, both orders' together. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.lab.backtest.past import Past
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.play import Played
from rltuned.stats import (
    DAY_S,
    FEWEST,
    OF_STRETCHES,
    STUDENT,
    FloatArray,
    Stretches,
    drawn,
    interval,
)

TAIL: Final = 0.99
LARGE_SHARE: Final = 0.05
"""Of the GPU time: users from here on have a promise of their own."""
TOLERANCE_S: Final = 60.0
"""One cycle: a wait that is longer by no more than this breaks no promise."""
LEAST: Final = 0.01
"""A smaller gain is not worth another order, however sure it is."""
_FLOOR_S: Final = 1.0
"""Added to every wait, for days on which no job waits."""
NORMAL: Final = 1.96
POWER: Final = NORMAL + 0.84
"""A change of so many standard errors is found by four of five test periods."""


@dataclass(frozen=True, slots=True)
class JobScores:
    """What one order made of the scored jobs, (n,) each."""

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
class ScoredJobs:
    """The scored jobs of a past, after its split. days: of their arrival.

    users: (n,) whose they are; gpu_s: (n,) GPU time.
    """

    mask: NDArray[np.bool_]
    arrived_s: FloatArray
    run_s: FloatArray
    gpu_s: FloatArray
    users: NDArray[np.object_]
    days: Stretches

    @classmethod
    def of(cls, past: Past) -> "ScoredJobs":
        mask = past.later
        arrived = past.arrived_s[mask]
        jobs = [job for job, wanted in zip(past.jobs, mask.tolist(), strict=True) if wanted]
        of = np.floor((arrived - past.split_s) / DAY_S).astype(np.int64)
        days = Stretches(of, 0, DAY_S).part(np.ones(len(of), dtype=bool))
        run_s = np.array([job.duration_s for job in jobs])
        gpus = np.array([max(1, job.gpus) for job in jobs])
        users = np.array([job.user for job in jobs], dtype=object)
        return cls(mask, arrived, run_s, run_s * gpus, users, days)

    def __len__(self) -> int:
        return len(self.arrived_s)

    def scores(self, played: Played) -> JobScores:
        """Of one play."""
        wait_s = played.start_s[self.mask] - self.arrived_s
        return JobScores(wait_s, slowdown(wait_s, self.run_s))

    def large_users(self) -> list[tuple[str, float]]:
        """Those with more than LARGE_SHARE of the GPU time, and their shares; the largest first."""
        names, of = np.unique(self.users.astype(str), return_inverse=True)
        shares = np.bincount(of, weights=self.gpu_s) / max(float(self.gpu_s.sum()), 1.0)
        large = [i for i in np.argsort(-shares) if shares[i] > LARGE_SHARE]
        return [(str(names[i]), float(shares[i])) for i in large]

    def mean_of(self, user: str, scores: JobScores) -> float:
        """A user's mean wait."""
        return float(scores.wait_s[self.users == user].mean())


@dataclass(frozen=True, slots=True)
class Difference:
    """own against base: relative changes, -0.1 = ten percent less; 95% interval of each.

    objective: of exp(half the logs of wait and slowdown); error: its standard error, in logarithms.
    None = fewer than FEWEST days. days: of how many.
    """

    days: int
    wait: float
    bsld: float
    objective: float
    error: float | None = None
    wait_interval: tuple[float, float] | None = None
    bsld_interval: tuple[float, float] | None = None
    interval: tuple[float, float] | None = None

    @property
    def is_better(self) -> bool:
        """By a standard error at least, and the interval is below zero."""
        if self.error is None or self.interval is None:
            return False
        return math.log1p(self.objective) <= -self.error and self.interval[1] < 0

    @property
    def leads(self) -> bool:
        """By a standard error at least; where there are too few days, at all."""
        return math.log1p(self.objective) < -(self.error or 0.0)


def difference(base: JobScores, own: JobScores, days: Stretches) -> Difference:
    """Compare two orders of the same jobs."""

    def logs(weights: FloatArray, one: FloatArray, other: FloatArray) -> FloatArray:
        sums = [weights @ np.bincount(days.of, weights=v, minlength=days.count)
                for v in (one, other)]  # fmt: skip
        found: FloatArray = np.log(sums[1] / sums[0])
        return found

    waits = base.wait_s + _FLOOR_S, own.wait_s + _FLOOR_S
    once = np.ones((1, days.count))
    wait, bsld = float(logs(once, *waits)[0]), float(logs(once, base.bsld, own.bsld)[0])
    whole = Difference(
        days.count, math.expm1(wait), math.expm1(bsld), math.expm1((wait + bsld) / 2)
    )
    if days.count < FEWEST:
        return whole
    draws = drawn(days.count, OF_STRETCHES)
    drawn_wait, drawn_bsld = logs(draws, *waits), logs(draws, base.bsld, own.bsld)
    both = (drawn_wait + drawn_bsld) / 2
    return Difference(
        whole.days,
        whole.wait,
        whole.bsld,
        whole.objective,
        float(both.std()),
        _relative(drawn_wait),
        _relative(drawn_bsld),
        _relative(both),
    )


def pooled(copies: Sequence[Difference]) -> Difference:
    """What several copies of one test period say together, each compared by itself.

    In a full cluster one late end moves everything after it: two plays that differ by seconds can
    differ by a third in their waits, and no resampling of days shows it. So each interval has the
    spread between copies in it beside that of days.
    """
    first = copies[0]
    if len(copies) == 1:
        return first
    found = {
        name: _pooled([(getattr(c, name), getattr(c, around), c.error) for c in copies])
        for name, around in (
            ("wait", "wait_interval"),
            ("bsld", "bsld_interval"),
            ("objective", "interval"),
        )
    }
    wait, bsld, objective = (math.expm1(middle) for middle, _, _ in found.values())
    if any(c.interval is None for c in copies):
        return Difference(first.days, wait, bsld, objective)
    around = {
        name: (math.expm1(middle - reach), math.expm1(middle + reach))
        for name, (middle, reach, _) in found.items()
    }
    return Difference(
        first.days,
        wait,
        bsld,
        objective,
        error=found["objective"][2],
        wait_interval=around["wait"],
        bsld_interval=around["bsld"],
        interval=around["objective"],
    )


def _pooled(
    copies: Sequence[tuple[float, tuple[float, float] | None, float | None]],
) -> tuple[float, float, float]:
    """Mean of the logarithms, half of its 95% interval, and its standard error."""
    logs = np.log1p([change for change, _, _ in copies])
    spans = [np.log1p(around) for _, around, _ in copies if around is not None]
    within = float(np.mean([(high - low) / 2 for low, high in spans])) if spans else 0.0
    between = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    reach = math.hypot(within, STUDENT[len(logs) - 2] * between)
    return float(logs.mean()), reach, math.hypot(within / NORMAL, between)


def _relative(logs: FloatArray) -> tuple[float, float]:
    low, high = interval(logs)
    return math.expm1(low), math.expm1(high)


@dataclass(frozen=True, slots=True)
class Promise:
    """What no order may break, as multiples of what Slurm's own order gives the same jobs.

    Where the incumbent is above that already, its own figure is the bound. user: of the mean wait
    of every user with more than LARGE_SHARE of the GPU time.
    """

    longest: float = 2.0
    tail: float = 1.1
    user: float = 1.2

    def broken(
        self, part: ScoredJobs, natural: JobScores, incumbent: JobScores, own: JobScores
    ) -> list[str]:
        """Why it is broken, a sentence each; empty = it is kept."""
        found = []
        for name, ratio in (("longest", self.longest), ("tail", self.tail)):
            words = {"longest": "the longest wait", "tail": "the 99% wait"}[name]
            slurm, now, then = (float(getattr(s, f"{name}_s")) for s in (natural, incumbent, own))
            found += _too_long(words, ratio, slurm, now, then)
        for user, share in part.large_users():  # no name: the page is for others to read
            slurm, now, then = (part.mean_of(user, s) for s in (natural, incumbent, own))
            words = f"the mean wait of a user with {share:.0%} of the GPU time"
            found += _too_long(words, self.user, slurm, now, then)
        return found


def _too_long(what: str, ratio: float, slurm_s: float, now_s: float, then_s: float) -> list[str]:
    if then_s <= max(ratio * slurm_s, now_s) + TOLERANCE_S:
        return []
    text = (
        f"{what} is {then_s:.0f} s, {then_s / max(slurm_s, 1.0):.2f} times that of Slurm's own "
        f"order; at most {ratio:g} times, or the incumbent's {now_s:.0f} s"
    )
    return [text]


@dataclass(frozen=True, slots=True)
class Power:
    """What a test period of so many days can see. to_see: change -> days that are needed for it.

    smallest: the change that four of five such test periods would find.
    """

    days: int
    jobs_a_day: float
    smallest: float
    to_see: dict[float, int]

    @property
    def words(self) -> str:
        needed = ", ".join(f"{n} days to see {part:.0%}" for part, n in self.to_see.items())
        return (
            f"{self.jobs_a_day:.0f} jobs a day; this site needs {needed} (four times of five); the "
            f"test period's {self.days} days can see {self.smallest:.0%}"
        )


def power_of(training: Difference, test_days: int, jobs_a_day: float) -> Power | None:
    """Stated before the test period, from how much a day of the training period varies; None = not
    known.
    """
    if training.error is None or not training.error > 0:
        return None
    per_day = training.error * math.sqrt(training.days)
    needed = {part: math.ceil((POWER * per_day / -math.log1p(-part)) ** 2) for part in (0.05, 0.10)}
    smallest = -math.expm1(-POWER * per_day / math.sqrt(test_days))
    return Power(test_days, jobs_a_day, smallest, needed)


def verdict(
    found: Difference, broken: Sequence[str], *, ranges_known: bool, same: bool
) -> list[str]:
    """Why the incumbent stays; empty = the candidate passes.

    same: the candidate is the incumbent's own order.
    """
    if same:
        return ["no candidate did better than the incumbent on the training period"]
    why = []
    if found.interval is None:
        why.append(f"the test period has jobs on {found.days} days; an interval needs {FEWEST}")
    elif not found.is_better:
        low, high = found.interval
        why.append(
            f"the change of {found.objective:+.1%} [{low:+.1%}, {high:+.1%}] may be chance"
            if found.objective < 0
            else f"it is no better: {found.objective:+.1%} [{low:+.1%}, {high:+.1%}]"
        )
    elif found.objective > -LEAST:
        why.append(f"a change of {found.objective:+.2%} is too small to be worth it")
    why += broken
    if not ranges_known:
        why.append("the bundle does not say on which ranges of the features it was trained")
    return why
