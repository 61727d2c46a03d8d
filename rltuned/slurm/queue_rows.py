"""squeue's rows by job record, and which of them say what they said a cycle ago."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.kinds import NO_KINDS, Kinds
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import Ask, JobRow
from rltuned.slurm.request import Requests
from rltuned.slurm.values import absent

_ASK = len(Ask._fields)
_ROW = _ASK + len(JobRow._fields)
_TASK, _PRIORITY, _START, _STATE = (
    _ASK + JobRow._fields.index(name)
    for name in ("arraytaskid", "prioritylong", "starttime", "statecompact")
)
MOST_RECORDS: Final = 150_000
"""So many jobs fit into the memory that the service is given (docs/performance.md)."""
_NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})


KnownJobs = dict[str, tuple[int, PendingJob | RunningJob]]
"""Jobs by their numbers as squeue prints them, each with the hash of its row without the priority,
of a pending one also without the start that backfill expects. Hashes have 64 bits and a key of this
process, so no user can forge one."""


@dataclass(slots=True)
class Known:
    """What stays from cycle to cycle: a job of which nothing but numbers changes is read once.

    jobs: running ones, and pending ones that are no arrays. totals: of the nodes by which the
    running ones were read, hashed.
    """

    requests: Requests
    jobs: KnownJobs = field(default_factory=dict)
    totals: int = 0

    def forget_where_nodes_changed(self, nodes: Iterable[Node]) -> None:
        """Read running jobs again where other nodes are there, or nodes have something else: what
        a job has on each of its nodes follows from that.
        """
        have = ((n.name, n.total, *((g.gpu_type, g.total) for g in n.gpus)) for n in nodes)
        totals = hash(tuple(have))
        if totals != self.totals:
            self.jobs = {n: one for n, one in self.jobs.items() if isinstance(one[1], PendingJob)}
        self.totals = totals


class Same(NamedTuple):
    """A job that is known, and what its row and its texts say now."""

    job: PendingJob | RunningJob
    priority: str
    kinds: Kinds
    hashed: int


@dataclass(slots=True)
class RecordRows:
    """One job record; squeue -r prints a row for each of its tasks. hashed: of Known; 0 = none.
    told: what those rows have in common, hashed; 0 = it is no array's.
    """

    ask: Ask
    row: JobRow
    tasks: list[str]
    excluded: str
    cron: bool
    kinds: Kinds
    hashed: int
    told: int


def records_of(
    rows: Iterable[list[str]],
    extras: tuple[str, ...],
    kinds: Mapping[str, Kinds],
    known: Mapping[str, tuple[int, PendingJob | RunningJob]],
    doubted: set[str],
) -> dict[str, RecordRows | Same]:
    """The records by their numbers as squeue prints them; see jobs.read_queue. doubted: takes the
    numbers that stand in rows that are not of one record. Raises SnapshotError: there are too many.
    """
    records: dict[str, RecordRows | Same] = {}
    asks: dict[Ask, Ask] = {}
    for raw in rows:
        number = raw[_ASK]
        beside = len(raw) == _ASK + 1  # pyslurm, which has all tasks in its one row
        if beside or number in records:
            if number in records and not _is_another_task(records[number], raw, beside=beside):
                doubted.add(number)
            continue
        if len(records) == MOST_RECORDS:
            raise SnapshotError(f"squeue: more than {MOST_RECORDS} job records")
        hashed, texts = _hashed(raw), kinds.get(number, NO_KINDS)
        before = known.get(number)
        if before is not None and hashed == before[0] and _means(before[1], texts):
            records[number] = Same(before[1], raw[_PRIORITY], texts, hashed)
            continue
        row = JobRow._make((*raw[_ASK : _ROW - 1], raw[-1]))
        more = dict(zip(extras, raw[_ROW - 1 : -1], strict=True)) if extras else _NO_MORE
        ask = Ask._make(raw[:_ASK])
        if "Exclusive" in more:
            ask = ask._replace(oversubscribe=_older_word(ask.oversubscribe, more["Exclusive"]))
        records[number] = RecordRows(
            asks.setdefault(ask, ask),
            row,
            [row.arraytaskid],
            more.get("ExcNodes", ""),
            more.get("CronJob", "").lower() in {"yes", "1", "true"},
            texts,
            hashed,
            0 if absent(row.arraytaskid) else _told(raw),
        )
    return records


def _is_another_task(record: RecordRows | Same, raw: list[str], *, beside: bool) -> bool:
    """Whether a further row of a number may be of one more task, which the record then takes.
    beside: the row is of squeue, and the record of pyslurm.
    """
    if isinstance(record, Same) or not record.told:
        return False
    if beside:
        ask = Ask._make(raw[:_ASK])._replace(oversubscribe=record.ask.oversubscribe)
        return ask == record.ask
    record.tasks.append(raw[_TASK])
    return record.told == _told(raw)


def _told(raw: list[str]) -> int:
    """What all rows of an array's record say alike, hashed."""
    return hash((*raw[:_TASK], *raw[_TASK + 1 :]))


def _means(job: PendingJob | RunningJob, kinds: Kinds) -> bool:
    """Whether a job is known with its texts; those of a pending one are put in again anyway."""
    return isinstance(job, PendingJob) or job.kinds == kinds


def _hashed(raw: list[str]) -> int:
    """Of Known; 0 = none: another row may name more tasks of an array."""
    if raw[_STATE] != "PD":
        return hash((*raw[:_PRIORITY], *raw[_PRIORITY + 1 :]))
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
