"""Joint placement in the simulated world: Slurm packs, and exclusive jobs may share."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.core.milp import Budget, Sharing, Tuning
from rltuned.errors import TraceError
from rltuned.lab.replay.metrics import Schedule
from rltuned.lab.replay.protocol import Protocol, jointly
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.solver import Cbc

CLUSTER = preset("testbed")
JOBS = synthesize("testbed-1024", jobs=60, seed=3, free_share=0.5).jobs
EXCLUSIVE = tuple(replace(j, exclusive=True) for j in JOBS)
ALONE = Scenario.of(CLUSTER, EXCLUSIVE)
PATIENT = Tuning(Budget(wall_s=60.0))
GUIDED = replace(PATIENT, sharing=Sharing(frozenset({"gpu"})))


def play(protocol: Protocol, policy: str = "saf", window: Scenario | None = None) -> Schedule:
    return simulate(window or Scenario.of(CLUSTER, JOBS), policy, protocol)


@pytest.mark.parametrize("policy", ["saf", "wfp3"])
def test_without_exclusive_jobs_it_is_packing_to_the_last_digit(policy: str) -> None:
    joint = play(jointly(Protocol(), 16, GUIDED, Cbc()), policy)
    packed = play(Protocol(), policy)
    assert (joint.start_s == packed.start_s).all()
    assert joint.nodes == packed.nodes


def test_exclusive_jobs_that_are_set_to_share_wait_less() -> None:
    before = play(Protocol(), window=ALONE)
    guided = jointly(Protocol(), 16, GUIDED, Cbc())
    after, again = play(guided, window=ALONE), play(guided, window=ALONE)
    assert (after.start_s == again.start_s).all()
    wait = [float((s.start_s - s.submit_s).mean()) for s in (before, after)]
    assert wait[1] < 0.7 * wait[0]


def test_once_per_cycle_as_the_daemon_does() -> None:
    few = Scenario.of(CLUSTER, EXCLUSIVE[:30])
    found = play(jointly(Protocol(mode="cycle"), 16, GUIDED, Cbc()), window=few)
    assert np.isfinite(found.start_s).all()


def test_an_order_that_knows_the_future_cannot_be_placed_jointly() -> None:
    with pytest.raises(TraceError, match="placement pack or spread only"):
        play(jointly(Protocol(), 16, PATIENT, Cbc()), "clairvoyant:sjf")
