"""Changes over repeats: geometric means of ratios with Student's interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5% point of Student's t by degrees of freedom less one; numpy has none."""


@dataclass(frozen=True)
class Interval:
    """A relative change (-0.1 = a tenth less) and its 95% interval."""

    change: float
    low: float
    high: float


def change(own: Sequence[float], base: Sequence[float]) -> Interval:
    """Geometric mean of own / base, less 1, with the interval of their logarithms.

    Args:
        own, base: one positive figure per repeat, of the same jobs.

    Raises:
        ValueError: fewer than two repeats, or more than ten.
    """
    if not 2 <= len(own) <= len(STUDENT) + 1:  # noqa: PLR2004 - a spread needs two
        raise ValueError(f"an interval over repeats needs two to ten of them, not {len(own)}")
    logs = np.log(np.array(own) / np.array(base))
    half = STUDENT[len(own) - 2] * float(logs.std(ddof=1)) / np.sqrt(len(own))
    mean = float(logs.mean())
    return Interval(*(float(np.expm1(x)) for x in (mean, mean - half, mean + half)))
