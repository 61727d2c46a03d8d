"""The kernel and the plain world are one and the same Slurm."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.units import GpuType, NodeName
from rltuned.lab.replay.protocol import CLAIRVOYANT, Mode, Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.backend import SimBackend
from rltuned.sim.cluster import Cluster, idle_node, preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import EmptyCluster, TraceJob
from rltuned.sim.world import AGE_ONLY, Fault, NodeFault, Rules, World
from tests.examples import examples
from tests.sim.reference import plainly
from tests.sim.worlds import assert_alike, cases, job, starts

POLICIES = (
    "fcfs",
    "sjf",
    "saf",
    "smallest",
    "delay",
    "wfp3",
    "unicep",
    "f1",
    "multifactor",
    "qssf",
    "fit_first",
    CLAIRVOYANT,
)
WIDE = 4
MODELS = [f"model:{card.parent}" for card in sorted(Path("models").glob("*/card.json"))]


@examples(300)
@given(
    case=cases(),
    data=st.data(),
    policy=st.sampled_from(POLICIES),
    backfill=st.sampled_from(["easy", "easy", "none"]),
    placement=st.sampled_from(["pack", "spread"]),
    fails=st.booleans(),
)
def test_random_worlds_give_the_same_starts_ends_and_nodes(
    case: tuple[Cluster, tuple[TraceJob, ...]],
    data: st.DataObject,
    policy: str,
    backfill: str,
    placement: str,
    *,
    fails: bool,
) -> None:
    """Also where nodes fail, drain and come back."""
    where, jobs = case
    faults = []
    for node in where.nodes if fails else ():
        for at in data.draw(st.lists(st.integers(0, 50), max_size=2)):
            what = data.draw(st.sampled_from([NodeFault.FAIL, NodeFault.DRAIN]))
            faults += [Fault(at, node.name, what), Fault(at + 20.5, node.name, NodeFault.RESUME)]
    rules = Rules(backfill=backfill, placement=placement)  # type: ignore[arg-type]
    window, protocol = Scenario.of(where, jobs, rules, faults), Protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    assert_alike(plain, fast)
    assert plain.lost_gpu_s == fast.lost_gpu_s


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("rules", "protocol"),
    [
        (Rules(), Protocol()),
        (Rules("none", "spread"), Protocol()),
        (Rules(), Protocol(bounded=False)),
    ],
)
def test_a_shipped_model_gives_the_schedule_of_the_plain_world(
    rules: Rules, protocol: Protocol, model: str
) -> None:
    trace = synthesize("testbed-1024", jobs=150, seed=3, free_share=0.4)
    window = Scenario.of(preset("testbed"), trace.jobs, rules, warmup=10)
    plain = plainly(window, model, protocol)
    fast = simulate(window, model, protocol)
    # two jobs whose scores differ in the last bit of a float32 may change places
    assert np.mean(plain.start_s == fast.start_s) > 0.98
    if (plain.start_s == fast.start_s).all():
        assert plain.nodes == fast.nodes
        assert plain.decisions == fast.decisions
    assert fast.warmup == plain.warmup == 10


@st.composite
def wide_cases(draw: st.DrawFn) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """Jobs of up to nine nodes on ten unequal ones: MANY_FROM lies within."""
    kinds = [GpuType(k) for k in draw(st.sampled_from(["x", "xy"]))]
    nodes = [
        idle_node(
            f"n{i:02}",
            draw(st.sampled_from(kinds)),
            Resources(
                draw(st.sampled_from([2, 4, 4, 8])),
                draw(st.sampled_from([8, 16])),
                draw(st.sampled_from([16, 64])),
            ),
            ("p",),
        )
        for i in range(draw(st.integers(WIDE, 10)))
    ]
    where = Cluster("wide", tuple(nodes), (Partition("p", default=True),))
    jobs = []
    for i in range(draw(st.integers(5, 25))):
        count = draw(st.sampled_from([1, 1, 3, WIDE, 5, 9]))
        made = TraceJob(
            job_id=f"j{i}",
            submit_s=float(draw(st.integers(0, 30))),
            duration_s=float(draw(st.integers(1, 20))),
            time_limit_s=float(draw(st.sampled_from([20, 40]))),
            gpus=draw(st.integers(0, 3)) + count * draw(st.integers(0, 3)),
            cpus=count * draw(st.integers(1, 6)) + draw(st.integers(0, 2)),
            nodes=count,
            exclusive=draw(st.integers(0, 9)) == 0,
        )
        if EmptyCluster(where).why_not(made) is None:
            jobs.append(made)
    return where, tuple(sorted(jobs, key=lambda j: j.submit_s))


def has_wide_jobs(case: tuple[Cluster, tuple[TraceJob, ...]]) -> bool:
    return any((j.nodes or 0) >= WIDE for j in case[1])


@examples(150)
@given(
    case=wide_cases().filter(has_wide_jobs),
    policy=st.sampled_from(["fcfs", "saf", "delay"]),
    placement=st.sampled_from(["pack", "spread"]),
)
def test_wide_jobs_are_placed_alike(
    case: tuple[Cluster, tuple[TraceJob, ...]], policy: str, placement: Literal["pack", "spread"]
) -> None:
    where, jobs = case
    window, protocol = Scenario.of(where, jobs, Rules(placement=placement)), Protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.nodes == fast.nodes


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
