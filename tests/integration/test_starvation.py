"""The starvation bound on a real Slurm: a job that the policy never wants runs all the same."""

import time
from dataclasses import dataclass

import numpy as np
import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.guards import Guard
from rltuned.core.planning import Limits
from rltuned.core.select import Rules
from rltuned.core.starvation import Bound
from rltuned.domain.plan import Result
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

WHOLE = ("--gres=gpu:p100:4", "-n16", "-N1", "-wp1", "-t1")
"""One at a time, on one node, and no gap for backfill."""
BOUND = Bound(bound_s=3.0, factor=1.5)
QUEUED = 3
"""So many jobs that came later wait beside the one that is not wanted, always."""


@dataclass(frozen=True)
class LastFirst:
    """The worst that can happen to whoever came first."""

    name: str = "last first"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return np.array([float(j.job_id) for j in matrix.jobs])


class Stream:
    """Later jobs without end: whenever one starts another comes, and the queue is ranked."""

    def __init__(self, slurm: SlurmLab) -> None:
        self._slurm = slurm
        self._backend = SlurmBackend(SlurmCli(conf=slurm.conf, timeout_s=20.0), time.time)
        self.later = [self._submit() for _ in range(QUEUED)]

    def _submit(self) -> int:
        return self._slurm.sbatch(*WHOLE, wrap="sleep 1")

    def turn(self, bound: Bound | None) -> Decision:
        """Top up the queue, look, decide and write, as one cycle of the daemon."""
        pending = self._slurm.run("squeue", "-h", "-t", "PD", "-o", "%A").split()
        missing = QUEUED - len(set(map(int, pending)) & set(self.later))
        self.later += [self._submit() for _ in range(missing)]
        knobs = Knobs(
            rules=Rules(min_age_s=0.0, needs_site_factor=True),
            limits=Limits(write_mode="site_factor", hysteresis=0.0),
            starvation=bound,
        )
        decision = decide(self._backend.observe(), LastFirst(), knobs)
        outcomes = self._backend.apply(decision.plan)
        # a job may have started since it was seen
        assert {o.result for o in outcomes} <= {Result.APPLIED, Result.GONE}
        return decision

    def started(self) -> int:
        """How many later jobs are no longer pending."""
        return sum(self._slurm.state(j) != "PD" for j in self.later)


def test_a_job_that_is_never_wanted_starts_with_the_guard_and_not_without(slurm: SlurmLab) -> None:
    blocker = slurm.sbatch(*WHOLE, wrap="sleep 2")
    slurm.wait_for(lambda: slurm.state(blocker) == "R", 20, "the node is busy")
    victim = slurm.sbatch(*WHOLE, wrap="sleep 1")
    stream = Stream(slurm)
    stream.turn(None)
    end, began = time.monotonic() + 60, time.monotonic()
    while stream.started() < 4 or time.monotonic() < began + 2 * BOUND.bound_s:
        assert time.monotonic() < end
        decision = stream.turn(None)
        assert slurm.state(victim) == "PD"
        assert decision.entries[-1].job.job_id == victim
        time.sleep(0.3)
    overtaken = stream.started()
    decision = stream.turn(BOUND)
    assert decision.entries[0].job.job_id == victim
    assert "overdue by the starvation bound" in decision.entries[0].why
    assert dict(decision.bound)[Guard.STARVATION] >= 1
    while slurm.state(victim) == "PD":
        assert time.monotonic() < end
        stream.turn(BOUND)
        time.sleep(0.3)
    # one could be on its way when the order changed
    assert stream.started() <= overtaken + 1
