"""What the journal keeps of the past, for what only reads: history, replay, training.

Reading never changes the file; a question waits for the daemon's commit, and no answer is left
half read, since that would keep the daemon from its next. A snapshot is kept
apart from the moment it was taken at, so a cluster in which nothing moves is kept once. It is JSON:
pydantic checks what comes in against the frozen dataclasses of the domain, whose own constructors
then check the rest, so a damaged file cannot become a snapshot.
"""

import hashlib
import math
import sqlite3
import stat
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rltuned.domain.context import NO_CONTEXT, Context, RunTime
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import JournalError, JournalLostError, JournalOtherError, SnapshotError

FILE_NAME: Final = "journal.sqlite"
APPLICATION_ID: Final = 0x726C7475
""""rltu": marks the file as rltuned's, so that a foreign database is not written to."""
SCHEMA_VERSION: Final = 9
"""The tables of this release."""

_LEVEL: Final = 3
"""Of zlib. At 10,000 pending jobs 6 saves a fifth of the bytes and costs twice the time."""


@dataclass(frozen=True, slots=True)
class _KeptContext:
    """A context as it is kept: in one JSON object with its snapshot."""

    demoted: tuple[str, ...] = ()
    neutral: NeutralDelay | None = None
    run_times: tuple[tuple[JobId, RunTime], ...] = ()
    limit_use: float | None = None


# In a tuple of one, because a dataclass itself takes no configuration but inherits it. JSON has no
# infinity: numbers say "Infinity" as text, and texts stay what they are.
_CONFIG: Final = ConfigDict(ser_json_inf_nan="strings")
_SNAPSHOT: Final = TypeAdapter(tuple[Snapshot], config=_CONFIG)
_CONTEXT: Final = TypeAdapter(tuple[_KeptContext], config=_CONFIG)


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things are kept, and how much: the older give way first, snapshots before rows."""

    days: float = 90.0
    max_mib: float = 1024.0


def encode_snapshot(snapshot: Snapshot, context: Context = NO_CONTEXT) -> bytes:
    """One line of JSON in the order of the fields: what is equal gives equal bytes."""
    run_times = tuple(sorted(context.run_times.items()))
    kept = _KeptContext(context.demoted, context.neutral, run_times, context.limit_use)
    return _SNAPSHOT.dump_json((snapshot,))[1:-2] + b"," + _CONTEXT.dump_json((kept,))[2:-1]


def decode_snapshot(data: bytes) -> tuple[Snapshot, Context]:
    """What was encoded. Raises SnapshotError: names the first bad field."""
    try:
        [kept] = _CONTEXT.validate_json(b"[%b]" % data)
        context = Context(kept.demoted, kept.neutral, dict(kept.run_times), kept.limit_use)
        return _SNAPSHOT.validate_json(b"[%b]" % data)[0], context
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        field = f" field {where}" if where else ""
        raise SnapshotError(f"snapshot{field}: {first['msg']}") from error


def digest_of(data: bytes) -> str:
    """SHA-256 of an encoded snapshot, by which the journal names it."""
    return hashlib.sha256(data).hexdigest()


def pack(snapshot: Snapshot, context: Context = NO_CONTEXT) -> tuple[str, bytes]:
    """Digest and compressed JSON, without the moment: equal clusters give equal digests."""
    _, _, data = encode_snapshot(snapshot, context).partition(b",")
    data = b'{"taken_at":0.0,' + data  # the first field: no new snapshot for that
    return digest_of(data), zlib.compress(data, _LEVEL)


def unpack(digest: str, body: bytes, taken_at: float) -> tuple[Snapshot, Context]:
    """What was packed. Raises SnapshotError: it is damaged, or of another version."""
    try:
        data = zlib.decompress(body)
    except zlib.error as error:
        raise SnapshotError(f"snapshot {digest[:12]}: {error}") from None
    if digest_of(data) != digest:
        raise SnapshotError(f"snapshot {digest[:12]}: its digest does not fit")
    if not math.isfinite(taken_at):
        raise SnapshotError(f"snapshot {digest[:12]}: of no moment")
    snapshot, context = decode_snapshot(data)
    return replace(snapshot, taken_at=UnixTime(taken_at)), context


def check_header(db: sqlite3.Connection, path: Path) -> int:
    """The version of its tables; 0 = none. Raises JournalError; sqlite3.Error: no database."""
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
    return int(version) if tables else 0


def peek(path: Path) -> int:
    """The version of a journal's tables, file untouched; 0 = none. Raises JournalError."""
    db, version = _open(path)
    db.close()
    return version


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A journal without the right to change it. Raises JournalError: none is there, it is damaged,
    or of another release.
    """
    db, _ = _open(path)
    with closing(db):
        try:
            yield db
        except sqlite3.Error as error:
            raise JournalError(f"{path}: cannot be read: {error}") from None


def _open(path: Path) -> tuple[sqlite3.Connection, int]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise JournalError(f"{path}: is not a regular file")
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise JournalError(f"{path}: cannot be opened: {reason}") from None
    try:
        return db, check_header(db, path)
    except sqlite3.OperationalError as error:
        db.close()
        raise JournalError(f"{path}: cannot be used: {error}") from None
    except sqlite3.Error as error:
        db.close()
        raise JournalLostError(f"{path}: is damaged: {error}") from None
    except JournalError:
        db.close()
        raise
