"""Does another program give the scores that the daemon computes? Queues to ask both about."""

from collections.abc import Iterator
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


def compare_with_torch(actor: Actor, bundle: Path) -> float:
    """The largest difference from PyTorch's scores, see policies/files.unlike. Raises
    ModelError.
    """
    module = module_of(actor.network)

    differences = []
    for values, mask in _queues(actor, bundle):
        with torch.inference_mode():
            theirs = module(torch.from_numpy(values), torch.from_numpy(mask)).numpy()
        ours = actor.forward(values, mask).astype(np.float32)
        differences.append(unlike(theirs[mask], ours[mask]))
    difference = float(np.max(differences))  # NaN stays NaN, and is refused
    if not difference <= PARITY_TOLERANCE:
        raise ModelError(f"model {bundle}: PyTorch's scores differ by {difference:.2g}")
    return difference


def _queues(actor: Actor, bundle: Path) -> Iterator[tuple[Float32Array, BoolArray]]:
    with np.load(bundle / PARITY_FILE, allow_pickle=False) as archive:
        yield from zip(archive["values"], archive["masks"], strict=True)
    draw = np.random.default_rng(1)
    for length in LENGTHS:
        mask = draw.random(length) < 0.9  # noqa: PLR2004 - some rows are padding
        mask[0] = True
        shape = (length, actor.card.architecture.features)
        yield draw.random(shape).astype(np.float32), mask
