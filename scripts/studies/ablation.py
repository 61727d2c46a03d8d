"""The paper's network over other columns than its sampled eight: for studies, never shipped.

It is a context network whose missing weights are zero and stay so: what is not read, and all that
comes from the rest of the queue. So everything that plays a context network plays this one.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from rltuned.core.features import COLUMN, NUM_FEATURES
from rltuned.core.observation import FIXED
from rltuned.policies.network import ContextActor, PaperActor
from rltuned.train.critic import PaperCritic
from rltuned.train.learner import Learner, Settings

NAIVE: Final = (
    "submit_time",
    "requested_gpus",
    "requested_time",
    "req_cpu",
    "req_mem",
    "free_nodes",
    "can_schedule_now",
    "num_ways",
)
"""What the paper's Table 3 lists as visible, or as the cluster's state: nothing engineered."""
SEVEN: Final = (*FIXED, "urgency")
EIGHT: Final = (*SEVEN, "free_nodes")
"""The sampled eight where nothing is ever sampled: both switches off."""
NINE: Final = (*EIGHT, "job_size")


def per_job(columns: Sequence[str], hidden: tuple[int, ...]) -> ContextActor:
    """The paper's network over some columns of the whole table, weights random as the paper's."""
    plain = PaperActor(len(columns), hidden).state_dict()
    actor = ContextActor(NUM_FEATURES, hidden)
    places = [COLUMN[name] for name in columns]
    with torch.no_grad():
        for layer, number in ((actor.encoder, 0), (actor.mix, 2), (actor.head, 4)):
            layer.weight.zero_()
            layer.bias.copy_(plain[f"layers.{number}.bias"])
        actor.encoder.weight[:, places] = plain["layers.0.weight"]
        actor.mix.weight[:, : hidden[0]] = plain["layers.2.weight"]
        actor.head.weight.copy_(plain["layers.4.weight"])
    for layer in (actor.encoder, actor.mix):
        _hold_zeros(layer.weight)
    return actor


def _hold_zeros(weight: Tensor) -> None:
    kept = (weight.detach() != 0).to(weight.dtype)
    weight.register_hook(lambda gradient: gradient * kept)  # type: ignore[no-untyped-call]


def student(settings: Settings, columns: Sequence[str]) -> Learner:
    """A learner whose actor reads these columns; beside it the paper's critic."""
    torch.manual_seed(settings.seed)
    return Learner(settings, "cpu", per_job(columns, settings.hidden), PaperCritic())
