"""What a candidate placement costs besides the amounts it takes, node by node.

docs/placement.md gives the formulas and says why each part is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.core.placement import ceil_div, idle_gpus
from rltuned.domain.jobs import Request

FloatArray = NDArray[np.float64]

FREE, IDLE, TOTAL, SIZE, CPUS, MEM, SCRAPS, LOAD = range(8)
"""Rows of `CostModel.nodes`: free GPUs, whether nothing runs there, all GPUs, at least 1 of them,
free CPUs and MiB, free GPUs that are scraps as a share of the node, squared load."""


class Cost(NamedTuple):
    """What a candidate costs besides the amounts; every part lies in [-1, 1], less is better.

    fragmentation: growth of free GPUs that are scraps of partly used nodes, or that no CPUs and
    memory are left for, as a share of a node, mean over the nodes. To open an idle node is not in
    it: see `Candidate.opens`. imbalance: growth of the squared load of the nodes, mean over them.
    waste: how much fuller the GPU type used is than the emptiest one the job accepts. sharing: 1
    for an exclusive job that is not given whole nodes.
    """

    fragmentation: float = 0.0
    imbalance: float = 0.0
    waste: float = 0.0
    sharing: float = 0.0


class Split(NamedTuple):
    """A request over a node count: the larger share is low + 1 GPUs on `larger` nodes."""

    low: int
    larger: int
    cpus: int
    mem_mib: int
    exclusive: bool

    @classmethod
    def of(cls, request: Request, count: int) -> Self:
        need = request.total
        cpus, mem_mib = ceil_div(need.cpus, count), ceil_div(need.mem_mib, count)
        return cls(*divmod(need.gpus, count), cpus, mem_mib, request.exclusive)


@dataclass(frozen=True, slots=True)
class CostModel:
    """How free GPUs are valued. pressure: for each row of the capacity, the share in use."""

    cpus_per_gpu: float = 0.0
    mem_mib_per_gpu: float = 0.0
    pressure: tuple[float, ...] = ()

    @classmethod
    def of(cls, requests: Sequence[Request], capacity: Capacity) -> Self:
        """Medians of what a GPU comes with in this queue, and the part of every type in use."""
        asked = [r.total for r in requests if r.total.gpus]
        total = capacity.total_gpus.sum(axis=1)
        used = 1.0 - capacity.free_gpus.sum(axis=1) / np.maximum(total, 1)
        return cls(
            cpus_per_gpu=float(np.median([a.cpus / a.gpus for a in asked])) if asked else 0.0,
            mem_mib_per_gpu=float(np.median([a.mem_mib / a.gpus for a in asked])) if asked else 0.0,
            pressure=tuple(np.where(total > 0, used, 0.0).tolist()),
        )

    def nodes(self, capacity: Capacity, idle: BoolArray, row: int, columns: IntArray) -> FloatArray:
        """(8, M) of some nodes and the GPUs of one type there, row by row as FREE and so on."""
        own = row < len(capacity.gpu_types)
        free = idle_gpus(row, capacity)[columns].astype(np.float64)
        total = capacity.total_gpus[row] if own else capacity.total_gpus.sum(axis=0)
        size = np.maximum(total[columns], 1.0)
        cpus, mem = capacity.free_cpus[columns], capacity.free_mem_mib[columns]
        by_cpus = 1.0 - cpus / np.maximum(capacity.total_cpus[columns], 1)
        load = np.where(total[columns] > 0, 1.0 - free / size, by_cpus)
        scraps = _scraps(free, self._usable(free, cpus, mem), size)
        return np.array([free, idle[columns], total[columns], size, cpus, mem, scraps, load**2])

    def of_shares(self, nodes: FloatArray, split: Split, *, more: int | IntArray) -> FloatArray:
        """(2, M): fragmentation and imbalance of giving each of some nodes, (8, M), one share.
        more: 0 = the smaller share of GPUs, 1 = the larger one; or (M,).
        """
        free, idle, total, size, cpus, mem, before, load = nodes
        gpus = split.low + more
        if split.exclusive:
            left = np.maximum(total - gpus, 0.0)  # no other job gets them while it runs
            after_load, scraps = np.ones_like(size), left / size
        else:
            left = free - gpus
            usable = self._usable(left, cpus - split.cpus, mem - split.mem_mib)
            scraps = np.where(
                idle > 0, (left - usable) / size, _scraps(left, usable, size) - before
            )
            after_load = 1.0 - left / size
        found: FloatArray = np.array([scraps, after_load**2 - load])
        return np.minimum(np.maximum(found, -1.0), 1.0)

    def _usable(
        self, free: FloatArray, cpus: IntArray | FloatArray, mem_mib: IntArray | FloatArray
    ) -> FloatArray:
        """(N,) free GPUs for which there are CPUs and memory as a GPU usually comes with them."""
        usable = free
        for left, each in ((cpus, self.cpus_per_gpu), (mem_mib, self.mem_mib_per_gpu)):
            if each > 0:
                usable = np.minimum(usable, np.floor(np.maximum(left, 0) / each))
        return usable


def _scraps(free: FloatArray, usable: FloatArray, size: FloatArray) -> FloatArray:
    """(N,) part of a node that is free but broken off: f - u^2/G of its G GPUs, over G."""
    return (free - usable * usable / size) / size
