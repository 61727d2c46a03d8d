"""The journal's file to read, its named values, and the two files that lie beside it.

Reading never changes the file; a question waits for the daemon's commit, and no answer is left half
read, since that would keep the daemon from its next. A named value (table `states`) is what must
outlive the process and is no change to Slurm: one JSON value, read and changed whole. Beside the
journal lie the salt of the kinds, which no other user can read, and what was learned of run times:
losing that costs predictions for a while, and it is large and written every few minutes.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rltuned.domain.kinds import SALT_BYTES
from rltuned.errors import JournalError, JournalLostError, JournalOtherError
from rltuned.files import write_whole
from rltuned.text import first_flaw
from rltuned.trusted import owner_of, read_secret, read_trusted

if TYPE_CHECKING:
    from rltuned.journal.journal import Journal

T = TypeVar("T")

FILE_NAME: Final = "journal.sqlite"
APPLICATION_ID: Final = 0x726C7475
""""rltu": marks the file as rltuned's, so that a foreign database is not written to."""
SCHEMA_VERSION: Final = 9
"""The tables of this release; a change of one is one more."""
REMEDY: Final = (
    "nothing is written to Slurm; stop the daemon, restore what Slurm shows with `rltuned "
    "restore --all --as-shown`, put the files away, start it again (docs/runbook.md)"
)


def refuse_odd(path: Path) -> None:
    """Raise JournalError where a file that sqlite opens beside a journal is none: of a named pipe
    it would wait for the other end.
    """
    for beside in (path, *(path.with_name(f"{path.name}-{end}") for end in ("journal", "wal"))):
        if beside.exists() and not beside.is_file():
            raise JournalError(f"{beside}: is not a regular file")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A journal without the right to change it. Raises JournalError: none is there, it is damaged,
    or of another release.
    """
    try:
        path.stat()
        refuse_odd(path)
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise JournalError(f"{path}: cannot be opened: {reason}") from None
    with closing(db):
        try:
            _check_header(db, path)
        except sqlite3.OperationalError as error:
            raise JournalError(f"{path}: cannot be used: {error}") from None
        except sqlite3.Error as error:
            raise JournalLostError(f"{path}: is damaged: {error}; {REMEDY}") from None
        try:
            yield db
        except sqlite3.Error as error:
            raise JournalError(f"{path}: cannot be read: {error}") from None


def _check_header(db: sqlite3.Connection, path: Path) -> None:
    """Raises JournalError: it is not this release's; sqlite3.Error: it is no database."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    try:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UnicodeDecodeError:  # sqlite quotes the damaged bytes in its own message
        raise sqlite3.DatabaseError("malformed database schema") from None
    if tables and application != APPLICATION_ID:
        raise JournalError(f"{path}: is a database, but not rltuned's")
    if tables and version != SCHEMA_VERSION:
        raise JournalOtherError(
            f"{path}: was written by another release (schema {version}, not {SCHEMA_VERSION}): "
            "restore with the release that wrote it, then move the file away"
        )


def check_whole(path: Path) -> None:
    """Check integrity over a read-only connection, to keep a damaged file for inspection. Raises
    JournalLostError: it is damaged; JournalError: it cannot be looked at.
    """
    with reading(path) as db:
        try:
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError:
            raise
        except sqlite3.Error as error:
            verdict = str(error)
    if verdict != "ok":
        raise JournalLostError(f"{path}: is damaged: {verdict}; {REMEDY}")


def hand_to_folder_owner(file: int, folder: os.stat_result) -> None:
    """A trial run by root must not lock the service user out of its own state folder."""
    if os.geteuid() == 0:
        os.fchown(file, folder.st_uid, folder.st_gid)


# -- named values -----------------------------------------------------------------------------

SETTINGS: Final = "settings"
"""Those that the daemon last ran with."""
SALT: Final = "switchback_salt"
MARK: Final = "mark"
"""Of the last intent, see journal/journal."""
OWN: Final = (SETTINGS, SALT, MARK)
"""Of this host's daemon; all others are handed over."""
PORTABLE: Final = "SELECT name, value, at FROM states WHERE name NOT IN (?, ?, ?) ORDER BY name"


