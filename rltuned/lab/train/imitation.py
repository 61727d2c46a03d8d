"""Learn an order that exists: a rule's of whole queues, or the first choices of a site's Slurm.

What is learned are corrections of the rule `delay`, within its bounds: an order that asks for more
is imitated as far as they allow.

Source of the idea: DL2 (Peng et al.), which first learns an existing scheduler's decisions. The
loss is pairwise logistic (RankNet, Burges et al. 2005): of a whole order over all pairs, of one
choice over its pairs with those that were not chosen. A listwise likelihood weighs the first
places so much that bounded delays agree with fewer pairs.

A rule is learned from random queues on random clusters. They are wide on purpose: a policy that has
only seen one site's mix would be asked about another's. No job there has a run time at all.
"""

import math
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rltuned.core.features import MAX_QUEUE_SIZE, Float32Array, StateMatrix, encode
from rltuned.core.order import DEFAULT, Order, Policy, bounded
from rltuned.core.select import Scope, select
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UNLIMITED_S, GpuType, JobId, NodeName, UnixTime
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation
from rltuned.lab.train.network import (
    PARITY_WINDOWS,
    TorchActor,
    export_bundle,
    placed_by,
    ranges_shown,
)
from rltuned.lab.train.settings import Fitting, described
from rltuned.policies.actor import Training, seen_by
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.accounting import SacctRecord

NOW: Final = 1_000_000_000.0
MOST_JOBS, MOST_NODES, LONGEST_WAIT_S = 256, 48, 3 * 86_400.0
LIMITS_S: Final = (600, 1800, 3600, 7200, 14_400, 43_200, 86_400, 172_800, 604_800)
GPUS: Final = (0, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32)
"""Skewed to single GPUs, as every published trace is."""
UNLIMITED_PART: Final = 0.02
BOUND_PART: Final = 0.3
"""Part of the jobs that ask for one GPU type."""

Ordered = tuple[Float32Array, Float32Array, Sequence[int]]
"""Of a queue (n, features), (n, 4) see asked_of, and its rows from the first on."""


def asked_of(matrix: StateMatrix, order: Order = DEFAULT) -> Float32Array:
    """(n, 4) wait, the two parts of the delay and the bound of each job under the rule `delay`; see
    kernel/episode.Tape.
    """
    delays = bounded(BASELINES["delay"], matrix, order)
    unit_s = max(float(np.minimum(delays.wished_s, delays.upper_s).mean()), 1.0)
    columns = np.column_stack([matrix.wait_s, delays.own_s, delays.queue_s, delays.upper_s])
    return (columns / unit_s).astype(np.float32)


@dataclass(frozen=True, slots=True)
class OrderedQueues:
    """Queues as the network sees them, with their known order.

    values: (q, 256, features); asked: (q, 256, 4), see asked_of; masks: (q, 256); ranks: (q, 256),
    0 = first, padded rows last; known: so many places from the first are known, the others are in
    any order; None = all.
    """

    values: Tensor
    asked: Tensor
    masks: Tensor
    ranks: Tensor
    known: int | None = None

    def __len__(self) -> int:
        return len(self.ranks)

    @classmethod
    def of(cls, queues: Sequence[Ordered], known: int | None = None) -> "OrderedQueues":
        """From queues of at most 256 jobs."""
        values = np.zeros((len(queues), MAX_QUEUE_SIZE, queues[0][0].shape[1]), dtype=np.float32)
        asked = np.zeros((*values.shape[:2], 4), dtype=np.float32)
        masks = np.zeros(values.shape[:2], dtype=bool)
        ranks = np.tile(np.arange(MAX_QUEUE_SIZE), (len(queues), 1))
        for at, (rows, delays, order) in enumerate(queues):
            values[at, : len(rows)], masks[at, : len(rows)] = rows, True
            asked[at, : len(rows)] = delays
            ranks[at, np.asarray(order)] = np.arange(len(rows))
        tensors = [torch.from_numpy(array) for array in (values, asked, masks, ranks)]
        return cls(tensors[0], tensors[1], tensors[2], tensors[3], known)

    @classmethod
    def chosen(cls, queues: Sequence[tuple[Float32Array, Float32Array, int]]) -> "OrderedQueues":
        """As Ordered, with the one that was chosen in place of the order."""
        firsts = [
            (rows, delays, [place, *(i for i in range(len(rows)) if i != place)])
            for rows, delays, place in queues
        ]
        return cls.of(firsts, known=1)

    def split(self, part: float) -> tuple["OrderedQueues", "OrderedQueues"]:
        at = int(len(self) * part)
        return self.part(slice(at)), self.part(slice(at, None))

    def part(self, part: slice | Tensor) -> "OrderedQueues":
        some = [tensor[part] for tensor in (self.values, self.asked, self.masks, self.ranks)]
        return OrderedQueues(some[0], some[1], some[2], some[3], self.known)


