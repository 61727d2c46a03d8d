"""squeue's rows -> pending and running jobs: one reading for looks, looks back and restores.

A row is a mapping of squeue's columns to their words; pyslurm gives the same. A job is made once,
when all its rows are there.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import inf
from sys import intern
from typing import Any, Final, NamedTuple

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import ArrayInfo, PendingJob, Request, RunningJob
from rltuned.domain.kinds import NO_KINDS, Digester, KindName, Kinds
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import FIELDS, TEXT_COLUMNS, Marks, text, word_list
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

Row = Mapping[str, str]
_Made = PendingJob | RunningJob | frozenset[JobId] | str
"""The job of a record; the ids of one that neither waits nor runs; why it cannot be read."""


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
    per_record: str,
    marks: Marks,
    names: tuple[str, ...],
    *args: str,
    texts: tuple[KindName, ...] = (),
    broken: list[str] | None = None,
) -> Iterator[Row]:
    """One squeue over all records of this cluster, in the order of their numbers. per_record: of
    Layout. texts, broken: as of Marks. Raises BackendError, SnapshotError.
    """
    words = ("--local", "-a", *filter(None, (per_record,)), "-S", "i", *args)
    # every user could read the marks as an argument
    environ = {"SQUEUE_FORMAT2": marks.columns(names, texts)}
    call, keys = commands.call("squeue", *words, environ=environ), (*names, *texts)
    for cells in marks.rows(call, len(names), broken, len(texts)):
        row = dict(zip(keys, cells, strict=True))
        # one word for both columns of 26.05, as older releases have it: NO means whole nodes, and a
        # job that never spoke of sharing, which shows NO there as well, is OK
        if (exclusive := row.get("Exclusive", "NO")) != "NO":
            row["oversubscribe"] = "NO" if exclusive == "NODE" else exclusive
        elif "Exclusive" in row and row["oversubscribe"] == "NO":
            row["oversubscribe"] = "OK"
        yield row


def told(row: Row) -> int:
    """What all rows of an array's record say alike, hashed."""
    return hash(tuple(word for name, word in row.items() if name not in _ALIKE))


@dataclass(slots=True)
class QueueReader:
    """Reads rows of squeue, which may lack columns of columns.FIELDS. A row that cannot be read
    costs that job.

    A pending one of which the id, what rules its priority and what names it can be read is there,
    marked unreadable. Of a running one sinfo says that its nodes are taken, and nothing when they
    come back.

    standing: further fields by those that are read: what rules the priority of a job. requests:
    None = what jobs ask for is not read, and no job that runs. odd: what else is wrong with a
    pending job of these partitions; empty = nothing. whole: see SteppedTasks. ages_at: the look's
    time, from which a job ages that could run and has no AccrueTime (MaxJobsAccrue limits); -inf =
    no job does. only: numbers of the records that are read, as squeue prints them; None = all.
    siblings: pending records of each array that count besides. throttles: of these arrays, whose
    rows show none; see Layout.
    """

    standing: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _job: {}
    requests: Requests | None = None
    nodes: Mapping[str, Node] = field(default_factory=dict)
    odd: Callable[[JobId, tuple[str, ...]], str] = lambda _job, _partitions: ""
    whole: Callable[[str, list[str]], list[str]] = lambda _number, shown: shown
    digester: Digester | None = None
    ages_at: float = -math.inf
    only: Collection[str] | None = None
    siblings: int = 0
    throttles: Callable[[frozenset[str]], Mapping[str, int | None]] = lambda _arrays: {}

    def read(self, rows: Iterable[Row]) -> JobsShown:
        """The jobs. Raises SnapshotError: too many; BackendError: as whole."""
        arrays: dict[str, tuple[Row, list[str], int]] = {}  # pending ones: a row, tasks, the rest
        made: dict[str, _Made] = {}
        seen, records, doubted = set[str](), Counter[str](), set[str]()
        for row in rows:
            number, task = row["jobid"], row.get("arraytaskid", "")
            is_asked = self.only is None or number in self.only
            if number in seen:  # of one more task, or of another job
                if number in arrays and arrays[number][2] == told(row):
                    arrays[number][1].append(task)
                elif is_asked:
                    doubted.add(number)
                continue
            if self.requests is not None and len(seen) == MOST_RECORDS:
                raise SnapshotError(f"squeue: more than {MOST_RECORDS} job records")
            seen.add(number)
            is_array = row["statecompact"] == "PD" and not absent(task)
            records[row["arrayjobid"]] += is_array
            if is_asked and is_array:
                arrays[number] = row, [task], told(row)
            elif is_asked:
                made[number] = self._made(row, [task], 1, None)
        made.update(self._arrays_made(arrays, records))
        return _shown(made | dict.fromkeys(doubted, TWICE), len(seen))

    def _arrays_made(
        self, arrays: dict[str, tuple[Row, list[str], int]], records: Counter[str]
    ) -> Iterator[tuple[str, _Made]]:
        bare = {row["arrayjobid"] for row, tasks, _ in arrays.values() if "%" not in tasks[0]}
        throttles = self.throttles(frozenset(bare)) if bare else {}
        for number in tuple(arrays):
            row, tasks, _ = arrays.pop(number)  # its words go as its job comes
            array = row["arrayjobid"]
            count = records[array] + self.siblings
            yield number, self._made(row, tasks, count, throttles.get(array))

    def _made(self, row: Row, tasks: list[str], records: int, throttle: int | None) -> _Made:
        try:
            if row["statecompact"] == "PD":
                return self._pending(row, tasks, records, throttle)
            runs = row["statecompact"] in _RUNNING and not absent(row.get("starttime", ""))
            if self.requests is not None and runs:
                return _running(row, self.requests, self.nodes, self._kinds(row))
            # a state that is not looked into may be new, but it is one of Slurm's short words
            if not _STATE.fullmatch(row["statecompact"]):
                return f"{row['statecompact'][:20]!r} is no state"
            return frozenset({parse_job_id(row["jobid"]), parse_job_id(row["arrayjobid"])})
        except ValueError as error:
            return str(error)

    def _pending(
        self, row: Row, tasks: list[str], records: int, throttle: int | None
    ) -> PendingJob:
        """The job behind its rows. tasks: of all of them. records: pending ones of its array.
        Raises ValueError: what names it, or what rules its priority, cannot be read.
        """
        job = _named(row, self.whole(row["jobid"], tasks), records, throttle)
        job["partitions"] = partitions = word_list(row.get("partition", ""))
        job["kinds"], job["request"] = self._kinds(row), UNASKED
        job["unreadable"] = self.odd(job["job_id"], partitions)
        for column, (name, read) in FIELDS.items():
            if column in row:
                try:
                    job[name] = read(row[column])
                except ValueError as error:
                    job["unreadable"] = str(error)
        if job.get("accrue_at") is None and 0 < (job.get("eligible_at") or 0) <= self.ages_at:
            job["accrue_at"] = self.ages_at
        if self.requests is not None:
            try:
                job["request"] = self.requests.read(row, running=False)
            except ValueError as error:
                job["request"], job["unreadable"] = Request(Resources()), str(error)
        job.update(self.standing(job))
        return PendingJob(**job)

    def _kinds(self, row: Row) -> Kinds:
        if self.digester is None:
            return NO_KINDS
        texts = tuple(name for name in TEXT_COLUMNS if name in row)
        return self.digester.kinds(texts, *(row[name] for name in texts)) if texts else NO_KINDS


