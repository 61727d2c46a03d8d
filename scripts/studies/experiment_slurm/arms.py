"""What is compared: how each Slurm is set, what rltuned does, and which jobs are submitted."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from rltuned.sim.natural import Natural
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from tests.accounting import as_user

WriteMode = Literal["", "priority", "site_factor"]


@dataclass(frozen=True)
class Arm:
    """One Slurm of the comparison.

    Attributes:
        name: as results call it.
        words: as tables call it.
        base: name of the arm it is compared with; empty = it is a base.
        fifo: priority/basic instead of priority/multifactor.
        whole: jobs ask for whole nodes (--exclusive), as those of the paper got them.
        write_mode: how rltuned writes; empty = no rltuned.
        guided: rltuned may tell exclusive jobs to share (placement milp, a scope).
    """

    name: str
    words: str
    base: str = ""
    fifo: bool = False
    whole: bool = False
    write_mode: WriteMode = ""
    guided: bool = False


ARMS = {
    arm.name: arm
    for arm in (
        Arm("multifactor", "(a) multifactor, weights tuned"),
        Arm("priority", "(b) the same + rltuned, priority mode", "multifactor",
            write_mode="priority"),
        Arm("site", "(c) the same + rltuned, site_factor mode", "multifactor",
            write_mode="site_factor"),
        Arm("fifo", "(e) FIFO", "multifactor", fifo=True),
        Arm("whole", "(a) whole nodes: multifactor, weights tuned", whole=True),
        Arm("whole-guided", "(d) whole nodes + rltuned with guidance", "whole", whole=True,
            write_mode="priority", guided=True),
    )
}  # fmt: skip
"""In the order of the tables."""

PARTITION = "PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-0 DefaultTime=60"

TUNED = Natural(
    kind="multifactor",
    age_weight=10_000,
    size_weight=1_000,
    partition_weight=0,
    max_age_s=7 * 86_400.0,
    favor_small=True,
)
"""The least mean wait in the simulator, on job sets that no run uses; the same for whole nodes."""


def natural_of(arm: Arm) -> Natural:
    """Slurm's own order in this arm."""
    return Natural(kind="fcfs") if arm.fifo else TUNED


def slurm_settings(arm: Arm) -> dict[str, str]:
    """The lines of slurm.conf that make this order.

    Slurm's size factor is the mean of a share of nodes, the same for all these jobs, and a share
    of CPUs, which is the share of GPUs here: so twice the weight has the slope of the simulator.
    """
    if arm.fifo:
        return {"PriorityType": "priority/basic"}
    order = natural_of(arm)
    return {
        "PriorityType": "priority/multifactor",
        "PriorityWeightAge": str(order.age_weight),
        "PriorityMaxAge": f"{int(order.max_age_s // 60)}",
        "PriorityWeightJobSize": str(2 * order.size_weight),
        "PriorityFavorSmall": "YES" if order.favor_small else "NO",
        "PriorityWeightPartition": "0",
    }


DAEMON = """\
[daemon]
interval_s = {interval_s}
state_dir = "{folder}"
pause_file = "{folder}/PAUSE"
max_snapshot_age_s = 3600
[policy]
name = "model:rltune"
placement = "{placement}"
[oversubscribe]
scope = [{scope}]
[limits]
write_mode = "{write_mode}"
[load]
enabled = false
[slurm]
conf = "{conf}"
[http]
port = 0
[log]
format = "json"
"""
"""Everything else is rltuned's default. A snapshot ages by the faster clock while commands take
real time, so its greatest age is raised; how busy slurmctld is cannot be judged by a clock that
makes its work look 180 times as long, so that is not asked."""


def daemon_settings(arm: Arm, *, folder: str, conf: str, interval_s: float) -> str:
    """rltuned.toml of an arm.

    Args:
        arm: which.
        folder: where the journal goes.
        conf: slurm.conf.
        interval_s: real seconds between cycles.
    """
    return DAEMON.format(
        interval_s=interval_s,
        folder=folder,
        placement="milp" if arm.guided else "pack",
        scope='"gpu"' if arm.guided else "",
        write_mode=arm.write_mode,
        conf=conf,
    )


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
