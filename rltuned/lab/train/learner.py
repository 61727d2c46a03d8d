"""What a training is set to, and what it trains: actor, critic and their optimiser."""

import math
from dataclasses import asdict, dataclass, field
from typing import Final

import torch
from torch import nn

from rltuned.lab.train.batch import Contest
from rltuned.lab.train.critic import critic_of
from rltuned.lab.train.network import TorchActor
from rltuned.policies.network import Kind

REACH: Final = math.log(8)
"""A network's delays are at least an eighth of the rule's, and at most eight times as long."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """What is learned and how; the defaults are the paper's budget.

    Attributes:
        network: which one.
        reach: of a correction, see policies/network; 0 = the score is the order.
        hidden: widths of the actor's hidden layers.
        epochs, batches: updates, and episodes in each.
        learning_rate: of the actor, falling linearly to a tenth; the critic's is three times it.
        entropy: bonus at the first epoch, falling linearly to zero.
        clip: of the probability ratio. target_kl: an update stops beyond one and a half times it.
        passes: over the data of an epoch. minibatches: per pass. gradient_norm: the largest.
        gae: lambda. gamma is 1: an episode ends, and no second of waiting counts less.
        patience: epochs without a better validation before stopping; 0 = never.
        exam_every: epochs from one validation to the next; the last epoch is always validated.
        seed: of windows, noise and weights.
    """

    contest: Contest = field(default_factory=Contest)
    network: Kind = "queue"
    reach: float = REACH
    hidden: tuple[int, ...] = (32, 16)
    epochs: int = 100
    batches: int = 100
    learning_rate: float = 1e-3
    entropy: float = 0.01
    clip: float = 0.2
    target_kl: float = 0.02
    passes: int = 4
    minibatches: int = 8
    gae: float = 0.97
    gradient_norm: float = 0.5
    patience: int = 0
    eval_every: int = 1
    seed: int = 1

    def described(self) -> dict[str, int | float | str]:
        flat = asdict(self)
        contest = flat.pop("contest")
        return {
            k: v if isinstance(v, int | float) else str(v) for k, v in {**flat, **contest}.items()
        }


class Learner:
    """Actor, critic and their optimiser on a device. networks: of another design than ours."""

    def __init__(
        self,
        settings: PpoSettings,
        device: str = "cpu",
        networks: tuple[TorchActor, nn.Module] | None = None,
    ) -> None:
        torch.manual_seed(settings.seed)
        self.actor, self.critic = networks or (
            TorchActor(settings.network, settings.hidden, settings.reach),
            critic_of(settings.network),
        )
        self.device = device
        self.actor.to(device)
        self.critic.to(device)
        self.optimiser = torch.optim.Adam(
            [
                {"params": self.actor.parameters(), "share": 1.0},
                {"params": self.critic.parameters(), "share": 3.0},
            ],
            lr=settings.learning_rate,
            eps=1e-5,
        )

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["share"]
