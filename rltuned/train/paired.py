"""Two policies on the same windows: how much one differs, and how sure that is.

Windows are the unit of chance (see rltuned/stats), which is right only while they share no job. A
model trained with several seeds counts by its
mean over them; how far the seeds lie apart stands beside it, as chance of another kind.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned import stats
from rltuned.kernel.compiler import FloatArray

METRICS: Final = (
    "wait_s",
    "wait_p95_s",
    "wait_p99_s",
    "wait_max_s",
    "jct_s",
    "bsld",
    "utilisation",
    "makespan_s",
)
LARGER_IS_BETTER: Final = frozenset({"utilisation"})
RESAMPLES: Final = 10_000
TIE: Final = 1e-9
SMALLEST: Final = dict.fromkeys(METRICS, 1.0) | {"bsld": 0.0, "utilisation": 1e-6}
"""Added to both sides of a ratio: a second, for windows in which no job waits."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A model against a rule, one metric: relative change of the mean (-0.1: ten percent less).

    low, high: 95% interval. geometric: the same of the mean log ratio. wins: windows in which the
    model is better. sign: chance of so uneven a split if both were equal (two-sided). seeds: the
    change of each training seed, where there are several.
    """

    change: float
    low: float
    high: float
    geometric: float
    geometric_low: float
    geometric_high: float
    wins: int
    losses: int
    ties: int
    sign: float
    seeds: tuple[float, ...] = ()


def paired(own: FloatArray, other: FloatArray, metric: str, seed: int = 1) -> Paired:
    """Compare two policies window by window.

    Args:
        own: (k,) values, or (s, k) of s training seeds.
        other: (k,)
        metric: of METRICS.
        seed: of the resampling.
    """
    each = np.atleast_2d(own)
    mean = each.mean(axis=0)
    weights = stats.drawn(len(mean), RESAMPLES, seed)
    base = max(float(other.mean()), 1e-12)
    # windows without any wait say nothing about a ratio: a second beside a second is no change
    logs = np.log((each + SMALLEST[metric]) / (other + SMALLEST[metric])).mean(axis=0)
    sign = 1.0 if metric in LARGER_IS_BETTER else -1.0
    better = sign * (mean - other)
    near = TIE * np.maximum(np.abs(mean), np.abs(other))
    wins, losses = int((better > near).sum()), int((better < -near).sum())
    low, high = stats.of_change(mean, other, weights)
    g_low, g_high = np.expm1(stats.of_mean(logs, weights)).tolist()
    return Paired(
        change=float(mean.mean() / base - 1),
        low=low,
        high=high,
        geometric=float(np.exp(logs.mean()) - 1),
        geometric_low=g_low,
        geometric_high=g_high,
        wins=wins,
        losses=losses,
        ties=len(mean) - wins - losses,
        sign=sign_test(wins, losses),
        seeds=tuple((each.mean(axis=1) / base - 1).tolist()) if len(each) > 1 else (),
    )


def sign_test(wins: int, losses: int) -> float:
    """Two-sided chance of a split at least so uneven between equals; ties are left out."""
    count, most = wins + losses, max(wins, losses)
    if count == 0:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(most, count + 1))
    return min(1.0, float(2 * tail / 2**count))
