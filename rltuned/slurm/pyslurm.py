"""What pyslurm tells of the jobs, as the rows that squeue would show.

pyslurm runs in a process of its own (pyslurm_child), which is started for every look and ends with
its answer, so that nothing it leaks outlives a cycle, a crash of its C code is an exit code, and a
call that hangs is ended like any command.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rltuned.domain.snapshot import Unreadable
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.run import Commands
from rltuned.slurm.site import release_of
from rltuned.slurm.squeue import MOST_RECORDS, Row, parse_job_id, told
from rltuned.text import one_line
from rltuned.trusted import user_name

TEXT: Final = "text"
PYSLURM: Final = "pyslurm"
REST_S: Final = 300.0
"""After a pyslurm that cannot be used text stands in for so long before it is tried again."""
PROGRAM: Final = "pyslurm"
"""What the process is called in messages and metrics."""
CHILD: Final = Path(__file__).with_name("pyslurm_child.py")
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


class ReaderChoice(NamedTuple):
    """What reads the queue. wanted, reader: TEXT or PYSLURM; detail: which pyslurm, or why none."""

    wanted: str
    reader: str
    detail: str = ""

    @property
    def stands_in(self) -> bool:
        return self.reader != self.wanted


def ask_pyslurm(
    commands: Commands, python: Path, release: tuple[int, int]
) -> tuple[str, dict[str, str]]:
    """Pyslurm's version, and every job that slurmctld has in memory: by id a line of JSON, its
    FIELDS in a list. They stay lines until squeue's row of the job is there, which takes a seventh
    of the memory. python: the interpreter that has it. Raises UnusableError: text can stand in;
    BackendError: no answer; SnapshotError: it could not be read.
    """
    # -I: neither rltuned's environment nor the folder of the file changes what is imported
    asked = ("-I", "-B", str(CHILD))
    try:
        call = commands.call(PROGRAM, *asked, feed=json.dumps(FIELDS), at=python)
    except BackendError as error:
        raise UnusableError(str(error)) from error
    if not call.failure and not call.ok:
        last = one_line(call.stderr.strip().rpartition("\n")[2]) or "no message"
        raise UnusableError(f"pyslurm in {python} ended with {call.exit_code}: {last}")
    call.must_be_good()
    answer, jobs = _read(call)
    version, detail = str(answer.get("pyslurm", "")), one_line(str(answer.get("detail", "")))
    if answer.get("error") == "missing":
        raise UnusableError(f"{python}: {detail}")
    if release_of(version) != release:
        raise UnusableError(
            f"pyslurm {version or '?'} of {python} is not of slurmctld's release, "
            f"{release[0]}.{release[1]:02}"
        )
    if answer.get("error") == "rpc":
        raise BackendError(f"pyslurm: {detail}")
    if (promised := answer.get("jobs")) != len(jobs):
        raise SnapshotError(
            f"pyslurm: {len(jobs)} jobs in the answer, {promised!r} jobs were announced"
        )
    return version, jobs


def _read(call: Call) -> tuple[dict[str, Any], dict[str, str]]:
    """The first line, and by job id the others. Raises SnapshotError: it is no answer, or too long
    a one; UnusableError: a line has no end.
    """
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
        answer = json.loads(first)
    except BackendError as error:
        raise UnusableError(str(error)) from None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise SnapshotError(f"pyslurm: {one_line(first, 120)!r} is no answer")
    return answer, jobs


def rows_of(jobs: dict[str, str], asks: Iterable[Row], bad: list[Unreadable]) -> Iterator[Row]:
    """Rows with squeue's columns of TOLD by pyslurm, and the others by squeue.

    jobs: as of ask_pyslurm; they are taken out, and those that one of both alone has are left
    out. bad: takes the jobs of which a value is not of its kind. A further row of a job is doubt,
    unless it says the same of one more task of an array (squeue -r), of which pyslurm has told.
    """
    arrays = dict[str, int]()
    seen = set[str]()
    for ask in asks:
        number = ask["jobid"]
        line = jobs.pop(number, None)
        if line is not None:
            try:
                row = row_of(line)
            except ValueError as error:
                bad.append(Unreadable("job", number, f"pyslurm: {error}", parse_job_id(number)))
                continue
            seen.add(number)
            if row["arraytaskid"] != "N/A":
                arrays[number] = told(ask)
            yield {**ask, **row}
        elif number in seen and arrays.get(number) != told(ask):
            yield ask


def row_of(line: str) -> dict[str, str]:
    """A job in squeue's words, by the columns of TOLD. Raises ValueError."""
    row = json.loads(line)
    if not isinstance(row, list) or len(row) != len(FIELDS):
        raise ValueError(f"{one_line(line, 120)!r} has not the {len(FIELDS)} fields asked for")
    job = dict(zip(FIELDS, row, strict=True))
    return {column: read(job) for column, read in TOLD.items()}


