"""What is read off a run: figures of docs/interfaces.md, QOS, shares, and the simulator's."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rltuned.core.milp import Sharing, Tuning
from rltuned.lab.replay.metrics import Schedule, score
from rltuned.lab.replay.protocol import Protocol, jointly
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.solver import Cbc
from scripts.studies.experiment_slurm.arms import (
    ARMS,
    PARTITION_NAME,
    QOS_WEIGHT,
    SHARES,
    is_high,
    job_set,
    natural_of,
    user_of,
)
from scripts.studies.experiment_slurm.store import Run

SCORED = ("makespan_s", "wait_s", "wait_p95_s", "wait_max_s", "jct_s", "bsld")
FIGURES = (*SCORED, "utilisation")
Figures = dict[str, float]
NOTICED_S = 600.0
"""A start and a wait that overlap by less count as no inversion: a cycle, and Slurm's own pass."""
ROOM = 100_000
"""Points of every job in the simulator, so that delays have room."""


def figures(run: Run) -> Figures:
    """Of all jobs of the set, what users of each kind saw.

    A duration is the payload's: what Slurm itself takes to start and end a job is no part of the
    wait and of the utilisation, but counts in jct and makespan.

    Raises:
        ValueError: the run is of another job set.
    """
    jobs = jobs_of(run)
    if [j.job_id for j in jobs] != run.job_ids:
        raise ValueError(f"{run.key.name}: the result is not of this job set")
    schedule = Schedule(
        tuple(run.job_ids), np.array(run.submit_s), np.array(run.start_s), np.array(run.end_s),
        np.array([j.duration_s for j in jobs]), np.array([j.gpus for j in jobs], dtype=np.float64),
        tuple(j.user for j in jobs), ("",) * len(jobs), tuple(run.nodes), 0, 0.0,
    )  # fmt: skip
    high = np.array([is_high(j) for j in jobs])
    return _scored(schedule, ARMS[run.key.arm].workload.cluster.gpus) | {
        "high_wait_s": float(schedule.wait_s[high].mean()) if high.any() else float("nan"),
        "qos_inversions": float(qos_inversions(run, jobs)),
        "share_error": share_error(run, jobs),
    }


def simulated(run: Run) -> Figures:
    """The same of the simulator, in the daemon's cycles of as many seconds.

    It plays QOS as points of each job, and no fair share: a trace knows no usage of the past.
    """
    arm, jobs = ARMS[run.key.arm], jobs_of(run)
    natural = natural_of(arm)
    if not arm.fifo:
        natural = replace(natural, own=tuple(QOS_WEIGHT * is_high(j) for j in jobs), base=ROOM)
    protocol = Protocol(
        "cycle", run.interval_s * run.speed, predictor=load_predictor(shipped_predictor())
    )
    if arm.guided:
        tuning = Tuning(sharing=Sharing(frozenset({PARTITION_NAME})))
        protocol = jointly(protocol, 16, tuning, Cbc())
    policy = arm.policy if arm.write_mode else "fcfs"
    cluster = arm.workload.cluster
    scenario = Scenario.of(cluster, jobs, Rules(natural=natural))
    return _scored(simulate(scenario, policy, protocol), cluster.gpus)


def jobs_of(run: Run) -> tuple[TraceJob, ...]:
    """The jobs that were submitted, by whom and to which partition."""
    made = job_set(ARMS[run.key.arm], run.key.jobs, run.key.seed)
    return tuple(replace(j, partition=PARTITION_NAME, user=user_of(j)) for j in made)


def _scored(schedule: Schedule, gpus: int) -> Figures:
    found = score([schedule], gpus)
    work = float((schedule.duration_s * schedule.gpus).sum())
    used = {"utilisation": work / (gpus * found.makespan_s)}
    return {name: getattr(found, name) for name in SCORED} | used


def qos_inversions(run: Run, jobs: Sequence[TraceJob]) -> int:
    """Pairs in which a job of normal QOS starts while one of high QOS, which would fit in its
    place for as long, has waited for NOTICED_S and goes on waiting for as long.
    """
    rows = list(zip(jobs, run.submit_s, run.start_s, strict=True))
    high = [row for row in rows if is_high(row[0])]
    return sum(
        submit + NOTICED_S < began < start - NOTICED_S and _fits(one, job)
        for job, _, began in rows
        if not is_high(job)
        for one, submit, start in high
    )


def _fits(one: TraceJob, place: TraceJob) -> bool:
    return (
        one.gpu_types == place.gpu_types
        and one.gpus <= place.gpus
        and one.time_limit_s <= place.time_limit_s
    )


def share_error(run: Run, jobs: Sequence[TraceJob]) -> float:
    """By how much the users' parts of the GPU time miss their shares while jobs still arrive:
    half of the sum of the absolute differences, 0 to 1.
    """
    until_s = max(run.submit_s)
    used = dict.fromkeys(SHARES, 0.0)
    for job, start, end in zip(jobs, run.start_s, run.end_s, strict=True):
        used[job.user] += job.gpus * max(0.0, min(end, until_s) - start)
    total, shares = sum(used.values()), sum(SHARES.values())
    return sum(abs(used[user] / total - SHARES[user] / shares) for user in SHARES) / 2
