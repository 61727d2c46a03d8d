"""Small clusters and traces for the learning half."""

import numpy as np

from rltuned.core.decide import Knobs
from rltuned.core.features import FloatArray
from rltuned.core.order import DEFAULT, Order
from rltuned.domain.cluster import GpuCount, Resources
from rltuned.domain.jobs import PendingJob, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, JobId, NodeName, UnixTime
from rltuned.lab.kernel.episode import QUEUED, Desk
from rltuned.lab.kernel.state import RUNNING, State
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.rollout import play_policy
from rltuned.lab.train.settings import PpoSettings
from rltuned.sim.cluster import Cluster, parse_cluster, preset
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules


def play_rule(window: Scenario, policy: str, order: Order | None = None) -> FloatArray:
    """(n,) start times under a rule at every event; order: None = pure."""
    knobs = Knobs(top_k=0, order=order or DEFAULT)
    return play_policy(window, policy, Protocol(knobs=knobs, bounded=order is not None))


TWO_PARTITIONS = """
[[partitions]]
name = "gpu"
default = true

[[partitions]]
name = "fast"
max_time_s = 40000

[[nodes]]
name = "a[1-3]"
gpu_type = "p100"
gpus = 4
cpus = 16
mem_mib = 64000
partitions = ["gpu"]

[[nodes]]
name = "b[1-2]"
gpu_type = "k80"
gpus = 2
cpus = 8
mem_mib = 32000
partitions = ["gpu", "fast"]

[[nodes]]
name = "c1"
cpus = 4
mem_mib = 16000
partitions = ["fast"]
"""


def clusters() -> dict[str, Cluster]:
    return {"two": parse_cluster(TWO_PARTITIONS, "two", "two"), "testbed": preset("testbed")}


def random_ground(name: str, seed: int, count: int = 120, rules: Rules | None = None) -> Scenario:
    """Jobs of all kinds that the cluster can run, close enough together to queue."""
    draw = np.random.default_rng(seed)
    cluster = clusters()[name]
    types = sorted({g.gpu_type for n in cluster.nodes for g in n.gpus})
    submit_s = np.cumsum(draw.exponential(400.0, count) * (draw.random(count) < 0.8)).round()
    jobs = tuple(_job(draw, i, float(submit_s[i]), types, name) for i in range(count))
    return Scenario.of(cluster, jobs, rules, name=name).for_networks()


def _job(
    draw: np.random.Generator, i: int, submit_s: float, types: list[GpuType], cluster: str
) -> TraceJob:
    gpus = int(
        draw.choice([0, 1, 1, 1, 2, 2, 3, 4, 6, 8])
        if cluster == "two"
        else draw.choice([1, 1, 2, 4, 6])
    )
    fast = cluster == "two" and gpus <= 2 and draw.random() < 0.3
    bound = not fast and gpus <= 1 and draw.random() < 0.4
    run_s = float(np.ceil(draw.lognormal(7.0, 1.5)))
    return TraceJob(
        job_id=str(i + 1),
        submit_s=submit_s,
        duration_s=run_s,
        gpus=gpus,
        time_limit_s=float(draw.choice([600, 3600, 36_000]))
        if draw.random() < 0.8
        else float("inf"),
        gpu_types=(str(draw.choice(types)),) if bound and gpus else (),
        cpus=int(draw.integers(0, 5)),
        mem_mib=int(draw.integers(0, 3)) * 1000,
        nodes=2 if gpus == 2 and not fast and draw.random() < 0.2 else None,
        partition="fast" if fast else "",
        user=f"u{i % 7}",
        exclusive=bool(draw.random() < 0.1),
    )


def snapshot_now(window: Scenario, state: State, desk: Desk) -> Snapshot:
    """What a scheduler would see of the compiled state, built as objects."""
    cluster, prepared = window.cluster, window.prepared
    names = [n.name for n in cluster.nodes]
    partitions = [p.name for p in cluster.partitions]
    gpu_type = {n.name: n.gpus[0].gpu_type if n.gpus else None for n in cluster.nodes}

    def partition(job: int) -> str:
        return partitions[int(prepared.shapes.partition[prepared.jobs.shape[job]])]

    def shares(job: int) -> tuple[Share, ...]:
        offset = int(prepared.jobs.offset[job])
        rows = range(offset, offset + int(prepared.shapes.width[prepared.jobs.shape[job]]))
        s = state.shares
        return tuple(
            Share(
                NodeName(names[s.node[at]]),
                Resources(int(s.gpus[at]), int(s.cpus[at]), int(s.mem_mib[at])),
                gpu_type[names[s.node[at]]] if s.gpus[at] else None,
            )
            for at in rows
        )

    nodes = []
    for i, node in enumerate(cluster.nodes):
        gpus = int(state.free.gpus[i])
        free = Resources(gpus, int(state.free.cpus[i]), int(state.free.mem_mib[i]))
        counts = tuple(GpuCount(g.gpu_type, g.total, gpus) for g in node.gpus)
        nodes.append(
            type(node)(node.name, counts, node.total, free, True, node.partitions, "MIXED")
        )
    pending = tuple(
        PendingJob(
            job_id=JobId(job + 1),
            address=str(job + 1),
            submitted_at=UnixTime(float(prepared.jobs.submit_s[job])),
            request=prepared.requests[job],
            priority=1,
            partitions=(partition(job),),
        )
        for job in desk.queue[: desk.marks[QUEUED]].tolist()
    )
    running = tuple(
        RunningJob(
            job_id=JobId(job + 1),
            started_at=UnixTime(float(state.start_s[job])),
            request=prepared.requests[job],
            shares=shares(job),
            partition=partition(job),
        )
        for job in state.running[: state.counters[RUNNING]].tolist()
    )
    return Snapshot(
        UnixTime(float(desk.clock[0])),
        cluster.name,
        pending,
        running,
        tuple(nodes),
        cluster.partitions,
    )


CLUSTER = """
[[nodes]]
name = "a[1-4]"
gpu_type = "a100"
gpus = 4
cpus = 64
mem_mib = 64000
"""


def single_jobs(count: int) -> tuple[TraceJob, ...]:
    """One GPU each, so that every waiting job could have been started."""
    draw = np.random.default_rng(31)
    submit_s = np.cumsum(draw.exponential(100.0, count)).round()
    run_s = np.ceil(draw.lognormal(6.5, 1.2, count))
    limit_s = np.ceil(draw.lognormal(8.0, 1.5, count)) + 60
    return tuple(
        TraceJob(str(i), float(submit_s[i]), float(run_s[i]), 1, float(limit_s[i]))
        for i in range(count)
    )


WORKLOAD = random_ground("testbed", 11, 700)


SMALL = PpoSettings(
    network="paper", window_jobs=60, rollouts=2, epochs=2, batches=4, hidden=(8, 8), minibatches=2,
    learning_rate=1e-3, base="fcfs", eval_windows=2, eval_jobs=60,
)  # fmt: skip
