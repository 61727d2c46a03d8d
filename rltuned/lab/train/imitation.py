"""Learn an order that exists: a rule's of whole queues, or the first choices of a site's Slurm.

What is learned are corrections of the rule `delay`, within its bounds: an order that asks for more
is imitated as far as they allow. The loss is pairwise logistic (RankNet, Burges et al. 2005): of a
whole order over all pairs, of one choice over its pairs with those that were not chosen. A listwise
likelihood weighs the first places so much that bounded delays agree with fewer pairs.

Source of the idea: DL2 (Peng et al.), which first learns an existing scheduler's decisions.
"""

import platform
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rltuned.core.features import MAX_QUEUE_SIZE, Float32Array, StateMatrix, encode
from rltuned.core.order import DEFAULT, Order, Policy, bounded
from rltuned.core.select import Scope, select
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot
from rltuned.domain.units import UNLIMITED_S, GpuType, JobId, NodeName, UnixTime
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation
from rltuned.lab.train.export import PARITY_WINDOWS, export_bundle, ranges_shown
from rltuned.lab.train.network import TorchActor, placed_by
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
"""Of a queue (n, features), (n, 4) see asked_of, and its rows from the first on: all, or those that
are known to come first."""


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
        for at, (rows, delays, first) in enumerate(queues):
            values[at, : len(rows)], masks[at, : len(rows)] = rows, True
            asked[at, : len(rows)] = delays
            named = set(first)
            order = [*first, *(i for i in range(len(rows)) if i not in named)]
            ranks[at, order] = np.arange(len(rows))
        read = torch.from_numpy
        return cls(read(values), read(asked), read(masks), read(ranks), known)

    def part(self, part: slice | Tensor) -> "OrderedQueues":
        ranks, masks = self.ranks[part], self.masks[part]
        return OrderedQueues(self.values[part], self.asked[part], masks, ranks, self.known)

    def split(self, part: float) -> tuple["OrderedQueues", "OrderedQueues"]:
        at = int(len(self) * part)
        return self.part(slice(at)), self.part(slice(at, None))


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
    """Share of the known pairs that the network orders right: of all, mean over queues, and the
    worst.
    """
    with torch.inference_mode():
        scores = _scores(network, orders)
    same, pairs = [], []
    for row, mask, rank in zip(scores, orders.masks, orders.ranks, strict=True):
        s, r = row[mask], rank[mask]
        first, second = torch.triu_indices(len(s), len(s), offset=1)
        known = torch.minimum(r[first], r[second]) < (orders.known or len(s))
        first, second = first[known], second[known]
        same.append(float(((s[first] > s[second]) == (r[first] < r[second])).sum()))
        pairs.append(len(first))
    shares = np.array(same) / pairs
    return float(np.sum(same) / np.sum(pairs)), float(shares.mean()), float(shares.min())


def _scores(network: TorchActor, orders: OrderedQueues) -> Tensor:
    return placed_by(network(orders.values, orders.masks), orders.asked, network.reach)


def fit(orders: OrderedQueues, fitting: Fitting) -> tuple[TorchActor, list[float]]:
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
    return network, losses


