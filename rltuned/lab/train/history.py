"""Warm start from what a site's Slurm has started: accounting data, or the daemon's journal.

Accounting data: at each start by Slurm's main scheduler the queue of that moment is rebuilt: every
job that was eligible and had not started. The one that started is the label. Starts by backfill or
at submit say nothing about rank: they only occupy. Jobs that would not have fitted are no
counter-example, and the history does not say what was free; so only jobs of its partition that
would have fitted in the started one's place are its rivals. No field that is known later than the
start is read: run time, end and state of a job place it on the cluster while it runs, and that is
all.

The journal: two snapshots in a row show a decision of Slurm's main scheduler: of the jobs that wait
in the first, some run in the second. Each of them is preferred to every job that is left waiting,
would have fitted in its place, and stood behind it. What a network sees is the first snapshot
alone; the second one says only who started. Left out, because it says nothing of the main
scheduler's order:
- jobs that rltuned had written to, as choices and as rivals;
- starts in front of a job that would have fitted and had the higher priority: backfill;
- looks too far apart, and jobs that are gone without being seen to run.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from rltuned.core.features import Float32Array, encode
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.order import DEFAULT, Order
from rltuned.core.select import Scope, select
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, JobId, NodeName, UnixTime
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation
from rltuned.lab.train.imitation import OrderedQueues, asked_of
from rltuned.lab.train.settings import Fitting
from rltuned.policies.actor import seen_by
from rltuned.slurm.accounting import SacctRecord

FEWEST_STARTS: Final = 50
MOST_MOMENTS: Final = 6_000
COLUMNS: Final = (
    *("JobIDRaw", "Submit", "Eligible", "Start", "End", "Partition", "ReqTRES", "TimelimitRaw"),
    "Flags",
)
"""What sacct has to tell; more does no harm."""
FITTING: Final = Fitting(epochs=20, learning_rate=1e-3)
"""How the choices of a site are learned: they are few, so more steps learn them by heart."""
LONGEST_GAP_S: Final = 300.0
"""Looks further apart than this do not show one decision; the daemon looks every minute."""
_FREE: Final = Scope(min_age_s=0.0)


@dataclass(frozen=True, slots=True)
class Started:
    """One job of the accounting data.

    start_s, end_s: inf = not yet. by_main: Slurm's main scheduler started it.
    """

    job_id: int
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    request: Request
    partition: str = "gpu"
    by_main: bool = True


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


def choices_of(history: Sequence[Started], gpus: int, *, order: Order = DEFAULT) -> OrderedQueues:
    """Rebuild the latest moments at which one job had to be preferred. gpus: of the cluster, for
    the features that speak of free GPUs. order: whose delays are corrected. Raises TraceError: too
    few starts by the main scheduler had rivals.
    """
    starts = sorted((j for j in history if j.by_main), key=lambda j: (j.start_s, j.job_id))
    submit = np.array([j.submit_s for j in history])
    eligible = np.array([j.eligible_s for j in history])
    start, end = (np.array([getattr(j, n) for j in history]) for n in ("start_s", "end_s"))
    found = []
    for chosen in starts[-MOST_MOMENTS:]:
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
        matrix = encode(snapshot.pending, snapshot)
        place = [j.job_id for j in queue].index(chosen.job_id)
        found.append((seen_by("queue", matrix), asked_of(matrix, order), place))
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
    pending = tuple(
        PendingJob(
            job_id=JobId(job.job_id),
            address=str(job.job_id),
            submitted_at=UnixTime(job.submit_s),
            request=replace(job.request, gpu_types=()),  # the one large node has no types
            priority=1,
            partitions=("gpu",),
        )
        for job in queue
    )
    runs = []
    for job in running:
        gpus = job.request.total.gpus
        share = Share(name, Resources(gpus, 0, 0), kind if gpus else None)
        runs.append(
            RunningJob(
                job_id=JobId(job.job_id),
                started_at=UnixTime(job.start_s),
                request=job.request,
                shares=(share,),
                partition="gpu",
            )
        )
    return Snapshot(UnixTime(now), "history", pending, tuple(runs), (node,))


# The journal


class Moment(NamedTuple):
    """One preference: of the jobs of `queue` (places), `chosen` was started, `rivals` were not."""

    seen: CycleObservation
    queue: tuple[PendingJob, ...]
    chosen: int
    rivals: tuple[int, ...]


def choices_of_journal(
    records: Iterable[CycleObservation], *, order: Order = DEFAULT
) -> OrderedQueues:
    """What a network learns from the latest moments of a journal about delays of an order. Raises
    TraceError: too few starts had rivals.
    """
    found: deque[tuple[Float32Array, Float32Array, int]] = deque(maxlen=MOST_MOMENTS)
    for record, queue, chosen, rivals in moments_of(records):
        matrix = encode(queue, record.snapshot, record.context)  # as the daemon sees them
        places = sorted((chosen, *rivals[: MAX_QUEUE_SIZE - 1]))
        seen, asked = seen_by("queue", matrix), asked_of(matrix, order)
        found.append((seen[places], asked[places], places.index(chosen)))
    if len(found) < FEWEST_STARTS:
        raise TraceError(
            f"{len(found)} starts in the journal's snapshots had rivals; {FEWEST_STARTS} are needed"
        )
    return OrderedQueues.chosen(found)


def moments_of(records: Iterable[CycleObservation]) -> Iterator[Moment]:
    """Every preference in a journal; records in the order of time."""
    for before, after in pairwise(records):
        seen, later = before.snapshot, after.snapshot
        gap_s = later.taken_at - seen.taken_at
        if seen.cluster == later.cluster and 0 < gap_s <= LONGEST_GAP_S:
            yield from _between(before, later)


def _between(record: CycleObservation, later: Snapshot) -> Iterator[Moment]:
    seen = record.snapshot
    queue = select(seen, _FREE).chosen  # what is not ours teaches best
    begun = {(j.job_id, j.submitted_at) for j in later.running if j.started_at >= seen.taken_at}
    waiting = {(j.job_id, j.submitted_at) for j in later.pending}
    own = [place for place, job in enumerate(queue) if job.owned is None]
    left = [p for p in own if (queue[p].job_id, queue[p].submitted_at) in waiting]
    for place in own:
        job = queue[place]
        if (job.job_id, job.submitted_at) not in begun:
            continue
        rivals = tuple(
            other
            for other in left
            if not set(job.partitions).isdisjoint(queue[other].partitions)
            and fits_in_place_of(queue[other].request, job.request)
        )
        if rivals and all(queue[other].priority <= job.priority for other in rivals):
            yield Moment(record, queue, place, rivals)
