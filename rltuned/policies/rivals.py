"""What the networks of RLScheduler and SchedInspector read; what they are, docs/training.md says.

Both get the features that ours gets (core/features), in the choice of their papers:

- RLScheduler (Zhang et al., SC'20): wait, requested time, requested GPUs, CPUs and memory, and
  whether the job can start now, of the first 128 jobs. User, group and program numbers are left
  out: a number says nothing about another trace's users.
- SchedInspector (Zhang et al., HPDC'22): the pick of a base policy (wait, requested time, GPUs),
  how often it was rejected, what another ten minutes would cost those who wait, how much of the
  cluster is free, whether the pick can start now, and how many others could.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.features import COLUMN, LIMIT_FULL_S, Float32Array
from rltuned.core.observation import MAX_QUEUE_SIZE

VISIBLE: Final = 128
"""RLScheduler sees the oldest of them; who is not seen follows by submit time."""
KERNEL: Final = (
    "submit_time",
    "requested_time",
    "requested_gpus",
    "req_cpu",
    "req_mem",
    "can_schedule_now",
)
KERNEL_AT: Final = [COLUMN[name] for name in KERNEL]
KERNEL_HIDDEN: Final = (32, 16, 8)

MOST_REJECTIONS: Final = 72
"""A pick that was rejected so often is let through unasked: at most twelve hours of waiting."""
INTERVAL_S: Final = 600.0
"""After a rejection the base policy tries again this much later, or when something happens."""
INSPECTED: Final = (
    "submit_time",
    "requested_time",
    "requested_gpus",
    "rejections",
    "queue_delay",
    "free_nodes",
    "can_schedule_now",
    "others_can",
)
INSPECTOR_HIDDEN: Final = (32, 16, 8)

_WAIT, _LIMIT, _GPUS = COLUMN["submit_time"], COLUMN["requested_time"], COLUMN["requested_gpus"]
_FREE, _CAN = COLUMN["free_nodes"], COLUMN["can_schedule_now"]
_LOG_LIMIT_FULL: Final = math.log1p(LIMIT_FULL_S)
_LOG_DELAY_FULL: Final = math.log1p(MAX_QUEUE_SIZE)


def inspector_pair(values: Float32Array, row: int, rejections: int) -> Float32Array:
    """(2, 8) what an inspector chooses between: the pick, and nobody (zeros).

    Accepting is to prefer the first row. values: (n, NUM_FEATURES) of the queue.

    `queue_delay`: slowdown that INTERVAL_S adds to the queue, each job by its time limit and at
    most one, ln(1+d)/ln(1+256). `others_can`: share of the other jobs that could start now.
    """
    limit_s = np.expm1(values[:, _LIMIT].astype(np.float64) * _LOG_LIMIT_FULL)
    delay = float((INTERVAL_S / np.maximum(limit_s, INTERVAL_S)).sum())
    can = values[:, _CAN].astype(np.float64)
    pair: NDArray[np.float32] = np.zeros((2, len(INSPECTED)), dtype=np.float32)
    pair[0] = (
        values[row, _WAIT],
        values[row, _LIMIT],
        values[row, _GPUS],
        rejections / MOST_REJECTIONS,
        min(math.log1p(delay) / _LOG_DELAY_FULL, 1.0),
        values[row, _FREE],
        can[row],
        (can.sum() - can[row]) / max(len(values) - 1, 1),
    )
    return pair
