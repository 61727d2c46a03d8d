"""The clusters of the experiment, the jobs that are submitted to each, and Slurm's own order."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.compare import DAY_S
from rltuned.lab.replay.trace_file import read_trace, scale
from rltuned.sim.cluster import Cluster, idle_node, preset
from rltuned.sim.dispatch import Natural
from rltuned.sim.limits import draw_limits
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from scripts.studies.plays import TRACES
from tests.lab import TESTBED, NodeSpec

LOAD = 1.15
"""Of the GPUs while jobs arrive: that of the testbed's trace itself."""
SETS = 6
"""Of a real trace."""
PHILLY_NODES = (
    NodeSpec(("n1", "n2", "n3", "n4"), cpus=64, mem_mib=512_000, gpu_type="p100", gpus=8),
)

THETA_NODES = (
    NodeSpec(
        tuple(f"t{number:02d}" for number in range(1, 13)),
        cpus=128,
        mem_mib=1_000_000,
        gpu_type="a100",
        gpus=8,
    ),
)


@dataclass(frozen=True)
class Workload:
    """A cluster, its jobs by number and seed, and Slurm's own order, whose age and size weights
    have the least mean wait in the simulator on job sets that no run uses. seeds, speed: of the
    sets of 256 jobs; seconds of the faster clock per real second.
    """

    nodes: tuple[NodeSpec, ...]
    cluster: Cluster
    order: Natural
    jobs: Callable[[int, int], tuple[TraceJob, ...]]
    seeds: tuple[int, ...]
    speed: float


def testbed_jobs(count: int, seed: int) -> tuple[TraceJob, ...]:
    """The testbed's jobs at the load of the trace itself."""
    return synthesize("testbed-1024", jobs=count, seed=seed, limits="weak").jobs


def philly_jobs(count: int, seed: int) -> tuple[TraceJob, ...]:
    """Consecutive jobs of Philly's November; the sets begin at each sixth of it. Their limits are
    weak, and their users drawn: this copy of the trace names none.
    """
    chosen = _set(_philly(), count, seed)
    draw = np.random.default_rng(seed)
    limits_s = draw_limits(np.array([j.duration_s for j in chosen]), "weak", draw)
    users = draw.integers(1, 13, len(chosen))
    jobs = tuple(
        replace(
            job, gpu_types=(GpuType("p100"),), cpus=8 * job.gpus, mem_mib=60_000 * job.gpus,
            user=f"user{user:02d}",
            time_limit_s=min(60.0 * math.ceil(max(limit_s, job.duration_s) / 60.0), DAY_S),
        )
        for job, limit_s, user in zip(chosen, limits_s.tolist(), users.tolist(), strict=True)
    )  # fmt: skip
    return scale(Trace(jobs, {}), LOAD, _one_kind("philly-32", PHILLY_NODES).gpus).jobs


def theta_jobs(count: int, seed: int) -> tuple[TraceJob, ...]:
    """Consecutive jobs of ThetaGPU, each with whole nodes and its own limit; the sets begin at each
    sixth. The trace's users are dealt to twelve in the order in which they come; a job without a
    name of a user has one of its own draw.
    """
    chosen = _set(_theta(), count, seed)
    draw = np.random.default_rng(seed)
    number_of = {name: n for n, name in enumerate(dict.fromkeys(job.user for job in chosen))}
    jobs = []
    for job in chosen:
        nodes, number = job.nodes or 1, number_of[job.user] if job.user else draw.integers(12)
        jobs.append(
            replace(
                job, gpu_types=(GpuType("a100"),), cpus=128 * nodes, mem_mib=960_000 * nodes,
                user=f"user{int(number) % 12 + 1:02d}", exclusive=True,
                time_limit_s=60.0 * math.ceil(max(job.time_limit_s, job.duration_s) / 60.0),
            )
        )  # fmt: skip
    return scale(Trace(tuple(jobs), {}), LOAD, _one_kind("theta-96", THETA_NODES).gpus).jobs


def _set(every: tuple[TraceJob, ...], count: int, seed: int) -> list[TraceJob]:
    """So many jobs from a sixth of a trace on, numbered, the first at 0."""
    first = (seed - 1) * len(every) // SETS
    chosen = every[first : first + count]
    return [
        replace(job, job_id=str(number), submit_s=job.submit_s - chosen[0].submit_s)
        for number, job in enumerate(chosen, 1)
    ]


@cache
def _philly() -> tuple[TraceJob, ...]:
    """Jobs of one node that end within a day, the partition's longest time."""
    jobs = read_trace(TRACES / "philly_2017-11.csv.gz").jobs
    return tuple(j for j in jobs if j.gpus <= PHILLY_NODES[0].gpus and j.duration_s < DAY_S)


@cache
def _theta() -> tuple[TraceJob, ...]:
    """Jobs that fit THETA_NODES and end within a day, the partition's longest time."""
    jobs = read_trace(TRACES / "thetagpu_2023.csv.gz").jobs
    most = len(THETA_NODES[0].names)
    return tuple(
        j for j in jobs if j.nodes and j.nodes <= most and max(j.time_limit_s, j.duration_s) < DAY_S
    )


def _one_kind(name: str, nodes: tuple[NodeSpec, ...]) -> Cluster:
    (spec,) = nodes
    size = Resources(spec.gpus, spec.cpus, spec.mem_mib)
    found = (idle_node(one, GpuType(spec.gpu_type), size, ("gpu",)) for one in spec.names)
    return Cluster(name, tuple(found), (Partition("gpu", default=True, max_time_s=DAY_S),))


TUNED = Natural(
    kind="multifactor",
    age_weight=10_000,
    size_weight=1_000,
    partition_weight=0,
    max_age_s=7 * DAY_S,
    favor_small=True,
)
TESTBED_JOBS = Workload(TESTBED, preset("testbed"), TUNED, testbed_jobs, (1, 2, 3), 240.0)
PHILLY = Workload(
    PHILLY_NODES,
    _one_kind("philly-32", PHILLY_NODES),
    replace(TUNED, size_weight=10_000),
    philly_jobs,
    tuple(range(1, SETS + 1)),
    120.0,
)
THETA = Workload(
    THETA_NODES,
    _one_kind("theta-96", THETA_NODES),
    TUNED,
    theta_jobs,
    tuple(range(1, SETS + 1)),
    180.0,
)
