"""What the daemon's journal knows of jobs that sacct lacks: one history, no run of a job twice.

The daemon's looks show when a job started, and its end to half of their distance. A run is a job's
number and its start. Where there is accounting, the journal adds runs that it saw end and that
sacct has not, or of which sacct has no end. Where there is none, the looks are the whole history.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rltuned.domain.jobs import JobRun, PendingJob, RunningJob
from rltuned.domain.snapshot import JobTracker, Snapshot
from rltuned.journal.cycles import CycleObservation
from rltuned.slurm.accounting import SacctAnswer, SacctRecord

NO_END: Final = "its end fell between looks of the daemon that were too far apart, or was no end"
NO_START: Final = "waited at a look of the daemon and was gone at the next, and never seen to run"
NO_SUBMIT: Final = "the daemon's looks do not tell when it was submitted"

RunKey = tuple[str, float]
"""A job's number as sacct has it, and its start, Unix seconds."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the jobs of a history come from: so many from each source.

    ends: of sacct's jobs, those whose end is the journal's. left_out: reason -> jobs that the
    journal saw and that neither source knows well enough.
    """

    sacct: int
    journal: int = 0
    ends: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        found = [f"jobs of the record: {self.sacct} by sacct, {self.journal} by the journal"]
        found += [f"the ends of {self.ends} of sacct's are the journal's"] if self.ends else []
        found += [f"left out: {count} ({why})" for why, count in self.left_out.items()]
        return "; ".join(found)


@dataclass(slots=True)
class SeenRuns:
    """What the looks of one cluster show.

    begin: the first look, Unix seconds. runs: every one that was seen. unseen: jobs (number,
    submission) that waited and never ran at a look.
    """

    begin: float
    last: Snapshot
    runs: dict[RunKey, JobRun] = field(default_factory=dict)
    unseen: set[tuple[str, float]] = field(default_factory=set)


def seen_runs(records: Iterable[CycleObservation], cluster: str) -> SeenRuns | None:
    """What looks show of a cluster; None = there is none at it."""
    tracker, found = JobTracker(), None
    waited: set[tuple[str, float]] = set()
    for record in records:
        look = record.snapshot
        if look.cluster != cluster:
            continue
        found = found or SeenRuns(look.taken_at, look)
        found.last = look
        found.runs |= {_key(job): JobRun(job) for job in look.running}
        found.runs |= {_key(run.job): run for run in tracker.look(look).ended}
        # the record of an array stands for tasks that get numbers of their own
        waited |= {
            (str(job.job_id), float(job.submitted_at)) for job in look.pending if job.array is None
        }
    if found is None:
        return None
    wait = {(str(job.job_id), float(job.submitted_at)) for job in found.last.pending}
    numbers = {number for number, _ in found.runs}
    found.unseen = {one for one in waited - wait if one[0] not in numbers}
    return found


def completed(answer: SacctAnswer, seen: SeenRuns | None) -> tuple[SacctAnswer, Sources]:
    """Sacct's history with what the looks add; without any record of sacct, theirs alone."""
    if seen is None:
        return answer, Sources(len(answer.records))
    ended = {key: run for key, run in seen.runs.items() if run.ended_at is not None}
    known = {(r.key, r.start_s) for r in answer.records if r.start_s is not None}
    jobs = {(r.key, r.submit_s) for r in answer.records}
    begun = {(number, float(run.job.submitted_at or 0)) for (number, _), run in ended.items()}
    # one that still waits by sacct, and that was seen to run and end, is the journal's
    kept = [r for r in answer.records if r.start_s is not None or (r.key, r.submit_s) not in begun]
    records = [_with_end(r, ended) for r in kept]
    ends = sum(new.end_s != old.end_s for old, new in zip(kept, records, strict=True))
    more = [_ran(run) for key, run in ended.items() if key not in known]
    more += [] if answer.records else _unfinished(seen)
    dated = [run for run in more if not math.isnan(run.submit_s)]
    running = {_key(job) for job in seen.last.running}
    counts = {
        NO_SUBMIT: len(more) - len(dated),
        NO_END: len(seen.runs.keys() - ended.keys() - known - running),
        NO_START: len(seen.unseen - jobs),
    }
    left_out = {why: count for why, count in counts.items() if count}
    whole = replace(answer, records=[*records, *dated])
    return whole, Sources(len(records), len(dated), ends, left_out)


def _key(job: RunningJob) -> RunKey:
    return str(job.job_id), float(job.started_at)


def _with_end(record: SacctRecord, ended: Mapping[RunKey, JobRun]) -> SacctRecord:
    if record.start_s is None or record.end_s is not None:
        return record
    run = ended.get((record.key, record.start_s))
    return record if run is None else replace(record, end_s=run.ended_at)


def _unfinished(seen: SeenRuns) -> list[SacctRecord]:
    """What runs and waits at the last look."""
    ran = [_ran(JobRun(job)) for job in seen.last.running]
    return ran + [_waits(job) for job in seen.last.pending]


def _ran(run: JobRun) -> SacctRecord:
    job = run.job
    submit_s = math.nan if job.submitted_at is None else float(job.submitted_at)
    return replace(
        _run(job, job.waits_since or submit_s, submit_s, (job.partition,)),
        start_s=float(job.started_at),
        end_s=run.ended_at,
        state="RUNNING" if run.ended_at is None else "",
        alloc_gpus=sum(share.taken.gpus for share in job.shares),
        alloc_cpus=sum(share.taken.cpus for share in job.shares),
        where=",".join(sorted({str(share.node) for share in job.shares})),
        array="" if job.array_job_id is None else str(job.array_job_id),
    )


def _waits(job: PendingJob) -> SacctRecord:
    run = _run(job, float(job.waits_since), float(job.submitted_at), job.partitions)
    het = job.het_job_id is not None
    return replace(run, tasks=1 if job.array is None else job.array.tasks, het=het)


def _run(
    job: RunningJob | PendingJob, eligible_s: float, submit_s: float, partitions: Sequence[str]
) -> SacctRecord:
    asked = job.request
    nodes = asked.nodes
    return SacctRecord(
        key=str(job.job_id),
        submit_s=submit_s,
        eligible_s=eligible_s,
        start_s=None,
        end_s=None,
        state="PENDING",
        limit_s=math.inf if asked.time_limit_s is None else asked.time_limit_s,
        gpus=asked.total.gpus,
        gpu_types=tuple(map(str, asked.gpu_types)),
        cpus=max(1, asked.total.cpus),
        mem_mib=asked.total.mem_mib or None,
        nodes=nodes if nodes is not None and nodes > 1 else None,
        alloc_gpus=0,
        alloc_cpus=0,
        partition=partitions[0],
        user=job.user,
        account=job.account,
        qos=job.qos,
        where="",
        priority=None,
        main=False,
    )
