"""The clusters of the experiment, the jobs that are submitted to each, and Slurm's own order."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.reshape import scale
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.limits import draw_limits
from rltuned.sim.natural import Natural
from rltuned.sim.presets import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob, read_trace
from rltuned.stats import DAY_S
from scripts.studies.plays import TRACES
from tests.lab import TESTBED, NodeSpec

LOAD = 1.15
"""Of the GPUs while jobs arrive: that of the testbed's trace itself."""
PHILLY_SETS = 6
PHILLY_NODES = (
    NodeSpec(("n1", "n2", "n3", "n4"), cpus=64, mem_mib=512_000, gpu_type="p100", gpus=8),
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
    every = _philly()
    first = (seed - 1) * len(every) // PHILLY_SETS
    chosen = every[first : first + count]
    draw = np.random.default_rng(seed)
    limits_s = draw_limits(np.array([j.duration_s for j in chosen]), "weak", draw)
    users = draw.integers(1, 13, len(chosen))
    jobs = tuple(
        replace(
            job, job_id=str(number), submit_s=job.submit_s - chosen[0].submit_s,
            gpu_types=(GpuType("p100"),), cpus=8 * job.gpus, mem_mib=60_000 * job.gpus,
            user=f"user{user:02d}",
            time_limit_s=min(60.0 * math.ceil(max(limit_s, job.duration_s) / 60.0), DAY_S),
        )
        for number, (job, limit_s, user) in enumerate(
            zip(chosen, limits_s.tolist(), users.tolist(), strict=True), 1
        )
    )  # fmt: skip
    return scale(Trace(jobs, {}), LOAD, _small_philly().gpus).jobs


@cache
def _philly() -> tuple[TraceJob, ...]:
    """Jobs of one node that end within a day, the partition's longest time."""
    jobs = read_trace(TRACES / "philly_2017-11.csv.gz").jobs
    return tuple(j for j in jobs if j.gpus <= PHILLY_NODES[0].gpus and j.duration_s < DAY_S)


def _small_philly() -> Cluster:
    (spec,) = PHILLY_NODES
    size = Resources(spec.gpus, spec.cpus, spec.mem_mib)
    nodes = (idle_node(name, GpuType(spec.gpu_type), size, ("gpu",)) for name in spec.names)
    return Cluster("philly-32", tuple(nodes), (Partition("gpu", default=True, max_time_s=DAY_S),))


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
    _small_philly(),
    replace(TUNED, size_weight=10_000),
    philly_jobs,
    tuple(range(1, PHILLY_SETS + 1)),
    120.0,
)
