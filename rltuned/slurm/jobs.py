"""squeue's rows -> pending and running jobs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

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
from rltuned.slurm.values import absent, parse_epoch

_ASK = len(Ask._fields)
_ROW = _ASK + len(JobRow._fields)
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
class _Rows:
    """One job record; squeue -r prints a row for each of its tasks."""

    ask: Ask
    row: JobRow
    tasks: list[str]
    excluded: str
    cron: bool
    kinds: Kinds


def read_queue(
    rows: Iterable[list[str]],
    requests: Requests,
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
    squeue prints them, each there once its row is.
    """
    records = _records(rows, extras, kinds)
    pending_of = Counter(r.row.arrayjobid for r in records.values() if r.row.statecompact == "PD")
    pending: list[PendingJob] = []
    running: list[RunningJob] = []
    lingering: set[JobId] = set()
    bad: list[Unreadable] = []
    for record in records.values():
        row = record.row
        try:
            if row.statecompact == "PD":
                job = _pending(
                    record, requests, pending_of[row.arrayjobid], stands, odd, remembered=remembered
                )
                pending.append(job)
                if job.unreadable:
                    bad.append(Unreadable("job", job.address, job.unreadable, job.job_id))
            elif row.statecompact in _RUNNING and not absent(row.starttime):
                running.append(_running(record, requests, nodes))
            else:
                _check_state(row.statecompact)
                lingering |= {parse_job_id(row.jobid), parse_job_id(row.arrayjobid)}
        except ValueError as error:
            bad.append(Unreadable("job", one_line(row.jobid, 20), str(error), id_of(row.jobid)))
    return SqueueAnswer(
        pending=tuple(pending),
        running=tuple(running),
        others=len(records) - len(pending) - len(running),
        lingering=tuple(sorted(lingering)),
        unreadable=tuple(bad),
    )


def _check_state(state: str) -> None:
    """A state that is not looked into may be new, but it is one of Slurm's short words."""
    if not _STATE.fullmatch(state):
        raise ValueError(f"{state[:20]!r} is no state")


def _records(
    rows: Iterable[list[str]], extras: tuple[str, ...], kinds: Mapping[str, Kinds]
) -> dict[str, _Rows]:
    records: dict[str, _Rows] = {}
    asks: dict[Ask, Ask] = {}
    for raw in rows:
        known = records.get(raw[_ASK])
        if known is not None:
            known.tasks.append(raw[_ASK + 2])
            continue
        row = JobRow._make((*raw[_ASK : _ROW - 1], raw[-1]))
        more = dict(zip(extras, raw[_ROW - 1 : -1], strict=True)) if extras else _NO_MORE
        ask = Ask._make(raw[:_ASK])
        if "Exclusive" in more:
            ask = ask._replace(oversubscribe=_older_word(ask.oversubscribe, more["Exclusive"]))
        if len(records) == MOST_RECORDS:
            raise SnapshotError(f"squeue: more than {MOST_RECORDS} job records")
        records[row.jobid] = _Rows(
            asks.setdefault(ask, ask),
            row,
            [row.arraytaskid],
            more.get("ExcNodes", ""),
            more.get("CronJob", "").lower() in {"yes", "1", "true"},
            kinds.get(row.jobid, NO_KINDS),
        )
    return records


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


def _pending(
    record: _Rows,
    requests: Requests,
    pending_records: int,
    stands: Callable[[Record, int], PriorityState],
    odd: Callable[[JobId, tuple[str, ...]], str],
    *,
    remembered: Remembered,
) -> PendingJob:
    row, ask = record.row, record.ask
    named = read_record(row, record.tasks, pending_records)
    partitions = _names(ask.partition)
    state = stands(named, len(partitions))
    fault, key = odd(named.job_id, partitions), (named.job_id, named.submitted_at)
    try:
        request = requests.read(ask, running=False)
        moments = [parse_epoch(at) for at in (row.eligibletime, row.accruetime, row.deadline)]
        required, excluded = expand_hosts(row.reqnodes), expand_hosts(record.excluded)
    except ValueError as error:
        request, moments, required, excluded = Request(Resources()), [None] * 3, (), ()
        fault = str(error)
    return PendingJob(
        job_id=named.job_id,
        address=named.address,
        submitted_at=named.submitted_at,
        request=request,
        priority=state.priority,
        partitions=partitions,
        eligible_at=moments[0],
        user=row.username,
        account=_text(row.account),
        qos=_text(row.qos),
        nice=named.nice,
        site_factor=state.site_factor,
        base=state.base,
        rest=state.rest,
        fair=state.fair,
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
        fixed=state.fixed,
        live=state.live,
        uneven=state.uneven,
        sticky=state.sticky,
        owned=remembered.owned.get(key),
        recent_writes=remembered.recent_writes.get(key, 0),
        deadline_at=moments[2],
        kinds=record.kinds,
        unreadable=fault,
    )


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
