"""pyslurm's jobs as rows of squeue. pyslurm itself runs in a process of its own (pyslurm_child).

The process is started for every look and ends with its answer, so that nothing it leaks outlives
a cycle, a crash of its C code is an exit code, and a call that hangs is ended like any command.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rltuned.domain.snapshot import Unreadable
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.columns import ASK_COLUMNS, JobRow
from rltuned.slurm.pyslurm_child import PROTOCOL
from rltuned.slurm.queue_rows import MOST_RECORDS
from rltuned.slurm.records import parse_job_id
from rltuned.slurm.run import Commands
from rltuned.slurm.site import release_of
from rltuned.text import one_line
from rltuned.trusted import user_name

PROGRAM: Final = "pyslurm"
"""What the process is called in messages and metrics."""
CHILD: Final = Path(__file__).with_name("pyslurm_child.py")
_NUMBERS: Final = {
    "jobid": "id",
    "prioritylong": "priority",
    "nice": "nice",
    "submittime": "submit_time",
    "eligibletime": "eligible_time",
    "starttime": "start_time",
    "hetjobid": "heterogeneous_id",
}
_WORDS: Final = {
    "reason": "state_reason",
    "qos": "qos",
    "reqnodes": "required_nodes",
    "reservation": "reservation",
    "nodelist": "allocated_nodes",
    "account": "account",
}
FIELDS: Final = (
    "id", "array_id", "array_task_id", "array_tasks_waiting", "array_tasks_parallel", "state",
    "state_reason", "priority", "nice", "submit_time", "eligible_time", "start_time", "user_id",
    "qos", "required_nodes", "excluded_nodes", "dependencies", "reservation", "heterogeneous_id",
    "heterogeneous_offset", "allocated_nodes", "is_cronjob", "account",
)  # fmt: skip
"""Attributes of pyslurm.Job that say the same as a column of squeue, the id first. Left to squeue
is what a job asks for: pyslurm's time limit is None for UNLIMITED and for unknown, its memory None
for "all of a node" and for unknown, and GPUs asked for as `gres/gpu:p100:4` are in none of its
attributes where the site does not account for them."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one answer, which is kept until squeue has answered too: 447 for each of MOST_RECORDS."""
_STATES: Final = {"PENDING": "PD", "RUNNING": "R", "CONFIGURING": "CF"}
_OTHER: Final = "OTH"
"""Any other state: such a record is counted and not looked into."""


class UnusableError(BackendError):
    """pyslurm is not there, is of another release, or ended badly: text can stand in."""


@dataclass(frozen=True, slots=True)
class PyslurmAnswer:
    """One answer. version: pyslurm's; jobs: by id, each a line of JSON, its FIELDS in a list. They
    stay lines until squeue's row of the job is there, which takes a seventh of the memory.
    """

    version: str
    jobs: dict[str, str]


class Pyslurm:
    """Asks pyslurm, in a process of its own each time, with this interpreter."""

    def __init__(self, commands: Commands, python: Path) -> None:
        self._commands = commands
        self._python = python

    def jobs(self, release: tuple[int, int]) -> PyslurmAnswer:
        """Every job that slurmctld has in memory. Raises UnusableError: text can stand in;
        BackendError: no answer; SnapshotError: it could not be read.
        """
        answer, jobs = self._ask({"protocol": PROTOCOL, "fields": FIELDS})
        version = str(answer.get("pyslurm", ""))
        detail = one_line(str(answer.get("detail", "")))
        if answer.get("error") == "missing":
            raise UnusableError(f"{self._python}: {detail}")
        if release_of(version) != release:
            raise UnusableError(
                f"pyslurm {version or '?'} of {self._python} is not of slurmctld's release, "
                f"{release[0]}.{release[1]:02}"
            )
        if answer.get("error") == "rpc":
            raise BackendError(f"pyslurm: {detail}")
        if answer.get("jobs") != len(jobs):
            promised = f"{answer.get('jobs')!r} jobs were announced"
            raise SnapshotError(f"pyslurm: {len(jobs)} jobs in the answer, {promised}")
        return PyslurmAnswer(version, jobs)

    def _ask(self, request: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, str]]:
        # -I: neither rltuned's environment nor the folder of the file changes what is imported
        asked = ("-I", "-B", str(CHILD))
        feed = json.dumps(request)
        try:
            call = self._commands.call(PROGRAM, *asked, feed=feed, at=self._python)
        except BackendError as error:
            raise UnusableError(str(error)) from error
        if not call.failure and not call.ok:
            last = one_line(call.stderr.strip().rpartition("\n")[2]) or "no message"
            why = f"pyslurm in {self._python} ended with {call.exit_code}: {last}"
            raise UnusableError(why)
        call.must_be_good()
        first, jobs = _taken(call)
        try:
            answer = json.loads(first)
        except ValueError as error:
            raise SnapshotError(f"pyslurm: {one_line(first, 120)!r}: {error}") from error
        if not isinstance(answer, dict) or answer.get("protocol") != PROTOCOL:
            raise SnapshotError(f"pyslurm: {one_line(first, 120)!r} is no answer")
        return answer, jobs


