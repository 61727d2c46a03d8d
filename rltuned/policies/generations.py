"""A site's own orders: numbered folders that never change, and links that say which is in force.

    gen-000017-3f2a90c1d0ee/    generation.json, and what it names of: model/, predictor/
    current, previous, candidate    links to such folders
    changes.jsonl    one line per proposal, promotion, way back and withdrawal
    tune.json    what the last night of `rltuned tune` left for the daemon to show

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rltuned.errors import ModelError
from rltuned.files import sync_folder, write_whole
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.files import MAX_CARD_BYTES, check_folder, named, parsed, read, read_sealed
from rltuned.policies.predictor import load_predictor
from rltuned.text import span

TUNED: Final = "tuned"
"""The policy.name that follows `current`."""
FOLDER, MANIFEST, LOG, STATE = "models", "generation.json", "changes.jsonl", "tune.json"
MODEL, PREDICTOR = "model", "predictor"
KEPT: Final = 20
"""So many of the youngest generations stay, and those that a link names."""
Role = Literal["current", "previous", "candidate"]
ROLES: Final[tuple[Role, ...]] = ("current", "previous", "candidate")
_NAME: Final = re.compile(r"gen-(\d{6,})-([0-9a-f]{12})")
_FILE: Final = re.compile(rf"({MODEL}|{PREDICTOR})/(?!\.\.?$)[^/]+")
_UNDONE: Final = ".new-"


class TunedOrder(BaseModel):
    """generation.json: an order, and why it is there.

    policy: a rule, or `model` for the bundle in model/; trust: see network.correction; those of
    older releases have none, and their networks are as trained. site_predictor: predictor/ holds
    one; else the predictor of the settings is used. label: of the policy, for people. number,
    files_sha256 (of every other file, by its path in the folder): given by the store.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal[1] = 1
    number: int = 0
    policy: str
    own: float = Field(ge=0, le=100, allow_inf_nan=False)
    share: float = Field(ge=0, le=100, allow_inf_nan=False)
    max_delay_s: float = Field(ge=0, le=31_536_000, allow_inf_nan=False)
    trust: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    site_predictor: bool = False
    label: str = ""
    files_sha256: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Generation:
    """One that has passed every check. digest: SHA-256 of generation.json."""

    path: Path
    manifest: TunedOrder
    digest: str

    @property
    def name(self) -> str:
        return self.path.name


def read_generation(path: Path) -> Generation:
    """A generation with all checks. Raises ModelError: names the file and what is wrong."""
    with named(path):
        if _NAME.fullmatch(path.name) is None or not path.is_dir():
            raise ModelError(f"model {path}: there is no such generation")
        check_folder(path)
        data = read(path / MANIFEST, MAX_CARD_BYTES)
        digest = hashlib.sha256(data).hexdigest()
        if not path.name.endswith(digest[:12]):
            raise ModelError(f"model {path / MANIFEST}: SHA-256 {digest[:12]}..., unlike the name")
        manifest = parsed(TunedOrder, path / MANIFEST, data)
        _check(path, manifest)
        return Generation(path, manifest, digest)


def _check(path: Path, manifest: TunedOrder) -> None:
    """Every file is as in the manifest and loads as in the daemon; raises ModelError."""
    for name, wanted in manifest.files_sha256.items():
        if _FILE.fullmatch(name) is None:
            raise ModelError(f"model {path / MANIFEST}: {name!r} is no file of a generation")
        read_sealed(path / name, wanted, f"{MANIFEST} says")
    if manifest.policy == MODEL:
        load_actor(path / MODEL)
    elif manifest.policy not in BASELINES:
        raise ModelError(f"model {path / MANIFEST}: no rule named {manifest.policy!r}")
    if manifest.site_predictor:
        load_predictor(path / PREDICTOR)


