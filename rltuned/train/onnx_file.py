"""A bundle's network as an ONNX file, for others' run times; rltuned itself does not read it.

Needs the onnx extra. What goes in are features, not jobs: core/features computes them.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Final

import onnxruntime
import torch

from rltuned.core.capacity import BoolArray
from rltuned.core.features import Float32Array
from rltuned.errors import ModelError
from rltuned.policies.actor import Actor
from rltuned.policies.files import PARITY_TOLERANCE
from rltuned.train.network import module_of
from rltuned.train.probes import Scores, worst

OPSET: Final = 18


def write_onnx(actor: Actor, bundle: Path, target: Path) -> float:
    """Write it for any n: `jobs` (n, features) float32, `mask` (n,) bool -> `scores` (n,), masked
    -1e9. Returns the largest difference from onnxruntime, see unlike. Raises ModelError.
    """
    if target.exists():
        raise ModelError(f"{target}: exists already; remove it or choose another name")
    data = _exported(actor)
    difference = worst(actor, bundle, _scores(data))
    if not difference <= PARITY_TOLERANCE:
        raise ModelError(f"model {bundle}: ONNX's scores differ by {difference:.2g}; not written")
    try:
        target.write_bytes(data)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written: {error.strerror}") from error
    return difference


def _exported(actor: Actor) -> bytes:
    inputs = torch.rand(4, actor.card.architecture.features), torch.ones(4, dtype=torch.bool)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        # the exporter's successor wants two more packages, and our torch is pinned
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            module_of(actor.network),
            inputs,
            Path(scratch) / "network.onnx",
            dynamo=False,
            opset_version=OPSET,
            input_names=["jobs", "mask"],
            output_names=["scores"],
            dynamic_axes={name: {0: "n"} for name in ("jobs", "mask", "scores")},
        )
        return (Path(scratch) / "network.onnx").read_bytes()


def _scores(data: bytes) -> Scores:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])

    def scores(values: Float32Array, mask: BoolArray) -> Float32Array:
        found: Float32Array = session.run(["scores"], {"jobs": values, "mask": mask})[0]
        return found

    return scores
