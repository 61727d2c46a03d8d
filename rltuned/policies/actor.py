"""Load a model bundle, refuse it unless everything about it is right, and score with it.

Every file is opened once, checked on its open descriptor (owner, mode, size), read, and only then
digested and parsed, so that no other user can exchange it in between; see files.py.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from pydantic import BaseModel, Field, field_validator, model_validator

from rltuned.core.cluster import BoolArray
from rltuned.core.features import (
    MAX_QUEUE_SIZE,
    NUM_FEATURES,
    OBSERVED,
    SCHEMA_ID,
    Float32Array,
    FloatArray,
    StateMatrix,
    sample_features,
)
from rltuned.core.order import Wish
from rltuned.core.run_times import LOG_FULL, QUANTILES
from rltuned.errors import ModelError
from rltuned.policies import files
from rltuned.policies.baselines import BASELINES
from rltuned.stats import Word, percent

# What the `queue` actor reads of a queue: the features, and where each job stands in it.
#
# A row of it has the NUM_FEATURES columns of core/features, three quantiles of the predicted run
# time (those of the limit where nothing is predicted) and these, all from 0 to 1 and none in a unit
# of one cluster. Symbols: core/backlog; w: seconds waited; G: usable GPUs of the pool; x: ln(1 +
# run time) / ln(1 + 30 d).
#
# | column        | formula            |
# |---------------|--------------------|
# | place_by_plan | place by p         |
# | place_by_work | place by a         |
# | place_by_size | place by m         |
# | backlog       | B / (B + L)        |
# | wait          | w / (w + B)        |
# | width         | sqrt(m / G)        |
# | spread        | x of 90% - x of 10% |
# | use           | e / L              |
#
# The functions work on arrays alone and are what the kernel compiles.


QUEUE_COLUMNS: Final = (
    "place_by_plan",
    "place_by_work",
    "place_by_size",
    "backlog",
    "wait",
    "width",
    "spread",
    "use",
)
FIRST_QUANTILE: Final = NUM_FEATURES
FIRST_OF_QUEUE: Final = FIRST_QUANTILE + len(QUANTILES)
QUEUE_FEATURES: Final = FIRST_OF_QUEUE + len(QUEUE_COLUMNS)


def fill_queue_columns(  # noqa: PLR0917 - compiled functions take their arguments by place
    rows: Float32Array,
    by_plan: FloatArray,
    by_work: FloatArray,
    by_size: FloatArray,
    backlog_s: FloatArray,
    length_s: FloatArray,
    wait_s: FloatArray,
    size: FloatArray,
    gpus: FloatArray,
    expected_s: FloatArray,
) -> None:
    """Fill the last columns of rows (n, QUEUE_FEATURES), whose others are filled; each other (n,).
    gpus: of the pools.
    """
    rows[:, FIRST_OF_QUEUE] = by_plan
    rows[:, FIRST_OF_QUEUE + 1] = by_work
    rows[:, FIRST_OF_QUEUE + 2] = by_size
    rows[:, FIRST_OF_QUEUE + 3] = backlog_s / np.maximum(backlog_s + length_s, 1.0)
    rows[:, FIRST_OF_QUEUE + 4] = wait_s / np.maximum(wait_s + backlog_s, 1.0)
    rows[:, FIRST_OF_QUEUE + 5] = np.sqrt(np.minimum(size / np.maximum(gpus, 1.0), 1.0))
    rows[:, FIRST_OF_QUEUE + 6] = np.maximum(
        rows[:, FIRST_OF_QUEUE - 1] - rows[:, FIRST_QUANTILE], np.float32(0.0)
    )
    rows[:, FIRST_OF_QUEUE + 7] = np.minimum(expected_s / np.maximum(length_s, 1.0), 1.0)


def quantile_columns(limit_s: FloatArray, quantiles_s: FloatArray) -> Float32Array:
    """(n, 3) x of quantiles (n, 3) of the run time, NaN = nothing is predicted."""
    seconds = np.where(np.isnan(quantiles_s), limit_s[:, None], quantiles_s)
    return np.clip(np.log1p(seconds) / LOG_FULL, 0.0, 1.0).astype(np.float32)


def queue_features(matrix: StateMatrix, own_s: FloatArray, by_work: FloatArray) -> Float32Array:
    """(n, QUEUE_FEATURES) of a queue. own_s, by_work: (n,) what the rule `delay` wishes."""
    pools, rows = matrix.pools, np.empty((len(matrix), QUEUE_FEATURES), dtype=np.float32)
    rows[:, :FIRST_QUANTILE] = matrix.values
    first = matrix.run_s.shape[1] - len(QUANTILES)
    quantiles = quantile_columns(matrix.limit_s, matrix.run_s[:, first:])
    rows[:, FIRST_QUANTILE:FIRST_OF_QUEUE] = quantiles
    fill_queue_columns(
        rows,
        pools.places(own_s / np.sqrt(matrix.size)),
        by_work,
        pools.places(matrix.size),
        matrix.backlog_s,
        matrix.length_s,
        matrix.wait_s,
        matrix.size,
        pools.gpus[pools.pool],
        matrix.expected_s,
    )
    return rows


# The actor's forward pass in numpy: what the daemon runs.
#
# Source: RLTune section 3.2 and Fig. 9: a three-layer perceptron that slides over the jobs, with
# the same weights for every row, so a queue of any length can be scored and the order of its rows
# does not matter. `paper` reads the paper's windows (core/features), `queue` all features and
# where a job stands in its queue (above), and corrects the two parts of a delay
# apart. train/network has both for PyTorch, kernel/features compiled; a bundle's parity file holds
# PyTorch's own scores, and every load compares them.


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
    as trained. kernel/features compiles it, for one score at a time.
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


# The paper of a model: what it is, what it was trained on, how well it did.
#
# A bundle is a folder with `actor.safetensors` (weights and nothing else), `card.json` (this) and
# `parity.npz` (inputs with the scores that the trained network gave). No file of it can carry code.


CARD_FILE: Final = "card.json"
WEIGHTS_FILE: Final = "actor.safetensors"
PARITY_FILE: Final = "parity.npz"
FORMAT: Final = 2
BUNDLE_NAME: Final = "[a-z0-9][a-z0-9._-]{0,63}"
MAX_HIDDEN: Final = 4_096
MAX_REACH: Final = 5.0


HIDDEN_LAYERS: Final = 2


class Architecture(BaseModel, extra="forbid", frozen=True):
    """Enough to build the network before its weights are read. max_jobs: rows of the windows in
    parity.npz; a queue may be longer.
    """

    kind: Kind
    features: int = OBSERVED
    predicted: bool = Field(default=False, description="reads predicted run times, as `queue` does")
    hidden: tuple[int, ...] = Field(description="widths of the hidden layers")
    reach: float = Field(
        gt=0.0,
        le=MAX_REACH,
        description="ln of the largest factor on the delays of the rule `delay`",
    )
    max_jobs: Literal[256] = MAX_QUEUE_SIZE

    @field_validator("hidden")
    @classmethod
    def _bounded(cls, hidden: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= width <= MAX_HIDDEN for width in hidden):
            raise ValueError(f"widths must be 1 to {MAX_HIDDEN}")
        return hidden

    @model_validator(mode="after")
    def _reads_what_it_can(self) -> "Architecture":
        if self.features != INPUTS[self.kind]:
            raise ValueError(f"{self.kind} does not read {self.features} features")
        if self.predicted != (self.kind == "queue"):
            raise ValueError(f"{self.kind} does{' not' * self.predicted} read predictions")
        if len(self.hidden) != HIDDEN_LAYERS:
            raise ValueError(f"{self.kind} has {HIDDEN_LAYERS} hidden layers")
        return self


class Training(BaseModel, extra="forbid", frozen=True):
    """How the weights came to be; enough to make them again."""

    method: str
    teacher: str
    command: str
    seed: int
    settings: dict[str, int | float | str]
    data: str
    data_licence: str
    seconds: float
    machine: str


class Verdict(BaseModel, extra="forbid", frozen=True):
    """The model against the rule `delay`; of a training on windows that neither trained nor chose
    anything. change: of the figure, geometric mean of the ratios less 1, -0.05 = 5% less, and its
    95% interval over windows.
    """

    word: Word
    change: float
    low: float | None
    high: float | None
    windows: int
    figure: str = "wait, slowdown and tail"

    def __str__(self) -> str:
        """For people."""
        than = " than" if self.word != "no proven difference" else " from"
        figures = percent(self.change, self.low, self.high)
        where = f"on {self.windows} windows"
        return f"{self.word}{than} the rule delay: {self.figure} {figures} {where}"


class Card(BaseModel, extra="forbid", frozen=True):
    """card.json."""

    format: Literal[2]
    name: str = Field(pattern=f"^{BUNDLE_NAME}$")
    summary: str
    schema_id: str
    architecture: Architecture
    files_sha256: dict[str, str]
    rltuned_version: str
    git_commit: str
    torch_version: str
    training: Training
    results: dict[str, float]
    verdict: Verdict | None = Field(default=None, description="null: not judged")
    caveats: list[str]
    ranges: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description="smallest and largest value of each feature in sample windows of the training",
    )


MAX_WINDOWS: Final = 64
"""Of a self-test: it runs at every start."""


class NetworkPolicy:
    """A network that corrects the delays of the rule `delay`, or is an order by itself."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.network = network

    @property
    def trust(self) -> float | None:
        return self.network.trust if self.network.corrects else None

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) the order without bounds, higher = sooner."""
        if self.network.corrects:
            return -self.wish(matrix).own_s
        return self._scores(matrix, BASELINES["delay"].wish(matrix))[:, 0]

    def wish(self, matrix: StateMatrix) -> Wish:
        """What the rule asks for, each part corrected by its factor. Raises ValueError: there is no
        rule, as in no bundle.
        """
        if not self.network.corrects:
            raise ValueError(f"{self.name} corrects no rule: it asks for no delays")
        rule = BASELINES["delay"].wish(matrix)
        own, place = self.network.factors(self._scores(matrix, rule))
        return Wish(rule.own_s * own, rule.place * place)

    def seen(self, matrix: StateMatrix) -> Float32Array:
        """(n, features) what the network reads."""
        return seen_by(self.network.kind, matrix)

    def forward(self, values: Float32Array, mask: BoolArray) -> FloatArray:
        """Scores of a queue, padded or not: (k, features) float32, (k,) bool -> (k, outputs)."""
        return self.network.forward(values, mask).astype(np.float64)

    def _scores(self, matrix: StateMatrix, rule: Wish) -> FloatArray:
        """(n, outputs) of every job, however long the queue is."""
        values = seen_by(self.network.kind, matrix, rule)
        return self.forward(values, np.ones(len(matrix), dtype=bool))


def seen_by(kind: Kind, matrix: StateMatrix, rule: Wish | None = None) -> Float32Array:
    """(n, features) what a kind of network reads. rule: what `delay` wishes, if known."""
    if kind == "paper":
        return sample_features(matrix)[0]
    rule = BASELINES["delay"].wish(matrix) if rule is None else rule
    return queue_features(matrix, rule.own_s, rule.place)


class Actor(NetworkPolicy):
    """The network of a bundle. path: of the bundle."""

    def __init__(self, card: Card, card_sha256: str, network: Network, path: Path) -> None:
        super().__init__(f"model:{card.name}", network)
        self.card, self.digest, self.path = card, card_sha256, path

    @property
    def verdict(self) -> str:
        """What its training found of it, for people."""
        return str(self.card.verdict or "not judged against the rule delay")

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """What it was trained on, by feature; bundles of older releases do not say."""
        return self.card.ranges


def load_actor(bundle: Path, trust: float = 1.0) -> Actor:
    """The actor of a bundle, after its self-test. trust: 0 to 1, see network.correction. Raises
    ModelError: names the file and what is wrong: owner, mode, schema, values, or scores other than
    at export.
    """
    with files.named(bundle):
        if not bundle.is_dir():
            raise ModelError(f"model {bundle}: no such folder")
        files.check_folder(bundle)
        return _load(bundle, trust)


def _load(bundle: Path, trust: float) -> Actor:
    card_bytes = files.read(bundle / CARD_FILE, files.MAX_CARD_BYTES)
    card = files.parsed(Card, bundle / CARD_FILE, card_bytes)
    if card.schema_id != SCHEMA_ID:
        raise ModelError(
            f"model {bundle / CARD_FILE}: trained on features {card.schema_id}, "
            f"this release computes {SCHEMA_ID}; train it again"
        )
    network = _network(bundle / WEIGHTS_FILE, card, trust)
    path = bundle / PARITY_FILE
    values, masks, scores = _parity(path, _sealed(path, card), card)
    actor = Actor(card, hashlib.sha256(card_bytes).hexdigest(), network, bundle)
    _self_test(actor, path, values, masks, scores)
    return actor


def _network(path: Path, card: Card, trust: float) -> Network:
    form = card.architecture
    wanted = shapes(INPUTS[form.kind], form.hidden, outputs_of(form.kind, form.reach))
    weights = files.read_tensors(path, _sealed(path, card), wanted)
    return Network(form.kind, weights, form.reach, trust)


def _sealed(path: Path, card: Card) -> bytes:
    return files.read_sealed(path, card.files_sha256.get(path.name), "its card says")


def _parity(path: Path, data: bytes, card: Card) -> tuple[Float32Array, BoolArray, Float32Array]:
    """Windows (k, 256, features), masks (k, 256) and scores (k, 256, outputs) of the training; with
    one output the file may leave that axis out.
    """
    values, masks, scores = files.read_arrays(path, data, "values", "masks", "scores")
    form = card.architecture
    shape = (form.max_jobs, form.features)
    if values.shape[1:] != shape or masks.shape != values.shape[:2]:
        raise ModelError(f"model {path}: windows of shape {values.shape}, need (n, {shape})")
    if not 1 <= len(values) <= MAX_WINDOWS:
        raise ModelError(f"model {path}: {len(values)} windows, need 1 to {MAX_WINDOWS}")
    kinds = [str(array.dtype) for array in (values, masks, scores)]
    wanted = (*masks.shape, outputs_of(form.kind, form.reach))
    if scores.size != math.prod(wanted) or kinds != ["float32", "bool", "float32"]:
        raise ModelError(f"model {path}: arrays of the wrong shape or type")
    scores = scores.reshape(wanted)
    if not masks.any() or not np.isfinite(scores[masks]).all():
        raise ModelError(f"model {path}: no job in it, or a score that is not finite")
    return values, masks, scores


def _self_test(
    actor: Actor, path: Path, values: Float32Array, masks: BoolArray, scores: Float32Array
) -> None:
    differences = [
        files.unlike(actor.forward(v, m)[m], s[m])
        for v, m, s in zip(values, masks, scores, strict=True)
    ]
    worst = float(np.max(differences))  # NaN stays NaN, and is refused
    if not worst <= files.PARITY_TOLERANCE:
        raise ModelError(f"model {path}: scores differ by {worst:.2g} from those of the training")
