"""The journal's table of changes: what was written to each job, in whatever field.

A row is open while its job may still carry something owned. `old` and `new` are numbers in the
fields priority and site_factor, words in the others. A release has the field `release`, and NULL as
`new`.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from rltuned.domain.fields import (
    FIELDS,
    NICE,
    OWNED,
    SITE_FACTOR,
    STORED,
    Action,
    Field,
    Value,
)
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.journal import array_splits, ownership

KEPT: Final = 8
"""Latest open rows that are kept of each job and field, besides the first."""
NUMBERS: Final = frozenset(f.stored for f in FIELDS if not f.words)
"""Fields whose values are numbers."""
_IN_VAIN: Final = frozenset({Result.REFUSED, Result.WITHHELD, Result.FAILED})
_TRIABLE: Final = frozenset({None, Result.REFUSED, Result.WITHHELD})
"""What closed a row whose words may still be tried once more."""
_OWNED: Final = tuple(OWNED.values())
_HOUR_S: Final = 3_600.0
_ONE: Final = " AND job_id = ? AND submitted_at = ?"

_Job = tuple[str, int, float]
"""Cluster, job id and submit time."""


def keys_of(actions: Iterable[Action]) -> set[JobKey]:
    """The jobs of these actions."""
    return {a.target.key for a in actions}


def insert(db: sqlite3.Connection, action: Action, cycle: Mapping[str, Any]) -> int:
    """Note an intent, refused words tried again in their old row; returns its row id. cycle: the
    columns of its cycle and cluster.
    """
    row = {**_values_of(action), **cycle}
    again = _try_again(db, row) if action.field.words else None
    return put(db, row) if again is None else again


def put(db: sqlite3.Connection, row: Mapping[str, object]) -> int:
    """Add a row, by column; returns its id."""
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    cursor = db.execute(f"INSERT INTO changes ({names}) VALUES ({marks})", row)  # noqa: S608 - fixed names
    return cursor.lastrowid or 0


def _values_of(action: Action) -> dict[str, Any]:
    """What an action changes and of which job, by column."""
    where = action.target
    row = {
        "job_id": where.job_id, "submitted_at": where.submitted_at, "address": where.address,
        "field": action.field.stored, "old": action.old,
    }  # fmt: skip
    if action.field is NICE:
        return {**row, "nice": action.new, "only_nice": True}
    new = None if action.field.releases else action.new
    return {**row, "new": new, "nice": action.nice, "rest": action.rest}


def _try_again(db: sqlite3.Connection, row: Mapping[str, Any]) -> int | None:
    """Open the row of the last try again, if that was the same and came to nothing; its id."""
    last = db.execute(
        "SELECT id, new, result, closed, at, tries FROM changes WHERE cluster = :cluster"
        " AND job_id = :job_id AND submitted_at = :submitted_at AND field = :field"
        " ORDER BY id DESC LIMIT 1",
        row,
    ).fetchone()
    if last is None or last[1] != row["new"]:
        return None
    number, _, result, closed, at, tries = last
    if result not in _IN_VAIN or closed not in _TRIABLE:
        return None
    counted = tries if result == Result.WITHHELD else tries + 1
    db.execute(
        "UPDATE changes SET cycle = :cycle, at = :at, address = :address,"
        " old = iif(closed IS NULL, old, :old), snapshot = :snapshot, tries = :tries,"
        " result = NULL, detail = '', finished_at = NULL, closed = NULL WHERE id = :number",
        {**row, "number": number, "tries": counted if row["at"] - at < _HOUR_S else 1},
    )
    return int(number)


def claims(
    db: sqlite3.Connection, cluster: str, key: JobKey | None = None, which: str = "closed IS NULL"
) -> tuple[ownership.Claim, ...]:
    """What jobs may still carry of what was written, last number last. key: None = of all jobs."""
    rows = db.execute(
        "SELECT cluster, job_id, submitted_at, address, field, old, new, nice, rest, at"  # noqa: S608 - fixed names
        f" FROM changes WHERE {which} AND cluster = ?{_ONE if key else ''}"
        " ORDER BY job_id, submitted_at, id",
        (cluster, *(key or ())),
    ).fetchall()
    groups = groupby(map(ownership.OpenRow._make, rows), key=lambda r: (r.job_id, r.submitted_at))
    return tuple(claim for _, group in groups for claim in ownership.sum_up(tuple(group)))


def missed(db: sqlite3.Connection, cluster: str, since: float) -> tuple[ownership.Claim, ...]:
    """The same of jobs that have left the queue, and that Slurm has shown since then."""
    lately = f"closed = 'gone' AND new IS NOT NULL AND ifnull(ended_at, {since!r}) >= {since!r}"
    return claims(db, cluster, which=lately)


def times(
    db: sqlite3.Connection, cluster: str, since: float, key: JobKey | None = None
) -> list[tuple[JobKey, float]]:
    """When each job was written to since then, once per try. key: of this job; None = of all."""
    rows = db.execute(
        "SELECT job_id, submitted_at, at, tries FROM changes"  # noqa: S608 - fixed names
        # by the job where there is one: the plus keeps the index over time out
        f" WHERE {'+' if key else ''}cluster = ? AND at >= ?{_ONE if key else ''}"
        " AND field != 'release' AND new NOT IN ('', 'NO') AND detail NOT IN ('requeued', ?)"
        " AND ifnull(result, '') != 'withheld'",
        (cluster, since, *(key or ()), array_splits.HOW),
    ).fetchall()
    return [
        ((JobId(job_id), UnixTime(submitted)), at)
        for job_id, submitted, at, tries in rows
        for _ in range(tries)
    ]


def carrying(db: sqlite3.Connection, *, but: str = "") -> tuple[str, ...]:
    """Addresses of the jobs with open rows. but: the cluster whose jobs do not count."""
    rows = db.execute(
        "SELECT DISTINCT job_id, address FROM changes WHERE closed IS NULL AND cluster != ?"
        " ORDER BY job_id, address",
        (but,),
    )
    return tuple(address for _, address in rows.fetchall())


def may_bring_back(db: sqlite3.Connection) -> bool:
    """Whether a job carries something owned, or left the queue with it and may be requeued."""
    (found,) = db.execute(
        "SELECT EXISTS (SELECT 1 FROM changes INDEXED BY open_changes"
        " WHERE closed IS NULL AND new IS NOT NULL)"
        " OR EXISTS (SELECT 1 FROM changes INDEXED BY gone_changes"
        " WHERE closed = 'gone' AND new IS NOT NULL)"
    ).fetchone()
    return bool(found)


def may_carry(job: PendingJob) -> bool:
    """Whether it shows, or may hide, a value that no row of the journal explains."""
    return bool(carried(job) or hides(job) or array_splits.lost_with_it(job))


def carried(job: PendingJob) -> tuple[tuple[Field, Value], ...]:
    """Fields in which a job shows a value that no row of the journal explains, and the values."""
    # a plain loop, as this is asked of every job of a cycle
    return tuple([(field, value) for field in _OWNED if (value := field.carried(job)) is not None])


def reclaim(db: sqlite3.Connection, cluster: str, job: PendingJob, at: float) -> int:
    """Take up again what a requeued or parted job carries under a new submit time; how many."""
    shown = carried(job)
    taken = [value for value in shown if _requeued(db, cluster, job, value, at)]
    number = next((value for value in shown if value[0].orders), None)
    if number is not None and number in taken:
        return len(taken)
    if array_splits.adopt(db, cluster, job, number, at):
        return len(taken) + 1
    hidden = hides(job) and _requeued_unseen(db, cluster, job, at)
    return len(taken) + hidden


_TAKEN_UP: Final = ("requeued", array_splits.HOW)
"""What the diary says of rows that were taken up while the number was hidden."""


def settle_hidden(db: sqlite3.Connection, cluster: str, job: PendingJob) -> bool:
    """Keep the one of several values that a job may have hidden, now that it shows it; whether that
    changes anything.
    """
    mine = "cluster = ? AND job_id = ? AND submitted_at = ? AND field = ?"
    key = (cluster, job.job_id, job.submitted_at, SITE_FACTOR.name)
    rows = db.execute(f"SELECT id, new, detail FROM changes WHERE {mine} ORDER BY id", key)  # noqa: S608
    known = rows.fetchall()
    right = [row for row, new, _ in known if new == job.site_factor]
    if len(known) < 2 or not right or any(how not in _TAKEN_UP for _, _, how in known):  # noqa: PLR2004
        return False
    db.execute(f"DELETE FROM changes WHERE {mine} AND id != ?", (*key, right[-1]))  # noqa: S608
    return True


def hides(job: PendingJob) -> bool:
    """Whether it may have a site factor that Slurm does not show, and no row explains it."""
    return job.site_factor is None and job.owned is None


def _requeued_unseen(db: sqlite3.Connection, cluster: str, job: PendingJob, at: float) -> bool:
    """A job that was requeued hides its site factor for two minutes, or while it is held: what it
    had when it left the queue may still be on it.
    """
    cursor = db.execute(
        "INSERT INTO changes (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, rest, result, finished_at, detail, snapshot)"
        " SELECT cycle, at, cluster, job_id, :submitted, :address, field, old, new, nice, rest,"
        " 'applied', :at, 'requeued', snapshot FROM changes"
        " WHERE (closed IS NULL OR closed = 'gone')"
        " AND +cluster = :cluster AND job_id = :job AND field = :field"
        " AND submitted_at = (SELECT max(submitted_at) FROM changes WHERE +cluster = :cluster"
        " AND job_id = :job AND submitted_at < :submitted)"
        " AND NOT EXISTS (SELECT 1 FROM changes WHERE cluster = :cluster AND job_id = :job"
        " AND field = :field AND submitted_at = :submitted) ORDER BY id",
        {
            "job": job.job_id, "submitted": job.submitted_at, "address": job.address, "at": at,
            "cluster": cluster, "field": SITE_FACTOR.name,
        },
    )  # fmt: skip
    return cursor.rowcount > 0


def _requeued(
    db: sqlite3.Connection, cluster: str, job: PendingJob, shown: tuple[Field, Value], at: float
) -> bool:
    """Words that a task took along from its array count as well; array_splits has the numbers."""
    field, value = shown
    cursor = db.execute(
        "INSERT INTO changes (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, rest, result, finished_at, detail, snapshot)"
        " SELECT last.cycle, last.at, last.cluster, :job, :submitted, :address, last.field,"
        " first.old, last.new, first.nice, first.rest, 'applied', :at,"
        " iif(last.job_id = :job, 'requeued', :how), last.snapshot"
        " FROM changes AS last JOIN changes AS first ON first.cluster = last.cluster"
        " AND first.job_id = last.job_id AND first.submitted_at = last.submitted_at"
        " AND first.field = last.field AND (first.closed IS NULL OR first.closed = 'gone')"
        # by the job: the plus keeps the index over time out
        " WHERE last.id = (SELECT max(id) FROM changes WHERE +cluster = :cluster AND field = :field"
        " AND (job_id = :job AND submitted_at < :submitted"
        " OR job_id = :array AND submitted_at <= :submitted))"
        " AND last.new = :value AND (last.closed IS NULL OR last.closed = 'gone')"
        " AND NOT EXISTS (SELECT 1 FROM changes WHERE cluster = :cluster AND job_id = :job"
        " AND field = :field AND submitted_at = :submitted) ORDER BY first.id LIMIT 1",
        {
            "job": job.job_id, "submitted": job.submitted_at, "address": job.address, "at": at,
            "array": array_splits.array_of(job) if field.words else None,
            "cluster": cluster, "field": field.name, "value": value, "how": array_splits.HOW,
        },
    )  # fmt: skip
    return bool(cursor.rowcount)


def settle(db: sqlite3.Connection, row: int, outcome: Outcome, at: float) -> None:
    """Note what came of an intent; close what is gone, restored or refused."""
    result, is_release = outcome.result, outcome.action.field.releases
    *key, field, new = db.execute(
        "UPDATE changes SET result = ?, detail = ?, finished_at = ? WHERE id = ?"
        " RETURNING cluster, job_id, submitted_at, field, new",
        (result.value, outcome.detail, at, row),
    ).fetchone()
    job: _Job = (key[0], key[1], key[2])
    if result is Result.GONE:
        leave(db, *job)
    elif result is Result.APPLIED and is_release:
        _close(db, "released", job, ("priority", "release"))
    elif result in {Result.REFUSED, Result.WITHHELD} or is_release:
        db.execute("UPDATE changes SET closed = ? WHERE id = ?", (result.value, row))
    elif result is Result.APPLIED and field != "priority" and _first_old(db, job, field) == new:
        _close(db, "restored", job, (field,))
    _close_superseded(db, job, field)


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether nothing was ever written, or all of it is cleared out."""
    (found,) = db.execute("SELECT EXISTS (SELECT 1 FROM changes)").fetchone()
    return not found


