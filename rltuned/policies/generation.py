"""One generation: an order that cannot change, in a folder that holds all that it needs."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rltuned.errors import ModelError
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.files import MAX_CARD_BYTES, check_folder, named, parsed, read, read_sealed
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import MODEL_PREFIX

MANIFEST: Final = "generation.json"
MODEL, PREDICTOR = "model", "predictor"
NAME: Final = re.compile(r"gen-(\d{6,})-([0-9a-f]{12})")
_FILE: Final = re.compile(rf"({MODEL}|{PREDICTOR})/(?!\.\.?$)[^/]+")


class TunedOrder(BaseModel):
    """generation.json without what the store adds: an order, and why it is there.

    policy: a rule, or `model` for the bundle in model/; trust: see network.correction; those of
    older releases have none, and their networks are as trained. site_predictor: predictor/ holds
    one; else the predictor of the settings is used. verdict: one sentence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str
    own: float = Field(ge=0, le=100, allow_inf_nan=False)
    share: float = Field(ge=0, le=100, allow_inf_nan=False)
    max_delay_s: float = Field(ge=0, le=31_536_000, allow_inf_nan=False)
    trust: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    site_predictor: bool = False
    label: str = ""
    verdict: str = ""
    made_at: float = 0.0
    rltuned_version: str = ""


class Manifest(TunedOrder):
    """generation.json. files_sha256: of every other file, by its path in the folder."""

    format: Literal[1]
    number: int
    files_sha256: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Generation:
    """One that has passed every check. digest: SHA-256 of generation.json."""

    path: Path
    manifest: Manifest
    digest: str

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def policy_name(self) -> str:
        """As policy.name has it, with the folder as models_dir."""
        own = self.manifest.policy
        return f"{MODEL_PREFIX}{MODEL}" if own == MODEL else own

    @property
    def predictor_name(self) -> str | None:
        """As predictor.model has it, with the folder as models_dir; None = that of the settings."""
        return PREDICTOR if self.manifest.site_predictor else None


def read_generation(path: Path) -> Generation:
    """A generation with all checks. Raises ModelError: names the file and what is wrong."""
    with named(path):
        if NAME.fullmatch(path.name) is None or not path.is_dir():
            raise ModelError(f"model {path}: there is no such generation")
        check_folder(path)
        data = read(path / MANIFEST, MAX_CARD_BYTES)
        digest = hashlib.sha256(data).hexdigest()
        if not path.name.endswith(digest[:12]):
            raise ModelError(
                f"model {path / MANIFEST}: SHA-256 {digest[:12]}..., the folder's name says "
                f"{path.name[-12:]}"
            )
        manifest = parsed(Manifest, path / MANIFEST, data)
        checked(path, manifest)
        return Generation(path, manifest, digest)


def checked(path: Path, manifest: Manifest) -> None:
    """Every file is as in the manifest and loads as in the daemon; raises ModelError."""
    for name, wanted in manifest.files_sha256.items():
        if _FILE.fullmatch(name) is None:
            raise ModelError(f"model {path / MANIFEST}: {name!r} is no file of a generation")
        read_sealed(path / name, wanted, f"{MANIFEST} says")
    parts = {name.split("/")[0] for name in manifest.files_sha256}
    if manifest.policy == MODEL:
        load_actor(path / MODEL)
        parts.discard(MODEL)
    elif manifest.policy not in BASELINES:
        raise ModelError(f"model {path / MANIFEST}: no rule named {manifest.policy!r}")
    if manifest.site_predictor:
        load_predictor(path / PREDICTOR)
        parts.discard(PREDICTOR)
    if parts:
        raise ModelError(f"model {path}: holds {', '.join(sorted(parts))}, which nothing uses")
