"""What rltuned did to whom: durable before it is done, so that every change can be undone.

One SQLite file (synchronous=FULL). A write is noted with its intent, then carried out, then its
outcome is noted; a crash in between leaves an intent without an outcome, which counts as done.
Needs neither the daemon nor torch.

A file that a user deleted, replaced or damaged can go on being written to for days, and what was
written there can never be restored. So the writer knows the file that it opened, and the journal
numbers its intents: before each the file must be the same, and the number the last one that this
process has seen. The last number lies outside the folder too, where it can: an older copy of the
folder is behind it. That mark is gone when the machine is started again, and a new journal begins
without it.
"""

import fcntl
import json
import math
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.errors import JournalError, JournalHeldError, JournalLostError
from rltuned.files import write_whole
from rltuned.journal import cycles, owned, store
from rltuned.journal.cycles import CycleObservation, CycleRow
from rltuned.journal.owned import OwnedRow
from rltuned.journal.retention import Keeping, rotate, shrink
from rltuned.journal.store import REMEDY, check_whole, hand_to_folder_owner, refuse_odd
from rltuned.trusted import flaw_of, owner_of, read_trusted

LOCK_NAME: Final = "writer.lock"
DAY_S: Final = 86_400.0
_TABLES: Final = f"""
BEGIN IMMEDIATE;
{cycles.TABLES}
{owned.TABLES}
CREATE TABLE states (
    name TEXT PRIMARY KEY, value TEXT NOT NULL CHECK (json_valid(value)), at REAL NOT NULL
) STRICT;
PRAGMA application_id = {store.APPLICATION_ID};
PRAGMA user_version = {store.SCHEMA_VERSION};
COMMIT;
"""
_BUSY_TIMEOUT_S = 5.0
_LOG_BYTES = 16 * 1024 * 1024
"""To which the rollback journal is cut after a transaction."""
_MODE = "persist"
_ANY = "SELECT 1 FROM owned"

T = TypeVar("T")

Ticket = tuple[int, ...]
"""Row ids of noted intents, one per action of the plan, in its order."""
Mark = list[Any]
"""Number of an intent and a random word, so that two files with the same number differ."""


