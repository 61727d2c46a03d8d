"""How sure is a difference? One bootstrap: units of chance are drawn again, with replacement.

What a unit is decides what the interval says: windows that share no job, days of a record. Units
that depend on each other make it too narrow.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
LEVEL: Final = (2.5, 97.5)
"""Percentiles of a 95% interval."""
_LEAST: Final = 1e-12


def drawn(units: int, draws: int, seed: int) -> FloatArray:
    """(draws, units) how often each unit was drawn, `units` of them in every draw."""
    random = np.random.default_rng(seed)
    return random.multinomial(units, np.full(units, 1 / units), size=draws).astype(np.float64)


def interval(samples: FloatArray) -> tuple[float, float]:
    """The 95% percentile interval of (draws,) values."""
    low, high = np.percentile(samples, LEVEL).tolist()
    return low, high


def of_change(own: FloatArray, base: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Interval of sum(own) / sum(base) - 1, (units,) each; weights: see drawn."""
    return interval(weights @ own / np.maximum(weights @ base, _LEAST) - 1)


def of_mean(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Interval of the mean of (units,) values."""
    return interval(weights @ values / len(values))
