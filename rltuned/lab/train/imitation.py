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

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rltuned.core.features import Float32Array, StateMatrix, encode
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.order import DEFAULT, Order, Policy, bounded
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UNLIMITED_S, GpuType, JobId, NodeName, UnixTime
from rltuned.lab.train.export import PARITY_WINDOWS, export_bundle, ranges_shown
from rltuned.lab.train.network import TorchActor, placed_by
from rltuned.lab.train.settings import Fitting, described
from rltuned.policies.actor import seen_by
from rltuned.policies.baselines import BASELINES
from rltuned.policies.card import Training

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