_Job = Mapping[str, Any]


def _of_kind(job: _Job, name: str, kind: type) -> Any:
    """A value, or None. Raises ValueError: it is of another kind; true and false are no numbers."""
    value = job[name]
    if value is None or (isinstance(value, kind) and isinstance(value, bool) == (kind is bool)):
        return value
    raise ValueError(f"{name} {str(value)[:40]!r} is no {kind.__name__}")


def _number(name: str) -> Callable[[_Job], str]:
    """In squeue's form; None is N/A, which squeue.py refuses where it needs a number."""
    return lambda job: "N/A" if (found := _of_kind(job, name, int)) is None else str(found)


def _word(name: str) -> Callable[[_Job], str]:
    return lambda job: "(null)" if (found := _of_kind(job, name, str)) is None else found


def _tasks(job: _Job) -> str:
    """The task list of squeue: which tasks wait with their throttle, or the one that this is."""
    if not job["array_id"]:
        return "N/A"
    if job["array_tasks_waiting"] is None:
        # pyslurm's None is task 0 here: a record of an array without a list is one task
        return "0" if job["array_task_id"] is None else _number("array_task_id")(job)
    throttle = job["array_tasks_parallel"]
    limit = f"%{_number('array_tasks_parallel')(job)}" if throttle else ""
    return f"{_word('array_tasks_waiting')(job)}{limit}"


def _dependency(job: _Job) -> str:
    """In Slurm's form again; a kind that pyslurm leaves out stays one that is not known."""
    value = job["dependencies"]
    if value is None or isinstance(value, str):
        return value or "(null)"
    value = _of_kind(job, "dependencies", dict)
    kinds = [
        ":".join((kind, *map(str, jobs)))
        for kind, jobs in value.items()
        if isinstance(jobs, list) and jobs
    ]
    kinds += ["singleton"] if value.get("singleton") is True else []
    return ("?" if value.get("satisfy") == "any" else ",").join(kinds) or "of an unknown kind"


def _user(job: _Job) -> str:
    uid = _of_kind(job, "user_id", int)
    if uid is None:
        raise ValueError("user_id is no number")
    return user_name(uid)


def _cron(job: _Job) -> str:
    if job["is_cronjob"] is None:
        raise ValueError("is_cronjob is neither true nor false")
    return "Yes" if _of_kind(job, "is_cronjob", bool) else "No"


def _offset(job: _Job) -> str:
    """None is the offset 0 where there is a leader, and means nothing where there is none."""
    return _number("heterogeneous_offset")(job) if job["heterogeneous_offset"] else "0"


TOLD: Final[Mapping[str, Callable[[_Job], str]]] = MappingProxyType(
    {
        "jobid": _number("id"),
        "arrayjobid": lambda job: _number("array_id" if job["array_id"] else "id")(job),
        "arraytaskid": _tasks,
        "statecompact": lambda job: _STATES.get(_word("state")(job), _OTHER),
        "reason": _word("state_reason"),
        "prioritylong": _number("priority"),
        "nice": _number("nice"),
        "submittime": _number("submit_time"),
        "eligibletime": _number("eligible_time"),
        "starttime": _number("start_time"),
        "username": _user,
        "qos": _word("qos"),
        "reqnodes": _word("required_nodes"),
        "dependency": _dependency,
        "reservation": _word("reservation"),
        "hetjobid": _number("heterogeneous_id"),
        "hetjoboffset": _offset,
        "nodelist": _word("allocated_nodes"),
        "account": _word("account"),
        "ExcNodes": _word("excluded_nodes"),
        "CronJob": _cron,
    }
)
"""By column of squeue how pyslurm tells it. Every other column is asked of squeue."""
