"""What rltuned did to whom: durable before it is done, so that every change can be undone.

One SQLite file (WAL, synchronous=FULL). A write is noted with its intent, then carried out, then
its outcome is noted; a crash in between leaves an intent without an outcome, which counts as ours.
Needs neither the daemon nor torch. A row is open while its job may still carry something of ours.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from rltuned.daemon import flags
from rltuned.daemon.claims import Claim, JobKey, OpenWrite, sum_up
from rltuned.daemon.store import WriterLock, connect
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import (
    Action,
    Outcome,
    Plan,
    Release,
    Result,
    SetOverSubscribe,
    SetPriority,
    SetSiteFactor,
)
from rltuned.errors import JournalError

FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = "writer.lock"

KEPT_WRITES: Final = 8
"""Latest open writes that are kept of each job and field, besides the first."""
KEEP_S: Final = 90 * 86_400.0
"""How long cycles and closed writes are kept."""
PRUNE_EVERY: Final = 1_000
"""Cycles from one clearing out to the next."""


@dataclass(frozen=True, slots=True)
class CycleRow:
    """One line of the diary."""

    cycle: int
    at: float
    cluster: str
    mode: str
    skipped: str
    policy: str
    pending: int
    chosen: int
    proposed: int
    applied: int
    seconds: float


Ticket = tuple[int, ...]
"""Row ids of noted intents, one per action of the plan, in its order; those of flags negative."""


class Journal:
    """The diary of one state folder. Opened at first use, and again after an error.

    Every method raises JournalError when the file cannot be used; then nothing may be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._lock = WriterLock(folder / LOCK_NAME)
        self._db: sqlite3.Connection | None = None

    def owned(self, cluster: str) -> Mapping[JobKey, Ownership]:
        """What `Snapshot.marked` wants to know; empty when there is no journal yet."""
        return {c.key: c.owned for c in self.claims(cluster)}

    def claims(self, cluster: str) -> tuple[Claim, ...]:
        """What jobs of this cluster may still carry of ours: by job id, last written field last."""
        if not self._is_there():
            return ()
        with self._session(create=False) as db:
            rows = db.execute(
                "SELECT cluster, job_id, submitted_at, address, field, old, new, nice FROM writes"
                " WHERE closed IS NULL AND cluster = ? ORDER BY job_id, submitted_at, id",
                (cluster,),
            ).fetchall()
        groups = groupby(map(OpenWrite._make, rows), key=lambda r: (r.job_id, r.submitted_at))
        return tuple(claim for _, group in groups for claim in sum_up(tuple(group)))

    def flags(self, cluster: str) -> tuple[flags.Flag, ...]:
        """OverSubscribe flags that jobs of this cluster may still carry of ours."""
        if not self._is_there():
            return ()
        with self._session(create=False) as db:
            return flags.open_flags(db, cluster)

    def is_clean(self) -> bool:
        """Whether nothing of ours can be in any queue: no job carries something, and none has left
        the queue with something that it would bring back when it is requeued.
        """
        if not self._is_there():
            return True
        with self._session(create=False) as db:
            (found,) = db.execute(
                "SELECT count(*) FROM (SELECT 1 FROM writes WHERE new IS NOT NULL"
                " AND (closed IS NULL OR closed = 'gone')"
                " UNION ALL SELECT 1 FROM flags WHERE closed IS NULL LIMIT 1)"
            ).fetchone()
        return not found

    def last_cycle(self) -> int:
        """Number of the last cycle noted; 0 = none."""
        if not self._is_there():
            return 0
        with self._session(create=False) as db:
            (number,) = db.execute(
                "SELECT max(ifnull((SELECT max(cycle) FROM cycles), 0),"
                " ifnull((SELECT max(cycle) FROM writes), 0))"
            ).fetchone()
        return int(number)

    def probe(self) -> None:
        """Find out whether intents could be noted, leaving nothing behind in the diary.

        Raises:
            JournalError: they could not.
        """
        with self._session(create=True) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")

    def intend(self, plan: Plan, *, cluster: str, cycle: int, at: float) -> Ticket:
        """Note what is about to be written. When this returns, it is on the disk.

        Raises:
            JournalError: it is not, or another process is the writer; do not write.
        """
        self._lock.take()
        with self._session(create=True) as db, _transaction(db):
            return tuple(_insert(db, a, cluster, cycle, at) for a in plan.actions)

    def settle(self, ticket: Ticket, outcomes: Iterable[Outcome], *, at: float) -> None:
        """Note what came of it, and close what is no longer ours."""
        with self._session(create=True) as db, _transaction(db):
            for row, outcome in zip(ticket, outcomes, strict=True):
                if row < 0:
                    flags.settle(db, -row, outcome, at)
                    continue
                db.execute(
                    "UPDATE writes SET result = ?, detail = ?, finished_at = ? WHERE id = ?",
                    (outcome.result.value, outcome.detail, at, row),
                )
                _close_settled(db, row, outcome)
                _close_superseded(db, row)

    def close_gone(self, cluster: str, pending: Collection[JobKey]) -> int:
        """Close the rows of jobs that are pending no longer; returns how many jobs that were."""
        gone = {c.key for c in self.claims(cluster) if c.key not in pending}
        lost = {f.key for f in self.flags(cluster) if f.key not in pending}
        if lost:
            with self._session(create=True) as db, _transaction(db):
                flags.close_gone(db, cluster, pending)
        if gone:
            with self._session(create=True) as db, _transaction(db):
                for job_id, submitted_at in gone:
                    _close(db, "gone", (cluster, job_id, submitted_at), _EVERY_FIELD)
        return len(gone | lost)

    def reclaim(self, cluster: str, pending: Iterable[PendingJob], at: float) -> int:
        """Take up again the jobs that carry a value of ours from before they were requeued.

        A requeued job keeps its directly set priority and its site factor, under a new submit
        time. It is known by its id together with exactly the value that we wrote last.

        Returns:
            How many jobs that were.
        """
        carrying = [found for job in pending if (found := _carried(job)) is not None]
        if not carrying or not self._is_there():
            return 0
        with self._session(create=True) as db, _transaction(db):
            return sum(_reclaim(db, cluster, job, field, at) for job, field in carrying)

    def record(self, row: CycleRow) -> None:
        """Note one cycle, and now and then clear out what is old."""
        names = ", ".join(CycleRow.__dataclass_fields__)
        marks = ", ".join("?" * len(CycleRow.__dataclass_fields__))
        with self._session(create=True) as db:
            db.execute(
                f"INSERT OR REPLACE INTO cycles ({names}) VALUES ({marks})",  # noqa: S608 - ours
                astuple(row),
            )
            if row.cycle % PRUNE_EVERY == 0:
                old = row.at - KEEP_S
                db.execute("DELETE FROM cycles WHERE at < ?", (old,))
                db.execute("DELETE FROM writes WHERE closed IS NOT NULL AND at < ?", (old,))

    def let_go(self) -> None:
        """Be the writer no longer, so that `rltuned restore` may be."""
        self._lock.drop()

    def close(self) -> None:
        self._lock.drop()
        if self._db is not None:
            self._db.close()
            self._db = None

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None

    @contextmanager
    def _session(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        if self._db is None:
            self._db = connect(self.path, create=create)
        try:
            yield self._db
        except sqlite3.Error as error:
            self._db.close()
            self._db = None  # the next use opens and checks it again
            raise JournalError(f"{self.path}: {error}") from None


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing: the connection commits at the end and rolls back on any error."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield


def _insert(db: sqlite3.Connection, action: Action, cluster: str, cycle: int, at: float) -> int:
    if isinstance(action, SetOverSubscribe):
        return -flags.insert(db, action, cluster, cycle, at)
    field, new, nice = _columns(action)
    target = action.target
    cursor = db.execute(
        "INSERT INTO writes (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            cycle, at, cluster, target.job_id, target.submitted_at, target.address, field,
            action.old, new, nice,
        ),
    )  # fmt: skip
    return cursor.lastrowid or 0


