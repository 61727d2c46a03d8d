"""An order to begin from that is better than any rule: weights set by hand, not learned.

Three things separate an order from the smallest area first, and a network that begins without them
takes most of a training to find them (docs/training.md has the figures):

- how long a job will run is the mean of what its limit says and what the predictor says;
- a wide job that fits now goes by its time alone: on a small cluster a whole free node given to
  small jobs is lost to the wide ones for long, and they are what its queue is made of;
- who has waited long is put a little forward.

score = -(ln r + ln m + ln h) / 3 - ln(1 + n) [it does not fit now] + 0.2 ln w, with r the limit, m
and h the predicted median and upper quantile, n GPUs, w the wait; without predictions r alone.
"""

import math
from typing import Final

import torch

from rltuned.core.features import COLUMN, GPUS_FULL, LIMIT_FULL_S, NUM_FEATURES, WAIT_FULL_S
from rltuned.errors import ModelError
from rltuned.train.network import ContextActor

NAME: Final = "foretold"
_TIME, _WAIT, _SIZE = (math.log1p(LIMIT_FULL_S), math.log1p(WAIT_FULL_S), math.log(1 + GPUS_FULL))
_MEDIAN, _HIGH = NUM_FEATURES + 1, NUM_FEATURES + 2
WAITED: Final = 0.2
MIDDLE: Final = 15.0
"""Added to the score of every job, so that they lie around zero, where float32 is finest."""
SHARPNESS: Final = 5.0
"""All scores times this. Training plays by scores with noise of standard deviation 1.3; unsharpened
it mostly learns to make the noise matter less, and forgets the order meanwhile."""


def plant(actor: ContextActor) -> None:
    """Give some units of a fresh network the order above; the others stay as they were drawn.

    Raises:
        ModelError: the network is too narrow.
    """
    times = {COLUMN["requested_time"]: _TIME}
    if actor.encoder.in_features > NUM_FEATURES:
        times = dict.fromkeys((COLUMN["requested_time"], _MEDIAN, _HIGH), _TIME / 3)
    gpus, fits = COLUMN["requested_gpus"], COLUMN["can_schedule_now"]
    # each unit: weights of features, bias, weight in the score; features are never negative
    units: list[tuple[dict[int, float], float, float]] = [
        *(({column: 1.0}, 0.0, -weight) for column, weight in times.items()),
        ({gpus: 1.0}, 0.0, -_SIZE),
        ({gpus: 1.0, fits: 1.0}, -1.0, _SIZE),  # its size if it fits, else nothing
        ({COLUMN["submit_time"]: 1.0}, 0.0, WAITED * _WAIT),
    ]
    if len(units) > min(len(actor.encoder.bias), len(actor.mix.bias)):
        raise ModelError(f"--warm {NAME}: the network needs {len(units)} units in either layer")
    with torch.no_grad():
        actor.head.weight.zero_()
        actor.head.bias.fill_(SHARPNESS * MIDDLE)
        for k, (weights, bias, factor) in enumerate(units):
            actor.encoder.weight[k] = 0.0
            for column, weight in weights.items():
                actor.encoder.weight[k, column] = weight
            actor.encoder.bias[k] = bias
            actor.mix.weight[k] = 0.0
            actor.mix.weight[k, k] = 1.0
            actor.mix.bias[k] = 0.0
            actor.head.weight[0, k] = SHARPNESS * factor
