"""What rltuned did to whom: durable before it is done, so that every change can be undone.

One SQLite file (synchronous=FULL). A write is noted with its intent, then carried out, then its
outcome is noted; a crash in between leaves an intent without an outcome, which counts as done.
Needs neither the daemon nor torch. The tables are in cycles, owned and storage.
"""

import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from rltuned.domain.fields import Field
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobKey
from rltuned.errors import JournalError, JournalLostError
from rltuned.journal import cycles, handover, named_values, owned
from rltuned.journal.cycles import CycleObservation, CycleRow
from rltuned.journal.handover import Handover
from rltuned.journal.owned import Claim
from rltuned.journal.retention import rotate, shrink
from rltuned.journal.snapshots import FILE_NAME, Keeping
from rltuned.journal.storage import (
    REMEDY,
    Mark,
    Outside,
    WriterLock,
    advance,
    check_mark,
    check_whole,
    connect,
    is_there,
    mark_of,
)

LOCK_NAME: Final = "writer.lock"
DAY_S: Final = 86_400.0

T = TypeVar("T")

Ticket = tuple[int, ...]
"""Row ids of noted intents, one per action of the plan, in its order."""


class Journal:
    """The journal of one state folder. Opened at first use, and again after an error.

    Every method raises JournalError when the file cannot be used, `intend` and `claim` also when
    another process is the writer; then nothing may be written. A value to be remembered that is no
    JSON is a TypeError or ValueError.

    marks: a folder elsewhere for the mark of the last intent, see storage; None = there is none.
    """

    def __init__(
        self, folder: Path, keeping: Keeping | None = None, marks: Path | None = None
    ) -> None:
        self.path = folder / FILE_NAME
        self._outside = None if marks is None else Outside(marks, self.path)
        self._keeping = keeping or Keeping()
        self._lock = WriterLock(folder / LOCK_NAME, self.path)
        self._place: tuple[int, int] | None = None  # device and inode of the file in use
        self._mark: Mark | None = None  # of the last intent that this process has seen
        self._damage = ""  # stays for this process
        self._examined_at: float | None = None
        self._db: sqlite3.Connection | None = None

    def owned(self, cluster: str) -> Mapping[JobKey, Ownership]:
        """What `Snapshot.marked` wants to know."""
        return self._ask(lambda db: owned.owned(db, cluster), {})

    def claims(self, cluster: str) -> tuple[Claim, ...]:
        """What jobs of this cluster may still carry, by job id: words first, last number last."""
        return self._ask(lambda db: tuple(owned.claims(db, cluster)), ())

    def missed(self, cluster: str, since: float) -> tuple[Claim, ...]:
        """The same of jobs that have left the queue, and that Slurm has shown since then."""
        return self._ask(lambda db: tuple(owned.missed(db, cluster, since)), ())

    def recent_writes(
        self, cluster: str, since: float, until: float = math.inf
    ) -> Mapping[JobKey, int]:
        """How often each job of this cluster was written to since then, numbers and words. until:
        what is noted for later counts then; the clock was ahead.
        """
        return self._ask(lambda db: owned.recent(db, cluster, since, until), {})

    def words(self, cluster: str, field: Field) -> Mapping[JobKey, tuple[str, str]]:
        """Of a field of words: what jobs had before rltuned, and what it wrote last."""
        return self._ask(lambda db: owned.words(db, cluster, field), {})

    def is_clean(self) -> bool:
        """Whether nothing owned can be in any queue, nor come back when a job is requeued."""
        return self._ask(owned.is_clean, nothing=True)

    def is_blank(self) -> bool:
        """Whether nothing was ever written to a job, or all of that is cleared out."""
        return self._ask(owned.is_empty, nothing=True)

    def last_cycle(self) -> int:
        """Number of the last cycle noted; 0 = none."""
        return self._ask(cycles.last_cycle, 0)

    def carrying(self, *, but: str = "") -> tuple[str, ...]:
        """Addresses of jobs that may still carry something owned. but: not of this cluster."""
        return self._ask(lambda db: owned.carrying(db, but), ())

    def last_look(
        self, cluster: str, modes: Collection[str], before: int | None
    ) -> Snapshot | None:
        """What the last finished cycle of these modes saw; None = none is kept. before: only
        cycles before this one count. Raises SnapshotError: it cannot be read.
        """
        return self._ask(lambda db: cycles.last_look(db, cluster, modes, before), None)

    def past(self, cluster: str, since: float) -> list[CycleRow]:
        """The cycles from a moment on, the oldest first."""
        return self._ask(lambda db: cycles.since(db, cluster, since), [])

    def recall(self, name: str) -> object:
        """What was remembered under a name, as JSON decodes it; None = nothing was."""
        return self._ask(lambda db: named_values.get(db, name), None)

    def remember(self, name: str, value: object, at: float) -> None:
        """Put a JSON value in place of what was remembered under a name, durably."""
        with self._session(create=True) as db, self._transaction(db):
            named_values.put(db, name, value, at)

    def alter(self, name: str, change: Callable[[object], object], at: float) -> None:
        """Change what was remembered under a name, alone; change: quick, gets None at first."""
        if not self._exists() and change(None) is None:
            return  # nothing to note makes no file
        with self._session(create=True) as db, self._transaction(db):
            before = named_values.get(db, name)
            after = change(before)
            if after != before:
                named_values.put(db, name, after, at)

    def probe(self) -> None:
        """Find out whether intents could be noted, leaving nothing behind in the diary."""
        with self._session(create=True) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")

    def keep(self, sight: CycleObservation) -> str:
        """Note what a cycle saw and planned, clear out what is old; the digest of the snapshot."""
        seen = sight.snapshot
        with self._session(create=True) as db:
            self._examine(sight.at)
            with self._transaction(db):
                digest = cycles.keep(db, sight)
                owned.note_ended(db, seen.cluster, seen.known_ids(), sight.at)
                rotate(db, self._keeping, seen.cluster, sight.at)
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
        self._lock.take()
        origin = {
            "cluster": cluster, "cycle": cycle, "at": at, "snapshot": snapshot, "newest": newest,
        }  # fmt: skip
        with self._session(create=True) as db:
            self._lock.take()  # again, as a new folder has a journal only now
            with self._transaction(db):
                ticket = owned.intend(db, plan.actions, origin)
                mark = advance(db, at)
            self._mark = mark
            if self._outside is not None:
                self._outside.leave(mark)
        return ticket

    def settle(self, ticket: Ticket, outcomes: Iterable[Outcome], *, at: float) -> None:
        with self._session(create=True) as db, self._transaction(db):
            for number, outcome in zip(ticket, outcomes, strict=True):
                owned.settle(db, number, outcome, at)

    def close_gone(self, cluster: str, pending: Collection[JobKey]) -> int:
        """Note which jobs are pending no longer; returns how many those are."""
        if not self._exists():
            return 0
        with self._session(create=False) as db, self._transaction(db):
            return owned.close_gone(db, cluster, pending)

    def reclaim(self, cluster: str, pending: Iterable[PendingJob], at: float) -> list[JobKey]:
        """Own again the jobs that were missing from a look, and those that carry a value from
        before they were requeued, or from before they were parted from their array.

        A requeued job keeps its directly set priority, its site factor and its OverSubscribe flag,
        under a new submit time. It is known by its id together with exactly the value that rltuned
        wrote last; a task that became a record of its own, by its array's. Of one whose site factor
        does not show it is not known whether it has one. Returns: the job of each value.
        """
        if self.is_blank():
            return []
        with self._session(create=False) as db, self._transaction(db):
            return owned.reclaim(db, cluster, pending, at)

    def record(self, row: CycleRow) -> None:
        with self._session(create=True) as db, self._transaction(db):
            cycles.record(db, row)

    def pack(self, cluster: str, holder: str, term: int) -> Handover:
        """What rltuned holds of a cluster, for another daemon to go on with."""
        with self._session(create=True) as db:
            return handover.pack(db, cluster, holder, term)

    def unpack(self, given: Handover) -> None:
        """Go on with what another daemon held."""
        with self._session(create=True) as db, self._transaction(db):
            handover.unpack(db, given)

    def leave(self, cluster: str) -> None:
        """Hold nothing of a cluster any more: another daemon has taken it over."""
        if self._exists():
            with self._session(create=False) as db, self._transaction(db):
                owned.forget(db, cluster)

    def is_lost(self) -> bool:
        """Whether it is empty, or missing where rltuned wrote to Slurm: its lock file tells."""
        try:
            left = (self.path, self.path.with_name(LOCK_NAME))
            return not self.is_there() and any(file.exists() for file in left)
        except (OSError, JournalError):
            return False  # the caller that opens it reports what is wrong

    def is_there(self) -> bool:
        """Whether there is a journal, however unfit; an empty file is none."""
        return is_there(self.path)

    def claim(self) -> None:
        self._lock.take()

    def let_go(self) -> None:
        """Be the writer no longer, so that `rltuned restore` may be."""
        self._lock.drop()

    def close(self) -> None:
        self._lock.drop()
        if self._db is not None:
            self._db.close()
            self._db = None

    def _exists(self) -> bool:
        """Whether there is a journal to ask. Raises JournalLostError: it is another, or none any
        more.
        """
        if self._damage:
            raise JournalLostError(self._damage)
        found = self._found()
        if self._place is None:
            return found is not None and self.is_there()
        if found is None:
            raise JournalLostError(
                f"{self.path}: was deleted or moved while it was in use; {REMEDY}"
            )
        if found != self._place:
            raise JournalLostError(f"{self.path}: is another file than the one in use; {REMEDY}")
        return True

    def _found(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()  # a link is no journal, wherever it leads
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        return status.st_dev, status.st_ino

    def _ask(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What the file answers; `nothing` when there is no journal yet."""
        if not self._exists():
            return nothing
        with self._session(create=False) as db:
            return question(db)

    def _examine(self, now: float) -> None:
        """Once a day the whole file; at the start `connect` has done so."""
        if self._examined_at is not None and 0 <= now - self._examined_at < DAY_S:
            return
        if self._examined_at is not None:
            try:
                check_whole(self.path)
            except (JournalLostError, sqlite3.Error) as error:
                self._damage = f"{self.path}: is damaged: {error}"
                raise JournalLostError(self._damage) from None
        self._examined_at = now

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if not self.is_there():
            if self._place is not None:
                raise JournalLostError(f"{self.path}: is missing, and was there before; {REMEDY}")
            if create and self._outside is not None:
                self._outside.remove()
        db = connect(self.path, create=create)
        try:
            left = None if self._outside is None else self._outside.read()
            if left is not None:
                why = "is an older copy, or has lost its end: what rltuned wrote last is not in it"
                check_mark(self.path, mark_of(db), left, why)
            place = self._found()
            self._place = self._place or place
            self._exists()
        except JournalError:
            db.close()
            raise
        except (sqlite3.Error, ValueError) as error:
            db.close()
            raise JournalError(f"{self.path}: {error}") from None
        return db

    @contextmanager
    def _session(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        self._exists()
        if self._db is None:
            self._db = self._open(create=create)
        try:
            self._same(self._db)
            yield self._db
        except sqlite3.Error as error:
            self._db.close()
            self._db = None  # the next use opens and checks it again
            raise JournalError(f"{self.path}: {error}") from None

    def _same(self, db: sqlite3.Connection) -> None:
        """Compare the last intent with what this process knows; another may have written since."""
        noted = mark_of(db)
        if self._mark is not None:
            check_mark(self.path, noted, self._mark, "does not hold what was written last")
        self._mark = noted

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        """All of it or nothing: the connection commits at the end and rolls back on any error."""
        db.execute("BEGIN IMMEDIATE")
        with db:
            yield
