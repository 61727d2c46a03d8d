"""How long will a job run? Quantiles, from its limit and what its user and account ran before.

The history is a table made when the predictor was fitted, per user and per account: how many jobs
ended, mean and spread of the logarithm of their run times, and how many ran long. Names are kept as
digests only. A user who is not in it is judged by the account, one without either by the limit.
Fit it again for each site, every now and then: `rltuned train predictor`.
"""

import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

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

PREDICTOR_FILE: Final = "predictor.safetensors"
PREDICTOR_PARITY_FILE: Final = "predictor-parity.npz"
PARITY_ROWS: Final = 64
QUANTILES: Final = (0.1, 0.5, 0.9)
STATS: Final = 4
"""Of a user or account: ln(1+jobs), mean and spread of ln(1+run), share of long runs."""
LONG_S: Final = 4 * 3_600.0
INPUTS: Final = 4 + 2 * (STATS + 1)
HIDDEN: Final = 32
LOG_FULL: Final = math.log1p(LIMIT_FULL_S)

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]


class QuantileNet(nn.Module):
    """(n, INPUTS) -> (n, 3) quantiles of ln(1+run)/ln(1+30 d), each at least the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, len(QUANTILES)),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Lowest first; the others add something positive."""
        raw = self.layers(inputs)
        steps = torch.cat([raw[:, :1], nn.functional.softplus(raw[:, 1:])], dim=-1)
        return torch.cumsum(steps, dim=-1)


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

    def __init__(self, network: QuantileNet, history: UserStatistics) -> None:
        self.network, self.history = network.eval(), history

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
        with torch.inference_mode():
            told = self.network(torch.from_numpy(inputs)).numpy()
        return bounded(told, inputs)

    def to_bytes(self) -> bytes:
        """One safetensors file."""
        tensors = {f"net.{k}": v.contiguous() for k, v in self.network.state_dict().items()}
        tensors["keys"] = torch.from_numpy(self.history.keys)
        tensors["stats"] = torch.from_numpy(self.history.stats)
        return bytes(save(tensors))


def bounded(told: NDArray[np.float32], inputs: Float32Array) -> Float32Array:
    """Predictions within [0, 1], at most the time limit: no job runs longer."""
    found: Float32Array = np.clip(told, 0.0, np.minimum(inputs[:, :1], 1.0)).astype(np.float32)
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
    network = QuantileNet()
    wanted: dict[str, tuple[str, Shape]] = {
        f"net.{k}": ("F32", tuple(v.shape)) for k, v in network.state_dict().items()
    }
    wanted |= {"keys": ("I64", (None,)), "stats": ("F32", (None, STATS))}
    tensors = read_tensors(path, data, wanted)
    with named(path):
        network.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("net.")})
    keys, stats = tensors["keys"].numpy(), tensors["stats"].numpy()
    if len(keys) != len(stats):
        raise ModelError(f"model {path}: history of {len(keys)} names and {len(stats)} rows")
    finite = all(bool(torch.isfinite(t).all()) for t in network.state_dict().values())
    if not finite or not np.isfinite(stats).all() or (np.diff(keys) <= 0).any():
        raise ModelError(f"model {path}: not finite, or its history is not in order")
    return Predictor(network, UserStatistics(keys, stats))


def parity_bytes(predictor: Predictor) -> bytes:
    """Inputs of all kinds, and what the network says of them now: (64, INPUTS) and (64, 3)."""
    draw = np.random.default_rng(0)
    inputs = draw.random((PARITY_ROWS, INPUTS)).astype(np.float32)
    for first in (4, 5 + STATS):  # some are strangers
        inputs[draw.random(PARITY_ROWS) < 0.25, first : first + STATS + 1] = 0.0  # noqa: PLR2004
    with torch.inference_mode():
        told = predictor.network(torch.from_numpy(inputs)).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, inputs=inputs, told=told)
    return buffer.getvalue()


def self_test(predictor: Predictor, path: Path, data: bytes) -> None:
    """Does it say here what it said where it was fitted?

    Raises:
        ModelError: the sealed file (path stands in the messages) is damaged, or it does not.
    """
    inputs, told = read_arrays(path, data, "inputs", "told")
    shapes = inputs.shape[1:], told.shape[1:], len(told)
    if not len(inputs) or shapes != ((INPUTS,), (len(QUANTILES),), len(inputs)):
        raise ModelError(f"model {path}: arrays of shape {inputs.shape} and {told.shape}")
    with named(path), torch.inference_mode():
        again = predictor.network(torch.from_numpy(inputs.astype(np.float32))).numpy()
        worst = unlike(again, told)
    if not worst <= PARITY_TOLERANCE:
        raise ModelError(f"model {path}: predictions differ by {worst:.2g} from those of the fit")
