"""How long 256 priority changes take on a real Slurm (`python -m scripts.benchmarks.apply`).

Starts a test cluster of its own, fills its queue, and writes a new order --rounds times.
"""

import argparse
import json
import statistics
import sys
import time

from rltuned.domain.plan import Plan, Result, SetPriority, Target
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from scripts.benchmarks import Figure
from tests.lab import SlurmLab

TARGET_S = 1.0
JOB = "--gres=gpu:p100:4 -n16 -N1 -w p1"


def main() -> int:
    """Measure and print JSON in the form of `make bench`."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.apply")
    parser.add_argument("--jobs", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with SlurmLab() as lab:
        line = f"sbatch --output=/dev/null --chdir=/ {JOB} --wrap='sleep 600' >/dev/null\n"
        lab.run("sh", text=line * (given.jobs + 1), timeout_s=120)
        backend = SlurmBackend(SlurmCli(conf=lab.conf), time.time)
        lab.wait_for(lambda: len(backend.observe().pending) == given.jobs, 30, "one job runs")
        seconds = [_round(backend, given.jobs) for _ in range(given.rounds)]
    value = statistics.median(seconds)
    source = "own bound; Slurm of this machine, its answer read back"
    figure = Figure(f"apply_{given.jobs}_priority_changes", value, "s", TARGET_S, source)
    print(json.dumps([figure.document()], indent=2))
    return 0 if value <= TARGET_S else 1


def _round(backend: SlurmBackend, count: int) -> float:
    """Seconds to turn the queue round: every number changes."""
    jobs = sorted(backend.observe().pending, key=lambda j: j.priority)
    plan = Plan(
        tuple(
            SetPriority(
                Target(j.job_id, j.submitted_at, j.address), j.priority, 100_000 - i, j.nice
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


if __name__ == "__main__":
    sys.exit(main())
