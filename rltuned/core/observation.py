"""What the paper's actor reads: eight features of each of at most 256 jobs; here of any number.

Source: RLTune section 3.2 (feature sampling, observation vector). The paper gives no
thresholds: CFF_HIGH and SEVERAL_WAYS are chosen here. The two sampled slots keep one meaning
("speaks for running this job soon, 0 to 1") whichever feature fills them, since a network cannot
see the switch.
"""

from typing import Final

import numpy as np

from rltuned.core.capacity import BoolArray
from rltuned.core.features import COLUMN, Float32Array, StateMatrix
from rltuned.core.survey import WAYS_CAP

MAX_QUEUE_SIZE: Final = 256
"""Jobs of a window, in the paper, in parity files and in imitation."""
OBSERVED: Final = 8
CFF_HIGH: Final = 0.5
"""From here on free GPUs are mostly scraps and small jobs are favoured over old ones."""
SEVERAL_WAYS: Final = 2
FIXED: Final = (
    "submit_time",
    "requested_gpus",
    "requested_time",
    "can_schedule_now",
    "dsr",
    "future_avail",
)
_FIXED_AT: Final = [COLUMN[name] for name in FIXED]
_SIZE, _URGENCY = COLUMN["job_size"], COLUMN["urgency"]
_WAYS, _FREE = COLUMN["num_ways"], COLUMN["free_nodes"]
_WAYS_FULL: Final = np.float32(WAYS_CAP)


def sample_features(matrix: StateMatrix) -> tuple[Float32Array, tuple[str, ...]]:
    """Choose eight features by the state of the cluster: (n, 8) of every job, and their names.

    - Much fragmentation: the sixth slot is 1 - job_size, so small short jobs that fill the scraps
      stand out. Otherwise it is the urgency of waiting.
    - Any job with several ways to be placed: the seventh slot is num_ways. Otherwise free_nodes.
    """
    fragmented = matrix.cff >= CFF_HIGH
    ways = matrix.column("num_ways")
    several = bool((ways * _WAYS_FULL >= SEVERAL_WAYS).any())
    sixth = "1-job_size" if fragmented else "urgency"
    names = (*FIXED, sixth, "num_ways" if several else "free_nodes")
    return sampled(matrix.values, fragmented, several), names


def sampled(
    rows: Float32Array, fragmented: BoolArray | bool, several: BoolArray | bool
) -> Float32Array:
    """(n, 8) of rows (n, features); fragmented, several: of all rows, or (n,) of each."""
    sixth = np.where(fragmented, 1 - rows[:, _SIZE], rows[:, _URGENCY])
    seventh = np.where(several, rows[:, _WAYS], rows[:, _FREE])
    return np.column_stack([rows[:, _FIXED_AT], sixth, seventh]).astype(np.float32)