class Journal:
    """The journal of one state folder. Opened at first use, and again after an error.

    Every method raises JournalError when the file cannot be used, `intend` and `claim` also when
    another process is the writer; then nothing may be written. A value to be remembered that is no
    JSON is a TypeError or ValueError. What a question means is said in owned, cycles and store.

    marks: a folder elsewhere for the mark of the last intent; None = there is none.
    """

    def __init__(
        self, folder: Path, keeping: Keeping | None = None, marks: Path | None = None
    ) -> None:
        self.path = folder / store.FILE_NAME
        name = f"journal-mark-{sha256(str(self.path.absolute()).encode()).hexdigest()[:12]}"
        self._outside = None if marks is None else marks / name
        self._keeping = keeping or Keeping()
        self._lock_file = folder / LOCK_NAME
        self._locked: int | None = None  # the folder, while this process is the writer
        self._signed = False
        self._place: tuple[int, int] | None = None  # device and inode of the file in use
        self._mark: Mark | None = None  # of the last intent that this process has seen
        self._damage = ""  # stays for this process
        self._examined_at: float | None = None
        self._db: sqlite3.Connection | None = None

    # -- questions: what the file says, or nothing when there is none yet -------------------------

    def owned(self, cluster: str) -> Mapping[JobKey, Ownership]:
        """Of each pending job the number that was written last."""
        return self._ask(lambda db: owned.owned(db, cluster), {})

    def claims(self, cluster: str, which: str = "NOT gone") -> tuple[OwnedRow, ...]:
        return self._ask(lambda db: tuple(owned.claims(db, cluster, which)), ())

    def missed(self, cluster: str, since: float) -> tuple[OwnedRow, ...]:
        """Claims of jobs that have left the queue, and that Slurm has shown since then."""
        which = f"gone AND ifnull(ended_at, {since!r}) >= {since!r}"
        return self._ask(lambda db: tuple(owned.claims(db, cluster, which)), ())

    def recent_writes(
        self, cluster: str, since: float, until: float = math.inf
    ) -> Mapping[JobKey, int]:
        """How often each job was written to in that time; what was never sent does not count."""
        asked = (
            "SELECT job_id, submitted_at, count(*) FROM diary WHERE cluster = ?"
            " AND at BETWEEN ? AND ? AND field NOT IN ('release', 'nice')"
            " AND new NOT IN ('', 'NO') AND ifnull(result, '') != 'withheld'"
            " GROUP BY job_id, submitted_at"
        )
        every = list[tuple[JobId, UnixTime, int]]()
        every = self._ask(lambda db: db.execute(asked, (cluster, since, until)).fetchall(), every)
        return {(job_id, submitted_at): count for job_id, submitted_at, count in every}

    def is_clean(self) -> bool:
        """Whether no job carries anything, nor left the queue with it and may be requeued."""
        return not self._ask(lambda db: db.execute(f"{_ANY} WHERE {owned.HAS}").fetchone(), None)

    def is_blank(self) -> bool:
        """Whether nothing was ever written to a job, or all of that is cleared out."""
        return not self._ask(lambda db: db.execute(_ANY).fetchone(), None)

    def last_cycle(self) -> int:
        """Number of the last cycle noted; 0 = none."""
        asked = (
            "SELECT max(ifnull((SELECT max(cycle) FROM cycles), 0),"
            " ifnull((SELECT cycle FROM diary ORDER BY id DESC LIMIT 1), 0))"
        )
        return int(self._ask(lambda db: db.execute(asked).fetchone()[0], 0))

    def last_cluster(self) -> str:
        """Of the last cycle that saw one; empty = none did."""
        asked = "SELECT cluster FROM cycles WHERE cluster != '' ORDER BY cycle DESC LIMIT 1"
        found = self._ask(lambda db: db.execute(asked).fetchone(), None)
        return str(found[0]) if found else ""

    def carrying(self, *, but: str = "") -> tuple[str, ...]:
        return self._ask(lambda db: owned.carrying(db, but), ())

    def last_look(
        self, cluster: str, modes: Collection[str], before: int | None
    ) -> Snapshot | None:
        return self._ask(lambda db: cycles.last_look(db, cluster, modes, before), None)

    def past(self, cluster: str, since: float) -> list[CycleRow]:
        return self._ask(lambda db: cycles.since(db, cluster, since), [])

    def recall(self, name: str) -> object:
        return self._ask(lambda db: store.get(db, name), None)

    # -- notes ------------------------------------------------------------------------------------

    def remember(self, name: str, value: object, at: float) -> None:
        """Put a JSON value in place of what was remembered under a name, durably."""
        with self._transaction() as db:
            store.put(db, name, value, at)

    def alter(self, name: str, change: Callable[[object], object], at: float) -> None:
        """Change what was remembered under a name, alone; change: quick, gets None at first."""
        if not self._exists() and change(None) is None:
            return  # nothing to note makes no file
        with self._transaction() as db:
            before = store.get(db, name)
            after = change(before)
            if after != before:
                store.put(db, name, after, at)

    def probe(self) -> None:
        """Find out whether intents could be noted, leaving nothing behind in the diary."""
        with self._transaction():
            pass

    def keep(self, sight: CycleObservation, *, clears: bool = True) -> str:
        """Note what a cycle saw and planned; the digest of the snapshot. clears: out what is old by
        its time.
        """
        seen = sight.snapshot
        with self._session(create=True):
            self._examine(sight.at)
        with self._transaction() as db:
            digest = cycles.keep(db, sight)
            if clears:
                owned.note_ended(db, seen.cluster, seen.known_ids(), sight.at)
                rotate(db, self._keeping, seen.cluster, sight.at)
        with self._session(create=True) as db:
            shrink(db, self._keeping)
        return digest

    def intend(
        self,
        plan: Plan,
        *,
        cluster: str,
        cycle: int,
        at: float,
        snapshot: str | None = None,
        newest: int | None = None,
    ) -> Ticket:
        """Note on the disk what is about to be written. newest: highest job id shown."""
        self.claim()
        origin = {
            "cluster": cluster, "cycle": cycle, "at": at, "snapshot": snapshot, "newest": newest,
        }  # fmt: skip
        with self._session(create=True):
            self.claim()  # again, as a new folder has a journal only now
        with self._transaction() as db:
            ticket = owned.intend(db, plan.actions, origin)
            before = _mark(store.get(db, store.MARK))
            mark = [before[0] + 1 if before else 1, secrets.token_hex(8)]
            store.put(db, store.MARK, mark, at)
        self._mark = mark
        self._leave_outside(mark)
        return ticket

    def settle(self, ticket: Ticket, outcomes: Iterable[Outcome], *, at: float) -> None:
        with self._transaction() as db:
            for number, outcome in zip(ticket, outcomes, strict=True):
                owned.settle(db, number, outcome, at)

    def close_gone(self, cluster: str, pending: Collection[JobKey]) -> None:
        if self._exists():
            with self._transaction() as db:
                owned.close_gone(db, cluster, pending)

    def reclaim(self, cluster: str, pending: Iterable[PendingJob], at: float) -> list[JobKey]:
        if self.is_blank():
            return []
        with self._transaction() as db:
            return owned.reclaim(db, cluster, pending, at)

    def record(self, row: CycleRow) -> None:
        with self._transaction() as db:
            cycles.record(db, row)

    def pack(
        self, cluster: str, gone: int
    ) -> tuple[tuple[dict[str, Any], ...], tuple[tuple[str, str, float], ...]]:
        """What another daemon goes on with: rows of a cluster by column, of jobs that have left the
        queue the last `gone`; and named values.
        """
        which = (
            "cluster = ? AND writes != '[]' AND (NOT gone OR at >= ifnull((SELECT at FROM owned"
            " WHERE cluster = ? AND gone ORDER BY at DESC LIMIT 1 OFFSET ?), 0.0))"
        )
        with self._session(create=True) as db:
            rows = owned.columns(db, which, cluster, cluster, gone)
            states = db.execute(store.PORTABLE, store.OWN).fetchall()
        return tuple(dict(zip(owned.COLUMNS, row, strict=True)) for row in rows), tuple(states)

    def unpack(
        self,
        cluster: str,
        rows: Iterable[Mapping[str, Any]],
        states: Iterable[tuple[str, str, float]],
    ) -> None:
        """Go on with what another daemon held: what this one held of the cluster was that one's
        already.
        """
        with self._transaction() as db:
            owned.replace(db, cluster, rows)
            for name, text, at in states:
                if name not in store.OWN:
                    store.put_text(db, name, text, at)

    def leave(self, cluster: str) -> None:
        """Hold nothing of a cluster any more: another daemon has taken it over."""
        if self._exists():
            with self._transaction() as db:
                owned.replace(db, cluster, ())

    # -- the file and its writer ------------------------------------------------------------------

    def is_lost(self) -> bool:
        """Whether it is empty, or missing where rltuned wrote to Slurm: its lock file tells."""
        try:
            left = (self.path, self.path.with_name(LOCK_NAME))
            return not self.is_there() and any(file.exists() for file in left)
        except (OSError, JournalError):
            return False  # the caller that opens it reports what is wrong

    def is_there(self) -> bool:
        """Whether there is a journal, however unfit; an empty file is none."""
        found = _status(self.path)
        return found is not None and (found.st_size > 0 or not stat.S_ISREG(found.st_mode))

    def claim(self) -> None:
        """Be the one process that writes to Slurm on behalf of this journal.

        The folder itself is locked, so that a deleted file in it does not take the lock along; the
        kernel drops it when the process dies, however it dies. The file says who has it, and stays:
        a folder with it and without a journal has lost one.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            if self._locked is None:
                self._locked = os.open(self._lock_file.parent, flags)
                fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.let_go()
            owner = "unknown"
            with suppress(OSError):
                owner = self._lock_file.read_text("ascii", "replace")[:32].strip() or owner
            raise JournalHeldError(
                f"{self._lock_file}: a live rltuned (pid {owner}) writes to Slurm; pause it (it "
                "lets go within one cycle) or stop it first"
            ) from None
        except OSError as error:
            self.let_go()
            raise JournalError(f"{self._lock_file}: {error.strerror}") from None
        found = _status(self.path)
        if not self._signed and found is not None and found.st_size:
            flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            with (
                suppress(OSError),  # a full disk: the lock is held all the same
                open(os.open(self._lock_file, flags, 0o600), "wb") as file,  # noqa: PTH123
            ):
                hand_to_folder_owner(file.fileno(), self._lock_file.parent.stat())
                file.truncate()
                file.write(f"{os.getpid()}\n".encode())
                self._signed = True

    def let_go(self) -> None:
        """Be the writer no longer, so that `rltuned restore` may be."""
        if self._locked is not None:
            os.close(self._locked)
        self._locked, self._signed = None, False

    def close(self) -> None:
        self.let_go()
        if self._db is not None:
            self._db.close()
            self._db = None

    def _ask(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        if not self._exists():
            return nothing
        with self._session(create=False) as db:
            return question(db)

    def _exists(self) -> bool:
        """Whether there is a journal to ask. Raises JournalLostError: it is another, or none any
        more.
        """
        if self._damage:
            raise JournalLostError(self._damage)
        found = _status(self.path)
        if self._place is None:
            return found is not None and self.is_there()
        if found is None:
            raise JournalLostError(
                f"{self.path}: was deleted or moved while it was in use; {REMEDY}"
            )
        if (found.st_dev, found.st_ino) != self._place:
            raise JournalLostError(f"{self.path}: is another file than the one in use; {REMEDY}")
        return True

    def _examine(self, now: float) -> None:
        """Once a day the whole file; at the start opening it has done so."""
        if self._examined_at is not None and 0 <= now - self._examined_at < DAY_S:
            return
        if self._examined_at is not None:
            try:
                check_whole(self.path)
            except JournalLostError as error:
                self._damage = str(error)
                raise
        self._examined_at = now

    @contextmanager
    def _session(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        """The open file, the last intent in it compared with what this process knows; another may
        have written since.
        """
        self._exists()
        if self._db is None:
            self._db = self._open(create=create)
        try:
            noted = _mark(store.get(self._db, store.MARK))
            if self._mark is not None:
                self._compare(noted, self._mark, "does not hold what was written last")
            self._mark = noted
            yield self._db
        except sqlite3.Error as error:
            self._db.close()
            self._db = None  # the next use opens and checks it again
            raise JournalError(f"{self.path}: {error}") from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing: the connection commits at the end and rolls back on any error."""
        with self._session(create=True) as db:
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if not self.is_there():
            if self._place is not None:
                raise JournalLostError(f"{self.path}: is missing, and was there before; {REMEDY}")
            if create and self._outside is not None:
                with suppress(OSError):  # whoever begins again has seen that it is gone
                    self._outside.unlink()
        db = connect(self.path, create=create)
        try:
            if (left := self._left_outside()) is not None:
                why = "is an older copy, or has lost its end: what rltuned wrote last is not in it"
                self._compare(_mark(store.get(db, store.MARK)), left, why)
            place = _status(self.path)
            if self._place is None and place is not None:
                self._place = place.st_dev, place.st_ino
            self._exists()
        except JournalError:
            db.close()
            raise
        except (sqlite3.Error, ValueError) as error:
            db.close()
            raise JournalError(f"{self.path}: {error}") from None
        return db

    def _compare(self, noted: Mark | None, known: Mark, why: str) -> None:
        """Raises JournalLostError: what the journal has noted is behind what is known of it."""
        if noted is None or noted[0] < known[0] or (noted[0] == known[0] and noted != known):
            raise JournalLostError(f"{self.path}: {why}; {REMEDY}")

    def _left_outside(self) -> Mark | None:
        """The mark outside the folder; None = there is none that is fit."""
        if self._outside is not None:
            with suppress(OSError, ValueError):
                raw, _ = read_trusted(self._outside, 1024, also=owner_of(self.path.parent))
                return _mark(json.loads(raw))
        return None

    def _leave_outside(self, mark: Mark) -> None:
        """Put it there, if that folder is there and takes it: one that is behind says nothing."""
        if self._outside is None:
            return
        with suppress(OSError):
            folder = self._outside.parent.stat()
            if flaw_of(self._outside.parent, folder, also=owner_of(self.path.parent)) is None:
                write_whole(
                    self._outside,
                    json.dumps(mark).encode(),
                    prepare=lambda file: hand_to_folder_owner(file, folder),
                )


