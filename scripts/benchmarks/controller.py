"""A real slurmctld under load: how long a cycle takes, and what rltuned costs it (own Slurm).

    python -m scripts.benchmarks.controller scale --pending 10000 --nodes 1000
    python -m scripts.benchmarks.controller cost --pending 1000 --seconds 90 --rounds 2

The queue is of array tasks, each of them made a record of its own; the nodes in front have a slurmd
and are full, the rest is declared and DOWN. `cost` takes turns: so long without rltuned, so long
with it; slurmctld's and its own processor time come from /proc, the RPCs from sdiag.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rltuned.daemon.clock import SystemClock
from rltuned.run import Call
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from scripts.benchmarks.scaling import played
from tests.e2e.process import Daemon
from tests.lab import NodeSpec, SlurmLab

REAL = 4
PER_ARRAY = 100
DOWN = "CPUs=64 RealMemory=512000 Gres=gpu:a100:8 State=DOWN"
GPUS, MINUTES = (1, 1, 2, 4, 8), (30, 60, 240, 720, 1440)
NICE, SEED = 5_000_000, 1
"""GPUs, minutes and nice of an array are random: its number is its own, and its tasks tie."""
BASE = "PriorityWeightPartition=10000000"
SETTLED_S = 30
UPDATES, IDLE_S = 400, 20.0
HOUR_S, INTERVAL_S = 3_600.0, 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_RPC = re.compile(r"^\s*(\w+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)
SETTINGS = """\
[daemon]
interval_s = {interval_s}
state_dir = "{folder}"
pause_file = "{folder}/PAUSE"
[slurm]
conf = "{conf}"
timeout_s = 60
[http]
port = 0
"""


@contextmanager
def busy_slurm(pending: int, nodes: int) -> Iterator[SlurmLab]:
    """A cluster of so many nodes whose queue holds so many records that cannot start."""
    real = tuple(f"r{i}" for i in range(1, REAL + 1))
    down = nodes - REAL
    lab = SlurmLab(
        nodes=(NodeSpec(real, cpus=32, mem_mib=64_000, gpu_type="a100", gpus=8),),
        partitions=("PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60",),
        scheduler="bf_continue,bf_interval=30,bf_max_job_test=500,defer,sched_min_interval=2000000",
        extra=(
            f"MaxJobCount={2 * pending + 1_000}",
            f"MaxArraySize={PER_ARRAY + 1}",
            "PriorityCalcPeriod=5",
            BASE,
            "SlurmdTimeout=0",  # else it calls the nodes that are not there, again and again
            f"NodeName=d[00001-{down:05d}] NodeAddr=127.0.0.1 Port=1 {DOWN}",
        ),
    )
    with lab:
        for name in real:
            lab.sbatch("--exclusive", "-w", name, "--gres=gpu:a100:8", "--time=1-0",
                       wrap="sleep 86400")  # fmt: skip
        lab.wait_for(lambda: lab.run("squeue", "-h", "-t", "R").count("\n") == REAL, "full")
        draw = np.random.default_rng(SEED)
        for number in range(-(-pending // PER_ARRAY)):
            gpus, minutes = int(draw.choice(GPUS)), int(draw.choice(MINUTES))
            tasks = min(PER_ARRAY, pending - number * PER_ARRAY)
            array = lab.sbatch(f"--array=0-{tasks - 1}", f"--gres=gpu:a100:{gpus}", "-n1",
                               f"-c{4 * gpus}", f"--time={minutes}",
                               f"--nice={draw.integers(NICE)}")  # fmt: skip
            # a task that is changed by itself gets a record of its own
            lines = "".join(f"update JobId={array}_{i} Comment=own\n" for i in range(tasks))
            lab.run("scontrol", text=lines, timeout_s=600)
        lab.wait_for(
            lambda: lab.run("squeue", "-h", "-t", "PD", "-o", "%i").count("\n") == pending,
            f"{pending} records",
        )
        time.sleep(SETTLED_S)
        yield lab


def scale(pending: int, nodes: int, rounds: int, policy: str) -> dict[str, Any]:
    """Cycles of the daemon's own loop against it, first dry and then writing."""
    began = time.monotonic()
    with busy_slurm(pending, nodes) as lab:
        made_s = time.monotonic() - began
        arms = {
            "dry": _cycles(lab, rounds, policy, dry_run=True),
            "live": _cycles(lab, rounds, policy, dry_run=False),
        }
        return {
            "pending": pending,
            **update_cost(lab),
            "nodes": nodes,
            "slurmd": REAL,
            "release": lab.run("squeue", "--version").strip(),
            "made_s": round(made_s, 1),
            "slurmctld_rss_mib": rss_mib(lab.pid("slurmctld")),
            "load": os.getloadavg(),
            "arms": arms,
        }


