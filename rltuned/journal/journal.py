"""What rltuned did to whom: durable before it is done, so that every change can be undone.

One SQLite file (synchronous=FULL). A write is noted with its intent, then carried out, then
its outcome is noted; a crash in between leaves an intent without an outcome, which counts as done.
Needs neither the daemon nor torch. The tables are in cycles, changes and states.
"""

import math
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from rltuned.domain.fields import Field
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobKey
from rltuned.errors import JournalError, JournalLostError
from rltuned.journal import changes, cycles, handover, mark, named_values
from rltuned.journal.cycles import CycleObservation, CycleRow
from rltuned.journal.handover import Handover
from rltuned.journal.owned import Ledger
from rltuned.journal.ownership import Claim
from rltuned.journal.retention import note_ended, rotate, shrink
from rltuned.journal.snapshots import FILE_NAME, Keeping
from rltuned.journal.storage import WriterLock, connect
from rltuned.journal.trust import REMEDY, Trust

LOCK_NAME: Final = "writer.lock"
DAY_S: Final = 86_400.0

T = TypeVar("T")

Ticket = tuple[int, ...]
"""Row ids of noted intents, one per action of the plan, in its order."""


class Journal:
    """The diary of one state folder. Opened at first use, and again after an error.

    Every method raises JournalError when the file cannot be used, `intend` and `claim` also when
    another process is the writer; then nothing may be written. A value to be remembered that is no
    JSON is a TypeError or ValueError.

    marks: a folder elsewhere for a second mark, see there; None = only the folder's own.
    """

    def __init__(
        self, folder: Path, keeping: Keeping | None = None, marks: Path | None = None
    ) -> None:
        self.path = folder / FILE_NAME
        self._outside = None if marks is None else mark.outside(marks, self.path)
        self._keeping = keeping or Keeping()
        self._lock = WriterLock(folder / LOCK_NAME)
        self._trust = Trust(self.path)
        self._ledger = Ledger()
        self._examined_at: float | None = None
        self._db: sqlite3.Connection | None = None

    def owned(self, cluster: str) -> Mapping[JobKey, Ownership]:
        """What `Snapshot.marked` wants to know; not to be kept, as it changes with the file."""
        return self._ask(lambda db: self._ledger.owned(db, cluster), {})

    def claims(self, cluster: str) -> tuple[Claim, ...]:
        """What jobs of this cluster may still carry, by job id: words first, last number last."""
        return self._ask(lambda db: changes.claims(db, cluster), ())

    def missed(self, cluster: str, since: float) -> tuple[Claim, ...]:
        """The same of jobs that have left the queue, and that Slurm has shown since then."""
        return self._ask(lambda db: changes.missed(db, cluster, since), ())

    def recent_writes(
        self, cluster: str, since: float, until: float = math.inf
    ) -> Mapping[JobKey, int]:
        """How often each job of this cluster was written to since then, numbers and words. until:
        what is noted for later counts then; the clock was ahead.
        """
        return self._ask(lambda db: self._ledger.recent(db, cluster, since, until), {})

    def words(self, cluster: str, field: Field) -> Mapping[JobKey, tuple[str, str]]:
        """Of a field of words: what jobs had before rltuned, and what it wrote last; as `owned`."""
        return self._ask(lambda db: self._ledger.words(db, cluster, field), {})

    def is_clean(self) -> bool:
        """Whether nothing owned can be in any queue, nor come back when a job is requeued."""
        return self._ask(lambda db: not changes.may_bring_back(db), nothing=True)

    def is_blank(self) -> bool:
        """Whether nothing was ever written to a job, or all of that is cleared out."""
        return self._ask(changes.is_empty, nothing=True)

    def last_cycle(self) -> int:
        """Number of the last cycle noted; 0 = none."""
        return self._ask(cycles.last_cycle, 0)

    def carrying(self, *, but: str = "") -> tuple[str, ...]:
        """Addresses of jobs that may still carry something owned. but: not of this cluster."""
        return self._ask(lambda db: changes.carrying(db, but=but), ())

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
        if not self._is_there() and change(None) is None:
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
        with self._session(create=True) as db:
            self._examine(sight.at)
            with self._transaction(db):
                digest = cycles.keep(db, sight)
                note_ended(db, sight.snapshot.cluster, sight.snapshot.known_ids(), sight.at)
                rotate(db, self._keeping, sight.snapshot.cluster, sight.at)
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
            "cluster": cluster, "cycle": cycle, "at": at, "snapshot": snapshot, "newest_id": newest,
        }  # fmt: skip
        with self._session(create=True) as db:
            self._trust.check()
            with self._transaction(db):
                ticket = tuple(changes.insert(db, action, origin) for action in plan.actions)
                reached = mark.advance(db, at)
            mark.leave(self.path, reached)
            if self._outside is not None:
                mark.leave_outside(self._outside, self.path, reached)
        self._ledger.touch(changes.keys_of(plan.actions))
        return ticket

    def settle(self, ticket: Ticket, outcomes: Iterable[Outcome], *, at: float) -> None:
        outcomes = tuple(outcomes)
        self._ledger.touch(changes.keys_of(o.action for o in outcomes))
        with self._session(create=True) as db, self._transaction(db):
            for row, outcome in zip(ticket, outcomes, strict=True):
                changes.settle(db, row, outcome, at)

    def close_gone(self, cluster: str, pending: Collection[JobKey]) -> int:
        """Close the rows of jobs that are pending no longer; returns how many jobs that were."""
        if not self._is_there():
            return 0
        with self._session(create=False) as db:
            gone = {key for key in self._ledger.held(db, cluster) if key not in pending}
        if gone:
            self._ledger.touch(gone)
            with self._session(create=True) as db, self._transaction(db):
                for key in gone:
                    changes.leave(db, cluster, *key)
        return len(gone)

    def reclaim(self, cluster: str, pending: Iterable[PendingJob], at: float) -> list[JobKey]:
        """Take up again the jobs that were missing from a look, and those that carry a value from
        before they were requeued, or from before they were parted from their array.

        A requeued job keeps its directly set priority, its site factor and its OverSubscribe flag,
        under a new submit time. It is known by its id together with exactly the value that rltuned
        wrote last; a task that became a record of its own, by its array's. Of one whose site factor
        does not show it is not known whether it has one. Returns: the job of each value.
        """
        if self.is_blank():
            return []
        pending = tuple(pending)
        with self._session(create=False) as db:
            held = self._ledger.held(db, cluster)
            strange = {j.key for j in pending if j.owned is None and j.key not in held}
            taken = changes.left_before(db, cluster, strange)
            back = set(taken)
            carrying = [j for j in pending if j.key not in back and changes.may_carry(j)]
            carrying = changes.written_to(db, cluster, carrying)
        odd = [j for j in pending if j.taken_over and j.site_factor is not None]
        if not taken and not carrying and not odd:
            return []
        with self._session(create=True) as db, self._transaction(db):
            changes.come_back(db, cluster, taken)
            taken += [job.key for job in odd if changes.settle_hidden(db, cluster, job)]
            for job in carrying:
                taken += [job.key] * changes.reclaim(db, cluster, job, at)
        self._ledger.touch(taken)
        return taken

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
            handover.unpack(db, given, cycles.last_cycle(db))
        self._ledger.forget()

    def leave(self, cluster: str) -> None:
        """Hold nothing of a cluster any more: another daemon has taken it over."""
        if self._is_there():
            with self._session(create=False) as db, self._transaction(db):
                handover.leave(db, cluster)
            self._ledger.forget()

    def is_lost(self) -> bool:
        """Whether it is missing or empty where rltuned wrote to Slurm: its other files tell."""
        signs = (self.path.with_name(LOCK_NAME), mark.mark_path(self.path))
        try:
            return not self.is_there() and any(sign.exists() for sign in signs)
        except (OSError, JournalError):
            return False  # the caller that opens it reports what is wrong

    def is_there(self) -> bool:
        """Whether there is a journal, however unfit; an empty file is none."""
        try:
            found = self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        return found.st_size > 0 or not stat.S_ISREG(found.st_mode)

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

    def _is_there(self) -> bool:
        there = self._trust.check_place()
        if not there:
            self._check_never()
        return there

    def _check_never(self) -> None:
        """Raises JournalLostError: there is none, and there was one."""
        if not self.is_there() and mark.mark_path(self.path).exists():
            raise JournalLostError(f"{self.path}: is missing, and was there before; {REMEDY}")

    def _ask(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What the file answers; `nothing` when there is no journal yet."""
        if not self._is_there():
            return nothing
        with self._session(create=False) as db:
            return question(db)

    def _examine(self, now: float) -> None:
        """Once a day the whole file; at the start `connect` has done so."""
        if self._examined_at is not None and not 0 <= now - self._examined_at < DAY_S:
            self._trust.examine()
            self._examined_at = now
        self._examined_at = now if self._examined_at is None else self._examined_at

    def _open(self, *, create: bool) -> sqlite3.Connection:
        self._check_never()
        if create and self._outside is not None and not self.is_there():
            with suppress(OSError):
                self._outside.unlink()  # of a journal that is gone; whoever begins anew has seen it
        db = connect(self.path, create=create)
        try:
            mark.check(self.path, db)
            if self._outside is not None:
                mark.check_outside(self._outside, self.path, db)
            self._trust.opened()
        except JournalError:
            db.close()
            raise
        except (sqlite3.Error, ValueError) as error:
            db.close()
            raise JournalError(f"{self.path}: {error}") from None
        self._ledger.forget()
        return db

    @contextmanager
    def _session(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        self._trust.check_place()
        if self._db is None:
            self._db = self._open(create=create)
        try:
            if self._ledger.is_stale(self._db):
                self._trust.written(self._db)  # by another process, or before this one
            yield self._db
        except sqlite3.Error as error:
            self._db.close()
            self._db = None  # the next use opens and checks it again
            raise JournalError(f"{self.path}: {error}") from None

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        """All of it or nothing: the connection commits at the end and rolls back on any error."""
        db.execute("BEGIN IMMEDIATE")
        with db:
            yield
        self._trust.written(db)
