"""What OverSubscribe guidance is worth on a real Slurm (`make bench-guidance`).

Starts a test cluster of its own. Exclusive jobs that need one GPU each are submitted at once to two
nodes with four GPUs: once without a scope, once with one, --repeats times. Prints JSON: of each
figure all values, their median and their spread, before and after.
"""

import argparse
import json
import statistics
import sys

from tests.guidance import JOBS, RUN_S, Seen, play
from tests.lab import SlurmLab

SCOPE = frozenset({"gpu"})
FIGURES = ("makespan_s", "wait_s", "gpu_share", "at_once", "flagged")


def main() -> int:
    """Measure and print; 1 when the jobs were not done sooner every time."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.guidance")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    before: list[Seen] = []
    after: list[Seen] = []
    with SlurmLab() as lab:
        for _ in range(repeats):
            for scope, found in ((frozenset[str](), before), (SCOPE, after)):
                lab.clear()
                found.append(play(lab, scope))
                sys.stderr.write(f"{found[-1]}\n")
        version = lab.run("squeue", "--version").strip()
    gpu_seconds = JOBS * RUN_S
    print(
        json.dumps(
            {
                "slurm": version,
                "jobs": JOBS,
                "gpu_seconds_needed": gpu_seconds,
                "before": {name: _figure(before, name) for name in FIGURES},
                "after": {name: _figure(after, name) for name in FIGURES},
            },
            indent=2,
        )
    )
    sooner = max(s.makespan_s for s in after) < min(s.makespan_s for s in before)
    return 0 if sooner else 1


def _figure(seen: list[Seen], name: str) -> dict[str, object]:
    values = [round(float(getattr(one, name)), 3) for one in seen]
    return {"values": values, "median": statistics.median(values), "spread": _spread(values)}


def _spread(values: list[float]) -> float:
    """Largest less smallest."""
    return round(max(values) - min(values), 3)


if __name__ == "__main__":
    sys.exit(main())
