"""Does another program give the scores that the daemon computes? Queues to ask both about."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch

from rltuned.core.capacity import BoolArray
from rltuned.core.features import Float32Array
from rltuned.errors import ModelError
from rltuned.lab.train.network import module_of
from rltuned.policies.actor import Actor
from rltuned.policies.card import PARITY_FILE
from rltuned.policies.files import PARITY_TOLERANCE, unlike

LENGTHS: Final = (1, 7, 256, 700)
"""Queues of random features that are compared besides those of the bundle's parity file."""

Scores = Callable[[Float32Array, BoolArray], Float32Array]
"""(n, features) and (n,) -> (n,)."""


def compare_with_torch(actor: Actor, bundle: Path) -> float:
    """The largest difference from PyTorch's scores, see `worst`. Raises ModelError."""
    module = module_of(actor.network)

    def scores(values: Float32Array, mask: BoolArray) -> Float32Array:
        with torch.inference_mode():
            found: Float32Array = module(torch.from_numpy(values), torch.from_numpy(mask)).numpy()
        return found

    difference = worst(actor, bundle, scores)
    if not difference <= PARITY_TOLERANCE:
        raise ModelError(f"model {bundle}: PyTorch's scores differ by {difference:.2g}")
    return difference


def worst(actor: Actor, bundle: Path, scores: Scores) -> float:
    """The largest difference from the daemon's scores; see policies/files.unlike."""
    differences = [
        unlike(scores(values, mask)[mask], actor.forward(values, mask).astype(np.float32)[mask])
        for values, mask in _queues(actor, bundle)
    ]
    return float(np.max(differences))  # NaN stays NaN, and is refused


def _queues(actor: Actor, bundle: Path) -> Iterator[tuple[Float32Array, BoolArray]]:
    with np.load(bundle / PARITY_FILE, allow_pickle=False) as archive:
        yield from zip(archive["values"], archive["masks"], strict=True)
    draw = np.random.default_rng(1)
    for length in LENGTHS:
        mask = draw.random(length) < 0.9  # noqa: PLR2004 - some rows are padding
        mask[0] = True
        shape = (length, actor.card.architecture.features)
        yield draw.random(shape).astype(np.float32), mask
