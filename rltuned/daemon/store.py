"""The journal's file: opened safely, checked, and locked while somebody writes to Slurm."""

import fcntl
import os
import sqlite3
import stat
from pathlib import Path

from rltuned.daemon.schema import bring_up
from rltuned.errors import JournalError
from rltuned.recording import SCHEMA_VERSION, peek
from rltuned.trusted import Flaw, flaw_of

_BUSY_TIMEOUT_S = 5.0
_LOG_BYTES = 16 * 1024 * 1024
"""To which the write-ahead log is cut once it was copied into the file."""


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open the journal, making it when it is new and `create` says so.

    Raises:
        JournalError: not there, not ours, writable by others, damaged, from a newer release, or
            the disk is full or read-only.
    """
    try:
        _check_place(path, create=create)
        version = peek(path)
        db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from None
    except sqlite3.Error as error:
        raise JournalError(f"{path}: cannot be opened: {error}") from None
    try:
        _prepare(db, path, version)
    except sqlite3.Error as error:
        db.close()
        raise JournalError(f"{path}: cannot be used: {error}") from None
    except JournalError:
        db.close()
        raise
    return db


def _check_place(path: Path, *, create: bool) -> None:
    folder = path.parent.stat()
    # root may work on what belongs to the service user, but on no other user's file in its folder
    also = () if os.geteuid() else (folder.st_uid,)
    _refuse(flaw_of(path.parent, folder, also=also))
    if create and not os.path.lexists(path):
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        _hand_to_folder_owner(file, folder)
        os.close(file)
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise JournalError(f"{path}: is not a regular file")
    _refuse(flaw_of(path, status, also=also))


def _refuse(flaw: Flaw | None) -> None:
    if flaw is not None:
        raise JournalError(str(flaw))


def _hand_to_folder_owner(file: int, folder: os.stat_result) -> None:
    """A trial run by root must not lock the service user out of its own state folder."""
    if os.geteuid() == 0:
        os.fchown(file, folder.st_uid, folder.st_gid)


def _prepare(db: sqlite3.Connection, path: Path, version: int) -> None:
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise JournalError(f"{path}: is damaged: {verdict}")
    if not version:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only a file without tables takes it
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before anything is written
    db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    if version < SCHEMA_VERSION:
        bring_up(db, version)


class WriterLock:
    """Held by the one process that writes to Slurm on behalf of this journal.

    The kernel drops it when the process dies, however it dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        """Take it, if it is not ours yet.

        Raises:
            JournalError: another process has it.
        """
        if self._file is not None:
            return
        try:
            file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            _hand_to_folder_owner(file, self._path.parent.stat())
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 32).decode("ascii", "replace").strip()
            os.close(file)
            raise JournalError(
                f"{self._path}: a live rltuned (pid {owner or 'unknown'}) writes to Slurm; pause "
                "it (it lets go within one cycle) or stop it first"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
