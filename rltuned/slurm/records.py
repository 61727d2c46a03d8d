"""What names a pending record and what it shows: one reading of squeue's columns for all."""

from typing import Final, NamedTuple

from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.units import JobId, UnixTime
from rltuned.slurm.columns import JobRow, WatchRow
from rltuned.slurm.strings import Tasks, pack_tasks, parse_tasks
from rltuned.slurm.values import absent, parse_epoch, parse_number

TWICE: Final = "its id stands in rows of different jobs, or of one task twice: one is not true"
"""No answer of Slurm's is like this, so it cannot be told what is forged of it."""
_HOLDERS = {"JobHeldUser": "user", "JobHeldAdmin": "admin"}


class Record(NamedTuple):
    """A pending record as squeue shows it; priority: in one of its partitions, any of them."""

    job_id: JobId
    address: str
    submitted_at: UnixTime
    priority: int
    nice: int = 0
    held_by: str = ""
    array: ArrayInfo | None = None
    het_job_id: JobId | None = None


def read_record(row: JobRow | WatchRow, tasks: list[str], pending_records: int) -> Record:
    """Read a pending record. tasks: the task column of all its rows. pending_records: of its array.
    Raises ValueError: a column cannot be read, or it has no submit time.
    """
    job_id = parse_job_id(row.jobid)
    array_id = job_id if row.arrayjobid == row.jobid else parse_job_id(row.arrayjobid)
    submitted, listed = parse_epoch(row.submittime), read_tasks(tasks)
    if submitted is None:
        raise ValueError("no submit time")
    het_id, where = None, address(job_id, array_id, listed, pending_records)
    if not absent(row.hetjobid) and row.hetjobid != "0":
        het_id = parse_job_id(row.hetjobid)
        # a leader's bare id would mean all components
        where = f"{het_id}+{parse_number(row.hetjoboffset)}"
    array = None
    if listed is not None:
        array = ArrayInfo(array_id, listed.count, listed.throttle, listed.text)
    return Record(
        job_id=job_id,
        address=where,
        submitted_at=submitted,
        priority=parse_number(row.prioritylong),
        nice=parse_number(row.nice),
        held_by=_HOLDERS.get(row.reason, ""),
        array=array,
        het_job_id=het_id,
    )


def id_of(text: str) -> JobId:
    """The number of a record that cannot be read; 0 = not even that."""
    try:
        return parse_job_id(text)
    except ValueError:
        return JobId(0)


def parse_job_id(text: str) -> JobId:
    """A record's number. Raises ValueError: no positive number, or not as Slurm prints it."""
    number = parse_number(text) if text.isascii() and text.isdigit() and text[0] != "0" else 0
    if not number:
        raise ValueError(f"{text[:40]!r} is no job id")
    return JobId(number)


def read_tasks(texts: list[str]) -> Tasks | None:
    """The tasks of one record, from one list or from one row per task; None = not an array."""
    if absent(texts[0]):
        if len(texts) > 1:
            raise ValueError(TWICE)
        return None
    if len(texts) == 1:
        return parse_tasks(texts[0])
    if len(frozenset(texts)) != len(texts) or not all(map(str.isdecimal, texts)):
        raise ValueError(TWICE)
    return pack_tasks(parse_number(t) for t in texts)


def address(job_id: JobId, array_id: JobId, tasks: Tasks | None, pending_records: int) -> str:
    """How scontrol names this record of an array, or this plain job, and nothing else.

    An array's head record bears the array's own id, and that id stands for all its records; when
    others are pending (held or changed tasks live in records of their own), the head is named by
    exactly its tasks, which changes it without splitting it. A task with a record of its own is
    named as squeue names it, so that a person finds it again in journal and log.
    """
    if tasks is None:
        return str(job_id)
    if job_id != array_id:
        return f"{array_id}_{tasks.text}" if tasks.text.isdigit() else str(job_id)
    return str(job_id) if pending_records == 1 else f"{array_id}_[{tasks.named}]"
