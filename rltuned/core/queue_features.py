# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""What the `queue` actor reads of a queue: the features, and where each job stands in it.

A row of it has the NUM_FEATURES columns of core/features, three quantiles of the predicted run time
(those of the limit where nothing is predicted) and these, all from 0 to 1 and none in a unit of one
cluster. Symbols: core/backlog; w: seconds waited; G: usable GPUs of the pool; x: ln(1 + run time) /
ln(1 + 30 d).

| column        | formula            |
|---------------|--------------------|
| place_by_plan | place by p         |
| place_by_work | place by a         |
| place_by_size | place by m         |
| backlog       | B / (B + L)        |
| wait          | w / (w + B)        |
| width         | sqrt(m / G)        |
| spread        | x of 90% - x of 10% |
| use           | e / L              |

The functions work on arrays alone and are what the kernel compiles.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.features import NUM_FEATURES, FloatArray, StateMatrix
from rltuned.core.run_times import LOG_FULL, QUANTILES

Float32Array = NDArray[np.float32]

QUEUE_COLUMNS: Final = (
    "place_by_plan",
    "place_by_work",
    "place_by_size",
    "backlog",
    "wait",
    "width",
    "spread",
    "use",
)
FIRST_QUANTILE: Final = NUM_FEATURES
FIRST_OF_QUEUE: Final = FIRST_QUANTILE + len(QUANTILES)
QUEUE_FEATURES: Final = FIRST_OF_QUEUE + len(QUEUE_COLUMNS)


def fill_queue_columns(
    rows: Float32Array,
    by_plan: FloatArray,
    by_work: FloatArray,
    by_size: FloatArray,
    backlog_s: FloatArray,
    length_s: FloatArray,
    wait_s: FloatArray,
    size: FloatArray,
    gpus: FloatArray,
    expected_s: FloatArray,
) -> None:
    """Fill the last columns of rows (n, QUEUE_FEATURES), whose others are filled; each other (n,).
    gpus: of the pools.
    """
    rows[:, FIRST_OF_QUEUE] = by_plan
    rows[:, FIRST_OF_QUEUE + 1] = by_work
    rows[:, FIRST_OF_QUEUE + 2] = by_size
    rows[:, FIRST_OF_QUEUE + 3] = backlog_s / np.maximum(backlog_s + length_s, 1.0)
    rows[:, FIRST_OF_QUEUE + 4] = wait_s / np.maximum(wait_s + backlog_s, 1.0)
    rows[:, FIRST_OF_QUEUE + 5] = np.sqrt(np.minimum(size / np.maximum(gpus, 1.0), 1.0))
    rows[:, FIRST_OF_QUEUE + 6] = np.maximum(
        rows[:, FIRST_OF_QUEUE - 1] - rows[:, FIRST_QUANTILE], np.float32(0.0)
    )
    rows[:, FIRST_OF_QUEUE + 7] = np.minimum(expected_s / np.maximum(length_s, 1.0), 1.0)


def quantile_columns(limit_s: FloatArray, quantiles_s: FloatArray) -> Float32Array:
    """(n, 3) x of quantiles (n, 3) of the run time, NaN = nothing is predicted."""
    seconds = np.where(np.isnan(quantiles_s), limit_s[:, None], quantiles_s)
    return np.clip(np.log1p(seconds) / LOG_FULL, 0.0, 1.0).astype(np.float32)


def queue_features(matrix: StateMatrix, own_s: FloatArray, by_work: FloatArray) -> Float32Array:
    """(n, QUEUE_FEATURES) of a queue. own_s, by_work: (n,) what the rule `delay` wishes."""
    pools, rows = matrix.pools, np.empty((len(matrix), QUEUE_FEATURES), dtype=np.float32)
    rows[:, :FIRST_QUANTILE] = matrix.values
    first = matrix.run_s.shape[1] - len(QUANTILES)
    quantiles = quantile_columns(matrix.limit_s, matrix.run_s[:, first:])
    rows[:, FIRST_QUANTILE:FIRST_OF_QUEUE] = quantiles
    fill_queue_columns(
        rows,
        pools.places(own_s / np.sqrt(matrix.size)),
        by_work,
        pools.places(matrix.size),
        matrix.backlog_s,
        matrix.length_s,
        matrix.wait_s,
        matrix.size,
        pools.gpus[pools.pool],
        matrix.expected_s,
    )
    return rows
