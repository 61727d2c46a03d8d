"""Tasks that Slurm has parted from their array since rltuned wrote to it.

A task that starts, that a user holds or changes on its own, becomes a record with an id of its own,
and takes along what the array carried: a number or site factor of rltuned, the nice that it
cleared. The journal has that under the array's id, so it is taken up again under the task's.
"""

import sqlite3
from collections.abc import Mapping
from typing import Final, NamedTuple

from rltuned.domain.fields import PRIORITY, SITE_FACTOR, Field, Value
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId

HOW: Final = "parted from its array"
"""What the diary says of a row that was taken up here."""

_INTO: Final = (
    "INSERT INTO changes (cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice,"
    " rest, result, finished_at, detail, snapshot, newest_id)"
    " SELECT cycle, at, cluster, :job, :submitted, :address, field, :original, new, nice, rest,"
    " 'applied', :at, :how, snapshot, newest_id FROM changes WHERE id = :row"
)
_OF_ARRAY: Final = (
    "SELECT id, old, new, nice, closed, newest_id FROM changes WHERE cluster = :cluster"
    " AND job_id = :array AND submitted_at <= :submitted AND field = :field"
    " AND ifnull(result, '') NOT IN ('refused', 'withheld') ORDER BY id"
)
_KNOWN: Final = (
    "SELECT EXISTS (SELECT 1 FROM changes WHERE cluster = :cluster AND job_id = :job"
    " AND submitted_at = :submitted)"
)


class _Written(NamedTuple):
    """One write to an array. original: what it had before the first write since its last restore.
    newest_id: of the first such write, the highest job id then.
    """

    row: int
    original: Value
    new: Value | None
    nice: int
    is_closed: bool
    newest_id: int

    @property
    def restores(self) -> bool:
        return self.new == self.original


def _written(db: sqlite3.Connection, known: Mapping[str, object]) -> list[_Written]:
    found: list[_Written] = []
    for row, old, new, nice, closed, newest in db.execute(_OF_ARRAY, known):
        last = found[-1] if found and not found[-1].restores else None
        original, since = (old, newest or 0) if last is None else (last.original, last.newest_id)
        is_closed = closed not in {None, "gone"}
        found.append(_Written(row, original, new, nice or 0, is_closed, since))
    return found


def array_of(job: PendingJob) -> JobId | None:
    """The array that a record was parted from; None = it is no task, or the array's own record."""
    if job.array is None or job.array.array_job_id == job.job_id:
        return None
    return job.array.array_job_id


def lost_with_it(job: PendingJob) -> tuple[Field, ...]:
    """Fields in which a task may have lost, or may hide, something owned that shows no value."""
    if array_of(job) is None or job.owned is not None:
        return ()
    without_nice = job.nice == 0 and job.live
    hidden = job.site_factor is None
    return (*((PRIORITY,) if without_nice else ()), *((SITE_FACTOR,) if hidden else ()))


def adopt(
    db: sqlite3.Connection,
    cluster: str,
    job: PendingJob,
    number: tuple[Field, Value] | None,
    at: float,
) -> bool:
    """Take up again what a task carries of its array's. number: field and value that it shows."""
    array = array_of(job)
    if array is None:
        return False
    known = {
        "cluster": cluster, "job": job.job_id, "array": array, "submitted": job.submitted_at,
        "address": job.address, "at": at,
    }  # fmt: skip
    (is_known,) = db.execute(_KNOWN, known).fetchone()
    if is_known:
        return False
    taken: list[_Written] = []
    if number is not None:
        field, value = number
        written = _written(db, {**known, "field": field.name})
        taken = [one for one in written if one.new == value and not one.restores][-1:]
    if not taken:
        # only of a record that is younger than a write: an older one has a nice of its own
        for field in lost_with_it(job):
            written = _written(db, {**known, "field": field.name})
            younger = [one for one in written if one.newest_id < job.job_id]
            if field is PRIORITY:
                younger = [one for one in younger if one.nice and not one.is_closed][-1:]
            taken = taken or younger
    for one in taken:
        db.execute(_INTO, {**known, "row": one.row, "original": one.original, "how": HOW})
    return bool(taken)
