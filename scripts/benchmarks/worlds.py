"""What is measured on: a busy cluster for decisions, and a crowd of jobs for the simulator."""

from typing import Final, Literal

import numpy as np

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UNLIMITED_S, GpuType, JobId, NodeName, UnixTime
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import TraceJob

NOW: Final = 1_000_000.0
JOBS, NODES, RUNNING, USERS = 256, 100, 150, 40
SEED: Final = 1
_TYPES: Final = (("p100", 4), ("k80", 2), ("m40", 1))
_LIMITS_S: Final = (600.0, 3_600.0, 7_200.0, 86_400.0, UNLIMITED_S)
Layout = Literal["one", "several", "overlapping"]
"""Of partitions: one; four without a common node; three, of which neighbours share half."""
CROWD_NODES, SPAN_S = 40, 60.0


def queue_of(jobs: int, nodes: int = NODES, running: int = RUNNING) -> Snapshot:
    """A busy cluster of three GPU types; requests are shared objects, as the reader makes them."""
    draw = np.random.default_rng(SEED)
    hardware = tuple(_node(i, draw) for i in range(nodes))
    requests = [
        Request(Resources(gpus, 4 * gpus, 16_000 * gpus), limit_s)
        for gpus in (1, 1, 2, 4, 8)
        for limit_s in _LIMITS_S
    ]
    pending = tuple(
        PendingJob(
            JobId(i + 1), str(i + 1), UnixTime(NOW - 100_000 + i),
            requests[int(draw.integers(len(requests)))], int(draw.integers(1, 100_000)),
            ("gpu",), eligible_at=UnixTime(NOW - 100_000 + i), user=f"user{i % USERS}",
        )
        for i in range(jobs)
    )  # fmt: skip
    runs = tuple(_run(i, hardware[i % nodes]) for i in range(running))
    return Snapshot(UnixTime(NOW), "bench", pending, runs, hardware)


def _node(number: int, draw: np.random.Generator) -> Node:
    kind, gpus = _TYPES[number % len(_TYPES)]
    free = int(draw.integers(0, gpus + 1))
    total, left = (Resources(n, 16 * n, 64_000 * n) for n in (gpus, free))
    count = (GpuCount(GpuType(kind), gpus, free),)
    return Node(NodeName(f"n{number:04d}"), count, total, left, True, ("gpu",))


def _run(number: int, node: Node) -> RunningJob:
    taken = Resources(1, 4, 16_000)
    request = Request(taken, 3_600.0 * (1 + number % 3))
    share = Share(node.name, taken, node.gpus[0].gpu_type)
    return RunningJob(JobId(1_000_000 + number), UnixTime(NOW - 600.0), request, (share,), "gpu")


def crowd(jobs: int, layout: Layout) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """40 nodes of 8 GPUs, and so many jobs within a minute, with as many time limits as jobs, so
    that nearly all wait at once.
    """
    size = Resources(8, 64, 512_000)
    nodes = tuple(
        idle_node(f"n{at:02d}", GpuType("g"), size, _partitions(at, layout))
        for at in range(CROWD_NODES)
    )
    names = sorted({name for node in nodes for name in node.partitions})
    parts = tuple(Partition(name, default=name == names[0]) for name in names)
    draw, made = np.random.default_rng(SEED), []
    for number in range(jobs):
        gpus = int(draw.choice((1, 1, 1, 1, 2, 2, 4, 8, 16)))
        run_s = 1.0 + float(draw.lognormal(7.0, 1.5))
        limit_s, submit_s = run_s * float(draw.uniform(1.0, 4.0)), SPAN_S * number / jobs
        partition = names[int(draw.integers(len(names)))]
        made.append(
            TraceJob(
                str(number), submit_s, run_s, gpus, limit_s, cpus=4 * gpus, mem_mib=16_000 * gpus,
                partition=partition,
            )
        )  # fmt: skip
    return Cluster(layout, nodes, parts), tuple(made)


def _partitions(node: int, layout: Layout) -> tuple[str, ...]:
    quarter = 4 * node // CROWD_NODES
    if layout == "overlapping":
        return tuple(f"p{at}" for at in range(3) if at <= quarter <= at + 1)
    return (f"p{quarter if layout == 'several' else 0}",)