def _columns(action: SetPriority | SetSiteFactor | Release) -> tuple[str, int | None, int | None]:
    match action:
        case SetPriority():
            return "priority", action.new, action.nice
        case SetSiteFactor():
            return "site_factor", action.new, None
        case Release():
            return "release", None, action.nice


def _carried(job: PendingJob) -> tuple[PendingJob, str] | None:
    """A job that carries a value, in which field, without our knowing whose it is."""
    if job.owned is not None or job.priority == 0:
        return None
    # sprio does not show a job that may not start yet, as one just requeued may not
    if job.fixed or job.site_factor is None:
        return job, "priority"
    return (job, "site_factor") if job.site_factor else None


def _reclaim(db: sqlite3.Connection, cluster: str, job: PendingJob, field: str, at: float) -> int:
    value = job.priority if field == "priority" else job.site_factor
    cursor = db.execute(
        "INSERT INTO writes (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, result, finished_at, detail)"
        " SELECT last.cycle, ?1, last.cluster, last.job_id, ?2, ?3, last.field, first.old,"
        " last.new, first.nice, 'applied', ?1, 'requeued' FROM writes AS last"
        " JOIN writes AS first ON first.cluster = last.cluster AND first.job_id = last.job_id"
        " AND first.submitted_at = last.submitted_at AND first.field = last.field"
        " WHERE last.id = (SELECT max(id) FROM writes WHERE cluster = ?4 AND job_id = ?5"
        " AND field = ?6 AND submitted_at < ?2) AND last.new = ?7"
        " AND (last.closed IS NULL OR last.closed = 'gone')"
        " ORDER BY first.id LIMIT 1",
        (at, job.submitted_at, job.address, cluster, job.job_id, field, value),
    )
    return cursor.rowcount


