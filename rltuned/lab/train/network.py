"""Networks as PyTorch modules: the actors that training fits, and the critics that judge moments.

policies/actor runs an actor's weights without PyTorch. A critic is used in training only, never
shipped. `paper`: a three-layer perceptron over the flat 256 x 5 critic vector, zeros where no job
waits; it depends on the order of the rows, as the paper's does. `queue`: Deep Sets over all that
the `queue` actor reads; the order of its rows does not matter.
"""

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.core.features import COLUMN, MAX_QUEUE_SIZE, sampled
from rltuned.lab.kernel.compiler import Float32Array, IntArray
from rltuned.policies import actor as actors

LEAST_SPREAD: Final = 0.05
"""Deviation that a feature is counted with where it hardly differs."""
_COLUMNS: Final = [
    COLUMN[name]
    for name in ("submit_time", "requested_time", "can_schedule_now", "requested_gpus", "cff")
]
_LOG_FULL: Final = math.log1p(MAX_QUEUE_SIZE)


class TorchActor(nn.Module):
    """Per-job scorer of a kind: (..., jobs, features) -> (..., jobs, outputs), higher = sooner.

    Blank: its score is 0 for every job, so it is the rule that it corrects, or first come, first
    served; the hidden weights are random.
    """

    def __init__(self, kind: actors.Kind, hidden: tuple[int, ...], reach: float = 0.0) -> None:
        super().__init__()
        self.kind, self.hidden, self.reach = kind, hidden, reach
        self.layers = perceptron(actors.INPUTS[kind], hidden, actors.outputs_of(kind, reach))
        for blank in self.layers[-1].parameters():
            nn.init.zeros_(blank)

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED."""
        scores: Tensor = self.layers(observation)
        return scores.masked_fill(~mask.unsqueeze(-1), actors.MASKED)

    def spread_out(self, features: Tensor) -> None:
        """Let a blank actor's first layer see features (n, F) with mean 0 and deviation 1, by its
        weights; one that has learned is left as it is.

        Features are in [0, 1] and mostly close together: what they have in common would be learned
        long before what tells jobs apart.
        """
        first, *_, last = (m for m in self.layers if isinstance(m, nn.Linear))
        if last.weight.any():
            return
        with torch.no_grad():
            first.weight.div_(features.std(dim=0).clamp(min=LEAST_SPREAD))
            first.bias.sub_(first.weight @ features.mean(dim=0))


def read_by(kind: actors.Kind, rows: Float32Array, flags: IntArray) -> Float32Array:
    """(R, features) what a network reads of rows; flags: of each row's moment, (R, 2)."""
    return sampled(rows, flags[:, 0] > 0, flags[:, 1] > 0) if kind == "paper" else rows


def placed_by(logits: Tensor, asked: Tensor, reach: float) -> Tensor:
    """(...) what a queue is ordered by, higher = sooner: less virtual time, within the bounds, or
    what the network says (reach 0). logits: (..., outputs); asked: (..., 4), see
    kernel/episode.Tape.
    """
    if not reach:
        return logits[..., 0]
    wait, own, share, upper = asked.unbind(dim=-1)
    factor = torch.exp(-reach * torch.tanh(logits))
    return wait - torch.minimum(own * factor[..., 0] + share * factor[..., -1], upper)


def perceptron(inputs: int, hidden: tuple[int, ...], outputs: int = 1) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(inplace=True)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def network_of(module: TorchActor) -> actors.Network:
    """The weights of a module as they are now, without PyTorch."""
    weights = {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}
    return actors.Network(module.kind, weights, module.reach)


def policy_of(module: TorchActor) -> actors.NetworkPolicy:
    """The same, to be played."""
    return actors.NetworkPolicy("learner", network_of(module))


def take_over(module: TorchActor, given: actors.Network) -> None:
    """Give a module a network's weights."""
    module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in given.weights.items()})


class PaperCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values; a queue beyond 256 jobs is cut at its oldest ones."""

    def __init__(self, hidden: tuple[int, int] = (32, 16)) -> None:
        super().__init__()
        self.layers = perceptron(MAX_QUEUE_SIZE * len(_COLUMNS), hidden)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """Rows (R, QUEUE_FEATURES) end to end; begins: (Q+1,) where those of each moment begin."""
        padded = rows.new_zeros(len(begins) - 1, MAX_QUEUE_SIZE, len(_COLUMNS))
        moment = moment_of(begins)
        place = np.arange(begins[-1]) - begins[moment]
        seen = place < MAX_QUEUE_SIZE
        padded[moment[seen], place[seen]] = rows[seen][:, _COLUMNS]
        values: Tensor = self.layers(padded.flatten(1)).squeeze(-1)
        return values


class QueueCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values, whatever the order of the rows."""

    def __init__(self, hidden: tuple[int, int] = (32, 32)) -> None:
        super().__init__()
        self.encoder = nn.Linear(actors.QUEUE_FEATURES, hidden[0])
        self.mix = nn.Linear(2 * hidden[0] + 1, hidden[1])
        self.head = nn.Linear(hidden[1], 1)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """As PaperCritic's."""
        queue = pooled(torch.relu(self.encoder(rows)), begins)
        size = torch.log1p(torch.from_numpy(np.diff(begins)).to(queue)) / _LOG_FULL
        mixed = torch.relu(self.mix(torch.cat([queue, size.unsqueeze(-1)], dim=-1)))
        values: Tensor = self.head(mixed).squeeze(-1)
        return values


def pooled(codes: Tensor, begins: IntArray) -> Tensor:
    """(Q, 2 H) mean and maximum of codes (R, H), none below 0, over the rows of each moment; equal
    ones share the slope of a maximum. begins: (Q+1,).
    """
    moment = torch.from_numpy(moment_of(begins))
    none = codes.new_zeros(len(begins) - 1, codes.shape[1])
    rows = torch.from_numpy(np.maximum(np.diff(begins), 1)).to(codes)
    mean = none.index_add(0, moment, codes) / rows.unsqueeze(-1)
    most = none.scatter_reduce(0, moment.unsqueeze(-1).expand_as(codes), codes, "amax")
    return torch.cat([mean, most], dim=-1)


def moment_of(begins: IntArray) -> IntArray:
    """(R,) of every row its moment; begins: (Q+1,)."""
    return np.arange(len(begins) - 1).repeat(np.diff(begins))


def spans(first: IntArray, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """The entries first[i] to first[i + 1] of some numbers i, end to end, and (n+1,) where those of
    each begin.
    """
    counts = first[numbers + 1] - first[numbers]
    begins = np.append(0, np.cumsum(counts))
    return np.arange(begins[-1]) + (first[numbers] - begins[:-1]).repeat(counts), begins
