"""The journal's table of what is words and not numbers: OverSubscribe, and excluded nodes.

rltuned excludes no nodes any more; what an older release excluded is given back from here.
A row is open while its job is pending and may still carry the words that we set.
"""

import sqlite3
from collections.abc import Collection
from typing import Final, NamedTuple

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE_TOKENS,
    Outcome,
    Result,
    SetExcludedNodes,
    SetOverSubscribe,
    Target,
)
from rltuned.domain.units import JobId, NodeName, UnixTime
from rltuned.journal import array_splits
from rltuned.journal.ownership import JobKey, Origin

OVERSUBSCRIBE: Final = "oversubscribe"
EXCLUDED_NODES: Final = "excluded_nodes"
"""Names of the fields, in the table and for people."""
_IN_VAIN: Final = frozenset({Result.REFUSED, Result.WITHHELD, Result.FAILED})
_TRIABLE: Final = frozenset({None, Result.REFUSED, Result.WITHHELD})
"""What closed a row whose words may still be tried once more."""
_HOUR_S: Final = 3_600.0
_ONE: Final = " AND job_id = ? AND submitted_at = ?"
SCHEMA: Final = """
CREATE TABLE flags (
    id INTEGER PRIMARY KEY,
    cycle INTEGER NOT NULL,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    address TEXT NOT NULL,
    old TEXT NOT NULL,
    new TEXT NOT NULL,
    result TEXT,
    detail TEXT NOT NULL DEFAULT '',
    finished_at REAL,
    closed TEXT
) STRICT;
CREATE INDEX open_flags ON flags (cluster, job_id, submitted_at) WHERE closed IS NULL;
"""


class Flag(NamedTuple):
    """What we hold of one job in a field of words: Slurm's before our first write, and ours."""

    cluster: str
    job_id: JobId
    submitted_at: UnixTime
    address: str
    original: str
    value: str
    written_at: UnixTime
    field: str = OVERSUBSCRIBE

    @property
    def key(self) -> JobKey:
        return self.job_id, self.submitted_at

    @property
    def target(self) -> Target:
        return Target(self.job_id, self.submitted_at, self.address)

    def undo(self, job: PendingJob) -> SetOverSubscribe | SetExcludedNodes | str:
        """What takes it back as far as Slurm lets us, or why nothing does."""
        if self.field == EXCLUDED_NODES:
            return self._undo_excluded(job)
        if job.oversubscribe != self.value:
            return f"OverSubscribe is {job.oversubscribe}, we wrote {self.value}"
        if self.original not in OVERSUBSCRIBE_TOKENS:
            return f"OverSubscribe={self.original} cannot be set"
        target = Target(job.job_id, job.submitted_at, job.address)
        return SetOverSubscribe(target, self.value, self.original)

    def _undo_excluded(self, job: PendingJob) -> SetExcludedNodes | str:
        if words_of(job.excluded_nodes) != self.value:
            actual = words_of(job.excluded_nodes) or "empty"
            return f"ExcNodeList is {actual}, we wrote {self.value or 'nothing'}"
        target = Target(job.job_id, job.submitted_at, job.address)
        return SetExcludedNodes(target, nodes_of(self.value), nodes_of(self.original))


def words_of(nodes: Collection[NodeName]) -> str:
    """Nodes as the table holds them: equal sets, equal words."""
    return ",".join(sorted(nodes))


def nodes_of(words: str) -> tuple[NodeName, ...]:
    """What `words_of` was made from, by name."""
    return tuple(NodeName(name) for name in words.split(",") if name)


def insert(
    db: sqlite3.Connection, action: SetOverSubscribe | SetExcludedNodes, origin: Origin
) -> int:
    """Note an intent; returns its row id.

    Words that Slurm did not take, tried again, stay one row: a job may wait for long with them.
    """
    field, old, new = _columns(action)
    target = action.target
    again = _try_again(db, action, origin)
    if again is not None:
        return again
    cursor = db.execute(
        "INSERT INTO flags (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " snapshot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            origin.cycle, origin.at, origin.cluster, target.job_id, target.submitted_at,
            target.address, field, old, new, origin.snapshot,
        ),
    )  # fmt: skip
    return cursor.lastrowid or 0