def pairwise_loss(scores: Tensor, masks: Tensor, ranks: Tensor, known: int | None = None) -> Tensor:
    """Mean negative log-likelihood of the order of each known pair, by the difference of scores."""
    by_rank = ranks.argsort(dim=-1)
    ordered, real = scores.gather(-1, by_rank), masks.gather(-1, by_rank)
    ahead, first = ordered[..., :known], real[..., :known]  # padded rows have the last ranks
    later = torch.triu(torch.ones(first.shape[-1], real.shape[-1], dtype=torch.bool), diagonal=1)
    pairs = first.unsqueeze(-1) & real.unsqueeze(-2) & later
    apart = (ahead.unsqueeze(-1) - ordered.unsqueeze(-2))[pairs]
    return torch.nn.functional.softplus(-apart).mean()


def agreement(network: TorchActor, orders: OrderedQueues) -> tuple[float, float, float]:
    """Share of the known pairs that the network orders right: mean over queues, and the worst."""
    with torch.inference_mode():
        scores = _scores(network, orders)
    same, pairs = [], []
    for row, mask, rank in zip(scores, orders.masks, orders.ranks, strict=True):
        s, r = row[mask], rank[mask]
        first, second = torch.triu_indices(len(s), len(s), offset=1)
        if orders.known is not None:
            known = torch.minimum(r[first], r[second]) < orders.known
            first, second = first[known], second[known]
        same.append(float(((s[first] > s[second]) == (r[first] < r[second])).sum()))
        pairs.append(len(first))
    shares = np.array(same) / pairs
    return float(np.sum(same) / np.sum(pairs)), float(shares.mean()), float(shares.min())


def _scores(network: TorchActor, orders: OrderedQueues) -> Tensor:
    logits = network(orders.values, orders.masks)
    return placed_by(logits, orders.asked, network.reach)


