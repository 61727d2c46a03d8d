"""How long 256 priority changes take on a real Slurm: a test cluster of its own, its queue full."""

import statistics
import time
from typing import Final

from rltuned.domain.plan import PRIORITY, Action, Plan, Result, target_of
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from scripts.benchmarks import Figure
from tests.lab import SlurmLab

TARGET_S: Final = 1.0
JOBS: Final = 256
ROUNDS: Final = 7
JOB: Final = "--gres=gpu:p100:4 -n16 -N1 -w p1"


def measure() -> list[Figure]:
    """Median seconds of a whole new order, its answers read back."""
    with SlurmLab() as lab:
        line = f"sbatch --output=/dev/null --chdir=/ {JOB} --wrap='sleep 600' >/dev/null\n"
        lab.run("sh", text=line * (JOBS + 1), timeout_s=120)
        backend = SlurmBackend(SlurmCli(conf=lab.conf), time.time)
        lab.wait_for(lambda: len(backend.observe().pending) == JOBS, "one job runs")
        value = statistics.median(_round(backend, JOBS) for _ in range(ROUNDS))
    source = "own bound; Slurm of this machine, its answer read back"
    return [Figure(f"apply_{JOBS}_priority_changes", value, "s", TARGET_S, source)]


def _round(backend: SlurmBackend, count: int) -> float:
    """Seconds to turn the queue round: every number changes."""
    jobs = sorted(backend.observe().pending, key=lambda j: j.priority)
    plan = Plan(
        tuple(
            Action(
                PRIORITY,
                target_of(j),
                j.priority,
                100_000 - i,
                j.nice,
            )
            for i, j in enumerate(jobs)
        )
    )
    began = time.perf_counter()
    outcomes = backend.apply(plan)
    seconds = time.perf_counter() - began
    applied = sum(o.result is Result.APPLIED for o in outcomes)
    if applied != count:
        raise SystemExit(f"{applied} of {count} changes were applied")
    return seconds
