"""Exclusive jobs on a real Slurm, with and without guidance: played, and what came of it."""

import time
from dataclasses import dataclass

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.milp import Budget, Sharing, Tuning
from rltuned.core.select import Scope
from rltuned.domain.plan import OVERSUBSCRIBE, Result
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.backend import SlurmBackend
from rltuned.solver import Cbc
from tests.clusters import world_of
from tests.lab import SlurmLab
from tests.waits import PATIENCE_S

ALONE = ("--exclusive", "--gres=gpu:p100:1", "-n1", "-c2", "--mem=2000", "-t2")
RUN_S = 6
JOBS = 8


@dataclass(frozen=True)
class Seen:
    """What came of some exclusive jobs on two nodes with four GPUs each.

    at_once: most of them running together; flagged: how many were set to share.
    """

    at_once: int
    flagged: int
    makespan_s: float
    wait_s: float

    @property
    def gpu_share(self) -> float:
        """GPU-seconds used of those that the two nodes had meanwhile."""
        return JOBS * RUN_S / (8 * self.makespan_s)


def guided(lab: SlurmLab, partitions: frozenset[str]) -> tuple[SlurmBackend, Knobs]:
    backend = world_of(lab)
    knobs = Knobs(
        rules=Scope(min_age_s=0.0),
        placement="milp",
        tuning=Tuning(budget=Budget(wall_s=10.0), sharing=Sharing(partitions)),
    )
    return backend, knobs


def cycle(backend: SlurmBackend, knobs: Knobs) -> tuple[Decision, int]:
    """One look and one write; how many flags were set."""
    decision = decide(backend.observe(), BASELINES["fcfs"], knobs, Cbc())
    outcomes = backend.apply(decision.plan)
    return decision, sum(
        o.action.field is OVERSUBSCRIBE and o.result is Result.APPLIED for o in outcomes
    )


def play(lab: SlurmLab, partitions: frozenset[str]) -> Seen:
    """Let exclusive jobs go all at once, look every second, wait for the last one."""
    backend, knobs = guided(lab, partitions)
    lab.scontrol("update", "PartitionName=gpu", "State=DOWN")
    try:
        jobs = [lab.sbatch(*ALONE, wrap=f"sleep {RUN_S}") for _ in range(JOBS)]
    finally:
        lab.scontrol("update", "PartitionName=gpu", "State=UP")
    began = time.monotonic()
    started: dict[int, float] = {}
    at_once = flagged = 0
    while True:
        shown = dict(line.split() for line in lab.run("squeue", "-h", "-o", "%i %t").splitlines())
        at_once = max(at_once, sum(state == "R" for state in shown.values()))
        for number in jobs:
            if shown.get(str(number)) != "PD":
                started.setdefault(number, time.monotonic() - began)
        if not any(state in {"PD", "R", "CF"} for state in shown.values()):
            break
        assert time.monotonic() - began < 2 * PATIENCE_S, shown
        flagged += cycle(backend, knobs)[1]
        time.sleep(0.5)
    took = time.monotonic() - began
    return Seen(at_once, flagged, took, sum(started.values()) / len(started))
