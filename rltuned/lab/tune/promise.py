"""Whether an order is better enough to take the place of another, and breaks no promise. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.lab.backtest.past import Past
from rltuned.lab.compare import NORMAL, Comparison, JobScores
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.play import Played
from rltuned.lab.stats import DAY_S, FEWEST, FloatArray, Stretches

LARGE_SHARE: Final = 0.05
"""Of the GPU time: users from here on have a promise of their own."""
TOLERANCE_S: Final = 60.0
"""One cycle: a wait that is longer by no more than this breaks no promise."""
LEAST: Final = 0.01
"""A smaller gain is not worth another order, however sure it is."""
POWER: Final = NORMAL + 0.84
"""A change of so many standard errors is found by four of five test periods."""


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


def power_of(training: Comparison, test_days: int, jobs_a_day: float) -> Power | None:
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
    found: Comparison, broken: Sequence[str], *, ranges_known: bool, same: bool
) -> list[str]:
    """Why the incumbent stays; empty = the candidate passes.

    same: the candidate is the incumbent's own order.
    """
    if same:
        return ["no candidate did better than the incumbent on the training period"]
    why = []
    objective, change = found.objective, found.objective.change or 0.0
    if objective.low is None:
        why.append(f"the test period has jobs on {found.days} days; an interval needs {FEWEST}")
    elif not found.is_better:
        why.append(
            f"the change of {objective} may be chance"
            if change < 0
            else f"it is no better: {objective}"
        )
    elif change > -LEAST:
        why.append(f"a change of {change:+.2%} is too small to be worth it")
    why += broken
    if not ranges_known:
        why.append("the bundle does not say on which ranges of the features it was trained")
    return why
