"""The actor's forward pass in numpy: what the daemon runs.

Source: RLTune section 3.2 and Fig. 9: a three-layer perceptron that slides over the jobs, with the
same weights for every row, so a queue of any length can be scored and the order of its rows does
not matter. `paper` reads the paper's windows (core/observation), `queue` all features and where a
job stands in its queue (core/queue_features), and corrects the two parts of a delay apart.
train/network has both for PyTorch, kernel/network compiled; a bundle's parity file holds PyTorch's
own scores, and every load compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from rltuned.core.capacity import BoolArray
from rltuned.core.features import Float32Array, FloatArray
from rltuned.core.observation import OBSERVED
from rltuned.core.queue_features import QUEUE_FEATURES

Kind = Literal["paper", "queue"]
Weights = Mapping[str, Float32Array]
"""By PyTorch's names; a layer's weight is (outputs, inputs)."""
LAYERS: Final = ("layers.0", "layers.2", "layers.4")
INPUTS: Final[Mapping[Kind, int]] = {"paper": OBSERVED, "queue": QUEUE_FEATURES}
"""How many features each kind reads."""
MASKED: Final = -1e9
"""Score of a row that is padding: its probability is zero in float32."""


@dataclass(frozen=True, slots=True)
class Network:
    """An actor's weights, as in `shapes`. They correct delays by exp(-reach) to exp(reach); with
    reach 0 they correct no rule, and their score is the order, equal ones by submission. trust: see
    `correction`.
    """

    kind: Kind
    weights: Weights
    reach: float
    trust: float = 1.0

    def forward(self, values: Float32Array, mask: BoolArray) -> Float32Array:
        """(jobs, features) and (jobs,) -> (jobs, outputs) scores; rows left out: MASKED."""
        return np.where(mask[:, None], perceptron(self.weights, values), np.float32(MASKED))

    @property
    def corrects(self) -> bool:
        """Whether there is a rule that it corrects."""
        return self.reach > 0.0

    def factors(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n,) what its scores (n, outputs) make of the two parts of the rule's delays, own seconds
        and place; 1 at score 0, less for higher ones.
        """
        found = correction(self.reach, self.trust, scores)
        return found[:, 0], found[:, -1]


def correction(reach: float, trust: float, score: FloatArray) -> FloatArray:
    """The factor on a delay of the rule. trust: of its logarithm, from 0, the rule, to 1, the actor
    as trained. kernel/network compiles it, for one score at a time.
    """
    found: FloatArray = np.exp(-(trust * reach) * np.tanh(score))
    return found


def outputs_of(kind: Kind, reach: float) -> int:
    """Scores per job: one for each part of a delay, or one for all that it does."""
    return 2 if kind == "queue" and reach > 0.0 else 1


def shapes(inputs: int, hidden: tuple[int, ...], outputs: int) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a perceptron, by its name; hidden: (H, K)."""
    found: dict[str, tuple[int, ...]] = {}
    widths = (inputs, *hidden)
    for layer, units, width in zip(LAYERS, (*hidden, outputs), widths, strict=True):
        found |= {f"{layer}.weight": (units, width), f"{layer}.bias": (units,)}
    return found


def perceptron(weights: Weights, values: Float32Array) -> Float32Array:
    """(n, inputs) -> (n, outputs) of three layers."""
    first, second, head = LAYERS
    code = relu(dense(weights, first, values))
    return dense(weights, head, relu(dense(weights, second, code)))


def dense(weights: Weights, layer: str, values: Float32Array) -> Float32Array:
    """(n, inputs) -> (n, outputs) of one linear layer."""
    found: Float32Array = values @ weights[f"{layer}.weight"].T
    found += weights[f"{layer}.bias"]
    return found


def relu(values: Float32Array) -> Float32Array:
    """What is negative becomes 0, in place."""
    return np.maximum(values, np.float32(0.0), out=values)
