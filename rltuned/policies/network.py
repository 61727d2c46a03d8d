"""The actor's forward pass in numpy: what the daemon runs.

Source: RLTune section 3.2 and Fig. 9. `paper` is a three-layer perceptron that slides over the
jobs: one score per job, the same weights for every row, so a queue of any length can be scored
and the order of its rows does not matter. `context` adds mean and maximum of the whole queue.
train/network has both for PyTorch, kernel/network compiled; a bundle's parity file holds PyTorch's
own scores, and every load compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from rltuned.core.capacity import BoolArray
from rltuned.core.features import Float32Array, FloatArray

Kind = Literal["paper", "context"]
Weights = Mapping[str, Float32Array]
"""By PyTorch's names; a layer's weight is (outputs, inputs)."""
LAYERS: Final[Mapping[Kind, tuple[str, str, str]]] = {
    "paper": ("layers.0", "layers.2", "layers.4"),
    "context": ("encoder", "mix", "head"),
}
MASKED: Final = -1e9
"""Score of a row that is padding: its probability is zero in float32."""


@dataclass(frozen=True, slots=True)
class Network:
    """An actor's weights, as in `shapes`. They correct delays by exp(-reach) to exp(reach); with
    reach 0 they correct no rule, and their score is the order, equal ones by submission.
    """

    kind: Kind
    weights: Weights
    reach: float

    def forward(self, values: Float32Array, mask: BoolArray) -> Float32Array:
        """(jobs, features) and (jobs,) -> (jobs,) scores; rows that the mask leaves out: MASKED."""
        first, second, head = LAYERS[self.kind]
        code = relu(dense(self.weights, first, values))
        if self.kind == "context":
            code[~mask] = 0.0
            code = self._mixed(second, code, max(int(mask.sum()), 1))
        else:
            code = dense(self.weights, second, code)
        scores = dense(self.weights, head, relu(code))[:, 0]
        return np.where(mask, scores, np.float32(MASKED))

    @property
    def corrects(self) -> bool:
        """Whether there is a rule that it corrects."""
        return self.reach > 0.0

    def factors(self, scores: FloatArray) -> FloatArray:
        """(n,) what a residual makes of the rule's delays; 1 at score 0, less for higher ones."""
        found: FloatArray = np.exp(-self.reach * np.tanh(scores))
        return found

    def _mixed(self, layer: str, code: Float32Array, count: int) -> Float32Array:
        """(jobs, K) of each job's code (jobs, H) beside mean and maximum of the queue. The pools
        are the same for all jobs, so they enter as a part of the bias.
        """
        weight, width = self.weights[f"{layer}.weight"], code.shape[1]
        # codes are never negative, so a padded zero is no wrong maximum
        pools = np.concatenate([code.sum(axis=0) / np.float32(count), code.max(axis=0, initial=0)])
        bias = weight[:, width:] @ pools + self.weights[f"{layer}.bias"]
        found: Float32Array = code @ weight[:, :width].T
        found += bias
        return found


def shapes(
    kind: Kind, features: int, hidden: tuple[int, ...], outputs: int = 1
) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of an architecture, by its name; hidden: (H, K)."""
    first, second = hidden
    inputs = (features, 3 * first if kind == "context" else first, second)
    found: dict[str, tuple[int, ...]] = {}
    for layer, units, width in zip(LAYERS[kind], (*hidden, outputs), inputs, strict=True):
        found |= {f"{layer}.weight": (units, width), f"{layer}.bias": (units,)}
    return found


def dense(weights: Weights, layer: str, values: Float32Array) -> Float32Array:
    """(n, inputs) -> (n, outputs) of one linear layer."""
    found: Float32Array = values @ weights[f"{layer}.weight"].T
    found += weights[f"{layer}.bias"]
    return found


def relu(values: Float32Array) -> Float32Array:
    """What is negative becomes 0, in place."""
    return np.maximum(values, np.float32(0.0), out=values)
