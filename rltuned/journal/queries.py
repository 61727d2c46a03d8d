"""What the journal knows of a job, and of the last cycle. Only reads, also while a daemon writes.

What is kept and cannot be read is a JournalError.
"""

import re
import sqlite3
from typing import Any, NamedTuple

from rltuned.domain.context import Context
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.cycles import Document, unpack_plan
from rltuned.journal.snapshots import unpack
from rltuned.slurm.job_selector import AskedJob, asked_job


class JobChange(NamedTuple):
    """One change to a job. at: intended; finished_at: None = its outcome was never seen. new: None
    for a release. result: None = the process ended in between. mode, policy: "" = a restore, or
    cleared out. reason: None = not kept.
    """

    cycle: int
    at: float
    cluster: str
    job_id: int
    submitted_at: float
    address: str
    field: str
    old: int | str
    new: int | str | None
    nice: int | None
    result: str | None
    detail: str
    finished_at: float | None
    snapshot: str | None
    mode: str
    policy: str
    reason: Document | None

    @property
    def delay_s(self) -> float | None:
        return None if self.reason is None else self.reason.get("delay_s")


_CHANGES = """
SELECT w.cycle, w.at, w.cluster, job_id, submitted_at, address, field, old, new, nice,
    result, detail, finished_at, w.snapshot,
    CASE WHEN w.snapshot IS NULL THEN '' ELSE ifnull(c.mode, '') END AS mode,
    CASE WHEN w.snapshot IS NULL THEN '' ELSE ifnull(c.policy, '') END AS policy, p.body
FROM diary AS w LEFT JOIN cycles AS c ON c.cycle = w.cycle
LEFT JOIN plans AS p ON p.cycle = w.cycle AND w.snapshot IS NOT NULL AND c.mode = 'live'
"""
_OF_JOB = " WHERE job_id = ? OR address GLOB ? OR address GLOB ?"

_TASK = re.compile(r"[1-9][0-9]*_[0-9]+")


def changes_of(db: sqlite3.Connection, asked: AskedJob) -> list[JobChange]:
    """Every change to a job that is still kept, the oldest first; a task that has a number of its
    own is found by that too, with what its array's record had.
    """
    found = _changes(db, asked)
    names = {c.address for c in found if c.job_id == asked.job_id and _TASK.fullmatch(c.address)}
    own = {(c.cluster, c.submitted_at) for c in found}
    for name in sorted(names - {asked.text}):
        more = [c for c in _changes(db, asked_job(name)) if (c.cluster, c.submitted_at) in own]
        found += [c for c in more if c not in found]
    return sorted(found, key=lambda c: (c.at, c.cycle))


def latest(db: sqlite3.Connection, count: int) -> tuple[JobChange, ...]:
    """So many of the last changes to any job, the latest first."""
    rows = db.execute(f"{_CHANGES} ORDER BY id DESC LIMIT ?", (count,)).fetchall()
    return tuple(map(_change, rows))


def _changes(db: sqlite3.Connection, asked: AskedJob) -> list[JobChange]:
    prefixes = (asked.job_id, f"{asked.job_id}[_]*", f"{asked.job_id}+*")
    rows = db.execute(_CHANGES + _OF_JOB, prefixes).fetchall()
    changes = (_change(row) for row in rows if asked.named(row[3], row[5]))
    return [change for change in changes if asked.is_on(change.cluster)]


def _change(row: tuple[Any, ...]) -> JobChange:
    *values, body = row
    reason = None if body is None else unpack_plan(body)["reasons"].get(str(row[3]))
    return JobChange._make((*values, reason))


def last_seen(db: sqlite3.Connection) -> tuple[Snapshot, Context] | None:
    """What the last cycle saw; None = none is kept. Raises SnapshotError."""
    row = db.execute(
        "SELECT digest, body, taken_at FROM cycles JOIN snapshots ON digest = snapshot"
        " ORDER BY cycle DESC LIMIT 1"
    ).fetchone()
    return None if row is None else unpack(*row)
