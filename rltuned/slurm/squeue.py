"""squeue's rows -> pending and running jobs: one reading for looks, looks back and restores.

A row is a mapping of squeue's columns to their words; pyslurm gives the same. A job is made once,
when all its rows are there.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from math import inf
from sys import intern
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import ArrayInfo, PendingJob, Request, RunningJob
from rltuned.domain.kinds import NO_KINDS, Digester, KindName, Kinds
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import FIELDS, TEXT_COLUMNS, Layout, Marks, text
from rltuned.slurm.request import UNASKED, Requests, shares_of
from rltuned.slurm.run import Commands
from rltuned.slurm.values import (
    Tasks,
    absent,
    expand_hosts,
    pack_tasks,
    parse_epoch,
    parse_number,
    parse_tasks,
)
from rltuned.text import one_line

MOST_RECORDS: Final = 150_000
"""So many jobs with what they ask for fit into the memory that the service is given
(docs/performance.md)."""
TWICE: Final = "its id stands in rows of different jobs, or of one task twice: one is not true"
"""No answer of Slurm's is like this, so it cannot be told what is forged of it."""
_HOLDERS: Final = {"JobHeldUser": "user", "JobHeldAdmin": "admin"}
_RUNNING: Final = frozenset({"R", "CF"})
_STATE: Final = re.compile(r"[A-Z]{1,3}")
_ALIKE: Final = frozenset({*TEXT_COLUMNS, "arraytaskid"})
"""What rows of one array's record may differ in."""
_NO_NODES: Final[Mapping[str, Node]] = MappingProxyType({})

Row = Mapping[str, str]


class PriorityState(NamedTuple):
    """What rules a pending job's priority, as in PendingJob."""

    priority: int
    site_factor: int | None = None
    fixed: bool = False
    live: bool = False
    uneven: bool = False
    sticky: bool = False
    base: int | None = None
    rest: int | None = None
    fair: float | None = None


def as_shown(job: Mapping[str, Any]) -> PriorityState:
    """Nothing is known but squeue's number."""
    return PriorityState(job["priority"])


