"""Synthetic time limits, for traces of places where users name none.

Four strengths, because the gain of every limit-based rule depends on it: `informative` (the
limit is a multiple of the run time, rounded up), `weak` (rank correlation with the run time of
0.3, over the whole range of limits), `real` (what users ask for by habit, drawn for a site) and
`none`. A limit is never below the run time, so it cuts no job short.

Where users name limits (ALCF Mira 2018, ALCF ThetaGPU 2023, NCSA Blue Waters):

| fact                                     | Mira | ThetaGPU | Blue Waters | `real`       |
|------------------------------------------|------|----------|-------------|--------------|
| run time / limit, median                 | 0.64 | 0.14     | 0.06        | 0.04 to 0.58 |
| it is below 0.02                         | 5%   | 35%      | 28%         | 3 to 38%     |
| it is above 0.95                         | 23%  | 27%      | 22%         | 2 to 11%     |
| rank correlation with the run time       | 0.67 | 0.32     | -0.02       | -0.01 to 0.8 |
| the five most frequent limits            | 55%  | 85%      | 70%         | 51 to 82%    |
| whole hours                              | 55%  | 82%      | 76%         | 24 to 87%    |
| a user's limit is that of the job before | 69%  | 87%      | 76%         | 36 to 74%    |
| variance of ln(limit) between users      | 60%  | 60%      | 85%         | 40 to 89%    |

`real` is of 22 random worlds (train/sources). No job is cut short, so fewer end at their limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

# Users who submit the same scripts again and again: names for generated jobs, and likeness.
#
# No public trace tells the names of jobs, and on a real Slurm they are the strongest kin there is.
# So generated users have scripts: most submissions repeat the last one (a campaign), some go back
# to an older one, a few begin a new one. A script keeps its GPUs, and its run time drifts from one
# submission to the next. Users go on holiday and come back to their scripts.


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

PARTS: Final = 10


@dataclass(frozen=True, slots=True)
class Habits:
    """How much jobs of one script are alike.

    Attributes:
        script_share: part of the variance of ln(run time) within a user that lies between scripts.
        again, older: chances that a submission repeats the last script, or an older one.
        drift: standard deviation by which a script's ln(run time) moves with each submission, in
            standard deviations of all jobs.
        away: part of the users who are on holiday in each of PARTS parts of the trace.
    """

    script_share: float = 0.6
    again: float = 0.7
    older: float = 0.2
    drift: float = 0.05
    away: float = 0.0


def users_of(count: int, users: int, away: float, rng: np.random.Generator) -> IntArray:
    """(count,) numbers of the users who submit; a few submit most jobs, as everywhere."""
    share = 1.0 / np.arange(1, users + 1)
    found = np.zeros(count, dtype=np.int64)
    for part in np.array_split(np.arange(count), PARTS if away else 1):
        here = rng.random(users) >= away if away else np.ones(users, dtype=bool)
        weights = share * (here if here.any() else 1.0)
        found[part] = rng.choice(users, size=len(part), p=weights / weights.sum())
    return found


def scripts_of(
    users: IntArray, habits: Habits, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Scripts of jobs in the order of submission, and how long each runs.

    users: (n,) numbers from 0.

    Returns:
        (n,) number of each job's script from 0; (n,) deviation of its ln(run time) from its user's
        mean, in standard deviations within a user.
    """
    owned: dict[int, list[int]] = {}
    mean: list[float] = []
    script = np.zeros(len(users), dtype=np.int64)
    deviation = np.zeros(len(users))
    between, within = np.sqrt(habits.script_share), np.sqrt(1 - habits.script_share)
    for at, user in enumerate(users.tolist()):
        own = owned.setdefault(user, [])
        chance = float(rng.random())
        if not own or chance >= habits.again + habits.older:
            mean.append(float(between * rng.standard_normal()))
            number = len(mean) - 1
        else:
            place = -1 if chance < habits.again else int(rng.integers(len(own)))
            number = own.pop(place)
            mean[number] += float(habits.drift * rng.standard_normal())
        own.append(number)
        script[at] = number
        deviation[at] = mean[number] + within * rng.standard_normal()
    return script, deviation


Strength = Literal["informative", "weak", "real", "none"]

GRID_S = 3_600.0 * np.array(
    [0.25, 0.5, 1, 2, 4, 6, 8, 12, 24, 48, 72, 120, 168, 336, 720, 1440, 2880]
)
"""What people write: a quarter of an hour to four months."""
AT_LIMIT_SHARE = 0.20
"""Jobs that use nearly all they asked for; real sites show 17 to 25% at the limit."""
MEDIAN_USE = 0.12
"""Median of run time / limit; real sites show 0.10 to 0.14."""
USE_CENTRE, USE_SPREAD, LEAST_USE = 0.22, 2.6, 1e-4
"""Log-normal use of the limit by the others; set so that MEDIAN_USE comes out after rounding up and
the rank correlation with the run time is about 0.6, as this recipe gives elsewhere."""
WEAK_SPEARMAN = 0.30
HABIT_S = 1_800.0, 7 * 86_400.0
"""Bounds of the limit that a user asks for by habit."""
GENEROUS, APART = (0.0, 2.0), (0.5, 2.5)
"""Of a site: ln of its users' usual generosity, and its spread over users."""
CAREFUL = 0.3, 1.0
"""Beta distribution of a user's share of jobs whose limit follows their run time."""
UNNAMED = 100
"""Users that jobs without one are dealt to."""


