"""A small bundle that no training has made, for what only needs one that loads."""

from pathlib import Path

import torch

from rltuned.lab.train.export import export_bundle
from rltuned.lab.train.network import TorchActor
from rltuned.policies.actor import INPUTS, Training


def small_network(target: Path, *, seed: int = 1) -> Path:
    """A `queue` network with random weights."""
    torch.manual_seed(seed)
    drawn = TorchActor("queue", (8, 8), reach=1.0)
    next(drawn.layers[-1].parameters()).data.normal_(0.0, 0.2)
    masks = torch.zeros(1, 256, dtype=torch.bool)
    masks[0, :9] = True
    made = Training(
        method="none",
        teacher="none",
        command="a test",
        seed=seed,
        settings={},
        data="none",
        data_licence="none",
        seconds=0.0,
        machine="a test",
    )
    export_bundle(
        target,
        drawn,
        summary="random weights",
        parity=(torch.rand(1, 256, INPUTS["queue"]), masks),
        training=made,
        results={},
        caveats=[],
    )
    return target
