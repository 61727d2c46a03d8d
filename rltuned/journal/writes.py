"""The journal's table of numbers written: priorities, site factors, and releases.

A row is open while its job may still carry something of ours.
"""

import sqlite3
from itertools import groupby
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    Outcome,
    Release,
    Result,
    SetNice,
    SetPriority,
    SetSiteFactor,
)
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal import array_splits
from rltuned.journal.ownership import Claim, JobKey, OpenWrite, Origin, sum_up

KEPT: Final = 8
"""Latest open writes that are kept of each job and field, besides the first."""

Number = SetPriority | SetSiteFactor | Release | SetNice
"""The actions that this table is about."""
_ONE: Final = " AND job_id = ? AND submitted_at = ?"
_EVERY_FIELD: Final = ("priority", "site_factor", "release")


def insert(db: sqlite3.Connection, action: Number, origin: Origin) -> int:
    """Note an intent; returns its row id."""
    field, new, nice = _columns(action)
    target = action.target
    cursor = db.execute(
        "INSERT INTO writes (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, rest, snapshot, only_nice, newest_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            origin.cycle, origin.at, origin.cluster, target.job_id, target.submitted_at,
            target.address, field, action.old, new, nice,
            action.rest if isinstance(action, SetPriority) else None, origin.snapshot,
            isinstance(action, SetNice), origin.newest,
        ),
    )  # fmt: skip
    return cursor.lastrowid or 0


def open_claims(
    db: sqlite3.Connection, cluster: str, key: JobKey | None = None
) -> tuple[Claim, ...]:
    """What jobs of this cluster may still carry of ours: by job id, last written field last.

    key: of this job alone; None = of all.
    """
    rows = db.execute(
        "SELECT cluster, job_id, submitted_at, address, field, old, new, nice, rest, at FROM writes"  # noqa: S608 - ours
        f" WHERE closed IS NULL AND cluster = ?{_ONE if key else ''}"
        " ORDER BY job_id, submitted_at, id",
        (cluster, *(key or ())),
    ).fetchall()
    groups = groupby(map(OpenWrite._make, rows), key=lambda r: (r.job_id, r.submitted_at))
    return tuple(claim for _, group in groups for claim in sum_up(tuple(group)))


def times(
    db: sqlite3.Connection, cluster: str, since: float, key: JobKey | None = None
) -> list[tuple[JobKey, float]]:
    """When each job was written to since then, whatever came of it.

    Left out are releases, and what was never sent. key: of this job alone; None = of all.
    """
    rows = db.execute(
        "SELECT job_id, submitted_at, at FROM writes"  # noqa: S608 - ours
        # by the job where there is one: the plus keeps the index over time out
        f" WHERE {'+' if key else ''}cluster = ? AND at >= ?{_ONE if key else ''}"
        " AND field != 'release' AND detail NOT IN ('requeued', ?)"
        " AND ifnull(result, '') != 'withheld'",
        (cluster, since, *(key or ()), array_splits.HOW),
    ).fetchall()
    return [((JobId(job_id), UnixTime(submitted)), at) for job_id, submitted, at in rows]


def settle(db: sqlite3.Connection, row: int, outcome: Outcome, at: float) -> None:
    """Note what came of an intent, and close what is no longer ours."""
    db.execute(
        "UPDATE writes SET result = ?, detail = ?, finished_at = ? WHERE id = ?",
        (outcome.result.value, outcome.detail, at, row),
    )
    _close_settled(db, row, outcome)
    _close_superseded(db, row)


def reclaim(db: sqlite3.Connection, cluster: str, job: PendingJob, at: float) -> bool:
    """Take up again a job that carries a value of ours from before it was requeued, or from the
    array that it was parted from.
    """
    field = carried(job)
    requeued = field is not None and _requeued(db, cluster, job, field, at)
    return requeued or array_splits.adopt(db, cluster, job, field, at)


def may_carry(job: PendingJob) -> bool:
    """Whether `reclaim` could find something."""
    return carried(job) is not None or bool(array_splits.lost_with_it(job))


