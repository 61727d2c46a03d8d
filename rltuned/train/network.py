"""The actors as PyTorch modules: what training fits. policies/network runs the same weights."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rltuned.core.features import NUM_FEATURES
from rltuned.policies.actor import NetworkPolicy
from rltuned.policies.network import MASKED, Kind, Network


class PaperActor(nn.Module):
    """Per-job scorer: (..., jobs, features) -> (..., jobs) scores, higher = sooner."""

    kind: ClassVar[Kind] = "paper"

    def __init__(self, features: int, hidden: tuple[int, ...], reach: float = 0.0) -> None:
        super().__init__()
        self.reach = reach
        self.layers = perceptron(features, hidden)

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED."""
        scores: Tensor = self.layers(observation).squeeze(-1)
        return scores.masked_fill(~mask, MASKED)


class ContextActor(nn.Module):
    """Per-job scorer that also sees the queue: (..., jobs, features) -> (..., jobs) scores.

    Every job is encoded by the same layer; mean and maximum over the queue join each job's own
    code. Rows may come in any order and any number: scores follow them (Deep Sets).
    """

    kind: ClassVar[Kind] = "context"

    def __init__(self, features: int, hidden: tuple[int, ...], reach: float = 0.0) -> None:
        super().__init__()
        self.reach = reach
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


def placed_by(logits: Tensor, asked: Tensor, reach: float) -> Tensor:
    """What a queue is ordered by, higher = sooner: less virtual time, within the bounds, or what
    the network says (reach 0). logits: (...); asked: (..., 3), see kernel/episode.Tape.
    """
    if not reach:
        return logits
    wait, wished, upper = asked.unbind(dim=-1)
    return wait - torch.minimum(wished * torch.exp(-reach * torch.tanh(logits)), upper)


def perceptron(inputs: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ReLU between them, one output."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


def build(
    kind: Kind, features: int, hidden: tuple[int, ...], reach: float = 0.0
) -> PaperActor | ContextActor:
    """The network of an architecture: blank, its score 0 for every job, so it is the rule that it
    corrects, or first come, first served; the hidden weights are random.
    """
    module = (ContextActor if kind == "context" else PaperActor)(features, hidden, reach)
    last = [m for m in module.modules() if isinstance(m, nn.Linear)][-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return module


def hidden_of(module: nn.Module) -> tuple[int, ...]:
    """Widths of the hidden layers."""
    return tuple(one.out_features for one in module.modules() if isinstance(one, nn.Linear))[:-1]


def network_of(module: PaperActor | ContextActor) -> Network:
    """The weights of a module as they are now, without PyTorch."""
    state = module.state_dict()
    return Network(
        module.kind,
        {name: value.detach().cpu().numpy().copy() for name, value in state.items()},
        module.reach,
    )


def policy_of(module: PaperActor | ContextActor) -> NetworkPolicy:
    """The same, to be played."""
    network = network_of(module)
    features = next(iter(network.weights.values())).shape[1]
    predicted = module.kind == "context" and features > NUM_FEATURES
    return NetworkPolicy("learner", network, predicted=predicted)


def module_of(network: Network) -> PaperActor | ContextActor:
    """A module with a network's weights."""
    biases = [len(value) for name, value in network.weights.items() if name.endswith(".bias")]
    features = next(iter(network.weights.values())).shape[1]
    module = build(network.kind, features, tuple(biases[:-1]), network.reach)
    module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in network.weights.items()})
    return module.eval()