def _cycles(lab: SlurmLab, rounds: int, policy: str, *, dry_run: bool) -> dict[str, Any]:
    pid, clock, calls = lab.pid("slurmctld"), SystemClock(), list[Call]()
    backend = SlurmBackend(SlurmCli(conf=lab.conf, timeout_s=60), clock.now, on_call=calls.append)
    before = processor_s(pid)
    with TemporaryDirectory() as folder:
        cycles = played(
            backend, clock, calls, Path(folder), policy=policy, rounds=rounds,
            between=lambda: time.sleep(1), dry_run=dry_run,
        )  # fmt: skip
    return {
        "applied": [c.applied for c in cycles],
        "wall_s": median(c.wall_s for c in cycles),
        "wall_least_s": min(c.wall_s for c in cycles),
        "wall_most_s": max(c.wall_s for c in cycles),
        "cpu_s": median(c.cpu_s for c in cycles),
        "commands_cpu_s": median(c.commands_cpu_s for c in cycles),
        "slurmctld_cpu_s_per_cycle": (processor_s(pid) - before) / (rounds + 1),
        "peak_mib": max(c.peak_mib for c in cycles),
        "load": os.getloadavg(),
        "cycles": [asdict(c) for c in cycles],
    }


def update_cost(lab: SlurmLab) -> dict[str, float]:
    """What slurmctld takes for one priority, and for itself while idle."""
    pid = lab.pid("slurmctld")
    jobs = lab.run("squeue", "-h", "-t", "PD", "-o", "%A").split()[:UPDATES]
    lines = "".join(f"update JobId={job} Priority={1_000 + i}\n" for i, job in enumerate(jobs))
    idle, began = processor_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    idle_share = (processor_s(pid) - idle) / (time.monotonic() - began)
    spent, began = processor_s(pid), time.monotonic()
    lab.run("scontrol", text=lines, timeout_s=300)
    took_s = time.monotonic() - began
    own_s = processor_s(pid) - spent - idle_share * took_s
    return {
        "slurmctld_idle_percent": 100 * idle_share,
        "update_cpu_ms": 1e3 * own_s / len(jobs),
        "update_wall_ms": 1e3 * took_s / len(jobs),
    }


def cost(pending: int, nodes: int, seconds: float, rounds: int, factor: float) -> dict[str, Any]:
    """Without rltuned, with one that only reads and with one that writes, every 60 s / factor, in
    turn; and once with one that has nothing to do for the next hour.
    """
    arms: dict[str, list[dict[str, Any]]] = {"without": [], "dry": [], "full": [], "idle": []}
    with busy_slurm(pending, nodes) as lab:
        for _ in range(rounds):
            arms["without"].append(_arm(lab, seconds, None))
            arms["dry"].append(_with_daemon(lab, seconds, INTERVAL_S / factor, "--dry-run"))
            arms["full"].append(_with_daemon(lab, seconds, INTERVAL_S / factor, "--stage", "full"))
        arms["idle"].append(_with_daemon(lab, seconds, HOUR_S, "--dry-run"))
        out = lab.run("squeue", "--version").strip()
    figures = {name: _figures(arms["without"], arms[name]) for name in ("dry", "full")}
    return {"pending": pending, "nodes": nodes, "factor": factor, "release": out,
            "load": os.getloadavg(), "arms": arms, "figures": figures}  # fmt: skip


def _with_daemon(lab: SlurmLab, seconds: float, interval_s: float, *flags: str) -> dict[str, Any]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "rltuned.toml"
        config.write_text(SETTINGS.format(folder=name, conf=lab.conf, interval_s=interval_s))
        config.chmod(0o600)
        with Daemon(folder, *flags, "--config", str(config)) as daemon:
            # what it takes to start is not what it takes to run
            daemon.wait_for_log("/metrics", seconds=300)
            daemon.wait_for(lambda: daemon.metric("rltuned_cycles_total") >= 1, "a cycle", 300)
            found = _arm(lab, seconds, daemon)
            daemon.signal(signal.SIGTERM)
            daemon.ends(120)
        return found