def _requeued(db: sqlite3.Connection, cluster: str, job: PendingJob, field: str, at: float) -> bool:
    value = job.priority if field == "priority" else job.site_factor
    cursor = db.execute(
        "INSERT INTO writes (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, rest, result, finished_at, detail, snapshot)"
        " SELECT last.cycle, last.at, last.cluster, last.job_id, ?2, ?3, last.field, first.old,"
        " last.new, first.nice, first.rest, 'applied', ?1, 'requeued', last.snapshot"
        " FROM writes AS last JOIN writes AS first ON first.cluster = last.cluster"
        " AND first.job_id = last.job_id"
        " AND first.submitted_at = last.submitted_at AND first.field = last.field"
        " AND (first.closed IS NULL OR first.closed = 'gone')"
        " WHERE last.id = (SELECT max(id) FROM writes WHERE cluster = ?4 AND job_id = ?5"
        " AND field = ?6 AND submitted_at < ?2) AND last.new = ?7"
        " AND (last.closed IS NULL OR last.closed = 'gone')"
        " ORDER BY first.id LIMIT 1",
        (at, job.submitted_at, job.address, cluster, job.job_id, field, value),
    )
    return bool(cursor.rowcount)


def carried(job: PendingJob) -> str | None:
    """The field in which a job carries a value without our knowing whose it is."""
    if job.owned is not None or job.priority == 0:
        return None
    # sprio does not show a job that may not start yet, as one just requeued may not
    if job.fixed or job.site_factor is None:
        return "priority"
    return "site_factor" if job.site_factor else None


def close_gone(db: sqlite3.Connection, cluster: str, key: JobKey) -> None:
    """A job is pending no longer."""
    _leave(db, (cluster, *key))


def _columns(action: Number) -> tuple[str, int | None, int | None]:
    match action:
        case SetPriority():
            return "priority", action.new, action.nice
        case SetSiteFactor():
            return "site_factor", action.new, None
        case Release():
            return "release", None, action.nice
        case SetNice():
            return "release", None, action.new


_Job = tuple[str, int, float]


def _close_settled(db: sqlite3.Connection, row: int, outcome: Outcome) -> None:
    """A job that is gone or given back is ours no longer; a refused write never happened."""
    action, result = outcome.action, outcome.result
    job: _Job = db.execute(
        "SELECT cluster, job_id, submitted_at FROM writes WHERE id = ?", (row,)
    ).fetchone()
    if result is Result.GONE:
        _leave(db, job)
    elif result is Result.APPLIED and isinstance(action, Release | SetNice):
        _close(db, "released", job, ("priority", "release"))
    elif result in {Result.REFUSED, Result.WITHHELD} or isinstance(action, Release | SetNice):
        db.execute("UPDATE writes SET closed = ? WHERE id = ?", (result.value, row))
    elif result is Result.APPLIED and isinstance(action, SetSiteFactor):
        first = db.execute(
            "SELECT old FROM writes WHERE closed IS NULL AND cluster = ? AND job_id = ?"
            " AND submitted_at = ? AND field = 'site_factor' ORDER BY id LIMIT 1",
            job,
        ).fetchone()
        if first == (action.new,):
            _close(db, "restored", job, ("site_factor",))


def _leave(db: sqlite3.Connection, job: _Job) -> None:
    """Of what left the queue with a job, a requeue needs the first row of a field and the last."""
    _close(db, "gone", job, _EVERY_FIELD)
    db.execute(
        "UPDATE writes SET closed = 'superseded' WHERE closed = 'gone' AND cluster = ?1"
        " AND job_id = ?2 AND submitted_at = ?3 AND id NOT IN (SELECT min(id) FROM writes WHERE"
        " closed = 'gone' AND cluster = ?1 AND job_id = ?2 AND submitted_at = ?3 GROUP BY field"
        " UNION SELECT max(id) FROM writes WHERE closed = 'gone' AND cluster = ?1 AND job_id = ?2"
        " AND submitted_at = ?3 GROUP BY field)",
        job,
    )


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
        (row, KEPT, row),
    )
