"""The journal's file: opened safely, checked, and locked while a process writes to Slurm."""

import fcntl
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

from rltuned.errors import JournalError, JournalHeldError, JournalLostError
from rltuned.journal.schema import make_tables
from rltuned.journal.snapshots import peek
from rltuned.journal.trust import REMEDY, stranger
from rltuned.trusted import Flaw, flaw_of, owner_of

_BUSY_TIMEOUT_S = 5.0
_LOG_BYTES = 16 * 1024 * 1024
"""To which the rollback journal is cut after a transaction."""
_MODE = "persist"


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open the journal, making it when it is new and `create` says so.

    Raises JournalError: not there, foreign, writable by others, damaged, from a newer release, or
    the disk is full or read-only.
    """
    try:
        _check_place(path, create=create)
        _roll_back(path)
        version = peek(path)
        _check_whole(path)
        db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from None
    except sqlite3.OperationalError as error:
        raise JournalError(f"{path}: cannot be opened: {error}") from None
    except sqlite3.Error as error:
        raise JournalLostError(f"{path}: is damaged: {error}; {REMEDY}") from None
    try:
        _prepare(db, version)
    except sqlite3.Error as error:
        db.close()
        raise JournalError(f"{path}: cannot be used: {error}") from None
    except JournalError:
        db.close()
        raise
    return db


def _check_place(path: Path, *, create: bool) -> None:
    folder = path.parent.stat()
    also = owner_of(path.parent)
    _refuse(flaw_of(path.parent, folder, also=also))
    if create and not os.path.lexists(path):
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        hand_to_folder_owner(file, folder)
        os.close(file)
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise JournalError(f"{path}: is not a regular file")
    _refuse(flaw_of(path, status, also=also))


def _refuse(flaw: Flaw | None) -> None:
    if flaw is not None:
        raise JournalError(str(flaw))


def hand_to_folder_owner(file: int, folder: os.stat_result) -> None:
    """A trial run by root must not lock the service user out of its own state folder."""
    if os.geteuid() == 0:
        os.fchown(file, folder.st_uid, folder.st_gid)


def _check_whole(path: Path) -> None:
    """Look for damage on a connection that cannot write, so that what is damaged stays as it is."""
    with closing(stranger(path)) as db:
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise JournalLostError(f"{path}: is damaged: {verdict}; {REMEDY}")


def _roll_back(path: Path) -> None:
    """Undo what a killed writer left half done, which a connection that cannot write may not."""
    try:
        with closing(stranger(path)) as db:
            db.execute("PRAGMA application_id").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as db:
            db.execute("PRAGMA application_id").fetchone()


def _prepare(db: sqlite3.Connection, version: int) -> None:
    if not version:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only a file without tables takes it
    # no memory that a cut of a file takes away: a process that touches such pages dies of SIGBUS
    db.execute("PRAGMA mmap_size = 0")
    (mode,) = db.execute(f"PRAGMA journal_mode = {_MODE}").fetchone()
    if mode != _MODE:
        raise sqlite3.OperationalError("another process has it open in another mode")
    db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before anything is written
    db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    if not version:
        make_tables(db)


class WriterLock:
    """Held by the one process that writes to Slurm on behalf of this journal.

    The folder itself is locked, so that a deleted file in it does not take the lock along; the
    kernel drops it when the process dies, however it dies. The file says who has it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: int | None = None

    def take(self) -> None:
        """Take it, if it is not held yet. Raises JournalError: another process has it."""
        if self._folder is not None:
            return
        try:
            self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.drop()
            raise JournalHeldError(
                f"{self._path}: a live rltuned (pid {self._owner()}) writes to Slurm; pause it "
                "(it lets go within one cycle) or stop it first"
            ) from None
        except OSError as error:
            self.drop()
            raise JournalError(f"{self._path}: {error.strerror}") from None
        with suppress(OSError):  # a full disk: the lock is held all the same
            self._sign()

    def drop(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
        self._folder = None

    def _sign(self) -> None:
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path, flags, 0o600), "wb") as file:  # noqa: PTH123
            hand_to_folder_owner(file.fileno(), self._path.parent.stat())
            file.truncate()
            file.write(f"{os.getpid()}\n".encode())

    def _owner(self) -> str:
        try:
            return self._path.read_text("ascii", "replace")[:32].strip() or "unknown"
        except OSError:
            return "unknown"
