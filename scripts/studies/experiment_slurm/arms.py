"""What is compared: how each Slurm is set, what rltuned does, and which jobs are submitted."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from rltuned.sim.dispatch import Natural
from rltuned.sim.trace import TraceJob
from scripts.studies.experiment_slurm.workloads import PHILLY, TESTBED_JOBS, THETA, Workload
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
        fair_share: PriorityWeightFairShare.
        whole: jobs ask for whole nodes (--exclusive), as those of the paper got them.
        write_mode: how rltuned writes; empty = no rltuned.
        policy: of rltuned.
        guided: rltuned may tell exclusive jobs to share (placement milp, a scope).
        long: the arm is played with 1,024 jobs too.
        workload: the cluster and the jobs.
    """

    name: str
    words: str
    base: str = ""
    fifo: bool = False
    fair_share: int = 1_000
    whole: bool = False
    write_mode: WriteMode = ""
    policy: str = "delay"
    guided: bool = False
    long: bool = True
    workload: Workload = TESTBED_JOBS


STRICT = 50_000
"""With four users and root a step of the fair tree is a fifth of it: seven days of age, as long as
the longest delay. The default above makes a step of 3.4 hours."""

ARMS = {
    arm.name: arm
    for arm in (
        Arm("multifactor", "multifactor, weights tuned, QOS, fair share"),
        Arm("site", "the same + `delay`, site_factor mode", "multifactor",
            write_mode="site_factor"),
        Arm("priority", "the same + `delay`, priority mode", "multifactor",
            write_mode="priority"),
        Arm("network", "the same + `model:rltune`, site_factor mode", "multifactor",
            write_mode="site_factor", policy="model:rltune"),
        Arm("fifo", "FIFO", "multifactor", fifo=True),
        Arm("strict", "multifactor, fair share without room", fair_share=STRICT, long=False),
        Arm("strict-site", "the same + `delay`, site_factor mode", "strict", fair_share=STRICT,
            write_mode="site_factor", long=False),
        Arm("whole", "whole nodes: multifactor, weights tuned", whole=True),
        Arm("whole-guided", "whole nodes + `delay` with guidance", "whole", whole=True,
            write_mode="site_factor", guided=True),
        Arm("philly", "Philly: multifactor, weights tuned, QOS, fair share", long=False,
            workload=PHILLY),
        Arm("philly-site", "Philly: the same + `delay`, site_factor mode", "philly",
            write_mode="site_factor", long=False, workload=PHILLY),
        Arm("philly-priority", "Philly: the same + `delay`, priority mode", "philly",
            write_mode="priority", long=False, workload=PHILLY),
        Arm("philly-network", "Philly: the same + `model:rltune`, site_factor mode", "philly",
            write_mode="site_factor", policy="model:rltune", long=False, workload=PHILLY),
        Arm("philly-fifo", "Philly: FIFO", "philly", fifo=True, long=False,
            workload=PHILLY),
        Arm("theta", "ThetaGPU: multifactor, weights tuned, QOS, fair share", long=False,
            workload=THETA),
        Arm("theta-site", "ThetaGPU: the same + `delay`, site_factor mode", "theta",
            write_mode="site_factor", long=False, workload=THETA),
    )
}  # fmt: skip
"""In the order of the tables."""

PARTITION_NAME = "gpu"
PARTITION = "PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-0 DefaultTime=60"

QOS_WEIGHT = 20_000
"""`high` stands 14 days of age above `normal`: twice the longest delay."""
HIGH_EVERY = 10
"""Every tenth job is submitted with --qos=high."""
SHARES = {"games": 40, "news": 30, "mail": 20, "backup": 10}
"""Users that every Debian has, each in an account of its own, and the shares of the accounts."""


def natural_of(arm: Arm) -> Natural:
    """Slurm's own order in this arm."""
    return Natural(kind="fcfs") if arm.fifo else arm.workload.order


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
        "PriorityWeightQOS": str(QOS_WEIGHT),
        "PriorityWeightFairShare": str(arm.fair_share),
    }


def accounting_commands() -> Iterator[tuple[str, ...]]:
    """sacctmgr's words for the users, their shares and the QOS."""
    yield ("add", "qos", "high", "priority=100")
    for user, share in SHARES.items():
        yield ("add", "account", f"of_{user}", f"fairshare={share}")
        yield ("add", "user", user, f"account=of_{user}", "qos=normal,high", "defaultqos=normal")


DAEMON = """\
[daemon]
interval_s = {interval_s}
state_dir = "{folder}"
pause_file = "{folder}/PAUSE"
max_snapshot_age_s = 3600
[policy]
name = "{policy}"
placement = "{placement}"
[oversubscribe]
scope = [{scope}]
[limits]
write_mode = "{write_mode}"
[load]
max_server_threads = 0
max_backfill_s = 0
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
        policy=arm.policy,
        placement="milp" if arm.guided else "pack",
        scope='"gpu"' if arm.guided else "",
        write_mode=arm.write_mode,
        conf=conf,
    )


def job_set(arm: Arm, count: int, seed: int) -> tuple[TraceJob, ...]:
    """The jobs of an arm, which each ask for whole nodes in those of whole nodes."""
    made = arm.workload.jobs(count, seed)
    return tuple(replace(job, exclusive=True) for job in made) if arm.whole else made


def user_of(job: TraceJob) -> str:
    """The user of this machine for `userNN`: the trace's twelve are dealt to the four in turn."""
    return list(SHARES)[(int(job.user.removeprefix("user")) - 1) % len(SHARES)]


def is_high(job: TraceJob) -> bool:
    """Whether the job is submitted with --qos=high."""
    return int(job.job_id) % HIGH_EVERY == 0


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
    nodes, cpus, mem_mib = job.nodes or 1, job.cpus or 1, job.mem_mib or 1
    argv = (
        *as_user(user_of(job)), "sbatch", "--parsable", "--output=/dev/null", "--chdir=/",
        f"--job-name={name_of(job)}", f"--nodes={nodes}", f"--ntasks={nodes}",
        f"--cpus-per-task={cpus // nodes}", f"--mem={mem_mib // nodes}",
        f"--gres=gpu:{job.gpu_types[0]}:{job.gpus // nodes}",
        f"--time={math.ceil(job.time_limit_s / 60)}",
        *(("--qos=high",) if is_high(job) else ()), *(("--exclusive",) if job.exclusive else ()),
        f"--wrap=exec sleep {job.duration_s / speed:.4f}",
    )  # fmt: skip
    return Submission(job, job.submit_s / speed, argv)


def name_of(job: TraceJob) -> str:
    """The job's name in Slurm, by which accounting is joined with the trace."""
    return f"t{job.job_id}"
