"""What a job becomes in a partition, and whether it could run there at all."""

import math
from dataclasses import replace

from rltuned.core.capacity import Capacity
from rltuned.core.placement import width
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob


def in_partition(request: Request, partition: Partition) -> Request:
    """The request as its partition makes it, as in Slurm: its longest limit where the user named
    none, and whole nodes for every job under OverSubscribe=EXCLUSIVE.
    """
    if partition.max_time_s is not None and request.time_limit_s == math.inf:
        request = replace(request, time_limit_s=partition.max_time_s)
    if partition.oversubscribe == "EXCLUSIVE" and not request.exclusive:
        request = replace(request, exclusive=True)
    return request


def impossible(job: TraceJob, cluster: Cluster, capacity: Capacity | None = None) -> str | None:
    """Why a job could not run even on the idle cluster; None when it could."""
    capacity = capacity or Capacity.of(idle(cluster))
    name = job.partition or cluster.default_partition
    partition = next((p for p in cluster.partitions if p.name == name), None)
    if partition is None:
        return f"no partition {name!r}"
    longest = partition.max_time_s
    if longest is not None and longest < job.time_limit_s < math.inf:
        return f"its limit of {job.time_limit_s:g} s is above the {longest:g} s of {name}"
    request = job.request()
    if not width(request, capacity.members_of((name,)), capacity)[0]:
        kinds = f" of {'|'.join(job.gpu_types)}" if job.gpu_types else ""
        return (
            f"{job.gpus} GPUs{kinds}, {request.total.cpus} CPUs, {request.total.mem_mib} MiB"
            + (f" on {job.nodes} nodes" if job.nodes else "")
            + f" do not fit on the idle partition {name}"
        )
    return None


def idle(cluster: Cluster) -> Snapshot:
    """The cluster with nothing on it."""
    return Snapshot(UnixTime(0.0), cluster.name, (), (), cluster.nodes, cluster.partitions)
