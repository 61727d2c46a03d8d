"""What ended jobs say of time limits: whether limits tell run times, and how much of them is used.

The sums are kept for all users together and for each, in the rows of one table: row 0 is all of
them, and jobs of no known user are in that alone.

Whether limits tell run times is said by all jobs but those of the user who moves it most, see
core/backlog, and believed as far as _BEYOND from the mean of what the jobs of each user say: k of
n users move that mean by at most 2 k / n, however many jobs they end. It holds from _USERS_LEAST
users on. What is used of limits leaves out the one user alone.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import LONGEST_S, USE_GUESS, leader, moves_more
from rltuned.core.features import LIMIT_FULL_S, planning_limit_s
from rltuned.core.run_times import LOG_FULL

FloatArray = NDArray[np.float64]

PAIRS, LIMITS, RUNS, LIMIT_SQUARES, RUN_SQUARES, PRODUCTS, NAMED = range(7)
LEFT_OUT, ENDED, MET, OWN = range(7, 11)
LIMIT_SUMS: Final = 11
"""Of ended jobs that had a limit: weight, and sums over the x of limit and run, see run_times. Of
row 0 alone: the weight of jobs of known users, the row of the user left out, and the ends since the
weights began at 1. MET, OWN: of a user its ends, and the correlation of its jobs from _OWN_LEAST
ends on; of row 0 how many users have one, and the sum of these."""
RAN, ALLOWED, USE_LEFT_OUT, RUNS_ENDED = range(4)
USE_SUMS: Final = 4
"""GPU s that ended jobs ran, and that their limits allowed; the row of the user left out; ends."""
_LIMITS_KEPT: Final = 0.999
"""What a job still counts once another one has ended; kept as weights that grow."""
_MOST_ENDS: Final = 100_000.0
"""With more, the weights begin at 1 again."""
_PAIRS_LEAST: Final = 100.0
"""With fewer ended jobs the limits are not judged."""
_OWN_LEAST: Final = 20.0
"""With fewer ended jobs a user has no say of its own."""
_USERS_LEAST: Final = 10.0
"""With fewer users who have one, their mean would be that of a few."""
_BEYOND: Final = 0.1
"""What all jobs together say is believed so far beyond what their users say."""
_NAMED_LEAST: Final = 0.9
"""Where fewer jobs are of known users, their users say too little."""
_SAME: Final = 1e-12
"""Variances whose product is no larger are those of equal numbers."""
_ALONE: Final = 0.1
"""Where others ran less than this part of all GPU time, a user is the site, and not left out."""
_WEAK, _STRONG = 0.5, 0.75
"""Correlations of limits and run times at which the limit's share begins to grow, and is whole."""


def share_without(sums: FloatArray, user: int) -> float:
    """What a limit counts in the plan without a user's jobs; of row 0, with all."""
    own = 1.0 if user > 0 and sums[0, PAIRS] > sums[user, PAIRS] else 0.0  # 0 = the only one
    count = sums[0, PAIRS] - own * sums[user, PAIRS]
    if count * _LIMITS_KEPT ** sums[0, ENDED] < _PAIRS_LEAST:
        return 0.5
    limit = (sums[0, LIMITS] - own * sums[user, LIMITS]) / count
    run = (sums[0, RUNS] - own * sums[user, RUNS]) / count
    limits = (sums[0, LIMIT_SQUARES] - own * sums[user, LIMIT_SQUARES]) / count - limit**2
    runs = (sums[0, RUN_SQUARES] - own * sums[user, RUN_SQUARES]) / count - run**2
    if limits * runs <= _SAME:
        return 0.5
    both = (sums[0, PRODUCTS] - own * sums[user, PRODUCTS]) / count - limit * run
    strength = (both / math.sqrt(limits * runs) - _WEAK) / (_STRONG - _WEAK)
    return float(0.5 + 0.5 * min(max(strength, 0.0), 1.0))


def own_correlation(sums: FloatArray, user: int) -> float:
    """Of the limits and runs of a user's jobs; 0 where they are all alike."""
    count = sums[user, PAIRS]
    limit, run = sums[user, LIMITS] / count, sums[user, RUNS] / count
    limits = sums[user, LIMIT_SQUARES] / count - limit**2
    runs = sums[user, RUN_SQUARES] / count - run**2
    if limits <= _SAME or runs <= _SAME:
        return 0.0
    found = (sums[user, PRODUCTS] / count - limit * run) / math.sqrt(limits * runs)
    return float(min(max(found, -1.0), 1.0))


def note_own(sums: FloatArray, user: int) -> None:
    """Bring a user's own correlation, and the sum of all users', up to date."""
    sums[user, MET] += 1.0
    if sums[user, MET] < _OWN_LEAST:
        return
    own = own_correlation(sums, user)
    sums[0, OWN] += own - sums[user, OWN]
    sums[user, OWN] = own
    if sums[user, MET] == _OWN_LEAST:
        sums[0, MET] += 1.0


def note_limit(sums: FloatArray, user: int, ran_s: float, limit_s: float) -> None:
    """A job of the user in this row ran so long of its limit. sums: (1 + users, LIMIT_SUMS)."""
    if limit_s >= LIMIT_FULL_S:
        return
    run, limit = math.log1p(ran_s) / LOG_FULL, math.log1p(limit_s) / LOG_FULL
    sums[0, ENDED] += 1.0
    if sums[0, ENDED] > _MOST_ENDS:
        for row in range(len(sums)):
            for place in range(NAMED + 1):
                sums[row, place] *= _LIMITS_KEPT**_MOST_ENDS
        sums[0, ENDED] = 1.0
    weight = _LIMITS_KEPT ** -sums[0, ENDED]
    for row in range(0, user + 1, max(user, 1)):
        sums[row, PAIRS] += weight
        sums[row, LIMITS] += weight * limit
        sums[row, RUNS] += weight * run
        sums[row, LIMIT_SQUARES] += weight * limit * limit
        sums[row, RUN_SQUARES] += weight * run * run
        sums[row, PRODUCTS] += weight * limit * run
    if user == 0:
        return
    sums[0, NAMED] += weight
    note_own(sums, user)
    whole, now = share_without(sums, 0), share_without(sums, int(sums[0, LEFT_OUT]))
    if moves_more(whole, now, share_without(sums, user)):
        sums[0, LEFT_OUT] = user