def _close_settled(db: sqlite3.Connection, row: int, outcome: Outcome) -> None:
    """A job that is gone or given back is ours no longer; a refused write never happened."""
    action, result = outcome.action, outcome.result
    job: _Job = db.execute(
        "SELECT cluster, job_id, submitted_at FROM writes WHERE id = ?", (row,)
    ).fetchone()
    if result is Result.GONE:
        _close(db, "gone", job, _EVERY_FIELD)
    elif result is Result.APPLIED and isinstance(action, Release):
        _close(db, "released", job, ("priority", "release"))
    elif result is Result.REFUSED or isinstance(action, Release):
        db.execute("UPDATE writes SET closed = ? WHERE id = ?", (result.value, row))
    elif result is Result.APPLIED and isinstance(action, SetSiteFactor):
        first = db.execute(
            "SELECT old FROM writes WHERE closed IS NULL AND cluster = ? AND job_id = ?"
            " AND submitted_at = ? AND field = 'site_factor' ORDER BY id LIMIT 1",
            job,
        ).fetchone()
        if first == (action.new,):
            _close(db, "restored", job, ("site_factor",))


_Job = tuple[str, int, float]
_EVERY_FIELD = ("priority", "site_factor", "release")


def _close(db: sqlite3.Connection, how: str, job: _Job, fields: tuple[str, ...]) -> None:
    for field in fields:
        db.execute(
            "UPDATE writes SET closed = ? WHERE closed IS NULL AND cluster = ? AND job_id = ?"
            " AND submitted_at = ? AND field = ?",
            (how, *job, field),
        )


def _close_superseded(db: sqlite3.Connection, row: int) -> None:
    """Keep of a job's open writes the first and the last few, however long it waits.

    Backfill puts back what was in force when its own pass began, minutes ago at most.
    """
    db.execute(
        "UPDATE writes SET closed = 'superseded' WHERE id IN (SELECT old.id FROM writes AS old"
        " JOIN writes AS new ON new.id = ? AND old.cluster = new.cluster"
        " AND old.job_id = new.job_id AND old.submitted_at = new.submitted_at"
        " AND old.field = new.field WHERE old.closed IS NULL ORDER BY old.id DESC"
        " LIMIT -1 OFFSET ?) AND id != (SELECT min(first.id) FROM writes AS first"
        " JOIN writes AS new ON new.id = ? AND first.cluster = new.cluster"
        " AND first.job_id = new.job_id AND first.submitted_at = new.submitted_at"
        " AND first.field = new.field WHERE first.closed IS NULL)",
        (row, KEPT_WRITES, row),
    )