def left_before(db: sqlite3.Connection, cluster: str, jobs: Collection[JobKey]) -> list[JobKey]:
    """Those of these jobs that have left the queue."""
    rows = db.execute(
        "SELECT DISTINCT job_id, submitted_at FROM changes INDEXED BY gone_changes"
        " WHERE closed = 'gone' AND cluster = ? AND job_id IN (SELECT value FROM json_each(?))",
        (cluster, json.dumps([job_id for job_id, _ in jobs])),
    ).fetchall()
    return [key for job_id, at in rows if (key := (JobId(job_id), UnixTime(at))) in jobs]


def come_back(db: sqlite3.Connection, cluster: str, jobs: Iterable[JobKey]) -> None:
    """Open their rows again: a job with the same id and submit time is the same job."""
    db.executemany(
        "UPDATE changes SET closed = NULL, ended_at = NULL WHERE closed = 'gone' AND cluster = ?"
        " AND job_id = ? AND submitted_at = ?",
        [(cluster, *key) for key in jobs],
    )


def written_to(
    db: sqlite3.Connection, cluster: str, jobs: Collection[PendingJob]
) -> list[PendingJob]:
    """Those under whose id, or that of whose array, anything was ever written."""
    ids = {job.job_id: array_splits.array_of(job) or job.job_id for job in jobs}
    rows = db.execute(
        "SELECT DISTINCT job_id FROM changes WHERE +cluster = ?"
        " AND job_id IN (SELECT value FROM json_each(?))",
        (cluster, json.dumps([*{*ids, *ids.values()}])),
    ).fetchall()
    known = {job_id for (job_id,) in rows}
    return [job for job in jobs if not known.isdisjoint((job.job_id, ids[job.job_id]))]


