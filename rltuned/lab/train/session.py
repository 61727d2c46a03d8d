"""A training on disk: checkpoints that can be resumed, and the curves as CSV.

A checkpoint is written beside its target and moved in, so an interrupted run or a full disk leaves
the one before. Windows and noise depend on the seed and the epoch alone: a resumed training goes
on as if it had never stopped.
"""

import csv
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rltuned.durable import write_whole
from rltuned.errors import ModelError
from rltuned.lab.train.learner import Learner, PpoSettings
from rltuned.lab.train.ppo import Report

LAST: Final = "last.safetensors"
BEST: Final = "best.safetensors"
STATE: Final = "state.json"
CURVES: Final = "curves.csv"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a training stands: next epoch, best validation, and epochs since it was reached."""

    epoch: int
    best: float
    since_best: int = 0


class Session:
    """The folder of one training. Raises ModelError: unfit, or of other settings."""

    def __init__(self, folder: Path, settings: PpoSettings, *, resume: bool) -> None:
        self.folder = folder
        self._described = json.loads(json.dumps(settings.described()))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            begun = (folder / STATE).exists()
        except OSError as error:
            raise ModelError(f"{folder}: {error.strerror}") from error
        if begun and not resume:
            raise ModelError(f"{folder}: holds a training; continue it with --resume, or remove it")

    def restore(self, learner: Learner) -> Standing | None:
        """Put the learner where the last checkpoint was; None = none yet. Raises ModelError."""
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            state = json.loads(path.read_text())
            tensors = load((self.folder / LAST).read_bytes())
            # a setting younger than the checkpoint had its default
            whole = PpoSettings().described() | state["settings"]
            theirs = {k: v for k, v in whole.items() if k not in {"epochs", "patience"}}
            ours = {k: v for k, v in self._described.items() if k not in {"epochs", "patience"}}
            if theirs != ours:
                other = sorted(k for k in {*theirs, *ours} if theirs.get(k) != ours.get(k))
                raise ModelError(f"{path}: was begun with another {other[0]}")
            _put(learner, tensors)
            return Standing(int(state["epoch"]), float(state["best"]), int(state["since_best"]))
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"{path}: cannot be resumed: {error}") from error

    def load_best(self, learner: Learner) -> None:
        try:
            learner.actor.load_state_dict(load((self.folder / BEST).read_bytes()))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise ModelError(f"{self.folder / BEST}: {error}") from error

    def keep(self, learner: Learner, report: Report) -> None:
        """Keep curves, the best actor, and where to go on, in this order. Raises ModelError."""
        try:
            self._curve(report)
            if report.validation <= report.best:
                write_whole(self.folder / BEST, save(_plain(learner.actor.state_dict())))
            write_whole(self.folder / LAST, save(_plain(_tensors(learner))))
            state = {
                "epoch": report.epoch + 1,
                "best": report.best,
                "since_best": report.since_best,
                "settings": self._described,
            }
            write_whole(self.folder / STATE, (json.dumps(state, indent=1) + "\n").encode())
        except OSError as error:
            raise ModelError(f"{self.folder}: checkpoint: {error.strerror}") from error

    def seconds(self) -> float:
        """What the epochs on record took, validation left out."""
        with (self.folder / CURVES).open(newline="") as file:
            return sum(float(r["rollout_s"]) + float(r["update_s"]) for r in csv.DictReader(file))

    def _curve(self, report: Report) -> None:
        path = self.folder / CURVES
        new = not path.exists() or report.epoch == 0
        with path.open("w" if new else "a", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            if new:
                out.writerow([f.name for f in fields(Report)])
            out.writerow([_short(v) for v in asdict(report).values()])


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _plain(tensors: dict[str, Any]) -> dict[str, Tensor]:
    return {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}


def _tensors(learner: Learner) -> dict[str, Tensor]:
    found = {f"actor.{k}": v for k, v in learner.actor.state_dict().items()}
    found |= {f"critic.{k}": v for k, v in learner.critic.state_dict().items()}
    for number, moments in learner.optimiser.state_dict()["state"].items():
        found |= {f"adam.{number}.{k}": torch.as_tensor(v) for k, v in moments.items()}
    return found


def _put(learner: Learner, tensors: dict[str, Tensor]) -> None:
    def under(prefix: str) -> dict[str, Tensor]:
        cut = len(prefix) + 1
        return {k[cut:]: v for k, v in tensors.items() if k.startswith(f"{prefix}.")}

    learner.actor.load_state_dict(under("actor"))
    learner.critic.load_state_dict(under("critic"))
    whole = learner.optimiser.state_dict()
    whole["state"] = {}
    for name, value in under("adam").items():
        number, _, moment = name.partition(".")
        whole["state"].setdefault(int(number), {})[moment] = value
    learner.optimiser.load_state_dict(whole)
