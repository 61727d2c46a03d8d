"""What is compared: clusters and the jobs of each, how each Slurm is set, what rltuned does."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.compare import DAY_S
from rltuned.lab.replay.trace_file import read_trace, scale
from rltuned.sim.cluster import Cluster, idle_node, preset
from rltuned.sim.limits import draw_limits
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from rltuned.sim.world import Natural
from scripts.studies.plays import TRACES
from tests.accounting import as_user
from tests.lab import TESTBED, NodeSpec

LOAD = 1.15
"""Of the GPUs while jobs arrive: that of the testbed's trace itself."""
SETS = 6
"""Of a real trace."""
PHILLY_NODES = (
    NodeSpec(("n1", "n2", "n3", "n4"), cpus=64, mem_mib=512_000, gpu_type="p100", gpus=8),
)

THETA_NODES = (
    NodeSpec(tuple(f"t{number:02d}" for number in range(1, 13)), cpus=128, mem_mib=1_000_000,
             gpu_type="a100", gpus=8),
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """A cluster, its jobs by number and seed, and Slurm's own order, whose age and size weights
    have the least mean wait in the simulator on job sets that no run uses. seeds, speed: of the
    sets of 256 jobs; seconds of the faster clock per real second.
    """

    nodes: tuple[NodeSpec, ...]
    cluster: Cluster
    order: Natural
    jobs: Callable[[int, int], tuple[TraceJob, ...]]
    seeds: tuple[int, ...]
    speed: float


def testbed_jobs(count: int, seed: int) -> tuple[TraceJob, ...]:
    """The testbed's jobs at the load of the trace itself."""
    return synthesize("testbed-1024", jobs=count, seed=seed, limits="weak").jobs


def philly_jobs(count: int, seed: int) -> tuple[TraceJob, ...]:
    """Consecutive jobs of Philly's November; the sets begin at each sixth of it. Their limits are
    weak, and their users drawn: this copy of the trace names none.
    """
    chosen = _set(_philly(), count, seed)
    draw = np.random.default_rng(seed)
    limits_s = draw_limits(np.array([j.duration_s for j in chosen]), "weak", draw)
    users = draw.integers(1, 13, len(chosen))
    jobs = tuple(
        replace(
            job, gpu_types=(GpuType("p100"),), cpus=8 * job.gpus, mem_mib=60_000 * job.gpus,
            user=f"user{user:02d}",
            time_limit_s=min(60.0 * math.ceil(max(limit_s, job.duration_s) / 60.0), DAY_S),
        )
        for job, limit_s, user in zip(chosen, limits_s.tolist(), users.tolist(), strict=True)
    )  # fmt: skip
    return scale(Trace(jobs, {}), LOAD, _one_kind("philly-32", PHILLY_NODES).gpus).jobs


def theta_jobs(count: int, seed: int) -> tuple[TraceJob, ...]:
    """Consecutive jobs of ThetaGPU, each with whole nodes and its own limit; the sets begin at each
    sixth. The trace's users are dealt to twelve in the order in which they come; a job without a
    name of a user has one of its own draw.
    """
    chosen = _set(_theta(), count, seed)
    draw = np.random.default_rng(seed)
    number_of = {name: n for n, name in enumerate(dict.fromkeys(job.user for job in chosen))}
    jobs = []
    for job in chosen:
        nodes, number = job.nodes or 1, number_of[job.user] if job.user else draw.integers(12)
        jobs.append(
            replace(
                job, gpu_types=(GpuType("a100"),), cpus=128 * nodes, mem_mib=960_000 * nodes,
                user=f"user{int(number) % 12 + 1:02d}", exclusive=True,
                time_limit_s=60.0 * math.ceil(max(job.time_limit_s, job.duration_s) / 60.0),
            )
        )  # fmt: skip
    return scale(Trace(tuple(jobs), {}), LOAD, _one_kind("theta-96", THETA_NODES).gpus).jobs


def _set(every: tuple[TraceJob, ...], count: int, seed: int) -> list[TraceJob]:
    """So many jobs from a sixth of a trace on, numbered, the first at 0."""
    first = (seed - 1) * len(every) // SETS
    chosen = every[first : first + count]
    return [
        replace(job, job_id=str(number), submit_s=job.submit_s - chosen[0].submit_s)
        for number, job in enumerate(chosen, 1)
    ]


@cache
def _philly() -> tuple[TraceJob, ...]:
    """Jobs of one node that end within a day, the partition's longest time."""
    jobs = read_trace(TRACES / "philly_2017-11.csv.gz").jobs
    return tuple(j for j in jobs if j.gpus <= PHILLY_NODES[0].gpus and j.duration_s < DAY_S)


@cache
def _theta() -> tuple[TraceJob, ...]:
    """Jobs that fit THETA_NODES and end within a day, the partition's longest time."""
    jobs = read_trace(TRACES / "thetagpu_2023.csv.gz").jobs
    most = len(THETA_NODES[0].names)
    return tuple(
        j for j in jobs if j.nodes and j.nodes <= most and max(j.time_limit_s, j.duration_s) < DAY_S
    )


def _one_kind(name: str, nodes: tuple[NodeSpec, ...]) -> Cluster:
    (spec,) = nodes
    size = Resources(spec.gpus, spec.cpus, spec.mem_mib)
    found = (idle_node(one, GpuType(spec.gpu_type), size, ("gpu",)) for one in spec.names)
    return Cluster(name, tuple(found), (Partition("gpu", default=True, max_time_s=DAY_S),))


TUNED = Natural(
    kind="multifactor", age_weight=10_000, size_weight=1_000, partition_weight=0,
    max_age_s=7 * DAY_S, favor_small=True,
)  # fmt: skip
SIX = tuple(range(1, SETS + 1))
TESTBED_JOBS = Workload(TESTBED, preset("testbed"), TUNED, testbed_jobs, (1, 2, 3), 240.0)
PHILLY = Workload(PHILLY_NODES, _one_kind("philly-32", PHILLY_NODES),
                  replace(TUNED, size_weight=10_000), philly_jobs, SIX, 120.0)  # fmt: skip
THETA = Workload(THETA_NODES, _one_kind("theta-96", THETA_NODES), TUNED, theta_jobs, SIX, 180.0)

WriteMode = Literal["", "priority", "site_factor"]


@dataclass(frozen=True)
class Arm:
    """One Slurm of the comparison; words: as tables call it.

    Attributes:
        base: name of the arm it is compared with; empty = it is a base.
        fifo: priority/basic instead of priority/multifactor.
        fair_share: PriorityWeightFairShare.
        whole: jobs ask for whole nodes (--exclusive), as those of the paper got them.
        write_mode: how rltuned writes; empty = no rltuned.
        guided: rltuned may tell exclusive jobs to share (placement milp, a scope).
        long: the arm is played with 1,024 jobs too.
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

SITE, PRIORITY = "the same + `delay`, site_factor mode", "the same + `delay`, priority mode"
NETWORK = "the same + `model:rltune`, site_factor mode"
ROOMY = "multifactor, weights tuned, QOS, fair share"
PHILLY_ARMS: tuple[tuple[str, str, bool, WriteMode, str], ...] = (
    ("philly", ROOMY, False, "", "delay"),
    ("philly-site", SITE, False, "site_factor", "delay"),
    ("philly-priority", PRIORITY, False, "priority", "delay"),
    ("philly-network", NETWORK, False, "site_factor", "model:rltune"),
    ("philly-fifo", "FIFO", True, "", "delay"),
)

ARMS = {
    arm.name: arm
    for arm in (
        Arm("multifactor", ROOMY),
        Arm("site", SITE, "multifactor", write_mode="site_factor"),
        Arm("priority", PRIORITY, "multifactor", write_mode="priority"),
        Arm("network", NETWORK, "multifactor", write_mode="site_factor", policy="model:rltune"),
        Arm("fifo", "FIFO", "multifactor", fifo=True),
        Arm("strict", "multifactor, fair share without room", fair_share=STRICT, long=False),
        Arm("strict-site", SITE, "strict", fair_share=STRICT, write_mode="site_factor",
            long=False),
        Arm("whole", "whole nodes: multifactor, weights tuned", whole=True),
        Arm("whole-guided", "whole nodes + `delay` with guidance", "whole", whole=True,
            write_mode="site_factor", guided=True),
        *(Arm(name, f"Philly: {words}", "philly" * bool(mode or fifo), fifo=fifo,
              write_mode=mode, policy=policy, long=False, workload=PHILLY)
          for name, words, fifo, mode, policy in PHILLY_ARMS),
        Arm("theta", f"ThetaGPU: {ROOMY}", long=False, workload=THETA),
        Arm("theta-site", f"ThetaGPU: {SITE}", "theta", write_mode="site_factor", long=False,
            workload=THETA),
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
    """rltuned.toml of an arm: where the journal goes, slurm.conf, real seconds between cycles."""
    placement, scope = ("milp", '"gpu"') if arm.guided else ("pack", "")
    return DAEMON.format(
        interval_s=interval_s, folder=folder, conf=conf, policy=arm.policy,
        write_mode=arm.write_mode, placement=placement, scope=scope,
    )  # fmt: skip


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