def leave(db: sqlite3.Connection, cluster: str, job_id: int, submitted_at: float) -> None:
    """A job left the queue: a requeue needs the first row of each field and the last."""
    _close(db, "gone", (cluster, job_id, submitted_at), STORED)
    ours = "closed = 'gone' AND cluster = :cluster AND job_id = :job AND submitted_at = :submitted"
    db.execute(
        f"UPDATE changes SET closed = 'superseded' WHERE {ours} AND id NOT IN"  # noqa: S608 - fixed names
        f" (SELECT min(id) FROM changes WHERE {ours} GROUP BY field"
        f" UNION SELECT max(id) FROM changes WHERE {ours} GROUP BY field)",
        {"cluster": cluster, "job": job_id, "submitted": submitted_at},
    )


def _first_old(db: sqlite3.Connection, job: _Job, field: str) -> int | str | None:
    """What was in force before rltuned's first open write; None = there is none."""
    found = db.execute(
        "SELECT old FROM changes WHERE closed IS NULL AND cluster = ? AND job_id = ?"
        " AND submitted_at = ? AND field = ? ORDER BY id LIMIT 1",
        (*job, field),
    ).fetchone()
    return None if found is None else found[0]


def _close(db: sqlite3.Connection, how: str, job: _Job, fields: tuple[str, ...]) -> None:
    db.execute(
        "UPDATE changes SET closed = ? WHERE closed IS NULL AND cluster = ? AND job_id = ?"  # noqa: S608 - fixed names
        f" AND submitted_at = ? AND field IN ({', '.join('?' * len(fields))})",
        (how, *job, *fields),
    )


def _close_superseded(db: sqlite3.Connection, job: _Job, field: str) -> None:
    """Keep the first and the last few open rows of a field: backfill puts back old values."""
    ours = (
        "closed IS NULL AND cluster = :cluster AND job_id = :job AND submitted_at = :submitted"
        " AND field = :field"
    )
    db.execute(
        f"UPDATE changes SET closed = 'superseded' WHERE id IN (SELECT id FROM changes WHERE {ours}"  # noqa: S608 - fixed names
        " ORDER BY id DESC LIMIT -1 OFFSET :kept)"
        f" AND id != (SELECT min(id) FROM changes WHERE {ours})",
        {"cluster": job[0], "job": job[1], "submitted": job[2], "field": field, "kept": KEPT},
    )