def _try_again(
    db: sqlite3.Connection, action: SetOverSubscribe | SetExcludedNodes, origin: Origin
) -> int | None:
    """Open the row of the last try anew, if that was the same and came to nothing; its id."""
    field, old, new = _columns(action)
    target = action.target
    last = db.execute(
        "SELECT id, new, result, closed, at, tries FROM flags WHERE cluster = ? AND job_id = ?"
        " AND submitted_at = ? AND field = ? ORDER BY id DESC LIMIT 1",
        (origin.cluster, target.job_id, target.submitted_at, field),
    ).fetchone()
    if last is None or last[1] != new or last[2] not in _IN_VAIN or last[3] not in _TRIABLE:
        return None
    row, _, result, _, at, tries = last
    counted = tries if result == Result.WITHHELD else tries + 1
    db.execute(
        "UPDATE flags SET cycle = ?, at = ?, address = ?, old = iif(closed IS NULL, old, ?),"
        " snapshot = ?, tries = ?, result = NULL, detail = '', finished_at = NULL, closed = NULL"
        " WHERE id = ?",
        (
            origin.cycle, origin.at, target.address, old, origin.snapshot,
            counted if origin.at - at < _HOUR_S else 1, row,
        ),
    )  # fmt: skip
    return int(row)


def _columns(action: SetOverSubscribe | SetExcludedNodes) -> tuple[str, str, str]:
    """Field, old words and new words of an action."""
    if isinstance(action, SetExcludedNodes):
        return EXCLUDED_NODES, words_of(action.old), words_of(action.new)
    return OVERSUBSCRIBE, action.old, action.new


def settle(db: sqlite3.Connection, row: int, outcome: Outcome, at: float) -> None:
    """Note what came of it; words that are back at the first ones are ours no longer."""
    db.execute(
        "UPDATE flags SET result = ?, detail = ?, finished_at = ? WHERE id = ?",
        (outcome.result.value, outcome.detail, at, row),
    )
    cluster, job_id, submitted_at, field, new = db.execute(
        "SELECT cluster, job_id, submitted_at, field, new FROM flags WHERE id = ?", (row,)
    ).fetchone()
    first = db.execute(
        "SELECT old FROM flags WHERE closed IS NULL AND cluster = ? AND job_id = ?"
        " AND submitted_at = ? AND field = ? ORDER BY id LIMIT 1",
        (cluster, job_id, submitted_at, field),
    ).fetchone()
    if outcome.result in {Result.REFUSED, Result.WITHHELD}:
        closed = outcome.result.value
        db.execute("UPDATE flags SET closed = ? WHERE id = ?", (closed, row))
    elif outcome.result is Result.GONE:
        _leave(db, cluster, (job_id, submitted_at))
    elif outcome.result is Result.APPLIED and first == (new,):
        db.execute(
            "UPDATE flags SET closed = 'restored' WHERE closed IS NULL AND cluster = ?"
            " AND job_id = ? AND submitted_at = ? AND field = ?",
            (cluster, job_id, submitted_at, field),
        )


def open_flags(db: sqlite3.Connection, cluster: str, key: JobKey | None = None) -> tuple[Flag, ...]:
    """What every job of the cluster may still carry of ours: by job id, one per field.

    key: of this job alone; None = of all.
    """
    rows = db.execute(
        "SELECT job_id, submitted_at, field, address, old, new, at FROM flags"  # noqa: S608 - ours
        f" WHERE closed IS NULL AND cluster = ?{_ONE if key else ''}"
        " ORDER BY job_id, submitted_at, field, id",
        (cluster, *(key or ())),
    ).fetchall()
    found: dict[tuple[int, float, str], Flag] = {}
    for job_id, submitted_at, field, address, old, new, at in rows:
        first = found.get((job_id, submitted_at, field))
        found[job_id, submitted_at, field] = Flag(
            cluster,
            JobId(job_id),
            UnixTime(submitted_at),
            address,
            first.original if first else old,
            new,
            UnixTime(at),
            field,
        )
    return tuple(found.values())


