"""Random queues on random clusters, and a rule's orders of them: learning without a trace.

Wide on purpose: a policy that has only seen one site's mix would be asked about another's. No job
here has a run time at all.
"""

from typing import Final

import numpy as np

from rltuned.core.features import encode
from rltuned.core.order import DEFAULT, Policy, bounded
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UNLIMITED_S, GpuType, JobId, NodeName, UnixTime
from rltuned.lab.train.imitation import OrderedQueues, asked_of
from rltuned.policies.actor import seen_by

NOW: Final = 1_000_000_000.0
MOST_JOBS, MOST_NODES, LONGEST_WAIT_S = 256, 48, 3 * 86_400.0
LIMITS_S: Final = (600, 1800, 3600, 7200, 14_400, 43_200, 86_400, 172_800, 604_800)
GPUS: Final = (0, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32)
"""Skewed to single GPUs, as every published trace is."""
UNLIMITED_PART: Final = 0.02
BOUND_PART: Final = 0.3
"""Part of the jobs that ask for one GPU type."""


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