def _taken(call: Call) -> tuple[str, dict[str, str]]:
    """The first line, and by job id the others. Raises UnusableError: a line has no end."""
    lines, jobs, size = call.lines(), dict[str, str](), 0
    try:
        first = next(lines, "")
        for line in lines:
            jobs[line[1:].partition(",")[0]] = line
            size += len(line)
            if len(jobs) > MOST_RECORDS:
                raise SnapshotError(f"pyslurm: more than {MOST_RECORDS} job records")
            if size > MOST_BYTES:
                raise SnapshotError(f"pyslurm answered more than {MOST_BYTES} bytes")
    except BackendError as error:
        raise UnusableError(str(error)) from None
    return first, jobs


def rows_of(
    answer: PyslurmAnswer, asks: Iterable[Sequence[str]], bad: list[Unreadable]
) -> Iterator[list[str]]:
    """Rows for jobs.read_queue: Ask, JobRow, ExcNodes, the further columns, CronJob, account.

    asks: job id, the columns of Ask, accruetime, deadline and further ones, from squeue; jobs that
    are in one of both alone are left out. A further row of a job (squeue -r has one for each task)
    ends with its number. bad: takes the jobs of which a value is not of its kind.
    """
    width = len(ASK_COLUMNS)
    for name, *ask in asks:
        line = answer.jobs.pop(name, None)
        if line is None:
            yield [*ask[:width], name]
            continue
        try:
            row, excluded, cron = _row(_job(line), accruetime=ask[width], deadline=ask[width + 1])
        except ValueError as error:
            bad.append(Unreadable("job", name, f"pyslurm: {error}", parse_job_id(name)))
            continue
        yield [*ask[:width], *row[:-1], excluded, *ask[width + 2 :], cron, row.account]


def _job(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, list) or len(row) != len(FIELDS):
        raise ValueError(f"{one_line(line, 120)!r} has not the {len(FIELDS)} fields asked for")
    return dict(zip(FIELDS, row, strict=True))


def _row(job: Mapping[str, Any], accruetime: str, deadline: str) -> tuple[JobRow, str, str]:
    cron = job["is_cronjob"]
    if not isinstance(cron, bool):
        raise ValueError(f"is_cronjob {cron!r} is neither true nor false")  # noqa: TRY004
    row = JobRow(
        **{column: _number(job, name) for column, name in _NUMBERS.items()},
        **{column: _word(job, name) for column, name in _WORDS.items()},
        arrayjobid=_number(job, "array_id" if job["array_id"] else "id"),
        arraytaskid=_tasks(job),
        statecompact=_STATES.get(_word(job, "state"), _OTHER),
        username=_user(job["user_id"]),
        dependency=_dependency(job["dependencies"]),
        # None is the offset 0 where there is a leader, and means nothing where there is none
        hetjoboffset=_number(job, "heterogeneous_offset") if job["heterogeneous_offset"] else "0",
        accruetime=accruetime,
        deadline=deadline,
    )
    return row, _word(job, "excluded_nodes"), "Yes" if cron else "No"


def _number(job: Mapping[str, Any], name: str) -> str:
    """A number in squeue's form; None is N/A, which read_queue refuses where it needs a number."""
    value = job[name]
    if value is None:
        return "N/A"
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} {value!r} is no whole number")  # noqa: TRY004 - the answer's fault
    return str(value)


def _word(job: Mapping[str, Any], name: str) -> str:
    value = job[name]
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} {str(value)[:40]!r} is no text")
    return "(null)" if value is None else value


def _tasks(job: Mapping[str, Any]) -> str:
    """The task list of squeue: which tasks wait with their throttle, or the one that this is."""
    if not job["array_id"]:
        return "N/A"
    if job["array_tasks_waiting"] is None:
        # pyslurm's None is task 0 here: a record of an array without a list is one task
        return "0" if job["array_task_id"] is None else _number(job, "array_task_id")
    waiting = _word(job, "array_tasks_waiting")
    throttle = job["array_tasks_parallel"]
    return f"{waiting}%{_number(job, 'array_tasks_parallel')}" if throttle else waiting


def _dependency(value: object) -> str:
    """In Slurm's form again; a kind that pyslurm leaves out stays one that is not known."""
    if value is None or isinstance(value, str):
        return value or "(null)"
    if not isinstance(value, dict):
        raise ValueError(f"dependencies {str(value)[:40]!r} are no object")  # noqa: TRY004
    kinds = [
        ":".join((kind, *map(str, jobs)))
        for kind, jobs in value.items()
        if isinstance(jobs, list) and jobs
    ]
    kinds += ["singleton"] if value.get("singleton") is True else []
    return ("?" if value.get("satisfy") == "any" else ",").join(kinds) or "of an unknown kind"


def _user(uid: object) -> str:
    if not isinstance(uid, int) or isinstance(uid, bool):
        raise ValueError(f"user_id {uid!r} is no number")  # noqa: TRY004
    return user_name(uid)
