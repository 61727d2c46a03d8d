"""The history of a Slurm without accounting: what the daemon's journal shows of its jobs.

The daemon's looks show when a job started, and its end to half of their distance. A run is a job's
number and its start. What is not known well enough is counted and not guessed.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from rltuned.domain.jobs import JobRun, PendingJob, RunningJob
from rltuned.domain.snapshot import JobTracker, Snapshot
from rltuned.journal.cycles import CycleObservation
from rltuned.lab.backtest.past import Span
from rltuned.slurm.accounting import SacctAnswer, SacctRecord


def history_of(
    records: Iterable[CycleObservation], cluster: str, span: Span
) -> tuple[SacctAnswer, Span]:
    """The looks of a cluster as accounting would have them, and the span that they cover."""
    tracker, runs, waited = (
        JobTracker(),
        dict[tuple[str, float], JobRun](),
        set[tuple[str, float]](),
    )
    first, last = None, None
    for look in (record.snapshot for record in records):
        if look.cluster != cluster:
            continue
        first, last = first or look, look
        runs |= {_key(job): JobRun(job) for job in look.running}
        runs |= {_key(run.job): run for run in tracker.look(look).ended}
        waited |= _waiting(look)
    if first is None or last is None:
        return SacctAnswer(), span
    running, numbers = {_key(job) for job in last.running}, {number for number, _ in runs}
    ended = [key for key, run in runs.items() if run.ended_at is not None]
    known = [key for key in (*ended, *running) if runs[key].job.submitted_at is not None]
    found = [_record(runs[key].job, runs[key].ended_at) for key in known]
    found += [_record(job) for job in last.pending]
    left_out = Counter(
        {
            "its submission is not known": len(ended) + len(running) - len(known),
            "its end is not known": len(runs) - len(ended) - len(running),
            "it was never seen to run": sum(
                number not in numbers for number, _ in waited - _waiting(last)
            ),
        }
    )
    until = last.taken_at if span.until is None else min(span.until, last.taken_at)
    begin = first.taken_at if span.begin is None else max(span.begin, first.taken_at)
    answer = SacctAnswer(found, len(found), +left_out)
    return answer, replace(span, begin=begin, until=until)


def _key(job: RunningJob) -> tuple[str, float]:
    return str(job.job_id), float(job.started_at)


def _waiting(look: Snapshot) -> set[tuple[str, float]]:
    """Jobs, with their submissions; the record of an array stands for tasks that get numbers of
    their own.
    """
    return {(str(j.job_id), float(j.submitted_at)) for j in look.pending if j.array is None}


def _record(job: RunningJob | PendingJob, end_s: float | None = None) -> SacctRecord:
    asked, submit_s = job.request, float(job.submitted_at or math.nan)
    found = SacctRecord(
        key=str(job.job_id),
        submit_s=submit_s,
        eligible_s=job.waits_since or submit_s,
        start_s=None,
        end_s=end_s,
        state="PENDING",
        limit_s=math.inf if asked.time_limit_s is None else asked.time_limit_s,
        gpus=asked.total.gpus,
        gpu_types=tuple(map(str, asked.gpu_types)),
        cpus=max(1, asked.total.cpus),
        mem_mib=asked.total.mem_mib or None,
        nodes=asked.nodes if (asked.nodes or 1) > 1 else None,
        alloc_gpus=0,
        alloc_cpus=0,
        partition="",
        user=job.user,
        account=job.account,
        qos=job.qos,
        where="",
        priority=None,
        main=False,
    )
    if isinstance(job, PendingJob):
        tasks, het = 1 if job.array is None else job.array.tasks, job.het_job_id is not None
        return replace(found, partition=job.partitions[0], tasks=tasks, het=het)
    return replace(
        found,
        partition=job.partition,
        start_s=float(job.started_at),
        state="RUNNING" if end_s is None else "",
        alloc_gpus=sum(share.taken.gpus for share in job.shares),
        alloc_cpus=sum(share.taken.cpus for share in job.shares),
        where=",".join(sorted({str(share.node) for share in job.shares})),
        array="" if job.array_job_id is None else str(job.array_job_id),
    )
