"""The kernel and the plain world are one and the same Slurm."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.kernel.placement import MANY_FROM
from rltuned.lab.replay.protocol import CLAIRVOYANT, Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster, idle_node, preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import EmptyCluster, TraceJob
from rltuned.sim.world import Fault, NodeFault, Rules
from tests.examples import examples
from tests.sim.reference import plainly
from tests.sim.worlds import cases

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
MODELS = [f"model:{card.parent}" for card in sorted(Path("models").glob("*/card.json"))]


@examples(200)
@given(
    case=cases(),
    policy=st.sampled_from(POLICIES),
    backfill=st.sampled_from(["easy", "easy", "none"]),
    placement=st.sampled_from(["pack", "spread"]),
)
def test_random_worlds_give_the_same_starts_ends_and_nodes(
    case: tuple[Cluster, tuple[TraceJob, ...]], policy: str, backfill: str, placement: str
) -> None:
    where, jobs = case
    rules = Rules(backfill=backfill, placement=placement)  # type: ignore[arg-type]
    window, protocol = Scenario.of(where, jobs, rules), Protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.end_s.tolist() == fast.end_s.tolist()
    assert plain.nodes == fast.nodes
    assert plain.decisions == fast.decisions


@examples(100)
@given(
    case=cases(),
    data=st.data(),
    policy=st.sampled_from(("fcfs", "saf", "delay", "wfp3", "qssf", "fit_first", CLAIRVOYANT)),
    backfill=st.sampled_from(["easy", "none"]),
)
def test_nodes_that_fail_drain_and_come_back_give_the_same(
    case: tuple[Cluster, tuple[TraceJob, ...]], data: st.DataObject, policy: str, backfill: str
) -> None:
    where, jobs = case
    faults = []
    for node in where.nodes:
        for at in data.draw(st.lists(st.integers(0, 50), max_size=2)):
            what = data.draw(st.sampled_from([NodeFault.FAIL, NodeFault.DRAIN]))
            faults += [Fault(at, node.name, what), Fault(at + 20.5, node.name, NodeFault.RESUME)]
    rules = Rules(backfill=backfill)  # type: ignore[arg-type]
    window, protocol = Scenario.of(where, jobs, rules, faults), Protocol()
    plain, fast = (
        plainly(window, policy, protocol),
        simulate(window, policy, protocol),
    )
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.end_s.tolist() == fast.end_s.tolist()
    assert plain.nodes == fast.nodes
    assert plain.decisions == fast.decisions
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


@pytest.mark.parametrize("placement", ["pack", "spread"])
@pytest.mark.parametrize("policy", ["fcfs", "sjf", "wfp3", "qssf"])
def test_a_crowded_philly_slice_gives_the_same_schedule(
    policy: str, placement: Literal["pack", "spread"]
) -> None:
    jobs = synthesize("philly-like", jobs=250, seed=5).jobs
    crowded = tuple(
        TraceJob(j.job_id, j.submit_s / 20, j.duration_s, j.gpus, j.time_limit_s) for j in jobs
    )
    rules = Rules(placement=placement)
    window, protocol = Scenario.of(preset("philly-192"), crowded, rules), Protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.nodes == fast.nodes


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
        for i in range(draw(st.integers(MANY_FROM, 10)))
    ]
    where = Cluster("wide", tuple(nodes), (Partition("p", default=True),))
    jobs = []
    for i in range(draw(st.integers(5, 25))):
        count = draw(st.sampled_from([1, 1, MANY_FROM - 1, MANY_FROM, 5, 9]))
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
    return any((j.nodes or 0) >= MANY_FROM for j in case[1])


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