class JobsShown(NamedTuple):
    """What squeue showed: pending and running records, how many there are in other states, the ids
    that those bear, their arrays' included, and what could not be read.
    """

    pending: tuple[PendingJob, ...]
    running: tuple[RunningJob, ...]
    others: int
    lingering: tuple[JobId, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def squeue(
    commands: Commands,
    layout: Layout,
    marks: Marks,
    names: tuple[str, ...],
    *args: str,
    texts: tuple[KindName, ...] = (),
    broken: list[str] | None = None,
) -> Iterator[Row]:
    """One squeue over all records of this cluster, in the order of their numbers. texts, broken:
    as of Marks. Raises BackendError, SnapshotError.
    """
    words = ("--local", "-a", *filter(None, (layout.per_record,)), "-S", "i", *args)
    # every user could read the marks as an argument
    environ = {"SQUEUE_FORMAT2": marks.columns(names, texts)}
    call, keys = commands.call("squeue", *words, environ=environ), (*names, *texts)
    for cells in marks.rows(call, len(names), broken, len(texts)):
        row = dict(zip(keys, cells, strict=True))
        if "Exclusive" in row:
            row["oversubscribe"] = _older_word(row["oversubscribe"], row["Exclusive"])
        yield row


def read_throttles(rows: Iterable[Row]) -> dict[str, int | None]:
    """The throttle of each array by rows that squeue has put together; None = it has none."""
    found = dict[str, int | None]()
    for row in rows:
        with suppress(ValueError):
            found[row["arrayjobid"]] = parse_tasks(row["arraytaskid"]).throttle
    return found


def _older_word(oversubscribe: str, exclusive: str) -> str:
    """One word for both columns of 26.05, as older releases have it: NO means whole nodes. In 26.05
    a job that never spoke of sharing shows NO as well; it is OK here, as it was.
    """
    if exclusive == "NODE":
        return "NO"
    if exclusive != "NO":
        return exclusive
    return "OK" if oversubscribe == "NO" else oversubscribe


class _Array(NamedTuple):
    """A pending record of an array; squeue -r prints a row for each of its tasks."""

    row: Row
    tasks: list[str]
    told: int


def told(row: Row) -> int:
    """What all rows of an array's record say alike, hashed."""
    return hash(tuple(word for name, word in row.items() if name not in _ALIKE))


class QueueReader:
    """Reads rows of squeue, which may lack columns of columns.FIELDS. A row that cannot be read
    costs that job.

    A pending one of which the id, what rules its priority and what names it can be read is there,
    marked unreadable. Of a running one sinfo says that its nodes are taken, and nothing when they
    come back.

    standing: what rules the priority of a job, by its fields as far as they are read. requests:
    None = what jobs ask for is not read, and no job that runs. odd: what else is wrong with a
    pending job of these partitions; empty = nothing. whole: see stepped. ages_at: the look's time,
    from which a job ages that could run and has no AccrueTime (MaxJobsAccrue limits); -inf = no job
    does. only: numbers of the records that are read, as squeue prints them; None = all. siblings:
    pending records of each array that count besides. throttles: of these arrays, whose rows show
    none; see Layout.
    """

    def __init__(
        self,
        standing: Callable[[Mapping[str, Any]], PriorityState] = as_shown,
        *,
        requests: Requests | None = None,
        nodes: Mapping[str, Node] = _NO_NODES,
        odd: Callable[[JobId, tuple[str, ...]], str] = lambda _job, _partitions: "",
        whole: Callable[[str, list[str]], list[str]] = lambda _number, shown: shown,
        digester: Digester | None = None,
        ages_at: float = -math.inf,
        only: Collection[str] | None = None,
        siblings: int = 0,
        throttles: Callable[[frozenset[str]], Mapping[str, int | None]] = lambda _arrays: {},
    ) -> None:
        self._standing, self._odd, self._whole = standing, odd, whole
        self._requests, self._nodes, self._digester = requests, nodes, digester
        self._ages_at, self._only, self._siblings = ages_at, only, siblings
        self._ask_throttles = throttles
        self._throttles: Mapping[str, int | None] = {}
        self._jobs: dict[str, PendingJob | RunningJob] = {}
        self._arrays: dict[str, _Array] = {}
        self._bad: dict[str, str] = {}
        self._seen: set[str] = set()
        self._lingering: set[JobId] = set()
        self._records = Counter[str]()  # pending ones, by array

    def read(self, rows: Iterable[Row]) -> JobsShown:
        """The jobs; called once. Raises SnapshotError: too many; BackendError: as whole."""
        doubted = set[str]()
        for row in rows:
            number = row["jobid"]
            if number in self._seen:
                if self._is_asked(number) and not self._is_another_task(row):
                    doubted.add(number)
                continue
            if self._requests is not None and len(self._seen) == MOST_RECORDS:
                raise SnapshotError(f"squeue: more than {MOST_RECORDS} job records")
            self._seen.add(number)
            self._take(number, row)
        bare = {a.row["arrayjobid"] for a in self._arrays.values() if "%" not in a.tasks[0]}
        self._throttles = self._ask_throttles(frozenset(bare)) if bare else {}
        for number in tuple(self._arrays):
            row, tasks, _ = self._arrays.pop(number)  # its words go as its job comes
            if number not in doubted:
                count = self._records[row["arrayjobid"]] + self._siblings
                self._make(number, row, tasks, count)
        for number in doubted:
            self._jobs.pop(number, None)
            self._bad[number] = TWICE
        return self._queue()

    def _is_asked(self, number: str) -> bool:
        return self._only is None or number in self._only

    def _is_another_task(self, row: Row) -> bool:
        """Whether a further row of a record may be of one more task, which is noted then."""
        known = self._arrays.get(row["jobid"])
        if known is None or known.told != told(row):
            return False
        known.tasks.append(row["arraytaskid"])
        return True

    def _take(self, number: str, row: Row) -> None:
        """The first row of a record."""
        task = row["arraytaskid"]
        is_array = row["statecompact"] == "PD" and not absent(task)
        if is_array:
            self._records[row["arrayjobid"]] += 1
        if not self._is_asked(number):
            return
        if is_array:
            self._arrays[number] = _Array(row, [task], told(row))
        else:
            self._make(number, row, [task], 1)

    def _make(self, number: str, row: Row, tasks: list[str], records: int) -> None:
        """The job of a record, from all its rows. records: as of _pending."""
        try:
            if row["statecompact"] == "PD":
                self._jobs[number] = self._pending(row, tasks, records)
            elif self._requests is not None and _runs(row):
                self._jobs[number] = _running(row, self._requests, self._nodes, self._kinds(row))
            else:
                self._lingering |= _others(row)
        except ValueError as error:
            self._bad[number] = str(error)

    def _queue(self) -> JobsShown:
        pending = tuple(job for job in self._jobs.values() if isinstance(job, PendingJob))
        running = tuple(job for job in self._jobs.values() if isinstance(job, RunningJob))
        unread = [
            Unreadable("job", one_line(number, 20), why, id_of(number))
            for number, why in self._bad.items()
        ]
        unread += [
            Unreadable("job", job.address, job.unreadable, job.job_id)
            for job in pending
            if job.unreadable
        ]
        others = len(self._seen) - len(pending) - len(running)
        return JobsShown(pending, running, others, tuple(sorted(self._lingering)), tuple(unread))

    def _pending(self, row: Row, tasks: list[str], records: int) -> PendingJob:
        """The job behind its rows. tasks: of all of them. records: pending ones of its array.
        Raises ValueError: what names it, or what rules its priority, cannot be read.
        """
        throttle = self._throttles.get(row["arrayjobid"])
        job = _named(row, self._whole(row["jobid"], tasks), records, throttle)
        job["partitions"] = partitions = _partitions(row.get("partition", ""))
        job["kinds"], job["request"] = self._kinds(row), UNASKED
        job["unreadable"] = self._odd(job["job_id"], partitions)
        for column, (name, read) in FIELDS.items():
            if column in row:
                try:
                    job[name] = read(row[column])
                except ValueError as error:
                    job["unreadable"] = str(error)
        if job.get("accrue_at") is None and 0 < (job.get("eligible_at") or 0) <= self._ages_at:
            job["accrue_at"] = self._ages_at
        if self._requests is not None:
            try:
                job["request"] = self._requests.read(row, running=False)
            except ValueError as error:
                job["request"], job["unreadable"] = Request(Resources()), str(error)
        job.update(self._standing(job)._asdict())
        return PendingJob(**job)

    def _kinds(self, row: Row) -> Kinds:
        if self._digester is None:
            return NO_KINDS
        texts = tuple(name for name in TEXT_COLUMNS if name in row)
        return self._digester.kinds(texts, *(row[name] for name in texts)) if texts else NO_KINDS


def _runs(row: Row) -> bool:
    return row["statecompact"] in _RUNNING and not absent(row["starttime"])


def _running(row: Row, requests: Requests, nodes: Mapping[str, Node], kinds: Kinds) -> RunningJob:
    """The job behind a row. Raises ValueError."""
    started, task = parse_epoch(row["starttime"]), row["arraytaskid"]
    if started is None:
        raise ValueError("no start time")
    request = requests.read(row, running=True)
    return RunningJob(
        job_id=parse_job_id(row["jobid"]),
        started_at=started,
        request=request,
        shares=shares_of(expand_hosts(row["nodelist"]), request, nodes),
        partition=intern(row["partition"]),
        user=intern(row["username"]),
        account=text(row["account"]),
        submitted_at=parse_epoch(row["submittime"]),
        array_job_id=None if absent(task) else parse_job_id(row["arrayjobid"]),
        array_task=int(task) if task.isdecimal() else None,
        eligible_at=parse_epoch(row["eligibletime"]),
        qos=text(row["qos"]),
        kinds=kinds,
    )


def _others(row: Row) -> set[JobId]:
    """The ids of a record that neither waits nor runs. Raises ValueError."""
    # a state that is not looked into may be new, but it is one of Slurm's short words
    if not _STATE.fullmatch(row["statecompact"]):
        raise ValueError(f"{row['statecompact'][:20]!r} is no state")
    return {parse_job_id(row["jobid"]), parse_job_id(row["arrayjobid"])}


def _named(row: Row, tasks: list[str], records: int, throttle: int | None) -> dict[str, Any]:
    """What names a pending record, and the numbers that it shows, by field. throttle: of its array,
    where its tasks show none. Raises ValueError: a column cannot be read, or it has no submit time.
    """
    job_id = parse_job_id(row["jobid"])
    array_id = job_id if row["arrayjobid"] == row["jobid"] else parse_job_id(row["arrayjobid"])
    submitted, listed = parse_epoch(row["submittime"]), read_tasks(tasks)
    if submitted is None:
        raise ValueError("no submit time")
    het_id, where = None, address(job_id, array_id, listed, records)
    if not absent(row["hetjobid"]) and row["hetjobid"] != "0":
        het_id = parse_job_id(row["hetjobid"])
        # a leader's bare id would mean all components
        where = f"{het_id}+{parse_number(row['hetjoboffset'])}"
    array = None
    if listed is not None:
        array = ArrayInfo(array_id, listed.count, listed.throttle or throttle, listed.text)
    return {
        "job_id": job_id,
        "address": where,
        "submitted_at": submitted,
        "priority": parse_number(row["prioritylong"]),
        "nice": parse_number(row["nice"]),
        "held_by": _HOLDERS.get(row["reason"], ""),
        "array": array,
        "het_job_id": het_id,
    }


@lru_cache(maxsize=1024)  # jobs that ask for the same partitions share one tuple
def _partitions(names: str) -> tuple[str, ...]:
    return tuple(names.split(","))


def id_of(number: str) -> JobId:
    """The number of a record that cannot be read; 0 = not even that."""
    try:
        return parse_job_id(number)
    except ValueError:
        return JobId(0)


@lru_cache(maxsize=16_384)
def parse_job_id(number: str) -> JobId:
    """A record's number. Raises ValueError: no positive number, or not as Slurm prints it."""
    if not number.isascii() or not number.isdigit() or number[0] == "0":
        raise ValueError(f"{number[:40]!r} is no job id")
    return JobId(parse_number(number))


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


def address(job_id: JobId, array_id: JobId, tasks: Tasks | None, records: int) -> str:
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
    return str(job_id) if records == 1 else f"{array_id}_[{tasks.named}]"


LEAST: Final = 5
"""Fewer tasks than these are shown whole."""
MOST_ASKED: Final = 50
"""So many records are asked for in one cycle; further ones in later cycles."""
_Shown = tuple[str, ...]


class SteppedTasks:
    """The whole lists, each asked for once as long as squeue shows the same tasks."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._before: dict[str, tuple[_Shown, list[str]]] = {}
        self._known: dict[str, tuple[_Shown, list[str]]] = {}
        self._left = inf

    def look(self) -> None:
        """A new cycle begins: what the last one did not show is forgotten."""
        self._before, self._known, self._left = self._known, {}, MOST_ASKED

    def whole(self, number: str, shown: list[str]) -> list[str]:
        """All tasks of a pending record by its number. shown: a text per task, from squeue -r.
        Raises ValueError: they are not known now. BackendError: scontrol does not answer.
        """
        if not may_be_cut(shown):
            return shown
        known = self._known.get(number) or self._before.get(number)
        if known is None or known[0] != tuple(shown):
            known = tuple(shown), self._ask(number, shown)
        self._known[number] = known
        return known[1]

    def _ask(self, number: str, shown: list[str]) -> list[str]:
        if self._left <= 0:
            raise ValueError("squeue -r may leave out its last task; scontrol is asked later")
        self._left -= 1
        out = self._commands.call("scontrol", "-o", "show", "job", number).stdout
        found = re.findall(rf"^JobId={number} ArrayJobId=\d+ ArrayTaskId=(\S+)", out, re.MULTILINE)
        if not found:
            raise ValueError("squeue -r may leave out its last task, and scontrol shows none")
        if len(found) > 1:  # a job's name may hold a line that looks like this one
            raise ValueError(f"scontrol: {TWICE}")
        listed = parse_tasks(found[0])
        # counted before they are listed: there may be very many
        tasks = listed.named.split(",") if listed.count <= len(shown) + 1 else []
        if {*tasks[: len(shown)]} != {*shown}:
            raise ValueError("its tasks changed while they were read")
        return tasks


def may_be_cut(shown: list[str]) -> bool:
    """Whether there may be one task more: they are evenly apart, and not neighbours. Raises
    ValueError: one is no number.
    """
    if len(shown) < LEAST:
        return False
    steps = {later - earlier for earlier, later in pairwise(sorted(map(parse_number, shown)))}
    return len(steps) == 1 and steps != {1}