class Kept(Generic[T]):
    """What the journal keeps under a name as one JSON object. what: it is, for a message."""

    def __init__(self, name: str, kind: Any, what: str, config: ConfigDict | None = None) -> None:
        self.name = name
        self._what = what
        self._adapter: TypeAdapter[dict[str, T]] = TypeAdapter(dict[str, kind], config=config)

    def read(self, journal: "Journal") -> Mapping[str, T]:
        """All of it; empty = nothing was kept yet. Raises JournalError."""
        return self.of(journal.recall(self.name))

    def of(self, kept: object) -> dict[str, T]:
        """The same from what the journal has; names the first wrong field in a JournalError."""
        try:
            return self._adapter.validate_python({} if kept is None else kept)
        except ValidationError as error:
            raise JournalError(f"{self._what} in the journal: {first_flaw(error)}") from None

    def alter(
        self, journal: "Journal", change: Callable[[dict[str, T]], Mapping[str, T]], at: float
    ) -> None:
        """Put what `change` makes of it in its place, in one piece; raises as read."""

        def put(kept: object) -> object:
            before = self.of(kept)
            after = change(dict(before))
            same = after == before
            return kept if same else self._adapter.dump_python(dict(after), mode="json")

        journal.alter(self.name, put, at)

    def change(self, journal: "Journal", key: str, alter: Callable[[T | None], T], at: float) -> T:
        """The same with one value, None = it is not there yet; returns what is there now."""
        found: list[T] = []

        def put(every: dict[str, T]) -> Mapping[str, T]:
            found[:] = [alter(every.get(key))]
            nothing = not found[0] and key not in every
            return every if nothing or every.get(key) == found[0] else {**every, key: found[0]}

        self.alter(journal, put, at)
        return found[0]


def get(db: sqlite3.Connection, name: str) -> object:
    """The value noted last; None = none was."""
    row = db.execute("SELECT value FROM states WHERE name = ?", (name,)).fetchone()
    return None if row is None else json.loads(row[0])


def put(db: sqlite3.Connection, name: str, value: object, at: float) -> None:
    """Note a value in place of the last one. Raises TypeError, ValueError: it is no JSON."""
    put_text(db, name, json.dumps(value, allow_nan=False, sort_keys=True), at)


def put_text(db: sqlite3.Connection, name: str, text: str, at: float) -> None:
    """The same with a value that is JSON text already."""
    db.execute("INSERT OR REPLACE INTO states (name, value, at) VALUES (?, ?, ?)", (name, text, at))


# -- the salt of the kinds --------------------------------------------------------------------

SALT_FILE: Final = "salt"


def read_salt(folder: Path) -> bytes | None:
    """The salt of a folder; None = none. Raises JournalError: unreadable, untrusted, damaged."""
    path = folder / SALT_FILE
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
    """The salt of a folder, drawn when there is none yet, and kept for ever: with another one no
    digest fits to what was learned before. It is not handed over: each of two daemons has its own,
    and learns by itself. Raises JournalError.
    """
    if (found := read_salt(folder)) is None:
        _write_whole(folder, SALT_FILE, secrets.token_bytes(SALT_BYTES))
        found = read_salt(folder)
    if found is None:
        raise JournalError(f"{folder / SALT_FILE}: was removed at once")
    return found


def _write_whole(folder: Path, name: str, data: bytes) -> None:
    """Put a file in place of the last one, whole. Raises JournalError: it cannot be written."""
    path = folder / name
    try:
        owner = folder.stat()
        write_whole(path, data, prepare=lambda file: hand_to_folder_owner(file, owner))
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from None


# -- what was learned of run times ------------------------------------------------------------

LEARNED_FILE: Final = "run-times"
_MAGIC: Final = b"rltuned run times 1\n"
_DIGEST: Final = hashlib.sha256().digest_size
_MOST_BYTES: Final = 256 * 1024 * 1024


class Learned(BaseModel):
    """What it belongs to. salt: fingerprint. seen_at: Unix time of its last look."""

    cluster: str
    salt: str
    seen_at: float


def keep_learned(folder: Path, about: Learned, body: bytes) -> None:
    """Put a file in place of the last one, whole. Raises JournalError: it cannot be written."""
    content = about.model_dump_json().encode() + b"\n" + body
    _write_whole(folder, LEARNED_FILE, _MAGIC + hashlib.sha256(content).digest() + content)


def read_learned(folder: Path) -> tuple[Learned, bytes] | None:
    """The last one; None = none. Raises JournalError: unreadable, untrusted or damaged."""
    path = folder / LEARNED_FILE
    try:
        data, _ = read_trusted(path, _MOST_BYTES, also=owner_of(folder))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from None
    start = len(_MAGIC) + _DIGEST
    content = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(content).digest() != data[len(_MAGIC) : start]:
        raise JournalError(f"{path}: is damaged, or of another release")
    about, _, body = content.partition(b"\n")
    try:
        return Learned.model_validate_json(about), body
    except ValidationError:
        raise JournalError(f"{path}: is of another release") from None