def limit_share(sums: FloatArray) -> float:
    """What a limit counts in the plan: from a half to the whole where limits tell run times.

    It goes by the correlation of the logarithms. Where that is strong, the limits alone order jobs
    as well as true run times do, and what a prediction errs costs; see docs/adr/0020.
    """
    found = share_without(sums, int(sums[0, LEFT_OUT]))
    if sums[0, MET] < _USERS_LEAST or sums[0, NAMED] < _NAMED_LEAST * sums[0, PAIRS]:
        return found
    strength = (sums[0, OWN] / sums[0, MET] - _WEAK) / (_STRONG - _WEAK)
    of_users = 0.5 + 0.5 * min(max(strength, 0.0), 1.0)
    return float(min(max(found, of_users - _BEYOND), of_users + _BEYOND))


def use_without(sums: FloatArray, user: int) -> float:
    """What jobs use of their limits without a user's jobs; of row 0, with all."""
    ran, allowed = sums[0, RAN], sums[0, ALLOWED]
    if user > 0 and ran - sums[user, RAN] > _ALONE * ran:
        ran, allowed = ran - sums[user, RAN], allowed - sums[user, ALLOWED]
    return USE_GUESS if allowed <= 0.0 else float(ran / allowed)


def note_use(sums: FloatArray, user: int, ran_s: float, length_s: float, size: float) -> None:
    """A job ran so long of its length. sums: (1 + users, USE_SUMS), by GPU time: short jobs say
    little.
    """
    sums[0, RAN] += ran_s * size
    sums[0, ALLOWED] += length_s * size
    sums[0, RUNS_ENDED] += 1.0
    if user == 0:
        return
    sums[user, RAN] += ran_s * size
    sums[user, ALLOWED] += length_s * size
    sums[user, RUNS_ENDED] += 1.0
    whole, now = use_without(sums, 0), use_without(sums, int(sums[0, USE_LEFT_OUT]))
    if moves_more(whole, now, use_without(sums, user)):
        sums[0, USE_LEFT_OUT] = user


def use_of(sums: FloatArray) -> float:
    """What jobs use of their limits, by GPU time; a guess while none has ended."""
    return use_without(sums, int(sums[0, USE_LEFT_OUT]))


# -- The same of users with names ----------------------------------------------------------------


class LimitMemory:
    """What is known of limits. Users are whole numbers that tell them apart; None = not known."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._sums, self._use = np.zeros((2, LIMIT_SUMS)), np.zeros((2, USE_SUMS))

    def note(self, user: int | None, ran_s: float, limit_s: float | None, size: float) -> None:
        """A job of this size has ended. limit_s: as it was asked for."""
        row = 0 if user is None else self._rows.setdefault(user, len(self._rows) + 1)
        if row >= len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._use = np.concatenate([self._use, np.zeros_like(self._use)])
        known_s = planning_limit_s(limit_s)
        note_limit(self._sums, row, ran_s, known_s)
        note_use(self._use, row, ran_s, min(known_s, LONGEST_S), size)

    @property
    def share(self) -> float:
        """What a limit counts in the plan of a job submitted now."""
        return limit_share(self._sums)

    @property
    def ends(self) -> float:
        """How many jobs have ended, those of one user at most as many as those of all others; where
        it is the only one, all of them.
        """
        total, of_users = float(self._use[0, RUNS_ENDED]), self._use[1:, RUNS_ENDED]
        nameless = total - float(of_users.sum())
        first, factor = leader(np.append(of_users, nameless))
        return total if factor >= 1.0 else total - (1.0 - factor) * float(of_users[first])

    @property
    def use(self) -> float | None:
        """What jobs use of their limits, by GPU time; None = none has ended."""
        return use_of(self._use) if self._use[0, ALLOWED] > 0 else None

    def arrays(self) -> dict[str, np.ndarray]:
        """What `restore` takes."""
        users = np.array(list(self._rows), dtype=np.int64)
        count = len(users) + 1
        return {"users": users, "limits": self._sums[:count], "use": self._use[:count]}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` gave. Raises ValueError: of another release, or not finite."""
        none = np.zeros(0)
        users, sums, use = (arrays.get(name, none) for name in ("users", "limits", "use"))
        count = len(users) + 1
        fits = sums.shape == (count, LIMIT_SUMS) and use.shape == (count, USE_SUMS)
        fits = fits and bool(np.isfinite(sums).all()) and bool(np.isfinite(use).all())
        if fits:
            left_out = (float(sums[0, LEFT_OUT]), float(use[0, USE_LEFT_OUT]))
            fits = all(one.is_integer() and 0 <= one < count for one in left_out)
        if not fits or len(np.unique(users)) != len(users):
            raise ValueError(f"limits of another shape, or not finite: {sums.shape} {use.shape}")
        self._rows = {user: row for row, user in enumerate(users.tolist(), 1)}
        self._sums, self._use = (np.concatenate([a, np.zeros_like(a[:1])]) for a in (sums, use))
