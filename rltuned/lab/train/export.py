"""Write a model bundle, whole or not at all, and only one that loads and scores the same."""

import hashlib
import io
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import torch
from pydantic import BaseModel
from safetensors.torch import save as save_tensors
from torch import Tensor

from rltuned import __version__
from rltuned.core.features import COLUMNS, SCHEMA_ID
from rltuned.core.observation import FIXED
from rltuned.durable import whole_folder
from rltuned.errors import ModelError
from rltuned.lab.train.network import TorchActor, hidden_of
from rltuned.lab.train.predictor import Fitted, parity_bytes
from rltuned.policies.actor import load_actor
from rltuned.policies.card import (
    CARD_FILE,
    FORMAT,
    PARITY_FILE,
    WEIGHTS_FILE,
    Architecture,
    Card,
    Training,
    Verdict,
)
from rltuned.policies.network import INPUTS, Kind
from rltuned.policies.predictor import CARD_FILE as PREDICTOR_CARD
from rltuned.policies.predictor import INPUTS_ID, PREDICTOR_FILE, PredictorCard, load_predictor
from rltuned.policies.predictor import PARITY_FILE as PREDICTOR_PARITY

PARITY_WINDOWS: Final = 4
Ranges = dict[str, tuple[float, float]]
"""Smallest and largest value by feature, that a training saw: what the daemon's drift figures
compare with."""


def export_bundle(
    target: Path,
    network: TorchActor,
    *,
    name: str,
    summary: str,
    parity: tuple[Tensor, Tensor],
    training: Training,
    results: dict[str, float],
    caveats: list[str],
    ranges: Ranges | None = None,
    verdict: Verdict | None = None,
) -> Card:
    """Write weights, parity pairs and card into a new folder. parity: windows (k, 256, features),
    masks (k, 256). ranges: of the features; None = of the parity windows. Raises ModelError.
    """
    files = _files(network, *parity)
    card = Card(
        format=FORMAT,
        name=name,
        summary=summary,
        schema_id=SCHEMA_ID,
        architecture=Architecture(
            kind=network.kind,
            features=INPUTS[network.kind],
            predicted=network.kind == "queue",
            hidden=hidden_of(network),
            reach=network.reach,
        ),
        files_sha256={k: hashlib.sha256(data).hexdigest() for k, data in files.items()},
        rltuned_version=__version__,
        git_commit=git_commit(Path(__file__).resolve().parents[3]),
        torch_version=str(torch.__version__),
        training=training,
        results=results,
        verdict=verdict,
        caveats=caveats,
        ranges=ranges_shown(network.kind, *parity) if ranges is None else ranges,
    )
    _write(target, files, CARD_FILE, card, load_actor)
    return card


def ranges_shown(kind: Kind, values: Tensor, masks: Tensor) -> Ranges:
    """Of every feature but for those whose meaning changes; empty: no job.
    values: (k, 256, features). masks: (k, 256), True on real jobs.
    """
    names = {"queue": COLUMNS, "paper": FIXED}.get(kind, ())
    seen = values[masks].numpy()
    if not len(seen):
        return {}
    return {
        name: (float(seen[:, i].min()), float(seen[:, i].max())) for i, name in enumerate(names)
    }


def export_predictor(
    target: Path, fitted: Fitted, *, command: str, seed: int, data: str, licence: str
) -> PredictorCard:
    """Write a predictor's weights, parity pairs and card into a new folder. Raises ModelError."""
    files = {
        PREDICTOR_FILE: fitted.predictor.to_bytes(),
        PREDICTOR_PARITY: parity_bytes(fitted.predictor),
    }
    figures = {k: v for k, v in asdict(fitted).items() if isinstance(v, int | float)}
    low, median, high = fitted.covered
    figures |= {"below_10%": low, "below_50%": median, "below_90%": high}
    card = PredictorCard(
        format=1,
        name=target.name,
        inputs_id=INPUTS_ID,
        files_sha256={k: hashlib.sha256(data).hexdigest() for k, data in files.items()},
        rltuned_version=__version__,
        command=command,
        seed=seed,
        data=data,
        data_licence=licence,
        # a figure that there is none of, as of a rank where no job has a limit, is left out
        results={k: round(v, 5) for k, v in figures.items() if math.isfinite(v)},
    )
    _write(target, files, PREDICTOR_CARD, card, load_predictor)
    return card


def _files(network: TorchActor, values: Tensor, masks: Tensor) -> dict[str, bytes]:
    weights = save_tensors({k: v.contiguous() for k, v in network.state_dict().items()})
    with torch.inference_mode():
        scores = network.eval()(values, masks)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, values=values.numpy(), masks=masks.numpy(), scores=scores.numpy())
    return {WEIGHTS_FILE: weights, PARITY_FILE: buffer.getvalue()}


def _write(
    target: Path,
    files: dict[str, bytes],
    name: str,
    card: BaseModel,
    check: Callable[[Path], object],
) -> None:
    """Into a folder beside the target, checked by loading it there, then moved into place. name: of
    the card's file.
    """
    if target.exists():
        raise ModelError(f"model {target}: exists already; remove it or choose another name")
    files |= {name: (card.model_dump_json(indent=2) + "\n").encode()}
    try:
        with whole_folder(target) as staged:
            for file, data in files.items():
                (staged / file).write_bytes(data)
            check(staged)
    except OSError as error:
        raise ModelError(f"model {target}: {error.strerror or error}") from error


def git_commit(root: Path) -> str:
    """The commit checked out at root, read off .git; "unknown" outside a checkout."""
    git = root / ".git"
    try:
        if git.is_file():  # of a worktree, which keeps its HEAD beside the branches of all
            git = Path(git.read_text().strip().removeprefix("gitdir: "))
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        shared = git.parents[1] if git.parent.name == "worktrees" else git
        return (shared / head.removeprefix("ref: ")).read_text().strip()
    except OSError:
        return "unknown"
