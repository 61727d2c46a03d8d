"""Write a model bundle, whole or not at all, and only one that loads and scores the same."""

import hashlib
import io
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from rltuned import __version__
from rltuned.core.features import SCHEMA_ID
from rltuned.errors import ModelError
from rltuned.policies.actor import load_actor
from rltuned.policies.card import (
    CARD_FILE,
    FORMAT,
    PARITY_FILE,
    WEIGHTS_FILE,
    Architecture,
    Card,
    Training,
    features_of,
)
from rltuned.policies.predictor import (
    PREDICTOR_FILE,
    PREDICTOR_PARITY_FILE,
    Predictor,
)
from rltuned.train.network import ContextActor, PaperActor, hidden_of
from rltuned.train.predictor import parity_bytes
from rltuned.train.ranges import Ranges, ranges_shown

LARGEST_SCORE = 8.0


def export_bundle(
    target: Path,
    network: PaperActor | ContextActor,
    *,
    name: str,
    summary: str,
    parity: tuple[Tensor, Tensor],
    training: Training,
    results: dict[str, float],
    caveats: list[str],
    predictor: Predictor | None = None,
    ranges: Ranges | None = None,
) -> Card:
    """Write weights, parity pairs and card into a new folder.

    The network's last layer is scaled so that its scores are at most LARGEST_SCORE: their order
    stays, and float32 is finer there.

    Args:
        target: the bundle's folder; must not exist.
        network: the trained actor.
        name: the model's name.
        summary: one sentence for `rltuned models list`.
        parity: windows (k, 256, features) and masks (k, 256) to score now and at every start.
        training: how the weights came to be.
        results: figures by name.
        caveats: what a user should know before trusting it.
        predictor: of run times, for a network that reads what it says.
        ranges: of the features in training; None: take those of the parity windows.

    Raises:
        ModelError: the folder exists, cannot be written, or what was written does not load with
            the same scores.
    """
    if target.exists():
        raise ModelError(f"model {target}: exists already; remove it or choose another name")
    settle(network, *parity)
    files = _files(network, parity, predictor)
    card = Card(
        format=FORMAT,
        name=name,
        summary=summary,
        schema_id=SCHEMA_ID,
        architecture=Architecture(
            kind=network.kind,
            features=features_of(network.kind, predicted=predictor is not None),
            predicted=predictor is not None,
            hidden=hidden_of(network),
        ),
        files_sha256={k: hashlib.sha256(data).hexdigest() for k, data in files.items()},
        rltuned_version=__version__,
        git_commit=git_commit(Path(__file__).resolve().parents[2]),
        torch_version=str(torch.__version__),
        training=training,
        results=results,
        caveats=caveats,
        ranges=ranges_shown(network.kind, *parity) if ranges is None else ranges,
    )
    _write(target, files | {CARD_FILE: (card.model_dump_json(indent=2) + "\n").encode()})
    return card


def _files(
    network: PaperActor | ContextActor, parity: tuple[Tensor, Tensor], predictor: Predictor | None
) -> dict[str, bytes]:
    weights = save_tensors({k: v.contiguous() for k, v in network.state_dict().items()})
    files = {WEIGHTS_FILE: weights, PARITY_FILE: _parity_bytes(network.eval(), *parity)}
    if predictor is not None:
        files[PREDICTOR_FILE] = predictor.to_bytes()
        files[PREDICTOR_PARITY_FILE] = parity_bytes(predictor)
    return files


def settle(network: nn.Module, values: Tensor, masks: Tensor) -> None:
    """Bring the scores of these windows to at most LARGEST_SCORE."""
    with torch.no_grad():
        largest = float(network(values, masks)[masks].abs().max())
        if largest > 1.001 * LARGEST_SCORE:
            last = [m for m in network.modules() if isinstance(m, nn.Linear)][-1]
            last.weight.mul_(LARGEST_SCORE / largest)
            last.bias.mul_(LARGEST_SCORE / largest)


def _parity_bytes(network: PaperActor | ContextActor, values: Tensor, masks: Tensor) -> bytes:
    with torch.inference_mode():
        scores = network(values, masks)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, values=values.numpy(), masks=masks.numpy(), scores=scores.numpy())
    return buffer.getvalue()


def _write(target: Path, files: dict[str, bytes]) -> None:
    """Into a folder beside the target, checked by loading it there, then moved into place."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
            staged = Path(scratch) / target.name
            staged.mkdir()
            for name, data in files.items():
                (staged / name).write_bytes(data)
            load_actor(staged)
            shutil.move(staged, target)
    except OSError as error:
        raise ModelError(f"model {target}: {error.strerror or error}") from error


def git_commit(root: Path) -> str:
    """The commit checked out at root, read off .git; "unknown" outside a checkout."""
    git = root / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        return (git / head.removeprefix("ref: ")).read_text().strip()
    except OSError:
        return "unknown"
