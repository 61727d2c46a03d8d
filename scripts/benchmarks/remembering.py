"""The memory of run times: what a submission and an end cost, and how large a full table is."""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import numpy as np

from rltuned.core.memory import RunTimeMemory
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import JobRun, Request, RunningJob
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.predictor import load_predictor
from scripts.benchmarks import Figure, peak_mib
from scripts.benchmarks.deciding import NOW, PREDICTOR

JOBS: Final = 250_000
USERS: Final = 10_000
BATCH: Final = 25
"""Jobs that one look finds new."""
SEED: Final = 1
LIMITS_S: Final = (600.0, 3_600.0, 7_200.0, 86_400.0, None)
SUBMIT_MS, END_MS, TABLE_MIB, FILE_MIB = 1.0, 0.5, 150.0, 10.0
OURS: Final = "own bound"


def measure() -> list[Figure]:
    """The figures, in a process of its own: its peak memory is the table's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        submit_ms, end_ms, table_mib, file_mib = child.submit(_filled).result()
    return [
        Figure("run_times_submit", submit_ms, "ms a job", SUBMIT_MS, OURS),
        Figure("run_times_end", end_ms, "ms a job", END_MS, OURS),
        Figure("run_times_table", table_mib, "MiB", TABLE_MIB, OURS),
        Figure("run_times_file", file_mib, "MiB", FILE_MIB, OURS),
    ]


def _filled() -> tuple[float, float, float, float]:
    """Milliseconds of a submission and of an end, MiB of the full table and of its file."""
    logits = load_predictor(PREDICTOR).logits
    jobs = _jobs()
    before_mib = peak_mib()
    memory = RunTimeMemory(logits)
    submit_s = end_s = 0.0
    for first in range(0, JOBS, BATCH):
        batch = jobs[first : first + BATCH]
        began = time.process_time()
        memory.submit([run.job for run in batch])
        submitted = time.process_time()
        memory.end(batch)
        submit_s += submitted - began
        end_s += time.process_time() - submitted
    table_mib = peak_mib() - before_mib
    per_job_ms = 1_000 / JOBS
    return (
        submit_s * per_job_ms,
        end_s * per_job_ms,
        table_mib,
        len(memory.to_bytes()) / 2**20,
    )


def _jobs() -> list[JobRun]:
    draw = np.random.default_rng(SEED)
    requests = [
        Request(Resources(gpus, 4 * gpus, 16_000 * gpus), limit_s)
        for gpus in (1, 1, 2, 4, 8)
        for limit_s in LIMITS_S
    ]
    users, asks = draw.integers(USERS, size=JOBS), draw.integers(len(requests), size=JOBS)
    runs_s = draw.lognormal(7.0, 2.0, size=JOBS)
    jobs = [
        RunningJob(
            job_id=JobId(i + 1),
            started_at=UnixTime(NOW + i + 60),
            request=requests[asks[i]],
            shares=(),
            partition="gpu",
            user=f"user{users[i]}",
            account=f"account{users[i] % 100}",
            submitted_at=UnixTime(NOW + i),
            qos="normal",
        )
        for i in range(JOBS)
    ]
    ran = zip(jobs, runs_s.tolist(), strict=True)
    return [JobRun(job, UnixTime(job.started_at + run_s)) for job, run_s in ran]
