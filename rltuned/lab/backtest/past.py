"""Records on a cluster: the jobs to be played, which of them are scored, and what was assumed.

Time counts from the beginning of the record. What ran at that moment is put on the cluster first,
what waited then may not start before. A job counts from when it was eligible: dependencies, holds
and --begin are not the scheduler's doing. A true run time only lets its job end.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.sacct_files import Report, saved_history
from rltuned.lab.backtest.site import (
    SiteModel,
    noted,
    read_site_model,
    residual_priority,
    with_own_backfill,
    without_unused,
)
from rltuned.lab.replay.metrics import FloatArray
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import EmptyCluster, TraceJob
from rltuned.sim.world import BackfillRule
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
        ran, held: it ran, or waited, when the record began.
        ended_s: when it really ended; inf where it had not.
        use_recorded: what multifactor adds beyond age, size and partition was taken from the
            recorded priorities.
        left_out: reason -> records.
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
    ran: NDArray[np.bool_]
    held: NDArray[np.bool_]
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
        found = self.arrived_s + np.where(self.ran, 0.0, self.wait_s)
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
        natural = self.site.natural
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        cut = {k: v[:count] for k, v in columns.items() if k == "jobs" or isinstance(v, np.ndarray)}
        site = replace(self.site, natural=replace(natural, own=natural.own[:count]))
        return replace(self, site=site, split_s=at_s, **cut)


def read_record(
    folder: Path,
    span: Span,
    show: Report = lambda _what, _part: None,
    *,
    backfill: BackfillRule | None = None,
) -> tuple[SacctAnswer, Past]:
    """A saved record on its site. backfill: None = the site's own. Raises TraceError: a file is
    unfit, or too little is left.
    """
    show("reading the record", 0.0)
    answer, site = saved_history(folder, span.begin), read_site_model(folder)
    show("reading the record", 1.0)
    site = replace(site, backfill=backfill) if backfill else with_own_backfill(site)
    return answer, past_of(answer, site, span)


def past_of(history: SacctAnswer, site: SiteModel, span: Span) -> Past:
    """Put a history on a cluster.

    Raises TraceError: too little is left, or the GPUs of the jobs were not recorded.
    """
    left_out = Counter(history.left_out)

    def refuse(why: str) -> NoReturn:
        listed = "; ".join(f"{n} {reason}" for reason, n in left_out.most_common(4))
        raise TooLittleError(f"{why} ({listed or 'nothing was left out'}); take a longer history")

    ends = [r.end_s for r in history.records if r.end_s is not None]
    if span.begin is None and not ends:
        refuse("no job has ended")
    # a job that ended before the first end is not in an answer of sacct: the cluster was fuller
    begin = min(ends) if span.begin is None else span.begin
    moments = [
        t for r in history.records for t in (r.submit_s, r.start_s, r.end_s) if t is not None
    ]
    until = span.until or max(moments, default=0.0)
    records = [r for r in history.records if _within(r, begin, until, left_out)]
    if not records:
        refuse("no job is left to play")
    if not any(r.gpus for r in records):
        raise TraceError(
            "no job has GPUs in ReqTRES or AllocTRES: unknown is not zero. slurm.conf needs "
            "AccountingStorageTRES=gres/gpu, and jobs count from then on"
        )
    site, absent = without_unused(site, frozenset(n for r in records for n in _hosts(r.where)))
    rows, cluster = _rows(records, site, begin, until, left_out)
    ran = np.array([r.start_s is not None and r.start_s < begin for r, _ in rows], dtype=bool)
    held = ~ran & np.array([r.eligible_s < begin for r, _ in rows], dtype=bool)
    ended = np.array([math.inf if r.end_s is None else r.end_s for r, _ in rows])
    scored = np.isfinite(ended) & ~ran & ~held & ~np.array([r.het for r, _ in rows], dtype=bool)
    if not scored.any():
        refuse("no job came and ended within the record and fits the cluster")
    arrived = np.array([job.submit_s for _, job in rows], dtype=np.float64)
    split_s = float(np.quantile(arrived[scored], span.split, method="higher"))
    if (later := int((scored & (arrived >= split_s)).sum())) < FEWEST:
        refuse(
            f"{counted(later, 'job')} to judge by after the split, {int(scored.sum())} in all: too "
            f"few, at least {FEWEST} are needed"
        )
    started = np.array([math.nan if r.start_s is None else r.start_s for r, _ in rows])
    natural, recorded = residual_priority(rows, site)
    return Past(
        site=replace(site, natural=natural, cluster=cluster),
        jobs=tuple(replace(job, job_id=f"{job.job_id}#{i}") for i, (_, job) in enumerate(rows)),
        begin=begin,
        until=until,
        arrived_s=arrived,
        split_s=split_s,
        wait_s=started - np.array([r.eligible_s for r, _ in rows]),
        pended_s=started - np.array([r.submit_s for r, _ in rows]),
        scored=scored,
        ran=ran,
        held=held,
        ended_s=ended - begin,
        use_recorded=recorded,
        left_out=left_out,
        assumed=sum(r.end_s is None for r, _ in rows),
        absent=absent,
        noted=tuple(noted(records)),
    )


def _within(record: SacctRecord, begin: float, until: float, left_out: Counter[str]) -> bool:
    overdue_s = until - (record.start_s or until) - record.limit_s
    if record.submit_s > until:
        left_out["came after the record"] += 1
    elif record.end_s is not None and record.end_s <= begin:
        left_out["ended before the record begins"] += 1
    elif record.end_s is None and record.start_s is not None and overdue_s > LATE_S:
        left_out["seems to run for ever (slurmdbd does not know its end)"] += 1
    else:
        return True
    return False


def _rows(
    records: Records, site: SiteModel, begin: float, until: float, left_out: Counter[str]
) -> tuple[list[tuple[SacctRecord, TraceJob]], Cluster]:
    """What fits the cluster, each task of an array by itself, in the order of arrival; and the
    cluster without limits, for every record has its own, or its partition's of today.
    """
    parts, ran = site.cluster.partitions, [(r.ran_s, r.limit_s) for r in records if r.ran_s]
    longest = {p.name: p.max_time_s for p in parts if p.max_time_s is not None}
    cluster = replace(site.cluster, partitions=tuple(replace(p, max_time_s=None) for p in parts))
    # of a job that has not ended: the usual share of its limit, or the usual run time
    share = median([min(1.0, run / limit) for run, limit in ran if math.isfinite(limit)] or [1.0])
    usual_s = median([run for run, _ in ran] or [SHORTEST_S])
    rows: list[tuple[SacctRecord, TraceJob]] = []
    empty, room = EmptyCluster(cluster), MOST_TASKS
    for record in records:
        limit_s, run_s, start_s = record.limit_s, record.ran_s, record.start_s
        if run_s is None:
            run_s = max(SHORTEST_S, share * limit_s if math.isfinite(limit_s) else usual_s)
            run_s = run_s if start_s is None else max(run_s, until - start_s + SHORTEST_S)
        if not math.isfinite(limit_s):  # the partition's may have been longer then
            today_s = longest.get(record.partition, math.inf)
            limit_s = today_s if run_s <= today_s else math.inf
        whole = _whole(record, site)
        job = TraceJob(
            job_id=record.key,
            submit_s=(start_s if start_s and start_s < begin else record.eligible_s) - begin,
            duration_s=run_s,
            time_limit_s=max(limit_s, 60.0),
            cpus=record.cpus if whole else max(record.cpus, record.alloc_cpus),
            mem_mib=record.mem_mib if site.slurm.memory_counts else None,
            exclusive=whole,
            status=record.state,
            **{name: getattr(record, name) for name in OF_A_TRACE},
        )
        if why := empty.why_not(job):
            left_out[f"does not fit this cluster: {why}"] += 1
            continue
        more = min(record.tasks - 1, room)
        room -= more
        rows += [(record, job)] * (1 + more)
        if left := record.tasks - 1 - more:
            left_out[f"tasks of waiting arrays beyond {MOST_TASKS:,}"] += left
    return sorted(rows, key=lambda row: (row[1].submit_s, row[0].number)), cluster


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