def _mark(found: object) -> Mark | None:
    """A mark from JSON. Raises ValueError: it is none."""
    if found is not None and (
        not isinstance(found, list) or [type(part) for part in found] != [int, str]
    ):
        raise ValueError("it has no mark")
    return found


def _status(path: Path) -> os.stat_result | None:
    """None = nothing is there; a link is no journal, wherever it leads."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open the journal, making it when it is new and `create` says so.

    Raises JournalError: not there, foreign, writable by others, damaged, from another release, or
    the disk is full or read-only.
    """
    try:
        _check_place(path, create=create)
        _roll_back(path)
        check_whole(path)
        db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from None
    except sqlite3.Error as error:
        raise JournalError(f"{path}: cannot be opened: {error}") from None
    try:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only a file without tables takes it
        # no memory that a cut of a file takes away: a process that touches such pages dies
        db.execute("PRAGMA mmap_size = 0")
        (mode,) = db.execute(f"PRAGMA journal_mode = {_MODE}").fetchone()
        if mode != _MODE:
            raise sqlite3.OperationalError("another process has it open in another mode")
        db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before any write to Slurm
        db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        if not tables:
            db.executescript(_TABLES)
    except sqlite3.Error as error:
        db.close()
        raise JournalError(f"{path}: cannot be used: {error}") from None
    return db


def _check_place(path: Path, *, create: bool) -> None:
    folder, also = path.parent.stat(), owner_of(path.parent)
    flaw = flaw_of(path.parent, folder, also=also)
    if flaw is None:
        if create and not os.path.lexists(path):
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            hand_to_folder_owner(file, folder)
            os.close(file)
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise JournalError(f"{path}: is not a regular file")
        refuse_odd(path)
        flaw = flaw_of(path, status, also=also)
    if flaw is not None:
        raise JournalError(str(flaw))


def _roll_back(path: Path) -> None:
    """Undo what a killed writer left half done, which a connection that cannot write may not."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as db:
        db.execute("PRAGMA application_id").fetchone()
