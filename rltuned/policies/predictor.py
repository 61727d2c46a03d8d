"""The run-time predictor: a small network over what is known of a job's kinds (core/run_times).

Its folder holds `predictor.safetensors` (weights and nothing else), `parity.npz` (inputs with the
logits that PyTorch gave) and `predictor.json`, its card. It is one for all policies: the rules
`delay` and `qssf` and the networks read the same predictions.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.numpy import save

from rltuned.core import run_times
from rltuned.core.run_times import BINS, INPUTS, KEYS, Float32Array, FloatArray
from rltuned.errors import ModelError
from rltuned.policies.files import (
    MAX_CARD_BYTES,
    PARITY_TOLERANCE,
    check_folder,
    named,
    read,
    read_arrays,
    read_tensors,
    unlike,
)
from rltuned.policies.network import LAYERS, Weights, dense, relu

PREDICTOR_FILE: Final = "predictor.safetensors"
PARITY_FILE: Final = "parity.npz"
CARD_FILE: Final = "predictor.json"
HIDDEN: Final = (48, 32)
INPUTS_ID: Final = (
    "run-times-"
    + hashlib.sha256(
        repr((KEYS, run_times.SIGNS, INPUTS, run_times.SLOW, run_times.FAST)).encode()
        + run_times.EDGES.tobytes()
    ).hexdigest()[:12]
)
"""Changes whenever what the network reads or answers does."""


class PredictorCard(BaseModel):
    """predictor.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1]
    name: str
    inputs_id: str
    files_sha256: Mapping[str, str]
    rltuned_version: str
    command: str
    seed: int
    data: str
    data_licence: str
    results: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Predictor:
    """A fitted network. digest: of its card; "" = it was never sealed."""

    weights: Weights
    digest: str = ""

    def logits(self, inputs: Float32Array) -> FloatArray:
        """(n, INPUTS) -> (n, BINS)."""
        first, second, last = LAYERS["paper"]
        code = relu(dense(self.weights, first, inputs))
        code = relu(dense(self.weights, second, code))
        return dense(self.weights, last, code).astype(np.float64)

    def to_bytes(self) -> bytes:
        """One safetensors file."""
        return bytes(save({name: np.ascontiguousarray(w) for name, w in self.weights.items()}))


def shapes() -> dict[str, tuple[int, ...]]:
    """Shape of every tensor, by its name."""
    found: dict[str, tuple[int, ...]] = {}
    widths = (INPUTS, *HIDDEN, BINS)
    for layer, before, after in zip(LAYERS["paper"], widths, widths[1:], strict=False):
        found |= {f"{layer}.weight": (after, before), f"{layer}.bias": (after,)}
    return found


def load_predictor(folder: Path) -> Predictor:
    """A predictor, after all checks of its files and its self-test.

    Raises:
        ModelError: names the file and what is wrong with it: missing, of a foreign owner, writable
            by others, damaged, of other inputs, not finite, or answering otherwise than when it was
            fitted.
    """
    with named(folder):
        if not folder.is_dir():
            raise ModelError(f"model {folder}: no such folder")
        check_folder(folder)
        raw = read(folder / CARD_FILE, MAX_CARD_BYTES)
        try:
            card = PredictorCard.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "(whole)"
            message = f"model {folder / CARD_FILE}: field {where}: {first['msg']}"
            raise ModelError(message) from error
        if card.inputs_id != INPUTS_ID:
            raise ModelError(
                f"model {folder / CARD_FILE}: fitted to inputs {card.inputs_id}, this release "
                f"computes {INPUTS_ID}; fit it again"
            )
        found = _weights(folder / PREDICTOR_FILE, _sealed(folder / PREDICTOR_FILE, card))
        _self_test(found, folder / PARITY_FILE, _sealed(folder / PARITY_FILE, card))
        return Predictor(found.weights, hashlib.sha256(raw).hexdigest())


def _sealed(path: Path, card: PredictorCard) -> bytes:
    data = read(path)
    found, sealed = hashlib.sha256(data).hexdigest(), card.files_sha256.get(path.name)
    if found != sealed:
        raise ModelError(f"model {path}: SHA-256 {found[:12]}..., its card says {str(sealed)[:12]}")
    return data


def _weights(path: Path, data: bytes) -> Predictor:
    wanted = {name: ("F32", shape) for name, shape in shapes().items()}
    weights = read_tensors(path, data, wanted)
    for name, tensor in weights.items():
        if not bool(np.isfinite(tensor).all()):
            raise ModelError(f"model {path}: tensor {name} is not finite float32")
    return Predictor(weights)


def _self_test(predictor: Predictor, path: Path, data: bytes) -> None:
    inputs, logits = read_arrays(path, data, "inputs", "logits")
    if inputs.shape[1:] != (INPUTS,) or logits.shape != (len(inputs), BINS) or not len(inputs):
        raise ModelError(f"model {path}: arrays of shape {inputs.shape} and {logits.shape}")
    found: NDArray[np.float32] = predictor.logits(inputs.astype(np.float32)).astype(np.float32)
    worst = unlike(found, logits.astype(np.float32))
    if not worst <= PARITY_TOLERANCE:
        raise ModelError(f"model {path}: answers differ by {worst:.2g} from those of the fit")
