"""Records on a cluster: the jobs to be played, which of them are scored, and what was assumed.

Time counts from the beginning of the record. What ran at that moment is put on the cluster first,
what waited then may not start before. A job counts from when it was eligible: dependencies, holds
and --begin are not the scheduler's doing. A true run time only lets its job end.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.site import SiteModel, noted, residual_priority, without_unused
from rltuned.lab.replay.metrics import FloatArray
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import EmptyCluster, TraceJob
from rltuned.slurm.accounting import LATE_S, OF_A_TRACE, SHORTEST_S, SacctAnswer, SacctRecord
from rltuned.slurm.values import expand_hosts
from rltuned.text import counted

Records = Sequence[SacctRecord]
FEWEST: Final = 30
"""Jobs to be scored in the later part; of fewer nothing is concluded."""
MOST_TASKS: Final = 4_000
"""Waiting tasks that are played beside the first of their arrays: none is scored."""


@dataclass(frozen=True, slots=True)
class Span:
    """Unix seconds: the record's begin and end. split: switched on when so many jobs had come."""

    begin: float | None = None
    until: float | None = None
    split: float = 0.7


@dataclass(frozen=True, slots=True)
class Past:
    """What is played. All arrays (n,) in the order of jobs, which is that of their arrival.

    Attributes:
        site: the cluster as it is played.
        jobs: times in seconds since begin.
        begin, until: of the record, Unix seconds.
        arrived_s: when each came, seconds since begin.
        split_s: when rltuned is switched on, seconds since begin.
        wait_s: real, start - eligible; nan where it is not known.
        pended_s: real, start - submit.
        scored: came within the record, and its run time and start are known.
        by_main: Slurm's main scheduler started it, by the record.
        running, waiting: numbers (from 1) of the jobs that ran, and waited, at the beginning.
        ended_s: when it really ended; inf where it had not.
        use_recorded: what multifactor adds beyond age, size and partition was taken from the
            recorded priorities.
        left_out: reason -> records, beside those of the reading.
        assumed: jobs whose run time was assumed.
        absent: nodes out of service now on which nothing ran.
    """

    site: SiteModel
    jobs: tuple[TraceJob, ...]
    begin: float
    until: float
    arrived_s: FloatArray
    split_s: float
    wait_s: FloatArray
    pended_s: FloatArray
    scored: NDArray[np.bool_]
    by_main: NDArray[np.bool_]
    running: frozenset[int]
    waiting: frozenset[int]
    ended_s: FloatArray
    use_recorded: bool
    left_out: Counter[str]
    assumed: int
    absent: tuple[str, ...]
    noted: tuple[str, ...]

    @property
    def later(self) -> NDArray[np.bool_]:
        """(n,) scored jobs that came after the split."""
        return self.scored & (self.arrived_s >= self.split_s)

    @property
    def started_s(self) -> FloatArray:
        """(n,) when each really started; what ran at the beginning came with its start. inf = not
        known.
        """
        ran = np.zeros(len(self.jobs), dtype=bool)
        ran[np.array(sorted(self.running), dtype=np.int64) - 1] = True
        found = self.arrived_s + np.where(ran, 0.0, self.wait_s)
        return np.where(np.isnan(found), math.inf, found)

    def known(self) -> tuple[list[TraceJob], FloatArray]:
        """Jobs that had ended when rltuned is switched on, all that may be learned from; and (k,)
        when they had started.
        """
        taken = np.flatnonzero((self.ended_s <= self.split_s) & (self.arrived_s >= 0))
        return [self.jobs[i] for i in taken], self.started_s[taken]

    def switched_on(self, at_s: float, end_s: float = math.inf) -> "Past":
        """The same with rltuned switched on at another time, without the jobs that come from end_s.

        Both in seconds since begin.
        """
        count = int(np.searchsorted(self.arrived_s, end_s))
        own = self.site.natural.own
        natural = replace(self.site.natural, own=own[:count]) if own else self.site.natural
        return replace(
            self,
            site=replace(self.site, natural=natural),
            jobs=self.jobs[:count],
            arrived_s=self.arrived_s[:count],
            split_s=at_s,
            wait_s=self.wait_s[:count],
            pended_s=self.pended_s[:count],
            scored=self.scored[:count],
            by_main=self.by_main[:count],
            ended_s=self.ended_s[:count],
            running=frozenset(n for n in self.running if n <= count),
            waiting=frozenset(n for n in self.waiting if n <= count),
        )