def times(
    db: sqlite3.Connection, cluster: str, since: float, key: JobKey | None = None
) -> list[tuple[JobKey, float]]:
    """When words of each job were set since then, once per try; not their way back.

    key: of this job alone; None = of all.
    """
    rows = db.execute(
        "SELECT job_id, submitted_at, at, tries FROM flags"  # noqa: S608 - ours
        # by the job where there is one: the plus keeps the index over time out
        f" WHERE {'+' if key else ''}cluster = ? AND at >= ?{_ONE if key else ''}"
        " AND new NOT IN ('', 'NO') AND detail NOT IN ('requeued', ?)"
        " AND ifnull(result, '') != 'withheld'",
        (cluster, since, *(key or ()), array_splits.HOW),
    ).fetchall()
    return [
        ((JobId(job_id), UnixTime(submitted)), at)
        for job_id, submitted, at, tries in rows
        for _ in range(tries)
    ]


def has_any(db: sqlite3.Connection, cluster: str) -> bool:
    """Whether words were ever set for jobs of this cluster, as far as is still known."""
    (found,) = db.execute(
        "SELECT EXISTS (SELECT 1 FROM flags WHERE cluster = ?)", (cluster,)
    ).fetchone()
    return bool(found)


def has_steered(db: sqlite3.Connection) -> bool:
    """Whether nodes that we excluded may be in any queue, or come back with a requeued job."""
    (found,) = db.execute(
        "SELECT EXISTS (SELECT 1 FROM flags WHERE field = ?"
        " AND (closed IS NULL OR closed = 'gone'))",
        (EXCLUDED_NODES,),
    ).fetchone()
    return bool(found)


def carried(job: PendingJob) -> tuple[tuple[str, str], ...]:
    """Fields of a job that may hold words of ours, and the words."""
    flag = ((OVERSUBSCRIBE, "YES"),) if job.oversubscribe == "YES" else ()
    nodes = words_of(job.excluded_nodes)
    return (*flag, (EXCLUDED_NODES, nodes)) if nodes else flag


def reclaim(db: sqlite3.Connection, cluster: str, job: PendingJob, at: float) -> bool:
    """Take up again a job that was requeued with words of ours, under a new submit time, or parted
    from an array with them.
    """
    return sum(_reclaim(db, cluster, job, at, *words) for words in carried(job)) > 0


def _reclaim(db: sqlite3.Connection, cluster: str, job: PendingJob, at: float, *words: str) -> bool:
    array = array_splits.array_of(job)
    cursor = db.execute(
        "INSERT INTO flags (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " result, finished_at, detail, snapshot)"
        " SELECT last.cycle, last.at, last.cluster, ?5, ?2, ?3, last.field, first.old,"
        " last.new, 'applied', ?1, iif(last.job_id = ?5, 'requeued', ?9), last.snapshot"
        " FROM flags AS last"
        " JOIN flags AS first ON first.cluster = last.cluster AND first.job_id = last.job_id"
        " AND first.submitted_at = last.submitted_at AND first.field = last.field"
        " AND (first.closed IS NULL OR first.closed = 'gone')"
        " WHERE last.id = (SELECT max(id) FROM flags WHERE cluster = ?4 AND field = ?6"
        " AND (job_id = ?5 AND submitted_at < ?2 OR job_id = ?8 AND submitted_at <= ?2))"
        " AND last.new = ?7"
        " AND (last.closed IS NULL OR last.closed = 'gone')"
        " AND NOT EXISTS (SELECT 1 FROM flags WHERE cluster = ?4 AND job_id = ?5"
        " AND field = ?6 AND submitted_at = ?2) ORDER BY first.id LIMIT 1",
        (at, job.submitted_at, job.address, cluster, job.job_id, *words, array, array_splits.HOW),
    )
    return bool(cursor.rowcount)


def close_gone(db: sqlite3.Connection, cluster: str, pending: Collection[JobKey]) -> None:
    """Close the rows of jobs that are pending no longer."""
    for flag in open_flags(db, cluster):
        if flag.key not in pending:
            _leave(db, cluster, flag.key)


def _leave(db: sqlite3.Connection, cluster: str, key: JobKey) -> None:
    """A job left the queue; a requeue would bring back what it carries."""
    db.execute(
        "UPDATE flags SET closed = 'gone' WHERE closed IS NULL AND cluster = ? AND job_id = ?"
        " AND submitted_at = ?",
        (cluster, *key),
    )
