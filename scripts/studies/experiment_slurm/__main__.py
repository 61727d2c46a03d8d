"""The command line of `make experiment-slurm`: python -m scripts.studies.experiment_slurm."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from scripts.studies.experiment_slurm import report
from scripts.studies.experiment_slurm.arms import ARMS
from scripts.studies.experiment_slurm.play import Pace, play, sweep
from scripts.studies.experiment_slurm.play import report as say
from scripts.studies.experiment_slurm.report import Key
from tests import accounting, lab

SIZES = SHORT, LONG = 256, 1024
LONG_SPEED = 300.0
"""Of the sets of 1,024 jobs: seconds of the faster clock per real second."""
INTERVAL_S = 2.5
LONG_SEED = 4
"""Of the set of 1,024 jobs."""
WORK = Path(".run/experiment")
PAGE = Path("scripts/studies/results/real-slurm.md")
TABLES = "## Tables\n"
POLL_S = 1.0
TRIES = 2
"""A run whose Slurm did not come up, or that lost a job, is void and made again once."""


def plan_of(arms: Sequence[str], seeds: Sequence[int] = ()) -> list[Key]:
    """Every run: the long ones first, arms of one job set side by side. seeds: none = those of each
    cluster.
    """
    long = [Key(arm, LONG, LONG_SEED) for arm in arms if ARMS[arm].long]
    pairs = [(seed, arm) for arm in arms for seed in seeds or ARMS[arm].workload.seeds]
    order = list(ARMS)
    pairs.sort(key=lambda pair: (pair[0], order.index(pair[1])))
    return long + [Key(arm, SHORT, seed) for seed, arm in pairs]


def run_all(wanted: list[Key], given: argparse.Namespace) -> int:
    """Play what is missing, several at once, each in a process of its own; how many failed."""
    sweep()
    left = report.missing(given.results, wanted)
    sys.stderr.write(f"{len(wanted) - len(left)} of {len(wanted)} runs are there already\n")
    children: dict[Key, subprocess.Popen[bytes]] = {}
    tried, failed = Counter[Key](), 0
    try:
        while left or children:
            for key in [k for k, child in children.items() if child.poll() is not None]:
                code = children.pop(key).returncode
                say(key, f"exit code {code}")
                if code and tried[key] < TRIES:
                    left.append(key)
                else:
                    failed += bool(code)
            while left and len(children) < given.at_once:
                key = left.pop(0)
                tried[key] += 1
                children[key] = _child(key, given)
                time.sleep(2 * POLL_S)  # every start takes a free port and a database
            time.sleep(POLL_S)
    finally:
        for child in children.values():  # each stops its own Slurm when it is asked to end
            child.terminate()
        for child in children.values():
            child.wait()
    return failed


def _child(key: Key, given: argparse.Namespace) -> subprocess.Popen[bytes]:
    log = WORK / "log" / f"{key.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = (
        sys.executable, "-m", "scripts.studies.experiment_slurm", "one", "--arm", key.arm,
        "--size", str(key.jobs), "--seed", str(key.seed), "--results", str(given.results),
    )  # fmt: skip
    with log.open("ab") as out:
        return subprocess.Popen(argv, stdout=out, stderr=out)  # as nice as this one


def _stop(number: int, _: FrameType | None) -> None:
    """Leave through every `finally`, once: a second signal must not cut the cleaning up short."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: None)
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1: a run failed; 2: this machine cannot run it."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.studies.experiment_slurm", description=__doc__
    )
    parser.add_argument("what", choices=("run", "one", "report"))
    parser.add_argument("--arm", choices=list(ARMS), action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--size", type=int, choices=SIZES, action="append")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--nice", type=int, default=0, help="the clock suffers from other work")
    parser.add_argument("--results", type=Path, default=WORK / "results")
    parser.add_argument("--data", type=Path, default=Path("docs/data/slurm"))
    given = parser.parse_args(argv)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, _stop)
    if given.what == "report":
        found = report.gather(given.results, given.data)
        report.write_data(found, given.data)
        kept, _, _ = PAGE.read_text().partition(TABLES)
        PAGE.write_text(kept + TABLES + "\n" + "\n".join(report.tables(found)) + "\n")
        return 0
    if given.nice:
        os.setpriority(os.PRIO_PROCESS, 0, given.nice)
    if why := lab.missing() or accounting.missing():
        sys.stderr.write(f"experiment-slurm: {why}\n")
        return 2
    if given.what == "one":
        key = Key(given.arm[0], given.size[0], given.seed[0])
        speed = LONG_SPEED if key.jobs == LONG else ARMS[key.arm].workload.speed
        done = play(key, Pace(speed, INTERVAL_S), WORK, partial(say, key))
        sys.stderr.write(f"{report.write(given.results, done)}\n")
        return 0
    wanted = plan_of(given.arm or list(ARMS), given.seed or ())
    wanted = [key for key in wanted if key.jobs in (given.size or SIZES)]
    return 1 if run_all(wanted, given) else 0


if __name__ == "__main__":
    sys.exit(main())
