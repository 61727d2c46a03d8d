"""What options of commands may say, apart from torch and numba: `--help` waits for neither."""

from typing import Final, Literal

from rltuned.lab.replay.protocol import BY_DEFAULT, FUTURE
from rltuned.policies.baselines import BASELINES

Objective = Literal["wait", "bsld", "jct", "utilisation", "tail", "mix"]
"""What an episode costs, see train/reward."""
Form = Literal["dense", "gap"]
Reference = Literal["base", "group"]
"""Of a reward, see train/batch.Contest."""
Learned = Literal["none", "predictor", "full"]
"""What a backtest learns from the earlier part."""
RULES: Final = (*BASELINES, *FUTURE)
NAMES: Final = (BY_DEFAULT, *RULES)
"""Of an evaluation: every one of RULES is played unless others are asked for."""
MOST_WINDOWS: Final = 60
"""Of a trace at a load, unless another number is asked for; LEAST_WINDOWS: shorter ones then."""
LEAST_WINDOWS: Final = 3
LOADS: Final = (0.7, 0.9, 1.1)
"""Of the GPUs, that windows which judge are stretched to."""
FEWEST_JOBS: Final = 10
"""Of what a model is judged on."""
