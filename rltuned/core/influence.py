"""One rule for what the jobs of many users say together: none counts for more than all others.

The user who submits the most could otherwise set, for the whole site, what a backlog is, where a
job stands in it, or how far limits can be trusted. The user with the largest amount is counted
with a factor that makes it as large as the amounts of all others together; the others count
whole. Where there is one user alone, it counts whole.

The function makes no array and calls nothing: it is what the kernel compiles.
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def leader(amounts: FloatArray) -> tuple[int, float]:
    """The user with the largest of the amounts (U,), and the factor with which it counts."""
    first, total = -1, 0.0
    for user in range(len(amounts)):
        total += amounts[user]
        if first < 0 or amounts[user] > amounts[first]:
            first = user
    if first < 0:
        return first, 1.0
    others = total - amounts[first]
    if others <= 0.0 or amounts[first] <= others:
        return first, 1.0
    return first, others / amounts[first]
