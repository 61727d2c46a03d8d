"""A pending record as the light re-read shows it, before and after a write."""

from dataclasses import dataclass

from rltuned.domain.units import NodeName
from rltuned.slurm.columns import WatchRow
from rltuned.slurm.job_names import address, held_by, parse_job_id, read_tasks
from rltuned.slurm.values import absent, parse_epoch, parse_number


@dataclass(frozen=True, slots=True)
class Watched:
    """A pending record as the light re-read shows it.

    Attributes:
        held: by anything; holder: "user" or "admin" where a person does.
        excluded: None = not asked for.
        unreadable: why its row cannot be read; then nothing else is known. Empty = it can.
    """

    address: str
    submitted_at: float
    priority: int
    nice: int
    held: bool
    oversubscribe: str = ""
    holder: str = ""
    excluded: frozenset[NodeName] | None = None
    unreadable: str = ""


def watched(rows: list[WatchRow], pending_records: int) -> Watched:
    """The record behind its rows, one for each task; `unreadable` says what is wrong with them."""
    try:
        return _read_watched(rows, pending_records)
    except ValueError as error:
        why = f"its row in squeue cannot be read: {error}"
        return Watched("", 0.0, 0, 0, held=True, unreadable=why)


def _read_watched(rows: list[WatchRow], pending_records: int) -> Watched:
    row = rows[0]
    job_id, array_id = parse_job_id(row.jobid), parse_job_id(row.arrayjobid)
    submitted, priority = parse_epoch(row.submittime), parse_number(row.prioritylong)
    if submitted is None:
        raise ValueError(f"job {job_id} has no submit time")
    if not absent(row.hetjobid) and row.hetjobid != "0":
        where = f"{row.hetjobid}+{row.hetjoboffset}"
    else:
        # counted as if other records were pending: a task held this instant stays out of a release
        tasks = read_tasks([r.arraytaskid for r in rows])
        where = address(job_id, array_id, tasks, pending_records + 1)
    return Watched(
        address=where,
        submitted_at=submitted,
        priority=priority,
        nice=parse_number(row.nice),
        held=priority == 0 or bool(held_by(row.reason)),
        oversubscribe=row.oversubscribe,
        holder=held_by(row.reason),
    )
