"""How Slurm names jobs: ids, tasks of arrays, parts of heterogeneous jobs, and addresses."""

from rltuned.domain.units import JobId
from rltuned.slurm.strings import Tasks, pack_tasks, parse_tasks
from rltuned.slurm.values import absent, parse_number


def id_of(text: str) -> JobId:
    """The number of a record that cannot be read; 0 = not even that."""
    try:
        return parse_job_id(text)
    except ValueError:
        return JobId(0)


def parse_job_id(text: str) -> JobId:
    """A record's number.

    Raises:
        ValueError: no positive number.
    """
    if not text.isascii() or not text.isdigit() or parse_number(text) == 0:
        raise ValueError(f"{text[:40]!r} is no job id")
    return JobId(int(text))


def read_het(job_id: str, offset: str) -> tuple[JobId | None, int]:
    """Leader and offset of a heterogeneous job's component; (None, 0) for an ordinary job."""
    if absent(job_id) or job_id == "0":
        return None, 0
    return parse_job_id(job_id), parse_number(offset)


def read_tasks(texts: list[str]) -> Tasks | None:
    """The tasks of one record, from one list or from one row per task; None = not an array."""
    if absent(texts[0]):
        return None
    if len(texts) == 1:
        return parse_tasks(texts[0])
    return pack_tasks(parse_number(t) for t in texts)


def held_by(reason: str) -> str:
    """Who holds a job, "user" or "admin"; empty for one that is not held."""
    return {"JobHeldUser": "user", "JobHeldAdmin": "admin"}.get(reason, "")


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