def draw_limits(
    duration_s: FloatArray,
    strength: Strength,
    rng: np.random.Generator,
    users: Sequence[str] = (),
) -> FloatArray:
    """(n,) time limits in seconds, inf = none; each at least as long as its job runs. users: of the
    jobs, for `real`; empty or an empty name = not known.
    """
    if strength == "none" or not len(duration_s):
        return np.full(len(duration_s), np.inf)
    if strength == "real":
        return _real(duration_s, users or [""] * len(duration_s), rng)
    informative = _informative(duration_s, rng)
    return informative if strength == "informative" else _weak(duration_s, informative, rng)


def round_up(seconds: FloatArray) -> FloatArray:
    """The next value of the grid; beyond its end whole months of 30 days."""
    place = np.searchsorted(GRID_S, seconds)
    month_s = 30 * 86_400.0
    beyond = np.ceil(seconds / month_s) * month_s
    return np.where(place < len(GRID_S), GRID_S[np.minimum(place, len(GRID_S) - 1)], beyond)


def _informative(duration_s: FloatArray, rng: np.random.Generator) -> FloatArray:
    count = len(duration_s)
    # the others' use of their limit: log-normal, its median such that all together have MEDIAN_USE
    below = (0.5 - AT_LIMIT_SHARE / 2) / (1 - AT_LIMIT_SHARE)
    use = np.exp(np.log(USE_CENTRE * below) + USE_SPREAD * rng.standard_normal(count))
    full = rng.random(count) < AT_LIMIT_SHARE
    wished = duration_s / np.clip(np.where(full, 1.0, use), LEAST_USE, 1.0)
    # no user asks for half a year because a job of two weeks might take longer
    wished = np.minimum(wished, np.maximum(duration_s, 30 * 86_400.0))
    return np.where(full, _just_above(duration_s), round_up(wished))


def _real(duration_s: FloatArray, users: Sequence[str], rng: np.random.Generator) -> FloatArray:
    """Most users ask for one limit that most of their jobs keep, more or less generously; a longer
    job gets the next one that it keeps, and some limits follow the run time.
    """
    dealt = users_of(len(users), UNNAMED, 0.0, rng).tolist()
    names = [name or f"?{number}" for name, number in zip(users, dealt, strict=True)]
    _, who, jobs = np.unique(names, return_inverse=True, return_counts=True)
    usual, apart = rng.uniform(*GENEROUS), rng.uniform(*APART)
    generous = np.exp(usual + apart * rng.standard_normal(len(jobs)))
    kept_by, careful = rng.uniform(0.5, 1.0, len(jobs)), rng.beta(*CAREFUL, len(jobs))
    own = np.split(duration_s[np.argsort(who, kind="stable")], np.cumsum(jobs)[:-1])
    most_s = [np.quantile(some, share) for some, share in zip(own, kept_by, strict=True)]
    habit_s = round_up(np.clip(np.array(most_s) * generous, *HABIT_S))
    follows = rng.random(len(duration_s)) < careful[who]
    asked_s = np.maximum(habit_s[who], round_up(duration_s))
    return np.where(follows, _just_above(duration_s), asked_s)


def _just_above(seconds: FloatArray) -> FloatArray:
    """What a user asks who knows the run time well; still a round number, not the run time."""
    hour_s = 3_600.0
    step = np.where(seconds < hour_s, 300.0, np.where(seconds < 12 * hour_s, 1_800.0, 6 * hour_s))
    tight: FloatArray = step * np.ceil(seconds / step)
    return tight


def _weak(duration_s: FloatArray, informative: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The same limits dealt out again, so that their ranks follow the run times only weakly."""
    noise = rng.standard_normal(len(duration_s))
    order = ranks(duration_s) / (len(duration_s) + 1)
    pool = np.sort(round_up(informative))
    low, high = -1.0, 1.0
    dealt = informative
    for _ in range(40):
        pull = (low + high) / 2
        mixed = pull * _centred(order) + np.sqrt(1 - pull * pull) * noise
        dealt = np.maximum(pool[np.argsort(np.argsort(mixed))], round_up(duration_s))
        if spearman(dealt, duration_s) < WEAK_SPEARMAN:
            low = pull
        else:
            high = pull
    return dealt


def _centred(share: FloatArray) -> FloatArray:
    centred: FloatArray = (share - share.mean()) / (share.std() or 1.0)
    return centred


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1, the mean rank for equal values."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank: FloatArray = last - (counts - 1) / 2
    return mean_rank[inverse]


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Rank correlation; nan when one side is constant."""
    a, b = ranks(first), ranks(second)
    spread = a.std() * b.std()
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread else float("nan")
