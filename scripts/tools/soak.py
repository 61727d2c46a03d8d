"""Does anything grow? The daemon for a long time, its memory, files, threads and journal watched.

The built-in cluster, an hour of it in a second, everything written. Prints JSON. Exit code 1:
something grew beyond its bound after the first third, which is left out as warming up.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scripts.tools.fast_daemon import status
from tests.e2e.process import Daemon

WARM, ENOUGH = 1 / 3, 10
"""The share of samples that is left out as warming up; the fewest for a line."""
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
    known, journal, fds = status(pid), 0, list(Path(f"/proc/{pid}/fd").iterdir())
    for fd in fds:
        try:
            if "journal.sqlite" in str(fd.readlink()):
                journal += os.stat(fd).st_blocks // 2  # noqa: PTH116 - of the open file itself
        except FileNotFoundError:
            continue
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Sample(
        time.monotonic() - started, cycles, int(known["VmRSS"].split()[0]), len(fds),
        int(known["Threads"]), len(children), journal,
    )  # fmt: skip


def growth(samples: list[Sample]) -> dict[str, float]:
    """By how much each figure rose along its fitted line after warming up."""
    late, grown = samples[int(len(samples) * WARM) :], {}
    at = np.array([s.at_s for s in late])
    for name in (*BOUNDS, "journal_kib"):
        values = np.array([float(getattr(s, name)) for s in late])
        slope = np.polyfit(at, values, 1)[0] if len(late) >= ENOUGH else 0.0
        grown[name] = round(float(slope * (at[-1] - at[0])), 2)
    return grown


def too_much(grown: dict[str, float]) -> list[str]:
    """What grew beyond its bound."""
    return [f"{name} grew by {grown[name]}" for name, most in BOUNDS.items() if grown[name] > most]


def on_sim(cycles: int) -> tuple[dict[str, Any], list[str]]:
    """The built-in cluster: an hour of it in a second, everything written."""
    with tempfile.TemporaryDirectory() as folder:
        args = (
            "--backend", "sim", "--stage", "full", "--port", "0", "--speed", "6000",
            "--interval", "60", "--cycles", str(cycles), "--policy", "f1",
        )  # fmt: skip
        started, samples = time.monotonic(), list[Sample]()
        with Daemon(Path(folder), *args) as daemon:
            while True:
                try:
                    count = int(daemon.metric("rltuned_cycles_total"))
                    samples.append(sample(daemon.pid, started, count))
                except (OSError, AssertionError):
                    break  # it has ended
                time.sleep(0.5)
            code = daemon.ends(600)
    warm, grown = samples[int(len(samples) * WARM)], growth(samples)
    figures = {"exit_code": code, "samples": len(samples), "warm": asdict(warm),
               "last": asdict(samples[-1]), "growth": grown}  # fmt: skip
    return figures, too_much(grown) + [f"ended with {code}"] * bool(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.soak", description=__doc__)
    parser.add_argument("--cycles", type=int, default=2_000)
    figures, wrong = on_sim(parser.parse_args().cycles)
    print(json.dumps({**figures, "wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
