"""A bundle's network as an ONNX file, for others' run times; rltuned itself does not read it.

Needs the onnx extra. What goes in are features, not jobs: core/features computes them.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
import torch

from rltuned.errors import ModelError
from rltuned.policies.actor import Actor
from rltuned.policies.card import PARITY_FILE
from rltuned.policies.files import PARITY_TOLERANCE, unlike

OPSET: Final = 18
LENGTHS: Final = (1, 7, 256, 700)
"""Queues of random features that are compared besides those of the bundle's parity file."""


def write_onnx(actor: Actor, bundle: Path, target: Path) -> float:
    """Write it, if onnxruntime gives the same scores; the largest difference that was seen, as a
    part of the largest score (of 1, if all are smaller).

    Inputs `jobs` (n, features) float32 and `mask` (n,) bool, output `scores` (n,) float32, for any
    n; rows that the mask leaves out score -1e9.

    Raises:
        ModelError: the target exists or cannot be written, or scores differ.
    """
    if target.exists():
        raise ModelError(f"{target}: exists already; remove it or choose another name")
    data = _exported(actor)
    worst = _worst(actor, bundle, data)
    if not worst <= PARITY_TOLERANCE:
        raise ModelError(f"model {bundle}: as ONNX its scores differ by {worst:.2g}; not written")
    try:
        target.write_bytes(data)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written: {error.strerror}") from error
    return worst


def _exported(actor: Actor) -> bytes:
    inputs = torch.rand(4, actor.card.architecture.features), torch.ones(4, dtype=torch.bool)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        # the exporter's successor wants two more packages, and our torch is pinned
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            actor.network,
            inputs,
            Path(scratch) / "network.onnx",
            dynamo=False,
            opset_version=OPSET,
            input_names=["jobs", "mask"],
            output_names=["scores"],
            dynamic_axes={name: {0: "n"} for name in ("jobs", "mask", "scores")},
        )
        return (Path(scratch) / "network.onnx").read_bytes()


def _worst(actor: Actor, bundle: Path, data: bytes) -> float:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(1)
    features = actor.card.architecture.features
    with np.load(bundle / PARITY_FILE, allow_pickle=False) as archive:
        queues = list(zip(archive["values"], archive["masks"], strict=True))
    for length in LENGTHS:
        mask = draw.random(length) < 0.9  # noqa: PLR2004 - some rows are padding
        mask[0] = True
        queues.append((draw.random((length, features)).astype(np.float32), mask))
    differences = []
    for values, mask in queues:
        wanted = actor.forward(values, mask)[mask]
        found = session.run(["scores"], {"jobs": values, "mask": mask})[0][mask]
        differences.append(unlike(found, wanted))
    return float(np.max(differences))
