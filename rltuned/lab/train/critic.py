"""The critics: what is a moment worth? Used in training only, never shipped.

`paper`: a three-layer perceptron over the flat 256 x 5 critic vector, zeros where no job waits;
it depends on the order of the rows, as the paper's does. `queue`: Deep Sets over all that the
`queue` actor reads; the order of its rows does not matter.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn

from rltuned.core.features import COLUMN
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.queue_features import QUEUE_FEATURES
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

    def forward(self, rows: Tensor, moment: Tensor, place: Tensor, moments: int) -> Tensor:
        """Rows (R, QUEUE_FEATURES); moment, place (R,): whose row it is, and which of its rows."""
        padded = rows.new_zeros(moments, MAX_QUEUE_SIZE, len(_COLUMNS))
        seen = place < MAX_QUEUE_SIZE
        padded[moment[seen], place[seen]] = rows[seen][:, _COLUMNS]
        values: Tensor = self.layers(padded.flatten(1)).squeeze(-1)
        return values


class QueueCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values, whatever the order of the rows."""

    def __init__(self, features: int = QUEUE_FEATURES, hidden: tuple[int, int] = (32, 32)) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden[0])
        self.mix = nn.Linear(2 * hidden[0] + 1, hidden[1])
        self.head = nn.Linear(hidden[1], 1)

    def forward(self, rows: Tensor, moment: Tensor, place: Tensor, moments: int) -> Tensor:
        """As PaperCritic's; place is not looked at."""
        del place
        code = torch.relu(self.encoder(rows))
        mean, most, count = pooled(code, moment, moments)
        size = torch.log1p(count) / _LOG_FULL
        mixed = torch.relu(self.mix(torch.cat([mean, most, size.unsqueeze(-1)], dim=-1)))
        values: Tensor = self.head(mixed).squeeze(-1)
        return values


Critic = PaperCritic | QueueCritic


def critic_of(kind: Kind) -> Critic:
    """What judges moments while a network of this kind learns; its weights still random."""
    return QueueCritic() if kind == "queue" else PaperCritic()


def pooled(code: Tensor, moment: Tensor, moments: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and maximum (Q, H) of non-negative codes (R, H) over each moment's rows; (Q,) rows."""
    wide = moment.unsqueeze(-1).expand_as(code)
    zero = code.new_zeros(moments, code.shape[1])
    count = torch.zeros(moments, device=code.device).index_add(
        0, moment, torch.ones_like(code[:, 0])
    )
    mean = zero.index_add(0, moment, code) / count.clamp(min=1).unsqueeze(-1)
    most = zero.scatter_reduce(0, wide, code, reduce="amax", include_self=True)
    return mean, most, count
