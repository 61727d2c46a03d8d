"""The compiled engine and the plain world are one and the same Slurm."""

from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltuned.sim.cluster import Cluster
from rltuned.sim.policy import CLAIRVOYANT
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol
from rltuned.sim.run import Window, simulate
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from tests import needs
from tests.sim.worlds import cases

needs.module("numba")

POLICIES = (
    "fcfs",
    "sjf",
    "saf",
    "smallest",
    "wfp3",
    "unicep",
    "f1",
    "multifactor",
    "qssf",
    CLAIRVOYANT,
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
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
    protocol = Protocol(rules=Rules(backfill=backfill, placement=placement))  # type: ignore[arg-type]
    window = Window(0, jobs)
    plain = simulate(window, where, policy, protocol, engine=False)
    fast = simulate(window, where, policy, protocol)
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.end_s.tolist() == fast.end_s.tolist()
    assert plain.nodes == fast.nodes
    assert plain.decisions == fast.decisions


@pytest.mark.parametrize("placement", ["pack", "spread"])
@pytest.mark.parametrize("policy", ["fcfs", "sjf", "wfp3", "qssf"])
def test_a_crowded_philly_slice_gives_the_same_schedule(
    policy: str, placement: Literal["pack", "spread"]
) -> None:
    jobs = synthesize("philly-like", jobs=250, seed=5).jobs
    crowded = tuple(
        TraceJob(j.job_id, j.submit_s / 20, j.duration_s, j.gpus, j.time_limit_s) for j in jobs
    )
    window, where = Window(0, crowded), preset("philly-192")
    protocol = Protocol(rules=Rules(placement=placement))
    plain = simulate(window, where, policy, protocol, engine=False)
    fast = simulate(window, where, policy, protocol)
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.nodes == fast.nodes
