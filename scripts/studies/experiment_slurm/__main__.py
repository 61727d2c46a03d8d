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
STOP_S = 60.0
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


def run_all(wanted: list[Key], interval_s: float, results: Path, at_once: int) -> int:
    """Play what is missing, several at once, each in a process of its own; how many failed."""
    sweep()
    left = report.missing(results, wanted)
    sys.stderr.write(f"{len(wanted) - len(left)} of {len(wanted)} runs are there already\n")
    children: dict[Key, subprocess.Popen[bytes]] = {}
    failed: list[Key] = []
    tried: Counter[Key] = Counter()
    try:
        while left or children:
            for key in [k for k, child in children.items() if child.poll() is not None]:
                code = children.pop(key).returncode
                say(key, f"exit code {code}")
                if code and tried[key] < TRIES:
                    left.append(key)
                elif code:
                    failed.append(key)
            while left and len(children) < at_once:
                key = left.pop(0)
                tried[key] += 1
                children[key] = _child(key, interval_s, results)
                time.sleep(2 * POLL_S)  # every start takes a free port and a database
            time.sleep(POLL_S)
    finally:
        _end(list(children.values()))
    return len(failed)


def _child(key: Key, interval_s: float, results: Path) -> subprocess.Popen[bytes]:
    log = WORK / "log" / f"{key.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            [
                sys.executable, "-m", "scripts.studies.experiment_slurm", "one", "--arm", key.arm,
                "--jobs", str(key.jobs), "--seed", str(key.seed),
                "--interval", str(interval_s), "--results", str(results),
                "--nice", str(os.getpriority(os.PRIO_PROCESS, 0)),
            ],
            stdout=out, stderr=out,
        )  # fmt: skip


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """Each stops its own Slurm when it is asked to end."""
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _stop(number: int, _: FrameType | None) -> None:
    """Leave through every `finally`, once: a second signal must not cut the cleaning up short."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: None)
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1: a run failed; 2: this machine cannot run it."""
    given = _parser().parse_args(argv)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, _stop)
    if given.verb == "report":
        found = report.gather(given.results, given.data)
        report.write_data(found, given.data)
        kept, _, _ = PAGE.read_text().partition(TABLES)
        PAGE.write_text(kept + TABLES + "\n" + "\n".join(report.tables(found)) + "\n")
        return 0
    os.setpriority(os.PRIO_PROCESS, 0, given.nice)
    why = lab.missing() or accounting.missing()
    if why:
        sys.stderr.write(f"experiment-slurm: {why}\n")
        return 2
    if given.verb == "one":
        key = Key(given.arm, given.jobs, given.seed)
        usual = LONG_SPEED if given.jobs == LONG else ARMS[given.arm].workload.speed
        pace = Pace(given.speed or usual, given.interval)
        path = report.write(given.results, play(key, pace, WORK, partial(say, key)))
        sys.stderr.write(f"{path}\n")
        return 0
    wanted = plan_of(given.arm or list(ARMS), given.seed or ())
    wanted = [key for key in wanted if key.jobs in (given.size or SIZES)]
    return 1 if run_all(wanted, given.interval, given.results, given.at_once) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.studies.experiment_slurm", description=__doc__
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("one", help="one run")
    one.add_argument("--arm", choices=list(ARMS), required=True)
    one.add_argument("--jobs", type=int, required=True)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--speed", type=float)
    shown = verbs.add_parser("report", help="data and page of what has been run")
    shown.add_argument("--results", type=Path, default=WORK / "results")
    shown.add_argument("--data", type=Path, default=Path("docs/data/slurm"))
    every = verbs.add_parser("run", help="every run that is not there yet")
    every.add_argument("--arm", choices=list(ARMS), action="append")
    every.add_argument("--seed", type=int, action="append")
    every.add_argument("--size", type=int, choices=SIZES, action="append")
    every.add_argument("--at-once", type=int, default=6)
    for verb in (one, every):
        verb.add_argument(
            "--nice", type=int, default=0, help="a faster clock suffers from other work"
        )
        verb.add_argument("--interval", type=float, default=INTERVAL_S)
        verb.add_argument("--results", type=Path, default=WORK / "results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
