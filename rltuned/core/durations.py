"""How much longer jobs run: draws from what is predicted, given how long each has run already."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.domain.context import RunTime

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LEVELS: Final = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
"""Shares of runs that are shorter than the KNOTS of a job."""
TAIL: Final = 0.5
"""The shortest and, without a limit, the longest run lie beyond the 10 and 90% quantiles by so much
of their distance from the median, in logarithms."""
GUESS: Final = (0.05, 0.4)
"""Of the limit, the 10 and 50% quantile where nothing is predicted; 90% is the limit."""
UNKNOWN_S: Final = (60.0, 3_600.0, 86_400.0)
"""The same quantiles without a limit."""
KIN_SHARE: Final = 0.5
HEAVY: Final = 1.5
"""Exponent of the tail of jobs that have run longer than any that is known."""


def knots(found: RunTime | None, limit_s: float) -> tuple[float, ...]:
    """ln(1 + s) of a job's run time at LEVELS; a limit ends the longest run."""
    limited = math.isfinite(limit_s)
    if found is not None:
        low, median, high = found.low_s, found.median_s, found.high_s
    elif limited:
        low, median, high = GUESS[0] * limit_s, GUESS[1] * limit_s, limit_s
    else:
        low, median, high = UNKNOWN_S
    a, b, c = (math.log1p(min(s, limit_s)) for s in (low, median, high))
    most = math.log1p(limit_s) if limited else c + TAIL * (c - b)
    return max(0.0, a - TAIL * (b - a)), a, b, c, most


def runs_s(table: Sequence[tuple[float, ...]], ran_s: FloatArray, draws: FloatArray) -> FloatArray:
    """(n,) whole run times at draws (n,) in (0, 1), none shorter than ran_s (n,)."""
    x = np.array(table).reshape(-1, len(LEVELS))
    begun = _level(x, np.log1p(ran_s))
    level = begun + (1.0 - begun) * draws
    at = np.clip(np.searchsorted(LEVELS, level, side="right") - 1, 0, len(LEVELS) - 2)
    rows = np.arange(x.shape[0])
    low, high = x[rows, at], x[rows, at + 1]
    part = (level - LEVELS[at]) / (LEVELS[at + 1] - LEVELS[at])
    found = np.expm1(low + part * (high - low))
    older = (ran_s + 1.0) * (1.0 - draws) ** (-1.0 / HEAVY)
    # whole seconds: what is rounded otherwise would end apart
    whole: FloatArray = np.rint(np.where(begun >= 1.0, older, found))
    return np.maximum(whole, ran_s)


def _level(x: FloatArray, ran: FloatArray) -> FloatArray:
    """(n,) share of runs that are shorter than ln(1 + s) = ran (n,); 1 = all are."""
    at = np.clip((x <= ran[:, None]).sum(axis=1) - 1, 0, len(LEVELS) - 2)
    rows = np.arange(x.shape[0])
    low, wide = x[rows, at], x[rows, at + 1] - x[rows, at]
    part = np.clip((ran - low) / np.maximum(wide, 1e-9), 0.0, 1.0)
    found: FloatArray = LEVELS[at] + part * (LEVELS[at + 1] - LEVELS[at])
    return np.where(ran <= 0.0, 0.0, found)


def alike(rng: np.random.Generator, users: IntArray, of_users: FloatArray) -> FloatArray:
    """(n,) draws in (0, 1). Half of the jobs have that of their user, of_users (U,): what is off
    for one job of a user is off for its kin.
    """
    own = rng.random(len(users))
    return np.where(rng.random(len(users)) < KIN_SHARE, of_users[users], own)
