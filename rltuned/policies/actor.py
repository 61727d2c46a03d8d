"""Load a model bundle, refuse it unless everything about it is right, and score with it.

Every file is opened once, checked on its open descriptor (owner, mode, size), read, and only then
digested and parsed, so that no other user can exchange it in between; see files.py.
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.capacity import BoolArray
from rltuned.core.features import SCHEMA_ID, Float32Array, FloatArray, StateMatrix
from rltuned.core.observation import sample_features
from rltuned.core.order import Wish
from rltuned.core.queue_features import queue_features
from rltuned.errors import ModelError
from rltuned.policies import files
from rltuned.policies.baselines import BASELINES
from rltuned.policies.card import CARD_FILE, PARITY_FILE, WEIGHTS_FILE, Card
from rltuned.policies.network import INPUTS, Kind, Network, outputs_of, shapes

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
    """The network of a bundle."""

    def __init__(self, card: Card, card_sha256: str, network: Network) -> None:
        super().__init__(f"model:{card.name}", network)
        self.card = card
        self.digest = card_sha256

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
    actor = Actor(card, hashlib.sha256(card_bytes).hexdigest(), network)
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
