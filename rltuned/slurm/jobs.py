"""squeue's rows -> pending and running jobs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import PendingJob, Remembered, Request, RunningJob
from rltuned.domain.kinds import NO_KINDS, Kinds
from rltuned.domain.ports import NOTHING
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import Ask, JobRow
from rltuned.slurm.records import Record, id_of, parse_job_id, read_record
from rltuned.slurm.request import Requests, shares_of
from rltuned.slurm.strings import expand_hosts
from rltuned.slurm.talk import one_line
from rltuned.slurm.values import absent, parse_epoch, parse_number

_ASK = len(Ask._fields)
_ROW = _ASK + len(JobRow._fields)
_TASK, _PRIORITY, _START = (
    _ASK + JobRow._fields.index(name) for name in ("arraytaskid", "prioritylong", "starttime")
)
_FIELDS = tuple(f.name for f in fields(PendingJob))
_values = attrgetter(*_FIELDS)
_RUNNING = frozenset({"R", "CF"})
MOST_RECORDS: Final = 150_000
"""So many jobs fit into the memory that the service is given (docs/performance.md)."""
_STATE = re.compile(r"[A-Z]{1,3}")
_NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})
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


@dataclass(slots=True)
class Known:
    """What stays from look to look: a job of which nothing but numbers changes is read once.

    jobs: pending ones that are no arrays, by their numbers as squeue prints them, each with the
    hash of its row without the priority and the start that backfill expects. Hashes have 64 bits
    and a key of this process, so no user can forge one.
    """

    requests: Requests
    jobs: dict[str, tuple[int, PendingJob]] = field(default_factory=dict)


class _Same(NamedTuple):
    """A pending job that is known, and what its row and its texts say now."""

    job: PendingJob
    priority: str
    kinds: Kinds


@dataclass(slots=True)
class _Rows:
    """One job record; squeue -r prints a row for each of its tasks. hashed: of Known; 0 = none."""

    ask: Ask
    row: JobRow
    tasks: list[str]
    excluded: str
    cron: bool
    kinds: Kinds
    hashed: int


@dataclass(frozen=True, slots=True)
class _PendingReader:
    """Pending records -> jobs; see read_queue."""

    requests: Requests
    stands: Callable[[Record, int], PriorityState]
    odd: Callable[[JobId, tuple[str, ...]], str]
    remembered: Remembered

    def again(self, same: _Same) -> PendingJob:
        """A job that is known, with its numbers of now. Raises ValueError."""
        job = same.job
        named = Record(
            job.job_id, job.address, job.submitted_at, parse_number(same.priority), job.nice,
            job.held_by, job.array, job.het_job_id,
        )  # fmt: skip
        numbers = self._numbers(named, job.partitions, same.kinds)
        if all(getattr(job, name) == now for name, now in numbers.items()):
            return job
        return PendingJob(**dict(zip(_FIELDS, _values(job), strict=True)) | numbers)

    def read(self, record: _Rows, pending_records: int) -> PendingJob:
        """The job behind its rows. pending_records: of its array. Raises ValueError: what names it,
        or what rules its priority, cannot be read.
        """
        row, ask = record.row, record.ask
        named = read_record(row, record.tasks, pending_records)
        partitions = _names(ask.partition)
        numbers = self._numbers(named, partitions, record.kinds)
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

    def _numbers(self, named: Record, partitions: tuple[str, ...], kinds: Kinds) -> dict[str, Any]:
        """The fields of a PendingJob that do not follow from its row alone."""
        key = (named.job_id, named.submitted_at)
        return {
            **self.stands(named, len(partitions))._asdict(),
            "owned": self.remembered.owned.get(key),
            "recent_writes": self.remembered.recent_writes.get(key, 0),
            "kinds": kinds,
            "unreadable": self.odd(named.job_id, partitions),
        }


def read_queue(
    rows: Iterable[list[str]],
    known: Known,
    nodes: Mapping[str, Node],
    extras: tuple[str, ...] = (),
    stands: Callable[[Record, int], PriorityState] = as_shown,
    *,
    odd: Callable[[JobId, tuple[str, ...]], str] = lambda _job, _partitions: "",
    remembered: Remembered = NOTHING,
    kinds: Mapping[str, Kinds] = _NO_KINDS,
) -> SqueueAnswer:
    """Jobs from squeue's rows. A row that cannot be read costs that job.

    A pending one of which the id, what rules its priority and what names it can be read is there,
    marked unreadable. Of a running one sinfo says that its nodes are taken, and nothing when they
    come back.

    rows: the columns of Layout.job_columns; one row per record or one per array task. extras: those
    of columns.EXTRA_COLUMNS that the rows have, in front of the account. odd: what else is wrong
    with a pending job of these partitions; empty = nothing. kinds: of jobs by their numbers as
    squeue prints them, each there once its row is. known: is brought up to date.
    """
    records = _records(rows, extras, kinds, known.jobs)
    total = len(records)
    pending_of = Counter(
        r.row.arrayjobid
        for r in records.values()
        if isinstance(r, _Rows) and r.row.statecompact == "PD"
    )
    reader = _PendingReader(known.requests, stands, odd, remembered)
    pending: list[PendingJob] = []
    running: list[RunningJob] = []
    lingering: set[JobId] = set()
    bad: list[Unreadable] = []
    jobs: dict[str, tuple[int, PendingJob]] = {}
    for number in tuple(records):
        record = records.pop(number)  # its text goes as its job comes
        try:
            if isinstance(record, _Same):
                job, hashed = reader.again(record), known.jobs[number][0]
            elif record.row.statecompact == "PD":
                job = reader.read(record, pending_of[record.row.arrayjobid])
                hashed = record.hashed
            else:
                if record.row.statecompact in _RUNNING and not absent(record.row.starttime):
                    running.append(_running(record, known.requests, nodes))
                else:
                    lingering |= _others(record.row)
                continue
        except ValueError as error:
            bad.append(Unreadable("job", one_line(number, 20), str(error), id_of(number)))
            continue
        pending.append(job)
        if job.unreadable:
            bad.append(Unreadable("job", job.address, job.unreadable, job.job_id))
        elif hashed:
            jobs[number] = (hashed, job)
    known.jobs = jobs
    return SqueueAnswer(
        pending=tuple(pending),
        running=tuple(running),
        others=total - len(pending) - len(running),
        lingering=tuple(sorted(lingering)),
        unreadable=tuple(bad),
    )


def _others(row: JobRow) -> set[JobId]:
    """The ids of a record that neither waits nor runs. Raises ValueError."""
    # a state that is not looked into may be new, but it is one of Slurm's short words
    if not _STATE.fullmatch(row.statecompact):
        raise ValueError(f"{row.statecompact[:20]!r} is no state")
    return {parse_job_id(row.jobid), parse_job_id(row.arrayjobid)}


def _records(
    rows: Iterable[list[str]],
    extras: tuple[str, ...],
    kinds: Mapping[str, Kinds],
    known: Mapping[str, tuple[int, PendingJob]],
) -> dict[str, _Rows | _Same]:
    records: dict[str, _Rows | _Same] = {}
    asks: dict[Ask, Ask] = {}
    for raw in rows:
        number = raw[_ASK]
        if number in records:
            if isinstance(other := records[number], _Rows):
                other.tasks.append(raw[_TASK])
            continue
        if len(records) == MOST_RECORDS:
            raise SnapshotError(f"squeue: more than {MOST_RECORDS} job records")
        hashed, texts = _hashed(raw), kinds.get(number, NO_KINDS)
        before = known.get(number)
        if before is not None and hashed == before[0]:
            records[number] = _Same(before[1], raw[_PRIORITY], texts)
            continue
        row = JobRow._make((*raw[_ASK : _ROW - 1], raw[-1]))
        more = dict(zip(extras, raw[_ROW - 1 : -1], strict=True)) if extras else _NO_MORE
        ask = Ask._make(raw[:_ASK])
        if "Exclusive" in more:
            ask = ask._replace(oversubscribe=_older_word(ask.oversubscribe, more["Exclusive"]))
        records[number] = _Rows(
            asks.setdefault(ask, ask),
            row,
            [row.arraytaskid],
            more.get("ExcNodes", ""),
            more.get("CronJob", "").lower() in {"yes", "1", "true"},
            texts,
            hashed,
        )
    return records


def _hashed(raw: list[str]) -> int:
    """Of Known; 0 = none: another row may name more tasks of an array."""
    if not absent(raw[_TASK]):
        return 0
    return hash((*raw[:_PRIORITY], *raw[_PRIORITY + 1 : _START], *raw[_START + 1 :]))


def _older_word(oversubscribe: str, exclusive: str) -> str:
    """One word for both columns of 26.05, as older releases have it: NO means whole nodes. In 26.05
    a job that never spoke of sharing shows NO as well; it is OK here, as it was.
    """
    if exclusive == "NODE":
        return "NO"
    if exclusive != "NO":
        return exclusive
    return "OK" if oversubscribe == "NO" else oversubscribe


@lru_cache(maxsize=1024)  # jobs that ask for the same partitions share one tuple
def _names(partitions: str) -> tuple[str, ...]:
    return tuple(partitions.split(","))


def _text(value: str) -> str:
    return "" if absent(value) else value


def _running(record: _Rows, requests: Requests, nodes: Mapping[str, Node]) -> RunningJob:
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
