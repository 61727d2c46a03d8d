"""A small bundle that no training has made, for what only needs one that loads."""

from pathlib import Path

import torch

from rltuned.policies.card import Training, features_of
from rltuned.train.export import export_bundle
from rltuned.train.network import ContextActor


def small_network(target: Path, *, seed: int = 1) -> Path:
    """A context network that reads predictions, with random weights."""
    torch.manual_seed(seed)
    features = features_of("context", predicted=True)
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
        ContextActor(features, (8, 8), reach=1.0),
        name=target.name,
        summary="random weights",
        parity=(torch.rand(1, 256, features), masks),
        training=made,
        results={},
        caveats=[],
        predicted=True,
    )
    return target
