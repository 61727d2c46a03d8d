"""squeue's rows -> pending and running jobs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.context import NOTHING, Remembered
from rltuned.domain.jobs import PendingJob, Request, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId
from rltuned.slurm.columns import JobRow
from rltuned.slurm.queue_rows import Known, KnownJobs, RecordRows, Same, records_of
from rltuned.slurm.records import TWICE, Record, id_of, parse_job_id, read_record
from rltuned.slurm.request import Requests, shares_of
from rltuned.slurm.stepped import Whole
from rltuned.slurm.strings import expand_hosts
from rltuned.slurm.values import absent, parse_epoch, parse_number
from rltuned.text import one_line

_FIELDS = tuple(f.name for f in fields(PendingJob))
_values = attrgetter(*_FIELDS)
_RUNNING = frozenset({"R", "CF"})
_STATE = re.compile(r"[A-Z]{1,3}")
_NO_KINDS: Final[Mapping[str, Kinds]] = MappingProxyType({})


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
    fair: int | None = None


_NUMBERS = (*PriorityState._fields, "kinds", "unreadable")
"""The fields of a PendingJob that do not follow from its row alone."""
_numbers_of = attrgetter(*_NUMBERS)
_PLACES = tuple(map(_FIELDS.index, _NUMBERS))


def as_shown(record: Record, _partitions: int) -> PriorityState:
    """Nothing is known but squeue's number."""
    return PriorityState(record.priority)


