"""Which jobs and since when, in the words of a person: `4711`, `4711_4`, `4711_[1-40%2]` as squeue
prints it, `4711+1`, `4711;cluster` as sbatch --parsable does, `2h`.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.slurm.strings import Tasks, parse_tasks

_NAME: Final = re.compile(
    r"(?P<name>(?P<id>[1-9][0-9]{0,9})(?:_(?P<tasks>[0-9]{1,9}|\[.+\])|\+[0-9]{1,9})?)"
    r"(?:;(?P<cluster>[^;]+))?"
)
_AGO: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_UNIT_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class AskedJob:
    """A job as squeue names it: an id, an array's tasks, a heterogeneous job's part. cluster: ""
    = whichever.

    An id alone stands for all records of its array. Tasks stand for the records that hold some of
    them: tasks that Slurm has not parted share one priority, and are restored together.
    """

    text: str
    job_id: int
    tasks: Tasks | None
    cluster: str = ""

    def is_on(self, cluster: str) -> bool:
        """Whether a job of this cluster may be meant."""
        return self.cluster in {"", cluster}

    def means(self, job: PendingJob) -> bool:
        """Whether a job of the queue is meant."""
        if self.text in {job.address, str(job.job_id)}:
            return True
        if job.array is None or job.array.array_job_id != self.job_id:
            return False
        if self.tasks is None:
            return self.text == str(self.job_id)
        return not job.array.listed or parse_tasks(job.array.listed).meets(self.tasks)

    def named(self, job_id: int, address: str) -> bool:
        """The same of a row of the journal, which knows a record by its id and address only."""
        if self.text in {address, str(job_id)}:
            return True
        array, _, tasks = address.partition("_")
        if array.partition("+")[0] != str(self.job_id):
            return False
        if self.tasks is None:
            return self.text == str(self.job_id)
        return "+" not in address and (not tasks or parse_tasks(tasks).meets(self.tasks))


def asked_job(text: str) -> AskedJob:
    """Read a job's name. Raises ValueError: it is none."""
    match = _NAME.fullmatch(text)
    try:
        if match is None:
            raise ValueError  # noqa: TRY301 - as tasks that are none
        tasks = None if match["tasks"] is None else parse_tasks(_uncut(match["tasks"]))
    except ValueError:
        raise ValueError(f"{text[:80]!r} is no job: 4711, 4711_4 or 4711+1") from None
    return AskedJob(match["name"], int(match["id"]), tasks, match["cluster"] or "")


def _uncut(tasks: str) -> str:
    """Without the end of a list that squeue cuts, "[1-40,50,6...]"."""
    return tasks[: tasks.rfind(",")] if tasks.endswith("...]") else tasks


def asked_span_s(text: str) -> float | None:
    """Seconds of "2h" (s, m, h, d); None = it is no length of time."""
    found = _AGO.fullmatch(text)
    return None if found is None else int(found["count"]) * _UNIT_S[found["unit"]]


def asked_moment(text: str, now: float) -> float:
    """Unix time of "2h" (ago; s, m, h, d) or an ISO time, local if bare. Raises ValueError: it is
    none, or lies before 1970.
    """
    ago_s = asked_span_s(text)
    try:
        found = datetime.fromisoformat(text).timestamp() if ago_s is None else now - ago_s
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:80]!r} is no time: 2h, 30m or 2026-01-31T12:00") from None
    if found < 0:
        raise ValueError(f"{text[:80]!r} lies before 1970")
    return found
