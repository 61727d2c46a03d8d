"""What a process of a training imports, and the kernel's machine code: seconds of a processor.

The server of tests/two_ranks.py imports this module, and its processes begin with all of it.
"""

import torch.distributed

from rltuned.lab.backtest import past
from rltuned.lab.replay import play
from rltuned.lab.train import evolution, ppo

WARM = (torch.distributed, past, evolution, ppo)

play.load()
