"""Does anything grow? The daemon for a long time, its memory, files, threads and journal watched.

    python -m scripts.tools.soak sim --cycles 2000        the built-in cluster, sped up
    python -m scripts.tools.soak slurm --minutes 30       a real Slurm under a stream of submissions

Prints JSON; docs/reliability.md holds what was measured. Exit code 1 when something grew beyond its
bound after the first third, which is left out as warming up.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e.process import Daemon
from tests.lab import SlurmLab

SAMPLE_S = 0.5
WARM = 1 / 3
ENOUGH = 10
BOUNDS = {"rss_kib": 4096.0, "fds": 4.0, "threads": 1.0, "children": 1.0}
"""The most that may come on top from the end of the warming up to the end, by the fitted line."""

LIVE = """\
[daemon]
interval_s = 2
state_dir = "{folder}"
pause_file = "{folder}/PAUSE"
[policy]
name = "{policy}"
[scope]
min_age_s = 0
[journal]
max_mib = 64
[slurm]
conf = "{conf}"
[http]
port = 0
"""


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


@contextmanager
def submissions(lab: SlurmLab, seed: int) -> Iterator[None]:
    """A thread would share the sped-up clock; a child submits short jobs of all sizes for ever."""
    program = (
        "import sys, time, numpy as np\n"
        "from pathlib import Path\n"
        "from tests.lab import SlurmLab\n"
        "lab = SlurmLab(folder=Path(sys.argv[1]))\n"
        "rng = np.random.default_rng(int(sys.argv[2]))\n"
        "while True:\n"
        "    kind, gpus = [('p100', 4), ('k80', 2), ('m40', 1), ('p100', 1)][rng.integers(4)]\n"
        "    lab.sbatch(f'--gres=gpu:{kind}:{gpus}', f'--time={rng.integers(1, 30)}',\n"
        "               wrap=f'sleep {rng.integers(4, 20)}')\n"
        "    time.sleep(rng.exponential(1.5))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(lab.root), str(seed)])
    try:
        yield
    finally:
        child.terminate()
        child.wait(30)


def on_slurm(minutes: float, policy: str, seed: int) -> dict[str, Any]:
    """A real Slurm of its own, live."""
    with SlurmLab() as lab, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "rltuned.toml"
        config.write_text(LIVE.format(folder=folder, policy=policy, conf=lab.conf))
        config.chmod(0o600)
        with (
            submissions(lab, seed),
            Daemon(Path(folder), "--stage", "full", "--config", str(config)) as daemon,
        ):
            samples = watch(daemon, daemon.pid, lambda s: s.at_s >= minutes * 60)
            applied = daemon.metric('rltuned_changes_total{kind="priority",result="applied"}')
            skipped = sum(
                float(line.rpartition(" ")[2])
                for line in daemon.get("/metrics").splitlines()
                if line.startswith("rltuned_cycles_skipped_total{")
            )
            daemon.signal(signal.SIGTERM)
            code = daemon.ends(60)
        found = summary(samples, "slurm", policy, code)
        return {**found, "applied": applied, "skipped": skipped}


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.soak")
    parser.add_argument("world", choices=("sim", "slurm"))
    parser.add_argument("--cycles", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--policy", default="f1")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.world == "sim":
        found = on_sim(given.cycles, given.policy)
    else:
        found = on_slurm(given.minutes, given.policy, given.seed)
    print(json.dumps(found, indent=1))
    too_much = {
        name: found["growth"][name] for name, most in BOUNDS.items() if found["growth"][name] > most
    }
    if too_much:
        print(f"soak: grew beyond the bound: {too_much}", file=sys.stderr)
    return 1 if too_much or found["exit_code"] else 0


if __name__ == "__main__":
    sys.exit(main())
