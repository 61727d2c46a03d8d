"""Warm start from a site's own history: who was started at each start, and who was not.

At each start by Slurm's main scheduler the queue of that moment is rebuilt from the accounting
data: every job that was eligible and had not started. The one that started is the label. Starts by
backfill or at submit say nothing about rank: they only occupy. Jobs that would not have fitted
are no counter-example, and the history does not say what was free; so only jobs of its partition
that would have fitted in the started one's place are its rivals.

No field that is known later than the start is read: run time, end and state of a job place it on
the cluster while it runs, and that is all.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.core.features import encode
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.order import DEFAULT, Order
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.context import Context, RunTime
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, JobId, NodeName, UnixTime
from rltuned.errors import TraceError
from rltuned.lab.train.imitation import Fitting, OrderedQueues, asked_of
from rltuned.policies.actor import seen_by
from rltuned.policies.network import Kind
from rltuned.slurm.accounting import SacctRecord

FEWEST_STARTS: Final = 50
COLUMNS: Final = (
    *("JobIDRaw", "Submit", "Eligible", "Start", "End", "Partition", "ReqTRES", "TimelimitRaw"),
    "Flags",
)
"""What sacct has to tell; more does no harm."""
FITTING: Final = Fitting(epochs=20, learning_rate=1e-3)
"""How the choices of a site are learned: they are few, so more steps learn them by heart."""


@dataclass(frozen=True, slots=True)
class Started:
    """One job of the accounting data.

    start_s, end_s: inf = not yet. by_main: Slurm's main scheduler started it. run_time: what was
    predicted of it; None = nothing.
    """

    job_id: int
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    request: Request
    partition: str = "gpu"
    by_main: bool = True
    run_time: RunTime | None = None


def started_of(records: Iterable[SacctRecord]) -> list[Started]:
    """The jobs of a site's history that started; those that still wait are left out."""
    return [
        Started(
            job_id=number,  # ids come again when jobs are requeued
            submit_s=record.submit_s,
            eligible_s=record.eligible_s,
            start_s=record.start_s,
            end_s=math.inf if record.end_s is None else record.end_s,
            request=replace(record.request, nodes=record.nodes or 1),
            partition=record.partition,
            by_main=record.main,
        )
        for number, record in enumerate(records, 1)
        if record.start_s is not None
    ]


def choices_of(
    history: Sequence[Started],
    gpus: int,
    *,
    most: int = 6_000,
    kind: Kind = "queue",
    order: Order = DEFAULT,
) -> OrderedQueues:
    """Rebuild the moments at which one job had to be preferred.

    gpus: of the cluster, for the features that speak of free GPUs. most: moments; the latest are
    kept. kind: of the network that learns. order: whose delays it corrects.

    Raises TraceError: too few starts by the main scheduler had rivals.
    """
    starts = sorted((j for j in history if j.by_main), key=lambda j: (j.start_s, j.job_id))
    submit = np.array([j.submit_s for j in history])
    eligible = np.array([j.eligible_s for j in history])
    start, end = (np.array([getattr(j, n) for j in history]) for n in ("start_s", "end_s"))
    found = []
    for chosen in starts[-most:]:
        now = chosen.start_s
        waiting = np.flatnonzero((submit <= now) & (eligible <= now) & (start >= now))
        rivals = [history[i] for i in waiting.tolist() if _rival(history[i], chosen, now)][
            : MAX_QUEUE_SIZE - 1
        ]
        if not rivals:
            continue
        running = [history[i] for i in np.flatnonzero((start < now) & (end > now)).tolist()]
        queue = sorted([chosen, *rivals], key=lambda j: (j.submit_s, j.job_id))
        snapshot = _snapshot(queue, running, now, gpus)
        known = {JobId(j.job_id): j.run_time for j in queue if j.run_time is not None}
        matrix = encode(snapshot.pending, snapshot, Context(run_times=known))
        found.append(
            (
                seen_by(kind, matrix),
                asked_of(matrix, order),
                [j.job_id for j in queue].index(chosen.job_id),
            )
        )
    if len(found) < FEWEST_STARTS:
        raise TraceError(
            f"{len(found)} starts by the main scheduler had rivals; {FEWEST_STARTS} are needed"
        )
    return OrderedQueues.chosen(found)


def _rival(job: Started, chosen: Started, now: float) -> bool:
    """Whether the job was left waiting although it would have fitted where the chosen one went."""
    if job.job_id == chosen.job_id or job.partition != chosen.partition:
        return False
    together = job.start_s == now and job.by_main  # started in the same pass: no loser
    return not together and fits_in_place_of(job.request, chosen.request)


def fits_in_place_of(asked: Request, given: Request) -> bool:
    """No more of anything, on no more nodes, of a GPU type that the chosen one could have had."""
    mine, theirs = asked.total, given.total
    smaller = all(
        m <= t
        for m, t in (
            (mine.gpus, theirs.gpus),
            (mine.cpus, theirs.cpus),
            (mine.mem_mib, theirs.mem_mib),
            (asked.nodes or 1, given.nodes or 1),
            (mine.gpus * (given.nodes or 1), theirs.gpus * (asked.nodes or 1)),
        )
    )
    if not mine.gpus or not asked.gpu_types:
        return smaller
    return smaller and bool(given.gpu_types) and set(given.gpu_types) <= set(asked.gpu_types)


def _snapshot(
    queue: Sequence[Started], running: Sequence[Started], now: float, gpus: int
) -> Snapshot:
    """One large node stands for the cluster: the history names none of the free ones."""
    busy = min(gpus, sum(j.request.total.gpus for j in running))
    kind, name = GpuType("any"), NodeName("all")
    large = Resources(gpus, 1_000_000, 1_000_000_000)
    free = Resources(gpus - busy, 1_000_000, 1_000_000_000)
    node = Node(name, (GpuCount(kind, gpus, gpus - busy),), large, free, True, ("gpu",))
    return Snapshot(
        UnixTime(now),
        "history",
        tuple(_pending(j) for j in queue),
        tuple(_running(j, name, kind) for j in running),
        (node,),
    )


def _pending(job: Started) -> PendingJob:
    return PendingJob(
        job_id=JobId(job.job_id),
        address=str(job.job_id),
        submitted_at=UnixTime(job.submit_s),
        request=replace(job.request, gpu_types=()),  # the one large node has no types
        priority=1,
        partitions=("gpu",),
    )


def _running(job: Started, node: NodeName, kind: GpuType) -> RunningJob:
    gpus = job.request.total.gpus
    return RunningJob(
        job_id=JobId(job.job_id),
        started_at=UnixTime(job.start_s),
        request=job.request,
        shares=(Share(node, Resources(gpus, 0, 0), kind if gpus else None),),
        partition="gpu",
    )
