"""Expected starts beside those of `squeue --start`, on a real Slurm (`make forecast-slurm`).

    python -m scripts.studies.forecasts_slurm run
    python -m scripts.studies.forecasts_slurm table

The testbed of the experiment: 13 GPUs, multifactor with fair share, four users, jobs at load 1.15
with weak limits, on a clock that runs SPEEDS times as fast. A real daemon of the stage full makes
its forecasts; the last ones of each half an hour are held against the starts that followed, beside
what Slurm itself planned at that time. A job that has not started at the end counts as late where
its interval is over by then; where it is not, it is open and left out.
"""

import argparse
import math
import subprocess
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from rltuned.core.starts import Expected, Start
from rltuned.daemon.forecasting import read_file
from scripts.studies import plays
from scripts.studies.experiment_slurm.arms import (
    ARMS,
    PARTITION,
    accounting_commands,
    daemon_settings,
    job_set,
    slurm_settings,
    submission,
)
from scripts.studies.experiment_slurm.lab import FastLab
from scripts.studies.plays import Row, head, known, row_of
from tests.e2e.process import Daemon

RESULTS = Path("docs/data/forecasts-slurm.jsonl")
SPEEDS = (120.0, 60.0)
APART_S = 1_800.0
"""Between two forecasts that count."""
FIRST, LAST = 0.3, 0.7
"""Parts of the time between which forecasts count: a queue has to build, and starts to follow."""
MOST_JOBS = 1_024
ARM = ARMS["site"]
ASK = ("squeue", "-h", "-a", "-t", "PD", "--start", "-o", "%A %S")
BOOKS = ("sacct", "-X", "-n", "-P", "-a", "-S2020-01-01", "-E2037-12-31", "--format=JobID,Start")
NO_TIME = {"Unknown", "None", "N/A", ""}
HOUR_S = 3_600.0


@dataclass(frozen=True)
class Run:
    """What was run. minutes: real ones."""

    minutes: float = 15.0
    seed: int = 4
    speed: float = SPEEDS[0]


@dataclass
class Seen:
    """What was expected. plans: moments, and by job the start that Slurm planned then."""

    forecasts: list[Expected] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    plans: list[dict[int, float]] = field(default_factory=list)

    def planned(self, job: int, at: float) -> float | None:
        """By the last answer of squeue before a moment; None = Slurm planned none."""
        place = bisect_right(self.at, at) - 1
        return self.plans[place].get(job) if place >= 0 else None


@dataclass(frozen=True)
class Point:
    """A forecast, Slurm's plan and the real start, in hours from the forecast. plan_h: None = it
    had none. late: it had not started at the end, and real_h is the end.
    """

    low_h: float
    median_h: float
    high_h: float
    plan_h: float | None
    real_h: float
    late: bool

    @property
    def within(self) -> bool:
        return not self.late and self.low_h <= self.real_h <= self.high_h


def starts_in(text: str) -> dict[int, float]:
    """By job the Unix time in the second column, where there is one."""
    rows = (line.replace("|", " ").split() for line in text.splitlines())
    return {int(row[0]): float(row[1]) for row in rows if len(row) > 1 and row[1] not in NO_TIME}


def points(seen: Seen, starts: dict[int, float], end: float) -> tuple[list[Point], int]:
    """One for each job of each forecast of which the outcome is known; how many are open."""
    found, left = [], 0
    for expected in seen.forecasts:
        for job, start in expected.starts.items():
            real = starts.get(int(job))
            is_late = real is None and expected.at + (start.high_s or math.inf) < end
            if start.median_s is None:
                continue
            left += real is None and not is_late
            if real is not None or is_late:
                plan = seen.planned(int(job), expected.at)
                found.append(_point(start, expected.at, plan, real, end))
    return found, left


def _point(start: Start, at: float, plan: float | None, real: float | None, end: float) -> Point:
    low_h, median_h, high_h = (
        math.inf if s is None else s / HOUR_S for s in (start.low_s, start.median_s, start.high_s)
    )
    plan_h = None if plan is None else max(0.0, plan - at) / HOUR_S
    real_h = max(0.0, (end if real is None else real) - at) / HOUR_S
    return Point(low_h, median_h, high_h, plan_h, real_h, late=real is None)


