"""How long it takes to read a large cluster, and how much memory.

    python -m scripts.benchmarks.slurm [OPTIONS]

--pending 10000 --running 1000 --nodes 1000      sizes of the made-up cluster
--live CONF                                      a real one instead, read only
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.talk import CallRecord
from scripts.benchmarks.answers import MARKS, NOW, write_programs


def measure(backend: SlurmBackend, calls: list[CallRecord], rounds: int) -> dict[str, object]:
    """Median seconds of observe() and of the commands in it; the first round is thrown away."""
    backend.observe()
    seconds, inside = [], []
    for _ in range(rounds):
        calls.clear()
        started = time.perf_counter()
        snapshot = backend.observe()
        seconds.append(time.perf_counter() - started)
        inside.append(sum(c.seconds for c in calls))
    return {
        "pending": len(snapshot.pending),
        "running": len(snapshot.running),
        "nodes": len(snapshot.nodes),
        "requests": len({id(j.request) for j in snapshot.pending}),
        "observe_s": round(statistics.median(seconds), 3),
        "commands_s": round(statistics.median(inside), 3),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> int:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.slurm")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--live", type=Path)
    given = parser.parse_args()
    calls: list[CallRecord] = []
    if given.live:
        it = SlurmBackend(SlurmCli(conf=given.live), time.monotonic, on_call=calls.append)
        print(json.dumps(measure(it, calls, given.rounds)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        programs = write_programs(
            Path(folder), pending=given.pending, running=given.running, nodes=given.nodes
        )
        cli = SlurmCli(bin_dir=programs)
        it = SlurmBackend(cli, lambda: float(NOW), on_call=calls.append, marks=MARKS)
        print(json.dumps(measure(it, calls, given.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
