"""A site whose past is known: jobs that the simulator itself has played under given weights."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.metrics import FloatArray
from rltuned.lab.replay.trace_file import scale
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from rltuned.sim.world import Natural, Rules, World
from tests.histories import rows, save_site

WEIGHTED = Natural(
    kind="multifactor",
    age_weight=10_000,
    size_weight=3_000,
    partition_weight=1_000,
    size_of="nodes",
)
"""What tests.histories.WEIGHTS say."""


def cluster() -> Cluster:
    """Eight GPUs on two nodes, two partitions on both of them."""
    names = ("gpu", "urgent")
    nodes = tuple(
        idle_node(f"a{i}", GpuType("t4"), Resources(4, 16, 64_000), names) for i in (1, 2)
    )
    parts = (Partition("gpu", default=True), Partition("urgent", priority_factor=5))
    return Cluster("known", nodes, parts)


@lru_cache
def jobs(count: int, *, seed: int = 3, load: float = 1.0) -> tuple[TraceJob, ...]:
    """Whole seconds and minutes, as sacct has them."""
    made = synthesize("philly-like", jobs=count, seed=seed, limits="weak").jobs
    short = [_whole(j, i) for i, j in enumerate(made)]
    scaled = scale(Trace(tuple(short)), load, 8).jobs
    return tuple(replace(j, submit_s=float(round(j.submit_s))) for j in scaled)


def _whole(job: TraceJob, place: int) -> TraceJob:
    limit_s = 60.0 * max(1, round(min(job.time_limit_s, 14_400.0) / 60))
    return replace(
        job,
        duration_s=float(max(1, round(min(job.duration_s, limit_s)))),
        time_limit_s=limit_s,
        gpus=min(8, job.gpus),
        gpu_types=(),
        cpus=2 * min(8, max(1, job.gpus)),
        mem_mib=None,
        nodes=None,
        partition="urgent" if place % 5 == 0 else "gpu",
    )


@lru_cache
def played(
    on: Cluster, given: tuple[TraceJob, ...], natural: Natural = WEIGHTED
) -> tuple[FloatArray, FloatArray]:
    """Starts and ends under an order."""
    world = World(on, given, rules=Rules(natural=natural))
    while world.next_time() is not None:
        world.step()
    ends = [world.finished[i + 1] for i in range(len(given))]
    return np.array([r.started_at for r in ends]), np.array([r.ended_at for r in ends])


def site(folder: Path, given: tuple[TraceJob, ...], natural: Natural = WEIGHTED) -> Path:
    """The files of such a site."""
    on = cluster()
    return save_site(folder, on, rows(given, *played(on, given, natural)))
