"""From a network's scores to delays, by a curve that is fixed when the bundle is made.

A score is a logit without a unit. The windows of parity.npz hold jobs with the scores that the
trained network gave: the curve maps each quantile of these scores to the same quantile, from the
other end, of the delay that the rule `delay` asks of the same jobs. So a job's delay depends on its
own score alone, never on its rank among the others.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.features import (
    COLUMN,
    GPUS_FULL,
    LIMIT_FULL_S,
    UNLIMITED_AS_S,
    Float32Array,
    FloatArray,
)
from rltuned.core.observation import FIXED
from rltuned.core.order import length_s

QUANTILES: Final = 33


@dataclass(frozen=True, slots=True)
class DelayCurve:
    """score: (q,) increasing; log_delay: (q,) not increasing, ln seconds. Straight between them."""

    score: FloatArray
    log_delay: FloatArray

    @property
    def table(self) -> FloatArray:
        """(2, q) scores and ln delays."""
        return np.array([self.score, self.log_delay])

    def delay_s(self, scores: FloatArray) -> FloatArray:
        """(n,) seconds at stretch 1."""
        found: FloatArray = np.exp(np.interp(scores, self.score, self.log_delay))
        return found


def curve_of(kind: str, rows: Float32Array, scores: FloatArray) -> DelayCurve:
    """The curve of a bundle.

    Args:
        kind: of the network: what its rows hold.
        rows: (k, features) of jobs in the parity windows; one at least.
        scores: (k,) of the same jobs.
    """
    names = ("requested_gpus", "requested_time")
    at = [FIXED.index(n) if kind == "paper" else COLUMN[n] for n in names]
    gpus = np.exp2(rows[:, at[0]].astype(np.float64) * math.log2(1 + GPUS_FULL)) - 1
    limit_s = np.expm1(rows[:, at[1]].astype(np.float64) * math.log1p(LIMIT_FULL_S))
    # the feature ends at LIMIT_FULL_S: what lies there may have no limit at all
    known_s = np.where(limit_s >= 0.999 * LIMIT_FULL_S, UNLIMITED_AS_S, np.maximum(limit_s, 1.0))
    delays = np.log(length_s(known_s) * np.sqrt(np.maximum(gpus, 1.0)))
    quantiles = np.linspace(0.0, 1.0, QUANTILES)
    points, first = np.unique(np.quantile(scores, quantiles), return_index=True)
    return DelayCurve(points, np.quantile(delays, 1.0 - quantiles)[first])
