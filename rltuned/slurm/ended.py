"""Ended jobs of slurmdbd: what there is to learn from when the daemon starts."""

from collections.abc import Iterator
from typing import Final

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import EndedJob, Request
from rltuned.domain.kinds import Digester
from rltuned.domain.units import GpuType, JobId, UnixTime
from rltuned.errors import BackendError
from rltuned.slurm.accounting import LATE_S, JobRun, read_rows
from rltuned.slurm.commands import Commands
from rltuned.slurm.sacct import COLUMNS, TEXT_COLUMNS, ask_rows

MOST_ENDED: Final = 50_000
"""So many of the latest are enough: every key forgets with each job that ends."""
PORTION_S: Final = 21_600.0
_ELAPSED: Final = "ElapsedRaw"
_BY_ITSELF: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"})
"""How a run may end that says how long the job runs. One that a node's failure, a preemption or a
requeue ended says nothing."""


def ended_jobs(
    commands: Commands,
    since: float,
    until: float,
    digester: Digester | None,
    most: int = MOST_ENDED,
) -> list[EndedJob]:
    """Jobs that ran and ended by themselves between two moments, first end first; `most` of the
    latest. commands: with TZ=UTC. Raises BackendError: sacct failed; TraceError: too many records.
    """
    found: list[EndedJob] = []
    end = until
    while end > since and len(found) < most:
        begin = max(since, end - PORTION_S)
        found += (job for job in _portion(commands, begin, end, digester) if job.ended_at >= begin)
        end = begin
    return sorted(found, key=lambda job: (job.ended_at, job.job_id))[-most:]


def _portion(
    commands: Commands, since: float, until: float, digester: Digester | None
) -> Iterator[EndedJob]:
    wanted = () if digester is None else digester.wanted
    texts = tuple(column for kind, column in TEXT_COLUMNS.items() if kind in wanted)
    try:
        records = _read(commands, since, until, texts, digester)
    except BackendError:
        if not texts:
            raise
        # a submit line may be a megabyte long: without the texts the times are still known
        records = _read(commands, since, until, (), None)
    for record in records:
        job = _ended(record)
        if job is not None and job.ended_at < until:
            yield job


def _read(
    commands: Commands,
    since: float,
    until: float,
    texts: tuple[str, ...],
    digester: Digester | None,
) -> list[JobRun]:
    names = (*COLUMNS, _ELAPSED, *texts)
    rows = enumerate(ask_rows(commands, since, until, names), 1)
    return read_rows(rows, "sacct", names, digester=digester).records


def _ended(run: JobRun) -> EndedJob | None:
    """None = it teaches nothing."""
    if run.start_s is None or run.end_s is None or run.state not in _BY_ITSELF:
        return None
    ran_s = run.end_s - run.start_s - run.suspended_s
    if not run.key.isdigit() or ran_s < 0 or ran_s > run.limit_s + LATE_S:
        return None
    return EndedJob(
        job_id=JobId(int(run.key)),
        request=Request(
            Resources(run.gpus, run.cpus, run.mem_mib or 0),
            run.limit_s,
            tuple(map(GpuType, run.gpu_types)),
            run.nodes,
        ),
        submitted_at=UnixTime(run.submit_s),
        started_at=UnixTime(run.start_s),
        ended_at=UnixTime(run.end_s),
        user=run.user,
        account=run.account,
        qos=run.qos,
        partition=run.partition,
        array_job_id=JobId(int(run.array)) if run.array.isdigit() else None,
        kinds=run.kinds,
        suspended_s=run.suspended_s,
    )
