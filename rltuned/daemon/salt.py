"""The canary's salt: drawn once, kept beside the journal, readable by the service alone.

A user who knew it could tell from a job's id and submit time whether the job will be treated, and
choose what to cancel. Two daemons of one cluster share it in the lease's folder, so that a job
stays on its side when the other one takes over.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from rltuned.core.ladder import Rung
from rltuned.errors import SettingsError
from rltuned.settings import Loaded
from rltuned.trusted import flaw_of

FILE: Final = "canary.salt"
_BYTES: Final = 16
_MOST_BYTES: Final = 256


def salted(loaded: Loaded) -> Loaded:
    """Settings with the salt that is in force: that of the settings, else the kept one.

    It is drawn when a canary starts for the first time. Without a canary nothing is read.

    Raises:
        SettingsError: it can be neither read nor drawn, or is not ours alone.
    """
    if not _is_needed(loaded):
        return loaded
    path = _place(loaded)
    try:
        return _with(loaded, canary_salt=_read(path) or _draw(path))
    except OSError as error:
        raise SettingsError(f"{path}: the canary's salt: {error.strerror or error}") from None


def kept_salt(loaded: Loaded) -> Loaded | None:
    """The same for who only looks: nothing is drawn; None = the salt is not known here."""
    if not _is_needed(loaded):
        return loaded
    try:
        found = _read(_place(loaded))
    except (OSError, SettingsError):
        return None
    return _with(loaded, canary_salt=found) if found else None


def as_if_full(loaded: Loaded) -> Loaded:
    """Settings under which all jobs are treated, where the lot is not known."""
    return _with(loaded, stage=Rung.FULL.value)


def _is_needed(loaded: Loaded) -> bool:
    ladder = loaded.settings.ladder
    return not ladder.canary_salt and ladder.ladder().rung is Rung.CANARY


def _place(loaded: Loaded) -> Path:
    return (loaded.settings.ha.lease_dir or loaded.settings.daemon.state_dir) / FILE


def _with(loaded: Loaded, **changes: str) -> Loaded:
    settings = loaded.settings
    ladder = settings.ladder.model_copy(update=changes)
    return Loaded(settings.model_copy(update={"ladder": ladder}), loaded.path, loaded.origins)


def _read(path: Path) -> str:
    """What is kept; empty = nothing is."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        # root may look at what belongs to the service user
        also = () if os.geteuid() else (path.parent.stat().st_uid,)
        flaw = flaw_of(path, status, also=also)
        if flaw is not None:
            raise SettingsError(str(flaw))
        if not stat.S_ISREG(status.st_mode) or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{path}: others may read it; fix with: chmod 600 {path}")
        text = file.read(_MOST_BYTES).decode("ascii", "replace").strip()
    if not text:
        raise SettingsError(f"{path}: is empty; remove it, and another salt is drawn")
    return text


def _draw(path: Path) -> str:
    """Whole or not at all; of two that draw at once both get the same."""
    new = path.with_name(f".{FILE}.{os.getpid()}")
    number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            if os.geteuid() == 0:  # a trial run by root must not lock the service user out
                owner = path.parent.stat()
                os.fchown(number, owner.st_uid, owner.st_gid)
            file.write(secrets.token_hex(_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(number)
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
    return _read(path)
