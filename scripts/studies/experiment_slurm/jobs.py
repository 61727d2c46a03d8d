"""The job sets, and how a job is submitted: by a user of its own, with the trace's limit."""

import math
from dataclasses import dataclass, replace

from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from tests.accounting import as_user

USERS = (
    "daemon", "bin", "sys", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data",
    "backup",
)  # fmt: skip
"""Users that every Debian has, for the trace's twelve."""
KIND = "testbed-1024"


def job_set(count: int, seed: int, *, whole: bool) -> tuple[TraceJob, ...]:
    """The testbed's jobs at the load of the trace itself; whole: each asks for whole nodes."""
    made = synthesize(KIND, jobs=count, seed=seed, limits="weak").jobs
    return tuple(replace(job, exclusive=True) for job in made) if whole else made


def user_of(job: TraceJob) -> str:
    """A user of this machine for `userNN`.

    Raises:
        ValueError: the trace names a thirteenth user.
    """
    number = int(job.user.removeprefix("user"))
    if not 1 <= number <= len(USERS):
        raise ValueError(f"job {job.job_id}: no user of this machine stands for {job.user!r}")
    return USERS[number - 1]


@dataclass(frozen=True)
class Submission:
    """One sbatch, and when it is due: real seconds after the first."""

    job: TraceJob
    due_s: float
    argv: tuple[str, ...]


def submission(job: TraceJob, speed: float) -> Submission:
    """How a job is submitted to a Slurm whose clock runs `speed` times as fast.

    The limit is the trace's in Slurm's whole minutes; the payload sleeps really.
    """
    argv = (
        *as_user(user_of(job)), "sbatch", "--parsable", "--output=/dev/null", "--chdir=/",
        f"--job-name={name_of(job)}", "--nodes=1", "--ntasks=1", f"--cpus-per-task={job.cpus}",
        f"--mem={job.mem_mib}", f"--gres=gpu:{job.gpu_types[0]}:{job.gpus}",
        f"--time={math.ceil(job.time_limit_s / 60)}", *(("--exclusive",) if job.exclusive else ()),
        f"--wrap=exec sleep {job.duration_s / speed:.4f}",
    )  # fmt: skip
    return Submission(job, job.submit_s / speed, argv)


def name_of(job: TraceJob) -> str:
    """The job's name in Slurm, by which accounting is joined with the trace."""
    return f"t{job.job_id}"
