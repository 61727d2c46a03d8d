"""The journal's table of OverSubscribe flags, which are words and not numbers as the rest is.

A row is open while its job is pending and may still carry the flag that we set.
"""

import sqlite3
from collections.abc import Collection
from typing import Final, NamedTuple

from rltuned.daemon.claims import JobKey, Origin
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE_TOKENS,
    Outcome,
    Result,
    SetOverSubscribe,
    Target,
)
from rltuned.domain.units import JobId, UnixTime

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
    """What we hold of one job: Slurm's own word before our first write, and the one we set."""

    cluster: str
    job_id: JobId
    submitted_at: UnixTime
    address: str
    original: str
    value: str
    written_at: UnixTime

    @property
    def key(self) -> JobKey:
        return self.job_id, self.submitted_at

    @property
    def field(self) -> str:
        return "oversubscribe"

    @property
    def target(self) -> Target:
        return Target(self.job_id, self.submitted_at, self.address)

    def undo(self, job: PendingJob) -> SetOverSubscribe | str:
        """What takes it back as far as Slurm lets us, or why nothing does."""
        if job.oversubscribe != self.value:
            return f"OverSubscribe is {job.oversubscribe}, we wrote {self.value}"
        if self.original not in OVERSUBSCRIBE_TOKENS:
            return f"OverSubscribe={self.original} cannot be set"
        target = Target(job.job_id, job.submitted_at, job.address)
        return SetOverSubscribe(target, self.value, self.original)


def insert(
    db: sqlite3.Connection,
    action: SetOverSubscribe,
    origin: Origin,
) -> int:
    """Note an intent; returns its row id."""
    target = action.target
    cursor = db.execute(
        "INSERT INTO flags (cycle, at, cluster, job_id, submitted_at, address, old, new,"
        " snapshot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            origin.cycle, origin.at, origin.cluster, target.job_id, target.submitted_at,
            target.address, action.old, action.new, origin.snapshot,
        ),
    )  # fmt: skip
    return cursor.lastrowid or 0


def settle(db: sqlite3.Connection, row: int, outcome: Outcome, at: float) -> None:
    """Note what came of it; a flag that is back at its first word is ours no longer."""
    db.execute(
        "UPDATE flags SET result = ?, detail = ?, finished_at = ? WHERE id = ?",
        (outcome.result.value, outcome.detail, at, row),
    )
    cluster, job_id, submitted_at, new = db.execute(
        "SELECT cluster, job_id, submitted_at, new FROM flags WHERE id = ?", (row,)
    ).fetchone()
    first = db.execute(
        "SELECT old FROM flags WHERE closed IS NULL AND cluster = ? AND job_id = ?"
        " AND submitted_at = ? ORDER BY id LIMIT 1",
        (cluster, job_id, submitted_at),
    ).fetchone()
    if outcome.result is Result.REFUSED:
        db.execute("UPDATE flags SET closed = 'refused' WHERE id = ?", (row,))
    elif outcome.result is Result.GONE:
        close(db, "gone", cluster, (job_id, submitted_at))
    elif outcome.result is Result.APPLIED and first == (new,):
        close(db, "restored", cluster, (job_id, submitted_at))


def close(db: sqlite3.Connection, how: str, cluster: str, key: JobKey) -> None:
    """A job carries nothing of ours any more."""
    db.execute(
        "UPDATE flags SET closed = ? WHERE closed IS NULL AND cluster = ? AND job_id = ?"
        " AND submitted_at = ?",
        (how, cluster, *key),
    )


def open_flags(db: sqlite3.Connection, cluster: str) -> tuple[Flag, ...]:
    """Every job of the cluster that may still carry a flag of ours, by job id."""
    rows = db.execute(
        "SELECT job_id, submitted_at, address, old, new, at FROM flags"
        " WHERE closed IS NULL AND cluster = ? ORDER BY job_id, submitted_at, id",
        (cluster,),
    ).fetchall()
    found: dict[tuple[int, float], Flag] = {}
    for job_id, submitted_at, address, old, new, at in rows:
        first = found.get((job_id, submitted_at))
        original = first.original if first else old
        found[job_id, submitted_at] = Flag(
            cluster,
            JobId(job_id),
            UnixTime(submitted_at),
            address,
            original,
            new,
            UnixTime(at),
        )
    return tuple(found.values())


def carried(job: PendingJob) -> bool:
    """Whether a job carries a flag that may be ours."""
    return job.oversubscribe == "YES"


def reclaim(db: sqlite3.Connection, cluster: str, job: PendingJob, at: float) -> bool:
    """Take up again a job that was requeued with a flag of ours, under a new submit time."""
    cursor = db.execute(
        "INSERT INTO flags (cycle, at, cluster, job_id, submitted_at, address, old, new, result,"
        " finished_at, detail, snapshot)"
        " SELECT last.cycle, last.at, last.cluster, last.job_id, ?2, ?3, first.old, last.new,"
        " 'applied', ?1, 'requeued', last.snapshot FROM flags AS last"
        " JOIN flags AS first ON first.cluster = last.cluster AND first.job_id = last.job_id"
        " AND first.submitted_at = last.submitted_at"
        " WHERE last.id = (SELECT max(id) FROM flags WHERE cluster = ?4 AND job_id = ?5"
        " AND submitted_at < ?2) AND last.new = ?6"
        " AND (last.closed IS NULL OR last.closed = 'gone')"
        " AND NOT EXISTS (SELECT 1 FROM flags WHERE cluster = ?4 AND job_id = ?5"
        " AND submitted_at = ?2) ORDER BY first.id LIMIT 1",
        (at, job.submitted_at, job.address, cluster, job.job_id, job.oversubscribe),
    )
    return bool(cursor.rowcount)


def close_gone(db: sqlite3.Connection, cluster: str, pending: Collection[JobKey]) -> None:
    """Close the flags of jobs that are pending no longer."""
    for flag in open_flags(db, cluster):
        if flag.key not in pending:
            close(db, "gone", cluster, flag.key)
