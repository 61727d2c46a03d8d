"""A node with two types of GPUs, as sites have that cut one card into slices."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.units import GpuType, NodeName
from rltuned.lab.replay.protocol import Mode, Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.backend import SimBackend
from rltuned.sim.cluster import Cluster
from rltuned.sim.dispatch import AGE_ONLY
from rltuned.sim.world import Rules, World
from tests.examples import examples
from tests.sim.reference import plainly
from tests.sim.worlds import job, starts

COUNTS = (GpuCount(GpuType("a100_1g.5gb"), 4, 4), GpuCount(GpuType("t4"), 4, 4))
WHOLE = Resources(8, 100, 100_000)
ONE = Resources(4, 100, 100_000)
MIXED = Cluster(
    "mixed",
    (Node(NodeName("n"), COUNTS, WHOLE, WHOLE, schedulable=True, partitions=("p",)),),
    (Partition("p", default=True),),
)
THREE = replace(
    MIXED,
    nodes=(
        replace(MIXED.nodes[0], name=NodeName("m")),
        *MIXED.nodes,
        replace(MIXED.nodes[0], name=NodeName("o"), gpus=COUNTS[1:], total=ONE, free=ONE),
    ),
)
JOBS = [
    job("a", 0, 100, 4, gpu_types=("t4",)),
    job("b", 1, 100, 4, gpu_types=("a100_1g.5gb",)),
    job("c", 2, 10, 1, gpu_types=("t4",)),
    job("d", 3, 10, 2, gpu_types=("a100_1g.5gb",)),
]


def test_each_type_is_counted_for_itself() -> None:
    assert starts(MIXED, JOBS) == {"a": 0.0, "b": 1.0, "c": 100.0, "d": 101.0}


def test_an_observer_sees_what_is_free_of_each_type() -> None:
    world = World(MIXED, JOBS)
    world.advance(0)
    (node,) = SimBackend(world).observe().nodes
    assert {g.gpu_type: g.free for g in node.gpus} == {"a100_1g.5gb": 4, "t4": 0}
    assert node.free.gpus == 4
    world.advance(5)
    (node,) = SimBackend(world).observe().nodes
    assert node.free.gpus == 0


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(1, 9),
            st.integers(0, 5),
            st.sampled_from(((), ("t4",), ("a100_1g.5gb",))),
            st.booleans(),
        ),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from(["fcfs", "saf", "delay", "fit_first", "model:rltune"]),
    st.sampled_from(["pack", "spread"]),
    st.sampled_from(["event", "cycle"]),
)
def test_both_engines_play_such_nodes_alike(
    rows: list[tuple[int, int, int, tuple[str, ...], bool]], rule: str, placement: str, mode: Mode
) -> None:
    clock, jobs = 0, []
    for i, (gap, runs, gpus, types, exclusive) in enumerate(rows):
        clock += gap
        size = min(gpus, 4)
        made = job(f"j{i}", clock, runs, size, gpu_types=types if size else ())
        jobs.append(replace(made, exclusive=exclusive))
    rules = Rules(placement=placement, natural=AGE_ONLY)  # type: ignore[arg-type]
    window, protocol = Scenario.of(THREE, jobs, rules), Protocol(mode, 5.0)
    fast, plain = (play(window, rule, protocol) for play in (simulate, plainly))
    assert fast.start_s.tolist() == plain.start_s.tolist()
    assert fast.nodes == plain.nodes
