"""How long will a job run? Quantiles, from its limit and what its user and account ran before.

The history is a table made when the predictor was fitted, per user and per account: how many jobs
ended, mean and spread of the logarithm of their run times, and how many ran long. Names are kept as
digests only. A user who is not in it is judged by the account, one without either by the limit.
Fit it again for each site, every now and then: `rltuned train predictor`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from rltuned.core.features import LIMIT_FULL_S, planning_limit_s
from rltuned.domain.jobs import Request
from rltuned.errors import ModelError
from rltuned.policies.files import (
    PARITY_TOLERANCE,
    Shape,
    named,
    read_arrays,
    read_tensors,
    unlike,
)
from rltuned.policies.network import LAYERS, Weights, dense, relu

PREDICTOR_FILE: Final = "predictor.safetensors"
PREDICTOR_PARITY_FILE: Final = "predictor-parity.npz"
QUANTILES: Final = (0.1, 0.5, 0.9)
STATS: Final = 4
"""Of a user or account: ln(1+jobs), mean and spread of ln(1+run), share of long runs."""
LONG_S: Final = 4 * 3_600.0
INPUTS: Final = 4 + 2 * (STATS + 1)
HIDDEN: Final = 32
LOG_FULL: Final = math.log1p(LIMIT_FULL_S)

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]


def quantiles_of(weights: Weights, inputs: Float32Array) -> Float32Array:
    """(n, INPUTS) -> (n, 3) quantiles of ln(1+run)/ln(1+30 d), each at least the one before."""
    code = inputs
    for layer in LAYERS["paper"][:-1]:
        code = relu(dense(weights, layer, code))
    raw = dense(weights, LAYERS["paper"][-1], code)
    # the softplus of the others adds something positive
    raw[:, 1:] = np.logaddexp(raw[:, 1:], np.float32(0.0))
    found: Float32Array = np.cumsum(raw, axis=1, dtype=np.float32)
    return found


@dataclass(frozen=True, slots=True)
class UserStatistics:
    """What is known of users and accounts: digests (k,), sorted, and their STATS (k, STATS)."""

    keys: NDArray[np.int64]
    stats: Float32Array

    def of(self, names: Sequence[str]) -> Float32Array:
        """(n, STATS + 1): the numbers, and 1 where the name is known."""
        found = np.zeros((len(names), STATS + 1), dtype=np.float32)
        if len(self.keys):
            wanted = np.array([digest(name) for name in names], dtype=np.int64)
            at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
            known = self.keys[at] == wanted
            found[known, :STATS], found[known, STATS] = self.stats[at[known]], 1.0
        return found


def digest(name: str) -> int:
    """64 bits of a name. Prefix it (user:, account:) so that they do not mix."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


class Predictor:
    """A fitted network and its history."""

    def __init__(self, weights: Weights, history: UserStatistics) -> None:
        self.weights, self.history = weights, history

    def inputs(
        self, users: Sequence[str], accounts: Sequence[str], requests: Sequence[Request]
    ) -> Float32Array:
        """(n, INPUTS) what the network reads."""
        by_user = self.history.of([f"user:{u}" if u else "" for u in users])
        by_account = self.history.of([f"account:{a}" if a else "" for a in accounts])
        return assemble(requests, by_user, by_account)

    def columns(
        self, users: Sequence[str], accounts: Sequence[str], requests: Sequence[Request]
    ) -> Float32Array:
        """(n, 3) quantiles of the run time as ln(1+s)/ln(1+30 d), in [0, 1], at most the limit."""
        if not len(users):
            return np.zeros((0, len(QUANTILES)), dtype=np.float32)
        inputs = self.inputs(users, accounts, requests)
        return bounded(quantiles_of(self.weights, inputs), inputs)

    def to_bytes(self) -> bytes:
        """One safetensors file."""
        tensors: dict[str, np.ndarray] = {f"net.{k}": v for k, v in self.weights.items()}
        return bytes(save(tensors | {"keys": self.history.keys, "stats": self.history.stats}))


def bounded(predicted: NDArray[np.float32], inputs: Float32Array) -> Float32Array:
    """Predictions within [0, 1], at most the time limit: no job runs longer."""
    found: Float32Array = np.clip(predicted, 0.0, np.minimum(inputs[:, :1], 1.0)).astype(np.float32)
    return found


def assemble(
    requests: Sequence[Request], by_user: Float32Array, by_account: Float32Array
) -> Float32Array:
    """(n, INPUTS) limit, whether there is one, GPUs, nodes asked for; user; account."""
    found = np.empty((len(requests), INPUTS), dtype=np.float32)
    for i, request in enumerate(requests):
        limit_s = planning_limit_s(request.time_limit_s)
        found[i, 0] = math.log1p(limit_s) / LOG_FULL
        found[i, 1] = float(request.time_limit_s is not None and request.time_limit_s < math.inf)
        found[i, 2] = math.log2(1 + request.total.gpus) / 10.0
        found[i, 3] = float(request.total.gpus > 0)
    found[:, 4 : 5 + STATS] = by_user
    found[:, 5 + STATS :] = by_account
    return found


def read_predictor(path: Path, data: bytes) -> Predictor:
    """From the bytes of a sealed file; path stands in the messages.

    Raises:
        ModelError: it is damaged or does not fit.
    """
    layers = zip(
        LAYERS["paper"], (HIDDEN, HIDDEN, len(QUANTILES)), (INPUTS, HIDDEN, HIDDEN), strict=True
    )
    wanted: dict[str, tuple[str, Shape]] = {}
    for layer, outputs, width in layers:
        wanted[f"net.{layer}.weight"] = ("F32", (outputs, width))
        wanted[f"net.{layer}.bias"] = ("F32", (outputs,))
    wanted |= {"keys": ("I64", (None,)), "stats": ("F32", (None, STATS))}
    tensors = read_tensors(path, data, wanted)
    weights = {k[4:]: v for k, v in tensors.items() if k.startswith("net.")}
    keys, stats = tensors["keys"], tensors["stats"]
    if len(keys) != len(stats):
        raise ModelError(f"model {path}: history of {len(keys)} names and {len(stats)} rows")
    finite = all(bool(np.isfinite(t).all()) for t in weights.values())
    if not finite or not np.isfinite(stats).all() or (np.diff(keys) <= 0).any():
        raise ModelError(f"model {path}: not finite, or its history is not in order")
    return Predictor(weights, UserStatistics(keys, stats))


def self_test(predictor: Predictor, path: Path, data: bytes) -> None:
    """Compare predictions with those that PyTorch gave where it was fitted.

    Raises:
        ModelError: the sealed file (path stands in the messages) is damaged, or it does not.
    """
    inputs, predicted = read_arrays(path, data, "inputs", "told")
    shapes = inputs.shape[1:], predicted.shape[1:], len(predicted)
    if not len(inputs) or shapes != ((INPUTS,), (len(QUANTILES),), len(inputs)):
        raise ModelError(f"model {path}: arrays of shape {inputs.shape} and {predicted.shape}")
    with named(path):
        again = quantiles_of(predictor.weights, inputs.astype(np.float32))
        worst = unlike(again, predicted)
    if not worst <= PARITY_TOLERANCE:
        raise ModelError(f"model {path}: predictions differ by {worst:.2g} from those of the fit")