def _shown(made: Mapping[str, _Made], count: int) -> JobsShown:
    """By number; count: of all records."""
    pending = tuple(job for job in made.values() if isinstance(job, PendingJob))
    running = tuple(job for job in made.values() if isinstance(job, RunningJob))
    others = (ids for ids in made.values() if isinstance(ids, frozenset))
    unread = [
        Unreadable("job", one_line(number, 20), why, id_of(number))
        for number, why in made.items()
        if isinstance(why, str)
    ]
    unread += [
        Unreadable("job", job.address, job.unreadable, job.job_id)
        for job in pending
        if job.unreadable
    ]
    left = count - len(pending) - len(running)
    lingering = tuple(sorted(frozenset[JobId]().union(*others)))
    return JobsShown(pending, running, left, lingering, tuple(unread))


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
_MOST_KEPT: Final = 1_000


class SteppedTasks:
    """The whole lists, each asked for once as long as squeue shows the same tasks."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._known: dict[tuple[str, ...], list[str]] = {}
        self._left = inf

    def look(self) -> None:
        """A new cycle begins."""
        self._left = MOST_ASKED
        if len(self._known) > _MOST_KEPT:
            self._known.clear()

    def whole(self, number: str, shown: list[str]) -> list[str]:
        """All tasks of a pending record by its number. shown: a text per task, from squeue -r,
        which leaves out the last one where they are evenly apart and not neighbours. Raises
        ValueError: they are not known now. BackendError: scontrol does not answer.
        """
        if len(shown) < LEAST:
            return shown
        steps = {b - a for a, b in pairwise(sorted(map(parse_number, shown)))}
        if len(steps) > 1 or steps == {1}:
            return shown
        key = (number, *shown)
        if key not in self._known:
            self._known[key] = self._ask(number, shown)
        return self._known[key]

    def _ask(self, number: str, shown: list[str]) -> list[str]:
        if self._left <= 0:
            raise ValueError("squeue -r may leave out its last task; scontrol is asked later")
        self._left -= 1
        out = self._commands.call("scontrol", "-o", "show", "job", number).stdout
        found = re.findall(rf"^JobId={number} ArrayJobId=\d+ ArrayTaskId=(\S+)", out, re.MULTILINE)
        if len(found) != 1:  # a job's name may hold a line that looks like this one
            why = f"scontrol: {TWICE}" if found else "and scontrol shows none"
            raise ValueError(f"squeue -r may leave out its last task, {why}")
        listed = parse_tasks(found[0])
        # counted before they are listed: there may be very many
        tasks = listed.named.split(",") if listed.count <= len(shown) + 1 else []
        if {*tasks[: len(shown)]} != {*shown}:
            raise ValueError("its tasks changed while they were read")
        return tasks
