"""Tasks that Slurm has parted from their array since rltuned wrote to it.

A task that starts, that a user holds or changes on its own, becomes a record with an id of its own,
and takes along what the array carried: a number or site factor of rltuned, the nice that it
cleared. The journal has that under the array's id, so it is taken up again under the task's.
"""

import sqlite3
from typing import Final

from rltuned.domain.fields import PRIORITY, SITE_FACTOR, Field, Value
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId

HOW: Final = "parted from its array"
"""What the diary says of a row that was taken up here."""

_INTO: Final = (
    "INSERT INTO changes (cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice,"
    " rest, result, finished_at, detail, snapshot, newest_id)"
)
_EARLIEST: Final = (
    "(SELECT {column} FROM changes AS first WHERE first.cluster = last.cluster"
    " AND first.job_id = last.job_id AND first.submitted_at = last.submitted_at"
    " AND first.field = last.field{which} ORDER BY first.id LIMIT 1)"
)
_IN_FORCE: Final = " AND (first.closed IS NULL OR first.closed = 'gone')"
_ORIGINAL: Final = (
    f"ifnull({_EARLIEST.format(column='old', which=_IN_FORCE)},"
    f" {_EARLIEST.format(column='old', which='')})"
)
"""Of an array that was restored since, what it had before the very first write."""
_SELECT: Final = (
    " SELECT last.cycle, last.at, last.cluster, :job, :submitted, :address, last.field,"  # noqa: S608
    f" {_ORIGINAL}, last.new, last.nice, last.rest, 'applied',"
    f" :at, '{HOW}', last.snapshot, last.newest_id FROM changes AS last"
    " WHERE last.cluster = :cluster AND last.job_id = :array AND last.submitted_at <= :submitted"
    " AND last.field = :field AND ifnull(last.result, '') NOT IN ('refused', 'withheld')"
    " AND NOT EXISTS (SELECT 1 FROM changes WHERE cluster = :cluster AND job_id = :job"
    " AND submitted_at = :submitted)"
)
_NUMBER: Final = f"{_INTO}{_SELECT} AND last.new = :value ORDER BY last.id DESC LIMIT 1"
_LOST: Final = (
    f"{_INTO}{_SELECT} AND (last.closed IS NULL OR last.closed = 'gone')"
    f" AND {_EARLIEST.format(column='newest_id', which=_IN_FORCE)} < :job"
    " AND ifnull(last.nice, 0) != 0 ORDER BY last.id DESC LIMIT 1"
)
_UNSEEN: Final = (
    f"{_INTO}{_SELECT} AND {_EARLIEST.format(column='newest_id', which='')} < :job ORDER BY last.id"
)
"""Every value of the array: a write to its id also reaches a task that was just requeued."""


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
    if number is not None:
        field, value = number
        if db.execute(_NUMBER, {**known, "field": field.name, "value": value}).rowcount:
            return True
    # only of a record that is younger than a write: an older one has a nice of its own
    return any(
        db.execute(_LOST if field is PRIORITY else _UNSEEN, {**known, "field": field.name}).rowcount
        for field in lost_with_it(job)
    )
