"""Users who submit the same scripts again and again: names for generated jobs, and likeness.

No public trace tells the names of jobs, and on a real Slurm they are the strongest kin there is. So
generated users have scripts: most submissions repeat the last one (a campaign), some go back to an
older one, a few begin a new one. A script keeps its GPUs, and its run time drifts from one
submission to the next. Users go on holiday and come back to their scripts.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

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

    def __post_init__(self) -> None:
        shares = (self.script_share, self.again + self.older, self.away)
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"shares and chances lie within 0..1: {self}")


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