def imitate_into(
    out: Path,
    queues: tuple[OrderedQueues, OrderedQueues],
    fitting: Fitting,
    *,
    order: str,
    data: str,
    command: str,
) -> float:
    """Fit a network to the first queues and export it; the share of the second ones' pairs that it
    has right. order, data, command: for the card, whose order, of what, and by which command.
    Raises FloatingPointError: the loss is no longer finite; ModelError: the folder exists, or
    cannot be written.
    """
    learned, held_out = queues
    began = time.perf_counter()
    network, losses = fit(learned, fitting)
    _, mean, lowest = agreement(network, held_out)
    results = {
        "held_out_pairwise_agreement": mean,
        "held_out_lowest_queue_agreement": lowest,
        "loss_first_epoch": losses[0],
        "loss_last_epoch": losses[-1],
    }
    values, masks = held_out.values, held_out.masks
    export_bundle(
        out,
        network,
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


# Queues to learn a rule from, on random clusters: wide on purpose, for a policy that has only seen
# one site's mix would be asked about another's. No job there has a run time at all.


def random_snapshot(draw: np.random.Generator, most_jobs: int = MOST_JOBS) -> Snapshot:
    """One cluster with a queue of 2 to most_jobs eligible jobs."""
    kinds = [(GpuType(f"t{i}"), int(g)) for i, g in enumerate(draw.choice((1, 2, 4, 8), size=3))]
    load = draw.random()
    nodes, runs = [], []
    for i in range(int(draw.integers(2, MOST_NODES + 1))):
        kind, gpus = kinds[int(draw.integers(len(kinds)))]
        busy = int(draw.binomial(gpus, load))
        total, taken = (Resources(n, n * 8, n * 64_000) for n in (gpus, busy))
        counts, name = (GpuCount(kind, gpus, gpus - busy),), NodeName(f"n{i:03d}")
        nodes.append(Node(name, counts, total, total - taken, True, ("gpu",)))
        if busy:
            limit_s = float(draw.choice(LIMITS_S))
            started_s, request = NOW - draw.random() * limit_s, Request(taken, limit_s, (kind,))
            runs.append(_running(100_000 + i, started_s, request, Share(name, taken, kind)))
    types = sorted({g.gpu_type for n in nodes for g in n.gpus})
    count = int(draw.integers(2, most_jobs + 1))
    # waits are log-uniform: queues hold fresh and very old jobs at once
    waits_s = np.expm1(draw.uniform(0, np.log1p(LONGEST_WAIT_S), count))
    pending = tuple(_job(draw, i, float(wait_s), types) for i, wait_s in enumerate(waits_s, 1))
    return Snapshot(UnixTime(NOW), "generated", pending, tuple(runs), tuple(nodes))


def _job(draw: np.random.Generator, number: int, wait_s: float, types: list[GpuType]) -> PendingJob:
    gpus = int(draw.choice(GPUS))
    cpus = max(1, gpus * int(draw.integers(1, 9)))
    limit_s = float(draw.choice(LIMITS_S)) if draw.random() > UNLIMITED_PART else UNLIMITED_S
    bound = (types[int(draw.integers(len(types)))],) if draw.random() < BOUND_PART else ()
    request = Request(Resources(gpus, cpus, cpus * 4_000), limit_s, bound if gpus else ())
    return _pending(number, NOW - wait_s, request, int(draw.integers(1, 100_000)))


def _pending(number: int, submit_s: float, request: Request, priority: int = 1) -> PendingJob:
    job_id, at = JobId(number), UnixTime(submit_s)
    return PendingJob(job_id, str(number), at, request, priority, ("gpu",), eligible_at=at)


def _running(number: int, start_s: float, request: Request, share: Share) -> RunningJob:
    return RunningJob(JobId(number), UnixTime(start_s), request, (share,), "gpu")


def rule_orders(rule: Policy, count: int, seed: int, most_jobs: int = MOST_JOBS) -> OrderedQueues:
    """Generated queues in the order of a rule's delays; equal ones by submit time."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(count):
        snapshot = random_snapshot(draw, most_jobs)
        matrix = encode(snapshot.pending, snapshot)
        virtual_s = matrix.submit_s + bounded(rule, matrix, DEFAULT).delay_s
        order = np.argsort(virtual_s, kind="stable").tolist()
        found.append((seen_by("queue", matrix), asked_of(matrix), order))
    return OrderedQueues.of(found)


# From what a site's Slurm has started: accounting data, or the daemon's journal.

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

Moment = tuple[Snapshot, Context, tuple[PendingJob, ...], int, Sequence[int]]
"""A look, its queue, the place there of the job that was started, and of those that were not."""


def choices_of(moments: Iterable[Moment], order: Order = DEFAULT) -> OrderedQueues:
    """The latest ones. order: whose delays are corrected. Raises TraceError: they are too few."""
    found = deque[Ordered](maxlen=MOST_MOMENTS)
    for snapshot, context, queue, chosen, rivals in moments:
        matrix = encode(queue, snapshot, context)  # as the daemon sees them
        places = sorted((chosen, *rivals[: MAX_QUEUE_SIZE - 1]))
        seen, asked = seen_by("queue", matrix), asked_of(matrix, order)
        found.append((seen[places], asked[places], [places.index(chosen)]))
    if len(found) < FEWEST_STARTS:
        raise TraceError(f"{len(found)} starts had rivals; {FEWEST_STARTS} are needed")
    return OrderedQueues.of(found, known=1)


def in_history(history: Iterable[SacctRecord], gpus: int) -> Iterator[Moment]:
    """At each start by Slurm's main scheduler the queue is rebuilt: the jobs of its partition that
    were eligible and would have fitted in its place. Starts by backfill or at submit say nothing
    about rank: they only occupy. No field that is known later than the start is read, but for
    whether a job runs. gpus: of the cluster, for the features that speak of free GPUs.
    """
    jobs = [record for record in history if record.start_s is not None]
    asked = [replace(job.request, nodes=job.nodes or 1) for job in jobs]
    submit_s, eligible_s, start_s, end_s = (
        np.array([getattr(job, name) for job in jobs], dtype=np.float64)
        for name in ("submit_s", "eligible_s", "start_s", "end_s")
    )
    end_s[np.isnan(end_s)] = np.inf
    started = sorted((i for i, job in enumerate(jobs) if job.main), key=lambda i: (start_s[i], i))
    for chosen in started[-MOST_MOMENTS:]:
        now = float(start_s[chosen])
        waiting = np.flatnonzero((submit_s <= now) & (eligible_s <= now) & (start_s >= now))
        rivals = [
            i
            for i in waiting.tolist()
            if i != chosen
            and jobs[i].partition == jobs[chosen].partition
            and not (start_s[i] == now and jobs[i].main)  # started in the same pass: no loser
            and fits_in_place_of(asked[i], asked[chosen])
        ][: MAX_QUEUE_SIZE - 1]
        if not rivals:
            continue
        queue = sorted([chosen, *rivals], key=lambda i: (submit_s[i], i))
        # the one large node that stands for the cluster has no types: none is known to be free
        pending = tuple(_pending(i, submit_s[i], replace(asked[i], gpu_types=())) for i in queue)
        kind, name = GpuType("any"), NodeName("all")
        runs, busy = [], 0
        for i in np.flatnonzero((start_s < now) & (end_s > now)).tolist():
            used = asked[i].total.gpus
            busy += used
            share = Share(name, Resources(used, 0, 0), kind if used else None)
            runs.append(_running(i, start_s[i], asked[i], share))
        free = max(0, gpus - busy)
        total, left = (Resources(n, 1_000_000, 1_000_000_000) for n in (gpus, free))
        node = Node(name, (GpuCount(kind, gpus, free),), total, left, True, ("gpu",))
        snapshot = Snapshot(UnixTime(now), "history", pending, tuple(runs), (node,))
        place = queue.index(chosen)
        others = [at for at in range(len(queue)) if at != place]
        yield snapshot, NO_CONTEXT, pending, place, others


def in_journal(records: Iterable[CycleObservation]) -> Iterator[Moment]:
    """Two looks in a row show a decision: a job that waits in the first and runs in the second is
    preferred to every job that is left waiting, would have fitted in its place, and stood behind
    it. The second look says only who started. Left out are jobs that rltuned had written to, starts
    in front of a fitting job of higher priority (backfill), and looks too far apart.
    """
    for before, after in pairwise(records):
        seen, later = before.snapshot, after.snapshot
        gap_s = later.taken_at - seen.taken_at
        if seen.cluster != later.cluster or not 0 < gap_s <= LONGEST_GAP_S:
            continue
        queue = select(seen, _FREE).chosen  # what is not ours teaches best
        begun = {(j.job_id, j.submitted_at) for j in later.running if j.started_at >= seen.taken_at}
        waiting = {(j.job_id, j.submitted_at) for j in later.pending}
        keys = [(job.job_id, job.submitted_at) if job.owned is None else None for job in queue]
        left = [place for place, key in enumerate(keys) if key in waiting]
        for place in (place for place, key in enumerate(keys) if key in begun):
            job = queue[place]
            rivals = [
                other
                for other in left
                if not set(job.partitions).isdisjoint(queue[other].partitions)
                and fits_in_place_of(queue[other].request, job.request)
            ]
            if rivals and all(queue[other].priority <= job.priority for other in rivals):
                yield seen, before.context, queue, place, rivals


def fits_in_place_of(asked: Request, given: Request) -> bool:
    """No more of anything, on no more nodes, of a GPU type that the chosen one could have had."""
    mine, theirs = asked.total, given.total
    nodes, others = asked.nodes or 1, given.nodes or 1
    smaller = (
        mine.gpus <= theirs.gpus
        and mine.cpus <= theirs.cpus
        and mine.mem_mib <= theirs.mem_mib
        and nodes <= others
        and mine.gpus * others <= theirs.gpus * nodes
    )
    if not mine.gpus or not asked.gpu_types:
        return smaller
    return smaller and bool(given.gpu_types) and set(given.gpu_types) <= set(asked.gpu_types)
