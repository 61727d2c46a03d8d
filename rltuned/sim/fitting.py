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
    """The request as its partition makes it: its longest limit, and whole nodes under EXCLUSIVE."""
    if partition.max_time_s is not None and request.time_limit_s == math.inf:
        request = replace(request, time_limit_s=partition.max_time_s)
    if partition.oversubscribe == "EXCLUSIVE" and not request.exclusive:
        request = replace(request, exclusive=True)
    return request


class EmptyCluster:
    """A cluster on which nothing runs; what it answers about a size is remembered."""

    def __init__(self, cluster: Cluster) -> None:
        self.snapshot = idle(cluster)
        self.capacity = Capacity.of(self.snapshot)
        self._cluster = cluster
        self._partitions = {p.name: p for p in cluster.partitions}
        self._known: dict[object, str | None] = {}

    def why_not(self, job: TraceJob) -> str | None:
        """Why a job could not run even here; None when it could."""
        name = job.partition or self._cluster.default_partition
        if name not in self._partitions:
            return f"no partition {name!r}"
        longest = self._partitions[name].max_time_s
        if longest is not None and longest < job.time_limit_s < math.inf:
            return f"its limit of {job.time_limit_s:g} s is above the {longest:g} s of {name}"
        size = (job.gpus, job.gpu_types, job.cpus, job.mem_mib, job.nodes, job.exclusive, name)
        if size not in self._known:
            self._known[size] = self._too_large(job, name)
        return self._known[size]

    def _too_large(self, job: TraceJob, partition: str) -> str | None:
        request, member = job.request(), self.capacity.members_of((partition,))
        if width(request, member, self.capacity)[0]:
            return None
        kinds = f" of {'|'.join(job.gpu_types)}" if job.gpu_types else ""
        return (
            f"{job.gpus} GPUs{kinds}, {request.total.cpus} CPUs, {request.total.mem_mib} MiB"
            + (f" on {job.nodes} nodes" if job.nodes else "")
            + f" do not fit on the idle partition {partition}"
        )


def idle(cluster: Cluster) -> Snapshot:
    """The cluster with nothing on it."""
    return Snapshot(UnixTime(0.0), cluster.name, (), (), cluster.nodes, cluster.partitions)
