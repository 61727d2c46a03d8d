"""The critics: what is a moment worth? Used in training only, never shipped.

`paper`: a three-layer perceptron over the flat 256 x 5 critic vector, zeros where no job waits;
it depends on the order of the rows, as the paper's does. `queue`: Deep Sets over all that the
`queue` actor reads; the order of its rows does not matter.
"""

import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.core.features import COLUMN
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.queue_features import QUEUE_FEATURES
from rltuned.lab.kernel.compiler import IntArray
from rltuned.lab.kernel.learning import pool, pool_back
from rltuned.lab.train.network import perceptron
from rltuned.policies.network import Kind

_COLUMNS: Final = [
    COLUMN[name]
    for name in ("submit_time", "requested_time", "can_schedule_now", "requested_gpus", "cff")
]
_LOG_FULL: Final = math.log1p(MAX_QUEUE_SIZE)


class PaperCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values; a queue beyond 256 jobs is cut at its oldest ones."""

    def __init__(self, hidden: tuple[int, int] = (32, 16)) -> None:
        super().__init__()
        self.layers = perceptron(MAX_QUEUE_SIZE * len(_COLUMNS), hidden)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """Rows (R, QUEUE_FEATURES) end to end; begins: (Q+1,) where those of each moment begin."""
        padded = rows.new_zeros(len(begins) - 1, MAX_QUEUE_SIZE, len(_COLUMNS))
        moment, place = whose(begins)
        seen = place < MAX_QUEUE_SIZE
        padded[moment[seen], place[seen]] = rows[seen][:, _COLUMNS]
        values: Tensor = self.layers(padded.flatten(1)).squeeze(-1)
        return values


class Pooled(torch.autograd.Function):
    """kernel/learning.pool, of which torch's own way back takes a third of an update."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, begins: IntArray) -> Tensor:
        """(Q, 2 H) of (R, H); begins: (Q+1,)."""
        rows = raw.detach().cpu().numpy()
        pooled = pool(rows, begins)
        ctx.seen = rows, begins, pooled
        return torch.from_numpy(pooled).to(raw.device)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        """The slopes by raw."""
        rows, begins, pooled = ctx.seen
        found = pool_back(rows, begins, pooled, slope.contiguous().cpu().numpy())
        return torch.from_numpy(found).to(slope.device), None


class QueueCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values, whatever the order of the rows."""

    def __init__(self, features: int = QUEUE_FEATURES, hidden: tuple[int, int] = (32, 32)) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden[0])
        self.mix = nn.Linear(2 * hidden[0] + 1, hidden[1])
        self.head = nn.Linear(hidden[1], 1)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """As PaperCritic's."""
        pooled = Pooled.apply(self.encoder(rows), begins)  # type: ignore[no-untyped-call]
        size = torch.log1p(torch.from_numpy(np.diff(begins)).to(pooled)) / _LOG_FULL
        mixed = torch.relu(self.mix(torch.cat([pooled, size.unsqueeze(-1)], dim=-1)))
        values: Tensor = self.head(mixed).squeeze(-1)
        return values


Critic = PaperCritic | QueueCritic


def critic_of(kind: Kind) -> Critic:
    """What judges moments while a network of this kind learns; its weights still random."""
    return QueueCritic() if kind == "queue" else PaperCritic()


def whose(begins: IntArray) -> tuple[IntArray, IntArray]:
    """(R,) of every row its moment, and which of the moment's rows it is."""
    moment = np.arange(len(begins) - 1).repeat(np.diff(begins))
    return moment, np.arange(begins[-1]) - begins[moment]
