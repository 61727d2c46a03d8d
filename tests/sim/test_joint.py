"""Joint placement in the simulated world."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.core.milp.problem import Budget
from rltuned.core.milp.sharing import Sharing
from rltuned.core.milp.solution import Tuning
from rltuned.errors import TraceError
from rltuned.sim.metrics import Schedule
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol, jointly
from rltuned.sim.run import TraceWindow, simulate
from rltuned.sim.synth import synthesize
from rltuned.solver import Cbc

CLUSTER = preset("testbed")
JOBS = synthesize("testbed-1024", jobs=60, seed=3, free_share=0.5).jobs
PATIENT = Tuning(budget=Budget(wall_s=20.0))


def play(protocol: Protocol, policy: str = "saf", window: TraceWindow | None = None) -> Schedule:
    return simulate(window or TraceWindow(0, JOBS), CLUSTER, policy, protocol)


@pytest.mark.parametrize("steered", [False, True])
@pytest.mark.parametrize("policy", ["saf", "fcfs", "wfp3"])
def test_without_a_solver_it_is_packing_to_the_last_digit(policy: str, *, steered: bool) -> None:
    joint = play(jointly(Protocol(), 16, replace(PATIENT, steered=steered), None), policy)
    packed = play(Protocol(), policy)
    assert (joint.start_s == packed.start_s).all()
    assert joint.nodes == packed.nodes


@pytest.mark.parametrize("steered", [False, True])
def test_every_job_runs_once_and_its_amount(*, steered: bool) -> None:
    found = play(jointly(Protocol(), 16, replace(PATIENT, steered=steered), Cbc()))
    assert np.isfinite(found.start_s).all()
    for gpus, nodes in zip(found.gpus, found.nodes, strict=True):
        assert sum(int(part.rpartition(":")[2]) for part in nodes.split("|")) == gpus


def test_the_same_run_twice() -> None:
    protocol = jointly(Protocol(), 16, replace(PATIENT, steered=True), Cbc())
    one, other = play(protocol), play(protocol)
    assert (one.start_s == other.start_s).all()
    assert one.nodes == other.nodes


def test_exclusive_jobs_reported_to_share_wait_less() -> None:
    alone = TraceWindow(0, tuple(replace(j, exclusive=True) for j in JOBS))
    before = play(Protocol(), window=alone)
    tuning = replace(PATIENT, sharing=Sharing(frozenset({"gpu"})))
    after = play(jointly(Protocol(), 16, tuning, Cbc()), window=alone)
    wait = [float((s.start_s - s.submit_s).mean()) for s in (before, after)]
    assert wait[1] < 0.7 * wait[0]


def test_once_per_cycle_as_the_daemon_does() -> None:
    found = play(jointly(Protocol(mode="cycle"), 16, PATIENT, Cbc()))
    assert np.isfinite(found.start_s).all()


def test_an_order_that_knows_the_future_cannot_be_placed_jointly() -> None:
    with pytest.raises(TraceError, match="placement pack or spread only"):
        play(jointly(Protocol(), 16, PATIENT, Cbc()), "clairvoyant:sjf")
