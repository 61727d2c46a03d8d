"""Where the rows of jobs come from: squeue, or for the most part pyslurm.

pyslurm runs in a process of its own (pyslurm_child), which is started for every look and ends with
its answer, so that nothing it leaks outlives a cycle, a crash of its C code is an exit code, and a
call that hangs is ended like any command. Its jobs become the rows that squeue would show.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rltuned.domain.kinds import Digester
from rltuned.domain.snapshot import Unreadable
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.columns import TEXT_COLUMNS, Layout, Marks
from rltuned.slurm.pyslurm_child import PROTOCOL
from rltuned.slurm.run import Commands
from rltuned.slurm.site import release_of
from rltuned.slurm.squeue import MOST_RECORDS, Row, parse_job_id, squeue, told
from rltuned.text import one_line
from rltuned.trusted import user_name

TEXT: Final = "text"
PYSLURM: Final = "pyslurm"
REST_S: Final = 300.0
"""After a pyslurm that cannot be used text stands in for so long before it is tried again."""
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
    "ExcNodes": "excluded_nodes",
}
TOLD: Final = frozenset(
    {
        *_NUMBERS, *_WORDS, "arrayjobid", "arraytaskid", "statecompact", "username", "dependency",
        "hetjoboffset", "CronJob",
    }
)  # fmt: skip
"""Columns of squeue that pyslurm tells. Every other one is asked of squeue."""
_NO_TASK: Final = "N/A"
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
class ReaderChoice:
    """What reads the queue. wanted, reader: TEXT or PYSLURM; detail: which pyslurm, or why none."""

    wanted: str
    reader: str
    detail: str = ""

    @property
    def stands_in(self) -> bool:
        return self.reader != self.wanted


class JobSource:
    """Rows of all jobs: from squeue alone, or from pyslurm with what they ask for from squeue.

    pyslurm is asked first: a job that only it knows has ended, one that only squeue knows is
    younger than the snapshot, and both are left out. Where pyslurm cannot be used, text stands in.

    pyslurm: its interpreter; None = text alone. on_reading: called with what reads the jobs,
    whenever that changes and pyslurm is set. digester: whose texts are asked for, of squeue in
    either case; None = none.
    """

    def __init__(
        self,
        commands: Commands,
        new_marks: Callable[[], Marks],
        pyslurm: Path | None,
        on_reading: Callable[[ReaderChoice], None],
        digester: Digester | None = None,
    ) -> None:
        self._commands = commands
        self._new_marks = new_marks
        self._python = pyslurm
        self._on_reading = on_reading
        wanted = () if digester is None else digester.wanted
        self._texts = tuple(name for name in TEXT_COLUMNS if name in wanted)
        self._last: ReaderChoice | None = None
        self._rest_until = -float("inf")

    def read(
        self, layout: Layout, release: tuple[int, int], now: float, bad: list[Unreadable]
    ) -> Iterator[Row]:
        """The rows of every record, or of every task where squeue parts arrays. bad: takes jobs
        whose records are no rows. Raises BackendError, SnapshotError.
        """
        names, jobs = layout.job_columns, None
        if self._python is not None and not 0 < self._rest_until - now <= REST_S:
            try:
                version, jobs = self.jobs(release)
                reading = ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {version}")
                names = ("jobid", *(name for name in names if name not in TOLD))
            except UnusableError as error:
                self._rest_until = now + REST_S
                reading = ReaderChoice(PYSLURM, TEXT, str(error))
            if reading != self._last:
                self._last = reading
                self._on_reading(reading)
        broken = list[str]()
        marks = self._new_marks()
        rows = squeue(
            self._commands, layout, marks, names, "--noconvert", texts=self._texts, broken=broken
        )
        yield from rows if jobs is None else rows_of(jobs, rows, bad)
        bad += [Unreadable("job", "", why) for why in broken]

    def jobs(self, release: tuple[int, int]) -> tuple[str, dict[str, str]]:
        """Pyslurm's version, and every job that slurmctld has in memory: by id a line of JSON, its
        FIELDS in a list. They stay lines until squeue's row of the job is there, which takes a
        seventh of the memory. Raises UnusableError: text can stand in; BackendError: no answer;
        SnapshotError: it could not be read.
        """
        # -I: neither rltuned's environment nor the folder of the file changes what is imported
        asked = ("-I", "-B", str(CHILD))
        feed = json.dumps({"protocol": PROTOCOL, "fields": FIELDS})
        try:
            call = self._commands.call(PROGRAM, *asked, feed=feed, at=self._python)
        except BackendError as error:
            raise UnusableError(str(error)) from error
        if not call.failure and not call.ok:
            last = one_line(call.stderr.strip().rpartition("\n")[2]) or "no message"
            why = f"pyslurm in {self._python} ended with {call.exit_code}: {last}"
            raise UnusableError(why)
        call.must_be_good()
        answer, jobs = _read(call)
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
        return version, jobs

    def reading(self, release: tuple[int, int]) -> ReaderChoice:
        """What would read the jobs now; raises as `read`."""
        if self._python is None:
            return ReaderChoice(TEXT, TEXT, "squeue, sinfo and sprio as text")
        try:
            version, jobs = self.jobs(release)
        except UnusableError as error:
            return ReaderChoice(PYSLURM, TEXT, str(error))
        return ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {version}, {len(jobs)} jobs")


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
    except ValueError as error:
        raise SnapshotError(f"pyslurm: {one_line(first, 120)!r}: {error}") from error
    if not isinstance(answer, dict) or answer.get("protocol") != PROTOCOL:
        raise SnapshotError(f"pyslurm: {one_line(first, 120)!r} is no answer")
    return answer, jobs


def rows_of(jobs: dict[str, str], asks: Iterable[Row], bad: list[Unreadable]) -> Iterator[Row]:
    """Rows with squeue's columns of TOLD by pyslurm, and the others by squeue.

    jobs: as of JobSource.jobs; they are taken out, and those that one of both alone has are left
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
            if row["arraytaskid"] != _NO_TASK:
                arrays[number] = told(ask)
            yield {**ask, **row}
        elif number in seen and arrays.get(number) != told(ask):
            yield ask


def _job(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, list) or len(row) != len(FIELDS):
        raise ValueError(f"{one_line(line, 120)!r} has not the {len(FIELDS)} fields asked for")
    return dict(zip(FIELDS, row, strict=True))


def row_of(line: str) -> dict[str, str]:
    """A job in squeue's words, by the columns of TOLD. Raises ValueError."""
    job = _job(line)
    cron, offset = job["is_cronjob"], job["heterogeneous_offset"]
    if not isinstance(cron, bool):
        raise ValueError(f"is_cronjob {cron!r} is neither true nor false")  # noqa: TRY004
    return {
        **{column: _number(job, name) for column, name in _NUMBERS.items()},
        **{column: _word(job, name) for column, name in _WORDS.items()},
        "arrayjobid": _number(job, "array_id" if job["array_id"] else "id"),
        "arraytaskid": _tasks(job),
        "statecompact": _STATES.get(_word(job, "state"), _OTHER),
        "username": _user(job["user_id"]),
        "dependency": _dependency(job["dependencies"]),
        # None is the offset 0 where there is a leader, and means nothing where there is none
        "hetjoboffset": _number(job, "heterogeneous_offset") if offset else "0",
        "CronJob": "Yes" if cron else "No",
    }


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
        return _NO_TASK
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
