"""Schedules worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.protocol import CLAIRVOYANT, Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Fault, NodeFault, Rules, World
from tests.sim.worlds import cluster, job, starts

A, B = job("a", 0, 10, 3), job("b", 1, 5, 4)
C, D = job("c", 2, 8, 1), job("d", 2, 9, 1)
LONG, ENDLESS = replace(A, time_limit_s=100.0), job("c", 2, 5, 1, time_limit_s=math.inf)
ONE, TWO, THREE = (cluster(*((f"n{i + 1}", 4) for i in range(count))) for count in (1, 2, 3))


def small(oversubscribe: str = "NO") -> Cluster:
    node = idle_node("n", GpuType("g"), Resources(4, 8, 100), ("p",))
    return Cluster("c", (node,), (Partition("p", oversubscribe=oversubscribe),))


def two_partitions(*, shared: bool) -> Cluster:
    nodes = (
        idle_node("n1", GpuType("g"), Resources(4, 99, 99), ("p", "q") if shared else ("p",)),
        idle_node("n2", GpuType("g"), Resources(4, 99, 99), ("q",)),
    )
    return Cluster("two", nodes, (Partition("p", default=True), Partition("q")))


@pytest.mark.parametrize(
    ("where", "jobs", "rules", "found"),
    [
        # the example of docs/simulator.md
        (ONE, (A, B, C, D), {}, {"a": 0, "b": 10, "c": 2, "d": 15}),
        (ONE, (A, B, C, D), {"backfill": "none"}, {"a": 0, "b": 10, "c": 15, "d": 15}),
        (ONE, (A, replace(B, gpus=3), D), {}, {"a": 0, "b": 10, "d": 2}),
        # by a's limit the shadow time is 100, so c passes; a ends at 10, and b pays for it
        (ONE, (LONG, B, job("c", 2, 20, 1)), {}, {"a": 0, "b": 22, "c": 2}),
        # without a limit it passes only where it cannot hurt
        (ONE, (A, B, ENDLESS), {}, {"a": 0, "b": 10, "c": 15}),
        (ONE, (A, replace(B, gpus=3), ENDLESS), {}, {"a": 0, "b": 10, "c": 2}),
        # c may not delay x: on the only node it would end at 5, before x's shadow time of 10
        (
            ONE, (job("a", 0, 10, 1), job("x", 1, 10, 1, exclusive=True), job("c", 2, 3, 1)),
            {}, {"a": 0, "c": 2, "x": 10},
        ),
        (
            ONE, (job("x", 0, 10, 0, cpus=1, exclusive=True), job("c", 2, 3, 1)),
            {}, {"x": 0, "c": 10},
        ),
        # whole nodes, CPUs and memory bind too
        (small("EXCLUSIVE"), (job("a", 0, 10, 1), job("b", 1, 5, 1)), {}, {"a": 0, "b": 10}),
        (
            small(),
            (job("a", 0, 10, 1, cpus=6), job("b", 1, 5, 1, cpus=3), job("c", 2, 3, 1, cpus=2)),
            {}, {"a": 0, "b": 10, "c": 2},
        ),
        (
            small(), (job("a", 0, 10, 1, mem_mib=60), job("b", 1, 5, 1, mem_mib=50)),
            {}, {"a": 0, "b": 10},
        ),
        # partitions without a common node never block each other
        (
            two_partitions(shared=False),
            (A, B, job("c", 2, 50, 4, partition="q")),
            {"backfill": "none"}, {"a": 0, "b": 10, "c": 2},
        ),
        # one that shares nodes cannot delay the other's head
        (
            two_partitions(shared=True),
            (
                A,
                job("big", 0, 50, 4, partition="q"),  # on n2: n1 has only one GPU left
                job("head", 1, 5, 4),  # shadow time 10 on n1
                job("short", 2, 8, 1, partition="q"),  # ends at 10
                job("long", 2, 9, 1, partition="q"),  # would take n1 from the head until 11
            ),
            {}, {"a": 0, "big": 0, "head": 10, "short": 2, "long": 15},
        ),
    ],
)  # fmt: skip
def test_who_starts_when(
    where: Cluster, jobs: tuple[TraceJob, ...], rules: dict[str, Any], found: dict[str, float]
) -> None:
    assert starts(where, jobs, **rules) == found


def test_sjf_goes_by_the_limit_and_clairvoyant_by_the_run_time() -> None:
    jobs = [
        job("first", 0, 10, 1),
        job("says-short", 1, 9, 1, time_limit_s=9.0),
        job("is-short", 2, 1, 1, time_limit_s=60.0),
    ]
    where = cluster(("n", 1))
    assert starts(where, jobs, "sjf") == {"first": 0, "says-short": 10, "is-short": 19}
    assert starts(where, jobs, CLAIRVOYANT) == {"first": 0, "is-short": 10, "says-short": 11}


@pytest.mark.parametrize(("run_s", "status"), [(100, "TIMEOUT"), (30, "COMPLETED")])
def test_a_job_that_exceeds_its_limit_is_cut_there(run_s: float, status: str) -> None:
    world = World(cluster(("n", 1)), [job("a", 0, run_s, 1, time_limit_s=30.0)])
    world.advance(30)
    assert (world.finished[1].ended_at, world.finished[1].status) == (30.0, status)


PILE = [job("a", 0, 100, 2), job("b", 1, 100, 1), job("c", 2, 100, 1)]
TYPED = [
    job("bound", 0, 9, 1, gpu_types=("b",)),
    job("either", 0, 9, 1, gpu_types=("b", "c")),
    job("free", 0, 9, 1),
    job("bound-too", 0, 9, 1, gpu_types=("b",)),
]
TYPES = Cluster(
    "c",
    tuple(idle_node(f"n{t}", GpuType(t), Resources(1, 9, 9), ("p",)) for t in "abc"),
    (Partition("p"),),
)


@pytest.mark.parametrize(
    ("where", "jobs", "placement", "nodes"),
    [
        (TWO, PILE, "pack", ["n1:2", "n1:1", "n1:1"]),
        (TWO, PILE, "spread", ["n1:2", "n2:1", "n2:1"]),
        # more GPUs than a node has: on the fewest nodes, as evenly as possible
        (THREE, [job("a", 0, 9, 10)], "pack", ["n1:4|n2:3|n3:3"]),
        (THREE, [job("a", 0, 9, 2, nodes=2)], "pack", ["n1:1|n2:1"]),
        # jobs keep to the types that they accept; the last one waits for the first
        (TYPES, TYPED, "pack", ["nb:1", "nc:1", "na:1", "nb:1"]),
    ],
)
def test_who_runs_where(
    where: Cluster, jobs: list[TraceJob], placement: Any, nodes: list[str]
) -> None:
    done = simulate(Scenario.of(where, jobs, Rules(placement=placement)), "fcfs", Protocol())
    assert list(done.nodes) == nodes
    assert where is not TYPES or done.start_s.tolist() == [0, 0, 0, 9]


@pytest.mark.parametrize(
    ("change", "jobs", "found", "lost"),
    [
        # a runs on n1, loses four seconds of two GPUs, and starts again when b leaves n2
        (NodeFault.FAIL, (job("a", 0, 10, 2), job("b", 0, 10, 2)), [10.0, 0.0], 8.0),
        # a drained node lets its job finish and takes no other: n2 is busy until 30
        (
            NodeFault.DRAIN,
            (job("a", 0, 10, 2), job("c", 0, 30, 2), job("b", 5, 10, 2)),
            [0.0, 0.0, 20.0],
            0.0,
        ),
    ],
)
def test_nodes_that_fail_or_are_drained(
    change: NodeFault, jobs: tuple[TraceJob, ...], found: list[float], lost: float
) -> None:
    faults = (Fault(4.0, "n1", change), Fault(20.0, "n1", NodeFault.RESUME))
    window = Scenario.of(cluster(("n1", 2), ("n2", 2)), jobs, faults=faults)
    done = simulate(window, "fcfs", Protocol())
    assert (done.start_s.tolist(), done.lost_gpu_s) == (found, lost)
