"""Eight GPUs and a few weeks of jobs: a record of a site that the simulator itself has made."""

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rltuned.sim.trace import TraceJob
from tests.backtest.worlds import WEIGHTED, cluster, played
from tests.histories import rows, save_site

JOBS = 2_600
BY_AGE = replace(WEIGHTED, size_weight=0, partition_weight=0)
WEIGHTS = {
    "PriorityWeightAge": "10000",
    **{
        f"PriorityWeight{name}": "0"
        for name in ("Assoc", "FairShare", "JobSize", "Partition", "QOS")
    },
    "PriorityWeightTRES": "(null)",
}


@lru_cache
def jobs(seed: int = 5) -> tuple[TraceJob, ...]:
    """Eight GPUs at a load of 0.85; every limit is twelve times the run time."""
    draw = np.random.default_rng(seed)
    gpus = draw.choice([1, 1, 2, 4], JOBS)
    run_s = np.ceil(np.minimum(draw.lognormal(np.log(600.0), 1.8, JOBS), 40_000.0))
    gap_s = float((run_s * gpus).sum()) / JOBS / (0.85 * 8)
    submit_s = np.cumsum(draw.exponential(gap_s, JOBS)).round()
    return tuple(
        TraceJob(
            str(i),
            float(submit_s[i]),
            float(run_s[i]),
            int(gpus[i]),
            60.0 * math.ceil(run_s[i] / 5.0),
            cpus=2,
            partition="gpu",
            user=f"u{i % 7}",
        )
        for i in range(JOBS)
    )


def saved(folder: Path, start_s: Any = None, given: tuple[TraceJob, ...] | None = None) -> Path:
    given = given or jobs()
    starts, ends = played(cluster(), given, BY_AGE)
    if start_s is not None:
        starts, ends = start_s, start_s + np.array([j.duration_s for j in given])
    return save_site(folder / "site", cluster(), rows(given, starts, ends), WEIGHTS)