@dataclass(frozen=True, slots=True)
class _ReplayRow:
    """A record as it is played. ran, held: it ran, or waited, when the record began."""

    record: SacctRecord
    job: TraceJob
    ran: bool
    held: bool

    @property
    def scored(self) -> bool:
        return self.record.end_s is not None and not (self.ran or self.held or self.record.het)


def past_of(history: SacctAnswer, site: SiteModel, span: Span) -> Past:
    """Put a history on a cluster.

    Raises TraceError: too little is left, or the GPUs of the jobs were not recorded.
    """
    if not history.records:
        raise TooLittleError(
            f"no usable record in {history.rows} rows: {_listed(history.left_out)}"
        )
    left_out: Counter[str] = Counter()
    until = span.until or max(_last(r) for r in history.records)
    begin = span.begin if span.begin is not None else _begin(history.records)
    records = [r for r in history.records if _within(r, begin, until, left_out)]
    if not records:
        raise TooLittleError(f"no job is left to play: {_listed(left_out)}; take a longer history")
    if not any(r.gpus for r in records):
        raise TraceError(
            "no job has GPUs in ReqTRES or AllocTRES: unknown is not zero. slurm.conf needs "
            "AccountingStorageTRES=gres/gpu, and jobs count from then on"
        )
    site, absent = without_unused(site, frozenset(n for r in records for n in _hosts(r.where)))
    rows = _rows(records, site, begin, until, left_out)
    arrived, scored, split_s = _scored(rows, span.split, left_out)
    natural, recorded = residual_priority([(r.record, r.job) for r in rows], site)
    return Past(
        site=replace(site, natural=natural, cluster=_without_limits(site.cluster)),
        jobs=tuple(replace(row.job, job_id=f"{row.job.job_id}#{i}") for i, row in enumerate(rows)),
        begin=begin,
        until=until,
        arrived_s=arrived,
        split_s=split_s,
        wait_s=_since(rows, eligible=True),
        pended_s=_since(rows, eligible=False),
        scored=scored,
        by_main=np.array([row.record.main for row in rows], dtype=bool),
        running=frozenset(i for i, row in enumerate(rows, 1) if row.ran),
        waiting=frozenset(i for i, row in enumerate(rows, 1) if row.held),
        ended_s=np.array(
            [math.inf if r.record.end_s is None else r.record.end_s - begin for r in rows]
        ),
        use_recorded=recorded,
        left_out=left_out,
        assumed=sum(row.record.end_s is None for row in rows),
        absent=absent,
        noted=tuple(noted(records)),
    )


def _rows(
    records: Records, site: SiteModel, begin: float, until: float, left_out: Counter[str]
) -> list[_ReplayRow]:
    """What fits the cluster, each task of an array by itself, in the order of arrival."""
    longest = {p.name: p.max_time_s for p in site.cluster.partitions if p.max_time_s is not None}
    cluster, usual = _without_limits(site.cluster), _usual(records)
    rows: list[_ReplayRow] = []
    empty, room = EmptyCluster(cluster), MOST_TASKS
    for record in records:
        run_s = _run_s(record, until, usual)
        limit_s = _limit_s(record, run_s, longest.get(record.partition, math.inf))
        row = _row(record, site, begin, max(limit_s, 60.0), run_s)
        why = empty.why_not(row.job)
        if why is None:
            more = min(record.tasks - 1, room)
            room -= more
            rows += [row] * (1 + more)
            if left := record.tasks - 1 - more:
                left_out[f"tasks of waiting arrays beyond {MOST_TASKS:,}"] += left
        else:
            left_out[f"does not fit this cluster: {why}"] += 1
    return sorted(rows, key=lambda row: (row.job.submit_s, row.record.number))


def _scored(
    rows: Sequence[_ReplayRow], split: float, left_out: Counter[str]
) -> tuple[FloatArray, NDArray[np.bool_], float]:
    """(n,) arrivals; (n,) whether each is scored; when rltuned is switched on."""
    scored = np.array([row.scored for row in rows], dtype=bool)
    if not scored.any():
        raise TooLittleError(
            f"no job came and ended within the record and fits the cluster: {_listed(left_out)}"
        )
    arrived = np.array([row.job.submit_s for row in rows], dtype=np.float64)
    split_s = float(np.quantile(arrived[scored], split, method="higher"))
    later = int((scored & (arrived >= split_s)).sum())
    if later < FEWEST:
        raise TooLittleError(
            f"{counted(later, 'job')} to judge by after the split ({int(scored.sum())} in all, "
            f"{_listed(left_out)}): too few, at least {FEWEST} are needed; take a longer history"
        )
    return arrived, scored, split_s


