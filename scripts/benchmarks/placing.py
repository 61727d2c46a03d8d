"""Joint placement: the whole decision with CBC, its growth, and the cases that need no solver."""

import time
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.milp import Budget, Sharing, SolveStatus, Tuning, place_jointly
from rltuned.core.placement import place
from rltuned.daemon.loop import uncollected
from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, JobId, NodeName, UnixTime
from rltuned.solver import Cbc
from scripts.benchmarks import PAPER, Figure
from scripts.benchmarks.deciding import processor_s

PARTITION: Final = "gpu"
NOW: Final = 1_000_000.0
TYPES: Final = ("A100", "V100", "T4")
GPUS: Final = 8
CPUS: Final = 64
MEM_MIB: Final = 512_000
MEM_PER_GPU_MIB: Final = 30_000
FULL: Final = 0.9
"""Chance that one more job runs on a node: most nodes are left with scraps."""
ROUNDS: Final = 25
QUICK_ROUNDS: Final = 200
GROWTH: Final = ((4, 100), (8, 100), (32, 100), (16, 20), (16, 400))
GOAL: Final = "own goal"
GOAL_MS: Final = 20.0
GUIDED: Final = Tuning(Budget(wall_s=10.0), Sharing(frozenset({PARTITION})))
PAPER_MS: Final = 0.2
"""The paper's time for its solver, which decides between two ways of one job."""


def measure() -> list[Figure]:
    """The figures, in milliseconds."""
    at_16 = solved_ms(16, 100)
    figures = [
        Figure("joint_k16_100_nodes_median", median(at_16), "ms", GOAL_MS,
               GOAL),
        Figure("joint_k16_100_nodes_p95", float(np.percentile(at_16, 95)), "ms",
               GOAL_MS, GOAL),
        Figure("joint_guided_k16_100_nodes_median", median(solved_ms(16, 100, guided=True)), "ms",
               GOAL_MS, GOAL),
        *(Figure(f"joint_{name}", ms, "ms", PAPER_MS, PAPER) for name, ms in skipped_ms().items()),
    ]  # fmt: skip
    base = median(at_16)
    for top_k, nodes in GROWTH:
        name = f"joint_k{top_k}_{nodes}_nodes_median"
        source = "K=16 on 100 nodes, same run"
        figures.append(Figure(name, median(solved_ms(top_k, nodes)), "ms", base, source))
    return figures


def solved_ms(top_k: int, nodes: int, rounds: int = ROUNDS, *, guided: bool = False) -> list[float]:
    """Processor milliseconds, CBC's too, of joint decisions that needed it, each on its queue.
    guided: every second job asks for whole nodes and may be set to share them.
    """
    found: list[float] = []
    solver = Cbc()
    for seed in range(8 * rounds):
        world = busy_world(seed, top_k, nodes)
        world = half_exclusive(world) if guided else world
        capacity = Capacity.of(world)
        fits = [place(job, capacity) is not None for job in world.pending]
        with uncollected():  # as in a cycle of the daemon
            start = processor_s()
            joint = place_jointly(world.pending, fits, world, GUIDED, solver)
            took = processor_s() - start
        if joint.how is SolveStatus.SOLVED:
            found.append(1e3 * took)
        if len(found) == rounds:
            break
    return found


def skipped_ms() -> dict[str, float]:
    """Milliseconds of decisions that need no solver, on 100 nodes: 16 jobs of which none fits, one
    job, and 16 small ones that all start.
    """
    busy = busy_world(0, 16, 100)
    one_gpu = Resources(1, 2, MEM_PER_GPU_MIB)
    small = tuple(replace(j, request=replace(j.request, total=one_gpu)) for j in busy.pending)
    cases = {
        "none_fits": (busy.pending, False),
        "one_job": (busy.pending[:1], True),
        "all_start": (small, True),
    }
    return {
        name: _skipped(replace(busy, pending=jobs), fits=fits)
        for name, (jobs, fits) in cases.items()
    }


def _skipped(world: Snapshot, *, fits: bool) -> float:
    tuning, times = Tuning(), []
    asked = [fits] * len(world.pending)
    for _ in range(QUICK_ROUNDS):
        start = time.process_time()
        joint = place_jointly(world.pending, asked, world, tuning, None)
        times.append(1e3 * (time.process_time() - start))
        if joint.how is not SolveStatus.SKIPPED:
            raise ValueError(f"a solver was asked for: {joint.why}")
    return median(times)


def half_exclusive(world: Snapshot) -> Snapshot:
    """The same, and every second job asks for whole nodes."""
    pending = tuple(
        replace(job, oversubscribe="NO", request=replace(job.request, exclusive=True))
        if number % 2
        else job
        for number, job in enumerate(world.pending)
    )
    partitions = (Partition(PARTITION, default=True),)
    return replace(world, pending=pending, partitions=partitions, preemption=False)


def busy_world(seed: int, jobs: int, nodes: int) -> Snapshot:
    """A typed cluster with scraps on most nodes, and a queue that half accepts any type."""
    draw = np.random.default_rng(seed)
    runs: list[RunningJob] = []
    hardware = tuple(_fill(number, draw, runs) for number in range(nodes))
    pending = tuple(_job(number, draw) for number in range(1, jobs + 1))
    return Snapshot(UnixTime(NOW), "bench", pending, tuple(runs), hardware)


def _fill(number: int, draw: np.random.Generator, runs: list[RunningJob]) -> Node:
    name, kind = NodeName(f"n{number:04d}"), GpuType(TYPES[number % len(TYPES)])
    free = Resources(GPUS, CPUS, MEM_MIB)
    while free.gpus and draw.random() < FULL:
        gpus = min(free.gpus, int(draw.choice((1, 1, 2, 4, 8))))
        cpus = min(free.cpus, gpus * int(draw.integers(2, 11)))
        taken = Resources(gpus, cpus, gpus * MEM_PER_GPU_MIB)
        limit_s = float(draw.choice((3_600, 7_200, 14_400, 86_400)))
        runs.append(
            RunningJob(
                job_id=JobId(1_000_000 + len(runs)),
                started_at=UnixTime(NOW - float(draw.integers(0, 3_000))),
                request=Request(taken, limit_s),
                shares=(Share(name, taken, kind),),
                partition=PARTITION,
            )
        )
        free -= taken
    total = Resources(GPUS, CPUS, MEM_MIB)
    return Node(name, (GpuCount(kind, GPUS, free.gpus),), total, free, True, (PARTITION,))


def _job(number: int, draw: np.random.Generator) -> PendingJob:
    gpus = int(draw.choice((1, 1, 2, 4, 8, 8, 16, 32)))
    amounts = Resources(gpus, gpus * int(draw.integers(2, 11)), gpus * MEM_PER_GPU_MIB)
    limit_s = float(draw.choice((3_600, 7_200, 14_400, 86_400)))
    kinds = () if draw.random() < 0.5 else (GpuType(str(draw.choice(TYPES))),)  # noqa: PLR2004
    submitted_at = UnixTime(NOW - 10_000.0 + number)
    return PendingJob(
        job_id=JobId(number),
        address=str(number),
        submitted_at=submitted_at,
        eligible_at=submitted_at,
        request=Request(amounts, limit_s, kinds),
        priority=1_000 - number,
        partitions=(PARTITION,),
    )
