"""`rltuned backtest` on Philly: two histories in the form of sacct, made from public traces.

    python -m scripts.backtest_philly real DIR      3,034 jobs with their real waits, 2,490 GPUs
    python -m scripts.backtest_philly month DIR [--jobs 3000]
                                                    October 2017 at load 0.9 of 192 GPUs, its past
                                                    played under multifactor with known weights
    rltuned backtest --site DIR --report DIR/report

The traces name no time limit: synthetic weak ones, as in the other studies. `real` is a part of
the jobs (those that passed, with several GPUs, ten minutes and more) under another scheduler than
Slurm: what is missing there must show as a large error of the calibration.
"""

import argparse
import csv
import gzip
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rltuned.sim.limits import draw_limits
from rltuned.sim.natural import Natural
from rltuned.sim.presets import preset
from rltuned.sim.reshape import cut, scale
from rltuned.sim.run import possible
from rltuned.sim.trace import TraceJob, read_trace
from rltuned.sim.world import Rules, World
from tests.histories import rows, save_site

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
WEAK = Path(__file__).resolve().parents[1] / ".run" / "traces" / "philly-weak.csv.gz"
SEED = 1
NATURAL = Natural(
    kind="multifactor",
    age_weight=10_000,
    size_weight=3_000,
    partition_weight=1_000,
    size_of="nodes",
)


def real(folder: Path) -> Path:
    """Jobs with real starts and ends; the run time counts from the first start."""
    with gzip.open(TRACES / "philly_real_waits_3034.csv.gz", "rt", newline="") as file:
        found = [
            (_moment(r["submitted_time"]), _moment(r["first_start"]), _moment(r["last_end"]),
             int(r["num_gpus"]))
            for r in csv.DictReader(file)
        ]  # fmt: skip
    found = sorted(f for f in found if f[0] <= f[1] < f[2])
    first = found[0][0]
    runs = np.array([end - start for _, start, end, _ in found])
    limits = draw_limits(runs, "weak", np.random.default_rng(SEED))
    jobs = [
        TraceJob(
            job_id=str(i),
            submit_s=submit - first,
            duration_s=run,
            gpus=gpus,
            time_limit_s=_minutes(limit),
            cpus=gpus,
            partition="gpu",
            user="",
        )
        for i, ((submit, _, _, gpus), run, limit) in enumerate(
            zip(found, runs.tolist(), limits.tolist(), strict=True), 1
        )
    ]
    starts = np.array([start - first for _, start, _, _ in found])
    return save_site(folder, preset("philly-2490"), rows(jobs, starts, starts + runs))


def month(folder: Path, count: int) -> Path:
    """Consecutive jobs of October on 192 GPUs, played under the weights of tests.histories."""
    cluster = preset("philly-192")
    trace = read_trace(WEAK)
    fitting, _ = possible(trace.jobs, cluster, skip=True)
    scaled = scale(cut(replace(trace, jobs=fitting), 0, count), 0.9, cluster.gpus)
    jobs = [_whole(j) for j in scaled.jobs]
    world = World(cluster, jobs, rules=Rules(natural=NATURAL))
    while world.next_time() is not None:
        world.step()
    records = [world.finished[i + 1] for i in range(len(jobs))]
    starts = np.array([r.started_at for r in records])
    ends = np.array([r.ended_at for r in records])
    return save_site(folder, cluster, rows(jobs, starts, ends))


def _whole(job: TraceJob) -> TraceJob:
    limit_s = _minutes(job.time_limit_s)
    return replace(
        job,
        submit_s=float(round(job.submit_s)),
        duration_s=float(max(1, round(min(job.duration_s, limit_s)))),
        time_limit_s=limit_s,
        cpus=job.cpus or max(1, job.gpus),
        partition="gpu",
    )


def _minutes(limit_s: float) -> float:
    return 60.0 * max(1, round(limit_s / 60))


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def main() -> int:
    """Write the files of a site."""
    parser = argparse.ArgumentParser(prog="python -m scripts.backtest_philly")
    parser.add_argument("which", choices=["real", "month"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=3_000)
    given = parser.parse_args()
    made = real(given.folder) if given.which == "real" else month(given.folder, given.jobs)
    print(f"{made}: rltuned backtest --site {made} --report {made}/report")
    return 0


if __name__ == "__main__":
    sys.exit(main())
