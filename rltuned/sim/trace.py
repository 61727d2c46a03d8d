"""Traces: jobs with their true run times, and the one file format that holds them (version 1).

A job's true run time lives here and in nothing that a policy can see.
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rltuned.core.capacity import Capacity
from rltuned.core.placement import width
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.jobs import Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, UnixTime
from rltuned.sim.cluster import Cluster


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. submit_s: since its epoch. duration_s: true run time without a limit.
    gpu_types: empty = any. cpus, mem_mib: None = unknown; such a job takes none. nodes: None = the
    fewest. status: in the source's words; never used to simulate. name: without digits.
    """

    job_id: str
    submit_s: float
    duration_s: float
    gpus: int
    time_limit_s: float = math.inf
    gpu_types: tuple[str, ...] = ()
    cpus: int | None = None
    mem_mib: int | None = None
    nodes: int | None = None
    partition: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    exclusive: bool = False
    status: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.submit_s):
            raise ValueError(f"submit_s must be a number of seconds, not {self.submit_s}")
        if not (self.duration_s > 0 and math.isfinite(self.duration_s)):
            raise ValueError(f"duration_s must be seconds > 0, not {self.duration_s}")
        if not self.time_limit_s > 0:
            raise ValueError(f"time_limit_s must be seconds > 0 or empty, not {self.time_limit_s}")
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"nodes must be at least 1 or empty, not {self.nodes}")
        if self.gpus < 0 or (self.cpus or 0) < 0 or (self.mem_mib or 0) < 0:
            raise ValueError("gpus, cpus and mem_mib cannot be negative; unknown is empty")

    def request(self) -> Request:
        """What it asks of a cluster. CPUs and memory that are not known never bind; a job without
        GPUs takes at least the one CPU that Slurm gives every job.
        """
        return _request(
            self.gpus,
            self.gpu_types,
            self.cpus or 0,
            self.mem_mib or 0,
            self.nodes,
            self.exclusive,
            self.time_limit_s,
        )


@lru_cache(maxsize=65_536)
def _request(  # noqa: PLR0917 - the cache is keyed by place
    gpus: int,
    gpu_types: tuple[str, ...],
    cpus: int,
    mem_mib: int,
    nodes: int | None,
    exclusive: bool,
    time_limit_s: float,
) -> Request:
    """Jobs that ask for the same share one object: most traces have few different ones."""
    return Request(
        total=Resources(gpus, cpus if gpus else max(1, cpus), mem_mib),
        time_limit_s=time_limit_s,
        gpu_types=tuple(GpuType(t) for t in gpu_types),
        nodes=nodes,
        exclusive=exclusive,
    )


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that is no usable job; line counts from 1 (or the record's number in JSON)."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in submit order, and the notes (source, licence, what is synthetic, seed ...). bad: rows
    of the file that are left out.
    """

    jobs: tuple[TraceJob, ...]
    notes: dict[str, str] = field(default_factory=dict)
    bad: tuple[Bad, ...] = ()


# What a job becomes in a partition, and whether it could run there at all.


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