def _arm(lab: SlurmLab, seconds: float, daemon: Daemon | None) -> dict[str, Any]:
    pid = lab.pid("slurmctld")
    cycles = daemon.metric("rltuned_cycles_total") if daemon else 0.0
    applied = _applied(daemon)
    rpcs, spent, began = rpc_counts(lab), processor_s(pid), time.monotonic()
    ours = processor_s(daemon.pid) if daemon else 0.0
    time.sleep(seconds)
    took = time.monotonic() - began
    found: dict[str, Any] = {
        "seconds": took,
        "slurmctld_cpu_s": processor_s(pid) - spent,
        "rpcs": {n: c - rpcs.get(n, 0) for n, c in rpc_counts(lab).items() if c > rpcs.get(n, 0)},
    }
    if daemon:
        found |= {
            "cycles": daemon.metric("rltuned_cycles_total") - cycles,
            "cpu_s": processor_s(daemon.pid) - ours,
            "rss_mib": rss_mib(daemon.pid),
            "applied": _applied(daemon) - applied,
        }
    return found


def _applied(daemon: Daemon | None) -> float:
    name = 'rltuned_changes_total{kind="site_factor",result="applied"}'
    return daemon.metric(name) if daemon else 0.0


def _figures(without: list[dict[str, Any]], on: list[dict[str, Any]]) -> dict[str, Any]:
    """Per cycle, and per hour at one cycle a minute."""
    hourly = HOUR_S / INTERVAL_S
    off = [a["slurmctld_cpu_s"] / a["seconds"] for a in without]
    quiet = {
        n: sum(a["rpcs"].get(n, 0) for a in without) / sum(a["seconds"] for a in without)
        for a in on
        for n in a["rpcs"]
    }
    cycles = sum(a["cycles"] for a in on)
    per_cycle = {
        n: (sum(a["rpcs"].get(n, 0) for a in on) - rate * sum(a["seconds"] for a in on)) / cycles
        for n, rate in quiet.items()
    }
    extra = [(a["slurmctld_cpu_s"] - median(off) * a["seconds"]) / a["cycles"] for a in on]
    own = [a["cpu_s"] / a["cycles"] for a in on]
    return {
        "slurmctld_without_percent": [100 * share for share in off],
        "slurmctld_extra_cpu_s_per_cycle": extra,
        "slurmctld_extra_percent_at_60_s": [100 * s / INTERVAL_S for s in extra],
        "own_cpu_s_per_cycle": own,
        "own_percent_at_60_s": [100 * s / INTERVAL_S for s in own],
        "rss_mib": [a["rss_mib"] for a in on],
        "rpcs_per_hour_at_60_s": {n: round(hourly * c, 1) for n, c in per_cycle.items()},
        "cycles": cycles,
        "applied": [a["applied"] for a in on],
    }


def processor_s(pid: int) -> float:
    """Of a process and its ended children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(w) for w in words[11:15]) / TICKS_PER_S


def rss_mib(pid: int) -> float:
    """What it holds in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no VmRSS")


def rpc_counts(lab: SlurmLab, by: str = "message type") -> dict[str, int]:
    """RPCs answered by type or, by="user", by user, since slurmctld began to count."""
    text = lab.run("sdiag").partition(f"by {by}")[2].partition("\n\n")[0]
    return {name: int(count) for name, count in _RPC.findall(text)}


def main() -> int:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.controller")
    parser.add_argument("what", choices=("scale", "cost"))
    parser.add_argument("--pending", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=90.0, help="of one arm of `cost`")
    parser.add_argument("--factor", type=float, default=6.0, help="`cost` runs so much faster")
    parser.add_argument("--policy", default="model:rltune")
    given = parser.parse_args()
    if given.what == "scale":
        found = scale(given.pending, given.nodes, given.rounds, given.policy)
    else:
        found = cost(given.pending, given.nodes, given.seconds, given.rounds, given.factor)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