class Generations:
    """The folder of the generations; it need not exist to be read."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER

    def names(self) -> list[str]:
        """All generations, the oldest first; not checked. Raises ModelError."""
        with named(self.folder):
            paths = [*self.folder.iterdir()] if self.folder.exists() else []
        return sorted((p.name for p in paths if _NAME.fullmatch(p.name)), key=_number)

    def named_by(self, role: Role) -> str | None:
        """The generation that a link names; None = no such link. Raises ModelError."""
        link = self.folder / role
        with named(link):
            try:
                target = str(link.readlink())
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not _NAME.fullmatch(target):
                raise ValueError(f"leads to {target!r}, which is no generation")
            return target

    def read(self, which: str) -> Generation:
        """A generation by its name or role, with all checks. Raises ModelError."""
        name = self.named_by(which) if which in ROLES else which
        return read_generation(self.folder / (name or which))

    def add(self, order: TunedOrder, parts: Mapping[str, Path]) -> Generation:
        """Make a new generation, and remove old ones. parts: folders, `model`, `predictor`. Raises
        ModelError.
        """
        with named(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            names, linked = self.names(), {self.named_by(role) for role in ROLES}
            for old in names[: 1 - KEPT]:
                if old not in linked:
                    (self.folder / old).rename(self.folder / f"{_UNDONE}{old}")
            for undone in self.folder.glob(f"{_UNDONE}*"):
                if undone.is_symlink():
                    undone.unlink()
                else:
                    shutil.rmtree(undone)
            files = {f"{n}/{p.name}": read(p) for n, part in parts.items() for p in part.iterdir()}
            digests = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
            number = _number(names[-1]) + 1 if names else 1
            manifest = order.model_copy(update={"number": number, "files_sha256": digests})
            files[MANIFEST] = (manifest.model_dump_json(indent=1) + "\n").encode()
            made = self.folder / f"{_UNDONE}{number}"
            for name, data in files.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(made / name, data, 0o444)
            _check(made, manifest)
            digest = hashlib.sha256(files[MANIFEST]).hexdigest()
            place = self.folder / f"gen-{number:06d}-{digest[:12]}"
            made.rename(place)
            sync_folder(self.folder)
            return Generation(place, manifest, digest)

    def propose(self, name: str, *, at: float, why: str = "") -> None:
        """Make it the candidate. at: Unix seconds, for the log."""
        with self._alone():
            self._move("proposed", self.read(name).name, why, at, {"candidate": name})

    def promote(self, which: str = "candidate", *, at: float, why: str = "") -> Generation:
        """Put a generation in force, the last one becoming `previous`. Raises ModelError."""
        with self._alone():
            found, before = self.read(which), self.named_by("current")
            links: dict[Role, str | None] = {}
            if before != found.name:
                links = {"previous": before, "current": found.name}
            if self.named_by("candidate") == found.name:
                links["candidate"] = None
            if links:
                self._move("promoted", found.name, why, at, links)
            return found

    def rollback(self, *, at: float, why: str = "") -> Generation | None:
        """Go back to `previous`; None = nothing is in force any more. Raises ModelError."""
        with self._alone():
            now, before = self.named_by("current"), self.named_by("previous")
            if now is None:
                raise ModelError(f"model {self.folder}: no generation is in force: nothing to undo")
            found = None if before in {None, now} else self.read("previous")
            name = None if found is None else found.name
            self._move("rolled_back", name or "", why, at, {"current": name, "previous": None})
            return found

    def withdraw(self, *, at: float, why: str = "") -> None:
        """There is no candidate any more."""
        with self._alone():
            name = self.named_by("candidate") or ""
            self._move("withdrawn", name, why, at, {"candidate": None})

    def log(self) -> list[dict[str, Any]]:
        """What was noted, the oldest first: at, what, generation, why, uid. A line that is damaged
        is left out.
        """
        found = []
        with suppress(OSError):
            for line in _plain(self.folder / LOG).splitlines():
                with suppress(ValueError):
                    found.append(_Move.model_validate_json(line).model_dump())
        return found

    def promoted_at(self, name: str | None = None) -> float:
        """When a generation, None = any, was last promoted, Unix seconds; 0 = never."""
        lines = [line for line in self.log() if line["what"] == "promoted"]
        return max((x["at"] for x in lines if name in {None, x["generation"]}), default=0.0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the folder meanwhile; OSError becomes ModelError."""
        with named(self.folder):
            check_folder(self.folder)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)

    def _move(
        self, what: str, name: str, why: str, at: float, links: Mapping[Role, str | None]
    ) -> None:
        """Set links one after the other, None = there is none, and note it."""
        for role, target in links.items():
            made = self.folder / f"{_UNDONE}{role}"
            made.unlink(missing_ok=True)
            if target is None:
                (self.folder / role).unlink(missing_ok=True)
            else:
                made.symlink_to(target)
                made.replace(self.folder / role)
            sync_folder(self.folder)
        line = {"at": at, "what": what, "generation": name, "why": why, "uid": os.getuid()}
        path = self.folder / LOG
        write_whole(path, _plain(path) + f"{json.dumps(line)}\n".encode(), 0o644)


def _number(name: str) -> int:
    return int(name.split("-")[1])


def _plain(path: Path) -> bytes:
    """The bytes of a plain file; empty = it is none. Raises OSError."""
    return path.read_bytes() if path.is_file() else b""  # a named pipe would be waited for


class _Move(BaseModel):
    """A line of changes.jsonl."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    at: float
    what: str
    generation: str
    why: str = ""
    uid: int = 0


class _Week(BaseModel):
    """What a replay of last week says, as far as every reader needs it."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    at: float
    sentence: str


class _Night(BaseModel):
    model_config = ConfigDict(extra="allow")

    failed: int = 0
    last_week: _Week | None = None


def read_state(state_dir: Path) -> dict[str, Any]:
    """tune.json: `verdict` and `sentence` of the last night, `last_week` (see lab/tune/night), and
    `failed`: so many nights in a row came to no end. Empty = there was none, or it cannot be read.
    """
    with suppress(OSError, ValueError):
        found = _Night.model_validate_json(_plain(state_dir / FOLDER / STATE))
        return found.model_dump(exclude_unset=True)
    return {}


def write_state(state_dir: Path | None, **state: Any) -> None:
    """Put it in the place of the last one, whole or not at all; None: nowhere. Raises
    ModelError.
    """
    if state_dir is not None:
        place = state_dir / FOLDER / STATE
        with named(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, json.dumps(state, indent=1).encode(), 0o644)


def would_it_help(state_dir: Path, now: float) -> dict[str, Any]:
    """The replay of last week at a Unix time; else a sentence on how to have one."""
    if week := read_state(state_dir).get("last_week"):
        ago = span(max(0.0, now - week["at"]))
        return dict(week, sentence=f"{week['sentence']} Replayed {ago} ago.")
    how = (
        "`rltuned tune` replays last week's jobs under this order and writes nothing to Slurm; "
        "with rltuned-train (or `pip install 'rltuned[train]'`) rltuned-tune.timer does it nightly."
    )
    return {"at": None, "sentence": how}
