"""Small clusters and traces, hand-made and random."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.metrics import Schedule
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import EmptyCluster, TraceJob
from rltuned.sim.world import Rules
from tests.examples import examples
from tests.sim.reference import plainly

calm = examples(100)


def cluster(
    *nodes: tuple[str, int], gpu_type: str = "g", partitions: Sequence[str] = ("p",)
) -> Cluster:
    """Nodes (name, GPUs) of one type, all in all partitions, with CPUs and memory to spare."""
    made = [
        idle_node(name, GpuType(gpu_type), Resources(gpus, 1_000, 1_000_000), tuple(partitions))
        for name, gpus in sorted(nodes)
    ]
    parts = tuple(Partition(p, default=i == 0) for i, p in enumerate(partitions))
    return Cluster("toy", tuple(made), parts)


def job(name: str, submit_s: float, duration_s: float, gpus: int, **rest: Any) -> TraceJob:
    """A job whose limit is its run time unless given."""
    return TraceJob(
        name, submit_s, duration_s, gpus, **({"time_limit_s": float(duration_s)} | rest)
    )


def starts(
    where: Cluster, jobs: Sequence[TraceJob], policy: str = "fcfs", **rules: Any
) -> dict[str, float]:
    """Start times by job id, in the plain world and checked against the kernel."""
    window, protocol = Scenario.of(where, jobs, Rules(**rules)), Protocol(bounded=False)
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    assert (plain.start_s == fast.start_s).all()
    assert plain.nodes == fast.nodes
    return dict(zip(plain.job_ids, plain.start_s.tolist(), strict=True))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to six nodes of up to three types in up to three partitions that may share nodes."""
    names = draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]))
    nodes = []
    for i in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from([0, 1, 2, 4, 8]))
        cpus = draw(st.sampled_from([4, 8, 16]))
        kind = GpuType(draw(st.sampled_from(["x", "y", "z"])))
        member = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        total = Resources(gpus, cpus, draw(st.sampled_from([8, 64])))
        nodes.append(idle_node(f"n{i}", kind, total, tuple(sorted(member))))
    longest = draw(st.sampled_from([None, 50.0]))
    partitions = tuple(
        Partition(
            p,
            default=p == "a",
            max_time_s=longest if p == "b" else None,
            priority_factor=draw(st.integers(0, 3)),
            oversubscribe=draw(st.sampled_from(["NO", "NO", "EXCLUSIVE"])) if p == "c" else "NO",
        )
        for p in names
    )
    return Cluster("random", tuple(nodes), partitions)


@st.composite
def traces(draw: st.DrawFn, where: Cluster, most: int = 30) -> tuple[TraceJob, ...]:
    """Jobs that could run there, with many ties in time."""
    submits = sorted(draw(st.lists(st.integers(0, 60), min_size=1, max_size=most)))
    jobs = []
    for i, submit in enumerate(submits):
        duration = draw(st.sampled_from([1, 2, 5, 10, 10.5, 30]))
        made = TraceJob(
            job_id=f"j{i}",
            submit_s=float(submit),
            duration_s=float(duration),
            time_limit_s=float(draw(st.sampled_from([1, 5, 10, 20, 40, math.inf]))),
            gpus=draw(st.sampled_from([0, 1, 1, 1, 2, 3, 4, 8, 10])),
            gpu_types=tuple(draw(st.sampled_from([(), (), ("x",), ("y",), ("x", "z")]))),
            cpus=draw(st.sampled_from([None, None, 1, 4, 9])),
            mem_mib=draw(st.sampled_from([None, None, 1, 8, 30])),
            nodes=draw(st.sampled_from([None, None, None, 1, 2, 3])),
            partition=draw(st.sampled_from([p.name for p in where.partitions])),
            user=draw(st.sampled_from(["u", "v"])),
            exclusive=draw(st.integers(0, 9)) == 0,
        )
        if EmptyCluster(where).why_not(made) is None:
            jobs.append(made)
    return tuple(jobs)


@st.composite
def cases(draw: st.DrawFn, most: int = 30) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """A cluster and a trace with at least one job."""
    where = draw(clusters())
    return where, draw(traces(where, most).filter(bool))


def assert_alike(plain: Schedule, fast: Schedule) -> None:
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.end_s.tolist() == fast.end_s.tolist()
    assert plain.nodes == fast.nodes
    assert plain.decisions == fast.decisions


def crowd(count: int, seed: int, rules: Rules | None = None) -> Scenario:
    """A queue that stays long for days on a few nodes."""
    rng = np.random.default_rng(seed)
    where = cluster(*((f"n{i}", 4) for i in range(3)))
    submits = np.sort(rng.integers(0, 3 * 86_400, size=count)).tolist()
    jobs = [
        job(
            f"j{i}",
            float(submit),
            float(rng.integers(1, 60) * 300),
            int(rng.choice([1, 1, 1, 2, 4, 8])),
            time_limit_s=float(rng.choice([1, 2, 4, 12, 24])) * 3_600.0,
        )
        for i, submit in enumerate(submits)
    ]
    capped = [replace(j, duration_s=min(j.duration_s, j.time_limit_s or 0.0)) for j in jobs]
    return Scenario.of(where, capped, rules)
