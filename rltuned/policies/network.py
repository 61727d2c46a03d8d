"""The networks, in one file: what the daemon runs and what training fits is the same code.

Source: RLTune section 3.2 and Fig. 9. `paper` is a three-layer perceptron that slides over the
jobs: one score per job, the same weights for every row, so a queue of any length can be scored
and the order of its rows does not matter. `context` adds what the whole queue looks like.
"""

from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from rltuned.policies.card import Kind

MASKED: Final = -1e9
"""Score of a padded row before the softmax: its probability is zero in float32."""


class PaperActor(nn.Module):
    """Per-job scorer: (..., jobs, features) -> (..., jobs) scores, higher = sooner."""

    kind: ClassVar[Kind] = "paper"

    def __init__(self, features: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = perceptron(features, hidden)

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED."""
        scores: Tensor = self.layers(observation).squeeze(-1)
        return scores.masked_fill(~mask, MASKED)


class KernelActor(PaperActor):
    """RLScheduler's: the same small network slides over the jobs, one hidden layer deeper."""

    kind: ClassVar[Kind] = "kernel"

    def __init__(self, features: int, hidden: tuple[int, ...]) -> None:
        super().__init__(features, hidden)
        start_wide(self.layers)


class InspectorActor(PaperActor):
    """SchedInspector's: scores a base policy's pick, and nobody; see policies/rivals.

    Two outputs, accept and reject, say the same as one score of the pick beside that of a row of
    zeros: both are a softmax over any difference that the layers can form.
    """

    kind: ClassVar[Kind] = "inspector"

    def __init__(self, features: int, hidden: tuple[int, ...], base: str) -> None:
        super().__init__(features, hidden)
        self.base = base


class ContextActor(nn.Module):
    """Per-job scorer that also sees the queue: (..., jobs, features) -> (..., jobs) scores.

    Every job is encoded by the same layer; mean and maximum over the queue join each job's own
    code. Rows may come in any order and any number: scores follow them (Deep Sets).
    """

    kind: ClassVar[Kind] = "context"

    def __init__(self, features: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden[0])
        self.mix = nn.Linear(3 * hidden[0], hidden[1])
        self.head = nn.Linear(hidden[1], 1)

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED and do not enter the pools."""
        code = torch.relu(self.encoder(observation)).masked_fill(~mask.unsqueeze(-1), 0.0)
        count = mask.sum(dim=-1, keepdim=True).clamp(min=1).unsqueeze(-1)
        mean = code.sum(dim=-2, keepdim=True) / count
        # codes are never negative, so a padded zero cannot be the largest of a queue wrongly
        most = code.amax(dim=-2, keepdim=True)
        pooled = torch.cat([mean, most], dim=-1).expand(*code.shape[:-1], -1)
        mixed = torch.relu(self.mix(torch.cat([code, pooled], dim=-1)))
        scores: Tensor = self.head(mixed).squeeze(-1)
        return scores.masked_fill(~mask, MASKED)


def perceptron(inputs: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ReLU between them, one output."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


def start_wide(layers: nn.Module) -> None:
    """Weights by Glorot, biases zero: torch's own start leaves a deep, narrow network almost flat,
    and scores that hardly differ learn nothing from a noisy reward.
    """
    for layer in layers.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def build(
    kind: Kind, features: int, hidden: tuple[int, ...], base: str | None = None
) -> PaperActor | ContextActor:
    """The network of an architecture, its weights still random; base: of an inspector."""
    if kind == "inspector":
        if base is None:
            raise ValueError("an inspector needs a base policy")
        return InspectorActor(features, hidden, base)
    if kind == "context":
        return ContextActor(features, hidden)
    return (KernelActor if kind == "kernel" else PaperActor)(features, hidden)
