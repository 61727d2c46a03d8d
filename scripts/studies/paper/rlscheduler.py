"""RLScheduler (Zhang et al., SC'20): one small network scores every job of the queue by itself.

Theirs: six features of a job (wait, limit, GPUs, CPUs, memory, whether it fits now; user, group and
program numbers say nothing about another month and are left out), the metric itself as the reward
at the end, in parts of its mean under SJF, and a critic that puts the scores of the oldest VISIBLE
jobs side by side. Otherwise than theirs all of the queue is scored, and the kernel has two hidden
layers in place of three. Their filter of windows is off, as it is in their code.
"""

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.core.features import COLUMN
from rltuned.core.queue_features import QUEUE_FEATURES
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, network_of, perceptron, policy_of, whose
from rltuned.lab.train.rollout import Decisions, Recorder, play_policy, play_sampled
from scripts.studies.paper.common import EVENTS

HIDDEN: Final = (32, 16)
VISIBLE: Final = 128
READ: Final = [
    COLUMN[name]
    for name in ("submit_time", "requested_time", "requested_gpus", "req_cpu", "req_mem",
                 "can_schedule_now")
]  # fmt: skip


def start_wide(layers: nn.Module) -> None:
    """Weights by Glorot, biases zero: torch's own start leaves a narrow network almost flat, and
    scores that hardly differ learn nothing from a noisy reward.
    """
    for layer in layers.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class KernelActor(TorchActor):
    """It is given all columns of a queue; the weights of those that are not in READ stay zero."""

    def __init__(self) -> None:
        super().__init__("queue", HIDDEN)
        start_wide(self.layers)
        unread = [at for at in range(QUEUE_FEATURES) if at not in READ]
        weight = next(self.layers.parameters())
        with torch.no_grad():
            weight[:, unread] = 0.0
        weight.register_hook(lambda gradient: gradient.index_fill(1, torch.tensor(unread), 0))  # type: ignore[no-untyped-call]


class KernelCritic(nn.Module):
    """A number per job, those of the oldest VISIBLE side by side into one more network."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.layers = perceptron(len(READ), HIDDEN), perceptron(VISIBLE, (64, 32))
        start_wide(self)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """(Q,) values; as train/network.PaperCritic."""
        moment, place = whose(begins)
        padded, seen = rows.new_zeros(len(begins) - 1, VISIBLE), place < VISIBLE
        padded[moment[seen], place[seen]] = self.kernel(rows[seen][:, READ]).squeeze(-1)
        values: Tensor = self.layers(padded).squeeze(-1)
        return values


class RLScheduler:
    """unit: mean wait under SJF in the windows that choose an epoch."""

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit
        self._recorder = Recorder()

    def networks(self) -> tuple[TorchActor, nn.Module]:
        return KernelActor(), KernelCritic()

    def play(
        self, window: Scenario, actor: TorchActor, draw: np.random.Generator | None = None
    ) -> tuple[FloatArray, Decisions | None]:
        """(n,) start times, and the choices if they were drawn."""
        if draw is None:
            return play_policy(window, policy_of(actor), EVENTS), None
        net, seed = net_of(network_of(actor)), int(draw.integers(1 << 40))
        return play_sampled(window, net, seed, self._recorder)

    def reward(self, own: float, base: float) -> float:
        del base
        return -own / self.unit
