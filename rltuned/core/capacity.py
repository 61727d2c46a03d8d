"""The cluster as arrays: what every node has, what is free on it, and which jobs it may serve.

Nodes stand in snapshot order (by name). GPU types are rows: a node with two types (MIG slices
beside whole GPUs) has amounts in two rows. The last row is always zero and stands for "no GPU":
jobs that ask for none are placed through it on any node.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rltuned.core.constraints import allowed
from rltuned.core.keepers import Keepers
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob, Request, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, NodeName

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class Capacity:
    """Totals and free amounts of one cluster: T GPU types plus the zero row, N nodes."""

    names: tuple[NodeName, ...]
    gpu_types: tuple[GpuType, ...]
    total_gpus: IntArray  # (T+1, N)
    total_cpus: IntArray  # (N,)
    total_mem_mib: IntArray  # (N,)
    free_gpus: IntArray  # (T+1, N)
    free_cpus: IntArray  # (N,)
    free_mem_mib: IntArray  # (N,)
    usable: BoolArray  # (N,) Slurm starts jobs here now
    members: dict[str, BoolArray]  # partition -> (N,)
    index: dict[NodeName, int]  # name -> column
    rows: dict[GpuType | None, int]  # type -> row
    kept: Keepers  # what keeps nodes from some jobs
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Capacity":
        nodes = snapshot.nodes
        types = tuple(sorted({g.gpu_type for n in nodes for g in n.gpus}))
        total_gpus = np.zeros((len(types) + 1, len(nodes)), dtype=np.int64)
        free_gpus = np.zeros_like(total_gpus)
        row_of: dict[GpuType | None, int] = {t: i for i, t in enumerate(types)}
        for column, node in enumerate(nodes):
            for gpu in node.gpus:
                total_gpus[row_of[gpu.gpu_type], column] = gpu.total
                free_gpus[row_of[gpu.gpu_type], column] = gpu.free
        total_cpus = _ints([n.total.cpus for n in nodes])
        index = {n.name: i for i, n in enumerate(nodes)}
        return cls(
            names=tuple(n.name for n in nodes),
            gpu_types=types,
            total_gpus=total_gpus,
            total_cpus=total_cpus,
            total_mem_mib=_ints([n.total.mem_mib for n in nodes]),
            free_gpus=free_gpus,
            free_cpus=_ints([n.free.cpus for n in nodes]),
            free_mem_mib=_ints([n.free.mem_mib for n in nodes]),
            usable=np.array([n.schedulable for n in nodes], dtype=bool),
            members=_members(nodes),
            index=index,
            rows=row_of,
            kept=Keepers(snapshot, index, total_cpus),
            nodes=nodes,
        )

    def copy(self) -> "Capacity":
        """A copy whose free amounts can be spent without touching this one's."""
        return replace(
            self,
            free_gpus=self.free_gpus.copy(),
            free_cpus=self.free_cpus.copy(),
            free_mem_mib=self.free_mem_mib.copy(),
        )

    def members_of(self, partitions: tuple[str, ...]) -> BoolArray:
        """(N,) nodes that belong to any of the partitions, to be read; unknown ones have none."""
        if len(partitions) == 1 and partitions[0] in self.members:
            return self.members[partitions[0]]
        member = np.zeros(len(self.names), dtype=bool)
        for name in partitions:
            if name in self.members:
                member |= self.members[name]
        return member

    def without(self, some: int) -> "Capacity":
        """The same, to be read, for a job from which this set of `kept` keeps nodes."""
        if not some:
            return self
        gpus, cpus = self.kept.parts(some)
        return replace(
            self,
            usable=self.usable & ~self.kept.nodes(some),
            free_gpus=np.maximum(self.free_gpus - gpus, 0),
            free_cpus=np.maximum(self.free_cpus - cpus, 0),
        )

    def wanted_by(self, job: PendingJob) -> BoolArray:
        """(N,) nodes of its partitions that its constraint and its own list of nodes leave it; none
        where one that it needs takes no jobs.
        """
        member = self.members_of(job.partitions)
        if job.request.outside:
            member = member & allowed(job.request.outside, self.nodes)
        if job.excluded_nodes:
            member = member & ~np.isin(self.names, job.excluded_nodes)
        if job.required_nodes:
            named = member & np.isin(self.names, job.required_nodes)
            if int((named & self.usable).sum()) < len(set(job.required_nodes)):
                return np.zeros_like(member)
            if (job.request.nodes or 1) <= len(set(job.required_nodes)):
                member = named
        return member

    def untouched(self) -> BoolArray:
        idle: BoolArray = (self.free_gpus == self.total_gpus).all(axis=0)
        idle &= self.free_cpus == self.total_cpus
        idle &= self.free_mem_mib == self.total_mem_mib
        return idle

    def accepted(self, request: Request) -> tuple[int, ...]:
        """Rows of the GPU types that a request accepts; the zero row for a job without GPUs."""
        if request.total.gpus == 0:
            return (len(self.gpu_types),)
        if not request.gpu_types:
            return tuple(range(len(self.gpu_types)))
        return tuple(i for i, t in enumerate(self.gpu_types) if t in request.gpu_types)

    def take(self, shares: tuple[Share, ...]) -> None:
        """Spend what a placement takes. Raises ValueError: it takes more than is free."""
        for share in shares:
            column, row = self._cell(share)
            gpus = self.free_gpus[row, column] = self.free_gpus[row, column] - share.taken.gpus
            cpus = self.free_cpus[column] = self.free_cpus[column] - share.taken.cpus
            mem_mib = self.free_mem_mib[column] = self.free_mem_mib[column] - share.taken.mem_mib
            if gpus < 0 or cpus < 0 or mem_mib < 0:
                raise ValueError(f"node {share.node}: {share.taken} is more than is free")

    def give(self, shares: tuple[Share, ...]) -> None:
        for share in shares:
            column, row = self._cell(share)
            self.free_gpus[row, column] += share.taken.gpus
            self.free_cpus[column] += share.taken.cpus
            self.free_mem_mib[column] += share.taken.mem_mib

    def cap(self) -> None:
        """Free at most what there is: what jobs hold need not add up to what nodes show as used."""
        np.minimum(self.free_gpus, self.total_gpus, out=self.free_gpus)
        np.minimum(self.free_cpus, self.total_cpus, out=self.free_cpus)
        np.minimum(self.free_mem_mib, self.total_mem_mib, out=self.free_mem_mib)

    def row_on(self, share: Share, column: int) -> int:
        """Row of the GPUs of a share; an untyped one counts as the type the node has most of."""
        if share.taken.gpus == 0:
            return len(self.gpu_types)
        row = self.rows.get(share.gpu_type)
        if row is not None:
            return row
        return int(self.total_gpus[:, column].argmax())

    def _cell(self, share: Share) -> tuple[int, int]:
        column = self.index[share.node]
        return column, self.row_on(share, column)


def _ints(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _members(nodes: tuple[Node, ...]) -> dict[str, BoolArray]:
    members: dict[str, BoolArray] = {}
    for column, node in enumerate(nodes):
        for name in node.partitions:
            if name not in members:
                members[name] = np.zeros(len(nodes), dtype=bool)
            members[name][column] = True
    return members