def fit(
    orders: OrderedQueues,
    fitting: Fitting,
    on_epoch: Callable[[float], None] | None = None,
) -> tuple[TorchActor, list[float]]:
    """An actor, and its mean loss in each epoch. Same input, same machine: same weights.

    Raises FloatingPointError: the loss is no longer finite.
    """
    torch.set_num_threads(1)  # sums in one order, so the same weights every time
    torch.manual_seed(fitting.seed)
    network = TorchActor(fitting.network, fitting.hidden, fitting.reach)
    network.spread_out(orders.values[orders.masks])
    optimiser = torch.optim.Adam(network.parameters(), lr=fitting.learning_rate)
    steps = fitting.epochs * -(-len(orders) // fitting.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses: list[float] = []
    for epoch in range(fitting.epochs):
        total = 0.0
        for places in torch.split(torch.randperm(len(orders)), fitting.batch):
            some = orders.part(places)
            loss = pairwise_loss(_scores(network, some), some.masks, some.ranks, some.known)
            if not bool(torch.isfinite(loss)):
                raise FloatingPointError(f"epoch {epoch}: the loss is {float(loss)}")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(places)
        losses.append(total / len(orders))
        if on_epoch is not None:
            on_epoch(losses[-1])
    return network, losses


def imitate_into(
    out: Path,
    queues: tuple[OrderedQueues, OrderedQueues],
    fitting: Fitting,
    *,
    order: str,
    data: str,
    command: str,
    on_epoch: Callable[[float], None] | None = None,
) -> float:
    """Fit a network and export it; the share of the held-out pairs that it has right.

    queues: to learn from, and held out. order, data, command: for the card, whose order, of what,
    and by which command.

    Raises:
        FloatingPointError: the loss is no longer finite.
        ModelError: the folder exists, or cannot be written.
    """
    learned, held_out = queues
    began = time.perf_counter()
    network, losses = fit(learned, fitting, on_epoch)
    _, mean, lowest = agreement(network, held_out)
    values, masks = held_out.values, held_out.masks
    results = {
        "held_out_pairwise_agreement": mean,
        "held_out_lowest_queue_agreement": lowest,
        "loss_first_epoch": losses[0],
        "loss_last_epoch": losses[-1],
    }
    export_bundle(
        out,
        network,
        name=out.name,
        summary=f"Warm start: the order of {order}, learned from {data}.",
        parity=(values[:PARITY_WINDOWS], masks[:PARITY_WINDOWS]),
        training=Training(
            method="supervised imitation, pairwise logistic loss",
            teacher=order,
            command=command,
            settings=described(fitting) | {"learned": len(learned), "held_out": len(held_out)},
            data=data,
            data_licence="generated, or the site's own",
            seed=fitting.seed,
            seconds=round(time.perf_counter() - began, 1),
            machine=f"{platform.machine()}, one thread",
        ),
        results={name: round(value, 5) for name, value in results.items()},
        caveats=[
            f"It imitates {order}, can at best be as good, and claims no result.",
            "Agreement was measured on queues of the same origin as those that it learned from.",
        ],
        ranges=ranges_shown(network.kind, values, masks),
    )
    return mean


# Queues to learn a rule from


def random_snapshot(draw: np.random.Generator, most_jobs: int = MOST_JOBS) -> Snapshot:
    """One cluster with a queue of 2 to most_jobs eligible jobs."""
    nodes, runs = _cluster(draw)
    types = sorted({g.gpu_type for n in nodes for g in n.gpus})
    count = int(draw.integers(2, most_jobs + 1))
    # waits are log-uniform: queues hold fresh and very old jobs at once
    waits_s = np.expm1(draw.uniform(0, np.log1p(LONGEST_WAIT_S), count))
    pending = tuple(_job(draw, i, float(wait_s), types) for i, wait_s in enumerate(waits_s, 1))
    return Snapshot(UnixTime(NOW), "generated", pending, runs, nodes)


def rule_orders(rule: Policy, count: int, seed: int, most_jobs: int = MOST_JOBS) -> OrderedQueues:
    """Generated queues in the order of a rule's delays; equal ones by submit time."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(count):
        snapshot = random_snapshot(draw, most_jobs)
        matrix = encode(snapshot.pending, snapshot)
        seen = seen_by("queue", matrix)
        virtual_s = matrix.submit_s + bounded(rule, matrix, DEFAULT).delay_s
        found.append((seen, asked_of(matrix), np.argsort(virtual_s, kind="stable").tolist()))
    return OrderedQueues.of(found)


def _job(draw: np.random.Generator, number: int, wait_s: float, types: list[GpuType]) -> PendingJob:
    gpus = int(draw.choice(GPUS))
    cpus = max(1, gpus * int(draw.integers(1, 9)))
    limit_s = float(draw.choice(LIMITS_S)) if draw.random() > UNLIMITED_PART else UNLIMITED_S
    bound = (types[int(draw.integers(len(types)))],) if draw.random() < BOUND_PART else ()
    submitted_at = UnixTime(NOW - wait_s)
    return PendingJob(
        job_id=JobId(number),
        address=str(number),
        submitted_at=submitted_at,
        request=Request(Resources(gpus, cpus, cpus * 4_000), limit_s, bound if gpus else ()),
        priority=int(draw.integers(1, 100_000)),
        partitions=("gpu",),
        eligible_at=submitted_at,
    )


def _cluster(draw: np.random.Generator) -> tuple[tuple[Node, ...], tuple[RunningJob, ...]]:
    kinds = [(GpuType(f"t{i}"), int(g)) for i, g in enumerate(draw.choice((1, 2, 4, 8), size=3))]
    load = draw.random()
    nodes, runs = [], []
    for i in range(int(draw.integers(2, MOST_NODES + 1))):
        kind, gpus = kinds[int(draw.integers(len(kinds)))]
        busy = int(draw.binomial(gpus, load))
        total, taken = _amount(gpus), _amount(busy)
        name = NodeName(f"n{i:03d}")
        nodes.append(
            Node(name, (GpuCount(kind, gpus, gpus - busy),), total, total - taken, True, ("gpu",))
        )
        if busy:
            limit_s = float(draw.choice(LIMITS_S))
            runs.append(
                RunningJob(
                    job_id=JobId(100_000 + i),
                    started_at=UnixTime(NOW - draw.random() * limit_s),
                    request=Request(taken, limit_s, (kind,)),
                    shares=(Share(name, taken, kind),),
                    partition="gpu",
                )
            )
    return tuple(nodes), tuple(runs)


def _amount(gpus: int) -> Resources:
    return Resources(gpus, gpus * 8, gpus * 64_000)


# Warm start from what a site's Slurm has started: accounting data, or the daemon's journal.
#
# Accounting data: at each start by Slurm's main scheduler the queue of that moment is rebuilt:
# every job that was eligible and had not started. The one that started is the label. Starts by
# backfill or at submit say nothing about rank: they only occupy. Jobs that would not have fitted
# are no counter-example, and the history does not say what was free; so only jobs of its partition
# that would have fitted in the started one's place are its rivals. No field that is known later
# than the start is read: run time, end and state of a job place it on the cluster while it runs,
# and that is all.
#
# The journal: two snapshots in a row show a decision of Slurm's main scheduler: of the jobs that
# wait in the first, some run in the second. Each of them is preferred to every job that is left
# waiting, would have fitted in its place, and stood behind it. What a network sees is the first
# snapshot alone; the second one says only who started. Left out, because it says nothing of the
# main scheduler's order:
# - jobs that rltuned had written to, as choices and as rivals;
# - starts in front of a job that would have fitted and had the higher priority: backfill;
# - looks too far apart, and jobs that are gone without being seen to run.


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
