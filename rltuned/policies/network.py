"""The networks, in one file: what the daemon runs and what training fits is the same code.

Source: RLTune section 3.2 and Fig. 9. The actor is a three-layer perceptron that slides over the
jobs: one score per job, the same weights for every row, so a queue of any length can be scored
and the order of its rows does not matter.
"""

from typing import Final

import torch
from torch import Tensor, nn

MASKED: Final = -1e9
"""Score of a padded row before the softmax: its probability is zero in float32."""


class PaperActor(nn.Module):
    """Per-job scorer: (..., jobs, features) -> (..., jobs) scores, higher = sooner."""

    def __init__(self, features: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], 1),
        )

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED."""
        scores: Tensor = self.layers(observation).squeeze(-1)
        return scores.masked_fill(~mask, MASKED)


def log_probabilities(scores: Tensor) -> Tensor:
    """Masked softmax over the jobs of a window, as logarithms: (..., jobs) -> (..., jobs)."""
    return torch.log_softmax(scores, dim=-1)