def figures(found: list[Point], left: int, jobs: int) -> Row:
    """Of all; errors of those that Slurm planned too beside Slurm's."""
    both = [one for one in found if one.plan_h is not None]
    error, own, slurm = (
        [abs(one.median_h - one.real_h) for one in found],
        [abs(one.median_h - one.real_h) for one in both],
        [abs((one.plan_h or 0.0) - one.real_h) for one in both],
    )
    return {
        "forecasts": len(found), "jobs": jobs, "late": sum(one.late for one in found), "open": left,
        "coverage": float(np.mean([one.within for one in found])),
        "sooner": float(np.mean([one.real_h < one.low_h for one in found])),
        "error_h": float(np.median(error)), "real_h": float(np.median([o.real_h for o in found])),
        "planned": len(both) / len(found),
        "both_error_h": float(np.median(own)), "plan_error_h": float(np.median(slurm)),
    }  # fmt: skip


def watch(lab: FastLab, home: Path, run: Run) -> tuple[Seen, float]:
    """Submit the jobs when they are due, and note what is expected; when it ended."""
    jobs = [submission(job, run.speed) for job in job_set(ARM, MOST_JOBS, run.seed)]
    clock, seen, began = lab.fast_clock, Seen(), time.time()
    while (passed_s := time.time() - began) < 60 * run.minutes:
        while jobs and jobs[0].due_s <= passed_s:
            lab.run(*jobs.pop(0).argv, timeout_s=120)
        seen.at.append(clock.at(time.time()))
        environ = {**lab.environ(), "SLURM_TIME_FORMAT": "%s"}
        seen.plans.append(starts_in(subprocess.check_output(ASK, env=environ, text=True)))
        kept = read_file(home)
        counts = FIRST <= passed_s / (60 * run.minutes) <= LAST
        last = seen.forecasts[-1].at if seen.forecasts else -math.inf
        if kept is not None and counts and kept[1].at >= last + APART_S:
            seen.forecasts.append(kept[1])
        time.sleep(0.5)
    return seen, clock.at(time.time())


def play(run: Run) -> Row:
    """One run on a Slurm of its own."""
    with tempfile.TemporaryDirectory(prefix="rltuned-forecast-") as place:
        Path(place).chmod(0o755)  # the database runs as another user
        home = Path(place) / "rltuned"
        home.mkdir(mode=0o700)
        with FastLab(
            folder=Path(place) / "slurm", partitions=(PARTITION,), accounting=True,
            speed=run.speed, settings=slurm_settings(ARM),
        ) as lab:  # fmt: skip
            for words in accounting_commands():
                lab.run("sacctmgr", "-i", *words)
            config, interval_s = home / "rltuned.toml", max(1.0, 60.0 / run.speed)
            config.write_text(
                daemon_settings(ARM, folder=str(home), conf=str(lab.conf), interval_s=interval_s)
            )
            config.chmod(0o600)
            environ = {**lab.environ(), **lab.fast_clock.environ(slurmd=False)}
            args = ("--stage", "full", "--config", str(config))
            with Daemon(home, *args, environ=environ) as daemon:
                daemon.wait_for(lambda: "/metrics" in daemon.log(), "rltuned is up", 300)
                seen, end = watch(lab, home, run)
            books = {**lab.environ(), "SLURM_TIME_FORMAT": "%s"}
            began = starts_in(subprocess.check_output(BOOKS, env=books, text=True))
    found, left = points(seen, began, end)
    jobs = {job for one in seen.forecasts for job in one.starts}
    return asdict(run) | figures(found, left, len(jobs))


def rows() -> Iterator[str]:
    """A row for each run."""
    for run, row in known(RESULTS, Run).items():
        yield row_of((
            f"{run.minutes:g} min, seed {run.seed}, clock x{run.speed:g}",
            f"{int(row['forecasts'])} ({int(row['jobs'])})", int(row["open"]),
            f"{row['coverage']:.0%}", f"{row['sooner']:.0%}",
            f"{row['both_error_h']:.1f} h", f"{row['plan_error_h']:.1f} h",
            row["both_error_h"] / row["plan_error_h"], f"{row['planned']:.0%}",
            f"{row['real_h']:.1f} h",
        ))  # fmt: skip


def table(_: argparse.Namespace) -> None:
    head("run", "forecasts (jobs)", "open at the end", "real starts in the 80% interval",
         "before it", "median error", "of `squeue --start`", "ratio", "planned by Slurm",
         "median wait left")  # fmt: skip
    print(*rows(), sep="\n")


def runs(_: argparse.Namespace) -> Iterator[Run]:
    for speed in SPEEDS:
        yield Run(speed=speed)


if __name__ == "__main__":
    plays.main(__doc__, RESULTS, runs, play, views={"table": table})
