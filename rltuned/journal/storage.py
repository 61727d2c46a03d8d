"""The journal's file: its tables, opened safely, checked, and locked while a process writes.

A change of a table is one more in `rltuned.journal.snapshots.SCHEMA_VERSION`. A file that a user
deleted, replaced or damaged can go on being written to for days, and what was written there can
never be restored. So the writer knows the file that it opened, and the journal numbers its intents:
before each the file must be the same, and the number the last one that this process has seen. The
last number lies outside the folder too, where it can: an older copy of the folder is behind it.
That mark is gone when the machine is started again, and a new journal begins without it.
"""

import fcntl
import json
import os
import secrets
import sqlite3
import stat
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from rltuned.durable import write_whole
from rltuned.errors import JournalError, JournalHeldError, JournalLostError
from rltuned.journal import cycles, owned
from rltuned.journal.named_values import MARK, get, put
from rltuned.journal.snapshots import APPLICATION_ID, SCHEMA_VERSION, peek
from rltuned.trusted import Flaw, flaw_of, owner_of, read_trusted

REMEDY: Final = (
    "nothing is written to Slurm; stop the daemon, restore what Slurm shows with `rltuned "
    "restore --all --as-shown`, put the files away, start it again (docs/runbook.md)"
)
_TABLES: Final = f"""
BEGIN IMMEDIATE;
{cycles.TABLES}
{owned.TABLES}
CREATE TABLE states (name TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) STRICT;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
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
        check_whole(path)
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


def check_whole(path: Path) -> None:
    """Check integrity over a read-only connection, to keep a damaged file for inspection. Raises
    JournalLostError: it is damaged; sqlite3.Error.
    """
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
        db.executescript(_TABLES)


def is_there(path: Path) -> bool:
    """Whether there is a journal, however unfit; an empty file is none."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    return found.st_size > 0 or not stat.S_ISREG(found.st_mode)


def stranger(path: Path) -> sqlite3.Connection:
    """A connection that cannot change a journal; raises sqlite3.Error."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


Mark = tuple[int, str]
"""Number of an intent and a random word, so that two files with the same number differ."""


def mark_of(db: sqlite3.Connection) -> Mark | None:
    """Of the last intent in the journal."""
    found = get(db, MARK)
    return None if found is None else as_mark(found)


def as_mark(found: object) -> Mark:
    """A mark from JSON. Raises ValueError: it is none."""
    if not isinstance(found, list) or [type(part) for part in found] != [int, str]:
        raise ValueError("it has no mark")
    return found[0], found[1]


def advance(db: sqlite3.Connection, at: float) -> Mark:
    """Note that there is one more intent."""
    before = mark_of(db)
    mark = (before[0] + 1 if before else 1, secrets.token_hex(8))
    put(db, MARK, mark, at)
    return mark


def check_mark(path: Path, noted: Mark | None, known: Mark, why: str) -> None:
    """Raises JournalLostError: what the journal has noted is behind what is known of it."""
    if noted is None or noted[0] < known[0] or (noted[0] == known[0] and noted[1] != known[1]):
        raise JournalLostError(f"{path}: {why}; {REMEDY}")


class Outside:
    """The mark of a journal in another folder."""

    def __init__(self, folder: Path, journal: Path) -> None:
        name = sha256(str(journal.absolute()).encode()).hexdigest()[:12]
        self._path = folder / f"journal-mark-{name}"
        self._journal = journal

    def read(self) -> Mark | None:
        """None = there is none that is fit."""
        with suppress(OSError, ValueError):
            raw, _ = read_trusted(self._path, 1024, also=owner_of(self._journal.parent))
            return as_mark(json.loads(raw))
        return None

    def leave(self, mark: Mark) -> None:
        """Put it there, if that folder is there and takes it."""
        with suppress(OSError):  # one that is behind, or none, says nothing
            folder = self._path.parent.stat()
            if flaw_of(self._path.parent, folder, also=owner_of(self._journal.parent)) is None:
                write_whole(
                    self._path,
                    json.dumps(mark).encode(),
                    prepare=lambda file: hand_to_folder_owner(file, folder),
                )

    def remove(self) -> None:
        """The journal is gone, and whoever begins again has seen it."""
        with suppress(OSError):
            self._path.unlink()


class WriterLock:
    """Held by the one process that writes to Slurm on behalf of this journal.

    The folder itself is locked, so that a deleted file in it does not take the lock along; the
    kernel drops it when the process dies, however it dies. The file says who has it, and stays: a
    folder with it and without a journal has lost one.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self._path = path
        self._journal = journal
        self._folder: int | None = None
        self._signed = False

    def take(self) -> None:
        """Take it, if it is not held yet. Raises JournalError: another process has it."""
        if self._folder is None:
            self._take()
        if not self._signed and is_there(self._journal):
            with suppress(OSError):  # a full disk: the lock is held all the same
                self._sign()
                self._signed = True

    def _take(self) -> None:
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

    def drop(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
        self._folder, self._signed = None, False

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