@dataclass(frozen=True, slots=True)
class SqueueAnswer:
    """What squeue showed: pending and running records, how many there are in other states, the ids
    that those bear, their arrays' included, and what could not be read.
    """

    pending: tuple[PendingJob, ...]
    running: tuple[RunningJob, ...]
    others: int
    lingering: tuple[JobId, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class _PendingReader:
    """Pending records -> jobs; see read_queue."""

    requests: Requests
    stands: Callable[[Record, int], PriorityState]
    odd: Callable[[JobId, tuple[str, ...]], str]
    whole: Whole

    def again(self, same: Same) -> PendingJob | RunningJob:
        """A job that is known; a pending one with its numbers of now. Raises ValueError."""
        job = same.job
        if isinstance(job, RunningJob):
            return job
        named = Record(
            job.job_id, job.address, job.submitted_at, parse_number(same.priority), job.nice,
            job.held_by, job.array, job.het_job_id,
        )  # fmt: skip
        numbers = self._numbers(named, job.partitions, same.kinds)
        if _numbers_of(job) == numbers:
            return job
        values = list(_values(job))  # by place, as this is done for every job of a cycle
        for place, number in zip(_PLACES, numbers, strict=True):
            values[place] = number
        return PendingJob(*values)

    def read(self, record: RecordRows, pending_records: int) -> PendingJob:
        """The job behind its rows. pending_records: of its array. Raises ValueError: what names it,
        or what rules its priority, cannot be read.
        """
        row, ask = record.row, record.ask
        named = read_record(row, self.whole(row.jobid, record.tasks), pending_records)
        partitions = _names(ask.partition)
        numbers = dict(zip(_NUMBERS, self._numbers(named, partitions, record.kinds), strict=True))
        try:
            request = self.requests.read(ask, running=False)
            moments = [parse_epoch(at) for at in (row.eligibletime, row.accruetime, row.deadline)]
            required, excluded = expand_hosts(row.reqnodes), expand_hosts(record.excluded)
        except ValueError as error:
            request, moments, required, excluded = Request(Resources()), [None] * 3, (), ()
            numbers["unreadable"] = str(error)
        return PendingJob(
            job_id=named.job_id,
            address=named.address,
            submitted_at=named.submitted_at,
            request=request,
            partitions=partitions,
            eligible_at=moments[0],
            user=row.username,
            account=_text(row.account),
            qos=_text(row.qos),
            nice=named.nice,
            accrue_at=moments[1],
            reason=_text(row.reason),
            held_by=named.held_by,
            reservation=_text(row.reservation),
            dependency=_text(row.dependency),
            array=named.array,
            het_job_id=named.het_job_id,
            cron=record.cron,
            required_nodes=required,
            excluded_nodes=excluded,
            oversubscribe=ask.oversubscribe,
            deadline_at=moments[2],
            **numbers,
        )

    def _numbers(self, named: Record, partitions: tuple[str, ...], kinds: Kinds) -> tuple[Any, ...]:
        """The values of _NUMBERS."""
        return *self.stands(named, len(partitions)), kinds, self.odd(named.job_id, partitions)


def read_queue(
    rows: Iterable[list[str]],
    known: Known,
    nodes: Mapping[str, Node],
    extras: tuple[str, ...] = (),
    stands: Callable[[Record, int], PriorityState] = as_shown,
    *,
    odd: Callable[[JobId, tuple[str, ...]], str] = lambda _job, _partitions: "",
    whole: Whole = lambda _number, shown: shown,
    remembered: Remembered = NOTHING,
    kinds: Mapping[str, Kinds] = _NO_KINDS,
) -> SqueueAnswer:
    """Jobs from squeue's rows. A row that cannot be read costs that job.

    A pending one of which the id, what rules its priority and what names it can be read is there,
    marked unreadable. Of a running one sinfo says that its nodes are taken, and nothing when they
    come back.

    rows: the columns of Layout.job_columns; one row per record or one per array task. extras: those
    of columns.EXTRA_COLUMNS that the rows have, in front of the account. odd: what else is wrong
    with a pending job of these partitions; empty = nothing. whole: see stepped. kinds: of jobs by
    their numbers as squeue prints them, each there once its row is. known: is brought up to date.
    """
    known.forget_where_nodes_changed(nodes.values())
    doubted = set[str]()
    records = records_of(rows, extras, kinds, known.jobs, doubted)
    total = len(records)
    pending_of = Counter(
        r.row.arrayjobid
        for r in records.values()
        if isinstance(r, RecordRows) and r.row.statecompact == "PD"
    )
    reader = _PendingReader(known.requests, stands, odd, whole)
    pending: list[PendingJob] = []
    running: list[RunningJob] = []
    lingering: set[JobId] = set()
    bad: list[Unreadable] = []
    jobs: KnownJobs = {}
    for number in tuple(records):
        record = records.pop(number)  # its text goes as its job comes
        try:
            if number in doubted:
                raise ValueError(TWICE)  # noqa: TRY301 - as any other that cannot be read
            job = _job_of(record, reader, pending_of, nodes)
        except ValueError as error:
            bad.append(Unreadable("job", one_line(number, 20), str(error), id_of(number)))
            continue
        if isinstance(job, set):
            lingering |= job
            continue
        unread = _unread(job)
        bad += unread
        if isinstance(job, RunningJob):
            running.append(job)
        else:
            job = remembered.mark(job)
            pending.append(job)
        if record.hashed and not unread:
            jobs[number] = (record.hashed, job)
    known.jobs = jobs
    return SqueueAnswer(
        pending=tuple(pending),
        running=tuple(running),
        others=total - len(pending) - len(running),
        lingering=tuple(sorted(lingering)),
        unreadable=tuple(bad),
    )


def _job_of(
    record: RecordRows | Same,
    reader: _PendingReader,
    pending_of: Mapping[str, int],
    nodes: Mapping[str, Node],
) -> PendingJob | RunningJob | set[JobId]:
    """The job; of one that neither waits nor runs the ids that it bears. Raises ValueError."""
    if isinstance(record, Same):
        return reader.again(record)
    if record.row.statecompact == "PD":
        return reader.read(record, pending_of[record.row.arrayjobid])
    if len(record.tasks) > 1:  # one that waits no longer has a record for each task
        raise ValueError(TWICE)
    if record.row.statecompact in _RUNNING and not absent(record.row.starttime):
        return _running(record, reader.requests, nodes)
    return _others(record.row)


def _unread(job: PendingJob | RunningJob) -> list[Unreadable]:
    if isinstance(job, RunningJob) or not job.unreadable:
        return []
    return [Unreadable("job", job.address, job.unreadable, job.job_id)]


def _others(row: JobRow) -> set[JobId]:
    """The ids of a record that neither waits nor runs. Raises ValueError."""
    # a state that is not looked into may be new, but it is one of Slurm's short words
    if not _STATE.fullmatch(row.statecompact):
        raise ValueError(f"{row.statecompact[:20]!r} is no state")
    return {parse_job_id(row.jobid), parse_job_id(row.arrayjobid)}


@lru_cache(maxsize=1024)  # jobs that ask for the same partitions share one tuple
def _names(partitions: str) -> tuple[str, ...]:
    return tuple(partitions.split(","))


def _text(value: str) -> str:
    return "" if absent(value) else value


def _running(record: RecordRows, requests: Requests, nodes: Mapping[str, Node]) -> RunningJob:
    row = record.row
    started = parse_epoch(row.starttime)
    if started is None:
        raise ValueError("no start time")
    request = requests.read(record.ask, running=True)
    return RunningJob(
        job_id=parse_job_id(row.jobid),
        started_at=started,
        request=request,
        shares=shares_of(expand_hosts(row.nodelist), request, nodes),
        partition=record.ask.partition,
        user=row.username,
        account=_text(row.account),
        submitted_at=parse_epoch(row.submittime),
        eligible_at=parse_epoch(row.eligibletime),
        array_job_id=None if absent(row.arraytaskid) else parse_job_id(row.arrayjobid),
        array_task=int(row.arraytaskid) if row.arraytaskid.isdecimal() else None,
        qos=_text(row.qos),
        kinds=record.kinds,
    )
