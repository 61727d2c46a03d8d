"""What a way of placing a job costs besides the amounts it takes, node by node.

docs/placement.md gives the formulas and says why each part is there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.core.placement import ceil_div, idle_gpus
from rltuned.domain.jobs import Request

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Price:
    """What a way costs besides the amounts; every part lies in [-1, 1], less is better.

    Attributes:
        fragmentation: growth of free GPUs that are scraps of partly used nodes, or that no CPUs
            and memory are left for, as a share of a node, mean over the nodes of the way. Opening
            an idle node is not in it: see `Way.opens`.
        imbalance: growth of the squared load of the nodes, mean over them.
        contention: how full the nodes are of other jobs, and how many nodes more than needed.
        waste: how much fuller the GPU type used is than the emptiest one the job accepts.
        sharing: 1 for an exclusive job that is not given whole nodes.
    """

    fragmentation: float = 0.0
    imbalance: float = 0.0
    contention: float = 0.0
    waste: float = 0.0
    sharing: float = 0.0

    def parts(self) -> tuple[float, ...]:
        return (self.fragmentation, self.imbalance, self.contention, self.waste, self.sharing)


@dataclass(frozen=True, slots=True)
class Lens:
    """How free GPUs are valued: what a GPU usually comes with, and how full each type is.

    pressure: for each row of the capacity, the part of that type's GPUs in use.
    """

    cpus_per_gpu: float = 0.0
    mem_mib_per_gpu: float = 0.0
    pressure: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Asks:
    """A request split over a node count: the larger share is low + 1 GPUs on `larger` nodes."""

    low: int
    larger: int
    cpus: int
    mem_mib: int
    exclusive: bool

    @classmethod
    def of(cls, request: Request, count: int) -> "Asks":
        need = request.total
        low, larger = divmod(need.gpus, count)
        cpus, mem_mib = ceil_div(need.cpus, count), ceil_div(need.mem_mib, count)
        return cls(low, larger, cpus, mem_mib, request.exclusive)


def node_prices(
    capacity: Capacity, lens: Lens, idle: BoolArray, row: int, asks: Asks, *, more: int
) -> FloatArray:
    """(3, N): fragmentation, imbalance and contention of giving each node one share.

    Args:
        capacity: the free state.
        lens: how free GPUs are valued.
        idle: (N,) nodes on which nothing runs.
        row: GPU type.
        asks: the split.
        more: 0 = the smaller share of GPUs, 1 = the larger one.
    """
    gpus = asks.low + more
    own = row < len(capacity.gpu_types)
    free = idle_gpus(row, capacity).astype(np.float64)
    total = (capacity.total_gpus[row] if own else capacity.total_gpus.sum(axis=0)).astype(float)
    size = np.maximum(total, 1.0)
    cpus, mem = capacity.free_cpus, capacity.free_mem_mib
    if asks.exclusive:
        left = np.maximum(total - gpus, 0.0)  # nobody else gets them while the job runs
        after_load, scraps = np.ones_like(size), left / size
    else:
        left = free - gpus
        usable = _usable(left, cpus - asks.cpus, mem - asks.mem_mib, lens)
        before = _scraps(free, _usable(free, cpus, mem, lens), size)
        scraps = np.where(idle, (left - usable) / size, _scraps(left, usable, size) - before)
        after_load = 1.0 - left / size
    load = np.where(total > 0, 1.0 - free / size, 1.0 - cpus / np.maximum(capacity.total_cpus, 1))
    imbalance = np.clip(after_load**2 - load**2, -1.0, 1.0)
    return np.stack([np.clip(scraps, -1.0, 1.0), imbalance, np.clip(load, 0.0, 1.0)])


def _usable(free: FloatArray, cpus: IntArray, mem_mib: IntArray, lens: Lens) -> FloatArray:
    """(N,) free GPUs for which there are CPUs and memory as a GPU usually comes with them."""
    usable = free
    for left, each in ((cpus, lens.cpus_per_gpu), (mem_mib, lens.mem_mib_per_gpu)):
        if each > 0:
            usable = np.minimum(usable, np.floor(np.maximum(left, 0) / each))
    return usable


def _scraps(free: FloatArray, usable: FloatArray, size: FloatArray) -> FloatArray:
    """(N,) part of a node that is free but broken off: f - u^2/G of its G GPUs, over G."""
    return (free - usable * usable / size) / size
