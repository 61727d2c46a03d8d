"""The salt of the kinds: random bytes in the journal's folder that no other user can read.

It is drawn once and kept for ever: with another one no digest fits to what was learned before. It
is no part of a handover; each of two daemons has its own, and learns by itself.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from rltuned.domain.kinds import SALT_BYTES
from rltuned.errors import JournalError
from rltuned.journal.storage import hand_to_folder_owner
from rltuned.trusted import owner_of, read_secret

FILE_NAME: Final = "salt"


def read_salt(folder: Path) -> bytes | None:
    """The salt of a folder; None = none. Raises JournalError: unreadable, untrusted, damaged."""
    path = folder / FILE_NAME
    try:
        found = read_secret(path, 64 * SALT_BYTES, also=owner_of(folder))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from None
    if len(found) != SALT_BYTES:
        raise JournalError(f"{path}: {len(found)} bytes instead of {SALT_BYTES}")
    return found


def keep_salt(folder: Path) -> bytes:
    """The salt of a folder, drawn when there is none yet. Raises JournalError."""
    found = read_salt(folder)
    if found is not None:
        return found
    path, made = folder / FILE_NAME, folder / f".{FILE_NAME}-{os.getpid()}"
    try:
        file = os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            hand_to_folder_owner(file, folder.stat())
            os.write(file, secrets.token_bytes(SALT_BYTES))
            os.fsync(file)
        finally:
            os.close(file)
        with suppress(FileExistsError):  # another process was first: its salt is the one
            path.hardlink_to(made)
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            made.unlink()
    found = read_salt(folder)
    if found is None:
        raise JournalError(f"{path}: was removed at once")
    return found
