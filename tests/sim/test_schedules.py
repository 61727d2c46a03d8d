"""Schedules worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

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
ENDLESS = job("c", 2, 5, 1, time_limit_s=math.inf)
SMALL = Resources(4, 8, 100)


@pytest.mark.parametrize(
    ("jobs", "backfill", "found"),
    [
        # the example of docs/simulator.md
        ((A, B, C, D), "easy", {"a": 0, "b": 10, "c": 2, "d": 15}),
        ((A, B, C, D), "none", {"a": 0, "b": 10, "c": 15, "d": 15}),
        ((A, replace(B, gpus=3), D), "easy", {"a": 0, "b": 10, "d": 2}),
        # by a's limit the shadow time is 100, so c passes; a ends at 10, and b pays for it
        (
            (replace(A, time_limit_s=100.0), B, job("c", 2, 20, 1)),
            "easy",
            {"a": 0, "b": 22, "c": 2},
        ),
        # without a limit it passes only where it cannot hurt
        ((A, B, ENDLESS), "easy", {"a": 0, "b": 10, "c": 15}),
        ((A, replace(B, gpus=3), ENDLESS), "easy", {"a": 0, "b": 10, "c": 2}),
        # c may not delay x: on the only node it would end at 5, before x's shadow time of 10
        (
            (job("a", 0, 10, 1), job("x", 1, 10, 1, exclusive=True), job("c", 2, 3, 1)),
            "easy",
            {"a": 0, "c": 2, "x": 10},
        ),
        (
            (job("x", 0, 10, 0, cpus=1, exclusive=True), job("c", 2, 3, 1)),
            "easy",
            {"x": 0, "c": 10},
        ),
    ],
)
def test_who_passes_the_head(
    jobs: tuple[TraceJob, ...], backfill: str, found: dict[str, float]
) -> None:
    assert starts(cluster(("n", 4)), jobs, backfill=backfill) == found


@pytest.mark.parametrize(
    ("jobs", "oversubscribe", "found"),
    [
        ((job("a", 0, 10, 1), job("b", 1, 5, 1)), "EXCLUSIVE", {"a": 0, "b": 10}),
        (
            (job("a", 0, 10, 1, cpus=6), job("b", 1, 5, 1, cpus=3), job("c", 2, 3, 1, cpus=2)),
            "NO",
            {"a": 0, "b": 10, "c": 2},
        ),
        (
            (job("a", 0, 10, 1, mem_mib=60), job("b", 1, 5, 1, mem_mib=50)),
            "NO",
            {"a": 0, "b": 10},
        ),
    ],
)
def test_whole_nodes_cpus_and_memory_bind_too(
    jobs: tuple[TraceJob, ...], oversubscribe: str, found: dict[str, float]
) -> None:
    node = idle_node("n", GpuType("g"), SMALL, ("p",))
    where = Cluster("c", (node,), (Partition("p", oversubscribe=oversubscribe),))
    assert starts(where, jobs) == found


def test_sjf_goes_by_the_limit_and_clairvoyant_by_the_run_time() -> None:
    jobs = [
        job("first", 0, 10, 1),
        job("says-short", 1, 9, 1, time_limit_s=9.0),
        job("is-short", 2, 1, 1, time_limit_s=60.0),
    ]
    where = cluster(("n", 1))
    assert starts(where, jobs, "sjf") == {"first": 0, "says-short": 10, "is-short": 19}
    assert starts(where, jobs, CLAIRVOYANT) == {"first": 0, "is-short": 10, "says-short": 11}


def test_a_job_that_exceeds_its_limit_is_cut_there() -> None:
    where, late = cluster(("n", 1)), job("a", 0, 100, 1, time_limit_s=30.0)
    world = World(where, [late])
    while world.next_time() is not None:
        world.step()
    record = world.finished[1]
    assert (record.ended_at, record.status) == (30.0, "TIMEOUT")


def test_a_job_that_uses_its_limit_exactly_completes() -> None:
    world = World(cluster(("n", 1)), [job("a", 0, 30, 1)])
    world.advance(30)
    assert world.finished[1].status == "COMPLETED"


def two_partitions(*, shared: bool) -> Cluster:
    member = ("p", "q") if shared else ("p",)
    nodes = (
        idle_node("n1", GpuType("g"), Resources(4, 99, 99), member),
        idle_node("n2", GpuType("g"), Resources(4, 99, 99), ("q",)),
    )
    return Cluster("two", nodes, (Partition("p", default=True), Partition("q")))


def test_partitions_without_a_common_node_never_block_each_other() -> None:
    jobs = [
        job("a", 0, 10, 3, partition="p"),
        job("b", 1, 5, 4, partition="p"),
        job("c", 2, 50, 4, partition="q"),
    ]
    found = starts(two_partitions(shared=False), jobs, backfill="none")
    assert found == {"a": 0, "b": 10, "c": 2}


def test_a_partition_that_shares_nodes_cannot_delay_the_others_head() -> None:
    jobs = [
        job("a", 0, 10, 3, partition="p"),
        job("big", 0, 50, 4, partition="q"),  # on n2: n1 has only one GPU left
        job("head", 1, 5, 4, partition="p"),  # shadow time 10 on n1
        job("short", 2, 8, 1, partition="q"),  # ends at 10
        job("long", 2, 9, 1, partition="q"),  # would take n1 from the head until 11
    ]
    assert starts(two_partitions(shared=True), jobs) == {
        "a": 0,
        "big": 0,
        "head": 10,
        "short": 2,
        "long": 15,
    }


def test_pack_takes_the_fullest_node_and_spread_the_emptiest() -> None:
    jobs = [job("a", 0, 100, 2), job("b", 1, 100, 1), job("c", 2, 100, 1)]
    where = cluster(("n1", 4), ("n2", 4))
    packed = run(where, jobs, placement="pack")
    spread = run(where, jobs, placement="spread")
    assert packed == {"a": "n1:2", "b": "n1:1", "c": "n1:1"}
    assert spread == {"a": "n1:2", "b": "n2:1", "c": "n2:1"}


def test_more_gpus_than_a_node_has_go_to_the_fewest_nodes_as_evenly_as_possible() -> None:
    where = cluster(("n1", 4), ("n2", 4), ("n3", 4))
    assert run(where, [job("a", 0, 9, 10)]) == {"a": "n1:4|n2:3|n3:3"}
    assert run(where, [job("a", 0, 9, 2, nodes=2)]) == {"a": "n1:1|n2:1"}


def test_jobs_keep_to_the_types_they_accept() -> None:
    nodes = tuple(
        idle_node(f"n{t}", GpuType(t), Resources(1, 9, 9), ("p",)) for t in ("a", "b", "c")
    )
    where = Cluster("c", nodes, (Partition("p"),))
    jobs = [
        job("bound", 0, 9, 1, gpu_types=("b",)),
        job("either", 0, 9, 1, gpu_types=("b", "c")),
        job("free", 0, 9, 1),
        job("bound-too", 0, 9, 1, gpu_types=("b",)),
    ]
    assert run(where, jobs) == {
        "bound": "nb:1",
        "either": "nc:1",
        "free": "na:1",
        "bound-too": "nb:1",
    }
    assert starts(where, jobs)["bound-too"] == 9


def test_a_failed_node_sends_its_jobs_back_to_the_queue() -> None:
    faults = (Fault(4.0, "n1", NodeFault.FAIL), Fault(20.0, "n1", NodeFault.RESUME))
    jobs = (job("a", 0, 10, 2), job("b", 0, 10, 2))
    window = Scenario.of(cluster(("n1", 2), ("n2", 2)), jobs, faults=faults)
    done = simulate(window, "fcfs", Protocol())
    # a runs on n1, loses four seconds of two GPUs, and starts again when b leaves n2
    assert done.start_s.tolist() == [10.0, 0.0]
    assert done.nodes == ("n2:2", "n2:2")
    assert done.lost_gpu_s == 8.0


def test_a_drained_node_lets_its_job_finish_and_takes_no_other() -> None:
    faults = (Fault(4.0, "n1", NodeFault.DRAIN), Fault(20.0, "n1", NodeFault.RESUME))
    jobs = (job("a", 0, 10, 2), job("b", 5, 10, 2))
    done = simulate(Scenario.of(cluster(("n1", 2)), jobs, faults=faults), "fcfs", Protocol())
    assert done.start_s.tolist() == [0.0, 20.0]


def run(where: Cluster, jobs: Sequence[TraceJob], **rules: object) -> dict[str, str]:
    window = Scenario.of(where, jobs, Rules(**rules))  # type: ignore[arg-type]
    done = simulate(window, "fcfs", Protocol())
    return dict(zip(done.job_ids, done.nodes, strict=True))
