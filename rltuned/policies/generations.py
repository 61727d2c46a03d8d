"""A site's own orders: numbered folders that never change, and links that say which is in force.

    gen-000017-3f2a90c1d0ee/    generation.json, and what it names of: model/, predictor/
    current, previous, candidate    links to such folders

A folder is made beside its place, checked there, and renamed; a link is made beside its place and
put over the old one. Whatever ends the process at whatever line, `current` names a whole folder.
The number counts up; the letters are the beginning of the SHA-256 of generation.json, which holds
the SHA-256 of every other file.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rltuned.errors import ModelError
from rltuned.files import sync_folder, write_whole
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.files import MAX_CARD_BYTES, check_folder, named, parsed, read, read_sealed
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import MODEL_PREFIX

# One generation: an order that cannot change, in a folder that holds all that it needs.


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


TUNED: Final = "tuned"
"""The policy.name that follows `current`."""
FOLDER: Final = "models"
"""Of the generations, in the state folder."""
LOG: Final = "changes.jsonl"
"""One line per promotion, way back and proposal."""
KEPT: Final = 20
"""So many of the youngest generations stay, and those that a link names."""
Role = Literal["current", "previous", "candidate"]
ROLES: Final[tuple[Role, ...]] = ("current", "previous", "candidate")
_UNDONE: Final = ".new-"


class Generations:
    """The folder of the generations; it need not exist to be read."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER

    # -- reading ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All generations, the oldest first; not checked. Raises ModelError."""
        with named(self.folder):
            try:
                found = [p.name for p in self.folder.iterdir()]
            except FileNotFoundError:
                return []
        return sorted((n for n in found if NAME.fullmatch(n)), key=_number)

    def named_by(self, role: Role) -> str | None:
        """The generation that a link names; None = no such link. Raises ModelError."""
        link = self.folder / role
        with named(link):
            try:
                target = str(link.readlink())
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not NAME.fullmatch(target):
                raise ValueError(f"leads to {target!r}, which is no generation")
            return target

    def read(self, which: str) -> Generation:
        """A generation by its name or role, with all checks. Raises ModelError."""
        name = which
        if which in ROLES:
            found = self.named_by(which)
            if found is None:
                raise ModelError(f"model {self.folder / which}: there is no such generation")
            name = found
        return read_generation(self.folder / name)

    # -- changing ---------------------------------------------------------------------------------

    def add(self, order: TunedOrder, parts: Mapping[str, Path]) -> Generation:
        """Make a new generation. parts: folders, `model`, `predictor`. Raises ModelError."""
        with self._alone():
            for undone in self.folder.glob(f"{_UNDONE}*"):
                if undone.is_symlink():
                    undone.unlink()
                else:
                    shutil.rmtree(undone)
            number = max((_number(n) for n in self.names()), default=0) + 1
            made = self.folder / f"{_UNDONE}{number}"
            made.mkdir()
            digests = _copied(parts, made)
            manifest = Manifest(format=1, number=number, files_sha256=digests, **order.model_dump())
            data = (manifest.model_dump_json(indent=1) + "\n").encode()
            write_whole(made / MANIFEST, data, 0o444)
            sync_folder(made)
            digest = hashlib.sha256(data).hexdigest()
            checked(made, manifest)
            place = self.folder / f"gen-{number:06d}-{digest[:12]}"
            made.rename(place)
            sync_folder(self.folder)
            return read_generation(place)

    def propose(self, name: str, *, at: float, why: str = "") -> Generation:
        """Make it the candidate. at: Unix seconds, for the log."""
        with self._alone():
            found = self.read(name)
            self._point("candidate", found.name)
            self._note("proposed", found.name, why, at)
            return found

    def promote(self, which: str = "candidate", *, at: float, why: str = "") -> Generation:
        """Put a generation in force, the last one becoming `previous`. Raises ModelError."""
        self.read(which)  # before a folder is made for the lock
        with self._alone():
            found = self.read(which)
            before = self.named_by("current")
            if before != found.name:
                if before is not None:
                    self._point("previous", before)
                self._point("current", found.name)
                self._note("promoted", found.name, why, at)
            if self.named_by("candidate") == found.name:
                self._drop("candidate")
            return found

    def rollback(self, *, at: float, why: str = "") -> Generation | None:
        """Go back to `previous`; None = nothing is in force any more. Raises ModelError."""
        self._in_force()
        with self._alone():
            now, before = self._in_force(), self.named_by("previous")
            if before is None or before == now:
                self._drop("current")
                self._drop("previous")
                self._note("rolled_back", "", why, at)
                return None
            found = self.read(before)
            self._point("current", found.name)
            self._drop("previous")
            self._note("rolled_back", found.name, why, at)
            return found

    def _in_force(self) -> str:
        now = self.named_by("current")
        if now is None:
            raise ModelError(f"model {self.folder}: no generation is in force: nothing to undo")
        return now

    def withdraw(self, *, at: float, why: str = "") -> None:
        with self._alone():
            if (name := self.named_by("candidate")) is not None:
                self._drop("candidate")
                self._note("withdrawn", name, why, at)

    def prune(self) -> list[str]:
        """Remove old generations that no link names; their names."""
        with self._alone():
            linked = {self.named_by(role) for role in ROLES}
            gone = [n for n in self.names()[:-KEPT] if n not in linked]
            for name in gone:
                shutil.rmtree(self.folder / name)
            return gone

    def log(self) -> list[dict[str, object]]:
        """What was noted, the oldest first: at, what, generation, before, why, uid."""
        try:
            lines = (self.folder / LOG).read_text("utf-8").splitlines()
        except OSError:
            return []
        return [noted for line in lines if (noted := _noted(line))]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the folder meanwhile; OSError becomes ModelError."""
        with named(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            check_folder(self.folder)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)

    def _point(self, role: Role, name: str) -> None:
        made = self.folder / f"{_UNDONE}{role}"
        made.unlink(missing_ok=True)
        made.symlink_to(name)
        made.replace(self.folder / role)
        sync_folder(self.folder)

    def _drop(self, role: Role) -> None:
        (self.folder / role).unlink(missing_ok=True)
        sync_folder(self.folder)

    def _note(self, what: str, name: str, why: str, at: float) -> None:
        line = {"at": at, "what": what, "generation": name, "why": why, "uid": os.getuid()}
        path = self.folder / LOG
        before = path.read_bytes() if path.exists() else b""
        write_whole(path, before + f"{json.dumps(line)}\n".encode(), 0o644)


def _noted(line: str) -> dict[str, object]:
    """A line of the log; empty = a full disk cut it, in a release that did not write it whole."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(name: str) -> int:
    found = NAME.fullmatch(name)
    return int(found[1]) if found else 0


def _copied(parts: Mapping[str, Path], made: Path) -> dict[str, str]:
    """Copy the plain files of some bundles; their digests by path."""
    digests = {}
    for part, source in sorted(parts.items()):
        (made / part).mkdir()
        for file in sorted(source.iterdir()):
            data = read(file)
            write_whole(made / part / file.name, data, 0o444)
            digests[f"{part}/{file.name}"] = hashlib.sha256(data).hexdigest()
        sync_folder(made / part)
    return digests
