"""Does anything grow? The daemon for a long time, its memory, files, threads and journal watched.

    python -m scripts.tools.soak --cycles 2000        the built-in cluster, sped up

scripts/tools/week does the same on a real Slurm. Prints JSON; docs/reliability.md holds what was
measured. Exit code 1 when something grew beyond its bound after the first third, which is left out
as warming up.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e.process import Daemon

SAMPLE_S = 0.5
WARM = 1 / 3
ENOUGH = 10
BOUNDS = {"rss_kib": 4096.0, "fds": 4.0, "threads": 1.0, "children": 1.0}
"""The most that may come on top from the end of the warming up to the end, by the fitted line."""


@dataclass(frozen=True)
class Sample:
    """One look at the process."""

    at_s: float
    cycles: int
    rss_kib: int
    fds: int
    threads: int
    children: int
    journal_kib: int


def sample(pid: int, started: float, cycles: int) -> Sample:
    """Everything that may leak, from /proc."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":\t" in line
    )  # fmt: skip
    journal = 0
    fds = list(Path(f"/proc/{pid}/fd").iterdir())
    for fd in fds:
        try:
            if "journal.sqlite" in str(fd.readlink()):
                journal += os.stat(fd).st_blocks // 2  # noqa: PTH116 - of the open file itself
        except FileNotFoundError:
            continue
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Sample(
        time.monotonic() - started, cycles, int(status["VmRSS"].split()[0]), len(fds),
        int(status["Threads"]), len(children), journal,
    )  # fmt: skip


def watch(daemon: Daemon, pid: int, over: Callable[[Sample], bool]) -> list[Sample]:
    """Samples until it is over or the process has ended."""
    started = time.monotonic()
    samples: list[Sample] = []
    while True:
        try:
            samples.append(sample(pid, started, int(daemon.metric("rltuned_cycles_total"))))
        except (OSError, AssertionError):
            return samples
        if over(samples[-1]):
            return samples
        time.sleep(SAMPLE_S)


def growth(samples: list[Sample]) -> dict[str, float]:
    """By how much each figure rose along its fitted line after warming up."""
    late = samples[int(len(samples) * WARM) :]
    at = np.array([s.at_s for s in late])
    grown = {}
    for name in ("rss_kib", "fds", "threads", "children", "journal_kib"):
        values = np.array([float(getattr(s, name)) for s in late])
        slope = np.polyfit(at, values, 1)[0] if len(late) >= ENOUGH else 0.0
        grown[name] = round(float(slope * (at[-1] - at[0])), 2)
    return grown


def summary(samples: list[Sample], world: str, policy: str, exit_code: int) -> dict[str, Any]:
    """What a soak came to, for JSON."""
    last = samples[-1]
    return {
        "world": world, "policy": policy, "exit_code": exit_code, "cycles": last.cycles,
        "seconds": round(last.at_s, 1), "samples": len(samples),
        "warm": asdict(samples[int(len(samples) * WARM)]), "last": asdict(last),
        "growth": growth(samples),
    }  # fmt: skip


def on_sim(cycles: int, policy: str) -> dict[str, Any]:
    """The built-in cluster: an hour of it in a second, everything written."""
    with tempfile.TemporaryDirectory() as folder:
        args = (
            "--backend", "sim", "--stage", "full", "--no-show", "--port", "0", "--speed", "6000",
            "--interval", "60", "--cycles", str(cycles), "--policy", policy,
        )  # fmt: skip
        with Daemon(Path(folder), *args) as daemon:
            samples = watch(daemon, daemon.pid, lambda _: False)
            code = daemon.ends(600)
        return summary(samples, "sim", policy, code)


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.soak")
    parser.add_argument("--cycles", type=int, default=2000)
    parser.add_argument("--policy", default="f1")
    given = parser.parse_args()
    found = on_sim(given.cycles, given.policy)
    print(json.dumps(found, indent=1))
    too_much = {
        name: found["growth"][name] for name, most in BOUNDS.items() if found["growth"][name] > most
    }
    if too_much:
        print(f"soak: grew beyond the bound: {too_much}", file=sys.stderr)
    return 1 if too_much or found["exit_code"] else 0


if __name__ == "__main__":
    sys.exit(main())
