"""The actor as a PyTorch module: what training fits. policies/network runs the same weights."""

from typing import Final

import torch
from torch import Tensor, nn

from rltuned.policies.actor import NetworkPolicy
from rltuned.policies.network import INPUTS, MASKED, Kind, Network, outputs_of

LEAST_SPREAD: Final = 0.05
"""Deviation that a feature is counted with where it hardly differs."""


class TorchActor(nn.Module):
    """Per-job scorer of a kind: (..., jobs, features) -> (..., jobs, outputs), higher = sooner.

    Blank: its score is 0 for every job, so it is the rule that it corrects, or first come, first
    served; the hidden weights are random.
    """

    def __init__(self, kind: Kind, hidden: tuple[int, ...], reach: float = 0.0) -> None:
        super().__init__()
        self.kind, self.reach = kind, reach
        self.layers = perceptron(INPUTS[kind], hidden, outputs_of(kind, reach))
        for blank in self.layers[-1].parameters():
            nn.init.zeros_(blank)

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED."""
        scores: Tensor = self.layers(observation)
        return scores.masked_fill(~mask.unsqueeze(-1), MASKED)

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


def hidden_of(module: nn.Module) -> tuple[int, ...]:
    """Widths of the hidden layers."""
    return tuple(one.out_features for one in module.modules() if isinstance(one, nn.Linear))[:-1]


def network_of(module: TorchActor) -> Network:
    """The weights of a module as they are now, without PyTorch."""
    state = module.state_dict()
    return Network(
        module.kind,
        {name: value.detach().cpu().numpy().copy() for name, value in state.items()},
        module.reach,
    )


def policy_of(module: TorchActor) -> NetworkPolicy:
    """The same, to be played."""
    return NetworkPolicy("learner", network_of(module))


def module_of(network: Network) -> TorchActor:
    """A module with a network's weights."""
    biases = [len(value) for name, value in network.weights.items() if name.endswith(".bias")]
    module = TorchActor(network.kind, tuple(biases[:-1]), network.reach)
    module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in network.weights.items()})
    return module.eval()