def _since(rows: Sequence[_ReplayRow], *, eligible: bool) -> FloatArray:
    found = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        record = row.record
        if record.start_s is not None:
            found[i] = record.start_s - (record.eligible_s if eligible else record.submit_s)
    return found


def _begin(records: Records) -> float:
    """The first end: a job that ended earlier is not in an answer of sacct, so before it the
    cluster was fuller than the records show.
    """
    ends = [r.end_s for r in records if r.end_s is not None]
    if not ends:
        raise TooLittleError("no job has ended: there is nothing to compare with")
    return min(ends)


def _last(record: SacctRecord) -> float:
    return max(t for t in (record.submit_s, record.start_s, record.end_s) if t is not None)


def _within(record: SacctRecord, begin: float, until: float, left_out: Counter[str]) -> bool:
    overdue = until - (record.start_s or until) - record.limit_s
    if record.submit_s > until:
        left_out["came after the record"] += 1
    elif record.end_s is not None and record.end_s <= begin:
        left_out["ended before the record begins"] += 1
    elif record.end_s is None and record.start_s is not None and overdue > LATE_S:
        left_out["seems to run for ever (slurmdbd does not know its end)"] += 1
    else:
        return True
    return False


def _row(
    record: SacctRecord, site: SiteModel, begin: float, limit_s: float, run_s: float
) -> _ReplayRow:
    ran = record.start_s is not None and record.start_s < begin
    arrived = record.start_s if ran and record.start_s is not None else record.eligible_s
    whole = _whole(record, site)
    job = TraceJob(
        job_id=record.key,
        submit_s=arrived - begin,
        duration_s=run_s,
        time_limit_s=limit_s,
        cpus=record.cpus if whole else max(record.cpus, record.alloc_cpus),
        mem_mib=record.mem_mib if site.slurm.memory_counts else None,
        exclusive=whole,
        status=record.state,
        **{name: getattr(record, name) for name in OF_A_TRACE},
    )
    return _ReplayRow(record, job, ran, not ran and record.eligible_s < begin)


def _limit_s(record: SacctRecord, run_s: float, longest_s: float) -> float:
    """Its own limit; without one the partition's of today, unless it ran for longer. A partition's
    limit may have been longer then, and an administrator may have extended the job's own.
    """
    if math.isfinite(record.limit_s):
        return record.limit_s
    return longest_s if run_s <= longest_s else math.inf


def _run_s(record: SacctRecord, until: float, usual: tuple[float, float]) -> float:
    """True run time; of a job that has not ended the usual share of its limit."""
    if record.ran_s is not None:
        return record.ran_s
    limited = math.isfinite(record.limit_s)
    guess = max(SHORTEST_S, usual[0] * record.limit_s if limited else usual[1])
    if record.start_s is None:
        return guess
    return max(guess, until - record.start_s + SHORTEST_S)


def _usual(records: Records) -> tuple[float, float]:
    """Median of the run times as a share of the limit, and in seconds."""
    pairs = [(r.ran_s, r.limit_s) for r in records if r.ran_s is not None]
    shares = [min(1.0, run / limit) for run, limit in pairs if math.isfinite(limit)]
    runs = [run for run, _ in pairs]
    return (median(shares) if shares else 1.0), (median(runs) if runs else SHORTEST_S)


def _whole(record: SacctRecord, site: SiteModel) -> bool:
    """Whether it held whole nodes of which it had asked for a part."""
    if not record.where or record.alloc_cpus <= record.cpus:
        return False
    totals = {str(n.name): n.total for n in site.cluster.nodes}
    mine = [totals.get(name) for name in _hosts(record.where)]
    known = [t for t in mine if t is not None]
    if len(known) < len(mine) or not known:
        return False
    every_cpu = record.alloc_cpus >= sum(t.cpus for t in known)
    return every_cpu and record.alloc_gpus >= sum(t.gpus for t in known)


@lru_cache(maxsize=65_536)
def _hosts(where: str) -> tuple[str, ...]:
    try:
        return expand_hosts(where)
    except ValueError:
        return ()


def _without_limits(full: Cluster) -> Cluster:
    """Every record has its own limit; the partition's longest counts where it names none."""
    return replace(full, partitions=tuple(replace(p, max_time_s=None) for p in full.partitions))


def _listed(left_out: Counter[str]) -> str:
    return "; ".join(f"{n} {why}" for why, n in left_out.most_common(4)) or "nothing was left out"
